//! A chart that brings definitions, as an installer of other charts does, and an admin who lists what may be set on
//! them: how editors of a composition of that chart, holders of its controller's token, and people who may annotate a
//! definition (with the platform's namespace closed) try to abuse that.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::bindings::outcome;
use super::definitions::author_of;
use super::registries::plain;
use super::stage::Scene;
use super::{Actor, Answer, Attack, Holder, Outcome, Stage, Type};
use crate::namespace::condition;
use crate::platform::{NAMESPACE, RELEASE};
use crate::{ChartFolder, Namespace};

/// The namespace of the installing chart's compositions, and of the definitions that they bring.
const ESTATE: &str = "estate";

/// The chart of all of them: one of them gets its type, and the others wait for it, which does not matter here.
const CHART: &str = "ward";

/// What the admin lists for each of the estate's definitions.
const LISTED: (&str, &str) = ("krateo.io/allowed-kinds", "batch/jobs");

/// Definitions that editors of compositions bring, one for each of their attacks.
const EDITED: [&str; 5] = [
    "consent-chart",
    "consent-chart-kept",
    "consent-wider",
    "consent-lookups",
    "consent-unlisted",
];

/// One definition that the controller's token writes, and one that only the admin does.
const HELD: &str = "consent-token";

pub(super) fn attacks() -> Vec<Attack> {
    let editor = |name: &'static str, what: &str, edit: fn(&mut Value)| {
        Attack::new(name, Actor::Tenant, what, move |stage| edited(stage, name, edit))
    };
    let mut attacks = vec![
        editor(
            EDITED[0],
            "puts another chart under the name of a definition that the admin lists",
            |component| component["chart"]["url"] = json!("oci://127.0.0.2:1/ward"),
        ),
        editor(
            EDITED[1],
            "puts another version of the chart under such a name",
            |component| component["chart"]["version"] = json!("1.0.1"),
        ),
        editor(EDITED[2], "asks for more than the admin lists", |component| {
            component["annotations"] = json!({ LISTED.0: "batch/jobs,secrets" });
        }),
        editor(
            EDITED[3],
            "asks for lookups besides what the admin lists",
            |component| {
                component["annotations"]["krateo.io/allowed-lookups"] = json!("configmaps");
            },
        ),
        editor(
            EDITED[4],
            "brings a definition that the admin does not list, with what the admin lists for others",
            |component| component["name"] = json!("consent-of-mine"),
        ),
    ];
    for (place, (what, _)) in forgeries(&json!({})).into_iter().enumerate() {
        let name = format!("consent-token-{}", what.replace(' ', "-"));
        let attempt = move |stage: &Stage| {
            let estate = Estate::take(stage)?;
            let (_, forged) = forgeries(&estate.definition(HELD)?)
                .into_iter()
                .nth(place)
                .context("the list became shorter")?;
            Ok(match estate.controller.apply(&forged)? {
                Answer::Failed(why) => anyhow::bail!("it failed for another reason: {why}"),
                answer => outcome(&answer),
            })
        };
        let what = format!("writes, of definitions: {what}");
        attacks.push(Attack::new(name, Actor::Controller, what, attempt).quick());
    }
    for (name, what, volume) in [
        (
            "closed-account",
            "runs a pod as an account of the platform",
            false,
        ),
        (
            "closed-secret",
            "runs a pod with a Secret of the platform in it",
            true,
        ),
    ] {
        let what = format!("opens the platform's namespace by an annotation, where it is closed, and {what}");
        attacks.push(Attack::new(name, Actor::DefinitionAuthor, what, move |stage| {
            in_closed_namespace(stage, name, volume)
        }));
    }
    attacks
}

/// What the holder of the controller's token does with a definition that is listed and exists.
fn forgeries(honest: &Value) -> Vec<(&'static str, Value)> {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut object = honest.clone();
        change(&mut object);
        object
    };
    let unlisted = |change: &dyn Fn(&mut Value)| {
        with(&|object| {
            object["metadata"]["name"] = json!("consent-forged");
            change(object);
        })
    };
    vec![
        (
            "another chart under what is kept",
            with(&|object| object["spec"]["chart"]["url"] = json!("oci://127.0.0.2:1/evil")),
        ),
        (
            "a registry without TLS behind it",
            with(&|object| object["spec"]["chart"]["insecureSkipVerifyTLS"] = json!(true)),
        ),
        (
            "more kinds",
            with(&|object| object["metadata"]["annotations"] = json!({ LISTED.0: "secrets" })),
        ),
        (
            "a namespace",
            with(&|object| {
                object["metadata"]["annotations"]["krateo.io/allowed-namespaces"] = json!(NAMESPACE);
            }),
        ),
        (
            "what it may bring itself",
            with(&|object| {
                object["metadata"]["annotations"]["krateo.io/allowed-definitions"] = json!("[]");
            }),
        ),
        ("one that is not listed", unlisted(&|_| {})),
        (
            "roles for one that is not listed",
            unlisted(&|object| {
                object["metadata"]["annotations"] = json!({"krateo.io/allow-chart-rbac": "true"});
            }),
        ),
    ]
}

