//! What a controller may write once an admin has granted something to its chart by a `ChartGrant`, and who may write such
//! grants. Every attack comes after its control, which is like it and is allowed; and what refuses it has to be the rule
//! that is meant, in its own words.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::definitions::author_of;
use super::registries::plain;
use super::stage::{CATALOG, Scene};
use super::{Actor, Answer, Attack, Holder, Outcome, Stage};
use crate::Namespace;
use crate::namespace::condition;
use crate::platform::RELEASE;

const GROUP: &str = "rbac.authorization.k8s.io";
const PLURAL: &str = "ledgers";
/// The namespace and the name of the release that the controller writes for. No composition has to exist: what is written
/// is cluster-scoped.
const HOME: &str = "ledger-home";
const MINE: &str = "mine";
/// A `ClusterRole` of that release.
const OWN_ROLE: &str = "ledger-own";

// What refuses: the policies' own words.
const RULES: &str = "lacks the names that the scan found";
const BINDINGS: &str = "may only bind a role of the release to ServiceAccounts in allowed namespaces";
const ROLES: &str = "is not of the same composition";
const TYPES: &str = "only the platform writes the definitions of its own types";
const CONSENT: &str = "a controller does not consent to what charts need";
/// A refusal of Kubernetes' own.
const NO_RIGHT: &str = "cannot patch resource \"chartgrants\"";

/// What is allowed, and what is like it and is not.
struct Forgery {
    honest: Vec<Value>,
    forged: Vec<Value>,
}

#[expect(clippy::too_many_lines, reason = "one list, an entry for each attack")]
pub(super) fn attacks() -> Vec<Attack> {
    let token = |name: &'static str, what: &str, by: &'static [&'static str], forgery: fn() -> Forgery| {
        Attack::new(name, Actor::Controller, what, move |stage| {
            written(&Office::open(stage)?, by, &forgery())
        })
        .quick()
    };
    vec![
        token(
            "granted-any-verb",
            "writes the chart's own rule with the verb *, which nobody granted",
            &[RULES],
            || Forgery {
                honest: vec![role(json!([rule(
                    "networking.k8s.io",
                    "ingressclasses",
                    &["get"]
                )]))],
                forged: vec![role(json!([rule("coordination.k8s.io", "leases", &["*"])]))],
            },
        ),
        token(
            "granted-without-names",
            "writes the chart's own rule without the name that it has there",
            &[RULES],
            || Forgery {
                honest: vec![role(json!([settings_of(MINE)]))],
                forged: vec![role(json!([rule("", "configmaps", &["get"])]))],
            },
        ),
        token(
            "granted-name-of-neighbour",
            "writes the chart's own rule with the name that it has in another release",
            &[RULES],
            || Forgery {
                honest: vec![role(json!([settings_of(MINE)]))],
                forged: vec![role(json!([settings_of("neighbour")]))],
            },
        ),
        token(
            "granted-combined",
            "makes one rule of two that are granted, and so more than both",
            &[RULES],
            || Forgery {
                honest: vec![
                    role(json!([rule("", "nodes", &["get"])])),
                    role(json!([rule("", "services", &["delete"])])),
                ],
                forged: vec![role(json!([{
                    "apiGroups": [""], "resources": ["nodes", "services"], "verbs": ["get", "delete"],
                }]))],
            },
        ),
        token(
            "granted-to-everybody",
            "gives a role to all who have a token, as a grant says",
            &[BINDINGS],
            || Forgery {
                honest: vec![binding("ledger-group", OWN_ROLE, MINE, &[group("auditors")])],
                forged: vec![binding(
                    "ledger-everybody",
                    OWN_ROLE,
                    MINE,
                    &[group("system:authenticated")],
                )],
            },
        ),
        token(
            "granted-subject-more",
            "gives a role to one account more than a grant says",
            &[BINDINGS],
            || Forgery {
                honest: vec![binding("ledger-reader", OWN_ROLE, MINE, &[account("reader")])],
                forged: vec![binding(
                    "ledger-reader",
                    OWN_ROLE,
                    MINE,
                    &[account("reader"), account("default")],
                )],
            },
        ),
        // Two policies refuse this one, and either may be the first.
        token(
            "granted-release-cluster-admin",
            "gives cluster-admin by a release of that name, where a grant names the role by the release",
            &[BINDINGS, ROLES],
            || named_by_release("cluster-admin"),
        ),
        token(
            "granted-release-granter",
            "gives the granters' role by a release of that name, where a grant names the role by the release",
            &[ROLES],
            || named_by_release(&granter_role()),
        ),
        token(
            "granted-types",
            "grants itself the platform's own types, or any, where a grant allows the kind",
            &[TYPES],
            || Forgery {
                honest: vec![types(&json!(["ledgers.example.org"]))],
                forged: vec![
                    types(&json!(["shops.composition.krateo.io"])),
                    types(&json!(["compositiondefinitions.core.krateo.io"])),
                    types(&json!(["chartgrants.kco.krateo.io"])),
                    types(&json!(["ledgers.example.org", "shops.composition.krateo.io"])),
                    any_type(),
                ],
            },
        ),
        Attack::new(
            "granted-by-controller",
            Actor::Controller,
            "makes a grant, with a right to write them that somebody gave it",
            |stage| {
                let mut forged = grant(stage);
                forged["metadata"]["name"] = json!("ledger-forged");
                consented(stage, &forged)
            },
        )
        .quick(),
        Attack::new(
            "granted-changed-by-controller",
            Actor::Controller,
            "adds a rule to the grant of its chart, with a right to write them that somebody gave it",
            |stage| {
                let mut forged = grant(stage);
                forged["spec"]["rules"] = json!([rule("", "secrets", &["get"])]);
                consented(stage, &forged)
            },
        )
        .quick(),
        Attack::new(
            "granted-by-definer",
            Actor::DefinitionAuthor,
            "makes a grant for a definition of its own",
            by_definer,
        )
        .quick(),
        Attack::new(
            "granted-type-of-release",
            Actor::ChartAuthor,
            "brings the type that another chart will become",
            type_of_release,
        ),
    ]
}

