//! Picks the wanted version from those that a source has, by the rules of Masterminds/semver and Helm.

use std::cmp::Reverse;

use helm::semver::{Constraint, Version};

/// Which version of a chart is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VersionReq {
    /// The newest that is not a pre-release.
    Newest,
    /// The one that is written exactly like this; otherwise the newest that matches it as a range.
    Given(String),
}

impl VersionReq {
    /// Nothing or `latest` means the newest.
    pub(super) fn parse(version: Option<String>) -> Self {
        match version {
            Some(version) if version != "latest" => Self::Given(version),
            _ => Self::Newest,
        }
    }

    /// The index of the wanted one in `versions`. Pre-releases only match a range that names one.
    pub(super) fn choose(&self, versions: &[&str]) -> Option<usize> {
        let constraint = match self {
            Self::Newest => Constraint::parse("*").ok()?,
            Self::Given(text) => {
                if let Some(exact) = versions.iter().position(|version| version == text) {
                    return Some(exact);
                }
                Constraint::parse(text).ok()?
            }
        };
        // Of equal versions, which differ only in metadata, the first one listed is taken.
        parsed(versions)
            .into_iter()
            .filter(|(version, _)| constraint.check(version))
            .max_by_key(|(version, position)| (version.clone(), Reverse(*position)))
            .map(|(_, position)| position)
    }

    /// The text for errors.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Newest => "stable version".to_owned(),
            Self::Given(text) if Version::parse(text).is_ok() => format!("version {text}"),
            Self::Given(text) => format!("version that fits {text}"),
        }
    }
}

/// A few versions for an error, newest first; texts that are not versions are last.
pub(super) fn newest(versions: &[&str]) -> Vec<String> {
    let mut sorted: Vec<_> = versions
        .iter()
        .map(|text| (Version::parse(text).ok(), *text))
        .collect();
    sorted.sort_by(|(one, _), (other, _)| other.cmp(one));
    sorted
        .into_iter()
        .take(5)
        .map(|(_, text)| text.to_owned())
        .collect()
}

fn parsed(versions: &[&str]) -> Vec<(Version, usize)> {
    let parse = |(position, text): (usize, &&str)| Some((Version::parse(text).ok()?, position));
    versions.iter().enumerate().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSIONS: [&str; 8] = [
        "1.9.0",
        "1.10.0",
        "2.0.0-rc.1",
        "not-a-version",
        "1.2",
        "1.2.7",
        "v0.9.0",
        "1.10.0+b",
    ];

    fn chosen(version: &str) -> Option<&'static str> {
        let req = VersionReq::parse(Some(version.to_owned()).filter(|text| !text.is_empty()));
        req.choose(&VERSIONS).map(|position| VERSIONS[position])
    }

    #[test]
    fn the_wanted_version_is_found_as_helm_finds_it() {
        for (version, expected) in [
            ("", Some("1.10.0")),
            ("latest", Some("1.10.0")),
            ("1.9.0", Some("1.9.0")),
            // An exact match has precedence over a range, and metadata only matters there.
            ("1.2", Some("1.2")),
            ("1.10.0+b", Some("1.10.0+b")),
            ("not-a-version", Some("not-a-version")),
            ("1", Some("1.10.0")),
            ("1.2.x", Some("1.2.7")),
            ("~1.9", Some("1.9.0")),
            ("^1.2 || ^3", Some("1.10.0")),
            (">=1.2 <1.10, !=1.9.0", Some("1.2.7")),
            ("<1", Some("v0.9.0")),
            (">1.10-0", Some("2.0.0-rc.1")),
            (">=2", None),
            ("3.0.0", None),
            ("neither", None),
        ] {
            assert_eq!(chosen(version), expected, "{version}");
        }
        assert_eq!(VersionReq::Newest.choose(&["1.0.0-alpha"]), None);
    }

    #[test]
    fn errors_name_the_newest_first() {
        assert_eq!(
            newest(&VERSIONS),
            ["2.0.0-rc.1", "1.10.0", "1.10.0+b", "1.9.0", "1.2.7"]
        );
    }
}
