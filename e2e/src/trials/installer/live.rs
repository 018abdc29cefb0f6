//! Changes to a running platform: features, exposure, versions, and a component that is not Ready for a while.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::order::removed_too_early;
use super::stored::Stored;
use super::umbrella::{GROUP, Tool, Umbrella, VERSION};
use super::{Component, Profile};
use crate::namespace::{condition, is_ready};
use crate::progress;
use crate::watch::{Said, Watch};

/// The version that the installer is upgraded to.
const NEXT: &str = "1.2.4";

/// The component whose version changes, and the new version.
const BUMPED: (&str, &str) = ("snowplow", "0.30.260");

/// The component that is not Ready for a while.
const FLAPPING: &str = "authn";

/// The Installer, as kubectl has it.
const INSTALLERS: &str = "installers.composition.krateo.io";

/// One trial.
#[derive(Debug)]
pub struct Tried {
    /// What.
    pub name: &'static str,
    /// How many dependencies were checked against the times of both components.
    pub edges: usize,
    /// What was observed, or what is wrong.
    pub seen: Result<String, String>,
    /// How long it took.
    pub took: Duration,
}

impl Tried {
    /// Runs a trial.
    pub fn of(name: &'static str, attempt: impl FnOnce() -> Result<(String, usize)>) -> Self {
        progress(format_args!("trying: {name}"));
        let begun = Instant::now();
        let (seen, edges) = match attempt() {
            Ok((seen, edges)) => (Ok(seen), edges),
            Err(error) => (Err(format!("{error:#}")), 0),
        };
        let tried = Self {
            name,
            edges,
            seen,
            took: begun.elapsed(),
        };
        progress(&tried);
        tried
    }

    /// True when all was as it should be.
    pub fn is_good(&self) -> bool {
        self.seen.is_ok()
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, seen, took, .. } = self;
        let (word, text) = match seen {
            Ok(text) => ("good", text),
            Err(text) => ("FAULT", text),
        };
        write!(f, "{word:5} {name} ({:.1} s): {text}", took.as_secs_f64())
    }
}

/// A running platform with all components.
pub struct Live<'u> {
    umbrella: &'u Umbrella,
    profile: &'u Profile,
}

impl<'u> Live<'u> {
    /// `umbrella`, on which `profile` is installed.
    pub fn new(umbrella: &'u Umbrella, profile: &'u Profile) -> Self {
        Self { umbrella, profile }
    }

    /// Runs all trials. If one fails, the next ones still run.
    pub fn change_all(&self) -> Vec<Tried> {
        vec![
            Tried::of("values of components", || self.values()),
            self.other_installers(),
            Tried::of("features", || self.features()),
            Tried::of("exposure", || self.exposure()),
            Tried::of("a component that is not Ready for a while", || self.flap()),
            Tried::of("another version of a component", || self.component_version()),
            Tried::of("another version of the installer", || self.installer_version()),
        ]
    }

    /// What somebody who may write Installers could try: another Installer, in another namespace or beside the existing
    /// one, and turning on operators, with the rights of the engine, in the existing one.
    pub fn other_installers(&self) -> Tried {
        Tried::of("another Installer", || self.refused_installers())
    }

    fn refused_installers(&self) -> Result<(String, usize)> {
        let home = self.umbrella.home();
        let live = home
            .get(INSTALLERS, "installer")?
            .context("there is no Installer")?;
        for (namespace, name) in [("default", "installer"), (home.namespace(), "another")] {
            let another = json!({
                "apiVersion": live["apiVersion"], "kind": live["kind"],
                "metadata": {"namespace": namespace, "name": name}, "spec": live["spec"],
            });
            let file = tempfile::NamedTempFile::new()?;
            std::fs::write(file.path(), another.to_string())?;
            let path = file.path().to_string_lossy();
            let mut create = self
                .umbrella
                .site()
                .kubectl(["create", "--dry-run=server", "--filename"]);
            create.arg(&*path);
            let said = match self.umbrella.site().run(create) {
                Ok(_) => bail!("{namespace}/{name} was taken"),
                Err(refused) => format!("{refused:#}"),
            };
            ensure!(
                said.contains("there can only be one Installer"),
                "{namespace}/{name}: {said}"
            );
        }
        self.patch(&json!({"bootstrap": {"certManager": {"enabled": true}}}))?;
        let refused = home.wait(INSTALLERS, "installer", |installer| {
            condition(installer, "Synced").is_some_and(|synced| synced["status"] == "False")
        })?;
        let said = condition(&refused, "Synced").and_then(|synced| synced["message"].as_str());
        ensure!(
            said.is_some_and(|said| said.contains("bootstrap.certManager.enabled")),
            "{said:?}"
        );
        self.patch(&json!({"bootstrap": {"certManager": {"enabled": false}}}))?;
        home.wait_for(INSTALLERS, "installer", "Synced", "True")?;
        Ok(("two others and one with an operator were refused".to_owned(), 0))
    }