/// The holder of the controller's token, and somebody who may write grants.
struct Office {
    controller: Holder,
    granter: Holder,
}

impl Office {
    fn open(stage: &Stage) -> Result<Self> {
        let type_ = stage.ledger(&grant(stage))?;
        let office = Self {
            controller: stage.controller(&type_, HOME)?,
            granter: stage.person(CATALOG, "granter", "")?,
        };
        stage.prepare("ledger", || {
            let catalog = stage.catalog();
            let mut own = role(json!([]));
            own["metadata"]["name"] = json!(OWN_ROLE);
            catalog.apply(&own)?;
            // The controller gets the right as well: what refuses it has to be the policy.
            catalog.apply(&json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding",
                "metadata": {"name": "ledger-granters"},
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": granter_role()},
                "subjects": [
                    {"kind": "ServiceAccount", "name": "granter", "namespace": CATALOG},
                    {"kind": "ServiceAccount", "name": type_.account(), "namespace": type_.home},
                ],
            }))?;
            let is_allowed = |holder: &Holder, object: &Value| {
                Ok(holder.dry_run(object)?.refusal().is_none().then_some(()))
            };
            catalog.wait_until("the right to grant", || {
                is_allowed(&office.granter, &grant(stage))
            })?;
            // A moment after core-provider has seen the grant.
            let granted = binding("ledger-reader", OWN_ROLE, MINE, &[account("reader")]);
            catalog.wait_until("the grant to be in force", || {
                is_allowed(&office.controller, &granted)
            })
        })?;
        Ok(office)
    }
}

fn granter_role() -> String {
    format!("{RELEASE}-granter")
}

