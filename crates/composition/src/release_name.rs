//! The name of a composition's release.

use std::fmt;

use api::{Composition, annotations, labels};

/// The name of a Helm release: valid for Helm, at most 53 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReleaseName(String);

/// Helm's own limit: it leaves the rest of a name's 63 bytes to the chart's suffixes.
pub const MAX_LENGTH: usize = 53;

/// A text that is not a valid release name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidReleaseName {
    /// Too long for Helm.
    #[error(
        "release name {0:?} has {len} characters, Helm allows {MAX_LENGTH}: shorten the composition's name or set the label {label}",
        len = .0.len(),
        label = labels::RELEASE_NAME
    )]
    TooLong(String),
    /// Not a name at all.
    #[error(
        "release name {0:?} is not allowed: use lower-case letters, digits, '-' and '.', and begin and end with a letter or digit"
    )]
    Illegal(String),
}

impl ReleaseName {
    /// Checks a text.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidReleaseName> {
        let text = text.into();
        if text.len() > MAX_LENGTH {
            return Err(InvalidReleaseName::TooLong(text));
        }
        let legal = |label: &str| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        if !text.split('.').all(legal) {
            return Err(InvalidReleaseName::Illegal(text));
        }
        Ok(Self(text))
    }

    /// The release name of a composition.
    ///
    /// The first that applies: the composition's label, its annotation, the name chosen earlier, the annotation of
    /// its definition (the caller passes it only when that definition governs this composition alone), the default.
    /// The default is the composition's name and, when `safe`, eight characters of its UID, so that an object that is
    /// deleted and recreated does not take over the release of its predecessor.
    pub fn of(
        composition: &Composition,
        of_definition: Option<&str>,
        safe: bool,
    ) -> Result<Self, InvalidReleaseName> {
        match chosen(composition).or(earlier(composition)).or(of_definition) {
            Some(name) => Self::new(name),
            None if safe => Self::new(format!("{}-{}", composition.name, safe_encode(&composition.uid))),
            None => Self::new(composition.name.clone()),
        }
    }

    /// True when nobody chose the name, now or earlier, and it is made of the composition's UID: no other
    /// composition's release can have it.
    pub fn is_of_uid(composition: &Composition, of_definition: Option<&str>, safe: bool) -> bool {
        safe && !Self::is_chosen(composition) && of_definition.is_none()
    }

    /// True when the composition itself fixes the release's name: its user chose it, or an earlier pass did. The
    /// definition's annotation no longer matters then.
    pub fn is_chosen(composition: &Composition) -> bool {
        chosen(composition).or(earlier(composition)).is_some()
    }

    /// True while the definition can still set the name: nobody chose it, and no pass has begun.
    pub fn is_open(composition: &Composition) -> bool {
        !composition.deleting && !composition.is_held() && !Self::is_chosen(composition)
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name that the composition's user chose.
fn chosen(composition: &Composition) -> Option<&str> {
    let label = composition.labels.get(labels::RELEASE_NAME);
    let chosen = label.or_else(|| composition.annotations.get(annotations::RELEASE_NAME));
    chosen.map(String::as_str)
}

/// The name that an earlier pass chose.
fn earlier(composition: &Composition) -> Option<&str> {
    composition.status.release_name.as_deref()
}

impl fmt::Display for ReleaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The alphabet of `k8s.io/apimachinery/pkg/util/rand`: no vowels, no characters that look alike, so that
/// no word comes out by accident.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// The first eight bytes of `uid`, each mapped into [`ALPHABET`], as `rand.SafeEncodeString` does.
fn safe_encode(uid: &str) -> String {
    uid.bytes()
        .take(8)
        .map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::composition;

    #[test]
    fn a_release_name_is_checked_as_helm_does() {
        for good in ["a", "web-1", "a.b", &"x".repeat(53)] {
            assert_eq!(ReleaseName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b", &"x".repeat(54)] {
            assert!(ReleaseName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_label_wins_over_the_annotation_over_the_name_so_far_over_the_definition_over_the_default() {
        let check = |composition: &Composition, of_definition, expected: &str| {
            assert_eq!(
                ReleaseName::of(composition, of_definition, true)
                    .unwrap()
                    .as_str(),
                expected
            );
        };
        let mut composition = composition();
        // The same eight characters as rand.SafeEncodeString("8f4f3c1e") of apimachinery 0.36 prints.
        check(&composition, None, "web-d4847x52");
        check(&composition, Some("from-definition"), "from-definition");
        composition.status.release_name = Some("kept".into());
        check(&composition, None, "kept");
        // An existing release is not renamed without its user's consent.
        check(&composition, Some("from-definition"), "kept");
        composition
            .annotations
            .insert(annotations::RELEASE_NAME.into(), "from-annotation".into());
        check(&composition, Some("from-definition"), "from-annotation");
        composition
            .labels
            .insert(labels::RELEASE_NAME.into(), "from-label".into());
        check(&composition, Some("from-definition"), "from-label");
    }

    #[test]
    fn only_a_name_that_nobody_chose_is_of_the_uid() {
        let mut composition = composition();
        let is_of_uid = |composition: &Composition, safe| ReleaseName::is_of_uid(composition, None, safe);
        assert!(is_of_uid(&composition, true));
        assert!(!is_of_uid(&composition, false));
        assert!(!ReleaseName::is_of_uid(
            &composition,
            Some("from-definition"),
            true
        ));
        composition
            .labels
            .insert(labels::RELEASE_NAME.into(), "fixed".into());
        assert!(!is_of_uid(&composition, true));
    }

    #[test]
    fn without_safe_names_the_composition_names_the_release() {
        assert_eq!(
            ReleaseName::of(&composition(), None, false).unwrap().as_str(),
            "web"
        );
    }
}
