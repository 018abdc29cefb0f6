//! Releases whose records a controller did not write, or can no longer verify: taken over without change if nothing
//! differs, upgraded if something does, held if an upgrade would lose a password, and removed in any case. Among them
//! are releases of Krateo, of plain Helm and of Flux.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{Rig, Type, await_released, compose, list, until};
use crate::Namespace;
use crate::namespace::condition;
use crate::platform::NAMESPACE;
use crate::trials::releases::{TrialChart, revisions};

/// The annotation that identifies our records.
const MAC: &str = "krateo.io/release-mac";

/// The result for one release.
#[derive(Debug)]
pub struct Case {
    /// What was done to it.
    pub what: String,
    /// Revisions that were created because of that.
    pub upgrades: i64,
    /// Objects that were replaced.
    pub recreated: usize,
    /// What went wrong, if anything did.
    pub fault: Option<String>,
}

/// All results.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Releases of which only the record differed.
    pub same: Vec<Case>,
    /// The others.
    pub others: Vec<Case>,
}

impl Outcome {
    /// True if everything is as it should be.
    pub fn is_well(&self) -> bool {
        let is_untouched = |case: &Case| case.upgrades == 0 && case.recreated == 0;
        self.same.iter().all(is_untouched)
            && self
                .same
                .iter()
                .chain(&self.others)
                .all(|case| case.fault.is_none())
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "| the record | upgrades | objects recreated | fault |\n|---|---|---|---|"
        )?;
        for case in self.same.iter().chain(&self.others) {
            let fault = case.fault.as_deref().unwrap_or("-");
            writeln!(
                f,
                "| {} | {} | {} | {fault} |",
                case.what, case.upgrades, case.recreated
            )?;
        }
        let sum = |count: fn(&Case) -> i64| self.same.iter().map(count).sum::<i64>();
        let all = self.same.iter().chain(&self.others);
        write!(
            f,
            "{} releases taken over with {} upgrades and {} objects recreated, {} others, {} faults",
            self.same.len(),
            sum(|case| case.upgrades),
            sum(|case| case.recreated as i64),
            self.others.len(),
            all.filter(|case| case.fault.is_some()).count()
        )
    }
}

/// One composition, tried in its namespace.
struct Trial<'t> {
    rig: &'t Rig,
    namespace: &'t Namespace,
    type_: &'t Type,
    url: &'t str,
    name: &'static str,
}

/// Runs all cases.
///
/// # Errors
/// When the platform does not do what comes before.
pub fn run(rig: &Rig) -> Result<Outcome> {
    let namespace = rig.platform.namespace("take-over")?;
    let chart = TrialChart::named("several-kinds")?;
    let url = rig.push(Path::new(&chart.path()), "settled")?;
    let type_ = rig.define(&namespace, "settled", &url, &BTreeMap::new(), &[])?;
    let names = [
        "former",
        "upgraded",
        "rolled-back",
        "lost",
        "rotated",
        "changed",
        "leaving",
        "krateo",
        "krateo-leaving",
    ];
    let compositions: Vec<Value> = names
        .map(|name| type_.composition(namespace.namespace(), name, &json!({})))
        .into();
    compose(&namespace, &compositions)?;
    await_released(&namespace, &type_, names.len())?;
    let trial = |name| Trial {
        rig,
        namespace: &namespace,
        type_: &type_,
        url: &url,
        name,
    };
    let mut outcome = Outcome::default();
    outcome
        .same
        .push(trial("former").settles("ours of before records were signed", 1, Trial::unsign)?);
    outcome.same.push(trial("upgraded").settles(
        "helm upgrade --reuse-values to the same chart",
        2,
        |trial| trial.helm_upgrade(&[]),
    )?);
    outcome.same.push(
        trial("rolled-back").settles("helm rollback to the same revision", 2, |trial| {
            trial.namespace.helm(&["rollback", trial.name, "1"]).map(drop)
        })?,
    );
    outcome
        .same
        .push(trial("rotated").settles("the key was drawn anew", 1, Trial::rotate_key)?);
    outcome
        .same
        .push(trial("lost").settles("the key was lost", 1, Trial::lose_key)?);
    outcome.same.push(trial("krateo").settles(
        "Krateo's: no mark on the record, globals as text, live objects with the composition's id",
        2,
        |trial| {
            trial.helm_upgrade(&["--set-string", "global.gracefullyPaused=false"])?;
            trial.mark_objects()?;
            trial.unmark(1)?;
            trial.unmark(2)
        },
    )?);
    outcome.others.push(trial("changed").upgrades()?);
    outcome
        .others
        .push(trial("leaving").leaves("unsigned", Trial::unsign)?);
    outcome
        .others
        .push(trial("krateo-leaving").leaves("Krateo's", |trial| trial.unmark(1))?);
    outcome.same.push(adopted(rig)?);
    outcome.same.push(adopted_unnamed(rig)?);
    outcome.others.push(drawn(rig)?);
    Ok(outcome)
}

