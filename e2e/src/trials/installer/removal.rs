//! Removals with obstacles: a definition that the installer did not make, core-provider killed, and a provider that is
//! removed before the objects whose finalizer only it removes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::live::{Live, Tried};
use super::order::Fall;
use super::run::{Outcome, Round};
use super::stored::Stored;
use super::umbrella::{PLATFORM, Tool, Umbrella};
use super::{Component, Profile, charts};
use crate::{Namespace, progress};

/// Longer than all hooks of a removal may take: the last one alone has 900 s.
const BOUND: Duration = Duration::from_mins(16);

/// A namespace of somebody else, with a definition.
const OTHERS: (&str, &str) = ("others", "foreign");

/// Keys of objects that are removed in the middle of a removal.
const COMPOSITIONS: &str = "/registry/composition.krateo.io/";
const DEFINITIONS: &str = "/registry/core.krateo.io/compositiondefinitions/";

/// Installs the platform for each removal, and removes it.
///
/// # Errors
/// When an installation fails; what goes wrong with a removal is in the outcome.
pub fn run(profile: &Profile) -> Result<Outcome> {
    let umbrella = Umbrella::prepare(profile)?;
    let removal = Removal {
        before: Stored(umbrella.cluster()).keys()?,
        live: Live::new(&umbrella, profile),
        umbrella: &umbrella,
        profile,
    };
    let outcome = removal.all();
    if outcome.as_ref().map_or(true, |outcome| !outcome.is_good()) {
        umbrella.keep_logs()?;
    }
    outcome
}

struct Removal<'u> {
    umbrella: &'u Umbrella,
    profile: &'u Profile,
    live: Live<'u>,
    /// What etcd held before the first installation.
    before: BTreeSet<String>,
}

