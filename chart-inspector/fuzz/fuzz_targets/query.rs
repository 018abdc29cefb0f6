//! Parses any text as the query of a request: the path sent to the API server is always that of one object.
#![no_main]

use api::inspection::Query;
use axum::extract;
use axum::http::Uri;
use cluster::{ObjectId, ResourceId};
use composition::ReleaseName;
use k8s_openapi::api::core::v1::ConfigMap;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(uri) = format!("/resources?{text}").parse::<Uri>() else { return };
    let Ok(extract::Query(query)) = extract::Query::<Query>::try_from_uri(&uri) else { return };
    if let Some(name) = &query.release_name {
        drop(ReleaseName::new(name));
    }
    let names = [
        (&query.composition_namespace, &query.composition_name),
        (&query.composition_definition_namespace, &query.composition_definition_name),
    ];
    for (namespace, name) in names {
        let Ok(id) = ObjectId::new(ResourceId::of::<ConfigMap>(), Some(namespace), name) else { continue };
        let path = id.path();
        assert!(!path.contains(['?', '#', ' ']), "{path}");
        let segments: Vec<&str> = path.split('/').collect();
        assert_eq!(segments.len(), 7, "{path}");
        assert_eq!(segments[..4], ["", "api", "v1", "namespaces"], "{path}");
        assert_eq!(segments[5], "configmaps", "{path}");
        assert!(!segments.iter().any(|segment| matches!(*segment, "." | "..")), "{path}");
    }
});
