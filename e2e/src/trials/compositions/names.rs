//! Where a composition's release name and chart come from, if not from the definition's `spec`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Rig, Type, list, until};
use crate::namespace::{condition, is_ready};
use crate::trials::releases::TrialChart;
use crate::{ChartFolder, Namespace};

/// The annotation `krateo.io/release-name` of a definition names the release of its only composition, which keeps the
/// name; a second one is told that it does not get it. `kco` knows this before the controller has seen them.
///
/// # Errors
/// When it is not so.
pub fn of_definitions(rig: &Rig) -> Result<()> {
    let namespace = rig.platform.namespace("release-names")?;
    let chart = TrialChart::named("config-map")?;
    let url = rig.push(Path::new(&chart.path()), "named")?;
    let annotations = BTreeMap::from([("krateo.io/release-name", "shop")]);
    let type_ = Rig::serve(&namespace, "named", &url, &annotations)?;
    namespace.apply(&composition(&type_, &namespace, "first"))?;
    is_foretold(&namespace, &type_)?;
    rig.platform.run_controller(&type_.plural, &type_.version)?;
    let first = released(&namespace, &type_, "first")?;
    ensure!(first["status"]["releaseName"] == "shop", "{first:#}");
    ensure!(
        first["metadata"]["annotations"]["krateo.io/release-name"] == "shop",
        "the composition does not say its name: {first:#}"
    );

    namespace.apply(&composition(&type_, &namespace, "second"))?;
    let second = released(&namespace, &type_, "second")?;
    let name = second["status"]["releaseName"].as_str().unwrap_or_default();
    ensure!(name.starts_with("second-"), "{second:#}");
    until("the second to be told", || {
        let events = list(&namespace, "events.events.k8s.io")?;
        let told =
            |event: &Value| event["reason"] == "ReleaseNameIgnored" && event["regarding"]["name"] == "second";
        Ok(events.iter().any(told).then_some(()))
    })?;

    // The definition gets another name, and the controller reconciles both again.
    let resource = ["annotate", "compositiondefinition", "named", "--overwrite"];
    namespace.kubectl(&[&resource[..], &["krateo.io/release-name=other"]].concat())?;
    namespace.kubectl(&[
        "patch",
        &type_.resource(),
        "first",
        "--type=merge",
        "--patch={\"spec\": {\"one\": \"changed\"}}",
    ])?;
    namespace.wait("configmaps", "shop", |map| map["data"]["one"] == "changed")?;
    let mut expected = ["shop", name];
    expected.sort_unstable();
    let releases = namespace.helm(&["list", "--short"])?;
    ensure!(releases.lines().eq(expected), "{releases}");
    end(rig, &namespace, &type_)
}

/// What `kco` shows for `first` while no controller runs: the definition's name, unless there is another composition.
fn is_foretold(namespace: &Namespace, type_: &Type) -> Result<()> {
    let plan = namespace.kco(&["plan", "first"])?;
    let steps = plan["steps"].as_array().context("no steps")?;
    let is_noted = steps.contains(&json!("note the definition's release name shop"));
    ensure!(plan["release"] == "shop" && is_noted, "{plan:#}");
    let tree = namespace.kco(&["tree", "first"])?;
    ensure!(tree["releaseName"] == "shop", "{tree:#}");
    let touched = namespace.kco(&["inspect", "composition", "first"])?;
    ensure!(touched[0]["name"] == "shop", "{touched:#}");

    namespace.apply(&composition(type_, namespace, "second"))?;
    let listed = namespace.kco(&["get", "compositions", &type_.plural])?;
    let lines = listed.as_array().context("no list")?;
    ensure!(lines.len() == 2, "{listed:#}");
    for line in lines {
        let (name, release) = (line["name"].as_str(), line["release"].as_str());
        let is_own = name
            .zip(release)
            .is_some_and(|(name, release)| release.len() == name.len() + 9 && release.starts_with(name));
        let message = line["message"].as_str().unwrap_or_default();
        ensure!(
            is_own && message.contains("it governs 2 compositions"),
            "{listed:#}"
        );
    }
    namespace
        .kubectl(&["delete", &type_.resource(), "second"])
        .map(drop)
}

