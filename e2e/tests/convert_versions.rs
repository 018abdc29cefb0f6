//! Two versions of a chart that changed its values: each shows the same objects in its own fields, and nothing is lost.

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use e2e::host_platform::free_port;
use e2e::platform::{NAMESPACE, RELEASE};
use e2e::proxy::Proxy;
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace, Site};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

use crate::rotate_certificates::{TIMES, pause};

/// The changes declared by version 2.
const CONVERSION: &str = "\
changes:
  - since: 2.0.0
    steps:
      - {move: image, to: image.name}
      - {move: greeting, to: page.title}
      - {map: size, values: [{old: small, new: S}, {old: big, new: L}]}
      - {add: mode, value: classic}
";

#[test]
fn objects_are_read_and_written_through_both_versions_of_a_chart_that_renames() -> Result<()> {
    let platform = HostPlatform::installed()?;
    let scenario = platform.namespace("convert-versions")?;
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let push = |chart: &ChartFolder, site: &Site| {
        chart
            .package(site)?
            .push(site, &registry.to_string(), &["--plain-http"])
    };
    let url = push(&old("renamed", "1.0.0")?, scenario.site())?;
    push(&new("renamed", "2.0.0", CONVERSION)?, scenario.site())?;
    let lossy = CONVERSION.replace("page.title", "image.name");
    push(
        &new("renamed", "3.0.0", &lossy.replace("2.0.0", "3.0.0"))?,
        scenario.site(),
    )?;
    let plain = push(&old("plain", "1.0.0")?, scenario.site())?;
    push(&old("plain", "1.1.0")?, scenario.site())?;

    let address = format!("https://127.0.0.1:{}", free_port()?);
    let provider = run(&platform, &address)?;
    for (name, url, version) in [
        ("old", &url, "1.0.0"),
        ("new", &url, "2.0.0"),
        ("plain-old", &plain, "1.0.0"),
        ("plain-new", &plain, "1.1.0"),
    ] {
        scenario.define(name, url, version)?;
        scenario.wait("compositiondefinitions", name, |definition| {
            definition["status"]["apiVersion"].is_string()
        })?;
    }
    let conversion = |name: &str| -> Result<Value> {
        let type_ = scenario.wait("customresourcedefinitions", name, |type_| {
            type_["spec"]["versions"]
                .as_array()
                .is_some_and(|versions| versions.len() == 3)
        })?;
        Ok(type_["spec"]["conversion"].clone())
    };
    let webhook = conversion("renameds.composition.krateo.io")?;
    assert_eq!(webhook["strategy"], "Webhook");
    let config = &webhook["webhook"]["clientConfig"];
    let called = config["url"].as_str().unwrap();
    assert!(
        called.starts_with(&format!("{address}/convert/renameds/")),
        "{called}"
    );
    assert!(config["caBundle"].is_string());
    assert_eq!(conversion("plains.composition.krateo.io")?["strategy"], "None");

    both_ways(&scenario)?;
    losing_changes_are_refused(&scenario, &url)?;

    // Versions without changes need no webhook; those with changes need any running replica, also one that has just
    // started.
    scenario.apply(&object(
        scenario.namespace(),
        "Plain",
        "v1-0-0",
        "web",
        &json!({"image": "nginx"}),
    ))?;
    provider.stop()?;
    let plain = read(&scenario, "plains", "v1-1-0", "web")?;
    assert_eq!(plain["image"], "nginx");
    assert!(read(&scenario, "renameds", "v2-0-0", "old").is_err());
    let again = run(&platform, &address)?;
    let seen = scenario.wait_until("another process to convert", || {
        Ok(read(&scenario, "renameds", "v2-0-0", "old").ok())
    })?;
    assert_eq!(seen["page"]["title"], "Hello");
    again.stop()?;
    Ok(())
}

