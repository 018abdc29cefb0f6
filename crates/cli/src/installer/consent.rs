//! The admin's consent in an installer's values, for review: the same list as in the annotation
//! `krateo.io/allowed-definitions` of the definition `installer`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::components::{Allow, Component, List};

/// One definition that an installer's controller may write, and what that definition may be allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Consent {
    // In alphabetical order, like in the annotation.
    /// Annotations with their values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
    /// `spec.chart.digest`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) digest: String,
    /// `spec.chart.insecureSkipVerifyTLS`.
    #[serde(rename = "insecureSkipVerifyTLS", skip_serializing_if = "is_off")]
    pub(super) insecure_skip_verify_tls: bool,
    /// The kind that its chart becomes.
    pub(super) kind: String,
    /// Name of the definition.
    pub(super) name: String,
    /// Its namespace.
    pub(super) namespace: String,
    /// `spec.chart.plainHTTP`.
    #[serde(rename = "plainHTTP", skip_serializing_if = "is_off")]
    pub(super) plain_http: bool,
    /// `spec.chart.repo`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) repo: String,
    /// `spec.chart.url`.
    pub(super) url: String,
    /// `spec.chart.version`.
    pub(super) version: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
fn is_off(flag: &bool) -> bool {
    !flag
}

/// One entry per component, in the order of the list. Components with nothing to allow and components whose feature is
/// off have one, too, because the entry also lets the Installer's releases use the component's kind.
pub(super) fn of(list: &List) -> Vec<Consent> {
    let consent = |component: &Component| Consent {
        annotations: component
            .allow
            .as_ref()
            .map(Allow::annotations)
            .unwrap_or_default(),
        digest: component.digest.clone(),
        insecure_skip_verify_tls: list.insecure_skip_tls_verify,
        kind: component.kind.clone(),
        name: component.name.clone(),
        namespace: list.namespace.clone(),
        plain_http: list.plain_http,
        repo: component.chart_repo.clone(),
        url: list.url(component),
        version: component.version.clone(),
    };
    list.components.iter().map(consent).collect()
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
                r#"{"kind":"Plain","name":"plain","namespace":"krateo-system","url":"oci://registry.example/charts/plain","#,
                r#""version":"1.0.0"},"#,
                r#"{"annotations":{"krateo.io/allow-chart-rbac":"true"},"kind":"Kagent","name":"kagent","namespace":"krateo-system","#,
                r#""repo":"kagent","url":"https://charts.example/agents","version":"0.9.9"}]"#
            )
        );
    }
}
