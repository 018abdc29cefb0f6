//! Names composed of other names, within the limits of Helm and Kubernetes.

use api::mesh::annotations::FINGERPRINT;
use sha2::{Digest as _, Sha256};

use helm::digest::hex;

/// Helm's limit for the name of a release, which becomes part of the names of objects.
const LONGEST_RELEASE: usize = 53;

/// The longest name after the slash of an annotation.
const LONGEST_ANNOTATION: usize = 63;

/// The number of digits that distinguish names with the same beginning.
const DIGITS: usize = 8;

/// The release of a tenant on a cluster.
pub(crate) fn tenant_release(tenant: &str, cluster: &str) -> String {
    within(&format!("tenant-{tenant}-{cluster}"), LONGEST_RELEASE)
}

/// The release of a deployment.
pub(crate) fn deployment_release(deployment: &str) -> String {
    within(&format!("ced-{deployment}"), LONGEST_RELEASE)
}

/// The annotation with the fingerprint of what is installed on a cluster.
pub(crate) fn fingerprint_annotation(cluster: &str) -> String {
    let prefix = FINGERPRINT
        .find('/')
        .map_or(0, |slash| FINGERPRINT.len() - slash - 1);
    format!("{FINGERPRINT}{}", within(cluster, LONGEST_ANNOTATION - prefix))
}

/// The type of a condition about a cluster.
pub(crate) fn condition(kind: &str, cluster: &str) -> String {
    format!("{kind}/{cluster}")
}

/// The name itself, or its beginning and a digest of the whole if it is too long.
fn within(name: &str, limit: usize) -> String {
    if name.len() <= limit {
        return name.to_owned();
    }
    let kept = &name[..name.floor_char_boundary(limit - 1 - DIGITS)];
    let digest = hex(&Sha256::digest(name));
    format!("{}-{}", kept.trim_end_matches(['-', '.', '_']), &digest[..DIGITS])
}

/// Why a name cannot be used as a target namespace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoTarget {
    #[error(
        "{0} cannot be the name of a namespace, which is that of the object: lower-case letters, digits and hyphens, 63 at most"
    )]
    NoName(String),
    #[error("namespace {0} is Kubernetes' own and refused as a target: choose another name for the object")]
    Reserved(String),
}

/// The namespace of that name, if it may contain releases.
///
/// # Errors
/// If the name is invalid, or one of Kubernetes' own.
pub(crate) fn target_namespace(name: &str) -> Result<&str, NoTarget> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = !name.is_empty()
        && name.len() <= 63
        && name.chars().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-');
    if !is_name {
        return Err(NoTarget::NoName(name.to_owned()));
    }
    if name == "default" || name.starts_with("kube-") {
        return Err(NoTarget::Reserved(name.to_owned()));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_as_the_reference_has_them() {
        assert_eq!(
            tenant_release("acme", "demo-remote-1"),
            "tenant-acme-demo-remote-1"
        );
        assert_eq!(deployment_release("payments"), "ced-payments");
        assert_eq!(
            fingerprint_annotation("demo-remote-1"),
            "mesh.openkcm.io/fingerprint-demo-remote-1"
        );
        assert_eq!(
            condition("ClusterReady", "self-cluster"),
            "ClusterReady/self-cluster"
        );
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let long = "x".repeat(60);
        for name in [
            tenant_release(&long, "a"),
            tenant_release("a", &long),
            deployment_release(&long),
        ] {
            assert_eq!(name.len(), LONGEST_RELEASE, "{name}");
        }
        assert_ne!(tenant_release(&long, "a"), tenant_release(&long, "b"));
        // The longest possible name, and one character more.
        assert_eq!(tenant_release(&"x".repeat(44), "a").len(), 53);
        assert!(!tenant_release(&"x".repeat(44), "a").contains("-a-"));
        assert_eq!(
            fingerprint_annotation(&"c".repeat(51)),
            format!("{FINGERPRINT}{}", "c".repeat(51))
        );
        let cut = fingerprint_annotation(&"c".repeat(52));
        assert_eq!(cut.split_once('/').map(|(_, name)| name.len()), Some(63));
        // Helm and Kubernetes allow no hyphen or dot right before the digest.
        let awkward = format!("{}.-.{}", "y".repeat(34), "z".repeat(40));
        let made = tenant_release(&awkward, "c");
        assert!(!made.contains(".-") && made.len() <= 53, "{made}");
    }

    #[test]
    fn namespaces_of_kubernetes_are_no_targets() {
        assert_eq!(target_namespace("acme"), Ok("acme"));
        for reserved in ["default", "kube-system", "kube-anything"] {
            assert_eq!(
                target_namespace(reserved),
                Err(NoTarget::Reserved(reserved.to_owned()))
            );
        }
        for wrong in ["a.b", "", "-a", "a-", "A", &"x".repeat(64)] {
            assert_eq!(target_namespace(wrong), Err(NoTarget::NoName(wrong.to_owned())));
        }
    }
}