#[test]
fn ca_bundles_of_types_rotate_even_for_paused_or_failing_definitions() -> Result<()> {
    let platform = HostPlatform::installed()?;
    let scenario = platform.namespace("trust-the-next")?;
    let registry = platform.plane().start_registry("charts", &Settings::default())?;
    let mut url = String::new();
    for chart in [old("lasting", "1.0.0")?, new("lasting", "2.0.0", CONVERSION)?] {
        let package = chart.package(scenario.site())?;
        url = package.push(scenario.site(), &registry.to_string(), &["--plain-http"])?;
    }
    let address = format!("https://127.0.0.1:{}", free_port()?);
    let provider = run_with(&platform, &address, &TIMES)?;
    for (name, version) in [("old", "1.0.0"), ("new", "2.0.0")] {
        scenario.define(name, &url, version)?;
        scenario.wait("compositiondefinitions", name, |definition| {
            definition["status"]["apiVersion"].is_string()
        })?;
    }
    let spec = json!({"image": "nginx", "greeting": "Hello", "size": "big"});
    let web = object(scenario.namespace(), "Lasting", "v1-0-0", "web", &spec);
    scenario.wait_until("the object", || Ok(scenario.apply(&web).ok()))?;

    // One definition is paused, and the chart of the other cannot be fetched.
    pause(&scenario, "old")?;
    scenario.define("new", &url, "9.9.9")?;
    scenario.wait("compositiondefinitions", "new", |definition| {
        condition(definition, "Ready").is_some_and(|ready| ready["reason"] == "Unavailable")
    })?;
    let (first, _) = certificates(&scenario)?;
    scenario.wait_until("the authority to be forgotten", || {
        let (present, others) = certificates(&scenario)?;
        let type_ = scenario.get("customresourcedefinitions", "lastings.composition.krateo.io")?;
        let config = &type_.unwrap()["spec"]["conversion"]["webhook"]["clientConfig"];
        let trusted = decoded(&config["caBundle"])?;
        let is_gone = first != present && !others.contains(&first);
        Ok((is_gone && trusted.contains(&present) && !trusted.contains(&first)).then_some(()))
    })?;
    // Connections end with the process, so the next reader must trust the certificate again.
    let said = provider.stop()?.said;
    assert!(said.contains("rotated the CA bundle"), "{said}");
    let again = run_with(&platform, &address, &TIMES)?;
    let seen = scenario.wait_until("an answer to a read", || {
        Ok(read(&scenario, "lastings", "v2-0-0", "web").ok())
    })?;
    assert_eq!(seen["page"]["title"], "Hello");
    again.stop()?;
    Ok(())
}

/// What is written through one version can be read in the fields of the other, and a write through that one loses
/// nothing.
fn both_ways(scenario: &Namespace) -> Result<()> {
    let spec = json!({"image": "nginx", "greeting": "Hello", "size": "big"});
    scenario.wait_until("the first object", || {
        Ok(scenario
            .apply(&object(scenario.namespace(), "Renamed", "v1-0-0", "old", &spec))
            .ok())
    })?;
    let seen = read(scenario, "renameds", "v2-0-0", "old")?;
    let expected = json!({
        "image": {"name": "nginx"}, "page": {"title": "Hello"}, "size": "L", "mode": "classic",
    });
    assert_eq!(seen, expected);

    let spec = json!({"image": {"name": "nginx", "pull": "Always"}, "page": {"title": "Hi"}, "size": "XL"});
    scenario.apply(&object(scenario.namespace(), "Renamed", "v2-0-0", "new", &spec))?;
    let seen = read(scenario, "renameds", "v1-0-0", "new")?;
    assert_eq!(
        (&seen["image"], &seen["greeting"], &seen["size"]),
        (&json!("nginx"), &json!("Hi"), &json!("XL"))
    );
    // Writing a label or another value through the older version does not lose what only the newer one has.
    let through = "renameds.v1-0-0.composition.krateo.io";
    scenario.kubectl(&["label", through, "new", "seen=yes"])?;
    let patch = json!({"spec": {"greeting": "Bye", "image": "httpd"}}).to_string();
    scenario.kubectl(&["patch", through, "new", "--type=merge", "--patch", &patch])?;
    let seen = read(scenario, "renameds", "v2-0-0", "new")?;
    let expected =
        json!({"image": {"name": "httpd", "pull": "Always"}, "page": {"title": "Bye"}, "size": "XL"});
    assert_eq!(seen, expected);
    // What the older version refuses, it refuses with its own field names.
    let wrong = scenario.apply(&object(
        scenario.namespace(),
        "Renamed",
        "v1-0-0",
        "wrong",
        &json!({"image": {"name": "nginx"}}),
    ));
    assert!(format!("{:#}", wrong.unwrap_err()).contains("spec.image"));
    Ok(())
}

