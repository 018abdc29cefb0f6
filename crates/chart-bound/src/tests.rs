//! What a chart's bound contains, and what a release needs beyond it.

use std::collections::{BTreeMap, BTreeSet};

use api::inspection::{Resource, Verb};
use serde_json::json;

use crate::bound::RBAC;
use crate::scan::{Kind, Reads, Scan, Unresolved};
use crate::{
    Allowed, BadAnnotation, Bound, BuiltIn, GroupResource, Outside, Resolved, allowed_definitions, guess,
};

fn kind(api_version: &str, kind: &str) -> Kind {
    Kind {
        api_version: api_version.into(),
        kind: kind.into(),
    }
}

fn scanned() -> Scan {
    Scan {
        kinds: BTreeSet::from([
            kind("apps/v1", "Deployment"),
            kind("v1", "Service"),
            kind("networking.k8s.io/v1", "IngressClass"),
            kind("rbac.authorization.k8s.io/v1", "Role"),
            kind("g.io/v1", "Policy"),
        ]),
        lookups: BTreeMap::from([
            (
                kind("v1", "Secret"),
                Reads {
                    one: true,
                    all: false,
                },
            ),
            (
                kind("v1", "Node"),
                Reads {
                    one: false,
                    all: true,
                },
            ),
        ]),
        namespaces: BTreeSet::from(["kube-system".into(), "monitoring".into()]),
        unresolved: BTreeSet::<Unresolved>::new(),
        ..Scan::default()
    }
}

fn resolved(annotations: &[(&str, &str)]) -> Resolved {
    let annotations = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    Resolved::new(
        &scanned(),
        &Allowed::of(&annotations).unwrap(),
        &BuiltIn,
        "krateo-system",
    )
}

fn keys(pairs: &BTreeSet<GroupResource>) -> Vec<String> {
    pairs.iter().map(GroupResource::to_string).collect()
}

#[test]
fn the_scan_becomes_kinds_by_scope_without_the_charts_own_rbac() {
    let Resolved {
        bound,
        guessed,
        closed,
        void: _,
        needs: _,
    } = resolved(&[]);
    assert!(closed.is_empty(), "{closed:?}");
    assert_eq!(
        keys(&bound.namespaced),
        ["services", "apps/deployments", "g.io/policies"]
    );
    assert_eq!(
        keys(&bound.cluster),
        ["networking.k8s.io/ingressclasses"],
        "nodes are looked up and never written"
    );
    let data = bound.data();
    assert_eq!(data["lookups"], "get /secrets");
    assert_eq!(data["clusterLookups"], "list /nodes");
    let inspected = bound.inspected();
    assert_eq!(inspected, [(GroupResource::new("", "nodes"), vec![Verb::List])]);
    assert_eq!(guessed.len(), 1);
    assert_eq!(Vec::from_iter(bound.namespaces), ["monitoring"]);
}

#[test]
fn the_admins_word_adds_to_it_and_never_a_wildcard() {
    let bound = resolved(&[
        ("krateo.io/allowed-kinds", "batch/jobs, nodes"),
        ("krateo.io/allowed-namespaces", "kube-system"),
        ("krateo.io/allow-chart-rbac", "true"),
        ("krateo.io/allowed-lookups", "pods@team-b, apps/daemonsets"),
    ])
    .bound;
    assert_eq!(bound.data()["allowedLookups"], "apps/daemonsets\n/pods@team-b");
    let inspected: Vec<_> = bound
        .inspected()
        .iter()
        .map(|(kind, _)| kind.to_string())
        .collect();
    assert_eq!(inspected, ["nodes", "apps/daemonsets"]);
    assert!(keys(&bound.namespaced).contains(&"batch/jobs".to_owned()));
    assert!(keys(&bound.namespaced).contains(&"rbac.authorization.k8s.io/roles".to_owned()));
    assert!(bound.namespaces.contains("kube-system") && bound.chart_rbac);
    let wildcard = BTreeMap::from([("krateo.io/allowed-kinds".to_owned(), "apps/*".to_owned())]);
    assert!(
        matches!(Allowed::of(&wildcard), Err(BadAnnotation::Kinds(why)) if why.to_string().contains("apps/*"))
    );
    let secrets = BTreeMap::from([("krateo.io/allowed-lookups".to_owned(), "@a, secrets".to_owned())]);
    let refused = Allowed::of(&secrets).unwrap_err();
    assert!(
        refused.to_string().contains("krateo.io/allowed-lookups"),
        "{refused}"
    );
}

