//! Labels on compositions, on the objects of their releases and on the objects of a controller bundle.

/// On a composition: the API version that it is governed in, and so its controller. Set at admission.
pub const COMPOSITION_VERSION: &str = "krateo.io/composition-version";

/// On a composition: a fixed release name.
pub const RELEASE_NAME: &str = "krateo.io/release-name";

/// On a composition: name of the definition that supplied its chart.
pub const DEFINITION_NAME: &str = "krateo.io/composition-definition-name";

/// On a composition: namespace of the definition that supplied its chart.
pub const DEFINITION_NAMESPACE: &str = "krateo.io/composition-definition-namespace";

/// On a composition: API group of the definition that supplied its chart.
pub const DEFINITION_GROUP: &str = "krateo.io/composition-definition-group";

/// On a composition: API version of the definition that supplied its chart.
pub const DEFINITION_VERSION: &str = "krateo.io/composition-definition-version";

/// On a composition: plural resource name of the definition that supplied its chart.
pub const DEFINITION_RESOURCE: &str = "krateo.io/composition-definition-resource";

/// On Roles that allow reading a Secret, and their bindings: UID of the definition that names the Secret.
pub const DEFINITION_ID: &str = "krateo.io/composition-definition-id";

/// On rendered objects: UID of the composition.
pub const COMPOSITION_ID: &str = "krateo.io/composition-id";

/// On rendered objects: API group of the composition.
pub const COMPOSITION_GROUP: &str = "krateo.io/composition-group";

/// On rendered objects: API version of the composition, for example `v1-1-6`.
pub const COMPOSITION_INSTALLED_VERSION: &str = "krateo.io/composition-installed-version";

/// On rendered objects: plural resource name of the composition.
pub const COMPOSITION_RESOURCE: &str = "krateo.io/composition-resource";

/// On rendered objects: kind of the composition.
pub const COMPOSITION_KIND: &str = "krateo.io/composition-kind";

/// On rendered objects: name of the composition.
pub const COMPOSITION_NAME: &str = "krateo.io/composition-name";

/// On rendered objects: namespace of the composition.
pub const COMPOSITION_NAMESPACE: &str = "krateo.io/composition-namespace";

/// On rendered objects: the namespace of the platform itself.
pub const KRATEO_NAMESPACE: &str = "krateo.io/krateo-namespace";

/// On the objects of a controller's bundle: plural resource name of the type that the controller serves.
pub const CONTROLLER_RESOURCE: &str = "krateo.io/controller-resource";

/// On the objects of a controller's bundle: version of the type that the controller serves.
pub const CONTROLLER_VERSION: &str = "krateo.io/controller-version";

/// On the role that marks a controller: the namespace that the controller runs in.
pub const CONTROLLER_NAMESPACE: &str = "krateo.io/controller-namespace";

/// On the Leases by which the replicas of a controller share its compositions: name of the controller's bundle.
pub const SHARDS_OF: &str = "krateo.io/shards-of";

/// On a generated type: its own plural resource name, so that all generated types can be selected.
pub const COMPOSITION_TYPE: &str = "krateo.io/composition-type";

/// Longest value the API server accepts for a label, in bytes.
pub const MAX_VALUE_LENGTH: usize = 63;

/// Turns `text` into a valid label value that still distinguishes long texts.
///
/// A valid text is returned unchanged. Otherwise invalid characters become `-`, and a hash of the whole text replaces
/// the end, so that names that differ only there get different labels.
pub fn value(text: &str) -> String {
    if is_legal_value(text) {
        return text.to_owned();
    }
    let kept: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
                c
            } else {
                '-'
            }
        })
        .take(MAX_VALUE_LENGTH - 1 - HASH_DIGITS)
        .collect();
    let kept = kept.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let hash = format!("{:08x}", fnv1_32(text.as_bytes()));
    if kept.is_empty() {
        hash
    } else {
        format!("{kept}-{hash}")
    }
}

const HASH_DIGITS: usize = 8;

fn is_legal_value(text: &str) -> bool {
    let ends_well = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= MAX_VALUE_LENGTH
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && ends_well(text.chars().next())
        && ends_well(text.chars().last())
}

/// 32-bit FNV-1: not for secrecy, only a short way to distinguish texts.
fn fnv1_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legal_label_value_is_left_alone() {
        for text in ["", "a", "v1-1-6", "fireworksapps", &"x".repeat(63)] {
            assert_eq!(value(text), text);
        }
    }

    #[test]
    fn an_illegal_label_value_becomes_legal_and_stays_distinct() {
        let long_a = format!("{}a", "x".repeat(70));
        let long_b = format!("{}b", "x".repeat(70));
        for text in [long_a.as_str(), "-a-", "a/b", "ü", "system:serviceaccount"] {
            let made = value(text);
            assert!(is_legal_value(&made), "{text} became {made}");
        }
        assert_ne!(value(&long_a), value(&long_b));
    }
}
