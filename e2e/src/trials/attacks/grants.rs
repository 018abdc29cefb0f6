//! With a controller's own token one gets only what its releases need: the API server refuses everything else, and
//! every attempt to get more.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::bindings::outcome;
use super::stage::Scene;
use super::{Actor, Answer, Attack, Holder, Outcome, Stage, Type};
use crate::Namespace;
use crate::platform::NAMESPACE;

/// A namespace where the controller has a release, `fixed`.
pub const HOME: &str = "bastion-home";
/// A namespace where it has none.
pub const ELSEWHERE: &str = "bastion-elsewhere";
/// A namespace where another tenant has a release of the type.
const ANNEX: &str = "bastion-annex";

const OWN_ROLE: &str = "composition:bastions:bastion-home:fixed";
const OTHER_ROLE: &str = "composition:bastions:bastion-home:other";

/// One attempt.
enum Attempt {
    /// `kubectl` with these arguments; `@` is the name of the controller's bundle, `%` the namespace of its account.
    Run(&'static str),
    /// Applying this object.
    Write(Value),
}

/// A controller of a type without Secrets, one release of it, and the holder of its token.
pub struct Post {
    /// The type.
    pub type_: std::sync::Arc<Type>,
    /// The namespace of the release.
    pub namespace: Namespace,
    /// The holder of the token.
    pub controller: Holder,
}

impl Post {
    /// Creates what does not exist yet.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn take(stage: &Stage) -> Result<Self> {
        let type_ = stage.bastion()?;
        let namespace = Namespace::of(HOME, stage.platform().site());
        stage.prepare("post", || {
            stage.platform().namespace(ELSEWHERE)?;
            for place in [HOME, ANNEX] {
                let place = stage.platform().namespace(place)?;
                let spec = json!({"image": "example.org/none", "replicas": 0});
                let mut composition = type_.composition(place.namespace(), "web", &spec);
                composition["metadata"]["labels"] = json!({"krateo.io/release-name": "fixed"});
                place.wait_until("the composition", || Ok(place.apply(&composition).ok()))?;
                place.wait_for(&type_.resource(), "web", "Released", "True")?;
            }
            namespace.apply(&json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "foreign", "namespace": HOME},
                "stringData": {"password": "p"},
            }))
        })?;
        Ok(Self {
            controller: stage.controller(&type_, HOME)?,
            type_,
            namespace,
        })
    }

    fn tries(&self, attempt: &Attempt) -> Result<Answer> {
        match attempt {
            Attempt::Run(words) => {
                let words = words
                    .replace('@', &self.type_.account())
                    .replace('%', &self.type_.home);
                let words: Vec<&str> = words.split(' ').collect();
                self.controller.run(&words)
            }
            Attempt::Write(object) => self.controller.apply(object),
        }
    }

    /// The controller's normal requests, as dry runs, and the answers.
    ///
    /// # Errors
    /// When the release has no role.
    pub fn honest(&self) -> Result<Vec<(&'static str, Answer)>> {
        let mut own = self
            .namespace
            .get("roles", OWN_ROLE)?
            .context("the release has no role")?;
        if let Some(metadata) = own["metadata"].as_object_mut() {
            metadata.retain(|key, _| ["name", "namespace", "labels"].contains(&key.as_str()));
        }
        let another = role(
            "Role",
            HOME,
            "composition:bastions:bastion-home:another",
            json!([
                rule("apps", "deployments", &["get", "list", "watch"]),
                {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["sh.helm.release.v1.another.v1"], "verbs": ["get", "create"]},
            ]),
        );
        let verbs = ["get", "create", "patch", "delete"];
        let of_cluster = role(
            "ClusterRole",
            "",
            OWN_ROLE,
            json!([named(
                rule("networking.k8s.io", "ingressclasses", &verbs),
                "fixed"
            )]),
        );
        let bound = format!(
            "get configmap {}-bound --namespace {}",
            self.type_.account(),
            self.type_.home
        );
        let run = |words: &str| self.controller.run(&words.split(' ').collect::<Vec<_>>());
        Ok(vec![
            ("writing its own role again", self.controller.dry_run(&own)?),
            (
                "writing a ClusterRole for what the chart can render",
                self.controller.dry_run(&of_cluster)?,
            ),
            (
                "writing a role for another release",
                self.controller.dry_run(&another)?,
            ),
            (
                "reading its release's record",
                run("get secret sh.helm.release.v1.fixed.v1")?,
            ),
            ("reading the bound", run(&bound)?),
            ("listing its compositions", run("get bastions --all-namespaces")?),
        ])
    }
}

