//! Migrates a cluster, in the state in which Krateo leaves it, to this platform, back, and again.

use std::fs;
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use e2e::chart::copy_folder;
use e2e::platform::{NAMESPACE, RELEASE};
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace, image, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "migrate-krateo";
const TYPE: &str = "shopfronts.composition.krateo.io";
const BASE: &str = "shopfronts-v1-0-0";

/// A tenant's own role, labelled as Krateo labels those of controllers. There is no definition for its type.
const TENANTS: &str = "tenants-v1-0-0-controller";

/// The release that is taken over unchanged.
const REVISION: usize = 6;

/// A password that differs at each render.
const PASSWORD: &str = "
{{- if .Values.greeting | contains \"password\" }}
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-password}
stringData: {password: {{ randAlphaNum 16 }}}
{{- end }}
";

const GREETING: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-web}
data: {GREETING: {{ .Values.greeting | quote }}}
";

/// An object that rules over others, which no chart may bring without consent.
const PRIORITY: &str = "
{{- if .Values.greeting | contains \"queue\" }}
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: {{ .Release.Name }}-queue}
value: 7
description: of the release
{{- end }}
";

struct Stage {
    platform: HostPlatform,
    home: Namespace,
    folder: tempfile::TempDir,
}

#[test]
fn a_cluster_that_runs_krateo_is_migrated_and_back_without_touching_a_release() -> Result<()> {
    let stage = krateo()?;
    let (home, platform) = (&stage.home, &stage.platform);
    let before = stage.uids()?;

    let checked = stage.kco("check", &[])?;
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    ensure!(checked.status.code() == Some(2), "{checked:?}");
    for words in [
        "release settled is taken over as it is, without a new revision",
        "release drawn is held: an upgrade would generate new values for Secret drawn-password: .stringData.password",
        "krateo.io/take-over-revision=1",
        "it will want a ChartGrant for chart shopfront 1.0.0: kinds 1",
        "kco migrate run --grant writes it",
        "ClusterRole shopfronts-v1-0-0, which has a rule with *",
        "MutatingWebhookConfiguration core-provider",
        "2 to settle",
    ] {
        ensure!(said.contains(words), "{words} is not in {said}");
    }
    let refused = stage.kco("run", &[])?;
    ensure!(
        !refused.status.success() && !stage.backup().exists(),
        "{refused:?}"
    );

    progress("kco migrate run, while no core-provider runs");
    let cut_off = stage.kco("run", &["--unsettled", "--timeout", "1s"])?;
    let said = String::from_utf8_lossy(&cut_off.stderr).into_owned();
    ensure!(said.contains("run the same command again"), "{cut_off:?}");
    ensure!(stage.former_runs()?.is_empty(), "{:?}", stage.former_runs()?);
    ensure!(home.get("mutatingwebhookconfigurations", RELEASE)?.is_none());
    ensure!(stage.uids()? == before);

    progress("kco migrate undo");
    let undone = stage.undo()?;
    ensure!(undone.status.success(), "{undone:?}");
    ensure!(stage.former_runs()?.len() == 3, "{:?}", stage.former_runs()?);
    ensure!(home.get("mutatingwebhookconfigurations", RELEASE)?.is_some());
    let policy = format!("{RELEASE}-composition-version");
    ensure!(home.get("mutatingadmissionpolicies", &policy)?.is_none());
    ensure!(
        home.platform()
            .helm(&["history", RELEASE, "--output", "json"])?
            .matches("revision")
            .count()
            == 1
    );
    ensure!(stage.uids()? == before);

    progress("kco migrate run, to its end");
    let cut_off = stage.kco("run", &["--grant", "--timeout", "1s"])?;
    ensure!(!cut_off.status.success(), "{cut_off:?}");
    let grant = home
        .get("chartgrants", &format!("{HOME}.shopfront"))?
        .context("nothing is granted")?;
    ensure!(grant["spec"]["kinds"][0]["kind"] == "PriorityClass", "{grant}");
    platform.run_inspector()?;
    platform.run_provider(&[])?;
    let run = stage.kco("run", &[])?;
    ensure!(run.status.success(), "{run:?}");
    ensure!(stage.uids()? == before);
    stage.nothing_is_left()?;

    progress("kco migrate undo, once the type is converted by copying");
    let conversion = || -> Result<Value> {
        let type_ = home.get("crd", TYPE)?.unwrap_or_default();
        Ok(type_["spec"]["conversion"]["strategy"].clone())
    };
    ensure!(conversion()? == "None", "{}", conversion()?);
    platform.plane().kill_component(&HostPlatform::provider_name())?;
    let undone = stage.undo()?;
    ensure!(undone.status.success(), "{undone:?}");
    // Krateo's core-provider does not start with any other.
    ensure!(conversion()? == "Webhook", "{}", conversion()?);
    ensure!(stage.uids()? == before);
    platform
        .plane()
        .restart_component(&HostPlatform::provider_name())?;
    let run = stage.kco("run", &[])?;
    ensure!(run.status.success(), "{run:?}");
    ensure!(stage.uids()? == before);
    stage.nothing_is_left()?;
    stage.goes_on(&before)
}

impl Stage {
    fn backup(&self) -> std::path::PathBuf {
        self.folder.path().join("backup.json")
    }

    fn kco(&self, verb: &str, further: &[&str]) -> Result<Output> {
        let chart = image::root().join("charts/core-provider");
        let mut command = self
            .home
            .site()
            .kco(["migrate", verb, RELEASE, &chart.to_string_lossy()])?;
        command.args(["--namespace", NAMESPACE]);
        if verb == "run" {
            command.arg("--backup").arg(self.backup());
        }
        Ok(command.args(further).output()?)
    }

    fn undo(&self) -> Result<Output> {
        let mut command = self.home.site().kco(["migrate", "undo", "--backup"])?;
        Ok(command.arg(self.backup()).output()?)
    }

    /// Everything that the migration must leave alone, by kind and name.
    fn uids(&self) -> Result<Vec<(String, String)>> {
        let mut uids = Vec::new();
        for (kind, name) in [
            ("crd", "compositiondefinitions.core.krateo.io"),
            ("crd", TYPE),
            ("compositiondefinitions", "shopfront"),
            ("shopfronts", "settled"),
            ("shopfronts", "drawn"),
            ("shopfronts", "ranked"),
            ("priorityclasses", "ranked-queue"),
            ("deployments", "settled-web"),
            ("configmaps", "settled-web"),
            ("services", "settled-web"),
            ("secrets", "drawn-password"),
            ("secrets", "sh.helm.release.v1.settled.v6"),
            ("deployments", TENANTS),
        ] {
            let object = self.home.get(kind, name)?;
            let object = object.with_context(|| format!("{kind} {name} is gone"))?;
            let metadata = &object["metadata"];
            ensure!(metadata["deletionTimestamp"].is_null(), "{kind} {name} goes");
            uids.push((format!("{kind} {name}"), metadata["uid"].to_string()));
        }
        let password = self.home.get("secrets", "drawn-password")?.unwrap_or_default();
        uids.push(("password".to_owned(), password["data"]["password"].to_string()));
        Ok(uids)
    }

    /// Krateo's Deployments that exist.
    fn former_runs(&self) -> Result<Vec<String>> {
        let all = self
            .home
            .kubectl(&["get", "deployments", "--all-namespaces", "--output=json"])?;
        let all: Value = serde_json::from_str(&all)?;
        let all = all["items"].as_array().cloned().unwrap_or_default();
        let is_former = |deployment: &&Value| {
            let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
            let selector = deployment["spec"]["selector"]["matchLabels"].as_object();
            let has_component = selector.is_some_and(|it| it.contains_key("app.kubernetes.io/component"));
            (name.starts_with(RELEASE) || name.starts_with(BASE)) && !has_component
        };
        Ok(all
            .iter()
            .filter(is_former)
            .map(|former| former["metadata"]["name"].to_string())
            .collect())
    }

    fn nothing_is_left(&self) -> Result<()> {
        ensure!(self.former_runs()?.is_empty());
        for (kind, name) in [
            ("serviceaccounts", BASE),
            ("roles", "settled"),
            ("rolebindings", "settled"),
            ("configmaps", "shopfronts-v1-0-0-configmap"),
            ("clusterroles", "core-provider-krateo-system"),
        ] {
            ensure!(self.home.get(kind, name)?.is_none(), "{kind} {name} is left");
        }
        let roles = self
            .home
            .kubectl(&["get", "clusterroles", BASE, "--output=json"])?;
        ensure!(!roles.contains("\"*\""), "{roles}");
        let definition = self
            .home
            .get("compositiondefinitions", "shopfront")?
            .unwrap_or_default();
        let labels = definition["metadata"]["labels"].to_string();
        ensure!(!labels.contains("still-exist"), "{labels}");
        Ok(())
    }

    /// The existing releases, a change, a new composition, a removal, and Helm on the platform's own release.
    fn goes_on(&self, before: &[(String, String)]) -> Result<()> {
        let home = &self.home;
        // Somebody removed the annotation that `kco migrate run` wrote, and Krateo's status has no revision.
        let hint = |revision: &str| {
            let told = format!("krateo.io/release-revision{revision}");
            home.kubectl(&["annotate", "--overwrite", "shopfront", "settled", &told])
        };
        hint("-")?;
        self.platform.run_controller("shopfronts", "v1-0-0")?;
        home.wait("shopfronts", "settled", |held| {
            let synced = condition(held, "Synced").cloned().unwrap_or_default();
            synced["message"]
                .as_str()
                .is_some_and(|said| said.contains("krateo.io/release-revision"))
        })?;
        ensure!(
            home.get("secrets", "sh.helm.release.v1.settled.v1")?.is_none(),
            "it was installed again"
        );
        hint(&format!("={REVISION}"))?;
        home.wait_for("shopfronts", "settled", "Released", "True")?;
        let record = home
            .get("secrets", "sh.helm.release.v1.settled.v6")?
            .unwrap_or_default();
        ensure!(
            record["metadata"]["annotations"]["krateo.io/release-mac"].is_string(),
            "it is not signed"
        );
        ensure!(
            home.get("secrets", "sh.helm.release.v1.settled.v7")?.is_none(),
            "it was upgraded"
        );
        home.wait("shopfronts", "drawn", |held| {
            let synced = condition(held, "Synced").cloned().unwrap_or_default();
            synced["message"]
                .as_str()
                .is_some_and(|said| said.contains("krateo.io/take-over-revision"))
        })?;
        // A release keeps what rules over others, and drift of it is corrected.
        home.wait_for("shopfronts", "ranked", "Released", "True")?;
        let drift = r#"{"description":"of somebody"}"#;
        home.kubectl(&[
            "patch",
            "priorityclass",
            "ranked-queue",
            "--type=merge",
            "--patch",
            drift,
        ])?;
        home.wait("priorityclasses", "ranked-queue", |class| {
            class["description"] == "of the release"
        })?;
        ensure!(self.uids()? == before);

        // A wrong one: by now the status says where the records are.
        hint("=900")?;
        home.kubectl(&[
            "patch",
            "shopfront",
            "settled",
            "--type=merge",
            "--patch",
            r#"{"spec":{"greeting":"Bye"}}"#,
        ])?;
        home.wait("configmaps", "settled-web", |map| {
            map["data"]["GREETING"] == "Bye"
        })?;
        let next = format!("sh.helm.release.v1.settled.v{}", REVISION + 1);
        ensure!(home.get("secrets", &next)?.is_some(), "it was installed again");
        home.apply(&composition("fresh", "Hello", &[]))?;
        home.wait_for("shopfronts", "fresh", "Released", "True")?;
        for name in ["fresh", "settled"] {
            home.kubectl(&["delete", "shopfront", name, "--wait=false"])?;
            home.wait_gone("shopfronts", name)?;
            ensure!(
                home.get("configmaps", &format!("{name}-web"))?.is_none(),
                "{name} left something"
            );
        }

        let chart = image::root().join("charts/core-provider");
        home.platform()
            .helm(&["upgrade", RELEASE, &chart.to_string_lossy(), "--reset-values"])?;
        home.platform().helm(&["uninstall", RELEASE])?;
        ensure!(
            home.get("compositiondefinitions", "shopfront")?.is_some(),
            "Helm removed the definitions"
        );
        Ok(())
    }
}

fn composition(name: &str, greeting: &str, finalizers: &[&str]) -> Value {
    json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Shopfront",
        "metadata": {
            "name": name, "namespace": HOME, "finalizers": finalizers,
            "labels": {"krateo.io/release-name": name, "krateo.io/composition-version": "v1-0-0"},
        },
        "spec": {"image": "nginx", "greeting": greeting, "replicas": 1},
    })
}

