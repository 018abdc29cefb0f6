//! The trial components, in one table. From it come the list in the installer's values, the charts that stand in for
//! the components, and what is expected of an installation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// One component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Name of the component and of its chart.
    pub name: &'static str,
    /// Kind of its composition.
    pub kind: &'static str,
    /// Version of its chart.
    pub version: String,
    /// `platform` or `observability`.
    pub tier: &'static str,
    /// The components that must be Ready before it is created.
    pub deps: &'static [&'static str],
    /// The feature that turns it on.
    pub feature: Option<&'static str>,
    /// How it is exposed, if it has a Service.
    pub exposure: Option<Exposure>,
    /// It gets the addresses of the others.
    pub consumer: bool,
    /// It gets `vertexAI` and `hitlApproval`.
    pub vertex_ai: bool,
    /// Its chart brings roles and bindings, which an admin allows.
    pub chart_rbac: bool,
}

/// How a component is exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exposure {
    /// Port of its Service.
    pub port: u16,
    /// A part of the name of its Service; empty if no other component needs its address.
    pub svc_match: Option<&'static str>,
    /// Keys of consumers' `config` that get its address.
    pub config_keys: &'static [&'static str],
    /// Whether a Deployment answers behind its Service.
    pub has_workload: bool,
}

const PLATFORM: &str = "platform";
const OBSERVABILITY: &str = "observability";
const AGENTS: &str = "observabilityAgents";

/// Features that are off unless they are turned on.
const OFF_BY_DEFAULT: [&str; 1] = ["podRestartAlert"];

impl Component {
    fn new(
        name: &'static str,
        kind: &'static str,
        version: &str,
        tier: &'static str,
        deps: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            kind,
            version: version.to_owned(),
            tier,
            deps,
            feature: None,
            exposure: None,
            consumer: false,
            vertex_ai: false,
            chart_rbac: false,
        }
    }

    /// One that nothing depends on, in version 1.0.0.
    pub fn plain(name: &'static str, kind: &'static str) -> Self {
        Self::new(name, kind, "1.0.0", PLATFORM, &[])
    }

    fn of(self, feature: &'static str) -> Self {
        Self {
            feature: Some(feature),
            ..self
        }
    }

    fn exposed(self, port: u16) -> Self {
        let exposure = Exposure {
            port,
            svc_match: None,
            config_keys: &[],
            has_workload: true,
        };
        Self {
            exposure: Some(exposure),
            ..self
        }
    }

    fn told_as(self, svc_match: &'static str, config_keys: &'static [&'static str]) -> Self {
        let exposure = self.exposure.map(|exposure| Exposure {
            svc_match: Some(svc_match),
            config_keys,
            ..exposure
        });
        Self { exposure, ..self }
    }

    fn without_workload(self) -> Self {
        let exposure = self.exposure.map(|exposure| Exposure {
            has_workload: false,
            ..exposure
        });
        Self { exposure, ..self }
    }

    /// The version under which its type is served: `v1-2-3` for `1.2.3`.
    pub fn served_version(&self) -> String {
        format!("v{}", self.version.replace(['.', '+'], "-"))
    }

    /// Plural name of its type, as the engine derives it from the kinds in this table.
    pub fn plural(&self) -> String {
        let kind = self.kind.to_lowercase();
        match kind.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None if kind.ends_with('s') => kind,
            None => format!("{kind}s"),
        }
    }

    /// Whether its chart brings types, which an admin allows.
    fn brings_types(&self) -> bool {
        ["-crd", "-crds"].iter().any(|end| self.name.ends_with(end))
    }

    /// Its entry in the installer's values.
    pub fn entry(&self) -> Value {
        let Self {
            name,
            kind,
            version,
            tier,
            deps,
            feature,
            exposure,
            consumer,
            vertex_ai,
            chart_rbac,
        } = self;
        let mut entry = json!({"name": name, "kind": kind, "version": version, "tier": tier});
        if !deps.is_empty() {
            entry["deps"] = json!(deps);
        }
        if let Some(feature) = feature {
            entry["feature"] = json!(feature);
        }
        if let Some(exposure) = exposure {
            entry["expose"] = json!(true);
            entry["exposePort"] = json!(exposure.port);
            if let Some(svc_match) = exposure.svc_match {
                entry["svcMatch"] = json!(svc_match);
                entry["configKeys"] = json!(exposure.config_keys);
            }
        }
        for (key, is_set) in [("consumer", consumer), ("vertexAI", vertex_ai)] {
            if *is_set {
                entry[key] = json!(true);
            }
        }
        if *chart_rbac {
            entry["allow"] = json!({"chartRBAC": true});
        }
        if self.brings_types() {
            entry["allow"] = json!({"kinds": ["apiextensions.k8s.io/customresourcedefinitions"]});
        }
        entry
    }
}

