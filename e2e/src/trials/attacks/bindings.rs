//! If the chart may bring its own roles: what an attacker can do with its controller's token.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Actor, Answer, Attack, Holder, Outcome, Stage, Type};
use crate::Namespace;

const GROUP: &str = "rbac.authorization.k8s.io";
const HOME: &str = "guild-hall";
/// Where another tenant has a composition of the type.
const ANNEX: &str = "guild-annex";

/// A binding, what it binds, and the role's name.
const FOREIGN: [(&str, &str, &str); 9] = [
    ("RoleBinding", "Role", "foreign"),
    ("RoleBinding", "ClusterRole", "foreign"),
    ("ClusterRoleBinding", "ClusterRole", "foreign"),
    ("RoleBinding", "Role", "others"),
    ("RoleBinding", "ClusterRole", "others"),
    ("ClusterRoleBinding", "ClusterRole", "others"),
    ("ClusterRoleBinding", "ClusterRole", "cluster-admin"),
    ("ClusterRoleBinding", "ClusterRole", "core-provider"),
    ("RoleBinding", "ClusterRole", "guilds-v1-0-0"),
];

/// The binding that it writes in normal operation.
pub const OWN: [(&str, &str, &str); 3] = [
    ("RoleBinding", "Role", "own"),
    ("RoleBinding", "ClusterRole", "own"),
    ("ClusterRoleBinding", "ClusterRole", "own"),
];

pub(super) fn attacks() -> Vec<Attack> {
    let mut attacks: Vec<Attack> = FOREIGN
        .into_iter()
        .map(|(kind, to_kind, to)| {
            let name = format!("bind-{}-{}-{to}", kind.to_lowercase(), to_kind.to_lowercase());
            let what = format!("gives the chart's account {to_kind} {to} by a {kind}");
            Attack::new(name, Actor::Controller, what, move |stage| {
                let hall = Hall::open(stage)?;
                Ok(outcome(&hall.controller.apply(&bound(kind, to_kind, to))?))
            })
            .quick()
        })
        .collect();
    attacks.push(
        Attack::new(
            "rule-of-role-in-clusterrole",
            Actor::Controller,
            "writes a rule of the chart's Role into a ClusterRole",
            |stage| {
                let hall = Hall::open(stage)?;
                let mut object = role("ClusterRole", "everywhere", Some("mine"));
                object["rules"] = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
                Ok(outcome(&hall.controller.apply(&object)?))
            },
        )
        .quick(),
    );
    attacks.push(
        Attack::new(
            "role-of-chart-elsewhere",
            Actor::Controller,
            "writes a role of the chart's into another tenant's namespace",
            |stage| {
                let hall = Hall::open(stage)?;
                let mut object = role("Role", "elsewhere", Some("mine"));
                object["metadata"]["namespace"] = json!(ANNEX);
                Ok(outcome(&hall.controller.apply(&object)?))
            },
        )
        .quick(),
    );
    attacks.push(
        Attack::new(
            "rule-beyond-the-chart",
            Actor::Controller,
            "writes a rule that the chart does not have into a role of the chart's",
            |stage| {
                let hall = Hall::open(stage)?;
                let mut object = role("Role", "wider", Some("mine"));
                object["rules"] = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
                Ok(outcome(&hall.controller.apply(&object)?))
            },
        )
        .quick(),
    );
    attacks.push(
        Attack::new(
            "webhook-of-the-bundle",
            Actor::Controller,
            "grants itself the webhook that validates its compositions, and disables it",
            webhook,
        )
        .quick(),
    );
    attacks
}

/// A namespace with a composition of the type whose chart brings roles; only the attacker acts on it.
pub struct Hall {
    /// The holder of the controller's token.
    pub controller: Holder,
    type_: std::sync::Arc<Type>,
    namespace: Namespace,
}

