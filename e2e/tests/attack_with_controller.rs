//! With a controller's own token nothing is had but what its releases need: the API server refuses the rest, and
//! every attempt to get more.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use e2e::{ChartFolder, Scenario, progress};
use serde_json::{Value, json};

const NAMESPACE: &str = "attack-with-controller";
/// The namespace that the controller lives in.
const PLATFORM: &str = "krateo-system";
const ELSEWHERE: &str = "attack-elsewhere";
const ACCOUNT: &str = "bastions-v1-0-0";
const OWN_ROLE: &str = "composition:bastions:attack-with-controller:fixed";
const OTHER_ROLE: &str = "composition:bastions:attack-with-controller:other";

/// A kind outside of namespaces, so that the bound has one.
const CLASS: &str = "{{- if .Values.class }}\napiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata:\n  name: {{ .Release.Name }}\n{{- end }}\n";

#[test]
fn a_controllers_token_gets_nothing_but_what_its_releases_need() -> Result<()> {
    let scenario = Scenario::start(NAMESPACE)?;
    let chart = ChartFolder::copy("web", "bastion", "1.0.0")?;
    chart.write("templates/class.yaml", CLASS)?;
    scenario.define("bastion", &chart.push(scenario.site())?, "1.0.0")?;
    let definition = scenario.wait_for("compositiondefinitions", "bastion", "Ready", "True")?;
    let kinds = definition["status"]["bound"]["kinds"].to_string();
    assert!(
        kinds.contains("apps/deployments") && !kinds.contains("secrets"),
        "{kinds}"
    );
    scenario.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0",
        "kind": "Bastion",
        "metadata": {"name": "web", "namespace": NAMESPACE, "labels": {"krateo.io/release-name": "fixed"}},
        "spec": {"image": scenario.web_image()},
    }))?;
    scenario.wait_for("bastions", "web", "Ready", "True")?;
    scenario.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}}))?;
    scenario.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "foreign", "namespace": NAMESPACE},
        "stringData": {"password": "p"},
    }))?;

    let thief = Thief::of(&scenario)?;
    holds_nothing_else(&thief)?;
    let mut allowed = Vec::new();
    for (what, attempt) in attempts() {
        match thief.tries(&attempt)? {
            Answer::Denied(why) => println!("denied   {what}: {why}"),
            Answer::Allowed => {
                println!("ALLOWED  {what}");
                allowed.push(what);
            }
        }
    }
    for (what, attempt) in honest(&scenario)? {
        if let Answer::Denied(why) = thief.tries(&attempt)? {
            allowed.push(what);
            println!("DENIED   {what}: {why}");
        } else {
            println!("allowed  {what}");
        }
    }
    println!(
        "{} attempts, {} as they should not be",
        attempts().len(),
        allowed.len()
    );
    assert!(allowed.is_empty(), "{allowed:?}");
    scenario.kubectl(&["delete", "namespace", ELSEWHERE, "--wait=false"])?;
    Ok(())
}

/// What the controller may do where it has no release: its type, and what bounds and roles are made of.
fn holds_nothing_else(thief: &Thief<'_>) -> Result<()> {
    let arguments = "auth can-i --list --no-headers --namespace attack-elsewhere";
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let rights = thief.scenario.site().run(thief.kubectl(&arguments))?;
    let mut resources = BTreeSet::new();
    for right in rights.lines().filter(|right| !right.starts_with([' ', '['])) {
        let words: Vec<_> = right.split_whitespace().collect();
        progress(format_args!("may      {}", words.join(" ")));
        assert!(!right.contains('*'), "{right}");
        resources.extend(right.split_whitespace().next());
    }
    // Every account of Kubernetes may ask about itself.
    resources.retain(|resource| !resource.starts_with("selfsubject"));
    let expected = [
        "bastions.composition.krateo.io",
        "bastions.composition.krateo.io/finalizers",
        // Served nowhere: its policies ask for it.
        "bastions.composition.krateo.io/permissions",
        "bastions.composition.krateo.io/status",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "compositiondefinitions.core.krateo.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "events.events.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
    ];
    assert_eq!(Vec::from_iter(resources), expected);
    Ok(())
}

/// One thing that is tried.
enum Attempt {
    /// `kubectl` with these arguments.
    Run(Vec<String>),
    /// Applying this object; a dry run when it should succeed.
    Write(Value),
    DryRun(Value),
}

enum Answer {
    Allowed,
    Denied(String),
}

/// Somebody who has the controller's token.
struct Thief<'s> {
    scenario: &'s Scenario,
    folder: tempfile::TempDir,
}