    /// Patches the Installer.
    ///
    /// # Errors
    /// When it is refused.
    pub fn patch(&self, spec: &Value) -> Result<()> {
        let patch = json!({ "spec": spec }).to_string();
        let words = [
            "patch",
            INSTALLERS,
            "installer",
            "--type",
            "merge",
            "--patch",
            &patch,
        ];
        self.umbrella.home().kubectl(&words).map(drop)
    }

    /// UIDs of compositions by their names, the Installer among them.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub fn uids(&self) -> Result<BTreeMap<String, String>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let compositions = Stored(self.umbrella.cluster()).custom_resources(GROUP)?;
        Ok(compositions
            .iter()
            .map(|composition| &composition["metadata"])
            .map(|metadata| (text(&metadata["name"]), text(&metadata["uid"])))
            .collect())
    }

    /// The API server refuses values that the chart of a component does not accept.
    fn values(&self) -> Result<(String, usize)> {
        let (name, home) = (FLAPPING, self.umbrella.home());
        let live = home
            .get(INSTALLERS, "installer")?
            .context("there is no Installer")?;
        let replace = |values: &Value| -> Result<()> {
            let mut installer = live.clone();
            installer["spec"]["componentValues"] = values.clone();
            let file = tempfile::NamedTempFile::new()?;
            std::fs::write(file.path(), installer.to_string())?;
            // With this flag the API server reports fields that it would drop.
            let path = file.path().to_string_lossy();
            home.kubectl(&["replace", "--dry-run=server", "--filename", &path])
                .map(drop)
        };
        replace(&json!({name: {"replicas": 2, "service": {"port": 8090}}}))?;
        let refused = [
            json!({"nobody": {"replicas": 2}}),
            json!({name: {"service": {"unknown": true}}}),
            json!({name: {"replicas": "many"}}),
            json!({name: {"replicas": 9}}),
        ];
        for values in &refused {
            ensure!(replace(values).is_err(), "{values} was taken");
        }
        Ok((format!("{} that no chart takes were refused", refused.len()), 0))
    }

    /// A feature that others need cannot be turned off; components that are turned off are removed in reverse order,
    /// and come back in order.
    fn features(&self) -> Result<(String, usize)> {
        let home = self.umbrella.home();
        let before = self.uids()?;
        self.patch(&json!({"features": {"oasgenprovider": false}}))?;
        let refused = home.wait(INSTALLERS, "installer", |installer| {
            condition(installer, "Synced").is_some_and(|synced| synced["status"] == "False")
        })?;
        // First turn it back on, so that whatever follows begins with the original state.
        self.patch(&json!({"features": {"oasgenprovider": true}}))?;
        let said = condition(&refused, "Synced").and_then(|synced| synced["message"].as_str());
        let said = said.unwrap_or_default();
        ensure!(
            said.contains("hyperdx-provider") && said.contains("features.oasgenprovider"),
            "the refusal does not say what is wrong: {said}"
        );
        home.wait(INSTALLERS, "installer", is_ready)?;
        ensure!(self.uids()? == before, "a refused change changed something");

        let begun = Instant::now();
        self.patch(&json!({"features": {"podRestartAlert": false}}))?;
        self.wait_gone("hyperdx-provider")?;
        let one = begun.elapsed();
        let mut expected = before.clone();
        expected.remove("hyperdx-provider");
        ensure!(
            self.uids()? == expected,
            "more than hyperdx-provider went: {:?}",
            self.uids()?
        );

        let off = self.profile.only(&["observability", "observabilityAgents"]);
        let mark = self.umbrella.cluster().audit().mark()?;
        let begun = Instant::now();
        self.patch(&json!({"features": {"observability": false, "observabilityAgents": false}}))?;
        for component in off.components() {
            self.wait_gone(component.name)?;
            expected.remove(component.name);
        }
        let many = begun.elapsed();
        ensure!(
            self.uids()? == expected,
            "others than those of observability went: {:?}",
            self.uids()?
        );
        let mut deleted: Vec<String> = Vec::new();
        for record in self.umbrella.cluster().audit().since(mark)? {
            let record = record?;
            if record.group == GROUP
                && record.verb == "delete"
                && record.code == 200
                && !deleted.contains(&record.name)
            {
                deleted.push(record.name);
            }
        }
        let early = removed_too_early(&off, &deleted);
        ensure!(early.is_empty(), "{}", early.join("; "));
        home.wait(INSTALLERS, "installer", is_ready)?;

        let begun = Instant::now();
        let on = json!({"features": {"podRestartAlert": true, "observability": true, "observabilityAgents": true}});
        self.patch(&on)?;
        let rise = self
            .umbrella
            .watch_rise(self.profile, begun, &AtomicBool::new(false))?;
        let early = rise.violations(self.profile);
        ensure!(early.is_empty(), "{}", early.join("; "));
        let seen = format!(
            "an enabled component's dependency is not turned off, {said}; without podRestartAlert {} components after {:.1} s, \
             without observability {} after {:.1} s, all {} again after {:.1} s",
            before.len() - 2,
            one.as_secs_f64(),
            expected.len() - 1,
            many.as_secs_f64(),
            self.profile.components().len(),
            begun.elapsed().as_secs_f64()
        );
        Ok((seen, off.edges().len() + self.profile.edges().len()))
    }

    /// Waits until a component is gone, and then its definition.
    fn wait_gone(&self, name: &str) -> Result<()> {
        let home = self.umbrella.home();
        home.wait_gone(&self.resource(name)?, name)?;
        home.wait_gone("compositiondefinitions", name)
    }

    fn component(&self, name: &str) -> Result<&Component> {
        self.profile
            .get(name)
            .with_context(|| format!("there is no component {name}"))
    }

    /// The compositions of a component, as kubectl has them.
    fn resource(&self, name: &str) -> Result<String> {
        Ok(format!("{}.{GROUP}", self.component(name)?.plural()))
    }

    /// The consumer gets one address after the other, as each becomes known, and keeps what the user set.
    fn exposure(&self) -> Result<(String, usize)> {
        let home = self.umbrella.home();
        let consumer = self
            .profile
            .components()
            .iter()
            .find(|component| component.consumer);
        let consumer = consumer
            .context("no component is told the addresses of others")?
            .name;
        let exposed = self.profile.components().iter();
        let exposed: Vec<_> = exposed
            .filter_map(|component| Some((component.name, component.exposure?)))
            .collect();
        let told: Vec<_> = exposed
            .iter()
            .filter(|(_, exposure)| !exposure.config_keys.is_empty())
            .collect();
        let (_, first) = told.first().context("no address is told")?;
        // The user's value of a key applies until the address is known.
        let mut expected = BTreeMap::from([
            ("THEME", "dark".to_owned()),
            (first.config_keys[0], "http://own.example".to_owned()),
        ]);
        self.patch(&json!({
            "exposure": {"type": "LoadBalancer"},
            "componentValues": {consumer: {"config": expected}},
        }))?;
        for (name, _) in &exposed {
            home.wait("services", &format!("{name}-{name}"), |service| {
                service["spec"]["type"] == "LoadBalancer"
            })?;
        }
        self.wait_config(consumer, &expected)?;
        let mut slowest = Duration::ZERO;
        for (number, (name, exposure)) in told.iter().enumerate() {
            let address = format!("192.0.2.{}", number + 1);
            let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}).to_string();
            let begun = Instant::now();
            home.kubectl(&[
                "patch",
                "service",
                &format!("{name}-{name}"),
                "--subresource",
                "status",
                "--type",
                "merge",
                "--patch",
                &status,
            ])?;
            for key in exposure.config_keys {
                expected.insert(key, format!("http://{address}:{}", exposure.port));
            }
            self.wait_config(consumer, &expected)?;
            slowest = slowest.max(begun.elapsed());
        }
        let seen = format!(
            "{} Services are LoadBalancers; {consumer} was told {} addresses one by one, each after {:.1} s at most",
            exposed.len(),
            told.len(),
            slowest.as_secs_f64()
        );
        Ok((seen, 0))
    }

    /// Waits until the consumer's config is exactly this, and its release has it.
    fn wait_config(&self, consumer: &str, expected: &BTreeMap<&str, String>) -> Result<()> {
        let home = self.umbrella.home();
        let config = json!(expected);
        home.wait(&self.resource(consumer)?, consumer, |object| {
            object["spec"]["config"] == config
        })?;
        home.wait("configmaps", &format!("{consumer}-{consumer}"), |map| {
            expected.iter().all(|(key, value)| map["data"][key] == **value)
        })
        .map(drop)
    }

    /// A dependency is not Ready for two passes of the Installer: nothing is removed.
    fn flap(&self) -> Result<(String, usize)> {
        let home = self.umbrella.home();
        let before = self.uids()?;
        let node = home.kubectl(&["get", "nodes", "--output", "jsonpath={.items[0].metadata.name}"])?;
        let mark = self.umbrella.cluster().audit().mark()?;
        // Its next pod cannot be scheduled.
        home.kubectl(&["cordon", &node])?;
        let selector = format!("app.kubernetes.io/instance={FLAPPING}");
        home.kubectl(&[
            "delete",
            "pods",
            "--selector",
            &selector,
            "--grace-period=1",
            "--wait=false",
        ])?;
        let resource = self.resource(FLAPPING)?;
        home.wait_for(&resource, FLAPPING, "Ready", "False")?;
        let since = Instant::now();
        let agent = self
            .profile
            .components()
            .iter()
            .find(|component| component.vertex_ai);
        let agent = agent
            .context("no component shows that the Installer was rendered")?
            .name;
        for approval in [false, true] {
            self.patch(&json!({"hitlApproval": approval}))?;
            home.wait(&self.resource(agent)?, agent, |object| {
                object["spec"]["hitlApproval"] == approval
            })?;
        }
        let flapping = home.get(&resource, FLAPPING)?.unwrap_or_default();
        ensure!(
            !is_ready(&flapping),
            "{FLAPPING} was Ready before the Installer was rendered twice"
        );
        let away = since.elapsed();
        home.kubectl(&["uncordon", &node])?;
        home.wait_for(&resource, FLAPPING, "Ready", "True")?;
        ensure!(
            self.uids()? == before,
            "compositions were removed: {:?} became {:?}",
            before,
            self.uids()?
        );
        for record in self.umbrella.cluster().audit().since(mark)? {
            let record = record?;
            ensure!(
                record.verb != "delete" || record.group != GROUP,
                "{} deleted {}",
                record.user,
                record.uri
            );
        }
        let seen = format!(
            "{FLAPPING} was not Ready for {:.1} s and two renderings: {} dependents stayed, nothing was deleted",
            away.as_secs_f64(),
            self.profile.dependents(FLAPPING).len()
        );
        Ok((seen, 0))
    }

    /// The same composition gets another version of its chart, while its workload keeps running: not by an edit of the
    /// Installer, but by an upgrade of the release.
    fn component_version(&self) -> Result<(String, usize)> {
        let home = self.umbrella.home();
        let (name, version) = BUMPED;
        let next = self.profile.with_version(name, version);
        let bumped = next.get(name).context("the bumped component is not there")?;
        self.umbrella.catalog().push_component(bumped)?;
        let before = self.uids()?;
        let workloads = Workloads::watch(self.umbrella, &[name])?;
        let begun = Instant::now();
        // With another value, so that its pods are replaced.
        self.patch(&json!({
            "components": next.list(), "componentValues": {name: {"greeting": "Hello again"}},
        }))?;
        home.wait(INSTALLERS, "installer", |installer| {
            condition(installer, "Synced").is_some_and(|synced| {
                let message = synced["message"].as_str().unwrap_or_default();
                synced["status"] == "False" && message.contains("krateo.io/allowed-definitions")
            })
        })?;
        let upgrade = self.umbrella.install_by(Tool::Helm, true, VERSION, &next)?;
        self.umbrella.site().run(upgrade).context("helm upgrade failed")?;
        let resource = self.resource(name)?;
        home.wait(&resource, name, |object| {
            object["metadata"]["labels"]["krateo.io/composition-version"] == bumped.served_version()
                && is_ready(object)
        })?;
        let map = home.wait("configmaps", &format!("{name}-{name}"), |map| {
            map["data"]["version"] == version
        })?;
        ensure!(
            map["data"]["greeting"] == "Hello again",
            "its values did not come along: {}",
            map["data"]
        );
        let took = begun.elapsed();
        ensure!(
            self.uids()? == before,
            "a composition was replaced: {:?}",
            self.uids()?
        );
        let states = workloads.never_away()?;
        Ok((
            format!(
                "{name} {version} after {:.1} s, its UID unchanged, its workload available in all {states} states",
                took.as_secs_f64()
            ),
            0,
        ))
    }

    /// A release with another version of the installer moves the Installer, and all compositions stay what they are.
    fn installer_version(&self) -> Result<(String, usize)> {
        let home = self.umbrella.home();
        let next = self.profile.with_version(BUMPED.0, BUMPED.1);
        self.umbrella.catalog().push_installer(NEXT, &next)?;
        let before = self.uids()?;
        let running = self.profile.components().iter();
        let running: Vec<&str> = running
            .filter(|component| component.exposure.is_some_and(|exposure| exposure.has_workload))
            .map(|component| component.name)
            .collect();
        let workloads = Workloads::watch(self.umbrella, &running)?;
        let begun = Instant::now();
        let upgrade = self.umbrella.install_by(Tool::Helm, true, NEXT, &next)?;
        self.umbrella.site().run(upgrade).context("helm upgrade failed")?;
        let upgraded = begun.elapsed();
        let wanted = format!("v{}", NEXT.replace('.', "-"));
        home.wait(INSTALLERS, "installer", |installer| {
            installer["metadata"]["labels"]["krateo.io/composition-version"] == wanted && is_ready(installer)
        })?;
        self.umbrella
            .watch_rise(&next, Instant::now(), &AtomicBool::new(false))?;
        let took = begun.elapsed();
        ensure!(
            self.uids()? == before,
            "a composition was replaced: {:?} became {:?}",
            before,
            self.uids()?
        );
        let states = workloads.never_away()?;
        Ok((
            format!(
                "helm upgrade {:.1} s, the Installer {wanted} after {:.1} s, {} UIDs unchanged, {} workloads available in all \
                 {states} states",
                upgraded.as_secs_f64(),
                took.as_secs_f64(),
                before.len(),
                running.len()
            ),
            0,
        ))
    }
}