fn losing_changes_are_refused(scenario: &Namespace, url: &str) -> Result<()> {
    scenario.define("lossy", url, "3.0.0")?;
    let lossy = scenario.wait_for("compositiondefinitions", "lossy", "Ready", "False")?;
    let ready = condition(&lossy, "Ready").unwrap();
    assert_eq!(ready["reason"], "Incompatible", "{ready}");
    let why = ready["message"].as_str().unwrap();
    assert!(why.contains("conversion.yaml"), "{why}");
    let crd = scenario
        .get("customresourcedefinitions", "renameds.composition.krateo.io")?
        .unwrap();
    assert_eq!(
        crd["spec"]["versions"].as_array().unwrap().len(),
        3,
        "nothing was touched"
    );
    Ok(())
}

fn old(name: &str, version: &str) -> Result<ChartFolder> {
    let text = json!({"type": "string"});
    chart(
        name,
        version,
        &json!({
            "image": text, "greeting": text, "size": {"type": "string", "enum": ["small", "big"]},
        }),
    )
}

fn new(name: &str, version: &str, conversion: &str) -> Result<ChartFolder> {
    let text = json!({"type": "string"});
    let fields = |properties: Value| json!({"type": "object", "additionalProperties": false, "properties": properties});
    let chart = chart(
        name,
        version,
        &json!({
            "image": fields(json!({"name": text, "pull": text})), "page": fields(json!({"title": text})),
            "size": {"type": "string", "enum": ["S", "L", "XL"]}, "mode": text,
        }),
    )?;
    chart.write("conversion.yaml", conversion)?;
    Ok(chart)
}

fn chart(name: &str, version: &str, properties: &Value) -> Result<ChartFolder> {
    let chart = ChartFolder::copy("web", name, version)?;
    let schema = json!({"type": "object", "additionalProperties": false, "properties": properties});
    chart.write("values.schema.json", &schema.to_string())?;
    chart.write("values.yaml", "{}\n")?;
    Ok(chart)
}

/// The certificate of the CA, and those of the next and the previous one.
fn certificates(scenario: &Namespace) -> Result<(String, String)> {
    let secret = "core-provider-webhook-certificates";
    let arguments = ["get", "secret", secret, "--namespace", NAMESPACE, "--output=json"];
    let secret: Value = serde_json::from_str(&scenario.kubectl(&arguments)?)?;
    let others = ["next.crt", "former.crt"].map(|key| decoded(&secret["data"][key]));
    let others = others.into_iter().collect::<Result<String>>()?;
    Ok((decoded(&secret["data"]["ca.crt"])?, others))
}

/// Decodes base64; empty for nothing.
fn decoded(text: &Value) -> Result<String> {
    let bytes = BASE64_STANDARD.decode(text.as_str().unwrap_or_default())?;
    Ok(String::from_utf8(bytes)?)
}

/// core-provider outside of the cluster, so that the API server calls it by URL.
fn run(platform: &HostPlatform, address: &str) -> Result<Proxy> {
    run_with(platform, address, &[])
}

/// The same, with these further environment variables.
fn run_with(platform: &HostPlatform, address: &str, further: &[(&str, &str)]) -> Result<Proxy> {
    let port = address.rsplit(':').next().unwrap_or_default();
    let mut provider = platform.provider()?;
    provider
        .envs(further.iter().copied())
        .env("CORE_PROVIDER_WEBHOOK_PORT", port)
        .env("CORE_PROVIDER_WEBHOOK_URL", address);
    let proxy = Proxy::open_as(platform.plane(), NAMESPACE, RELEASE)?;
    proxy.start(provider, None)?;
    Ok(proxy)
}

fn object(namespace: &str, kind: &str, version: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("composition.krateo.io/{version}"), "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

/// The spec of a composition, as a version shows it.
fn read(scenario: &Namespace, plural: &str, version: &str, name: &str) -> Result<Value> {
    let resource = format!("{plural}.{version}.composition.krateo.io");
    let text = scenario.kubectl(&["get", &resource, name, "--output=jsonpath={.spec}"])?;
    Ok(serde_json::from_str(&text)?)
}
