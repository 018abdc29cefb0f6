//! The chart of the installer rendered by the real Helm: what each mode contains, and which compositions are rendered
//! at each state of a real API server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use e2e::trials::installer::rendered::{NAMESPACE, Rendered};
use e2e::trials::installer::{Component, Package, Profile, Subcharts, charts};
use e2e::{HostPlatform, Namespace, Site, progress, site};
use serde_json::{Value, json};
use tempfile::TempDir;

const VERSION: &str = "1.2.3";
const GROUP: &str = "composition.krateo.io";

/// The objects of the engine's own chart in a release, apart from those in its `crds/`.
const ENGINE: [&str; 24] = [
    "PodDisruptionBudget/installer-core-provider",
    "ServiceAccount/installer-core-provider",
    "ServiceAccount/installer-core-provider-chart-inspector",
    "ClusterRole/installer-core-provider",
    "ClusterRole/installer-core-provider-approver",
    "ClusterRole/installer-core-provider-approver-definitions",
    "ClusterRole/installer-core-provider-chart-inspector",
    "ClusterRole/installer-core-provider-granter",
    "ClusterRoleBinding/installer-core-provider",
    "ClusterRoleBinding/installer-core-provider-chart-inspector",
    "Role/installer-core-provider",
    "RoleBinding/installer-core-provider",
    "Service/installer-core-provider-chart-inspector",
    "Service/installer-core-provider-webhook-service",
    "Deployment/installer-core-provider",
    "Deployment/installer-core-provider-chart-inspector",
    "ValidatingAdmissionPolicy/installer-core-provider-compositions-max-name-length-policy",
    "ValidatingAdmissionPolicyBinding/installer-core-provider-compositions-max-name-length-policy",
    "ValidatingAdmissionPolicy/installer-core-provider-labelled",
    "ValidatingAdmissionPolicyBinding/installer-core-provider-labelled",
    "ValidatingAdmissionPolicy/installer-core-provider-approvals",
    "ValidatingAdmissionPolicyBinding/installer-core-provider-approvals",
    "CustomResourceDefinition/compositiondefinitions.core.krateo.io",
    "CustomResourceDefinition/chartgrants.kco.krateo.io",
];

/// The other objects.
const BOOTSTRAP: [&str; 31] = [
    "Namespace/krateo-platform",
    "CompositionDefinition/installer",
    "ValidatingAdmissionPolicy/installer-objects",
    "ValidatingAdmissionPolicyBinding/installer-objects",
    "ConfigMap/installer-self-cr",
    "Job/installer-self-bootstrap",
    "ServiceAccount/installer-self-bootstrap",
    "ClusterRole/installer-self-bootstrap",
    "ClusterRoleBinding/installer-self-bootstrap",
    "Role/installer-self-bootstrap",
    "RoleBinding/installer-self-bootstrap",
    "Role/installers-lbip-services",
    "RoleBinding/installers-lbip-services",
    "ServiceAccount/installer-ordered-teardown",
    "ClusterRole/installers-teardown-crd-read",
    "ClusterRoleBinding/installers-teardown-crd-read",
    "Role/installer-ordered-teardown",
    "RoleBinding/installer-ordered-teardown",
    "Job/installer-bootstrap-teardown",
    "ServiceAccount/installer-bootstrap-teardown",
    "ClusterRole/installer-bootstrap-teardown",
    "ClusterRoleBinding/installer-bootstrap-teardown",
    "Role/installer-bootstrap-teardown",
    "RoleBinding/installer-bootstrap-teardown",
    "ServiceAccount/installer-postdelete",
    "ClusterRole/installer-postdelete",
    "ClusterRoleBinding/installer-postdelete",
    "Job/installer-postdelete",
    // The trial charts in place of third-party operators.
    "ConfigMap/installer-cert-manager",
    "ConfigMap/installer-clickhouse-operator-helm",
    "ConfigMap/installer-community-operator",
];

const COMPOSITION: [&str; 3] = [
    "Secret/jwt-sign-key",
    "ConfigMap/installer-components",
    "Job/installer-ordered-teardown",
];