/// What the admin consents to.
fn grant(stage: &Stage) -> Value {
    let bound = |name: &str, role: &str, subject: Value| {
        json!({
            "kind": "ClusterRoleBinding", "name": name,
            "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [subject],
        })
    };
    let of_group = |name: &str| json!({"kind": "Group", "name": name});
    json!({
        "apiVersion": "kco.krateo.io/v1alpha1", "kind": "ChartGrant", "metadata": {"name": "ledger"},
        "spec": {
            "definition": {"namespace": CATALOG, "name": "ledger"},
            "chart": {
                "url": stage.chart(CATALOG, "ledger")["url"], "versions": ["1.0.0"], "plainHTTP": true,
            },
            "kinds": [{"group": "apiextensions.k8s.io", "kind": "CustomResourceDefinition"}],
            "rules": [rule("", "nodes", &["get"]), rule("", "services", &["delete"])],
            "bindings": [
                bound("ledger-reader", OWN_ROLE, account("reader")),
                bound("ledger-group", OWN_ROLE, of_group("auditors")),
                bound("ledger-everybody", OWN_ROLE, of_group("system:authenticated")),
                bound("<release>-reader", "<release>", account("reader")),
            ],
        },
    })
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// The rule of the chart that has a name.
fn settings_of(release: &str) -> Value {
    let mut rule = rule("", "configmaps", &["get"]);
    rule["resourceNames"] = json!([format!("{release}-settings")]);
    rule
}

/// An account outside of the namespaces of the bound, so that only a grant allows to bind a role to it.
fn account(name: &str) -> Value {
    json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"})
}

fn group(name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": "Group", "name": name})
}

/// An object of a release, as the controller labels it.
fn of_release(mut object: Value, release: &str) -> Value {
    object["metadata"]["labels"] = json!({
        "krateo.io/composition-resource": PLURAL, "krateo.io/composition-id": MINE,
        "krateo.io/composition-namespace": HOME,
    });
    object["metadata"]["annotations"] = json!({
        "meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": HOME,
    });
    object
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the list of attacks reads better without references"
)]
fn role(rules: Value) -> Value {
    let role = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": "ledger-new"},
        "rules": rules,
    });
    of_release(role, MINE)
}

fn binding(name: &str, role: &str, release: &str, subjects: &[Value]) -> Value {
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}, "subjects": subjects,
    });
    of_release(binding, release)
}

/// The binding that is granted to every release, of one that is called as a role.
fn named_by_release(role: &str) -> Forgery {
    let of = |role: &str| {
        vec![binding(
            &format!("{role}-reader"),
            role,
            role,
            &[account("reader")],
        )]
    };
    Forgery {
        honest: of(OWN_ROLE),
        forged: of(role),
    }
}

/// The controller's own `ClusterRole` with rights to custom resource definitions of these names.
fn types(names: &Value) -> Value {
    let mut role = any_type();
    role["rules"][0]["resourceNames"] = names.clone();
    role["rules"][0]["verbs"] = json!(["get", "create", "patch", "delete"]);
    role
}

/// The same with the right to create any.
fn any_type() -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole",
        "metadata": {"name": format!("composition:{PLURAL}:{HOME}:{MINE}")},
        "rules": [rule("apiextensions.k8s.io", "customresourcedefinitions", &["create"])],
    })
}

/// Writes what is honest, which must be allowed, then each forgery, all as dry runs.
fn written(office: &Office, by: &[&str], forgery: &Forgery) -> Result<Outcome> {
    for honest in &forgery.honest {
        office
            .controller
            .dry_run(honest)?
            .printed()
            .context("the control")?;
    }
    let mut refused = None;
    for forged in &forgery.forged {
        match refused_by(office.controller.dry_run(forged)?, by)? {
            outcome @ Outcome::Refused { .. } => refused = Some(outcome),
            outcome @ Outcome::GotThrough { .. } => return Ok(outcome),
        }
    }
    refused.context("nothing was tried")
}

