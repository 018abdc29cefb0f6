//! A chart that brings definitions: its controller can set on them exactly what the admin's consent for that chart
//! lists, on the listed definitions and charts, and nothing else, whatever it tries. The controller's account has every
//! right that RBAC knows here, so that only its policy can refuse.

use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::platform::NAMESPACE;
use e2e::scenario::condition;
use e2e::{ChartFolder, HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const HOME: &str = "allow-definitions";
const ELSEWHERE: &str = "allow-definitions-b";
const ACCOUNT: &str = "stewards-v1-0-0";

/// As many components as the platform's own installer has.
const COMPONENTS: usize = 18;

/// As many entries as are taken at most.
const MOST: usize = 64;

/// What each entry allows.
fn consented() -> Value {
    json!({
        "krateo.io/allow-chart-rbac": "true",
        "krateo.io/allowed-kinds": "apps/deployments, configmaps, batch/jobs, networking.k8s.io/ingresses",
        "krateo.io/allowed-namespaces": "monitoring,logging",
    })
}

fn name(number: usize) -> String {
    format!("component-{number:02}")
}

/// An address without a server: these charts are never fetched.
fn url(number: usize) -> String {
    format!("oci://127.0.0.1:1/platform/charts/{}", name(number))
}

/// The admin's consent for this many components, in this version.
fn word(components: usize, version: &str) -> String {
    let entry = |number: usize| {
        json!({
            "annotations": consented(), "kind": format!("Component{number:02}"), "name": name(number),
            "namespace": HOME, "url": url(number), "version": version,
        })
    };
    Value::from((1..=components).map(entry).collect::<Vec<_>>()).to_string()
}

/// A definition as rendered by a release of the type.
fn definition(number: usize) -> Value {
    json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {
            "name": name(number), "namespace": HOME, "annotations": consented(),
            "labels": {"krateo.io/composition-resource": "stewards", "krateo.io/composition-id": "mine"},
        },
        "spec": {"chart": {"url": url(number), "version": "1.0.0"}},
    })
}

fn changed(mut object: Value, at: &str, value: Value) -> Value {
    let (parent, key) = at.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    // Escaped, because an annotation's name contains a slash.
    parent.insert(key.replace("~1", "/"), value);
    object
}

fn without(mut object: Value, key: &str) -> Value {
    object["metadata"].as_object_mut().unwrap().remove(key);
    object
}

#[test]
fn a_controller_sets_on_definitions_only_what_the_admin_lists() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let scenario = platform.namespace(HOME)?;
    platform.namespace(ELSEWHERE)?;
    let registry = platform.plane().start_registry(HOME, &Settings::default())?;
    let package = ChartFolder::copy("steward", "steward", "1.0.0")?.package(scenario.site())?;
    let url = package.push(scenario.site(), &registry.to_string(), &["--plain-http"])?;
    scenario.apply(&json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {
            "name": "steward", "namespace": HOME,
            "annotations": {"krateo.io/allowed-definitions": word(COMPONENTS, "1.0.0")},
        },
        "spec": {"chart": {"url": url, "version": "1.0.0", "plainHTTP": true}},
    }))?;
    scenario
        .platform()
        .wait("deployments", &format!("{ACCOUNT}-controller"), |_| true)?;
    may_do_everything(&scenario)?;
    the_kinds_of_components_are_in_the_bound(&scenario)?;

    // What the chart needs to do, for all of them, and once more without a change.
    for number in 1..=COMPONENTS {
        for _ in 0..2 {
            assert_eq!(applied(&scenario, &definition(number))?, None, "{}", name(number));
        }
    }
    judged(&new_definitions(), |object| dry_run(&scenario, object))?;
    changes_of_definitions_that_are_there(&scenario)?;
    another_word_is_another_bound(&scenario)?;
    nothing_but_what_is_listed(&scenario)?;
    as_many_as_there_may_be(&scenario)
}