/// A package of the installer with trial charts in place of third-party subcharts.
fn packaged() -> Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir()?;
    let foreign = folder.path().join("foreign");
    charts::write_foreign(&foreign)?;
    let package = Package {
        version: VERSION,
        subcharts: Subcharts::From(&foreign),
    };
    let archive = package.make(&site::helm()?, None, folder.path())?;
    Ok((folder, archive))
}

/// Values of an Installer object, as in `installer-self-cr`.
fn in_composition_mode(mut values: Value) -> Value {
    let off = json!({"enabled": false});
    values["bootstrap"] = json!({
        "coreProvider": off, "certManager": off, "clickhouseOperator": off, "mongodbOperator": off, "kagent": off,
    });
    values
}

#[test]
fn each_mode_renders_exactly_its_objects() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let site = platform.site();
    let (_folder, chart) = packaged()?;
    let names = |names: &[&str]| {
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>()
    };

    let bootstrap = Rendered::of(site, &chart, &json!({}), &["--include-crds"])?;
    assert_eq!(bootstrap.names(), names(&[&ENGINE[..], &BOOTSTRAP].concat()));
    let definition = bootstrap.get("CompositionDefinition", "installer").unwrap();
    assert_eq!(definition["spec"]["chart"]["version"], VERSION);
    assert_eq!(
        bootstrap.get("Deployment", "installer-core-provider").unwrap()["spec"]["template"]["spec"]["containers"]
            [0]["image"],
        format!("ghcr.io/krateo/core-provider:{VERSION}")
    );
    // The spec with which the Installer is created, by Helm's own `toYaml`.
    let handed = bootstrap.get("ConfigMap", "installer-self-cr").unwrap()["data"]["installer.yaml"].clone();
    let handed: Value = serde_saphyr::from_str(handed.as_str().unwrap())?;
    assert_eq!(handed["apiVersion"], "composition.krateo.io/v1-2-3");
    assert_eq!(handed["spec"]["components"], Profile::platform().list());

    let composition = Rendered::of(site, &chart, &handed["spec"], &["--include-crds"])?;
    let mut expected = names(&COMPOSITION);
    let defaults = Profile::platform().by_default();
    let definitions = defaults.components().iter();
    expected.extend(definitions.map(|component| format!("CompositionDefinition/{}", component.name)));
    assert_eq!(composition.names(), expected);
    Ok(())
}

#[test]
fn what_is_printed_for_review_is_what_the_release_allows() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let site = platform.site();
    let (folder, chart) = packaged()?;
    let entry =
        |name: &str, kind: &str| json!({"name": name, "kind": kind, "version": "1.0.0", "tier": "platform"});
    let mut allowed = entry("a", "A");
    allowed["allow"] = json!({"chartRBAC": true, "kinds": ["apps/deployments", "batch/jobs"], "namespaces": ["monitoring", "logs"]});
    let mut elsewhere = entry("b", "B");
    elsewhere["repo"] = json!("https://charts.example");
    elsewhere["chart"] = json!("bee");
    elsewhere["chartRepo"] = json!("bees");
    elsewhere["digest"] = json!(format!("sha256:{}", "0123456789abcdef".repeat(4)));
    let mut off = entry("c", "C");
    off["feature"] = json!("githubMcp");
    let own = json!({
        "ociRepo": "oci://registry.example/charts/",
        "namespaces": {"krateo": "platform-components"},
        "registryAuth": {"plainHTTP": true, "insecureSkipVerifyTLS": true},
        "components": [entry("a-crd", "ACrd"), allowed, elsewhere, off],
    });
    for (values, components, namespace) in [(json!({}), 18, NAMESPACE), (own, 4, "platform-components")] {
        let rendered = Rendered::of(site, &chart, &values, &["--namespace", namespace])?;
        let definition = rendered.get("CompositionDefinition", "installer").unwrap();
        let annotation = definition["metadata"]["annotations"]["krateo.io/allowed-definitions"].as_str();
        let allowed: Value = serde_json::from_str(annotation.unwrap())?;
        assert_eq!(allowed.as_array().map(Vec::len), Some(components));
        let file = folder.path().join("values.json");
        std::fs::write(&file, values.to_string())?;
        let (chart, file) = (chart.to_string_lossy(), file.to_string_lossy());
        let check = [
            "installer",
            "check",
            &chart,
            "--values",
            &file,
            "--offline",
            "--output",
            "json",
        ];
        let printed: Value = serde_json::from_str(&site.run(site.kco(check)?)?)?;
        assert_eq!(printed["consent"], allowed);
    }
    Ok(())
}

