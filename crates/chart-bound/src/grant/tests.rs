//! Which grants count, and what is covered by one of them.

use std::collections::BTreeMap;

use api::definition::SecretItemRef;
use api::grant::{ChartGrantSpec, DefinitionRef, GrantedNamespace, GrantedRole, Origin};
use api::inspection::{Resource, Verb};

use super::*;
use crate::scan::{Kind, Scan};
use crate::{Allowed, Bound, BuiltIn, Outside, Resolved};

const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).into()
}

fn set<const N: usize>(items: [&str; N]) -> BTreeSet<String> {
    items.map(str::to_owned).into()
}

fn grant(change: impl FnOnce(&mut ChartGrantSpec)) -> ChartGrant {
    let mut spec = ChartGrantSpec {
        definition: DefinitionRef {
            namespace: "defs".into(),
            name: "web".into(),
        },
        chart: GrantedChart {
            url: "oci://r.example/web".into(),
            versions: texts(["1.2.3"]),
            ..GrantedChart::default()
        },
        kinds: vec![GrantedKind {
            group: "scheduling.k8s.io".into(),
            kind: "PriorityClass".into(),
            from: Origin::Chart,
        }],
        ..ChartGrantSpec::default()
    };
    change(&mut spec);
    ChartGrant::new("web", spec)
}

fn source() -> ChartSource {
    ChartSource {
        url: "oci://r.example/web".into(),
        ..ChartSource::default()
    }
}

/// True when the grant counts for version 1.2.3 of the chart.
fn counts(grant: &ChartGrant, source: &ChartSource) -> bool {
    counts_for(grant, source, "1.2.3")
}

fn counts_for(grant: &ChartGrant, source: &ChartSource, version: &str) -> bool {
    let to = Applicant {
        namespace: "defs",
        name: "web",
        source,
        version,
        digest: DIGEST,
    };
    !Consent::of([grant], to).kinds.is_empty()
}

fn consent(change: impl FnOnce(&mut ChartGrantSpec)) -> Consent {
    let source = source();
    let to = Applicant {
        namespace: "defs",
        name: "web",
        source: &source,
        version: "1.2.3",
        digest: DIGEST,
    };
    Consent::of([&grant(change)], to)
}

#[test]
fn a_grant_counts_for_its_definition_and_chart_alone() {
    assert!(counts(&grant(|_| ()), &source()));
    for change in [
        |spec: &mut ChartGrantSpec| spec.definition.name = "other".into(),
        |spec: &mut ChartGrantSpec| spec.definition.namespace = "other".into(),
        |spec: &mut ChartGrantSpec| spec.chart.url = "oci://r.example/web/".into(),
        |spec: &mut ChartGrantSpec| spec.chart.repo = Some("web".into()),
        |spec: &mut ChartGrantSpec| spec.chart.versions = texts(["1.2.4"]),
        |spec: &mut ChartGrantSpec| spec.chart.versions = Vec::new(),
        |spec: &mut ChartGrantSpec| spec.chart.digest = Some(DIGEST.replace('0', "1")),
    ] {
        assert!(!counts(&grant(change), &source()), "{:?}", grant(change).spec);
    }
}

#[test]
fn versions_are_exact_or_ranges() {
    let of = |versions: &[&str], version: &str| {
        let versions = versions.iter().map(|text| (*text).to_owned()).collect();
        counts_for(&grant(|spec| spec.chart.versions = versions), &source(), version)
    };
    assert!(of(&["1.0.0", "1.2.3"], "1.2.3"));
    assert!(of(&["^1.2"], "1.9.0"));
    assert!(!of(&["^1.2"], "2.0.0"));
    assert!(!of(&["^1.2"], "1.3.0-rc.1"), "a range without pre-releases");
    assert!(
        !of(&["1.2.3"], "1.2.3+other"),
        "another build of an exact version"
    );
    assert!(!of(&["latest"], "1.2.3"));
    // A chart's author may call its version so.
    for short in ["1", "1.2", "v1"] {
        assert!(of(&[short], short));
        assert!(!of(&[short], "1.2.9"), "{short}");
    }
    assert!(of(&["1.x"], "1.2.9"));
}