/// The type of the installing chart, and where it is used.
struct Estate {
    type_: std::sync::Arc<Type>,
    namespace: Namespace,
    controller: Holder,
    /// `spec.chart` as listed by the admin.
    chart: Value,
}

impl Estate {
    /// Creates what does not exist yet.
    fn take(stage: &Stage) -> Result<Self> {
        stage.prepare("ward", || {
            stage.platform().namespace(ESTATE)?;
            stage
                .definition(ESTATE, &plain(CHART)?, CHART, &json!({}))
                .map(drop)
        })?;
        let chart = stage.chart(ESTATE, CHART);
        let entry = |name: &str| {
            json!({
                "name": name, "namespace": ESTATE, "url": chart["url"], "version": chart["version"], "plainHTTP": true,
                "kind": "Ward", "annotations": { LISTED.0: LISTED.1 },
            })
        };
        let type_ = stage.steward(&EDITED.into_iter().chain([HELD]).map(entry).collect())?;
        let estate = Self {
            controller: stage.controller(&type_, ESTATE)?,
            namespace: Namespace::of(ESTATE, stage.platform().site()),
            type_,
            chart,
        };
        stage.prepare("estate", || {
            estate.compose(HELD, &[component(&estate.chart, HELD)])?;
            estate.arrives(HELD)?;
            estate.arm()
        })?;
        Ok(estate)
    }

    /// A composition that brings these.
    fn composition(&self, name: &str, components: &[Value]) -> Value {
        self.type_
            .composition(ESTATE, name, &json!({ "components": components }))
    }

    fn compose(&self, name: &str, components: &[Value]) -> Result<()> {
        let composition = self.composition(name, components);
        self.namespace
            .wait_until("the composition", || Ok(self.namespace.apply(&composition).ok()))
    }

    /// Waits until the definition has the annotations that the admin lists for it: honest users must be served.
    fn arrives(&self, name: &str) -> Result<()> {
        self.namespace
            .wait("compositiondefinitions", name, |definition| {
                definition["metadata"]["annotations"][LISTED.0] == LISTED.1
            })
            .map(drop)
    }

    /// A definition as rendered by the release.
    fn definition(&self, name: &str) -> Result<Value> {
        let mut live = self
            .namespace
            .get("compositiondefinitions", name)?
            .context("the definition is not there")?;
        if let Some(object) = live.as_object_mut() {
            object.remove("status");
        }
        let metadata = &live["metadata"];
        live["metadata"] = json!({
            "name": name, "namespace": ESTATE, "labels": metadata["labels"],
            "annotations": { LISTED.0: LISTED.1 },
        });
        Ok(live)
    }

    /// Grants the controller's account all rights to the listed definitions, as it may do itself by a role of a
    /// release.
    fn arm(&self) -> Result<()> {
        let name = format!("composition:{}:{ESTATE}:intruder", self.type_.plural);
        let group = "rbac.authorization.k8s.io";
        let role = json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": name, "namespace": ESTATE},
            "rules": [{
                "apiGroups": ["core.krateo.io"], "resources": ["compositiondefinitions"],
                "verbs": ["get", "create", "update", "patch", "delete"],
            }],
        });
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": name, "namespace": ESTATE},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": self.type_.account(), "namespace": self.type_.home}],
        });
        for object in [role, binding] {
            self.controller.apply(&object)?.printed()?;
        }
        let words = ["auth", "can-i", "create", "compositiondefinitions.core.krateo.io"];
        self.namespace.wait_until("the rights to be in force", || {
            Ok(matches!(self.controller.run(&words)?, Answer::Allowed(_)).then_some(()))
        })
    }
}

fn component(chart: &Value, name: &str) -> Value {
    json!({"name": name, "chart": chart, "annotations": { LISTED.0: LISTED.1 }})
}