impl Trial<'_> {
    /// Does something to the record, and waits until the release has this many revisions, of which the newest is
    /// signed.
    fn settles(&self, what: &str, revisions: i64, act: impl Fn(&Self) -> Result<()>) -> Result<Case> {
        let before = self.uids()?;
        let former = self.mac(1)?;
        act(self)?;
        let signed = until(&format!("{}: the newest record to be signed", self.name), || {
            self.look_again()?;
            let newest = self.newest()?;
            let mac = self.mac(newest)?;
            // The first revision has one from before.
            let is_new = newest > 1 || mac != former;
            Ok((mac.is_some() && is_new && self.is_synced()?).then_some(newest))
        });
        let after = self.uids()?;
        Ok(Case {
            what: what.to_owned(),
            upgrades: self.newest()? - revisions,
            recreated: before.iter().filter(|uid| !after.contains(uid)).count(),
            fault: signed.err().map(|fault| format!("{fault:#}")),
        })
    }

    /// Other values set by hand are reverted by an ordinary upgrade.
    fn upgrades(&self) -> Result<Case> {
        self.helm_upgrade(&["--set", "one=by-hand"])?;
        let back = until("values to be put back", || {
            self.look_again()?;
            let map = self.namespace.get("configmaps", self.name)?.unwrap_or_default();
            let newest = self.newest()?;
            let is_back = map["data"]["one"] == "first" && self.mac(newest)?.is_some();
            Ok((is_back && newest > 2).then_some(()))
        });
        Ok(Case {
            what: "helm upgrade with other values: upgraded back".to_owned(),
            upgrades: self.newest()? - 2,
            recreated: 0,
            fault: back.err().map(|fault| format!("{fault:#}")),
        })
    }

    /// A composition is deleted while its record is unusable and the registry is down; objects that are not its own
    /// stay.
    fn leaves(&self, whose: &str, disown: impl Fn(&Self) -> Result<()>) -> Result<Case> {
        self.rig.platform.plane().kill_component("charts")?;
        disown(self)?;
        self.namespace.kubectl(&[
            "label",
            "service",
            self.name,
            "krateo.io/composition-id=somebody-else",
            "--overwrite",
        ])?;
        let resource = self.type_.resource();
        self.namespace
            .kubectl(&["delete", &resource, self.name, "--wait=false"])?;
        let gone = self.namespace.wait_gone(&resource, self.name).and_then(|()| {
            for kind in ["deployment", "configmap", "secret", "serviceaccount"] {
                ensure!(
                    self.namespace.get(kind, self.name)?.is_none(),
                    "{kind} {} is left behind",
                    self.name
                );
            }
            self.namespace
                .get("service", self.name)?
                .context("the object of somebody else is gone")?;
            until("the event that names what stays", || {
                let events = list(self.namespace, "events.events.k8s.io")?;
                let names_it = |event: &Value| {
                    event["reason"] == "ObjectsLeft"
                        && event["note"]
                            .as_str()
                            .is_some_and(|note| note.contains("Service"))
                };
                Ok(events.iter().any(names_it).then_some(()))
            })
        });
        self.rig.platform.plane().restart_component("charts")?;
        Ok(Case {
            what: format!(
                "{whose} on removal, registry down: objects of the release go, others stay and are named"
            ),
            upgrades: 0,
            recreated: 0,
            fault: gone.err().map(|fault| format!("{fault:#}")),
        })
    }

    fn unsign(&self) -> Result<()> {
        let record = format!("sh.helm.release.v1.{}.v1", self.name);
        self.namespace
            .kubectl(&["annotate", "secret", &record, &format!("{MAC}-")])
            .map(drop)
    }

    /// Krateo labels the objects of a release and not its records, and signs none.
    fn unmark(&self, revision: i64) -> Result<()> {
        let record = format!("sh.helm.release.v1.{}.v{revision}", self.name);
        self.namespace
            .kubectl(&["annotate", "secret", &record, &format!("{MAC}-")])?;
        self.namespace
            .kubectl(&["label", "secret", &record, "krateo.io/composition-id-"])
            .map(drop)
    }

    /// Krateo labels all objects of a release when it renders them; an upgrade by plain Helm removes the labels.
    fn mark_objects(&self) -> Result<()> {
        let manifest = self.namespace.helm(&["get", "manifest", self.name])?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("manifest.yaml");
        std::fs::write(&file, manifest)?;
        let composition = self.namespace.get(&self.type_.resource(), self.name)?;
        let composition = composition.context("the composition is gone")?;
        let uid = composition["metadata"]["uid"].as_str().unwrap_or_default();
        let label = format!("krateo.io/composition-id={uid}");
        let file = file.display().to_string();
        self.namespace
            .kubectl(&["label", "--overwrite", "--filename", &file, &label])
            .map(drop)
    }

    fn helm_upgrade(&self, further: &[&str]) -> Result<()> {
        let mut arguments = vec![
            "upgrade",
            self.name,
            self.url,
            "--version",
            "1.0.0",
            "--plain-http",
        ];
        arguments.push("--reuse-values");
        arguments.extend(further);
        self.namespace.helm(&arguments).map(drop)
    }

    fn rotate_key(&self) -> Result<()> {
        let annotation = "krateo.io/rotate-release-key=once";
        self.namespace
            .kubectl(&["annotate", "compositiondefinition", "settled", annotation])
            .map(drop)
    }

    fn lose_key(&self) -> Result<()> {
        let name = format!("{}-release-key", self.type_.resource());
        let delete = ["delete", "secret", &name, "--namespace", NAMESPACE];
        let site = self.rig.platform.site();
        site.run(site.kubectl(delete))?;
        // A pass over the definition follows when something about it changes.
        self.namespace
            .kubectl(&[
                "annotate",
                "compositiondefinition",
                "settled",
                "krateo.io/look-again=now",
            ])
            .map(drop)
    }

    /// Records are not watched: the next pass reads them, and an annotation with our prefix triggers one.
    fn look_again(&self) -> Result<()> {
        let now = format!("krateo.io/look-again={}", jiff::Timestamp::now());
        let resource = self.type_.resource();
        self.namespace
            .kubectl(&["annotate", "--overwrite", &resource, self.name, &now])
            .map(drop)
    }

    fn is_synced(&self) -> Result<bool> {
        let composition = self.namespace.get(&self.type_.resource(), self.name)?;
        let composition = composition.unwrap_or_default();
        Ok(condition(&composition, "Synced").is_some_and(|synced| synced["status"] == "True"))
    }

    fn newest(&self) -> Result<i64> {
        let plane = self.rig.platform.plane();
        let revisions = revisions(plane, self.namespace.namespace(), self.name)?;
        Ok(revisions.iter().map(|(revision, _)| *revision).max().unwrap_or(0))
    }

    fn mac(&self, revision: i64) -> Result<Option<String>> {
        let record = format!("sh.helm.release.v1.{}.v{revision}", self.name);
        let record = self.namespace.get("secret", &record)?.unwrap_or_default();
        let mac = record["metadata"]["annotations"][MAC].as_str();
        Ok(mac.map(str::to_owned))
    }

    /// The UIDs of the release's objects.
    fn uids(&self) -> Result<Vec<String>> {
        let mut uids = Vec::new();
        for kind in ["deployment", "service", "configmap", "secret", "serviceaccount"] {
            let object = self.namespace.get(kind, self.name)?;
            let object = object.with_context(|| format!("{kind} {} is not there", self.name))?;
            uids.extend(object["metadata"]["uid"].as_str().map(str::to_owned));
        }
        Ok(uids)
    }
}