impl<'s> Thief<'s> {
    fn of(scenario: &'s Scenario) -> Result<Self> {
        let token = scenario.platform().kubectl(&["create", "token", ACCOUNT])?;
        let admin: Value =
            serde_json::from_str(&scenario.kubectl(&["config", "view", "--raw", "--output", "json"])?)?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "thief",
            "clusters": [{"name": "c", "cluster": admin["clusters"][0]["cluster"]}],
            "users": [{"name": "thief", "user": {"token": token.trim()}}],
            "contexts": [{"name": "thief", "context": {"cluster": "c", "user": "thief", "namespace": NAMESPACE}}],
        });
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("config"), config.to_string())?;
        Ok(Self { scenario, folder })
    }

    fn kubectl(&self, arguments: &[String]) -> Command {
        let mut command = self.scenario.site().kubectl(arguments);
        command.env("KUBECONFIG", self.folder.path().join("config"));
        command
    }

    fn tries(&self, attempt: &Attempt) -> Result<Answer> {
        let arguments = match attempt {
            Attempt::Run(arguments) => arguments.clone(),
            Attempt::Write(object) => self.applying(object, &[])?,
            Attempt::DryRun(object) => self.applying(object, &["--dry-run=server"])?,
        };
        let output = self.kubectl(&arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_denied = ["orbidden", "denied request", "not allowed"]
            .iter()
            .any(|word| said.contains(word));
        match (output.status.success(), is_denied) {
            (true, _) => Ok(Answer::Allowed),
            (false, true) => Ok(Answer::Denied(short(&said))),
            (false, false) => anyhow::bail!("{arguments:?} failed for another reason: {said}"),
        }
    }

    fn applying(&self, object: &Value, more: &[&str]) -> Result<Vec<String>> {
        let file = self.folder.path().join("object.json");
        fs::write(&file, object.to_string())?;
        let file = file.to_str().context("the folder's name is no text")?;
        let base = [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=false",
            "--filename",
            file,
        ];
        Ok(base.iter().chain(more).map(|part| (*part).to_owned()).collect())
    }
}

/// The part of a refusal that says why.
fn short(said: &str) -> String {
    let said = said.lines().last().unwrap_or_default();
    let start = said
        .find("denied request: ")
        .map_or(0, |at| at + "denied request: ".len());
    said[start..].chars().take(140).collect()
}

fn run(arguments: &str) -> Attempt {
    Attempt::Run(arguments.split(' ').map(str::to_owned).collect())
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the list of attempts reads better without references"
)]
fn role(kind: &str, namespace: &str, name: &str, rules: Value) -> Value {
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules,
    });
    if kind == "Role" {
        role["metadata"]["namespace"] = json!(namespace);
    }
    role
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the list of attempts reads better without references"
)]
fn own_role(rule: Value) -> Attempt {
    Attempt::Write(role("Role", NAMESPACE, OWN_ROLE, json!([rule])))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the list of attempts reads better without references"
)]
fn own_cluster_role(rule: Value) -> Attempt {
    Attempt::Write(role("ClusterRole", "", OWN_ROLE, json!([rule])))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the list of attempts reads better without references"
)]
fn binding(kind: &str, name: &str, to_kind: &str, to: &str, subject: Value) -> Attempt {
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": to_kind, "name": to},
        "subjects": [subject],
    });
    if kind == "RoleBinding" {
        binding["metadata"]["namespace"] = json!(NAMESPACE);
    }
    Attempt::Write(binding)
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
}