/// Components in the order of the installer's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile(Vec<Component>);

impl Profile {
    /// All 18 components of the reference.
    pub fn platform() -> Self {
        let new = Component::new;
        let monitoring = |name, kind, version, deps| new(name, kind, version, OBSERVABILITY, deps);
        Self(vec![
            new("authn-crd", "AuthnCrd", "0.22.2", PLATFORM, &[]),
            new("oasgen-provider-crd", "OasgenProviderCrd", "0.9.0", PLATFORM, &[]).of("oasgenprovider"),
            new("frontend-crd", "FrontendCrd", "1.0.25", PLATFORM, &[]),
            new("snowplow-crd", "SnowplowCrd", "0.20.6", PLATFORM, &[]),
            new("authn", "Authn", "0.22.2", PLATFORM, &["authn-crd"])
                .exposed(8082)
                .told_as("authn", &["AUTHN_API_BASE_URL"]),
            new("snowplow", "Snowplow", "0.30.259", PLATFORM, &["snowplow-crd"])
                .exposed(8081)
                .told_as("snowplow", &["SNOWPLOW_API_BASE_URL"]),
            Component {
                consumer: true,
                ..new(
                    "frontend",
                    "Frontend",
                    "1.0.12",
                    PLATFORM,
                    &["frontend-crd", "authn", "snowplow"],
                )
                .exposed(8080)
            },
            new("portal", "Portal", "1.2.2", PLATFORM, &["frontend"]).of("composableportalstarter"),
            Component {
                chart_rbac: true,
                ..new(
                    "oasgen-provider",
                    "OasgenProvider",
                    "0.9.0",
                    PLATFORM,
                    &["oasgen-provider-crd"],
                )
                .of("oasgenprovider")
            },
            new(
                "hyperdx-provider",
                "HyperdxProvider",
                "0.1.1",
                PLATFORM,
                &["oasgen-provider"],
            )
            .of("podRestartAlert"),
            monitoring("krateo-clickstack", "KrateoClickstack", "0.1.2", &[]).of(OBSERVABILITY),
            monitoring(
                "otel-collector-deployment",
                "OtelCollectorDeployment",
                "0.1.1",
                &["krateo-clickstack"],
            )
            .of(OBSERVABILITY),
            monitoring(
                "otel-collector-daemonset",
                "OtelCollectorDaemonset",
                "0.1.1",
                &["otel-collector-deployment"],
            )
            .of(OBSERVABILITY),
            monitoring(
                "krateo-sse-proxy",
                "KrateoSseProxy",
                "0.1.1",
                &["krateo-clickstack"],
            )
            .of(OBSERVABILITY)
            .exposed(8080)
            .told_as("sse-proxy", &["EVENTS_API_BASE_URL", "EVENTS_PUSH_API_BASE_URL"]),
            monitoring(
                "clickhouse-mcp-server",
                "ClickhouseMcpServer",
                "0.1.7",
                &["krateo-clickstack"],
            )
            .of(AGENTS),
            monitoring("kagent-crds", "KagentCrds", "0.9.9", &[]).of(AGENTS),
            monitoring("kagent", "Kagent", "0.9.9", &["kagent-crds"]).of(AGENTS),
            Component {
                vertex_ai: true,
                ..monitoring(
                    "krateo-autopilot",
                    "KrateoAutopilot",
                    "0.1.7",
                    &["clickhouse-mcp-server", "kagent"],
                )
                .of(AGENTS)
            },
        ])
    }

    /// Five components of the same shape: two that bring types, one that depends on each, and one that depends on both.
    /// None of them has pods.
    pub fn small() -> Self {
        let new = |name, kind, deps| Component::new(name, kind, "1.0.0", PLATFORM, deps);
        let exposed = |component: Component, port, svc_match, config_keys| {
            component
                .exposed(port)
                .told_as(svc_match, config_keys)
                .without_workload()
        };
        Self(vec![
            new("a-crd", "Acrd", &[]),
            new("b-crd", "Bcrd", &[]),
            exposed(new("a", "A", &["a-crd"]), 8080, "a-a", &["A_URL"]),
            exposed(new("b", "B", &["b-crd"]), 8081, "b-b", &["B_URL"]),
            Component {
                consumer: true,
                ..new("c", "C", &["a", "b"])
            },
        ])
    }

    /// The components, in the order of the list.
    pub fn components(&self) -> &[Component] {
        &self.0
    }