/// If a chart generates a password at every render, the composition is held and the field is named; it continues when
/// the annotation says so.
fn drawn(rig: &Rig) -> Result<Case> {
    let namespace = rig.platform.namespace("take-over-drawn")?;
    let chart = TrialChart::named("random")?;
    let url = rig.push(Path::new(&chart.path()), "drawn")?;
    let type_ = rig.define(&namespace, "drawn", &url, &BTreeMap::new(), &[])?;
    let name = "random";
    compose(
        &namespace,
        &[type_.composition(namespace.namespace(), name, &json!({}))],
    )?;
    await_released(&namespace, &type_, 1)?;
    let trial = Trial {
        rig,
        namespace: &namespace,
        type_: &type_,
        url: &url,
        name,
    };
    let password = || -> Result<Value> {
        let secret = namespace.get("secret", name)?.unwrap_or_default();
        Ok(secret["data"]["password"].clone())
    };
    let before = password()?;
    let went_on = (|| {
        trial.unsign()?;
        until("the composition to be held", || {
            trial.look_again()?;
            let composition = namespace.get(&type_.resource(), name)?.unwrap_or_default();
            let synced = condition(&composition, "Synced").cloned().unwrap_or_default();
            let message = synced["message"].as_str().unwrap_or_default();
            let is_held = message.contains("Secret random: .stringData.password")
                && message.contains("krateo.io/take-over-revision: \"1\"");
            Ok(is_held.then_some(()))
        })?;
        ensure!(password()? == before, "the password changed while it was held");
        let annotation = "krateo.io/take-over-revision=1";
        namespace.kubectl(&["annotate", &type_.resource(), name, annotation])?;
        until("the composition to go on", || {
            Ok((trial.newest()? == 2 && password()? != before).then_some(()))
        })
    })();
    Ok(Case {
        what: "unsigned, of a chart that draws a password: held, then upgraded by annotation".to_owned(),
        upgrades: trial.newest()? - 1,
        recreated: 0,
        fault: went_on.err().map(|fault| format!("{fault:#}")),
    })
}