/// A control plane with Krateo's chart, a definition, two compositions and their releases.
fn krateo() -> Result<Stage> {
    let folder = tempfile::tempdir()?;
    let chart = folder.path().join("krateo");
    copy_folder(&image::root().join("e2e/charts/krateo"), &chart)?;
    let templates = chart.join("charts/core-provider-crd/templates");
    fs::create_dir_all(&templates)?;
    fs::copy(
        image::root().join("charts/core-provider/crds/compositiondefinitions.yaml"),
        templates.join("crd.yaml"),
    )?;
    let platform = HostPlatform::installed_from(&chart, &[])?;
    let home = platform.namespace(HOME)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let chart = ChartFolder::copy("web", "shopfront", "1.0.0")?;
    chart.write("templates/password.yaml", PASSWORD)?;
    chart.write("templates/priority.yaml", PRIORITY)?;
    // The chart's ConfigMap prints the values about the composition, which Krateo spells differently.
    chart.write("templates/configmap.yaml", GREETING)?;
    let package = chart.package(home.site())?;
    let url = package.push(home.site(), &registry.to_string(), &["--plain-http"])?;

    let file = package.file().to_string_lossy().into_owned();
    let made = home.site().run(home.site().kco(["crd", &file])?)?;
    let mut crd: Value = serde_saphyr::from_str(&made)?;
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"service": service("/convert"), "caBundle": ca()},
    }});
    home.apply(&crd)?;
    home.kubectl(&["wait", "--for=condition=Established", "crd", TYPE])?;
    home.define("shopfront", &url, "1.0.0")?;
    home.kubectl(&[
        "label",
        "compositiondefinition",
        "shopfront",
        "composition.krateo.io/still-exist-compositions-finalizer=true",
    ])?;
    let status = json!({"status": {
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Shopfront", "resource": "shopfronts",
    }});
    home.kubectl(&[
        "patch",
        "compositiondefinition",
        "shopfront",
        "--subresource=status",
        "--type=merge",
        "--patch",
        &status.to_string(),
    ])?;
    for (name, greeting) in [("settled", "Hello"), ("drawn", "password"), ("ranked", "queue")] {
        home.apply(&composition(name, greeting, &["composition.krateo.io/finalizer"]))?;
        release(&home, &url, name)?;
    }
    controller(&home)?;
    Ok(Stage {
        platform,
        home,
        folder,
    })
}