#[test]
fn a_digest_is_of_the_archive_or_the_one_that_the_definition_asks_for() {
    let by_digest = |digest: &str| {
        let digest = Some(digest.to_owned());
        grant(|spec| {
            spec.chart.versions = Vec::new();
            spec.chart.digest = digest;
        })
    };
    let other = DIGEST.replace('0', "1");
    assert!(counts(&by_digest(DIGEST), &source()));
    assert!(!counts(&by_digest(&other), &source()));
    let pinned = ChartSource {
        digest: Some(other.clone()),
        ..source()
    };
    assert!(counts(&by_digest(&other), &pinned), "that of the manifest");
    let both = grant(|spec| {
        spec.chart.versions = texts(["9.9.9"]);
        spec.chart.digest = Some(DIGEST.into());
    });
    assert!(!counts(&both, &source()), "both have to match");
}

#[test]
fn without_a_digest_the_definition_must_not_weaken_how_the_chart_is_fetched() {
    let plain = ChartSource {
        plain_http: Some(true),
        ..source()
    };
    let trusting = ChartSource {
        insecure_skip_verify_tls: Some(true),
        ..source()
    };
    let authority = ChartSource {
        ca_bundle_ref: Some(SecretItemRef {
            name: "ca".into(),
            namespace: None,
            key: None,
        }),
        ..source()
    };
    for weakened in [&plain, &trusting, &authority] {
        assert!(!counts(&grant(|_| ()), weakened));
        let pinned = grant(|spec| spec.chart.digest = Some(DIGEST.into()));
        assert!(counts(&pinned, weakened));
    }
    assert!(counts(&grant(|spec| spec.chart.plain_http = Some(true)), &plain));
    assert!(!counts(
        &grant(|spec| spec.chart.plain_http = Some(true)),
        &trusting
    ));
}

fn rule(verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]) -> Rule {
    let set = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Rule {
        verbs: set(verbs),
        api_groups: set(groups),
        resources: set(resources),
        resource_names: set(names),
        non_resource_urls: BTreeSet::new(),
    }
}

#[test]
fn a_rule_is_covered_by_one_entry_or_by_none() {
    let covers =
        |granted: &[Rule], wanted: &Rule| granted.iter().any(|one| wanted.is_within(one, "shop", "team"));
    let read = rule(&["get", "list"], &[""], &["pods"], &[]);
    let write = rule(&["patch"], &[""], &["pods"], &[]);
    assert!(covers(
        std::slice::from_ref(&read),
        &rule(&["get"], &[""], &["pods"], &["a"])
    ));
    assert!(
        !covers(&[read, write], &rule(&["get", "patch"], &[""], &["pods"], &[])),
        "entries are not combined"
    );
    let one = rule(&["get"], &[""], &["secrets"], &["<release>-ca", "b"]);
    assert!(covers(
        std::slice::from_ref(&one),
        &rule(&["get"], &[""], &["secrets"], &["shop-ca"])
    ));
    for names in [&["other-ca"][..], &["shop-ca", "c"], &[], &["<release>-ca"]] {
        assert!(!covers(
            std::slice::from_ref(&one),
            &rule(&["get"], &[""], &["secrets"], names)
        ));
    }
    let all = rule(&["*"], &["*"], &["*"], &[]);
    assert!(covers(std::slice::from_ref(&all), &all));
    assert!(
        !covers(&[all], &rule(&["get"], &[""], &["pods"], &[])),
        "a * is a text as any other"
    );
    let urls = Rule {
        non_resource_urls: set(["/metrics"]),
        ..rule(&["get"], &[], &[], &[])
    };
    assert!(covers(std::slice::from_ref(&urls), &urls));
    let other = Rule {
        non_resource_urls: set(["/metrics", "/"]),
        ..rule(&["get"], &[], &[], &[])
    };
    assert!(!covers(&[urls], &other));
}

fn binding(subject: &str) -> GrantedBinding {
    GrantedBinding {
        kind: BindingKind::RoleBinding,
        name: "<release>-view".into(),
        namespace: None,
        role_ref: GrantedRole {
            kind: RoleKind::ClusterRole,
            name: "view".into(),
        },
        subjects: vec![
            GrantedSubject {
                kind: SubjectKind::ServiceAccount,
                name: "web".into(),
                namespace: None,
            },
            GrantedSubject {
                kind: SubjectKind::Group,
                name: subject.into(),
                namespace: None,
            },
        ],
    }
}