/// Deployments that must keep running.
struct Workloads(Vec<(String, Watch)>);

impl Workloads {
    fn watch(umbrella: &Umbrella, components: &[&str]) -> Result<Self> {
        let watches = components.iter().map(|name| {
            let deployment = format!("{name}-{name}");
            let selector = format!("metadata.name={deployment}");
            let namespace = umbrella.home().namespace();
            let get = [
                "get",
                "deployments",
                "--namespace",
                namespace,
                "--field-selector",
                &selector,
            ];
            let watch = Watch::start(umbrella.site().kubectl(get))?;
            Ok((deployment, watch))
        });
        watches.collect::<Result<_>>().map(Self)
    }

    /// How many states were seen, in all of which pods were available.
    fn never_away(&self) -> Result<usize> {
        let mut states = 0;
        for (name, watch) in &self.0 {
            loop {
                match watch.next(Duration::from_secs(1)) {
                    Said::State(Some(deployment)) => {
                        states += 1;
                        let available = deployment["status"]["availableReplicas"].as_u64();
                        ensure!(
                            available.unwrap_or_default() > 0,
                            "{name} had no pod: {}",
                            deployment["status"]
                        );
                    }
                    Said::State(None) => bail!("{name} was removed"),
                    Said::Nothing => break,
                    Said::End => bail!("the watch of {name} ended"),
                }
            }
        }
        ensure!(states >= self.0.len(), "a workload was not seen");
        Ok(states)
    }
}
