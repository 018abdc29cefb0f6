//! Label selectors in the syntax of `helm list --selector`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

/// One requirement: a key, whether it must be equal or unequal, and a value.
pub(super) type Requirement = (String, bool, String);

/// `a=b,c!=d`.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>> {
    let requirement = |part: &str| {
        let (key, value, equal) = match (part.split_once("!="), part.split_once("=="), part.split_once('=')) {
            (Some((key, value)), ..) => (key, value, false),
            (None, Some((key, value)), _) | (None, None, Some((key, value))) => (key, value, true),
            (None, None, None) => bail!("invalid --selector {part:?}: write key=value or key!=value"),
        };
        Ok((key.trim().to_owned(), equal, value.trim().to_owned()))
    };
    text.split(',')
        .filter(|part| !part.trim().is_empty())
        .map(requirement)
        .collect()
}

/// Whether labels satisfy all requirements.
pub(super) fn fits(selector: &[Requirement], labels: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, equal, value)| (labels.get(key) == Some(value)) == *equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_selected() {
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        for (selector, expected) in [
            ("team=a", true),
            ("team==b", false),
            ("team!=b,tier!=x", true),
            ("tier=x", false),
        ] {
            assert_eq!(fits(&parse(selector).unwrap(), &labels), expected, "{selector}");
        }
        assert!(parse("team").is_err());
    }
}
