//! The chart that a definition points at.

use api::definition::{ChartCoordinates, ChartSource, SecretItemRef, Verification};
use api::{COMPOSITION_GROUP, CompositionDefinition};
use helm::origin::{ChartSpec, ClientCertSpec, CredentialsSpec, SecretKey, VerifySpec};
use kube::ResourceExt as _;

/// The chart of a definition: with the resolved version and digest once those are known.
pub fn chart_spec(definition: &CompositionDefinition) -> ChartSpec {
    let written = written_chart(definition);
    let resolved = definition
        .status
        .as_ref()
        .and_then(|status| status.chart.as_ref());
    match resolved {
        Some(chart) => written.pinned(Some(chart.version.clone()), chart.digest.clone()),
        None => written,
    }
}

/// The chart of a definition as written in its spec, where the version may be a range.
pub fn written_chart(definition: &CompositionDefinition) -> ChartSpec {
    let own = definition.namespace().unwrap_or_default();
    let ChartSource {
        url,
        version,
        repo,
        digest,
        insecure_skip_verify_tls,
        plain_http,
        ca_bundle_ref,
        client_cert_ref,
        credentials,
        docker_config_ref,
        verify,
    } = &definition.spec.chart;
    ChartSpec {
        url: url.clone(),
        repo: repo.clone(),
        version: version.clone(),
        digest: digest.clone(),
        plain_http: plain_http.unwrap_or_default(),
        insecure_skip_verify: insecure_skip_verify_tls.unwrap_or_default(),
        credentials: credentials.as_ref().map(|credentials| CredentialsSpec {
            username: credentials.username.clone(),
            password: SecretKey {
                namespace: credentials.password_ref.namespace.clone(),
                name: credentials.password_ref.name.clone(),
                key: credentials.password_ref.key.clone(),
            },
        }),
        docker_config: docker_config_ref
            .as_ref()
            .map(|item| secret_key(item, &own, ".dockerconfigjson")),
        ca_bundle: ca_bundle_ref
            .as_ref()
            .map(|item| secret_key(item, &own, "ca.crt")),
        client_cert: client_cert_ref.as_ref().map(|secret| ClientCertSpec {
            namespace: secret.namespace.clone().unwrap_or_else(|| own.clone()),
            name: secret.name.clone(),
        }),
        verify: verify.as_ref().and_then(|verify| signature(verify, &own)),
        namespace: Some(own),
    }
}

fn signature(verify: &Verification, own: &str) -> Option<VerifySpec> {
    let Verification {
        keyring_ref,
        cosign_key_ref,
    } = verify;
    let keyring = keyring_ref
        .as_ref()
        .map(|item| VerifySpec::Keyring(secret_key(item, own, "keyring.gpg")));
    let cosign = || {
        cosign_key_ref
            .as_ref()
            .map(|item| VerifySpec::CosignKey(secret_key(item, own, "cosign.pub")))
    };
    keyring.or_else(cosign)
}

fn secret_key(item: &SecretItemRef, own: &str, usual: &str) -> SecretKey {
    let SecretItemRef { name, namespace, key } = item;
    SecretKey {
        namespace: namespace.clone().unwrap_or_else(|| own.to_owned()),
        name: name.clone(),
        key: key.clone().unwrap_or_else(|| usual.to_owned()),
    }
}

/// True when the definition's chart was turned into the type with this kind and API version.
pub fn serves(definition: &CompositionDefinition, api_version: &str, kind: &str) -> bool {
    definition.status.as_ref().is_some_and(|status| {
        status.api_version.as_deref() == Some(api_version) && status.kind.as_deref() == Some(kind)
    })
}

/// True when the definition serves the type, or did so before it moved on to another version of its chart.
///
/// During the move, it still governs the compositions of the previous version.
pub fn has_served(definition: &CompositionDefinition, api_version: &str, kind: &str) -> bool {
    serves(definition, api_version, kind) || served_chart(definition, api_version, kind).is_some()
}

/// The chart that a version of the definition's type was generated from. A definition that moves on to another
/// version of its chart still has compositions of the previous one until they have moved.
pub fn chart_of(definition: &CompositionDefinition, api_version: &str, kind: &str) -> ChartSpec {
    let present = chart_spec(definition);
    let Some(chart) = served_chart(definition, api_version, kind) else {
        return present;
    };
    let is_present = chart.version == present.version;
    ChartSpec {
        url: chart.url.clone(),
        repo: chart.repo.clone(),
        digest: if is_present {
            present.digest
        } else {
            chart.digest.clone()
        },
        version: chart.version.clone(),
        ..present
    }
}