#[test]
fn what_another_chart_adds_brings_roles_only_where_the_chart_may_bring_them() {
    let other = resolved(&[("krateo.io/allow-chart-rbac", "true")]).bound;
    let roles = "rbac.authorization.k8s.io/roles".to_owned();
    assert!(keys(&other.namespaced).contains(&roles));
    let sum = |chart_rbac: bool| {
        let mut bound = Bound {
            chart_rbac,
            ..Bound::default()
        };
        bound.add(&other);
        assert!(bound.covers(&resolved(&[]).bound));
        assert_eq!(
            (bound.chart_rbac, bound.chart_rules.len()),
            (chart_rbac, 0),
            "its own"
        );
        keys(&bound.namespaced)
    };
    assert!(!sum(false).contains(&roles));
    assert!(sum(true).contains(&roles));
}

/// A list of one definition, with these annotations.
fn listed(kind: &str, annotations: &serde_json::Value) -> String {
    json!([{
        "name": "authn", "namespace": "krateo-system", "url": "oci://r.example/authn", "version": "0.22.2",
        "kind": kind, "annotations": annotations,
    }])
    .to_string()
}

#[test]
fn a_listed_definition_opens_the_kind_that_it_becomes_by_our_own_plural() {
    let text = listed("OtelCollectorDaemonset", &json!({}));
    let bound = resolved(&[("krateo.io/allowed-definitions", &text)]).bound;
    let kind: GroupResource = "composition.krateo.io/otelcollectordaemonsets".parse().unwrap();
    assert!(bound.namespaced.contains(&kind), "{:?}", keys(&bound.namespaced));
    assert!(bound.inspected().contains(&(kind, vec![Verb::Get])));
    assert_eq!(bound.definitions.len(), 1);
    assert!(!bound.only_definitions);
    // Where flect and Kubernetes differ, the type has flect's plural.
    let of = |group: &str, kind: &str| guess(&BuiltIn, group, kind).0.to_string();
    assert_eq!(
        of("composition.krateo.io", "KagentCrds"),
        "composition.krateo.io/kagentcrds"
    );
    assert_eq!(of("g.io", "KagentCrds"), "g.io/kagentcrdses");
    let only = resolved(&[
        ("krateo.io/allowed-definitions", &text),
        ("krateo.io/only-allowed-definitions", "true"),
    ]);
    assert!(only.bound.only_definitions);
    let wrong = BTreeMap::from([("krateo.io/allowed-definitions".to_owned(), "authn".to_owned())]);
    let refused = Allowed::of(&wrong).unwrap_err();
    assert!(
        refused.to_string().contains("krateo.io/allowed-definitions"),
        "{refused}"
    );
}