/// What an admin allows one definition does not apply to another of the same type that claims to be the source of its
/// compositions; only what that chart's templates contain applies.
#[test]
fn consent_for_one_definition_does_not_apply_to_another_of_its_type() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let scenario = platform.namespace("allow-one")?;
    let registry = platform
        .plane()
        .start_registry("allow-one", &Settings::default())?;
    let push = |version: &str, template: Option<&str>| -> Result<String> {
        let chart = ChartFolder::copy("web", "warden", version)?;
        if let Some(template) = template {
            chart.write("templates/more.yaml", template)?;
        }
        let package = chart.package(scenario.site())?;
        package.push(scenario.site(), &registry.to_string(), &["--plain-http"])
    };
    push(
        "1.0.0",
        Some(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: {{ .Release.Name }}}\n",
        ),
    )?;
    let url = push("2.0.0", None)?;
    let allowed =
        json!({"krateo.io/allowed-kinds": "batch/cronjobs", "krateo.io/allowed-namespaces": "monitoring"});
    for (name, version, annotations) in [("one", "1.0.0", allowed), ("two", "2.0.0", json!({}))] {
        scenario.apply(&json!({
            "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
            "metadata": {"name": name, "namespace": "allow-one", "annotations": annotations},
            "spec": {"chart": {"url": url, "version": version, "plainHTTP": true}},
        }))?;
        let deployment = format!("wardens-v{}-controller", version.replace('.', "-"));
        scenario.platform().wait("deployments", &deployment, |_| true)?;
    }
    let composition = json!({
        "apiVersion": "composition.krateo.io/v2-0-0", "kind": "Warden",
        "metadata": {
            "name": "web", "namespace": "allow-one", "labels": {"krateo.io/composition-version": "v2-0-0"},
        },
        "spec": {"image": "nginx"},
    });
    scenario.wait_until("the type", || Ok(scenario.apply(&composition).ok()))?;
    let status = r#"{"status": {"helmChartVersion": "1.0.0"}}"#;
    let words = [
        "patch",
        "wardens.v2-0-0.composition.krateo.io",
        "web",
        "--subresource=status",
        "--type=merge",
        "--patch",
        status,
    ];
    scenario.kubectl(&words)?;
    let mut looks = 0;
    let bound = scenario.wait_until("the former chart's kinds", || {
        looks += 1;
        let touch = format!("example.org/look={looks}");
        scenario.kubectl(&["annotate", "--overwrite", "compositiondefinition", "two", &touch])?;
        let two = scenario.get("compositiondefinitions", "two")?.unwrap_or_default();
        let bound = two["status"]["bound"].clone();
        Ok(bound.to_string().contains("networkpolicies").then_some(bound))
    })?;
    progress(format_args!("carried: {bound}"));
    for foreign in ["cronjobs", "monitoring"] {
        assert!(!bound.to_string().contains(foreign), "{bound}");
    }
    Ok(())
}

/// Kinds that are not served, by the plural that they will have.
fn the_kinds_of_components_are_in_the_bound(scenario: &Namespace) -> Result<()> {
    let steward = scenario.wait("compositiondefinitions", "steward", |definition| {
        definition["status"]["bound"]["kinds"].is_array()
    })?;
    let kinds = steward["status"]["bound"]["kinds"].as_array().unwrap();
    for kind in [
        "core.krateo.io/compositiondefinitions",
        "composition.krateo.io/component18s",
    ] {
        assert!(kinds.contains(&json!(kind)), "{kind} is not among {kinds:?}");
    }
    let inspector = scenario.wait("clusterroles", &format!("{ACCOUNT}-inspector"), |_| true)?;
    let rule =
        json!({"apiGroups": ["composition.krateo.io"], "resources": ["component18s"], "verbs": ["get"]});
    let rules = inspector["rules"].as_array().unwrap();
    assert!(rules.contains(&rule), "{rules:?}");
    Ok(())
}