/// What an answer means that should be a refusal in these words, or others of the list.
fn refused_by(answer: Answer, by: &[&str]) -> Result<Outcome> {
    match answer {
        Answer::Allowed(_) => Ok(Outcome::got_through("the API server allowed it")),
        Answer::Denied(why) | Answer::Failed(why) => {
            let is_meant = by.iter().any(|words| why.contains(words));
            ensure!(is_meant, "it was refused by something else: {why}");
            Ok(Outcome::refused(why, "nothing was written"))
        }
    }
}

/// A grant that the controller writes, and somebody else with the same right before.
fn consented(stage: &Stage, forged: &Value) -> Result<Outcome> {
    let office = Office::open(stage)?;
    office.granter.dry_run(forged)?.printed().context("the control")?;
    refused_by(office.controller.dry_run(forged)?, &[CONSENT])
}

/// By an admin of the definition's namespace, who may write definitions there.
fn by_definer(stage: &Stage) -> Result<Outcome> {
    let scene = Scene::of(stage, "granted-by-definer")?;
    let granter = Office::open(stage)?.granter;
    let author = author_of(stage, &scene)?;
    let mut forged = grant(stage);
    forged["metadata"]["name"] = json!("granted-by-definer");
    forged["spec"]["definition"]["namespace"] = json!(scene.a.namespace());
    granter.dry_run(&forged)?.printed().context("the control")?;
    refused_by(author.dry_run(&forged)?, &[NO_RIGHT])
}

/// The type is one that core-provider made, so that nothing but the marks of a release is a reason not to adopt it.
fn type_of_release(stage: &Stage) -> Result<Outcome> {
    const TYPES: &str = "customresourcedefinitions.apiextensions.k8s.io";
    const DEFINITIONS: &str = "compositiondefinitions";
    let scene = Scene::of(stage, "granted-type-of-release")?;
    let chart = plain("manor")?;
    let type_ = stage.define(&scene.b, &chart, "manor", &json!({}))?;
    let name = type_.resource();
    let made = scene.b.get(TYPES, &name)?.context("there is no type")?;
    scene
        .b
        .kubectl(&["delete", DEFINITIONS, "manor", "--wait=false"])?;
    scene.b.wait_gone(DEFINITIONS, "manor")?;
    scene.b.wait_gone(TYPES, &name)?;
    let mut marked = json!({
        "apiVersion": made["apiVersion"], "kind": made["kind"], "spec": made["spec"],
        "metadata": {
            "name": name, "labels": made["metadata"]["labels"], "annotations": made["metadata"]["annotations"],
        },
    });
    marked["metadata"]["labels"]["krateo.io/composition-id"] = json!("squatter");
    scene.b.apply(&marked)?;
    let definition = stage.definition(scene.a.namespace(), &chart, "manor", &json!({}))?;
    scene.a.apply(&definition)?;
    let ready = |namespace: &Namespace| -> Result<Option<Value>> {
        let definition = namespace.get(DEFINITIONS, "manor")?.unwrap_or_default();
        Ok(condition(&definition, "Ready").cloned())
    };
    let settled = || Ok(ready(&scene.a)?.is_some_and(|ready| ready["reason"] == "Conflict"));
    let adopted = || {
        let is_ready = ready(&scene.a)?.is_some_and(|ready| ready["status"] == "True");
        Ok(is_ready.then(|| format!("the definition serves {name}, which a release may delete")))
    };
    if let Some(seen) = stage.watch(settled, adopted)? {
        return Ok(Outcome::got_through(seen));
    }
    let said = ready(&scene.a)?.context("the definition has no condition")?["message"].clone();
    let said = said.as_str().unwrap_or_default();
    ensure!(
        said.contains("belongs to the release of composition squatter"),
        "it was refused by something else: {said}"
    );
    // The control: the same type without the mark.
    scene
        .b
        .kubectl(&["label", TYPES, &name, "krateo.io/composition-id-"])?;
    scene
        .a
        .wait_for(DEFINITIONS, "manor", "Ready", "True")
        .context("the control")?;
    Ok(Outcome::refused(said, "the type is not the definition's"))
}
