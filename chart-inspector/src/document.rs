//! The OpenAPI document of the service, and a page that shows it.

use axum::Router;
use axum::http::header;
use axum::response::{Html, IntoResponse, Redirect};
use axum::routing::get;

const DOCUMENT: &str = include_str!("openapi.json");
/// Shows the document without loading anything from the internet, which a cluster may not reach.
const PAGE: &str = include_str!("swagger.html");

/// `/swagger/` and the document below it.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new()
        .route("/swagger", get(|| async { Redirect::permanent("/swagger/") }))
        .route("/swagger/", get(|| async { Html(PAGE) }))
        .route("/swagger/index.html", get(|| async { Html(PAGE) }))
        .route("/swagger/doc.json", get(document))
}

async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api::inspection::{Query, Resource, Verb};
    use serde_json::{Value, json};

    use super::*;

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    fn keys(object: &Value) -> BTreeSet<String> {
        object.as_object().unwrap().keys().cloned().collect()
    }

    #[test]
    fn the_parameters_are_those_of_the_query() {
        let parameters = document()["paths"]["/resources"]["get"]["parameters"].clone();
        let named = |required: bool| -> BTreeSet<String> {
            let parameters = parameters.as_array().unwrap().iter();
            parameters
                .filter(|parameter| parameter["required"].as_bool().unwrap_or(false) == required)
                .map(|parameter| parameter["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let required = json!(
            named(true)
                .into_iter()
                .map(|name| (name, "x".to_owned()))
                .collect::<std::collections::BTreeMap<_, _>>()
        );
        let query: Query = serde_json::from_value(required.clone()).unwrap();
        for name in named(true) {
            let mut lacking = required.clone();
            lacking.as_object_mut().unwrap().remove(&name);
            assert!(
                serde_json::from_value::<Query>(lacking).is_err(),
                "{name} is not required"
            );
        }
        let full = Query {
            release_name: Some("r".to_owned()),
            composition_definition_resource_version: Some("1".to_owned()),
            composition_resource_version: Some("1".to_owned()),
            ..query
        };
        let all: BTreeSet<String> = named(true).union(&named(false)).cloned().collect();
        assert_eq!(keys(&serde_json::to_value(full).unwrap()), all);
    }

    #[test]
    fn the_answer_is_described_with_all_its_fields() {
        let mut resource = Resource::new("g", "v", "r", "n", "o", &[Verb::Get]);
        resource.path = Some("templates/a.yaml".to_owned());
        resource.order = Some(0);
        let described = &document()["components"]["schemas"]["Resource"];
        assert_eq!(
            keys(&described["properties"]),
            keys(&serde_json::to_value(resource).unwrap())
        );
        let verbs = described["properties"]["verbs"]["items"]["enum"].clone();
        let verbs: Vec<Verb> = serde_json::from_value(verbs).unwrap();
        assert_eq!(verbs.len(), 7);
    }
}