/// What is tried, and whether it is allowed.
type Attempt = (&'static str, Value, bool);

fn judged(attempts: &[Attempt], attempt: impl Fn(&Value) -> Result<Option<String>>) -> Result<()> {
    let mut wrong = Vec::new();
    for (what, object, allowed) in attempts {
        let said = attempt(object)?;
        progress(format_args!("{what}: {said:?}"));
        if let Some(said) = &said {
            let policy = format!("ValidatingAdmissionPolicy '{ACCOUNT}-own'");
            ensure!(said.contains(&policy), "{what}: {said}");
        }
        if said.is_some() == *allowed {
            wrong.push(*what);
        }
    }
    ensure!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}

/// Definitions that do not exist yet: number 1 with variations, or one that is not listed.
#[expect(clippy::too_many_lines, reason = "one list, an entry for each attempt")]
fn new_definitions() -> Vec<Attempt> {
    let fresh = |object: Value| changed(object, "/metadata/name", json!("fresh"));
    let first = || definition(1);
    let annotated = |name: &str, value: &str| {
        changed(
            first(),
            &format!("/metadata/annotations/{}", name.replace('/', "~1")),
            json!(value),
        )
    };
    let chart = |field: &str, value: Value| changed(first(), &format!("/spec/chart/{field}"), value);
    let alone = |name: &str, value: &str| {
        let mut object = fresh(first());
        object["metadata"]["annotations"] = json!({ name: value });
        object
    };
    vec![
        ("a name that is not listed", fresh(first()), false),
        (
            "a name that is not listed, without annotations",
            without(fresh(first()), "annotations"),
            true,
        ),
        (
            "another namespace",
            changed(first(), "/metadata/namespace", json!(ELSEWHERE)),
            false,
        ),
        ("another entry's chart", chart("url", json!(url(2))), false),
        (
            "another registry",
            chart("url", json!("oci://127.0.0.2:1/platform/charts/component-01")),
            false,
        ),
        ("another version", chart("version", json!("1.0.1")), false),
        ("a range", chart("version", json!("^1.0.0")), false),
        ("a chart of a repository", chart("repo", json!("evil")), false),
        (
            "any certificate",
            chart("insecureSkipVerifyTLS", json!(true)),
            false,
        ),
        (
            "its own certificates alone",
            chart("insecureSkipVerifyTLS", json!(false)),
            true,
        ),
        ("no TLS", chart("plainHTTP", json!(true)), false),
        (
            "authorities of its own",
            chart("caBundleRef", json!({"name": "mine"})),
            false,
        ),
        (
            "a digest besides",
            chart("digest", json!(format!("sha256:{}", "a".repeat(64)))),
            true,
        ),
        (
            "credentials besides",
            chart(
                "credentials",
                json!({
                    "username": "robot", "passwordRef": {"name": "password", "namespace": HOME, "key": "password"},
                }),
            ),
            true,
        ),
        (
            "more kinds",
            annotated(
                "krateo.io/allowed-kinds",
                "apps/deployments, configmaps, batch/jobs, networking.k8s.io/ingresses, secrets",
            ),
            false,
        ),
        (
            "fewer kinds",
            annotated("krateo.io/allowed-kinds", "apps/deployments"),
            false,
        ),
        (
            "another namespace to reach",
            annotated("krateo.io/allowed-namespaces", "krateo-system"),
            false,
        ),
        (
            "roles by another word",
            annotated("krateo.io/allow-chart-rbac", "TRUE"),
            false,
        ),
        ("lookups", annotated("krateo.io/allowed-lookups", "pods"), false),
        (
            "definitions of its own",
            annotated("krateo.io/allowed-definitions", "[]"),
            false,
        ),
        (
            "another key",
            annotated("krateo.io/rotate-release-key", "now"),
            false,
        ),
        (
            "a word about which definitions it may bring",
            annotated("krateo.io/only-allowed-definitions", "false"),
            false,
        ),
        (
            "an annotation that nobody minds",
            annotated("krateo.io/drop-bad-defaults", "true"),
            true,
        ),
        ("none of the annotations", without(first(), "annotations"), true),
        (
            "kinds, on a definition of its own",
            alone("krateo.io/allowed-kinds", "secrets"),
            false,
        ),
        (
            "another key, on a definition of its own",
            alone("krateo.io/rotate-release-key", "now"),
            false,
        ),
    ]
}

/// A change to another chart.
const OTHER_CHART: &str = r#"{"spec": {"chart": {"version": "1.0.1"}}}"#;

/// The same, without the annotations that were allowed for the previous chart.
const OTHER_CHART_ALONE: &str = r#"{"metadata": {"annotations": {
    "krateo.io/allowed-kinds": null, "krateo.io/allowed-namespaces": null, "krateo.io/allow-chart-rbac": null
}}, "spec": {"chart": {"version": "1.0.1"}}}"#;