/// Somebody who only has rights to compositions of the installing chart edits one: first honestly, then not.
fn edited(stage: &Stage, name: &'static str, edit: fn(&mut Value)) -> Result<Outcome> {
    let estate = Estate::take(stage)?;
    let editor = stage.person(ESTATE, &format!("{name}-editor"), "")?;
    let honest = component(&estate.chart, name);
    let write = |component: &Value| editor.apply(&estate.composition(name, std::slice::from_ref(component)));
    write(&honest)?.printed()?;
    estate.arrives(name)?;

    let mut forged = honest.clone();
    edit(&mut forged);
    let answer = write(&forged)?;
    if let Some(why) = answer.refusal() {
        return Ok(Outcome::refused(why, "the composition is as it was"));
    }
    let generation = estate
        .namespace
        .get(&estate.type_.resource(), name)?
        .map(|composition| composition["metadata"]["generation"].clone());
    let said = || -> Result<Option<String>> {
        let composition = estate
            .namespace
            .get(&estate.type_.resource(), name)?
            .unwrap_or_default();
        let told = ["Synced", "Released", "Ready"]
            .iter()
            .filter_map(|type_| condition(&composition, type_))
            .filter(|condition| {
                condition["status"] == "False"
                    && Some(&condition["observedGeneration"]) == generation.as_ref()
            })
            .filter_map(|condition| condition["message"].as_str())
            .find(|message| message.contains("denied request"));
        Ok(told.map(str::to_owned))
    };
    let widened = || -> Result<Option<String>> {
        let target = forged["name"].as_str().unwrap_or_default();
        let Some(live) = estate.namespace.get("compositiondefinitions", target)? else {
            return Ok(None);
        };
        let is_listed = target == name
            && ["url", "version"]
                .iter()
                .all(|field| live["spec"]["chart"][*field] == honest["chart"][*field]);
        let annotations = live["metadata"]["annotations"].as_object();
        let words: Vec<_> = annotations
            .into_iter()
            .flatten()
            .filter(|(key, _)| key.starts_with("krateo.io/allow"))
            .collect();
        let is_as_listed = words
            .iter()
            .all(|(key, value)| is_listed && *key == LISTED.0 && **value == LISTED.1);
        Ok((!is_as_listed).then(|| format!("definition {target} has {words:?}")))
    };
    Ok(match stage.watch(|| Ok(said()?.is_some()), widened)? {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            said()?.unwrap_or_default(),
            "no definition has more than the admin lists",
        ),
    })
}

/// The pods of a chart whose definition asks for the platform's namespace, which the platform's admins closed.
fn in_closed_namespace(stage: &Stage, name: &'static str, volume: bool) -> Result<Outcome> {
    let scene = Scene::of(stage, name)?;
    let chart = ChartFolder::copy("bazaar", &name.replace('-', ""), "1.0.0")?;
    let allowed = json!({
        "krateo.io/allowed-namespaces": NAMESPACE, "krateo.io/allowed-kinds": "apps/deployments",
        "krateo.io/allowed-lookups": format!("@{NAMESPACE}"),
    });
    let definition = stage.definition(scene.a.namespace(), &chart, name, &allowed)?;
    author_of(stage, &scene)?.apply(&definition)?.printed()?;
    let type_ = stage.defined(&scene.a, name)?;
    stage.run_often(&type_)?;
    let account = if volume { "default" } else { RELEASE };
    let (mounts, volumes) = if volume {
        (
            "volumeMounts: [{name: v, mountPath: /v}]",
            format!(
                "volumes: [{{name: v, secret: {{secretName: {}}}}}]",
                scene.bazaar.key()
            ),
        )
    } else {
        ("env: []", "volumes: []".to_owned())
    };
    let deployment = format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}-intruder, namespace: {NAMESPACE}}}\nspec:\n  \
         replicas: 0\n  selector: {{matchLabels: {{app: i}}}}\n  template:\n    metadata: {{labels: {{app: i}}}}\n    \
         spec:\n      serviceAccountName: {account}\n      containers: [{{name: i, image: example.org/none, {mounts}}}]\n      \
         {volumes}\n"
    );
    let composition = type_.composition(scene.a.namespace(), "mine", &json!({"extraDeploy": [deployment]}));
    scene.a.wait_until("the composition", || {
        Ok(scene.tenant.apply(&composition)?.printed().ok())
    })?;
    let settled = || {
        let found = scene.a.get(&type_.resource(), "mine")?.unwrap_or_default();
        Ok(condition(&found, "Synced").is_some_and(|synced| synced["status"] == "False"))
    };
    let runs = || {
        let place = Namespace::of(NAMESPACE, stage.platform().site());
        let found = place.get("deployments", &format!("{name}-intruder"))?;
        Ok(found.map(|_| format!("pods run as {account} in {NAMESPACE}")))
    };
    Ok(match stage.watch(settled, runs)? {
        Some(seen) => Outcome::got_through(seen),
        None => Outcome::refused(
            scene.said_of(&type_, "mine")?,
            "no pod appeared in the platform's namespace",
        ),
    })
}