#[test]
fn a_binding_for_everybody_never_counts() {
    for subject in [
        "system:authenticated",
        "system:unauthenticated",
        "system:serviceaccounts",
        "system:masters",
    ] {
        let consent = consent(|spec| spec.bindings = vec![binding(subject)]);
        assert!(consent.rbac.is_empty());
        let void = consent.void.first().unwrap();
        assert!(
            void.contains(subject) && void.contains("ChartGrant web"),
            "{void}"
        );
    }
    let consent = consent(|spec| spec.bindings = vec![binding("ops")]);
    let granted = consent.rbac.bindings.first().unwrap();
    assert_eq!(
        granted.binding,
        [
            "RoleBinding",
            "<namespace>",
            "<release>-view",
            "ClusterRole",
            "view"
        ]
    );
    assert_eq!(
        granted.subjects,
        set(["Group//ops", "ServiceAccount/<namespace>/web"])
    );
    assert_eq!(granted.namespace(), None);
}

#[test]
fn rules_that_do_not_fit_a_policy_do_not_count_in_part() {
    let names: Vec<String> = (0..64)
        .map(|number| format!("{number}-{}", "x".repeat(200)))
        .collect();
    let rule = |verb: &str| GrantedRule {
        verbs: texts([verb]),
        resource_names: names.clone(),
        ..GrantedRule::default()
    };
    let consent = consent(|spec| spec.rules = ["get", "list", "watch"].map(rule).into());
    assert!(
        consent.rbac.is_empty() && consent.void.len() == 1,
        "{:?}",
        consent.void
    );
}

/// The bound of a chart that has these kinds.
fn bound(kinds: &[(&str, &str)], annotations: &[(&str, &str)], consent: Consent) -> Bound {
    let kinds = kinds.iter().map(|(api_version, kind)| Kind {
        api_version: (*api_version).into(),
        kind: (*kind).into(),
    });
    let scan = Scan {
        kinds: kinds.collect(),
        ..Scan::default()
    };
    let annotations: BTreeMap<String, String> = annotations
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let allowed = Allowed::of(&annotations).unwrap().and(consent);
    Resolved::new(&scan, &allowed, &BuiltIn, "krateo-system").bound
}

const WEBHOOKS: (&str, &str) = ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration");

fn webhook() -> Resource {
    let (group, resource) = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
    Resource::new(group, "v1", resource, "", "a", &[Verb::Patch])
}

fn kinds(from: Origin) -> Consent {
    consent(|spec| {
        spec.kinds = vec![GrantedKind {
            group: "admissionregistration.k8s.io".into(),
            kind: "MutatingWebhookConfiguration".into(),
            from,
        }];
    })
}

#[test]
fn a_ruling_kind_needs_a_grant_or_the_annotation() {
    let outside = |bound: &Bound| bound.outside("team", &[webhook()]);
    let without = bound(&[WEBHOOKS], &[], Consent::default());
    let refused = outside(&without);
    assert!(matches!(refused, Some(Outside::Ruling { .. })), "{refused:?}");
    let told = refused.unwrap().to_string();
    assert!(
        told.contains("ChartGrant")
            && told.contains("kco audit-rbac CHART --grant")
            && told.contains(
                "krateo.io/allowed-kinds: admissionregistration.k8s.io/mutatingwebhookconfigurations"
            ),
        "{told}"
    );
    let granted = bound(&[WEBHOOKS], &[], kinds(Origin::Chart));
    assert_eq!(outside(&granted), None);
    assert!(granted.from_values.is_empty(), "the chart's own text alone");
    let word = (
        "krateo.io/allowed-kinds",
        "admissionregistration.k8s.io/mutatingwebhookconfigurations",
    );
    let annotated = bound(&[WEBHOOKS], &[word], Consent::default());
    // The annotation says the same as a grant for values.
    assert_eq!(annotated, bound(&[WEBHOOKS], &[], kinds(Origin::Values)));
    assert_eq!(annotated.from_values.len(), 1);
}

