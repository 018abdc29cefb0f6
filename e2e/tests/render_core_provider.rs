//! The chart of the platform rendered by the real Helm: values of Krateo's chart.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use e2e::{HostPlatform, Site, image};
use serde_json::{Value, json};

fn chart() -> PathBuf {
    image::root().join("charts/core-provider")
}

fn helm(site: &Site, arguments: &[&str], values: &Value) -> Result<String> {
    let file = tempfile::NamedTempFile::new()?;
    // JSON is YAML.
    std::fs::write(file.path(), values.to_string())?;
    let mut command = site.helm(arguments);
    command.arg(chart()).arg("--values").arg(file.path());
    site.run(command)
}

fn deployment(site: &Site, values: &Value, name: &str) -> Result<Value> {
    let printed = helm(site, &["template", "core-provider"], values)?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&printed).context("Helm printed what is no YAML")?;
    let is_it = |object: &Value| object["kind"] == "Deployment" && object["metadata"]["name"] == name;
    documents.into_iter().find(is_it).context("no Deployment")
}

fn variable(deployment: &Value, name: &str) -> Option<String> {
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let mut env = container["env"].as_array()?.iter();
    Some(
        env.find(|variable| variable["name"] == name)?["value"]
            .as_str()?
            .to_owned(),
    )
}

/// Values copied from Krateo's chart without a change.
fn copied() -> Value {
    let image = |program: &str| json!({"repository": format!("ghcr.io/krateoplatformops/{program}"), "pullPolicy": "IfNotPresent", "tag": "1.0.0"});
    let common = json!({
        "serviceAccount": {"create": true, "automount": true, "annotations": {}, "name": ""},
        "podAnnotations": {}, "podLabels": {}, "podSecurityContext": {}, "securityContext": {}, "resources": {},
        "autoscaling": {"enabled": false, "minReplicas": 1, "maxReplicas": 100, "targetCPUUtilizationPercentage": 80},
        "volumes": [], "volumeMounts": [], "nodeSelector": {}, "tolerations": [], "affinity": {},
        "imagePullSecrets": [], "nameOverride": "", "fullnameOverride": "", "replicaCount": 1,
    });
    let with = |further: Value| {
        let mut values = common.clone();
        let Value::Object(further) = further else {
            return values;
        };
        values.as_object_mut().unwrap().extend(further);
        values
    };
    let mut values = with(json!({
        "image": {"repository": "ghcr.io/krateoplatformops/core-provider", "pullPolicy": "IfNotPresent", "tag": ""},
        "service": {"type": "ClusterIP", "port": 80}, "env": {"CORE_PROVIDER_DEBUG": "true"},
        "ingress": {
            "enabled": false, "className": "", "annotations": {}, "tls": [],
            "hosts": [{"host": "chart-example.local", "paths": [{"path": "/", "pathType": "ImplementationSpecific"}]}],
        },
        "core-provider-crd": {},
    }));
    values["chartInspector"] = with(json!({
        "image": image("chart-inspector"), "service": {"type": "ClusterIP", "port": 80}, "env": {"HOME": "/tmp"},
    }));
    values["cdc"] = with(json!({
        "image": image("composition-dynamic-controller"), "metrics": {"enabled": false}, "replicaCount": 3,
        "env": {"HOME": "/tmp", "COMPOSITION_CONTROLLER_WORKERS": 7},
    }));
    values
}

#[test]
fn a_values_file_of_krateos_chart_has_its_effect() -> Result<()> {
    let site = HostPlatform::shared()?.site();
    let mut values = copied();
    values["podLabels"] = json!({"team": "platform"});
    values["nodeSelector"] = json!({"zone": "a"});
    values["resources"] = json!({"limits": {"memory": "1Gi"}});
    values["cdc"]["metrics"] = json!({"enabled": true, "port": 9090});
    helm(site, &["lint", "--strict"], &values)?;
    let provider = deployment(site, &values, "core-provider")?;
    let pod = &provider["spec"]["template"];
    ensure!(provider["spec"]["replicas"] == 1, "{provider}");
    ensure!(pod["metadata"]["labels"]["team"] == "platform", "{provider}");
    ensure!(pod["spec"]["nodeSelector"]["zone"] == "a", "{provider}");
    let container = &pod["spec"]["containers"][0];
    ensure!(container["resources"]["limits"]["memory"] == "1Gi", "{provider}");
    ensure!(
        variable(&provider, "CORE_PROVIDER_DEBUG").as_deref() == Some("true"),
        "{provider}"
    );
    ensure!(
        variable(&provider, "CDC_REPLICAS").as_deref() == Some("3"),
        "{provider}"
    );
    let env = variable(&provider, "CDC_ENV").context("no CDC_ENV")?;
    let env: Value = serde_json::from_str(&env)?;
    let expected =
        json!({"COMPOSITION_CONTROLLER_WORKERS": "7", "COMPOSITION_CONTROLLER_METRICS_SERVER_PORT": "9090"});
    ensure!(env == expected, "{env}");
    let image = variable(&provider, "CDC_IMAGE").unwrap_or_default();
    ensure!(
        image == "ghcr.io/krateo/composition-dynamic-controller:0.1.0",
        "{image}"
    );
    let inspector = deployment(site, &values, "core-provider-chart-inspector")?;
    let image = &inspector["spec"]["template"]["spec"]["containers"][0]["image"];
    ensure!(*image == "ghcr.io/krateo/chart-inspector:0.1.0", "{image}");
    values["replicaCount"] = json!(0);
    let stopped = deployment(site, &values, "core-provider")?;
    ensure!(stopped["spec"]["replicas"] == 0, "{stopped}");
    let as_it_is = deployment(site, &json!({}), "core-provider")?;
    ensure!(as_it_is["spec"]["replicas"] == 2, "{as_it_is}");
    Ok(())
}

