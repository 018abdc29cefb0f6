//! `kco cluster join|list|leave` between two control planes: the rights of the account, and what is left afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::http_server::Answer;
use e2e::{ChartFolder, HostPlatform, HttpServer, Namespace, Site, image};
use local_cluster::{ControlPlane, Options};
use serde_json::{Value, json};

const HOME: &str = "multicluster-operator";
const EDGE: &str = "edge";

/// A home and a target.
struct Stage<'a> {
    home: Namespace,
    target_plane: &'a ControlPlane,
    target: Namespace,
    folder: tempfile::TempDir,
}

impl Stage<'_> {
    /// Runs `kco cluster` as admin of both clusters.
    fn cluster(&self, verb: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.home.site().kco(["cluster", verb])?;
        command.args(arguments);
        self.home.site().run(command)
    }

    /// Joins under this name with the chart `web`.
    fn join(&self, name: &str, more: &[&str]) -> Result<String> {
        self.join_for("web", name, more)
    }

    /// Joins under this name with a trial chart.
    fn join_for(&self, chart: &str, name: &str, more: &[&str]) -> Result<String> {
        let target = self.target_plane.kubeconfig();
        let chart = image::root().join("e2e/charts").join(chart);
        let arguments = [
            name,
            "--target-kubeconfig",
            &text(&target),
            "--chart",
            &text(&chart),
        ];
        self.cluster("join", &[&arguments[..], more].concat())
    }

    fn leave(&self, name: &str, more: &[&str]) -> Result<String> {
        let target = text(&self.target_plane.kubeconfig());
        let arguments = [name, "--target-kubeconfig", &target];
        self.cluster("leave", &[&arguments[..], more].concat())
    }

    /// The kubeconfig of the Secret, in a file.
    fn kubeconfig(&self) -> Result<PathBuf> {
        let printed = self.home.kubectl(&[
            "get",
            "secret",
            EDGE,
            "--output",
            "go-template={{.data.kubeconfig | base64decode}}",
        ])?;
        let path = self.folder.path().join("kubeconfig");
        std::fs::write(&path, printed)?;
        Ok(path)
    }

    /// Runs kubectl with that kubeconfig, and returns whether it succeeded.
    fn as_operator(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<bool> {
        let mut command: Command = self.home.site().kubectl(["--kubeconfig", &text(kubeconfig)]);
        Ok(command.args(arguments).output()?.status.success())
    }

    /// Names of the objects on the target that belong to the account.
    fn left(&self) -> Result<Vec<String>> {
        let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts";
        let label = "--selector=mesh.openkcm.io/joined-cluster";
        let listed = ["get", kinds, "--all-namespaces", label, "--output=name"];
        let printed = self.target.kubectl(&listed)?;
        Ok(printed.lines().map(str::to_owned).collect())
    }

    /// The Secret of this name, if it exists.
    fn secret(&self, name: &str) -> Result<Option<Value>> {
        self.home.get("secret", name)
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The message with which kco refuses.
#[track_caller]
fn refused(outcome: Result<String>, words: &str) {
    let said = format!("{:#}", outcome.unwrap_err());
    assert!(said.contains(words), "{said}");
}

#[test]
fn a_cluster_joins_with_what_the_operator_needs_and_leaves_nothing_behind() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let target_plane = ControlPlane::start(Options::default())?;
    let target_site = Site::host(&target_plane)?;
    let stage = Stage {
        home: Namespace::make(HOME, platform.site())?,
        target_plane: &target_plane,
        target: Namespace::of("default", &target_site),
        folder: tempfile::tempdir()?,
    };
    // What the operator creates there.
    let tenants = image::root().join("charts/multicluster-operator/crds/tenants.yaml");
    target_plane.apply(&std::fs::read_to_string(tenants)?)?;
    stage
        .target
        .wait_for("crd", "tenants.mesh.openkcm.io", "Established", "True")?;
    a_dry_run_writes_nothing(&stage)?;
    a_chart_may_come_from_elsewhere(&stage)?;
    the_account_may_what_the_operator_needs(&stage)?;
    joining_again_renews_and_takes_away(&stage)?;
    what_others_wrote_is_left_alone(&stage)?;
    leaving_waits_for_tenants(&stage)
}

fn a_dry_run_writes_nothing(stage: &Stage) -> Result<()> {
    let printed: Value = serde_json::from_str(&stage.join(EDGE, &["--dry-run"])?)?;
    ensure!(printed["items"].as_array().is_some_and(|items| items.len() == 5));
    // If the chart may bring roles, the account has all the permissions in them.
    let guild = |more: &[&str]| stage.join_for("guild", EDGE, &[&["--dry-run"], more].concat());
    assert!(!guild(&[])?.contains("ingressclasses"));
    let allowed = guild(&["--allow-chart-rbac"])?;
    assert!(
        allowed.contains("ingressclasses") && allowed.contains("clusterrolebindings"),
        "{allowed}"
    );
    assert!(
        !allowed.contains("escalate") && !allowed.contains("\"bind\""),
        "{allowed}"
    );
    assert_eq!(stage.left()?, [""; 0]);
    assert_eq!(stage.secret(EDGE)?, None);
    Ok(())
}

fn a_chart_may_come_from_elsewhere(stage: &Stage) -> Result<()> {
    let archive = ChartFolder::copy("web", "web", "1.0.0")?
        .package(stage.home.site())?
        .bytes()?;
    let server = HttpServer::start(move |_| Answer::Content(archive.clone()))?;
    let target = text(&stage.target_plane.kubeconfig());
    let url = server.url("/web-1.0.0.tgz");
    let arguments = [EDGE, "--target-kubeconfig", &target, "--chart", &url, "--dry-run"];
    let printed: Value = serde_json::from_str(&stage.cluster("join", &arguments)?)?;
    let same: Value = serde_json::from_str(&stage.join(EDGE, &["--dry-run"])?)?;
    assert_eq!(printed, same);
    Ok(())
}

fn the_account_may_what_the_operator_needs(stage: &Stage) -> Result<()> {
    let said = stage.join(EDGE, &["--allow-from", "team-a,team-b", "--cluster-role", "view"])?;
    assert!(said.contains("edge joined"), "{said}");
    let secret = stage.secret(EDGE)?.context("no Secret")?;
    let metadata = &secret["metadata"];
    assert_eq!(
        metadata["labels"]["sigs.k8s.io/multicluster-runtime-kubeconfig"],
        "true"
    );
    let annotations = &metadata["annotations"];
    assert_eq!(annotations["krateo.io/allow-from-namespaces"], "team-a,team-b");
    assert_eq!(annotations["mesh.openkcm.io/token-lifetime"], "604800");
    let account = annotations["mesh.openkcm.io/service-account"]
        .as_str()
        .unwrap()
        .to_owned();
    let (namespace, name) = account.split_once('/').unwrap();

    let kubeconfig = stage.kubeconfig()?;
    let may = |verb: &str, resource: &str| {
        // kubectl takes everything after a slash for a name.
        let (resource, part) = resource.split_once('/').unwrap_or((resource, ""));
        let part = format!("--subresource={part}");
        let asked = [
            "auth",
            "can-i",
            verb,
            resource,
            &part,
            "--all-namespaces",
            "--quiet",
        ];
        stage.as_operator(&kubeconfig, &asked)
    };
    for (verb, resource) in [
        ("watch", "tenants.mesh.openkcm.io"),
        ("patch", "tenants.mesh.openkcm.io/status"),
        ("create", "namespaces"),
        ("get", "secrets"),
        ("delete", "deployments.apps"),
        ("watch", "services"),
    ] {
        assert!(may(verb, resource)?, "may not {verb} {resource}");
    }
    for (verb, resource) in [
        ("list", "secrets"),
        ("watch", "secrets"),
        ("create", "tenants.mesh.openkcm.io"),
        ("create", "customresourcedefinitions.apiextensions.k8s.io"),
        ("create", "statefulsets.apps"),
        ("create", "clusterroles.rbac.authorization.k8s.io"),
        ("create", "serviceaccounts"),
        ("create", "serviceaccounts/token"),
        ("*", "*"),
    ] {
        assert!(!may(verb, resource)?, "may {verb} {resource}");
    }
    // It can renew its own token, but not create tokens for other accounts.
    let token = |name: &str| {
        let asked = ["create", "token", name, "--namespace", namespace];
        stage.as_operator(&kubeconfig, &asked)
    };
    assert!(token(name)?);
    assert!(!token("default")?);

    let listed = stage.home.kco(&["cluster", "list"])?;
    assert_eq!(listed[0]["name"], EDGE, "{listed}");
    assert_eq!(
        listed[0]["server"],
        format!("{}/", stage.target_plane.api_server())
    );
    assert!(listed[0]["tokenExpires"].is_string(), "{listed}");
    let table = stage.cluster("list", &[])?;
    assert!(table.contains("TOKEN UNTIL"), "{table}");
    Ok(())
}

fn joining_again_renews_and_takes_away(stage: &Stage) -> Result<()> {
    let before = stage.secret(EDGE)?.context("no Secret")?;
    let bindings = |names: &[String]| {
        names
            .iter()
            .filter(|name| name.contains("clusterrolebinding"))
            .count()
    };
    assert_eq!(bindings(&stage.left()?), 2);
    stage.join(EDGE, &["--lifetime", "30m"])?;
    let after = stage.secret(EDGE)?.context("no Secret")?;
    assert_eq!(before["metadata"]["uid"], after["metadata"]["uid"]);
    assert_ne!(before["data"], after["data"]);
    let annotations = &after["metadata"]["annotations"];
    assert_eq!(annotations["mesh.openkcm.io/token-lifetime"], "1800");
    assert_eq!(annotations["krateo.io/allow-from-namespaces"], Value::Null);
    assert_eq!(bindings(&stage.left()?), 1);
    Ok(())
}

fn what_others_wrote_is_left_alone(stage: &Stage) -> Result<()> {
    stage.home.kubectl(&[
        "create",
        "secret",
        "generic",
        "by-hand",
        "--from-literal=kubeconfig=mine",
    ])?;
    refused(stage.join("by-hand", &[]), "was not written by kco");
    refused(stage.leave("by-hand", &[]), "does not belong to a cluster");
    refused(stage.join("No-Name", &[]), "is not a valid name of a cluster");
    Ok(())
}

fn leaving_waits_for_tenants(stage: &Stage) -> Result<()> {
    let tenant = json!({
        "apiVersion": "mesh.openkcm.io/v1alpha1", "kind": "Tenant", "spec": {},
        "metadata": {"name": "acme", "namespace": "default", "finalizers": ["mesh.openkcm.io/cleanup"]},
    });
    stage.target.wait_until("tenants to be served", || {
        Ok(stage.target.apply(&tenant).is_ok().then_some(()))
    })?;
    refused(stage.leave(EDGE, &[]), "Tenant default/acme on the target");
    ensure!(stage.secret(EDGE)?.is_some(), "it left all the same");

    let patch = r#"{"metadata":{"finalizers":null}}"#;
    stage
        .target
        .kubectl(&["patch", "tenants", "acme", "--type=merge", "--patch", patch])?;
    let said = stage.leave(EDGE, &[])?;
    assert!(said.contains("edge left"), "{said}");
    assert_eq!(stage.left()?, [""; 0]);
    assert_eq!(stage.secret(EDGE)?, None);
    stage.target.wait_gone("namespace", "multicluster-operator")?;
    // Repeating it is not an error as long as the target can be checked; without the target there is nothing to say.
    stage.leave(EDGE, &[])?;
    refused(
        stage.cluster("leave", &[EDGE, "--home-only"]),
        "there is no cluster edge",
    );
    Ok(())
}