#[test]
fn every_kind_of_admission_is_ruling_and_none_that_serves_one_namespace() {
    let is = |group: &str, resource: &str| crate::is_ruling(&GroupResource::new(group, resource));
    assert!(is("admissionregistration.k8s.io", "whatevercomes"));
    for (group, resource) in [
        ("", "nodes"),
        ("", "namespaces"),
        ("", "persistentvolumes"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("storage.k8s.io", "csidrivers"),
    ] {
        assert!(is(group, resource), "{group}/{resource}");
    }
    for (group, resource) in [
        ("", "pods"),
        ("", "persistentvolumeclaims"),
        ("rbac.authorization.k8s.io", "roles"),
        ("networking.k8s.io", "ingressclasses"),
        ("example.com", "nodes"),
    ] {
        assert!(!is(group, resource), "{group}/{resource}");
    }
}

#[test]
fn roles_of_the_cluster_come_with_the_annotation_or_with_their_rules() {
    let role = ("rbac.authorization.k8s.io/v1", "ClusterRole");
    let needed = Resource::new(
        "rbac.authorization.k8s.io",
        "v1",
        "clusterroles",
        "",
        "a",
        &[Verb::Patch],
    );
    let outside = |bound: &Bound| bound.outside("team", std::slice::from_ref(&needed));
    let refused = outside(&bound(&[role], &[], Consent::default()));
    assert!(matches!(refused, Some(Outside::Rbac { .. })), "{refused:?}");
    let annotated = bound(
        &[role],
        &[("krateo.io/allow-chart-rbac", "true")],
        Consent::default(),
    );
    assert_eq!(outside(&annotated), None);
    let with_rules = consent(|spec| {
        spec.rules = vec![GrantedRule {
            verbs: texts(["get"]),
            api_groups: texts([""]),
            resources: texts(["pods"]),
            ..GrantedRule::default()
        }];
    });
    let granted = bound(&[role], &[], with_rules);
    assert_eq!(outside(&granted), None);
    assert!(!granted.chart_rbac, "not everything that the scan finds");
}

#[test]
fn no_release_consents_or_defines_the_types_of_the_platform() {
    let grants = ("kco.krateo.io/v1alpha1", "ChartGrant");
    let bound = bound(
        &[grants],
        &[(
            "krateo.io/allowed-kinds",
            "kco.krateo.io/chartgrants, apiextensions.k8s.io/customresourcedefinitions",
        )],
        Consent::default(),
    );
    let all = bound
        .namespaced
        .iter()
        .chain(&bound.cluster)
        .chain(&bound.from_values);
    assert!(
        all.into_iter().all(|kind| kind.group != "kco.krateo.io"),
        "{bound:?}"
    );
    let definition = |name: &str| {
        let needed = Resource::new(
            "apiextensions.k8s.io",
            "v1",
            "customresourcedefinitions",
            "",
            name,
            &[Verb::Patch],
        );
        bound.outside("team", &[needed])
    };
    assert_eq!(definition("shops.example.com"), None);
    assert_eq!(definition("shops.not-composition.krateo.io"), None);
    for name in [
        "shops.composition.krateo.io",
        "compositiondefinitions.core.krateo.io",
        "chartgrants.kco.krateo.io",
    ] {
        let refused = definition(name);
        assert!(
            matches!(refused, Some(Outside::Reserved { .. })),
            "{name}: {refused:?}"
        );
    }
}

#[test]
fn a_namespace_may_be_granted_for_one_kind_or_one_object() {
    let place = |kind: Option<&str>, name: Option<&str>| GrantedNamespace {
        namespace: "monitoring".into(),
        kind: kind.map(str::to_owned),
        name: name.map(str::to_owned),
    };
    let chart = [("v1", "ConfigMap"), ("v1", "Service")];
    let outside = |place: GrantedNamespace, resource: &str, name: &str| {
        let bound = bound(&chart, &[], consent(|spec| spec.namespaces = vec![place]));
        let needed = Resource::new("", "v1", resource, "monitoring", name, &[Verb::Patch]);
        bound.outside("team", &[needed]).is_some()
    };
    assert!(!outside(place(None, None), "services", "a"));
    assert!(!outside(place(Some("configmaps"), None), "configmaps", "a"));
    assert!(outside(place(Some("configmaps"), None), "services", "a"));
    assert!(!outside(place(Some("configmaps"), Some("a")), "configmaps", "a"));
    assert!(outside(place(Some("configmaps"), Some("a")), "configmaps", "b"));
}

#[test]
fn a_namespace_whose_name_the_chart_spells_out_may_be_created() {
    let scan = Scan {
        kinds: [Kind {
            api_version: "v1".into(),
            kind: "Namespace".into(),
        }]
        .into(),
        created_namespaces: set(["monitoring", "kube-system", "krateo-system", "vault"]),
        ..Scan::default()
    };
    let allowed = Allowed {
        closed: set(["vault"]),
        ..Allowed::default()
    };
    let bound = Resolved::new(&scan, &allowed, &BuiltIn, "krateo-system").bound;
    assert_eq!(
        bound.created_namespaces,
        set(["monitoring"]),
        "none that is protected or closed"
    );
    let outside = |name: &str| {
        let needed = Resource::new("", "v1", "namespaces", "", name, &[Verb::Patch]);
        bound.outside("team", &[needed])
    };
    assert_eq!(outside("monitoring"), None);
    assert!(matches!(outside("other"), Some(Outside::Ruling { .. })));
}

#[test]
fn what_is_granted_survives_the_config_map() {
    let consent = consent(|spec| {
        spec.bindings = vec![binding("ops")];
        spec.rules = vec![GrantedRule {
            verbs: texts(["get"]),
            non_resource_urls: texts(["/metrics"]),
            ..GrantedRule::default()
        }];
        spec.aggregation_labels = texts(["rbac.authorization.k8s.io/aggregate-to-view"]);
        spec.namespaces = vec![GrantedNamespace {
            namespace: "monitoring".into(),
            kind: Some("apps/deployments".into()),
            name: Some("web".into()),
        }];
        spec.lookups = texts(["pods@team-b", "?"]);
    });
    assert_eq!(consent.void.len(), 1, "{:?}", consent.void);
    let bound = bound(&[WEBHOOKS], &[("krateo.io/allowed-kinds", "batch/jobs")], consent);
    assert!(bound.has_rbac() && !bound.placed.is_empty() && !bound.from_values.is_empty());
    assert_eq!(Bound::of_data(&bound.data()), bound);
    let rules = &bound.data()["grantedRules"];
    for field in [
        "verbs",
        "apiGroups",
        "resources",
        "resourceNames",
        "nonResourceURLs",
    ] {
        assert!(
            rules.contains(&format!("\"{field}\":")),
            "policies read {field}: {rules}"
        );
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table of cases")]
fn what_a_scan_finds_and_nobody_allows_is_listed() {
    use crate::scan::{Name, RoleRef, Subject};

    let names = |texts: &[&str]| texts.iter().map(|text| Name::Known((*text).into())).collect();
    let scan = Scan {
        kinds: [
            Kind {
                api_version: WEBHOOKS.0.into(),
                kind: WEBHOOKS.1.into(),
            },
            Kind {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
            },
        ]
        .into(),
        rules: set(["* /pods", "get /secrets <release>-ca"]),
        role_rules: [
            scan::Rule {
                verbs: set(["get"]),
                groups: set([""]),
                resources: set(["secrets"]),
                names: Some(names(&["<release>-ca"])),
                ..scan::Rule::default()
            },
            scan::Rule {
                verbs: set(["*"]),
                groups: set([""]),
                resources: set(["pods"]),
                ..scan::Rule::default()
            },
        ]
        .into(),
        bindings: [scan::Binding {
            name: Name::Known("<release>-view".into()),
            namespace: Some(Name::Known("<namespace>".into())),
            role: RoleRef {
                kind: Name::Known("ClusterRole".into()),
                name: Name::Known("view".into()),
            },
            subjects: [
                Subject {
                    kind: Name::Known("ServiceAccount".into()),
                    name: Name::Known("web".into()),
                    namespace: None,
                },
                Subject {
                    kind: Name::Known("Group".into()),
                    name: Name::Known("ops".into()),
                    namespace: None,
                },
            ]
            .into(),
        }]
        .into(),
        ..Scan::default()
    };
    let needs = |annotations: &[(&str, &str)], consent: Consent| {
        let annotations = annotations
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let allowed = Allowed::of(&annotations).unwrap().and(consent);
        Vec::from_iter(Resolved::new(&scan, &allowed, &BuiltIn, "krateo-system").needs)
    };
    let webhooks = "admissionregistration.k8s.io/mutatingwebhookconfigurations";
    assert_eq!(
        needs(&[], Consent::default()),
        [
            "* /pods",
            "RoleBinding <release>-view",
            webhooks,
            "get /secrets <release>-ca"
        ]
    );
    let rbac = ("krateo.io/allow-chart-rbac", "true");
    let view = "RoleBinding <release>-view";
    assert_eq!(needs(&[rbac], Consent::default()), ["* /pods", view, webhooks]);
    assert_eq!(
        needs(&[rbac, ("krateo.io/allowed-kinds", webhooks)], Consent::default()),
        ["* /pods", view]
    );
    let granted = consent(|spec| {
        spec.bindings = vec![binding("ops")];
        spec.rules = vec![
            GrantedRule {
                verbs: texts(["get"]),
                api_groups: texts([""]),
                resources: texts(["secrets"]),
                resource_names: texts(["<release>-ca"]),
                ..GrantedRule::default()
            },
            GrantedRule {
                verbs: texts(["*"]),
                api_groups: texts([""]),
                resources: texts(["pods"]),
                ..GrantedRule::default()
            },
        ];
        spec.kinds = vec![GrantedKind {
            group: "admissionregistration.k8s.io".into(),
            kind: "MutatingWebhookConfiguration".into(),
            from: Origin::Chart,
        }];
    });
    assert_eq!(needs(&[], granted), [""; 0]);
}

#[test]
fn the_annotation_allows_the_roles_of_one_version() {
    let rule = |verb: &str, resource: &str| scan::Rule {
        verbs: set([verb]),
        groups: set([""]),
        resources: set([resource]),
        ..scan::Rule::default()
    };
    let scanned = |rules: &[scan::Rule]| Scan {
        rules: rules.iter().flat_map(scan::Rule::lines).collect(),
        role_rules: rules.iter().cloned().collect(),
        ..Scan::default()
    };
    let pods = rule("get", "pods");
    let wider = scanned(&[pods.clone(), rule("get", "secrets")]);
    let resolved = |roles: Option<&[&str]>| {
        let allowed = Allowed {
            chart_rbac: true,
            roles: roles.map(|rules| api::definition::AllowedRoles {
                rules: rules.iter().map(|line| (*line).to_owned()).collect(),
                ..api::definition::AllowedRoles::default()
            }),
            ..Allowed::default()
        };
        let Resolved { bound, needs, .. } = Resolved::new(&wider, &allowed, &BuiltIn, "krateo-system");
        (Vec::from_iter(bound.chart_rules), Vec::from_iter(needs))
    };
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        resolved(None),
        (texts(&["get /pods", "get /secrets"]), Vec::new())
    );
    assert_eq!(
        resolved(Some(&["get /pods", "list /nodes"])),
        (texts(&["get /pods"]), texts(&["get /secrets"]))
    );
}

#[test]
fn the_annotation_does_not_allow_what_policies_refuse() {
    use scan::{Name, RoleRef, Subject};

    let rule = |verbs: &[&str], group: &str, resource: &str| scan::Rule {
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        groups: set([group]),
        resources: set([resource]),
        ..scan::Rule::default()
    };
    let binding = |name: &str, role: &str, subject: &str, namespace: &str| scan::Binding {
        name: Name::Known(name.into()),
        namespace: None,
        role: RoleRef {
            kind: Name::Known("ClusterRole".into()),
            name: Name::Known(role.into()),
        },
        subjects: [Subject {
            kind: Name::Known(subject.into()),
            name: Name::Known("web".into()),
            namespace: Some(Name::Known(namespace.into())),
        }]
        .into(),
    };
    let rules = [
        rule(&["get", "bind"], "rbac.authorization.k8s.io", "roles"),
        rule(&["create"], "kco.krateo.io", "chartgrants"),
    ];
    let scan = Scan {
        rules: rules.iter().flat_map(scan::Rule::lines).collect(),
        role_rules: rules.into(),
        bindings: [
            binding("own", "<release>", "ServiceAccount", "<namespace>"),
            binding("there", "<release>", "ServiceAccount", "tools"),
            binding("closed", "<release>", "ServiceAccount", "kube-system"),
            binding("view", "view", "ServiceAccount", "<namespace>"),
            binding("system", "system:node", "ServiceAccount", "<namespace>"),
            binding("person", "<release>", "User", "<namespace>"),
        ]
        .into(),
        namespaces: set(["tools", "kube-system"]),
        ..Scan::default()
    };
    let allowed = Allowed {
        chart_rbac: true,
        ..Allowed::default()
    };
    let needs = Resolved::new(&scan, &allowed, &BuiltIn, "krateo-system").needs;
    assert_eq!(
        Vec::from_iter(needs),
        [
            "ClusterRoleBinding closed",
            "ClusterRoleBinding person",
            "ClusterRoleBinding system",
            "ClusterRoleBinding view",
            "bind rbac.authorization.k8s.io/roles",
            "create kco.krateo.io/chartgrants",
        ]
    );
}

#[test]
fn what_the_scan_does_not_know_may_be_what_is_granted() {
    use scan::{Name, RoleRef, Subject};

    let known = |text: &str| Name::Known(text.into());
    let binding = |name: Name, subject: Name| scan::Binding {
        name,
        namespace: None,
        role: RoleRef {
            kind: known("ClusterRole"),
            name: known("view"),
        },
        subjects: [Subject {
            kind: known("ServiceAccount"),
            name: subject,
            namespace: Some(known("<namespace>")),
        }]
        .into(),
    };
    let rule = |name: Name| scan::Rule {
        verbs: set(["get"]),
        groups: set([""]),
        resources: set(["secrets"]),
        names: Some([name].into()),
        ..scan::Rule::default()
    };
    let granted = consent(|spec| {
        spec.rules = vec![GrantedRule {
            verbs: texts(["get"]),
            api_groups: texts([""]),
            resources: texts(["secrets"]),
            resource_names: texts(["<release>-ca"]),
            ..GrantedRule::default()
        }];
        spec.bindings = vec![GrantedBinding {
            kind: BindingKind::ClusterRoleBinding,
            name: "web".into(),
            namespace: None,
            role_ref: GrantedRole {
                kind: RoleKind::ClusterRole,
                name: "view".into(),
            },
            subjects: vec![GrantedSubject {
                kind: SubjectKind::ServiceAccount,
                name: "web".into(),
                namespace: None,
            }],
        }];
    });
    let allowed = Allowed::default().and(granted);
    let needs = |rule: scan::Rule, binding: scan::Binding| {
        let scan = Scan {
            role_rules: [rule].into(),
            bindings: [binding].into(),
            ..Scan::default()
        };
        Resolved::new(&scan, &allowed, &BuiltIn, "krateo-system")
            .needs
            .len()
    };
    let (own, other) = (known("<release>-ca"), known("other"));
    for (name, account) in [
        (known("web"), known("web")),
        (Name::Unknown, known("web")),
        (known("web"), Name::Unknown),
    ] {
        assert_eq!(
            needs(rule(own.clone()), binding(name.clone(), account.clone())),
            0
        );
        assert_eq!(
            needs(rule(Name::Unknown), binding(name.clone(), account.clone())),
            0
        );
        assert_eq!(needs(rule(other.clone()), binding(name, account)), 1);
    }
    for (name, account) in [
        (known("a"), known("web")),
        (Name::Unknown, known("a")),
        (known("a"), Name::Unknown),
    ] {
        assert_eq!(needs(rule(own.clone()), binding(name, account)), 1);
    }
}

#[test]
fn what_is_too_long_counts_in_no_part() {
    let part = |name: &str, first: usize| {
        let mut one = grant(|spec| {
            spec.rules = (first..first + 64)
                .map(|number| GrantedRule {
                    verbs: texts(["get"]),
                    api_groups: texts([""]),
                    resources: vec![format!("{}{number}", "r".repeat(200))],
                    ..GrantedRule::default()
                })
                .collect();
        });
        one.metadata.name = Some(name.to_owned());
        one
    };
    let consent = |parts: usize| {
        let grants: Vec<ChartGrant> = (0..parts)
            .map(|number| part(&format!("web-{number}"), number * 64))
            .collect();
        let to = Applicant {
            namespace: "defs",
            name: "web",
            source: &source(),
            version: "1.2.3",
            digest: DIGEST,
        };
        Consent::of(&grants, to)
    };
    assert_eq!(consent(1).rbac.rules.len(), 64);
    for parts in [2, 3, 5] {
        let consent = consent(parts);
        assert!(consent.rbac.is_empty(), "{parts}");
        assert_eq!(consent.void.len(), 1, "{:?}", consent.void);
    }
}

#[test]
fn no_grant_makes_a_role_of_a_chart_one_of_approvers() {
    let labels = [
        "rbac.authorization.k8s.io/aggregate-to-krateo-approver",
        "rbac.authorization.k8s.io/aggregate-to-view",
    ];
    let consent = consent(|spec| spec.aggregation_labels = texts(labels));
    assert_eq!(consent.rbac.labels, set([labels[1]]));
    assert!(
        consent.void.iter().any(|why| why.contains("who may approve")),
        "{:?}",
        consent.void
    );
}