/// A controller with a fixed chart releases that one, whatever the definition says.
///
/// # Errors
/// When it does not.
pub fn of_fixed_charts(rig: &Rig) -> Result<()> {
    let namespace = rig.platform.namespace("fixed-chart")?;
    let chart = TrialChart::named("config-map")?;
    let url = rig.push(Path::new(&chart.path()), "pinned")?;
    let fixed = ChartFolder::copy_of(Path::new(&chart.path()), "pinned", "2.0.0")?;
    let site = rig.platform.site();
    fixed
        .package(site)?
        .push(site, &rig.registry, &["--plain-http"])?;
    let fixed = format!("{url}:2.0.0");
    let environment = [("COMPOSITION_CONTROLLER_CHART", fixed.as_str())];
    let type_ = rig.define(&namespace, "pinned", &url, &BTreeMap::new(), &environment)?;
    namespace.apply(&composition(&type_, &namespace, "web"))?;
    let web = released(&namespace, &type_, "web")?;
    ensure!(
        web["status"]["helmChartVersion"] == "2.0.0" && web["status"]["helmChartUrl"] == fixed,
        "{web:#}"
    );
    let labels = web["metadata"]["labels"]
        .as_object()
        .context("it has no labels")?;
    ensure!(
        !labels.contains_key("krateo.io/composition-definition-name"),
        "no definition supplied the chart: {labels:?}"
    );
    let name = web["status"]["releaseName"].as_str().unwrap_or_default();
    namespace.kubectl(&["delete", "configmap", name])?;
    namespace.wait("configmaps", name, |map| map["data"]["one"] == "first")?;
    end(rig, &namespace, &type_)
}

/// If a version of the chart drops a kind, its controller removes the remaining objects of the kind, and has rights to
/// the kind only as long as that takes.
///
/// # Errors
/// When it does not.
pub fn of_kinds_that_go(rig: &Rig) -> Result<()> {
    let namespace = rig.platform.namespace("kind-goes")?;
    let platform = &rig.platform;
    let url = losing_a_service(rig, "poorer")?;
    let type_ = rig.define(&namespace, "poorer", &url, &BTreeMap::new(), &[])?;
    namespace.apply(&composition(&type_, &namespace, "web"))?;
    let web = released(&namespace, &type_, "web")?;
    let name = web["status"]["releaseName"].as_str().unwrap_or_default();

    let patch = r#"--patch={"spec": {"chart": {"version": "1.1.0"}}}"#;
    namespace.kubectl(&["patch", "compositiondefinition", "poorer", "--type=merge", patch])?;
    namespace.wait("compositiondefinitions", "poorer", is_ready)?;
    platform.kill_controller(&type_.plural, &type_.version)?;
    platform.run_controller(&type_.plural, "v1-1-0")?;
    let type_ = Type {
        version: "v1-1-0".to_owned(),
        ..type_
    };
    namespace.wait(&type_.resource(), "web", |object| {
        object["status"]["helmChartVersion"] == "1.1.0"
    })?;
    ensure!(namespace.get("service", name)?.is_none(), "the Service is left");
    // Nothing of the kind is left to remove, which the next pass over the definition notices.
    namespace.kubectl(&["annotate", "compositiondefinition", "poorer", "look=again"])?;
    namespace.wait("compositiondefinitions", "poorer", |definition| {
        !handles_services(definition)
    })?;
    end(rig, &namespace, &type_)
}