#[expect(clippy::too_many_lines, reason = "one list, an entry for each attempt")]
fn attempts() -> Vec<(&'static str, Attempt)> {
    let own = || account(PLATFORM, ACCOUNT);
    let named = |mut rule: Value, name: &str| {
        rule["resourceNames"] = json!([name]);
        rule
    };
    vec![
        ("reading a Secret of its namespace", run("get secret foreign")),
        ("listing the Secrets of its namespace", run("get secrets")),
        ("listing all Secrets", run("get secrets --all-namespaces")),
        (
            "watching Secrets",
            run("get secrets --watch --request-timeout=3s"),
        ),
        (
            "reading a Secret of the platform",
            run("get secret any --namespace krateo-system"),
        ),
        (
            "reading another release's record",
            run("get secret sh.helm.release.v1.other.v1"),
        ),
        (
            "a rule with any verb",
            own_role(rule("apps", "deployments", &["*"])),
        ),
        ("a rule for any resource", own_role(rule("apps", "*", &["get"]))),
        (
            "a rule for any group",
            own_role(rule("*", "deployments", &["get"])),
        ),
        (
            "a rule for a foreign kind",
            own_role(rule("batch", "jobs", &["create"])),
        ),
        (
            "a rule for a subresource",
            own_role(rule("", "pods/exec", &["create"])),
        ),
        (
            "a rule for tokens",
            own_role(rule("", "serviceaccounts/token", &["create"])),
        ),
        (
            "a rule to escalate",
            own_role(rule("apps", "deployments", &["escalate"])),
        ),
        (
            "a rule to bind",
            own_role(rule("rbac.authorization.k8s.io", "roles", &["bind"])),
        ),
        (
            "a rule to impersonate",
            own_role(rule("", "users", &["impersonate"])),
        ),
        ("a rule to list Secrets", own_role(rule("", "secrets", &["list"]))),
        (
            "a rule to read any Secret",
            own_role(rule("", "secrets", &["get"])),
        ),
        (
            "a rule to read a foreign Secret",
            own_role(named(rule("", "secrets", &["get"]), "foreign")),
        ),
        (
            "a rule to read another release's record",
            own_role(named(
                rule("", "secrets", &["get"]),
                "sh.helm.release.v1.other.v1",
            )),
        ),
        (
            "a rule to list pods where the chart has no Jobs",
            own_role(rule("", "pods", &["list"])),
        ),
        (
            "a rule to read logs where the chart has no Jobs",
            own_role(rule("", "pods/log", &["get"])),
        ),
        (
            "a rule to read all Leases",
            own_role(rule("coordination.k8s.io", "leases", &["get"])),
        ),
        (
            "a rule to read another release's Lease",
            own_role(named(
                rule("coordination.k8s.io", "leases", &["get"]),
                "sh.helm.release.v1.other",
            )),
        ),
        (
            "a rule to delete all of a kind",
            own_role(rule("apps", "deployments", &["deletecollection"])),
        ),
        ("a role in a foreign namespace", {
            let name = "composition:bastions:attack-elsewhere:x";
            Attempt::Write(role(
                "Role",
                ELSEWHERE,
                name,
                json!([rule("apps", "deployments", &["get"])]),
            ))
        }),
        ("a role in kube-system", {
            let name = "composition:bastions:kube-system:x";
            Attempt::Write(role(
                "Role",
                "kube-system",
                name,
                json!([rule("apps", "deployments", &["get"])]),
            ))
        }),
        ("a role in the platform's namespace", {
            let name = "composition:bastions:krateo-system:x";
            Attempt::Write(role(
                "Role",
                "krateo-system",
                name,
                json!([rule("apps", "deployments", &["get"])]),
            ))
        }),
        ("a role of another name", {
            Attempt::Write(role(
                "Role",
                NAMESPACE,
                "mine",
                json!([rule("apps", "deployments", &["get"])]),
            ))
        }),
        ("a role of another type's name", {
            let name = "composition:others:attack-with-controller:fixed";
            Attempt::Write(role(
                "Role",
                NAMESPACE,
                name,
                json!([rule("apps", "deployments", &["get"])]),
            ))
        }),
        (
            "a ClusterRole for Secrets",
            own_cluster_role(rule("", "secrets", &["list"])),
        ),
        (
            "a ClusterRole for records of releases",
            own_cluster_role(named(
                rule("", "secrets", &["get"]),
                "sh.helm.release.v1.fixed.v1",
            )),
        ),
        (
            "a ClusterRole for a kind of namespaces",
            own_cluster_role(rule("apps", "deployments", &["get"])),
        ),
        (
            "a ClusterRole for URLs",
            own_cluster_role(json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})),
        ),
        ("a ClusterRole that aggregates", {
            let mut role = role("ClusterRole", "", OWN_ROLE, json!([]));
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]});
            Attempt::Write(role)
        }),
        ("a ClusterRole that is aggregated", {
            let mut role = role("ClusterRole", "", OWN_ROLE, json!([]));
            role["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-admin": "true"});
            Attempt::Write(role)
        }),
        (
            "binding itself to cluster-admin",
            binding(
                "ClusterRoleBinding",
                OTHER_ROLE,
                "ClusterRole",
                "cluster-admin",
                own(),
            ),
        ),
        (
            "binding itself to admin in its namespace",
            binding("RoleBinding", OTHER_ROLE, "ClusterRole", "admin", own()),
        ),
        (
            "binding itself to another role",
            binding("RoleBinding", "mine", "Role", "mine", own()),
        ),
        (
            "giving its role to another account",
            binding(
                "RoleBinding",
                OWN_ROLE,
                "Role",
                OWN_ROLE,
                account(NAMESPACE, "default"),
            ),
        ),
        (
            "giving its role to everybody",
            binding(
                "RoleBinding",
                OWN_ROLE,
                "Role",
                OWN_ROLE,
                json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}),
            ),
        ),
        (
            "editing the ClusterRole of its bundle",
            Attempt::Write(role(
                "ClusterRole",
                "",
                ACCOUNT,
                json!([rule("", "secrets", &["list"])]),
            )),
        ),
        (
            "editing the Role of its bundle",
            Attempt::Write(role(
                "Role",
                PLATFORM,
                ACCOUNT,
                json!([rule("", "secrets", &["list"])]),
            )),
        ),
        (
            "removing the binding of its bundle",
            run("delete clusterrolebinding bastions-v1-0-0"),
        ),
        ("editing the list of its bound", {
            Attempt::Write(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "bastions-v1-0-0-bound", "namespace": PLATFORM}, "data": {"kinds": "/secrets"},
            }))
        }),
        (
            "removing the list of its bound",
            run("delete configmap bastions-v1-0-0-bound --namespace krateo-system"),
        ),
        (
            "opening namespaces to itself",
            Attempt::Write(role(
                "ClusterRole",
                "",
                "bastions-v1-0-0-namespaces",
                json!([{
                    "apiGroups": ["composition.krateo.io"], "resources": ["bastions/permissions"], "verbs": ["grant"],
                }]),
            )),
        ),
        (
            "opening namespaces to itself by a role of its own",
            Attempt::Write(role(
                "ClusterRole",
                "",
                OWN_ROLE,
                json!([rule("composition.krateo.io", "bastions/permissions", &["grant"])]),
            )),
        ),
        (
            "removing its policy",
            run("delete validatingadmissionpolicy bastions-v1-0-0-grants"),
        ),
        (
            "removing its policy's binding",
            run("delete validatingadmissionpolicybinding bastions-v1-0-0-grants"),
        ),
        ("making a token Secret under a name that it may write", {
            Attempt::Write(json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {
                    "name": "sh.helm.release.v1.fixed.v2", "namespace": NAMESPACE,
                    "annotations": {"kubernetes.io/service-account.name": "default"},
                },
            }))
        }),
        (
            "asking for another account's token",
            run("create token core-provider --namespace krateo-system"),
        ),
        ("starting a pod", {
            Attempt::Write(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": NAMESPACE},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            }))
        }),
        ("acting as somebody else", run("get pods --as system:admin")),
        (
            "widening its own definition",
            run("annotate compositiondefinition bastion krateo.io/allowed-kinds=secrets"),
        ),
        (
            "changing its own deployment",
            run("scale deployment bastions-v1-0-0-controller --replicas=2 --namespace krateo-system"),
        ),
        (
            "changing the values of a composition",
            run(r#"patch bastion web --type=merge --patch {"spec":{"greeting":"mine"}}"#),
        ),
        (
            "an owner for a composition, so that it is collected",
            run(
                r#"patch bastion web --type=merge --patch {"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}"#,
            ),
        ),
        ("removing a composition", run("delete bastion web --wait=false")),
        (
            "reading another type's key",
            run("get secret others.composition.krateo.io-release-key --namespace krateo-system"),
        ),
        (
            "writing its type's key",
            run("annotate secret bastions.composition.krateo.io-release-key a=b --namespace krateo-system"),
        ),
        (
            "changing another composition's object",
            run("annotate configmap kube-root-ca.crt a=b"),
        ),
    ]
}