impl Hall {
    /// Creates what does not exist yet.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn open(stage: &Stage) -> Result<Self> {
        let type_ = stage.guild()?;
        let namespace = Namespace::of(HOME, stage.platform().site());
        let controller = stage.controller(&type_, HOME)?;
        stage.prepare("hall", || {
            for place in [HOME, ANNEX] {
                let place = stage.platform().namespace(place)?;
                let composition = type_.composition(place.namespace(), "web", &json!({}));
                place.wait_until("the composition", || Ok(place.apply(&composition).ok()))?;
            }
            for kind in ["Role", "ClusterRole"] {
                namespace.apply(&role(kind, "foreign", None))?;
                namespace.apply(&role(kind, "others", Some("other")))?;
                // The controller may grant in the namespace once core-provider has seen the composition.
                namespace.wait_until("the chart's own role", || {
                    let answer = controller.apply(&role(kind, "own", Some("mine")))?;
                    Ok(answer.refusal().is_none().then_some(()))
                })?;
            }
            Ok(())
        })?;
        Ok(Self {
            controller,
            type_,
            namespace,
        })
    }

    /// The API server's answer when the controller writes these bindings.
    ///
    /// # Errors
    /// When the API server cannot be asked.
    pub fn binds(&self, binding: (&str, &str, &str)) -> Result<Answer> {
        let (kind, to_kind, to) = binding;
        self.controller.apply(&bound(kind, to_kind, to))
    }

    /// Writes these bindings as an admin would.
    ///
    /// # Errors
    /// When it is refused.
    pub fn bind_as_admin(&self, binding: (&str, &str, &str)) -> Result<()> {
        let (kind, to_kind, to) = binding;
        self.namespace.apply(&bound(kind, to_kind, to))
    }
}

pub(super) fn outcome(answer: &Answer) -> Outcome {
    match answer {
        Answer::Allowed(_) => Outcome::got_through("the API server allowed it"),
        Answer::Denied(why) => Outcome::refused(why, "nothing was written"),
        Answer::Failed(why) => Outcome::refused(format!("(not by a rule) {why}"), "nothing was written"),
    }
}

fn labelled(mut object: Value, composition: Option<&str>) -> Value {
    let is_of_cluster = object["kind"]
        .as_str()
        .is_some_and(|kind| kind.starts_with("Cluster"));
    if !is_of_cluster {
        object["metadata"]["namespace"] = json!(HOME);
    }
    if let Some(id) = composition {
        object["metadata"]["labels"] = json!({
            "krateo.io/composition-resource": "guilds", "krateo.io/composition-id": id,
            "krateo.io/composition-namespace": HOME,
        });
    }
    object
}

/// A role with the rules that the chart has in one of this kind.
fn role(kind: &str, name: &str, composition: Option<&str>) -> Value {
    let rules = if kind == "Role" {
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])
    } else {
        json!([{"apiGroups": ["networking.k8s.io"], "resources": ["ingressclasses"], "verbs": ["get"]}])
    };
    let role = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "rules": rules,
    });
    labelled(role, composition)
}

fn bound(kind: &str, to_kind: &str, to: &str) -> Value {
    let name = format!("{to}-{}", to_kind.to_lowercase());
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": to_kind, "name": to},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": HOME}],
    });
    labelled(binding, Some("mine"))
}

/// The chart renders such configurations, so the controller may grant itself access to any of them by name.
fn webhook(stage: &Stage) -> Result<Outcome> {
    let hall = Hall::open(stage)?;
    let name = hall.type_.account();
    let own = format!("composition:{}:{HOME}:web", hall.type_.plural);
    // Named as the bundle's own would be, whether or not this chart's schema needs one.
    hall.namespace.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "labels": {
            "krateo.io/controller-resource": hall.type_.plural, "krateo.io/controller-version": hall.type_.version,
        }},
    }))?;
    let role = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": own},
        "rules": [{
            "apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"],
            "resourceNames": [name], "verbs": ["get", "patch", "delete"],
        }],
    });
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": own},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": own},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": hall.type_.home}],
    });
    for grant in [role, binding] {
        if let Some(why) = hall.controller.apply(&grant)?.refusal() {
            return Ok(Outcome::refused(why, "nothing was granted"));
        }
    }
    let disarm = [
        "delete",
        "validatingwebhookconfiguration",
        &name,
        "--dry-run=server",
    ];
    hall.namespace.wait_until("the rights to be in force", || {
        Ok(match hall.controller.run(&disarm)? {
            Answer::Denied(why) if why.contains("cannot delete resource") => None,
            answer => Some(outcome(&answer)),
        })
    })
}
