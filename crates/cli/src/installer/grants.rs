//! Which grants the components of an umbrella need besides what `allow` in their entries contains.

use ::charts::source::Limits;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use api::ChartGrant;
use api::definition::ChartSource;
use api::grant::DefinitionRef;
use chart_bound::Allowed;
use chart_bound::grant::{Applicant, Consent};
use chart_bound::scan::scan;
use helm::engine::Engine;
use serde::Serialize;

use super::args::Check;
use super::components::{Allow, Component, List};
use super::schema::charts::{self, Fetched, FetchedChart};
use crate::audit::grant::{self, Grant, Granted, Rendering};
use crate::template::on_large_stack;

/// Components that need a grant, and those of which that is unknown.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Grants {
    needed: Vec<Needed>,
    unknown: Vec<Unknown>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Needed {
    component: String,
    what: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Unknown {
    component: String,
    why: String,
}

impl Grants {
    /// Those of the components that are on, which these grants do not cover.
    pub(super) fn of(list: &List, fetched: Vec<Fetched>, granted: &[ChartGrant]) -> Self {
        let mut grants = Self::default();
        for (component, grant) in each(list, fetched, granted) {
            match grant {
                // The values are known.
                Ok(grant) if grant.is_empty() || grant.is_only_possible() => {}
                Ok(grant) => grants.needed.push(Needed {
                    component,
                    what: grant.summary(),
                }),
                Err(error) => grants.unknown.push(Unknown {
                    component,
                    why: format!("{error:#}"),
                }),
            }
        }
        grants
    }

    /// In one line.
    pub(super) fn line(&self) -> String {
        let Self { needed, unknown } = self;
        let names: Vec<&str> = needed.iter().map(|needed| needed.component.as_str()).collect();
        let mut line = match names[..] {
            [] => "no component needs one".to_owned(),
            [name] => format!("1 component needs one ({name}): kco installer check --grant prints it"),
            _ => format!(
                "{} components need one ({}): kco installer check --grant prints them",
                names.len(),
                names.join(", ")
            ),
        };
        if let [first, ..] = &unknown[..] {
            let _ = write!(
                line,
                "; unknown for {} whose chart cannot be examined, such as {}: {}",
                unknown.len(),
                first.component,
                first.why.replace(char::is_control, " ")
            );
        }
        line
    }
}

/// Prints the grants of the components that are on.
///
/// # Errors
/// If a chart cannot be fetched: the grants of the other components are printed before that.
pub(super) fn print(list: &List, args: &Check) -> Result<()> {
    let components = list.enabled().collect();
    let fetched = charts::fetch(list, components, &args.source.access, Limits::default())?;
    let (mut grants, mut faults) = (Vec::new(), Vec::new());
    for (component, grant) in each(list, fetched, &[]) {
        match grant {
            Ok(grant) if grant.is_empty() => {}
            Ok(grant) => grants.push(grant),
            Err(error) => faults.push(format!("component {component:?}: {error:#}")),
        }
    }
    // Without a word that none is needed, where that is unknown.
    if !grants.is_empty() || faults.is_empty() {
        grant::print(args.output.output, &grants)?;
    }
    if !faults.is_empty() {
        bail!(
            "components whose grants are unknown: {}\n  {}",
            faults.len(),
            faults.join("\n  ")
        );
    }
    Ok(())
}

/// Each component that is on and whose chart was to be fetched, and its grant.
fn each(
    list: &List,
    fetched: Vec<Fetched>,
    granted: &[ChartGrant],
) -> impl Iterator<Item = (String, Result<Grant>)> {
    fetched.into_iter().filter_map(move |Fetched { name, chart }| {
        let component = list.get(&name).filter(|component| list.is_enabled(component))?;
        let grant = chart.and_then(|chart| needed(list, component, chart, granted));
        Some((name, grant))
    })
}

fn needed(
    list: &List,
    component: &Component,
    fetched: FetchedChart,
    granted: &[ChartGrant],
) -> Result<Grant> {
    let FetchedChart { chart, digest } = fetched;
    let annotations = component
        .allow
        .as_ref()
        .map(Allow::annotations)
        .unwrap_or_default();
    let source = source(list, component);
    let definition = DefinitionRef {
        namespace: list.namespace.clone(),
        name: component.name.clone(),
    };
    let to = Applicant {
        namespace: &definition.namespace,
        name: &definition.name,
        source: &source,
        version: &component.version,
        digest: &digest,
    };
    let allowed = Allowed::of(&annotations)
        .context("its allow")?
        .and(Consent::of(granted, to));
    let of_grant = grant::chart_of(&source, &component.version, Some(&digest));
    let granted = Granted::new(definition, chart.name(), of_grant);
    let values = list.values(component);
    // The release is called like the component.
    let (scan, rendering) = on_large_stack(move || {
        let scan = scan(&chart);
        let rendering = Rendering::of(&Engine::new(chart), &values, &scan, Some(&component.name));
        Ok((scan, rendering))
    })?;
    Ok(Grant::needed(granted, &scan, &rendering, &allowed))
}

/// `spec.chart` of a component's definition, except who fetches it.
fn source(list: &List, component: &Component) -> ChartSource {
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    ChartSource {
        url: list.url(component),
        version: Some(component.version.clone()),
        repo: given(&component.chart_repo),
        digest: given(&component.digest),
        plain_http: Some(list.plain_http),
        insecure_skip_verify_tls: Some(list.insecure_skip_tls_verify),
        ..ChartSource::default()
    }
}

#[cfg(test)]
mod tests {
    use helm::chart::{Chart, ChartOptions, File};
    use helm::line::HelmLine;
    use serde_json::{Value, json};

    use super::*;

    const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: '{{ .Release.Name }}'}\n\
                        rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n";
    const STAR: &str = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: '{{ .Release.Name }}'}\n\
                        rules: [{apiGroups: [''], resources: [pods], verbs: ['*']}]\n";
    const VOLUME: &str = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\n";
    const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

    fn fetched(name: &str, template: &str) -> Fetched {
        let metadata = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let files = vec![
            File::new("Chart.yaml", metadata),
            File::new("templates/a.yaml", template),
        ];
        let chart = Chart::from_files(files, ChartOptions::from(HelmLine::Four)).unwrap();
        Fetched {
            name: name.to_owned(),
            chart: Ok(FetchedChart {
                chart,
                digest: format!("sha256:{}", "0".repeat(64)),
            }),
        }
    }

    fn list(components: &Value) -> List {
        let values = json!({
            "ociRepo": "oci://registry.example/charts", "features": {"extra": false}, "registryAuth": {"plainHTTP": true},
            "components": components,
        });
        let (list, faults) = List::read(values.as_object().unwrap());
        assert_eq!(faults, [""; 0]);
        list
    }

    fn component(name: &str, more: Value) -> Value {
        let mut component = json!({"name": name, "kind": "A", "version": "1.0.0", "tier": "platform"});
        let Value::Object(more) = more else {
            panic!("no fields")
        };
        component.as_object_mut().unwrap().extend(more);
        component
    }

    #[test]
    fn what_allow_covers_needs_no_grant() {
        let list = list(&json!([
            component("plain", json!({})),
            component("roles", json!({})),
            component("covered", json!({"allow": {"chartRBAC": true}})),
            component("star", json!({"allow": {"chartRBAC": true}})),
            component("volume", json!({"allow": {"kinds": ["persistentvolumes"]}})),
            component("off", json!({"feature": "extra"})),
            component("gone", json!({})),
        ]));
        let all = vec![
            fetched("plain", CONFIG),
            fetched("roles", ROLE),
            fetched("covered", ROLE),
            fetched("star", STAR),
            fetched("volume", VOLUME),
            fetched("off", VOLUME),
            Fetched {
                name: "gone".into(),
                chart: Err(anyhow::anyhow!("not\nfound")),
            },
        ];
        let line = Grants::of(&list, all, &[]).line();
        assert_eq!(
            line,
            "2 components need one (roles, star): kco installer check --grant prints them; unknown for 1 whose chart cannot \
             be examined, such as gone: not found"
        );
        let none = Grants::of(&list, vec![fetched("plain", CONFIG)], &[]);
        assert_eq!(none.line(), "no component needs one");
        assert_eq!(none, Grants::default());
    }

    #[test]
    fn a_grant_names_the_definition_and_covers_what_the_component_needs() {
        let list = list(&json!([component("volume", json!({"chartRepo": "disks"}))]));
        let mut grants = each(&list, vec![fetched("volume", VOLUME)], &[]);
        let object = grants.next().unwrap().1.unwrap().objects().unwrap().remove(0);
        assert_eq!(object["metadata"]["name"], "krateo-system.volume");
        assert_eq!(
            object["spec"]["chart"],
            json!({"url": "oci://registry.example/charts/volume", "repo": "disks", "versions": ["1.0.0"], "plainHTTP": true})
        );
        let grant: ChartGrant = serde_json::from_value(object).unwrap();
        let again = || vec![fetched("volume", VOLUME)];
        assert_eq!(
            Grants::of(&list, again(), std::slice::from_ref(&grant)),
            Grants::default()
        );
        let mut of_another = grant;
        of_another.spec.definition.name = "disk".into();
        assert_eq!(Grants::of(&list, again(), &[of_another]).needed.len(), 1);
    }

    #[test]
    fn names_are_those_of_the_components_release_with_its_values() {
        let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
                       metadata: {name: '{{ if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ end }}-{{ .Values.suffix }}'}\n\
                       roleRef: {kind: Role, name: a}\nsubjects: [{kind: ServiceAccount, name: a}]\n";
        let values = json!({"ociRepo": "oci://registry.example/charts", "components": [component("web", json!({}))],
            "componentValues": {"web": {"suffix": "own"}}});
        let (list, _) = List::read(values.as_object().unwrap());
        let mut grants = each(&list, vec![fetched("web", binding)], &[]);
        let object = grants.next().unwrap().1.unwrap().objects().unwrap().remove(0);
        assert_eq!(object["spec"]["bindings"][0]["name"], "<release>-own");
    }

    #[test]
    fn a_digest_of_the_entry_is_the_grants() {
        let digest = format!("sha256:{}", "1".repeat(64));
        let list = list(&json!([component("volume", json!({"digest": digest}))]));
        let mut grants = each(&list, vec![fetched("volume", VOLUME)], &[]);
        let object = grants.next().unwrap().1.unwrap().objects().unwrap().remove(0);
        assert_eq!(object["spec"]["chart"]["digest"], digest);
    }

    #[test]
    fn an_allow_that_cannot_be_read_is_told() {
        let list = list(&json!([component("a", json!({"allow": {"kinds": ["*"]}}))]));
        let grants = Grants::of(&list, vec![fetched("a", CONFIG)], &[]);
        assert!(grants.unknown[0].why.starts_with("its allow"), "{grants:?}");
    }
}