pub(super) fn attacks() -> Vec<Attack> {
    let names: Vec<&'static str> = attempts("", "").into_iter().map(|(name, ..)| name).collect();
    let mut attacks: Vec<Attack> = names
        .into_iter()
        .enumerate()
        .map(|(place, what)| {
            let name = format!("token-{}", what.to_lowercase().replace([' ', '\''], "-"));
            Attack::new(name, Actor::Controller, what, move |stage| {
                let post = Post::take(stage)?;
                let list = attempts(&post.type_.home, &post.type_.account());
                let (_, attempt) = list.into_iter().nth(place).context("the list became shorter")?;
                Ok(match post.tries(&attempt)? {
                    Answer::Failed(why) => anyhow::bail!("it failed for another reason: {why}"),
                    answer => outcome(&answer),
                })
            })
            .quick()
        })
        .collect();
    attacks.push(Attack::new(
        "token-spec",
        Actor::Controller,
        "changes the spec of the victim's composition",
        |stage| patched(stage, "token-spec", &json!({"spec": {"greeting": "forged"}})),
    ));
    attacks.push(Attack::new(
        "token-spec-apply",
        Actor::Controller,
        "changes the spec of the victim's composition by an apply",
        |stage| {
            let scene = Scene::with_victim(stage, "token-spec-apply", &json!({}))?;
            let controller = stage.controller(&scene.bazaar, scene.b.namespace())?;
            let mut forged =
                scene
                    .bazaar
                    .composition(scene.b.namespace(), "web", &json!({"greeting": "forged"}));
            forged["metadata"]["labels"] = json!({});
            Ok(outcome(&controller.apply(&forged)?))
        },
    ));
    attacks.push(Attack::new(
        "token-owner",
        Actor::Controller,
        "gives the victim's composition an owner that is gone, so that it is collected as garbage",
        |stage| {
            patched(
                stage,
                "token-owner",
                &json!({"metadata": {"ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"},
                ]}}),
            )
        },
    ));
    attacks.push(Attack::new(
        "token-composition",
        Actor::Controller,
        "makes a composition of its own",
        |stage| {
            let scene = Scene::with_victim(stage, "token-composition", &json!({}))?;
            let controller = stage.controller(&scene.bazaar, scene.b.namespace())?;
            let forged = scene
                .bazaar
                .composition(scene.b.namespace(), "forged", &json!({}));
            Ok(outcome(&controller.apply(&forged)?))
        },
    ));
    attacks.push(
        Attack::new("token-secret-by-name", Actor::Controller, "grants itself the victim's Secret by name, where the chart renders Secrets", secret_by_name)
            .residue("Where the chart renders Secrets or looks them up, its controller can grant itself to read any Secret *by name* in the namespaces of its compositions"),
    );
    for (name, what, whose) in [
        ("key-tenant", "reads the key of a type's records", Actor::Tenant),
        (
            "key-other-controller",
            "reads the key of another type's records",
            Actor::Controller,
        ),
        (
            "key-inspector",
            "reads the key of a type's records",
            Actor::Inspector,
        ),
    ] {
        attacks.push(Attack::new(name, whose, what, move |stage| key(stage, whose)).quick());
    }
    attacks.push(
        Attack::new(
            "key-granted",
            Actor::Controller,
            "grants itself the key of another type's records",
            |stage| key_granted(stage, NAMESPACE),
        )
        .quick(),
    );
    attacks
}

fn patched(stage: &Stage, name: &str, patch: &Value) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, name, &json!({}))?;
    let controller = stage.controller(&scene.bazaar, scene.b.namespace())?;
    let (resource, patch) = (scene.bazaar.resource(), patch.to_string());
    let words = ["patch", &resource, "web", "--type=merge", "--patch", &patch];
    Ok(match controller.run(&words)? {
        Answer::Allowed(_) => Outcome::got_through("the victim's composition was changed"),
        answer => outcome(&answer),
    })
}

fn secret_by_name(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::with_victim(stage, "token-secret-by-name", &json!({}))?;
    let b = scene.b.namespace();
    scene.b.apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "private", "namespace": b},
        "stringData": {"password": "p"},
    }))?;
    let controller = stage.controller(&scene.bazaar, b)?;
    let name = format!("composition:bazaars:{b}:intruder");
    if let Some(why) = grant(&controller, &scene.bazaar, b, &name, "private")? {
        return Ok(Outcome::refused(why, "the Secret is not read"));
    }
    scene.b.wait_until("the rights to be in force", || {
        Ok(match controller.run(&["get", "secret", "private"])? {
            Answer::Allowed(_) => Some(Outcome::got_through("the Secret was read")),
            Answer::Denied(_) | Answer::Failed(_) => None,
        })
    })
}

