//! A composition that needs more than its chart's bound is held, says so, and continues once the admin allows it.

use anyhow::Result;
use e2e::scenario::condition;
use e2e::{ChartFolder, Scenario};
use serde_json::{Value, json};

const EXTRA: &str = "{{- range .Values.extra }}\n---\n{{ tpl (toYaml .) $ }}\n{{- end }}\n";

const ROLE: &str = "{{- if .Values.role }}\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: {{ .Release.Name }}-reader\n\
                    rules:\n- apiGroups: [\"\"]\n  resources: [configmaps]\n  verbs: [get]\n{{- end }}\n";

#[test]
fn a_composition_beyond_the_bound_is_held_until_the_admin_allows_it() -> Result<()> {
    let scenario = Scenario::start("hold-composition")?;
    let chart = ChartFolder::copy("web", "keeper", "1.0.0")?;
    chart.write("templates/extra.yaml", EXTRA)?;
    chart.write("templates/role.yaml", ROLE)?;
    scenario.define("keeper", &chart.push(scenario.site())?, "1.0.0")?;
    let definition = scenario.wait_for("compositiondefinitions", "keeper", "Ready", "True")?;
    let bound = &definition["status"]["bound"];
    assert!(
        bound["unresolved"]
            .to_string()
            .contains("keeper/templates/extra.yaml:3: what is rendered depends on .Values.extra"),
        "{bound}"
    );
    assert_eq!(bound["hasRbac"], true);

    let compose = |name: &str, more: Value| {
        let mut spec = json!({"image": scenario.web_image()});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        scenario.apply(&json!({
            "apiVersion": "composition.krateo.io/v1-0-0",
            "kind": "Keeper",
            "metadata": {"name": name, "namespace": scenario.namespace(), "labels": {"krateo.io/release-name": name}},
            "spec": spec,
        }))
    };
    compose("within", json!({}))?;
    compose(
        "kinds",
        json!({"extra": [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "more"}}]}),
    )?;
    compose(
        "namespaces",
        json!({"extra": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more", "namespace": "default"}}]}),
    )?;
    compose("roles", json!({"role": true}))?;
    scenario.wait_for("keepers", "within", "Ready", "True")?;
    for (name, said) in [
        ("kinds", "krateo.io/allowed-kinds: serviceaccounts"),
        ("namespaces", "krateo.io/allowed-namespaces: default"),
        ("roles", "krateo.io/allow-chart-rbac: \\\"true\\\""),
    ] {
        let held = scenario.wait_for("keepers", name, "Synced", "False")?;
        let message = condition(&held, "Synced").unwrap()["message"].to_string();
        assert!(message.contains(said), "{message}");
        assert!(scenario.get("deployments", &format!("{name}-web"))?.is_none());
        println!("held: {message}");
    }

    scenario.kubectl(&[
        "annotate",
        "compositiondefinition",
        "keeper",
        "krateo.io/allowed-kinds=serviceaccounts",
        "krateo.io/allowed-namespaces=default",
        "krateo.io/allow-chart-rbac=true",
    ])?;
    for name in ["kinds", "namespaces", "roles"] {
        scenario.wait_for("keepers", name, "Ready", "True")?;
    }
    assert!(scenario.get("roles", "roles-reader")?.is_some());
    scenario.kubectl(&["delete", "keepers", "--all"])?;
    assert!(
        scenario
            .kubectl(&[
                "get",
                "configmap",
                "more",
                "--namespace",
                "default",
                "--ignore-not-found"
            ])?
            .is_empty()
    );
    Ok(())
}