impl Removal<'_> {
    fn all(&self) -> Result<Outcome> {
        let mut outcome = Outcome {
            components: self.profile.components().len(),
            ..Outcome::default()
        };
        let mut round = Round::default();
        self.umbrella.install(self.profile, &mut round)?;
        outcome
            .tried
            .push(Tried::of("a definition of somebody else", || self.foreign()));
        outcome
            .tried
            .push(Tried::of("core-provider killed in the middle", || self.killed()));
        round.left = self.umbrella.what_is_left(&self.before)?;
        outcome.rounds.push(round);
        if self.profile.get(charts::PROVIDED).is_some() {
            let mut round = Round::default();
            self.umbrella.install(self.profile, &mut round)?;
            outcome.tried.push(Tried::of("a provider that is gone first", || {
                self.without_provider()
            }));
            round.left = self.umbrella.what_is_left(&self.before)?;
            outcome.rounds.push(round);
        }
        Ok(outcome)
    }

    /// The uninstall is refused at once, and nothing is removed.
    fn foreign(&self) -> Result<(String, usize)> {
        let (namespace, name) = OTHERS;
        let others = Namespace::make(namespace, self.umbrella.site())?;
        let component = Component::plain(name, "Foreign");
        self.umbrella.catalog().push_component(&component)?;
        others.define(
            name,
            &format!("{}/{name}", self.umbrella.catalog().charts()),
            &component.version,
        )?;
        others.wait_for("compositiondefinitions", name, "Ready", "True")?;
        let composition = json!({
            "apiVersion": format!("composition.krateo.io/{}", component.served_version()),
            "kind": component.kind, "metadata": {"name": "mine", "namespace": namespace},
            "spec": {"greeting": "Mine"},
        });
        others.wait_until("the type", || Ok(others.apply(&composition).ok()))?;
        others.wait_for("foreigns", "mine", "Ready", "True")?;
        let before = self.live.uids()?;
        let removed = self
            .umbrella
            .uninstall_with(self.umbrella.uninstall_by(Tool::Helm)?, |_| Ok(()))?;
        let refusal = removed.ended.err().context("it was not refused")?;
        let refusal = format!("{refusal:#}");
        let said: Vec<&str> = refusal
            .lines()
            .filter(|line| line.contains("others/foreign"))
            .collect();
        ensure!(
            said.iter().any(|line| line.contains("Nothing was removed")),
            "the refusal does not say what is in the way: {refusal}"
        );
        ensure!(
            self.live.uids()? == before,
            "something was removed: {:?}",
            self.live.uids()?
        );
        others.kubectl(&["delete", "foreigns", "mine"])?;
        others.kubectl(&["delete", "compositiondefinition", name])?;
        others.kubectl(&["delete", "namespace", namespace])?;
        Ok((
            format!(
                "refused after {:.1} s, all {} compositions stay: {}",
                removed.took.as_secs_f64(),
                before.len(),
                said.join(" ").trim()
            ),
            0,
        ))
    }

    /// Everything is removed although core-provider is killed while compositions are deleted, and again while
    /// definitions are.
    fn killed(&self) -> Result<(String, usize)> {
        let half = self.profile.components().len() / 2;
        let mut kills = 0;
        let removed =
            self.umbrella
                .uninstall_with(self.umbrella.uninstall_by(Tool::Helm)?, |fall: &Fall| {
                    let is_due = match kills {
                        0 => fall.gone(COMPOSITIONS) >= half,
                        1 => fall.gone(DEFINITIONS) > 0,
                        _ => false,
                    };
                    if is_due {
                        kills += 1;
                        progress("killing core-provider");
                        self.kill_engine()?;
                    }
                    Ok(())
                })?;
        removed.ended?;
        ensure!(kills == 2, "core-provider was killed {kills} times, not twice");
        Ok((
            format!(
                "killed {kills} times, removed after {:.1} s",
                removed.took.as_secs_f64()
            ),
            0,
        ))
    }

    fn kill_engine(&self) -> Result<()> {
        let platform = Namespace::of(PLATFORM, self.umbrella.site());
        platform
            .kubectl(&[
                "delete",
                "pods",
                "--selector",
                "app.kubernetes.io/component=core-provider",
                "--grace-period=0",
                "--force",
                "--wait=false",
            ])
            .map(drop)
    }

    /// Nobody removes the finalizer that only the provider would remove: the uninstall gives up after a bounded time
    /// and names the object; once it is resolved, a repeated uninstall removes the rest.
    fn without_provider(&self) -> Result<(String, usize)> {
        let home = self.umbrella.home();
        let provider = charts::PROVIDER;
        self.live
            .patch(&json!({"componentValues": {provider: {"replicas": 0}}}))?;
        home.wait("deployments", &format!("{provider}-{provider}"), |deployment| {
            deployment["spec"]["replicas"] == 0
                && deployment["status"]["replicas"].as_u64().unwrap_or_default() == 0
        })?;
        let removed = self
            .umbrella
            .uninstall_with(self.umbrella.uninstall_by(Tool::Helm)?, |_| Ok(()))?;
        let failure = removed.ended.err().context("nobody missed the provider")?;
        let failure = format!("{failure:#}");
        ensure!(
            failure.contains(&format!(
                "RestDefinitions {}/{}",
                home.namespace(),
                charts::PROVIDED
            )),
            "it does not say what is left: {failure}"
        );
        ensure!(removed.took < BOUND, "it took {:?}", removed.took);
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        home.kubectl(&[
            "patch",
            "restdefinitions",
            charts::PROVIDED,
            "--type",
            "merge",
            "--patch",
            patch,
        ])?;
        let again = self
            .umbrella
            .uninstall_with(self.umbrella.uninstall_by(Tool::Helm)?, |_| Ok(()))?;
        again.ended?;
        Ok((
            format!(
                "given up after {:.1} s, naming the RestDefinition; once that was cleared, removed after another {:.1} s",
                removed.took.as_secs_f64(),
                again.took.as_secs_f64()
            ),
            0,
        ))
    }
}