fn served_chart<'d>(
    definition: &'d CompositionDefinition,
    api_version: &str,
    kind: &str,
) -> Option<&'d ChartCoordinates> {
    let version = api_version.strip_prefix(COMPOSITION_GROUP)?.strip_prefix('/')?;
    let managed = definition.status.as_ref()?.managed.as_ref()?;
    let known = managed.version_info.iter().find(|info| info.version == version)?;
    known.chart.as_ref().filter(|_| managed.kind == kind)
}

#[cfg(test)]
mod tests {
    use api::definition::{ManagedType, ResolvedChart, SecretRef, VersionInfo};
    use api::{CompositionDefinitionSpec, CompositionDefinitionStatus};

    use super::*;

    fn definition(chart: ChartSource) -> CompositionDefinition {
        let mut definition = CompositionDefinition::new("web", CompositionDefinitionSpec { chart });
        definition.metadata.namespace = Some("team".into());
        definition
    }

    fn item(name: &str) -> SecretItemRef {
        SecretItemRef {
            name: name.into(),
            namespace: None,
            key: None,
        }
    }

    #[test]
    fn a_secret_is_of_the_definitions_namespace_and_has_the_usual_keys_unless_the_spec_says_more() {
        let chart = ChartSource {
            ca_bundle_ref: Some(item("ca")),
            docker_config_ref: Some(SecretItemRef {
                namespace: Some("vault".into()),
                key: Some("config".into()),
                ..item("docker")
            }),
            client_cert_ref: Some(SecretRef {
                name: "client".into(),
                namespace: None,
            }),
            verify: Some(Verification {
                keyring_ref: None,
                cosign_key_ref: Some(item("cosign")),
            }),
            ..ChartSource::default()
        };
        let spec = chart_spec(&definition(chart));
        let keys: Vec<_> = spec
            .secret_keys()
            .iter()
            .map(|key| format!("{key} {}", key.key))
            .collect();
        assert_eq!(
            keys,
            [
                "vault/docker config",
                "team/ca ca.crt",
                "team/cosign cosign.pub",
                "team/client tls.crt",
                "team/client tls.key",
            ]
        );
        assert_eq!(spec.namespace.as_deref(), Some("team"));
    }

    #[test]
    fn a_version_keeps_its_content_when_the_definition_moves_on() {
        let resolved = |version: &str, digest: &str| ResolvedChart {
            observed_generation: 1,
            version: version.into(),
            digest: digest.into(),
            offered: None,
        };
        let mut definition = definition(ChartSource {
            url: "oci://charts/web".into(),
            version: Some("^1".into()),
            ..ChartSource::default()
        });
        definition.status = Some(CompositionDefinitionStatus {
            chart: Some(resolved("1.0.0", "sha256:00")),
            managed: Some(ManagedType {
                group: COMPOSITION_GROUP.into(),
                kind: "Web".into(),
                version_info: vec![VersionInfo {
                    version: "v1-0-0".into(),
                    served: true,
                    stored: false,
                    chart: Some(ChartCoordinates {
                        url: "oci://charts/web".into(),
                        version: Some("1.0.0".into()),
                        repo: None,
                        digest: Some("sha256:00".into()),
                    }),
                }],
            }),
            ..CompositionDefinitionStatus::default()
        });
        let of_former = |definition: &_| chart_of(definition, "composition.krateo.io/v1-0-0", "Web");
        let before = of_former(&definition);
        assert_eq!(before.digest.as_deref(), Some("sha256:00"));
        let status = definition.status.get_or_insert_default();
        status.chart = Some(resolved("1.1.0", "sha256:11"));
        assert_eq!(of_former(&definition), before);
    }

    #[test]
    fn what_a_range_was_found_to_stand_for_is_what_is_fetched() {
        let mut definition = definition(ChartSource {
            version: Some("^1".into()),
            ..ChartSource::default()
        });
        assert_eq!(chart_spec(&definition).version.as_deref(), Some("^1"));
        definition.status = Some(CompositionDefinitionStatus {
            chart: Some(ResolvedChart {
                observed_generation: 1,
                version: "1.4.0".into(),
                digest: "sha256:00".into(),
                offered: None,
            }),
            ..CompositionDefinitionStatus::default()
        });
        let spec = chart_spec(&definition);
        assert_eq!(
            (spec.version.as_deref(), spec.digest.as_deref()),
            (Some("1.4.0"), Some("sha256:00"))
        );
        assert_eq!(written_chart(&definition).version.as_deref(), Some("^1"));
    }
}