/// None of the allowed annotations.
const NO_ANNOTATIONS: &str = r#"{"metadata": {"annotations": {
    "krateo.io/allowed-kinds": null, "krateo.io/allowed-namespaces": null, "krateo.io/allow-chart-rbac": null
}}}"#;

/// An annotation that an entry lists.
const LISTED: &str = r#"{"metadata": {"annotations": {"krateo.io/allow-chart-rbac": "true"}}}"#;

/// Definitions that exist: the release's own, the admin's, or the type's own.
fn changes_of_definitions_that_are_there(scenario: &Namespace) -> Result<()> {
    let by_admin = |name: &str, chart: usize| {
        scenario.apply(&json!({
            "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
            "metadata": {"name": name, "namespace": HOME, "annotations": {"krateo.io/allowed-kinds": "secrets"}},
            "spec": {"chart": {"url": url(chart), "version": "1.0.0"}},
        }))
    };
    by_admin("of-the-admin", 1)?;
    // One that is listed, but belongs to the admin.
    scenario.kubectl(&["delete", "compositiondefinition", &name(18), "--timeout=90s"])?;
    scenario.apply(&without(definition(18), "labels"))?;

    let label = r#"{"metadata": {"labels": {"a": "b"}}}"#;
    let of_release = r#"{"metadata": {"labels": {"krateo.io/composition-resource": "stewards"}}}"#;
    let wider = r#"{"metadata": {"annotations": {"krateo.io/allowed-kinds": "secrets"}}}"#;
    let word = r#"{"metadata": {"annotations": {"krateo.io/allowed-definitions": "[]"}}}"#;
    let only = r#"{"metadata": {"annotations": {"krateo.io/only-allowed-definitions": "true"}}}"#;
    let owner = r#"[{"op": "replace", "path": "/spec/chart/url", "value": "oci://127.0.0.2:1/a"}]"#;
    let (own, admins) = (name(1), name(18));
    let mut attempts = Vec::new();
    for (what, of, patch, allowed) in [
        ("a label", &*own, label, true),
        ("the chart under kept annotations", &own, OTHER_CHART, false),
        (
            "the chart without the annotations",
            &own,
            OTHER_CHART_ALONE,
            false,
        ),
        ("more kinds", &own, wider, false),
        (
            "the chart of an admin's definition",
            "of-the-admin",
            OTHER_CHART,
            false,
        ),
        ("a label of an admin's definition", "of-the-admin", label, true),
        ("roles for an admin's definition", "of-the-admin", LISTED, false),
        (
            "an admin's definition taken for the release's",
            &admins,
            of_release,
            true,
        ),
        (
            "the chart of an admin's definition that is listed",
            &admins,
            OTHER_CHART,
            false,
        ),
        ("kinds of its own definition", "steward", wider, false),
        ("the word about its own definition", "steward", word, false),
        ("a word more about its own definition", "steward", only, false),
        ("the chart of its own definition", "steward", OTHER_CHART, false),
        ("a label of its own definition", "steward", label, true),
    ] {
        attempts.push((
            what,
            json!([
                "patch",
                "compositiondefinition",
                of,
                "--type=merge",
                "--patch",
                patch
            ]),
            allowed,
        ));
    }
    attempts.push((
        "the chart by JSON patch",
        json!([
            "patch",
            "compositiondefinition",
            own,
            "--type=json",
            "--patch",
            owner
        ]),
        false,
    ));
    attempts.push((
        "the status",
        json!([
            "patch",
            "compositiondefinition",
            own,
            "--subresource=status",
            "--type=merge",
            "--patch",
            r#"{"status": {"digest": "x"}}"#
        ]),
        false,
    ));
    attempts.push(("deletion", json!(["delete", "compositiondefinition", own]), true));
    judged(&attempts, |words| {
        let words = words.as_array().into_iter().flatten().filter_map(Value::as_str);
        let words: Vec<&str> = words.chain(["--dry-run=server"]).collect();
        Ok(as_controller(scenario, &words))
    })?;
    changes_in_two_steps(scenario)
}