/// Grants a controller one Secret by a role of this name; returns the refusal, if there is one.
fn grant(
    controller: &Holder,
    type_: &Type,
    namespace: &str,
    name: &str,
    secret: &str,
) -> Result<Option<String>> {
    let role = role(
        "Role",
        namespace,
        name,
        json!([{
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"],
        }]),
    );
    let mut binding = binding(
        "RoleBinding",
        name,
        "Role",
        name,
        account(&type_.home, &type_.account()),
    );
    binding["metadata"]["namespace"] = json!(namespace);
    for object in [role, binding] {
        if let Some(why) = controller.apply(&object)?.refusal() {
            return Ok(Some(why.to_owned()));
        }
    }
    Ok(None)
}

fn key(stage: &Stage, whose: Actor) -> Result<Outcome> {
    let bazaar = stage.bazaar()?;
    let holder = match whose {
        Actor::Inspector => stage.inspector()?,
        Actor::Controller => stage.controller(&*stage.bastion()?, NAMESPACE)?,
        _ => {
            let home = stage.platform().namespace("key-tenant-a")?;
            stage.person(home.namespace(), "tenant", "edit")?
        }
    };
    Ok(outcome(&holder.run(&[
        "get",
        "secret",
        &bazaar.key(),
        "--namespace",
        NAMESPACE,
    ])?))
}

/// By a role in the keys' namespace, under the name that a release there would have.
fn key_granted(stage: &Stage, place: &str) -> Result<Outcome> {
    let (bastion, bazaar) = (stage.bastion()?, stage.bazaar()?);
    let controller = stage.controller(&bastion, place)?;
    let name = format!("composition:bastions:{place}:intruder");
    Ok(match grant(&controller, &bastion, place, &name, &bazaar.key())? {
        Some(why) => Outcome::refused(why, "nothing was granted"),
        None => Outcome::got_through("the controller may read the key of another type"),
    })
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

fn named(mut rule: Value, name: &str) -> Value {
    rule["resourceNames"] = json!([name]);
    rule
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the list of attempts reads better without references"
)]
fn own_role(rule: Value) -> Attempt {
    Attempt::Write(role("Role", HOME, OWN_ROLE, json!([rule])))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the list of attempts reads better without references"
)]
fn own_cluster_role(rule: Value) -> Attempt {
    Attempt::Write(role("ClusterRole", "", OWN_ROLE, json!([rule])))
}

fn role_in(namespace: &str, name: &str) -> Attempt {
    Attempt::Write(role(
        "Role",
        namespace,
        name,
        json!([rule("apps", "deployments", &["get"])]),
    ))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the list of attempts reads better without references"
)]
fn binding(kind: &str, name: &str, to_kind: &str, to: &str, subject: Value) -> Value {
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": to_kind, "name": to},
        "subjects": [subject],
    });
    if kind == "RoleBinding" {
        binding["metadata"]["namespace"] = json!(HOME);
    }
    binding
}

fn account(namespace: &str, name: &str) -> Value {
    json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
}