fn service(path: &str) -> Value {
    json!({"name": "core-provider-webhook-service", "namespace": NAMESPACE, "port": 9443, "path": path})
}

/// Signed by a CA whose key nobody has.
fn ca() -> String {
    use base64::Engine as _;
    let certified = rcgen::generate_simple_self_signed(vec!["krateo".to_owned()]).map(|it| it.cert.pem());
    base64::prelude::BASE64_STANDARD.encode(certified.unwrap_or_default())
}

/// A release as Krateo's controller makes it: what it adds to the values is a string, and only objects have its labels.
fn release(home: &Namespace, url: &str, name: &str) -> Result<()> {
    let live = home.get("shopfronts", name)?.context("no composition")?;
    let uid = live["metadata"]["uid"].as_str().context("no uid")?;
    let mut values = live["spec"].clone();
    values["global"] = json!({
        "compositionId": uid, "compositionName": name, "compositionNamespace": HOME,
        "compositionInstalledVersion": "v1-0-0", "compositionApiVersion": "composition.krateo.io/v1-0-0",
        "compositionGroup": "composition.krateo.io", "compositionResource": "shopfronts",
        "compositionKind": "Shopfront", "krateoNamespace": NAMESPACE, "gracefullyPaused": "false",
    });
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), values.to_string())?;
    let file = file.path().to_string_lossy().into_owned();
    home.helm(&[
        "install",
        name,
        url,
        "--version",
        "1.0.0",
        "--plain-http",
        "--values",
        &file,
    ])?;
    // Krateo makes a revision at every reconcile and keeps a few: the first ones are gone.
    for _ in 1..if name == "settled" { REVISION } else { 1 } {
        home.helm(&[
            "upgrade",
            name,
            url,
            "--version",
            "1.0.0",
            "--plain-http",
            "--history-max",
            "2",
            "--values",
            &file,
        ])?;
    }
    let label = format!("krateo.io/composition-id={uid}");
    for kind in ["deployment", "configmap", "service"] {
        home.kubectl(&["label", kind, &format!("{name}-web"), &label])?;
    }
    let further = match name {
        "drawn" => Some(["secret", "drawn-password"]),
        "ranked" => Some(["priorityclass", "ranked-queue"]),
        _ => None,
    };
    if let Some([kind, name]) = further {
        home.kubectl(&["label", kind, name, &label])?;
    }
    let map = format!("{name}-web");
    let status = json!({"status": {"managed": [{
        "apiVersion": "v1", "resource": "configmaps", "name": map, "namespace": HOME,
        "path": format!("/api/v1/namespaces/{HOME}/configmaps/{map}"),
    }]}});
    let patch = [
        "--subresource=status",
        "--type=merge",
        "--patch",
        &status.to_string(),
    ];
    home.kubectl(&[&["patch", "shopfront", name][..], &patch].concat())
        .map(drop)
}