/// The same if the version has a definition of its own and a user moves the composition to it: its controller has
/// rights to the kind from then on as long as that takes, within the annotations of the previous definition.
///
/// # Errors
/// When it does not.
pub fn of_kinds_handed_over(rig: &Rig) -> Result<()> {
    let namespace = rig.platform.namespace("kind-handed-over")?;
    let url = losing_a_service(rig, "leaner")?;
    let type_ = rig.define(&namespace, "leaner", &url, &BTreeMap::new(), &[])?;
    namespace.define("leaner-next", &url, "1.1.0")?;
    namespace.wait("compositiondefinitions", "leaner-next", is_ready)?;
    let version = "v1-1-0";
    rig.platform.run_controller(&type_.plural, version)?;
    let next = Type {
        version: version.to_owned(),
        ..type_.clone()
    };
    // One stays with the first definition, another one belongs to the second from the start.
    for (type_, name) in [(&type_, "web"), (&type_, "staying"), (&next, "new")] {
        namespace.apply(&composition(type_, &namespace, name))?;
    }
    let web = released(&namespace, &type_, "web")?;
    for name in ["staying", "new"] {
        released(&namespace, &type_, name)?;
    }
    let service = web["status"]["releaseName"].as_str().unwrap_or_default();
    let definition = namespace.get("compositiondefinitions", "leaner-next")?;
    ensure!(
        !definition.as_ref().is_some_and(handles_services),
        "services are allowed although nothing was moved: {definition:#?}"
    );

    let moved = [
        "krateo.io/composition-version=v1-1-0",
        "krateo.io/composition-definition-name=leaner-next",
    ];
    let resource = type_.resource();
    let label = ["label", "--overwrite", &resource, "web"];
    namespace.kubectl(&[&label[..], &moved].concat())?;
    namespace.wait(&resource, "web", |object| {
        object["status"]["helmChartVersion"] == "1.1.0"
    })?;
    ensure!(
        namespace.get("service", service)?.is_none(),
        "the Service is left"
    );
    let staying = released(&namespace, &type_, "staying")?;
    let kept = staying["status"]["releaseName"].as_str().unwrap_or_default();
    ensure!(
        namespace.get("service", kept)?.is_some(),
        "another's Service went"
    );
    namespace.kubectl(&["annotate", "compositiondefinition", "leaner-next", "look=again"])?;
    namespace.wait("compositiondefinitions", "leaner-next", |definition| {
        !handles_services(definition)
    })?;
    end(rig, &namespace, &type_)?;
    rig.platform.kill_controller(&next.plural, &next.version)
}

fn handles_services(definition: &Value) -> bool {
    let kinds = definition["status"]["bound"]["kinds"].as_array();
    kinds.is_some_and(|kinds| kinds.contains(&json!("services")))
}

/// A chart with a Service in version 1.0.0 and none in 1.1.0; returns its URL.
fn losing_a_service(rig: &Rig, name: &str) -> Result<String> {
    let site = rig.platform.site();
    let chart = TrialChart::named("config-map")?;
    let with = ChartFolder::copy_of(Path::new(&chart.path()), name, "1.0.0")?;
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}\nspec: {ports: [{port: 80}]}\n";
    with.write("templates/service.yaml", service)?;
    let url = rig.push(with.folder(), name)?;
    let without = ChartFolder::copy_of(Path::new(&chart.path()), name, "1.1.0")?;
    without.write("values.schema.json", r#"{"type": "object"}"#)?;
    without
        .package(site)?
        .push(site, &rig.registry, &["--plain-http"])?;
    Ok(url)
}

fn composition(type_: &Type, namespace: &Namespace, name: &str) -> Value {
    let mut composition = type_.composition(namespace.namespace(), name, &json!({}));
    composition["metadata"]["labels"] = json!({});
    composition
}

fn released(namespace: &Namespace, type_: &Type, name: &str) -> Result<Value> {
    namespace.wait(&type_.resource(), name, |object| {
        condition(object, "Released").is_some_and(|released| released["status"] == "True")
            && object["status"]["releaseName"].is_string()
    })
}

/// Removes the compositions and with them their releases, and stops the controller.
fn end(rig: &Rig, namespace: &Namespace, type_: &Type) -> Result<()> {
    namespace.kubectl(&["delete", &type_.resource(), "--all", "--timeout=60s"])?;
    let releases = namespace.helm(&["list", "--short"])?;
    ensure!(releases.trim().is_empty(), "releases are left: {releases}");
    rig.platform.kill_controller(&type_.plural, &type_.version)
}
