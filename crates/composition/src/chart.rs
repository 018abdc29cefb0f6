//! The chart that a definition points at.

use api::CompositionDefinition;
use helm::origin::{ChartSpec, CredentialsSpec, SecretKey};

/// Where the chart of a definition comes from.
pub fn chart_spec(definition: &CompositionDefinition) -> ChartSpec {
    let chart = &definition.spec.chart;
    ChartSpec {
        url: chart.url.clone(),
        repo: chart.repo.clone(),
        version: chart.version.clone(),
        plain_http: chart.plain_http.unwrap_or_default(),
        insecure_skip_verify: chart.insecure_skip_verify_tls.unwrap_or_default(),
        credentials: chart.credentials.as_ref().map(|credentials| CredentialsSpec {
            username: credentials.username.clone(),
            password: SecretKey {
                namespace: credentials.password_ref.namespace.clone(),
                name: credentials.password_ref.name.clone(),
                key: credentials.password_ref.key.clone(),
            },
        }),
        ..ChartSpec::default()
    }
}

/// True when the definition's chart has become the type with this kind and API version.
pub fn serves(definition: &CompositionDefinition, api_version: &str, kind: &str) -> bool {
    definition.status.as_ref().is_some_and(|status| {
        status.api_version.as_deref() == Some(api_version) && status.kind.as_deref() == Some(kind)
    })
}
