//! Derives the name of a served version from a chart's version.

use std::fmt;

use crate::names::MAX_LABEL;

/// The name of a served version, a DNS-1035 label: chart version `1.2.3` is served as `v1-2-3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServedVersion(String);

/// The chart's version cannot be used to name a served version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The chart's version is empty.
    #[error("the chart has no version; set `version` in Chart.yaml")]
    Empty,
    /// The label would contain characters other than lower-case letters, digits and dashes.
    #[error(
        "chart version {version:?} would be served as {label:?}, where {found:?} is not allowed; use letters, digits, '.', '-' and '+'"
    )]
    Character {
        /// The version in `Chart.yaml`.
        version: String,
        /// The label it would get.
        label: String,
        /// The first character that is not allowed.
        found: char,
    },
    /// A label must end with a letter or a digit.
    #[error(
        "chart version {version:?} would be served as {label:?}, which must end with a letter or a digit"
    )]
    Ending {
        /// The version in `Chart.yaml`.
        version: String,
        /// The label it would get.
        label: String,
    },
    /// A label may have at most 63 characters.
    #[error("chart version {version:?} would be served as {label:?} of {} characters, and Kubernetes allows {MAX_LABEL}; shorten its pre-release or build part", label.len())]
    TooLong {
        /// The version in `Chart.yaml`.
        version: String,
        /// The label it would get.
        label: String,
    },
}

impl ServedVersion {
    /// The served version for a chart's version: `v`, then the version in lower case with `-` for `.` and `+`
    /// (`1.0.0-RC.1+b5` becomes `v1-0-0-rc-1-b5`).
    ///
    /// # Errors
    /// When the result is not a DNS-1035 label of at most 63 characters.
    pub fn of_chart(version: &str) -> Result<Self, Error> {
        if version.is_empty() {
            return Err(Error::Empty);
        }
        let label = format!("v{}", version.to_ascii_lowercase().replace(['.', '+'], "-"));
        let version = version.to_owned();
        if let Some(found) = label.chars().find(|c| !matches!(c, 'a'..='z' | '0'..='9' | '-')) {
            return Err(Error::Character {
                version,
                label,
                found,
            });
        }
        if label.ends_with('-') {
            return Err(Error::Ending { version, label });
        }
        if label.len() > MAX_LABEL {
            return Err(Error::TooLong { version, label });
        }
        Ok(Self(label))
    }

    /// The name as a text, `v1-2-3`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServedVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_version_is_served_under_a_label() {
        for (chart, served) in [
            ("0.22.2", "v0-22-2"),
            ("1.0.0-rc.1", "v1-0-0-rc-1"),
            ("1.2.3-rc.1+build.5", "v1-2-3-rc-1-build-5"),
            ("1.0.0-RC.1", "v1-0-0-rc-1"),
            ("2", "v2"),
        ] {
            assert_eq!(ServedVersion::of_chart(chart).expect(chart).as_str(), served);
        }
    }

    #[test]
    fn an_invalid_label_is_refused_with_the_reason() {
        for (chart, reason) in [
            ("", "no version"),
            ("1.2.3_4", "'_' is not allowed"),
            ("1.2.ü", "'ü' is not allowed"),
            ("1.2.", "must end with"),
            (&format!("1.0.0-{}", "a".repeat(60)), "shorten"),
        ] {
            let error = ServedVersion::of_chart(chart).expect_err(chart).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