#[test]
fn metrics_and_traces_are_pushed_where_the_values_say() -> Result<()> {
    let site = HostPlatform::shared()?.site();
    let url = "http://collector:4318";
    let inspector = "core-provider-chart-inspector";
    let check = |otel: Value, expected: [Option<&str>; 3]| -> Result<()> {
        let values = json!({"otel": otel});
        for name in ["core-provider", inspector] {
            let deployment = deployment(site, &values, name)?;
            let names = [
                "OTEL_ENABLED",
                "OTEL_TRACES_EXPORTER",
                "OTEL_EXPORTER_OTLP_ENDPOINT",
            ];
            let found = names.map(|variable_| variable(&deployment, variable_));
            ensure!(
                found.each_ref().map(Option::as_deref) == expected,
                "{name}: {found:?}"
            );
        }
        let provider = deployment(site, &values, "core-provider")?;
        let env = variable(&provider, "CDC_ENV").context("no CDC_ENV")?;
        let env: Value = serde_json::from_str(&env)?;
        ensure!(env["OTEL_TRACES_EXPORTER"].as_str() == expected[1], "{env}");
        Ok(())
    };
    check(json!({}), [None, None, None])?;
    check(
        json!({"enabled": true, "endpoint": url}),
        [Some("true"), None, Some(url)],
    )?;
    check(
        json!({"traces": true, "endpoint": url}),
        [None, Some("otlp"), Some(url)],
    )?;
    let refused = helm(
        site,
        &["template", "core-provider"],
        &json!({"otel": {"traces": true}}),
    );
    let refused = refused.err().context("it was taken")?;
    ensure!(format!("{refused:#}").contains("otel.endpoint"), "{refused:#}");
    Ok(())
}

#[test]
fn a_value_of_krateos_chart_without_a_meaning_here_is_refused_with_what_to_write() -> Result<()> {
    let site = HostPlatform::shared()?.site();
    for (at, value, said) in [
        (
            "/image/repository",
            json!("mirror/core-provider"),
            "image.repository: write image.registry",
        ),
        (
            "/cdc/image/repository",
            json!("mirror/cdc"),
            "cdc.image.repository: write cdc.image as one string",
        ),
        (
            "/image/tag",
            json!("0.9.0"),
            "image.tag: write nothing, 0.9.0 is a version of Krateo's program",
        ),
        (
            "/serviceAccount/create",
            json!(false),
            "serviceAccount.create: write nothing",
        ),
        (
            "/serviceAccount/name",
            json!("mine"),
            "serviceAccount.name: write fullnameOverride",
        ),
        (
            "/autoscaling/enabled",
            json!(true),
            "autoscaling.enabled: write coreProvider.replicaCount",
        ),
        ("/volumes", json!([{"name": "a"}]), "volumes: write nothing"),
        ("/ingress/enabled", json!(true), "ingress.enabled: write nothing"),
        (
            "/ingress/className",
            json!("nginx"),
            "ingress.className: write nothing",
        ),
        (
            "/ingress/hosts",
            json!([{"host": "krateo.example"}]),
            "ingress.hosts: write nothing",
        ),
        (
            "/core-provider-crd",
            json!({"keep": true}),
            "core-provider-crd: write nothing",
        ),
        (
            "/cdc/image/tag",
            json!("0.20.1"),
            "cdc.image.tag: write nothing, or cdc.image as one string",
        ),
        (
            "/chartInspector/image",
            json!({"tag": "0.20.1"}),
            "chartInspector.image.tag: write nothing, or chartInspector.image as one string",
        ),
        (
            "/cdc/image/pullPolicy",
            json!("Always"),
            "cdc.image.pullPolicy: write image.pullPolicy",
        ),
        ("/cdc/replicaCount", json!(0), "at '/cdc/replicaCount': minimum"),
        (
            "/chartInspector/service/port",
            json!(81),
            "chartInspector.service.port: write nothing",
        ),
        (
            "/cdc/resources",
            json!({"limits": {"cpu": 1}}),
            "cdc.resources: write cdc.assets",
        ),
        (
            "/cdc/tolerations",
            json!([{"key": "a"}]),
            "cdc.tolerations: write cdc.assets",
        ),
    ] {
        let mut values = copied();
        *values.pointer_mut(at).context(at)? = value;
        let refused = helm(site, &["template", "core-provider"], &values);
        let refused = format!("{:#}", refused.err().with_context(|| format!("{at} was taken"))?);
        ensure!(refused.contains(said), "{refused}");
    }
    let misspelt = helm(
        site,
        &["template", "core-provider"],
        &json!({"coreProvider": {"replicas": 3}}),
    );
    let refused = format!("{:#}", misspelt.err().context("a misspelt key was taken")?);
    ensure!(refused.contains("replicas"), "{refused}");
    helm(site, &["lint", "--strict"], &json!({})).map(drop)
}