/// The controller beside its definition, its roles and those of a release, and the webhook that no program answers any
/// more.
fn controller(home: &Namespace) -> Result<()> {
    let star =
        json!([{"apiGroups": [""], "resources": ["configmaps", "services", "secrets"], "verbs": ["*"]}]);
    let account = json!([{"kind": "ServiceAccount", "name": BASE, "namespace": HOME}]);
    let rbac = |kind: &str, name: &str, rest: Value| {
        let mut object =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}});
        if !kind.starts_with("Cluster") {
            object["metadata"]["namespace"] = HOME.into();
        }
        if let (Value::Object(object), Value::Object(rest)) = (&mut object, rest) {
            object.extend(rest);
        }
        object
    };
    let bound = |kind: &str, name: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}, "subjects": account});
    let labels = json!({
        "app.kubernetes.io/name": BASE, "app.kubernetes.io/instance": "shopfronts", "app.kubernetes.io/version": "v1-0-0",
        "app.kubernetes.io/component": "controller", "app.kubernetes.io/part-of": "krateoplatformops",
        "app.kubernetes.io/managed-by": "krateo",
    });
    let pod = json!({"app.kubernetes.io/name": BASE});
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": BASE, "namespace": HOME}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{BASE}-configmap"), "namespace": HOME}}),
        rbac("ClusterRole", BASE, json!({"rules": star})),
        rbac("ClusterRoleBinding", BASE, bound("ClusterRole", BASE)),
        rbac("Role", "settled", json!({"rules": star})),
        rbac("RoleBinding", "settled", bound("Role", "settled")),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": format!("{BASE}-controller"), "namespace": HOME, "labels": labels},
            "spec": {"selector": {"matchLabels": pod}, "template": {
                "metadata": {"labels": pod},
                "spec": {"serviceAccountName": BASE, "containers": [{"name": "c", "image": "krateo/cdc:1"}]},
            }},
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": TENANTS, "namespace": HOME, "labels": labels},
            "spec": {"selector": {"matchLabels": {"app": "tenants"}}, "template": {
                "metadata": {"labels": {"app": "tenants"}},
                "spec": {"containers": [{"name": "c", "image": "tenants/own:1"}]},
            }},
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": RELEASE},
            "webhooks": [{
                "name": "core.provider.krateo.io", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": {"service": service("/mutate"), "caBundle": ca()},
                "rules": [{
                    "apiGroups": ["composition.krateo.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["*"],
                }],
            }],
        }),
    ] {
        home.apply(&object)?;
    }
    Ok(())
}