    /// One component.
    pub fn get(&self, name: &str) -> Option<&Component> {
        self.0.iter().find(|component| component.name == name)
    }

    /// Components whose features are on by default: 17 of the platform's 18.
    #[must_use]
    pub fn by_default(&self) -> Self {
        self.without(&OFF_BY_DEFAULT)
    }

    /// The components that are left if these features are off.
    #[must_use]
    pub fn without(&self, features: &[&str]) -> Self {
        let is_on = |component: &&Component| {
            component
                .feature
                .is_none_or(|feature| !features.contains(&feature))
        };
        Self(self.0.iter().filter(is_on).cloned().collect())
    }

    /// Those of these features alone.
    #[must_use]
    pub fn only(&self, features: &[&str]) -> Self {
        let is_of = |component: &&Component| {
            component
                .feature
                .is_some_and(|feature| features.contains(&feature))
        };
        Self(self.0.iter().filter(is_of).cloned().collect())
    }

    /// The same with another version of one component.
    #[must_use]
    pub fn with_version(&self, name: &str, version: &str) -> Self {
        let mut changed = self.clone();
        for component in &mut changed.0 {
            if component.name == name {
                version.clone_into(&mut component.version);
            }
        }
        changed
    }

    /// The list `components` of the installer's values.
    pub fn list(&self) -> Value {
        self.0.iter().map(Component::entry).collect()
    }

    /// The dependencies: pairs of dependency and dependent, in the order of the list.
    pub fn edges(&self) -> Vec<(&'static str, &'static str)> {
        let edges = self.0.iter().flat_map(|component| {
            let deps = component.deps.iter().filter(|dep| self.get(dep).is_some());
            deps.map(|dep| (*dep, component.name))
        });
        edges.collect()
    }

    /// The components by wave, sorted by name within each.
    pub fn waves(&self) -> Vec<BTreeSet<&'static str>> {
        let mut wave_of = BTreeMap::new();
        let mut waves: Vec<BTreeSet<_>> = Vec::new();
        for component in &self.0 {
            let after = component.deps.iter().filter_map(|dep| wave_of.get(dep));
            let wave = after.max().map_or(0, |last: &usize| last + 1);
            wave_of.insert(component.name, wave);
            if waves.len() == wave {
                waves.push(BTreeSet::new());
            }
            waves[wave].insert(component.name);
        }
        waves
    }

    /// All that depends on a component, directly or not.
    pub fn dependents(&self, name: &str) -> BTreeSet<&'static str> {
        let mut found = BTreeSet::new();
        for component in &self.0 {
            let depends = component
                .deps
                .iter()
                .any(|dep| *dep == name || found.contains(dep));
            if depends {
                found.insert(component.name);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_has_the_edges_and_waves_of_the_reference() {
        let platform = Profile::platform();
        assert_eq!(platform.components().len(), 18);
        assert_eq!(platform.by_default().components().len(), 17);
        assert_eq!(platform.edges().len(), 15);
        let waves: Vec<Vec<_>> = platform
            .waves()
            .into_iter()
            .map(|wave| wave.into_iter().collect())
            .collect();
        assert_eq!(
            waves,
            [
                vec![
                    "authn-crd",
                    "frontend-crd",
                    "kagent-crds",
                    "krateo-clickstack",
                    "oasgen-provider-crd",
                    "snowplow-crd"
                ],
                vec![
                    "authn",
                    "clickhouse-mcp-server",
                    "kagent",
                    "krateo-sse-proxy",
                    "oasgen-provider",
                    "otel-collector-deployment",
                    "snowplow"
                ],
                vec![
                    "frontend",
                    "hyperdx-provider",
                    "krateo-autopilot",
                    "otel-collector-daemonset"
                ],
                vec!["portal"],
            ]
        );
    }

    #[test]
    fn the_small_profile_has_the_same_shape() {
        let small = Profile::small();
        assert_eq!(
            small.edges(),
            [("a-crd", "a"), ("b-crd", "b"), ("a", "c"), ("b", "c")]
        );
        assert_eq!(small.waves().len(), 3);
        assert_eq!(small.dependents("a-crd"), BTreeSet::from(["a", "c"]));
    }

    #[test]
    fn each_component_is_listed_after_what_it_depends_on() {
        for profile in [Profile::platform(), Profile::small()] {
            let mut before = BTreeSet::new();
            for component in profile.components() {
                assert!(
                    component.deps.iter().all(|dep| before.contains(dep)),
                    "{component:?}"
                );
                assert!(before.insert(component.name));
            }
        }
    }
}
