//! Why an entry cannot be in a grant: the API server would refuse it, or it would never count.

use std::sync::LazyLock;

use chart_bound::scan::Rule;
use crdgen::{CustomResourceDefinition, JSONSchemaProps};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaPropsOrArray;
use serde_json::Value;

/// The most verbs, groups or URLs of a rule, and the most resources or names; the schema of grants says the same.
const FEW: usize = 16;
const MANY: usize = 64;
/// The most entries of a section, and the most aggregation labels.
pub(super) const ENTRIES: usize = 64;
pub(super) const LABELS: usize = 16;

static SPEC: LazyLock<JSONSchemaProps> = LazyLock::new(|| {
    let CustomResourceDefinition { spec, .. } = api::grant::crd();
    let schema = spec
        .versions
        .into_iter()
        .next()
        .and_then(|version| version.schema);
    let whole = schema.and_then(|schema| schema.open_api_v3_schema);
    let spec = whole.and_then(|whole| whole.properties?.remove("spec"));
    spec.unwrap_or_default()
});

/// Why an entry of a section cannot be granted as it is; none if it can.
pub(super) fn refusal(section: &str, value: &Value) -> Option<String> {
    if has_unknown(value) {
        return Some("values decide what stands in the place of ?".to_owned());
    }
    let texts = |key: &str| {
        let list = value[key].as_array().into_iter().flatten();
        list.filter_map(Value::as_str)
    };
    if texts("resourceNames").any(|name| name.contains('*')) {
        return Some(
            "no grant says * in resourceNames; an entry without resourceNames covers it, for all names"
                .to_owned(),
        );
    }
    if section == "bindings" {
        let subjects = value["subjects"].as_array();
        if subjects.is_none_or(Vec::is_empty) {
            return Some("it gives the role to nobody, so there is nothing to consent to".to_owned());
        }
        let mut names = subjects
            .into_iter()
            .flatten()
            .filter_map(|one| one["name"].as_str());
        if let Some(name) = names.find(|name| name.starts_with("system:")) {
            return Some(format!(
                "{name} stands for many or for programs of Kubernetes, and is never granted anything"
            ));
        }
    }
    if section == "rules" {
        for (key, most) in [
            ("verbs", FEW),
            ("apiGroups", FEW),
            ("nonResourceURLs", FEW),
            ("resources", MANY),
            ("resourceNames", MANY),
        ] {
            let count = texts(key).count();
            if count > most {
                return Some(format!(
                    "its {count} {key} are more than the {most} of an entry, and several entries do not add up to a rule: \
                     the chart has to split it"
                ));
            }
        }
        if texts("resources")
            .chain(texts("nonResourceURLs"))
            .next()
            .is_none()
        {
            return Some("it is for no resource and no URL, so it allows nothing".to_owned());
        }
    }
    let list = SPEC.properties.as_ref()?.get(section)?.items.as_ref()?;
    match list {
        JSONSchemaPropsOrArray::Schema(schema) => crdgen::refusal(schema, value, section),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// True when an entry cannot hold the rule.
pub(super) fn is_too_long(rule: &Rule) -> bool {
    let names = rule.names.as_ref().map_or(0, std::collections::BTreeSet::len);
    [rule.verbs.len(), rule.groups.len(), rule.urls.len()]
        .into_iter()
        .any(|count| count > FEW)
        || rule.resources.len() > MANY
        || names > MANY
}

fn has_unknown(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('?'),
        Value::Array(list) => list.iter().any(has_unknown),
        Value::Object(map) => map.values().any(has_unknown),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_api_server_refuses_and_what_never_counts_has_a_reason() {
        let check = |section: &str, value: Value, part: &str| {
            let why = refusal(section, &value).unwrap_or_else(|| panic!("{value} fits"));
            assert!(why.contains(part), "{value}: {why}");
        };
        let rule = |key: &str, items: Value| {
            let mut rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
            rule[key] = items;
            rule
        };
        let many: Vec<String> = (0..70).map(|number| format!("a{number}")).collect();
        check("rules", rule("resourceNames", json!(["?"])), "values decide");
        check("rules", rule("resourceNames", json!(["*"])), "no grant says *");
        check("rules", rule("resources", json!(many)), "70 resources");
        check("rules", json!({"verbs": ["get"]}), "allows nothing");
        check("rules", rule("verbs", json!(["Get"])), "rules.verbs");
        let binding = |subjects: Value| json!({"kind": "RoleBinding", "name": "<release>-a", "roleRef": {"kind": "Role", "name": "a"}, "subjects": subjects});
        check("bindings", binding(json!([])), "nobody");
        check(
            "bindings",
            binding(json!([{"kind": "Group", "name": "system:authenticated"}])),
            "never granted",
        );
        let subjects: Vec<Value> = many
            .iter()
            .map(|name| json!({"kind": "ServiceAccount", "name": name}))
            .collect();
        check("bindings", binding(json!(subjects)), "bindings.subjects");
        let fitting = binding(json!([{"kind": "ServiceAccount", "name": "<release>-<namespace>"}]));
        assert_eq!(refusal("bindings", &fitting), None);
        assert_eq!(refusal("rules", &rule("resources", json!(["*"]))), None);
        assert_eq!(refusal("namespaces", &json!({"namespace": "kube-system"})), None);
    }
}
