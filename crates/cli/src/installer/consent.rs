//! The admin's consent in the values of an installer, for review: the same that the definition `installer` carries.

use std::collections::BTreeMap;

use serde::Serialize;

use super::components::{Component, List};

/// What the controller of an installer may write on one component's definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Consent {
    // In the order of letters, which is how the annotation has them.
    /// Annotations with their values.
    pub(super) annotations: BTreeMap<String, String>,
    /// The kind that its chart becomes.
    pub(super) kind: String,
    /// Name of the definition.
    pub(super) name: String,
    /// Its namespace.
    pub(super) namespace: String,
    /// `spec.chart.repo`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) repo: String,
    /// `spec.chart.url`.
    pub(super) url: String,
    /// `spec.chart.version`.
    pub(super) version: String,
}

/// One for each component that has `allow`, in the order of the list.
pub(super) fn of(list: &List) -> Vec<Consent> {
    let allowing = |component: &Component| {
        let allow = component.allow.as_ref()?;
        Some(Consent {
            annotations: allow.annotations(),
            kind: component.kind.clone(),
            name: component.name.clone(),
            namespace: list.namespace.clone(),
            repo: component.chart_repo.clone(),
            url: list.url(component),
            version: component.version.clone(),
        })
    };
    list.components.iter().filter_map(allowing).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn consent_names_the_definition_the_chart_and_the_annotations() {
        let values = json!({"ociRepo": "oci://registry.example/charts", "components": [
            {"name": "authn", "kind": "Authn", "version": "0.22.2", "tier": "platform",
             "allow": {"kinds": ["apps/deployments"]}},
            {"name": "plain", "kind": "Plain", "version": "1.0.0", "tier": "platform"},
            {"name": "kagent", "kind": "Kagent", "version": "0.9.9", "tier": "platform", "repo": "https://charts.example",
             "chart": "agents", "chartRepo": "kagent", "allow": {"chartRBAC": true}},
        ]});
        let (list, faults) = List::read(values.as_object().unwrap());
        assert_eq!(faults, [""; 0]);
        assert_eq!(
            serde_json::to_string(&of(&list)).unwrap(),
            concat!(
                r#"[{"annotations":{"krateo.io/allowed-kinds":"apps/deployments"},"kind":"Authn","name":"authn","#,
                r#""namespace":"krateo-system","url":"oci://registry.example/charts/authn","version":"0.22.2"},"#,
                r#"{"annotations":{"krateo.io/allow-chart-rbac":"true"},"kind":"Kagent","name":"kagent","namespace":"krateo-system","#,
                r#""repo":"kagent","url":"https://charts.example/agents","version":"0.9.9"}]"#
            )
        );
    }
}
