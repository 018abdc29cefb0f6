//! The schema of an installer's values, with the part for `componentValues` regenerated.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

/// The property that contains the components' schemas.
const COMPONENT_VALUES: &str = "componentValues";

/// The schemas of all components by name.
#[derive(Debug, Default)]
pub(super) struct Values(Map<String, Value>);

impl Values {
    /// Adds a component's schema.
    pub(super) fn insert(&mut self, name: &str, schema: Value) {
        self.0.insert(name.to_owned(), schema);
    }

    /// Adds a component whose schema is not known.
    pub(super) fn insert_open(&mut self, name: &str, chart: &str, version: &str) {
        let description = format!("Values of chart {chart} {version}, whose schema is not known.");
        self.insert(
            name,
            json!({"description": description, "type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        );
    }

    /// The previous document with these schemas in it: the same input gives the same text.
    ///
    /// # Errors
    /// If the previous document is not a JSON object.
    pub(super) fn text(self, before: Option<&str>) -> Result<String> {
        let mut document: Map<String, Value> = match before {
            Some(text) => serde_json::from_str(text).context("it is not a JSON object")?,
            None => Map::from_iter([
                (
                    "$schema".to_owned(),
                    json!("http://json-schema.org/draft-07/schema#"),
                ),
                ("type".to_owned(), json!("object")),
            ]),
        };
        let properties = document.entry("properties").or_insert_with(|| json!({}));
        let properties = properties
            .as_object_mut()
            .context("its properties are not an object")?;
        let component_values = properties.entry(COMPONENT_VALUES).or_insert_with(|| json!({}));
        let component_values = component_values
            .as_object_mut()
            .context("its properties.componentValues is not an object")?;
        component_values.insert("type".to_owned(), json!("object"));
        component_values.insert("additionalProperties".to_owned(), json!(false));
        component_values.insert("properties".to_owned(), Value::Object(self.0));
        let text = serde_json::to_string_pretty(&document).context("it cannot be written")?;
        Ok(format!("{text}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_the_component_values_stays() {
        let before = r#"{"$schema": "x", "properties": {"ociRepo": {"type": "string"}, "componentValues": {
            "description": "d", "properties": {"gone": {}}}}}"#;
        let mut values = Values::default();
        values.insert("b", json!({"type": "object"}));
        values.insert_open("a", "a", "1.0.0");
        let text = values.text(Some(before)).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["properties"]["ociRepo"], json!({"type": "string"}));
        let component_values = &document["properties"]["componentValues"];
        assert_eq!(component_values["description"], "d");
        assert_eq!(component_values["additionalProperties"], false);
        let names: Vec<_> = component_values["properties"]
            .as_object()
            .unwrap()
            .keys()
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert!(Values::default().text(Some("[]")).is_err());
        assert!(text.ends_with("}\n"));
    }
}