#[test]
fn a_real_api_server_unlocks_one_wave_after_the_other() -> Result<()> {
    let platform = HostPlatform::installed()?;
    let stage = Stage::new(platform.site())?;
    let profile = Profile::small();
    let waves = profile.waves();
    let values = |profile: &Profile| in_composition_mode(json!({"components": profile.list()}));
    let rendered = |profile: &Profile| stage.rendered(&values(profile));

    let first = rendered(&profile)?;
    assert_eq!(first.definitions().len(), 5);
    assert_eq!(first.compositions(), BTreeMap::new());
    for component in profile.components() {
        stage.serve(component, &[&component.served_version()])?;
    }
    let mut due = BTreeSet::new();
    for wave in &waves {
        due.extend(wave.iter().copied());
        progress(format_args!("due: {due:?}"));
        assert_eq!(rendered(&profile)?.compositions(), at_home(&profile, &due));
        for name in wave {
            stage.set(profile.get(name).unwrap(), "False")?;
        }
        // Existing is not enough.
        assert_eq!(rendered(&profile)?.compositions(), at_home(&profile, &due));
        for name in wave {
            stage.set(profile.get(name).unwrap(), "True")?;
        }
    }
    assert_eq!(due.len(), 5);

    // A dependency becomes not Ready and Ready again.
    stage.set(profile.get("a-crd").unwrap(), "False")?;
    assert_eq!(rendered(&profile)?.compositions(), at_home(&profile, &due));

    // Another version: the previous one until it is served.
    let next = profile.with_version("a", "1.1.0");
    assert_eq!(rendered(&next)?.compositions(), at_home(&profile, &due));
    stage.serve(next.get("a").unwrap(), &["v1-0-0", "v1-1-0"])?;
    assert_eq!(rendered(&next)?.compositions(), at_home(&next, &due));

    // Turned off: in reverse order of dependency, and each definition after its composition.
    let mut off = values(&next);
    for component in off["components"].as_array_mut().unwrap() {
        if component["name"] == "b" || component["name"] == "c" {
            component["feature"] = json!("extra");
        }
    }
    off["features"] = json!({"extra": false});
    for (gone, kept, defined) in [
        ("c", vec!["a-crd", "b-crd", "a", "b"], 5),
        ("b", vec!["a-crd", "b-crd", "a"], 4),
    ] {
        let rendered = stage.rendered(&off)?;
        assert_eq!(
            rendered.compositions(),
            at_home(&next, &kept.into_iter().collect())
        );
        assert_eq!(rendered.definitions().len(), defined);
        stage.remove(next.get(gone).unwrap())?;
    }
    assert_eq!(stage.rendered(&off)?.definitions().len(), 3);

    // With Helm, a lookup of a type that is not served is an error, so the chart makes none.
    let refused = stage.look_up_what_is_not_served().unwrap_err().to_string();
    assert!(refused.contains("error calling lookup"), "{refused}");
    Ok(())
}

#[test]
fn the_trial_charts_become_the_kinds_of_the_list() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let site = platform.site();
    for profile in [Profile::platform(), Profile::small()] {
        let folder = tempfile::tempdir()?;
        let written = charts::write_components(&profile, folder.path(), "registry.example/web-server:e2e")?;
        for (component, chart) in profile.components().iter().zip(written) {
            let chart = chart.to_string_lossy();
            site.run(site.helm(["lint", "--strict", &chart]))?;
            let made: Value = serde_saphyr::from_str(&site.run(site.kco(["crd", &chart])?)?)?;
            let names = &made["spec"]["names"];
            assert_eq!(names["kind"], component.kind);
            assert_eq!(names["plural"], component.plural());
            assert_eq!(made["spec"]["versions"][0]["name"], component.served_version());
            let rendered = Rendered::of(site, Path::new(&*chart), &json!({}), &[])?;
            let has = |kind: &str| rendered.names().iter().any(|name| name.starts_with(kind));
            assert!(has("ConfigMap/"), "{}", component.name);
            assert_eq!(
                has("Service/"),
                component.exposure.is_some(),
                "{}",
                component.name
            );
            assert_eq!(
                has("CustomResourceDefinition/"),
                component.name.ends_with("-crd") || component.name.ends_with("-crds"),
                "{}",
                component.name
            );
        }
    }
    Ok(())
}