/// What the controller does all day. Dry runs, so that the release stays as it is.
fn honest(scenario: &Scenario) -> Result<Vec<(&'static str, Attempt)>> {
    let mut own: Value = scenario
        .get("roles", OWN_ROLE)?
        .context("the release has no role")?;
    if let Some(metadata) = own["metadata"].as_object_mut() {
        metadata.retain(|key, _| ["name", "namespace", "labels"].contains(&key.as_str()));
    }
    let another = role(
        "Role",
        NAMESPACE,
        "composition:bastions:attack-with-controller:another",
        json!([
            rule("apps", "deployments", &["get", "list", "watch"]),
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["sh.helm.release.v1.another.v1"], "verbs": ["get", "create"]},
        ]),
    );
    let of_cluster = role(
        "ClusterRole",
        "",
        OWN_ROLE,
        json!([rule(
            "networking.k8s.io",
            "ingressclasses",
            &["get", "create", "patch", "delete"]
        )]),
    );
    Ok(vec![
        ("writing its own role again", Attempt::DryRun(own)),
        (
            "writing a ClusterRole for what the chart can render",
            Attempt::DryRun(of_cluster),
        ),
        ("writing a role for another release", Attempt::DryRun(another)),
        (
            "reading its release's record",
            run("get secret sh.helm.release.v1.fixed.v1"),
        ),
        (
            "reading the bound",
            run("get configmap bastions-v1-0-0-bound --namespace krateo-system"),
        ),
        (
            "reading its type's key",
            run("get secret bastions.composition.krateo.io-release-key --namespace krateo-system"),
        ),
        ("listing its compositions", run("get bastions --all-namespaces")),
    ])
}