/// The `HelmRelease` of Flux, with the fields that we read.
const HELM_RELEASES: &str = r#"{
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "helmreleases.helm.toolkit.fluxcd.io"},
    "spec": {
        "group": "helm.toolkit.fluxcd.io", "scope": "Namespaced",
        "names": {"kind": "HelmRelease", "plural": "helmreleases", "singular": "helmrelease", "listKind": "HelmReleaseList"},
        "versions": [{"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
        }}}]
    }
}"#;

/// Gives the controller the rights of `cdc.readHelmReleases`.
fn reads_helm_releases(namespace: &Namespace, type_: &Type) -> Result<()> {
    let name = "take-over-flux";
    namespace.kubectl(&[
        "create",
        "clusterrole",
        name,
        "--verb=get",
        "--resource=helmreleases",
    ])?;
    let account = format!("--serviceaccount={NAMESPACE}:{}-{}", type_.plural, type_.version);
    let role = format!("--clusterrole={name}");
    namespace
        .kubectl(&["create", "clusterrolebinding", name, &role, &account])
        .map(drop)
}

/// A composition adopts a release of plain Helm only because of the annotation: the release's objects have no
/// composition's id, and the composition has no release name; it comes from the definition.
fn adopted_unnamed(rig: &Rig) -> Result<Case> {
    let namespace = rig.platform.namespace("take-over-unnamed")?;
    let chart = TrialChart::named("several-kinds")?;
    let url = rig.push(Path::new(&chart.path()), "unnamed")?;
    let name = "of-the-definition";
    let annotations = BTreeMap::from([("krateo.io/release-name", name)]);
    let type_ = rig.define(&namespace, "unnamed", &url, &annotations, &[])?;
    namespace.helm(&["install", name, &url, "--version", "1.0.0", "--plain-http"])?;
    let trial = Trial {
        rig,
        namespace: &namespace,
        type_: &type_,
        url: &url,
        name,
    };
    let before = trial.uids()?;
    let mut composition = type_.composition(namespace.namespace(), "plain", &json!({}));
    composition["metadata"] = json!({
        "name": "plain", "namespace": namespace.namespace(), "annotations": {"krateo.io/adopt": "true"},
    });
    compose(&namespace, &[composition])?;
    let adoption = until("the record to be signed and the composition to be marked", || {
        let adopter = namespace.get(&type_.resource(), "plain")?.unwrap_or_default();
        let is_synced = condition(&adopter, "Synced").is_some_and(|synced| synced["status"] == "True");
        let is_named = adopter["metadata"]["labels"]["krateo.io/release-name"] == name;
        Ok((trial.mac(1)?.is_some() && is_synced && is_named).then_some(()))
    });
    let after = trial.uids()?;
    Ok(Case {
        what: "helm install: adopted by the annotation alone, under the definition's name".to_owned(),
        upgrades: trial.newest()? - 1,
        recreated: before.iter().filter(|uid| !after.contains(uid)).count(),
        fault: adoption.err().map(|fault| format!("{fault:#}")),
    })
}