/// These compositions, each written through its version in the profile.
fn at_home(profile: &Profile, names: &BTreeSet<&'static str>) -> BTreeMap<String, String> {
    let versions = names
        .iter()
        .map(|name| ((*name).to_owned(), profile.get(name).unwrap().served_version()));
    versions.collect()
}

/// An API server on which the test decides about types and compositions.
struct Stage<'a> {
    site: &'a Site,
    home: Namespace,
    chart: PathBuf,
    folder: TempDir,
}

impl<'a> Stage<'a> {
    fn new(site: &'a Site) -> Result<Self> {
        let (folder, chart) = packaged()?;
        Ok(Self {
            site,
            home: Namespace::of(NAMESPACE, site),
            chart,
            folder,
        })
    }

    fn rendered(&self, values: &Value) -> Result<Rendered> {
        Rendered::of(self.site, &self.chart, values, &["--dry-run=server"])
    }

    /// Makes the API server serve a component's type in these versions.
    fn serve(&self, component: &Component, served: &[&str]) -> Result<()> {
        let last = served.len() - 1;
        let versions = served.iter().enumerate().map(|(index, version)| {
            json!({
                "name": version, "served": true, "storage": index == last,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            })
        });
        let (plural, kind) = (component.plural(), component.kind);
        let name = format!("{plural}.{GROUP}");
        self.home.apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": GROUP, "scope": "Namespaced", "versions": versions.collect::<Vec<_>>(),
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            },
        }))?;
        // The API server takes a moment from the CRD to serving it.
        self.home.wait_until("the type", || {
            let paths = served
                .iter()
                .map(|version| format!("/apis/{GROUP}/{version}/namespaces/{NAMESPACE}/{plural}"));
            let answers = paths.map(|path| self.site.run(self.site.kubectl(["get", "--raw", &path])));
            Ok(answers.collect::<Result<Vec<_>>>().ok().map(drop))
        })
    }

    /// Creates a composition with this `Ready`, which belongs to the release that is rendered.
    fn set(&self, component: &Component, ready: &str) -> Result<()> {
        let composition = json!({
            "apiVersion": format!("{GROUP}/{}", component.served_version()),
            "kind": component.kind,
            "metadata": {
                "name": component.name, "namespace": NAMESPACE,
                // No core-provider runs here, which would have it labelled.
                "labels": {
                    "app.kubernetes.io/managed-by": "Helm",
                    "krateo.io/composition-version": component.served_version(),
                },
                "annotations": {"meta.helm.sh/release-name": "installer", "meta.helm.sh/release-namespace": NAMESPACE},
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        // Policies apply to a type a moment after it is served.
        self.home
            .wait_until("policies", || Ok(self.home.apply(&composition).ok()))
    }

    fn remove(&self, component: &Component) -> Result<()> {
        let resource = format!("{}.{GROUP}", component.plural());
        let delete = ["delete", &resource, component.name, "--namespace", NAMESPACE];
        self.site.run(self.site.kubectl(delete)).map(drop)
    }

    fn look_up_what_is_not_served(&self) -> Result<Rendered> {
        let chart = self.folder.path().join("asking");
        std::fs::create_dir_all(chart.join("templates"))?;
        std::fs::write(
            chart.join("Chart.yaml"),
            "apiVersion: v2\nname: asking\nversion: 1.0.0\n",
        )?;
        let template = r#"{{ lookup "composition.krateo.io/v9-9-9" "Nothing" "krateo-system" "nothing" }}"#;
        std::fs::write(chart.join("templates/asks.yaml"), template)?;
        Rendered::of(self.site, &chart, &json!({}), &["--dry-run=server"])
    }
}