/// Each step alone may be allowed, but not both together.
fn changes_in_two_steps(scenario: &Namespace) -> Result<()> {
    let admins = name(18);
    // First add the label of a release, then change the chart.
    assert_eq!(
        as_controller(
            scenario,
            &[
                "label",
                "compositiondefinition",
                &admins,
                "krateo.io/composition-resource=stewards"
            ]
        ),
        None
    );
    let moved = [
        "patch",
        "compositiondefinition",
        &admins,
        "--type=merge",
        "--patch",
        OTHER_CHART,
    ];
    assert!(
        as_controller(scenario, &moved).is_some(),
        "the chart was changed in two steps"
    );
    // In the other order: first the annotations, then the chart.
    let second = name(2);
    let patch = |patch: &str| {
        as_controller(
            scenario,
            &[
                "patch",
                "compositiondefinition",
                &second,
                "--type=merge",
                "--patch",
                patch,
            ],
        )
    };
    assert_eq!(patch(NO_ANNOTATIONS), None);
    assert!(patch(OTHER_CHART).is_some(), "the chart was changed in two steps");
    assert!(
        patch(OTHER_CHART_ALONE).is_some(),
        "the chart was changed in two steps"
    );
    // And back to what is listed, in one write.
    assert_eq!(applied(scenario, &definition(2))?, None);
    Ok(())
}

/// The next version of the components needs the next consent.
fn another_word_is_another_bound(scenario: &Namespace) -> Result<()> {
    let next = changed(definition(3), "/spec/chart/version", json!("1.0.1"));
    assert!(dry_run(scenario, &next)?.is_some());
    let annotation = format!("krateo.io/allowed-definitions={}", word(COMPONENTS, "1.0.1"));
    scenario.kubectl(&[
        "annotate",
        "--overwrite",
        "compositiondefinition",
        "steward",
        &annotation,
    ])?;
    scenario.wait_until("the next word", || {
        Ok(dry_run(scenario, &next)?.is_none().then_some(()))
    })?;
    assert_eq!(applied(scenario, &next)?, None);
    assert!(
        applied(scenario, &definition(3))?.is_some(),
        "back to what is not listed any more"
    );
    // A definition with the previous version keeps it, and moves when the release does.
    assert_eq!(applied(scenario, &definition(4))?, None);

    let bad = "krateo.io/allowed-definitions=[{\"name\": \"component-01\", \"namespace\": \"x\", \"url\": \"oci://r/c\", \"version\": \"1.x\"}]";
    scenario.kubectl(&["annotate", "--overwrite", "compositiondefinition", "steward", bad])?;
    let told = scenario.wait("compositiondefinitions", "steward", |steward| {
        condition(steward, "Synced").is_some_and(|synced| {
            synced["message"]
                .as_str()
                .is_some_and(|message| message.contains("krateo.io/allowed-definitions"))
        })
    })?;
    let message = condition(&told, "Synced").unwrap()["message"]
        .as_str()
        .unwrap()
        .to_owned();
    progress(format_args!("a bad word: {message}"));
    assert!(
        message.contains("entry 1, definition x/component-01") && message.contains("an exact one"),
        "{message}"
    );
    let fifth = changed(definition(5), "/spec/chart/version", json!("1.0.1"));
    assert_eq!(dry_run(scenario, &fifth)?, None, "the word before stays in force");
    Ok(())
}