/// A release of plain Helm, which Flux then manages, can be adopted by somebody who may write its records, but not
/// while Flux manages it.
fn adopted(rig: &Rig) -> Result<Case> {
    let namespace = rig.platform.namespace("take-over-adopted")?;
    let chart = TrialChart::named("several-kinds")?;
    let url = rig.push(Path::new(&chart.path()), "adopted")?;
    let type_ = rig.define(&namespace, "adopted", &url, &BTreeMap::new(), &[])?;
    let name = "plain";
    namespace.helm(&["install", name, &url, "--version", "1.0.0", "--plain-http"])?;
    let trial = Trial {
        rig,
        namespace: &namespace,
        type_: &type_,
        url: &url,
        name,
    };
    let before = trial.uids()?;
    let resource = type_.resource();
    let held = |message: &str| {
        until(&format!("the composition to be held: {message}"), || {
            trial.look_again()?;
            let composition = namespace.get(&resource, name)?.unwrap_or_default();
            let synced = condition(&composition, "Synced").cloned().unwrap_or_default();
            let said = synced["message"].as_str().unwrap_or_default();
            Ok(said.contains(message).then_some(()))
        })
    };
    let adopt = ["annotate", &resource, name, "krateo.io/adopt=true"];
    let adoption = (|| {
        compose(
            &namespace,
            &[type_.composition(namespace.namespace(), name, &json!({}))],
        )?;
        held("the annotation krateo.io/adopt")?;

        let role = |verbs: &[&str]| {
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": {"name": "composer", "namespace": namespace.namespace()},
                "rules": [{"apiGroups": ["composition.krateo.io"], "resources": [type_.plural], "verbs": verbs}],
            })
        };
        namespace.apply(&role(&["get", "patch"]))?;
        namespace.kubectl(&[
            "create",
            "rolebinding",
            "composer",
            "--role=composer",
            "--user=composer",
        ])?;
        let refused = |words: &str| {
            until(&format!("a refusal: {words}"), || {
                let answer = namespace.kubectl(&[&adopt[..], &["--as=composer"]].concat());
                let why = answer
                    .err()
                    .context("somebody without rights adopted a release")?;
                Ok(format!("{why:#}").contains(words).then_some(()))
            })
        };
        refused("needs the verb approve")?;
        namespace.apply(&role(&["get", "patch", "approve"]))?;
        refused("the right to update Secrets there")?;

        namespace.apply(&serde_json::from_str(HELM_RELEASES)?)?;
        let helm_release = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
            "metadata": {"name": "of-flux", "namespace": namespace.namespace()}, "spec": {"suspend": false},
        });
        namespace.wait_until("the HelmRelease", || Ok(namespace.apply(&helm_release).ok()))?;
        let of_flux = format!("helm.toolkit.fluxcd.io/namespace={}", namespace.namespace());
        let service = format!("service/{name}");
        namespace.kubectl(&["label", &service, "helm.toolkit.fluxcd.io/name=of-flux", &of_flux])?;
        namespace.kubectl(&adopt)?;
        held("set cdc.readHelmReleases")?;
        reads_helm_releases(&namespace, &type_)?;
        held("is installed by HelmRelease of-flux in namespace take-over-adopted, which is not suspended")?;
        let suspend = r#"{"spec":{"suspend":true}}"#;
        namespace.kubectl(&[
            "patch",
            "helmrelease",
            "of-flux",
            "--type=merge",
            "--patch",
            suspend,
        ])?;
        until("the record to be signed", || {
            trial.look_again()?;
            Ok((trial.mac(1)?.is_some() && trial.is_synced()?).then_some(()))
        })
    })();
    let after = trial.uids()?;
    Ok(Case {
        what: "helm install, then Flux: adopted by who may write its records, once Flux let go".to_owned(),
        upgrades: trial.newest()? - 1,
        recreated: before.iter().filter(|uid| !after.contains(uid)).count(),
        fault: adoption.err().map(|fault| format!("{fault:#}")),
    })
}