/// The attempts of a controller whose account has this name and namespace.
#[expect(clippy::too_many_lines, reason = "one list, an entry for each attempt")]
fn attempts(place: &str, bundle: &str) -> Vec<(&'static str, Attempt)> {
    use Attempt::{Run, Write};
    let own = || account(place, bundle);
    let collecting = || {
        let mut role = role("ClusterRole", "", OWN_ROLE, json!([]));
        role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]});
        role
    };
    let labelled = || {
        let mut role = role("ClusterRole", "", OWN_ROLE, json!([]));
        role["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-admin": "true"});
        role
    };
    let everybody =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"});
    vec![
        ("reading a Secret of its namespace", Run("get secret foreign")),
        ("listing the Secrets of its namespace", Run("get secrets")),
        ("listing all Secrets", Run("get secrets --all-namespaces")),
        (
            "watching Secrets",
            Run("get secrets --watch --request-timeout=3s"),
        ),
        (
            "reading a Secret of the platform",
            Run("get secret any --namespace krateo-system"),
        ),
        (
            "reading another release's record",
            Run("get secret sh.helm.release.v1.other.v1"),
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
            "a rule for all objects of a kind outside of namespaces",
            own_cluster_role(rule("networking.k8s.io", "ingressclasses", &["patch"])),
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
        (
            "a role in a foreign namespace",
            role_in(ELSEWHERE, "composition:bastions:bastion-elsewhere:x"),
        ),
        (
            "a role in a foreign namespace under a name of its own",
            role_in(ELSEWHERE, OWN_ROLE),
        ),
        (
            "a role for its release in another tenant's namespace",
            role_in(ANNEX, OWN_ROLE),
        ),
        (
            "a role in kube-system",
            role_in("kube-system", "composition:bastions:kube-system:x"),
        ),
        (
            "a role in the platform's namespace",
            role_in(NAMESPACE, "composition:bastions:krateo-system:x"),
        ),
        ("a role of another name", role_in(HOME, "mine")),
        (
            "a role of another type's name",
            role_in(HOME, "composition:others:bastion-home:fixed"),
        ),
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
        ("a ClusterRole that aggregates", Write(collecting())),
        ("a ClusterRole that is aggregated", Write(labelled())),
        (
            "binding itself to cluster-admin",
            Write(binding(
                "ClusterRoleBinding",
                OTHER_ROLE,
                "ClusterRole",
                "cluster-admin",
                own(),
            )),
        ),
        (
            "binding itself to admin in its namespace",
            Write(binding("RoleBinding", OTHER_ROLE, "ClusterRole", "admin", own())),
        ),
        (
            "binding itself to another role",
            Write(binding("RoleBinding", "mine", "Role", "mine", own())),
        ),
        (
            "giving its role to another account",
            Write(binding(
                "RoleBinding",
                OWN_ROLE,
                "Role",
                OWN_ROLE,
                account(HOME, "default"),
            )),
        ),
        (
            "giving its role to everybody",
            Write(binding("RoleBinding", OWN_ROLE, "Role", OWN_ROLE, everybody)),
        ),
        (
            "editing the ClusterRole of its bundle",
            Write(role(
                "ClusterRole",
                "",
                "bastions-v1-0-0",
                json!([rule("", "secrets", &["list"])]),
            )),
        ),
        (
            "editing the Role of its bundle",
            Write(role(
                "Role",
                place,
                "bastions-v1-0-0",
                json!([rule("", "secrets", &["list"])]),
            )),
        ),
        (
            "removing the binding of its bundle",
            Run("delete clusterrolebinding @"),
        ),
        (
            "editing the list of its bound",
            Write(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "bastions-v1-0-0-bound", "namespace": place}, "data": {"kinds": "/secrets"},
            })),
        ),
        (
            "removing the list of its bound",
            Run("delete configmap @-bound --namespace %"),
        ),
        (
            "opening namespaces to itself",
            Write(role(
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
            own_cluster_role(rule("composition.krateo.io", "bastions/permissions", &["grant"])),
        ),
        (
            "removing its policy",
            Run("delete validatingadmissionpolicy @-grants"),
        ),
        (
            "removing its policy's binding",
            Run("delete validatingadmissionpolicybinding @-grants"),
        ),
        (
            "making a token Secret under a name that it may write",
            Write(json!({
                "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                "metadata": {
                    "name": "sh.helm.release.v1.fixed.v2", "namespace": HOME,
                    "annotations": {"kubernetes.io/service-account.name": "default"},
                },
            })),
        ),
        (
            "asking for another account's token",
            Run("create token core-provider --namespace krateo-system"),
        ),
        (
            "asking for its own account's token",
            Run("create token @ --namespace %"),
        ),
        (
            "starting a pod",
            Write(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": HOME},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            })),
        ),
        ("acting as somebody else", Run("get pods --as system:admin")),
        (
            "widening its own definition",
            Run("annotate compositiondefinition bastion krateo.io/allowed-kinds=secrets --namespace catalog"),
        ),
        (
            "changing its own deployment",
            Run("scale deployment @-controller --replicas=2 --namespace %"),
        ),
        (
            "changing another's object",
            Run("annotate configmap kube-root-ca.crt a=b"),
        ),
        (
            "deleting a namespace",
            Run("delete namespace bastion-home --dry-run=server"),
        ),
        (
            "making a ConfigMap of another name",
            Run("create configmap other"),
        ),
        ("listing pods", Run("get pods")),
        (
            "reading a pod's log",
            Run("get --raw /api/v1/namespaces/bastion-home/pods/any/log"),
        ),
        (
            "deleting a composition",
            Run("delete bastions.composition.krateo.io web"),
        ),
    ]
}