/// If the admin says so, only listed definitions may be written.
fn nothing_but_what_is_listed(scenario: &Namespace) -> Result<()> {
    let annotations = [
        format!("krateo.io/allowed-definitions={}", word(COMPONENTS, "1.0.0")),
        "krateo.io/only-allowed-definitions=true".to_owned(),
    ];
    let mut words = vec!["annotate", "--overwrite", "compositiondefinition", "steward"];
    words.extend(annotations.iter().map(String::as_str));
    scenario.kubectl(&words)?;
    let fresh = without(
        changed(definition(1), "/metadata/name", json!("fresh")),
        "annotations",
    );
    scenario.wait_until("the policy", || {
        Ok(dry_run(scenario, &fresh)?.filter(|said| said.contains("is not listed")))
    })?;
    let patch = |of: &str, patch: &str| {
        json!([
            "patch",
            "compositiondefinition",
            of,
            "--type=merge",
            "--patch",
            patch
        ])
    };
    let label = r#"{"metadata": {"labels": {"a": "b"}}}"#;
    let other = r#"{"spec": {"chart": {"version": "1.0.7"}}}"#;
    let bare = r#"{"metadata": {"annotations": {
        "krateo.io/allowed-kinds": null, "krateo.io/allowed-namespaces": null, "krateo.io/allow-chart-rbac": null
    }}, "spec": {"chart": {"version": "1.0.7"}}}"#;
    let away = r#"{"metadata": {"annotations": {"krateo.io/only-allowed-definitions": null}}}"#;
    let of_release = r#"{"metadata": {"labels": {"krateo.io/composition-resource": "stewards"}}}"#;
    let (first, third) = (name(1), name(3));
    judged(
        &[
            ("a label of one that is listed", patch(&first, label), true),
            (
                "a label of one whose chart is not listed",
                patch(&third, label),
                true,
            ),
            ("a chart that is not listed", patch(&first, other), false),
            (
                "a chart that is not listed, without annotations",
                patch(&first, bare),
                false,
            ),
            ("its own definition", patch("steward", label), false),
            (
                "its own definition made the release's",
                patch("steward", of_release),
                false,
            ),
            ("the word itself", patch("steward", away), false),
            ("an admin's definition", patch("of-the-admin", label), false),
            (
                "deletion of its own definition",
                json!(["delete", "compositiondefinition", "steward"]),
                false,
            ),
            (
                "deletion of an admin's definition",
                json!(["delete", "compositiondefinition", "of-the-admin"]),
                false,
            ),
            (
                "deletion of one of the release's",
                json!(["delete", "compositiondefinition", first]),
                true,
            ),
        ],
        |words| {
            let words: Vec<&str> = words
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            Ok(as_controller(
                scenario,
                &[&words[..], &["--dry-run=server"]].concat(),
            ))
        },
    )
}

/// The longest possible list is still evaluated, and everything else is refused.
fn as_many_as_there_may_be(scenario: &Namespace) -> Result<()> {
    let annotation = format!("krateo.io/allowed-definitions={}", word(MOST, "1.0.0"));
    progress(format_args!("{} bytes for {MOST} definitions", annotation.len()));
    scenario.kubectl(&[
        "annotate",
        "--overwrite",
        "compositiondefinition",
        "steward",
        &annotation,
    ])?;
    let last = definition(MOST);
    scenario.wait_until("the longest word", || {
        Ok(dry_run(scenario, &last)?.is_none().then_some(()))
    })?;
    let began = Instant::now();
    assert_eq!(applied(scenario, &last)?, None);
    progress(format_args!(
        "the last of {MOST} took {:?}, kubectl included",
        began.elapsed()
    ));
    let other = changed(last, "/spec/chart/version", json!("1.0.1"));
    let said = dry_run(scenario, &other)?.unwrap_or_default();
    assert!(
        said.contains("krateo.io/allowed-kinds of allow-definitions/component-64 is not listed"),
        "{said}"
    );
    assert!(
        said.contains("CompositionDefinition allow-definitions/steward"),
        "{said}"
    );
    Ok(())
}

/// So that only the policy can refuse.
fn may_do_everything(scenario: &Namespace) -> Result<()> {
    scenario.apply(&json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "stewards-may-do-everything"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }))
}

/// Why the controller may not; `None` if it may.
fn as_controller(scenario: &Namespace, arguments: &[&str]) -> Option<String> {
    let user = format!("--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}");
    let arguments = [arguments, &[&user]].concat();
    scenario
        .kubectl(&arguments)
        .err()
        .map(|error| format!("{error:#}"))
}

fn applied(scenario: &Namespace, object: &Value) -> Result<Option<String>> {
    apply(scenario, object, &[])
}

fn dry_run(scenario: &Namespace, object: &Value) -> Result<Option<String>> {
    apply(scenario, object, &["--dry-run=server"])
}

/// As its controller applies objects of a release.
fn apply(scenario: &Namespace, object: &Value, more: &[&str]) -> Result<Option<String>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), object.to_string())?;
    let path = file.path().to_string_lossy();
    let place = Namespace::of(object["metadata"]["namespace"].as_str().unwrap(), scenario.site());
    let words = ["apply", "--server-side", "--force-conflicts", "--filename", &path];
    Ok(as_controller(&place, &[&words[..], more].concat()))
}
