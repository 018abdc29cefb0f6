//! A chart that may bring roles can bind its own and no others, whatever its controller tries.

use anyhow::Result;
use e2e::{ChartFolder, HostPlatform, Namespace, progress};
use local_cluster::registry::Settings;
use serde_json::{Value, json};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The chart brings a role and a cluster role, each bound. The role allows more.
const TEMPLATE: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: {{ .Release.Name }}}
rules:
  - apiGroups: [\"\"]
    resources: [pods, secrets]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: {{ .Release.Name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .Release.Name }}}
subjects: [{kind: ServiceAccount, name: default, namespace: {{ .Release.Namespace }}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: {{ .Release.Name }}}
rules:
  - apiGroups: [\"\"]
    resources: [pods]
    verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: {{ .Release.Name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .Release.Name }}}
subjects: [{kind: ServiceAccount, name: default, namespace: {{ .Release.Namespace }}}]
";

#[test]
fn bindings_of_a_chart_refer_only_to_roles_of_their_own_release() -> Result<()> {
    let platform = HostPlatform::shared()?;
    let scenario = platform.namespace("bind-roles")?;
    let registry = platform
        .plane()
        .start_registry("bind-roles", &Settings::default())?;
    let chart = ChartFolder::copy("web", "binder", "1.0.0")?;
    chart.write("templates/rbac.yaml", TEMPLATE)?;
    let package = chart.package(scenario.site())?;
    let url = package.push(scenario.site(), &registry.to_string(), &["--plain-http"])?;
    scenario.apply(&json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {"name": "binder", "namespace": "bind-roles", "annotations": {"krateo.io/allow-chart-rbac": "true"}},
        "spec": {"chart": {"url": url, "version": "1.0.0", "plainHTTP": true}},
    }))?;
    scenario
        .platform()
        .wait("deployments", "binders-v1-0-0-controller", |_| true)?;
    // Its namespace has a composition, but no controller works on it.
    let composition = json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Binder", "metadata": {"name": "web", "namespace": "bind-roles"},
        "spec": {"image": "nginx"},
    });
    scenario.wait_until("the composition", || Ok(scenario.apply(&composition).ok()))?;
    for kind in ["Role", "ClusterRole"] {
        scenario.apply(&role(kind, "foreign", None))?;
        scenario.apply(&role(kind, "others", Some("other")))?;
        // The controller writes these itself, once it may grant in the namespace.
        scenario.wait_until("the chart's own role", || {
            let refusal = as_controller(&scenario, &role(kind, "own", Some("mine")))?;
            progress(format_args!("{kind} own: {refusal:?}"));
            Ok(refusal.is_none().then_some(()))
        })?;
    }

    let mut wrong = Vec::new();
    for (binding, to_kind, to, allowed) in [
        ("RoleBinding", "Role", "own", true),
        ("RoleBinding", "ClusterRole", "own", true),
        ("ClusterRoleBinding", "ClusterRole", "own", true),
        ("RoleBinding", "Role", "foreign", false),
        ("RoleBinding", "ClusterRole", "foreign", false),
        ("ClusterRoleBinding", "ClusterRole", "foreign", false),
        ("RoleBinding", "Role", "others", false),
        ("RoleBinding", "ClusterRole", "others", false),
        ("ClusterRoleBinding", "ClusterRole", "others", false),
        ("ClusterRoleBinding", "ClusterRole", "cluster-admin", false),
        ("ClusterRoleBinding", "ClusterRole", "core-provider", false),
        ("RoleBinding", "ClusterRole", "binders-v1-0-0", false),
    ] {
        let object = bound(&scenario, binding, to_kind, to);
        let refusal = as_controller(&scenario, &object)?;
        progress(format_args!("{binding} to {to_kind} {to}: {refusal:?}"));
        if refusal.is_none() != allowed {
            wrong.push((binding, to_kind, to, refusal));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    // Other users can bind whatever they like, with the same label.
    scenario.apply(&bound(&scenario, "RoleBinding", "Role", "foreign"))?;
    a_role_stays_what_the_chart_has_it_be(platform, &scenario, &registry.to_string())
}

/// A chart's own roles must be of the kinds that it has, contain only what the chart has in roles of that kind, and be
/// in the release's namespace.
fn a_role_stays_what_the_chart_has_it_be(
    platform: &HostPlatform,
    scenario: &Namespace,
    registry: &str,
) -> Result<()> {
    // The namespace of another tenant, who has a composition of the type, too.
    let elsewhere = platform.namespace("bind-roles-b")?;
    elsewhere.apply(&json!({
        "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Binder",
        "metadata": {"name": "web", "namespace": "bind-roles-b"}, "spec": {"image": "nginx"},
    }))?;
    let of_role = |kind: &str, name: &str, resource: &str| {
        let mut object = role(kind, name, Some("mine"));
        object["rules"][0]["resources"] = json!([resource]);
        object
    };
    let away = |mut object: Value, home: &str| {
        object["metadata"]["namespace"] = json!("bind-roles-b");
        object["metadata"]["labels"]["krateo.io/composition-namespace"] = json!(home);
        object
    };
    scenario.wait_until("the other tenant's namespace", || {
        let own = away(of_role("Role", "theirs", "pods"), "bind-roles-b");
        Ok(as_controller(&elsewhere, &own)?.is_none().then_some(()))
    })?;
    let bound_away = away(bound(scenario, "RoleBinding", "Role", "own"), "bind-roles");
    for (what, place, object, allowed) in [
        (
            "a role with what roles allow",
            scenario,
            of_role("Role", "low", "secrets"),
            true,
        ),
        (
            "a cluster role with what roles allow",
            scenario,
            of_role("ClusterRole", "risen", "secrets"),
            false,
        ),
        (
            "a role of this release elsewhere",
            &elsewhere,
            away(of_role("Role", "low", "pods"), "bind-roles"),
            false,
        ),
        (
            "a binding of this release elsewhere",
            &elsewhere,
            bound_away,
            false,
        ),
    ] {
        let refusal = as_controller(place, &object)?;
        progress(format_args!("{what}: {refusal:?}"));
        let is_denied = refusal.as_ref().is_some_and(|why| why.contains("denied request"));
        assert!(
            is_denied != allowed && refusal.is_none() == allowed,
            "{what}: {refusal:?}"
        );
    }

    // A chart with roles but without cluster roles.
    let chart = ChartFolder::copy("web", "minder", "1.0.0")?;
    let (roles, _) = TEMPLATE
        .split_once("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n")
        .unwrap();
    chart.write("templates/rbac.yaml", roles)?;
    let url = chart
        .package(scenario.site())?
        .push(scenario.site(), registry, &["--plain-http"])?;
    scenario.apply(&json!({
        "apiVersion": "core.krateo.io/v1alpha1", "kind": "CompositionDefinition",
        "metadata": {"name": "minder", "namespace": "bind-roles", "annotations": {"krateo.io/allow-chart-rbac": "true"}},
        "spec": {"chart": {"url": url, "version": "1.0.0", "plainHTTP": true}},
    }))?;
    scenario
        .platform()
        .wait("deployments", "minders-v1-0-0-controller", |_| true)?;
    scenario.wait_until("the type", || {
        let composition = json!({
            "apiVersion": "composition.krateo.io/v1-0-0", "kind": "Minder",
            "metadata": {"name": "web", "namespace": "bind-roles"}, "spec": {"image": "nginx"},
        });
        Ok(scenario.apply(&composition).ok())
    })?;
    let of_minder = |kind: &str| {
        let mut object = of_role(kind, "minded", "pods");
        object["metadata"]["labels"]["krateo.io/composition-resource"] = json!("minders");
        object
    };
    let try_as = |object: &Value| apply_as(scenario, "krateo-system", "minders-v1-0-0", object);
    scenario.wait_until("the chart's own role", || {
        Ok(try_as(&of_minder("Role"))?.is_none().then_some(()))
    })?;
    let refusal = try_as(&of_minder("ClusterRole"))?.unwrap_or_default();
    progress(format_args!("a cluster role of a chart without any: {refusal}"));
    assert!(refusal.contains("the chart brings no clusterroles"), "{refusal}");
    Ok(())
}

fn labelled(mut object: Value, composition: Option<&str>) -> Value {
    let is_of_cluster = object["kind"]
        .as_str()
        .is_some_and(|kind| kind.starts_with("Cluster"));
    if !is_of_cluster {
        object["metadata"]["namespace"] = json!("bind-roles");
    }
    if let Some(id) = composition {
        object["metadata"]["labels"] = json!({
            "krateo.io/composition-resource": "binders", "krateo.io/composition-id": id,
            "krateo.io/composition-namespace": "bind-roles",
        });
    }
    object
}

fn role(kind: &str, name: &str, composition: Option<&str>) -> Value {
    let role = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    });
    labelled(role, composition)
}

fn bound(scenario: &Namespace, kind: &str, to_kind: &str, to: &str) -> Value {
    let name = format!("{to}-{}", to_kind.to_lowercase());
    let binding = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": to_kind, "name": to},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": scenario.namespace()}],
    });
    labelled(binding, Some("mine"))
}

/// Why the controller may not write an object; `None` if it may.
fn as_controller(scenario: &Namespace, object: &Value) -> Result<Option<String>> {
    apply_as(scenario, "krateo-system", "binders-v1-0-0", object)
}

fn apply_as(scenario: &Namespace, namespace: &str, account: &str, object: &Value) -> Result<Option<String>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), object.to_string())?;
    let user = format!("--as=system:serviceaccount:{namespace}:{account}");
    let path = file.path().to_string_lossy();
    let arguments = ["apply", "--server-side", &user, "--filename", &path];
    Ok(scenario
        .kubectl(&arguments)
        .err()
        .map(|error| format!("{error:#}")))
}