#[test]
fn a_closed_namespace_is_opened_by_nothing() {
    let annotations = [
        ("krateo.io/allowed-namespaces", "krateo-system, monitoring, vault"),
        (
            "krateo.io/allowed-lookups",
            "pods@vault, @vault, secrets@vault/a, configmaps, pods@team-b",
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let allowed = Allowed {
        closed: BTreeSet::from(["krateo-system".into(), "vault".into()]),
        ..Allowed::of(&BTreeMap::from(annotations)).unwrap()
    };
    let Resolved { bound, closed, .. } = Resolved::new(&scanned(), &allowed, &BuiltIn, "krateo-platform");
    assert_eq!(Vec::from_iter(&bound.namespaces), ["monitoring"]);
    let allowances: Vec<_> = bound.lookups.allowed.iter().map(ToString::to_string).collect();
    assert_eq!(allowances, ["configmaps", "pods@team-b"]);
    assert_eq!(closed.len(), 5, "an admin is told of each: {closed:?}");

    let services = |verb: Verb, namespace: &str| {
        let needed = Resource::new("", "v1", "services", namespace, "web", &[verb]);
        bound
            .outside(namespace, &[needed])
            .map(|outside| outside.to_string())
    };
    // Not even for compositions in it.
    for verb in [Verb::Patch, Verb::Get] {
        assert_eq!(services(verb, "team"), None);
        let told = services(verb, "vault").unwrap();
        assert!(
            told.contains("the platform closes") && told.contains("no annotation"),
            "{told}"
        );
    }
    let maps = Resource::looked_up("", "v1", "configmaps", "vault", "a");
    assert!(
        bound.outside("team", &[maps]).is_some(),
        "nor for a kind that is open everywhere"
    );
    let mut other = Bound::default();
    other.namespaces.insert("vault".into());
    let mut sum = bound.clone();
    sum.add(&other);
    assert_eq!(sum.namespaces, bound.namespaces, "nor for the chart before");
}

#[test]
fn a_bound_survives_its_config_map() {
    let mut bound = resolved(&[
        ("krateo.io/allowed-kinds", "secrets"),
        ("krateo.io/allow-chart-rbac", "true"),
        (
            "krateo.io/allowed-lookups",
            "pods@team-b,apps/daemonsets,@team-c,secrets@vault/shared",
        ),
    ])
    .bound;
    bound.definitions = allowed_definitions::parse(&listed(
        "Authn",
        &json!({"krateo.io/allowed-kinds": "apps/deployments, configmaps"}),
    ))
    .unwrap();
    bound.only_definitions = true;
    bound.closed.insert("vault-b".into());
    bound.chart_rules.insert("get /pods".into());
    bound.chart_cluster_rules.insert("get /nodes".into());
    bound.namespaces.extend(["team-a".into(), "team-b".into()]);
    assert_eq!(Bound::of_data(&bound.data()), bound);
    assert_eq!(bound.lookups.allowed.len(), 4);
    let annotation = serde_json::json!(bound.data()).to_string();
    assert_eq!(Bound::of_annotation(&annotation), bound);
    assert_eq!(Bound::of_annotation("?"), Bound::default());
}

#[test]
fn the_first_composition_of_a_namespace_waits_for_core_provider_and_not_for_an_admin() {
    let needed =
        ["kube-system", "shop"].map(|namespace| Resource::looked_up("", "v1", "services", namespace, ""));
    let at = |home: &str| Outside::at_home(home, &needed, "krateo-system");
    let told = |home: &str| at(home).unwrap().to_string();
    assert!(
        told("shop").contains("waiting for core-provider"),
        "{}",
        told("shop")
    );
    assert!(told("kube-system").contains("krateo.io/allowed-namespaces: kube-system"));
    assert_eq!(at("other"), None);
}

#[test]
fn what_lies_outside_is_named_with_the_annotation_that_allows_it() {
    let bound = resolved(&[]).bound;
    let asks = |verb: Verb, group: &str, resource: &str, namespace: &str| {
        let needed = Resource::new(group, "v1", resource, namespace, "web", &[verb]);
        bound
            .outside("team", &[needed])
            .map(|outside| outside.to_string())
    };
    let needs = |group: &str, resource: &str, namespace: &str| asks(Verb::Patch, group, resource, namespace);
    assert_eq!(needs("apps", "deployments", "team"), None);
    assert_eq!(needs("networking.k8s.io", "ingressclasses", ""), None);
    let said = |outside: Option<String>, expected: &str| {
        assert!(outside.as_ref().unwrap().ends_with(expected), "{outside:?}");
    };
    said(
        needs("batch", "jobs", "team"),
        "krateo.io/allowed-kinds: batch/jobs",
    );
    said(
        needs("apps", "deployments", "other"),
        "krateo.io/allowed-namespaces: other",
    );
    said(
        needs(RBAC, "roles", "team"),
        "krateo.io/allow-chart-rbac: \"true\"",
    );
    // All namespaces at once is more than any list of them.
    said(needs("apps", "deployments", ""), "apps/deployments");
    // Another tenant's namespace is not open to this composition, even if the type has a composition there; the
    // namespace of the bound is.
    assert_eq!(needs("apps", "deployments", "monitoring"), None);
    // A kind that is looked up may not be written for that reason alone.
    said(needs("", "nodes", ""), "krateo.io/allowed-kinds: nodes");
    let all_nodes = Resource::looked_up("", "v1", "nodes", "", "");
    assert_eq!(bound.outside("team", &[all_nodes]), None);
    assert_eq!(asks(Verb::Get, "", "secrets", "team"), None);
    said(
        asks(Verb::Get, "", "services", "other"),
        "krateo.io/allowed-lookups: services@other",
    );
}

#[test]
fn what_values_ask_for_is_within_the_bound_only_at_home_and_where_an_admin_opened_it() {
    let kinds = |kinds: &[&str]| kinds.iter().map(|kind| kind.parse().unwrap()).collect();
    let bound = Bound {
        namespaced: kinds(&["configmaps"]),
        cluster: kinds(&[
            "networking.k8s.io/ingressclasses",
            "storage.k8s.io/storageclasses",
        ]),
        namespaces: ["named", "opened"].map(str::to_owned).into(),
        opened: ["opened".to_owned()].into(),
        from_values: kinds(&["storage.k8s.io/storageclasses"]),
        ..Bound::default()
    };
    for (group, resource, namespace, is_chosen_within) in [
        ("", "configmaps", "team", true),
        ("", "configmaps", "opened", true),
        ("", "configmaps", "named", false),
        ("networking.k8s.io", "ingressclasses", "", false),
        ("storage.k8s.io", "storageclasses", "", true),
    ] {
        let mut needed = Resource::new(group, "v1", resource, namespace, "a", &[Verb::Patch]);
        let outside = |needed: &Resource| bound.outside("team", std::slice::from_ref(needed));
        assert_eq!(
            outside(&needed),
            None,
            "{resource} in {namespace}: the chart's own"
        );
        needed.from_values = true;
        let is_refused = matches!(outside(&needed), Some(Outside::FromValues { .. }));
        assert_eq!(is_refused, !is_chosen_within, "{resource} in {namespace}");
    }
    assert_eq!(Bound::of_data(&bound.data()), bound);
}
