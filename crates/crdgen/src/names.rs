//! Derives the names of a type from the chart's name: kind, list kind, plural, singular.

use crate::inflect;

/// The names under which a CRD serves a type.
///
/// `fireworks-app` gives kind `FireworksApp`, plural `fireworksapps`. Once a CRD exists, its own names count
/// ([`Names::of`]); these are only for creating it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The kind, `FireworksApp`.
    pub kind: String,
    /// The kind of a list of them, `FireworksAppList`.
    pub list_kind: String,
    /// The resource, `fireworksapps`.
    pub plural: String,
    /// The singular for the command line, `fireworksapp`.
    pub singular: String,
}

/// The chart's name cannot be used to name a type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The name has neither letters nor digits.
    #[error("chart name {chart:?} has no letter or digit to form a kind from; rename the chart")]
    Empty {
        /// The name in `Chart.yaml`.
        chart: String,
    },
    /// Kubernetes requires kinds to start with a letter.
    #[error(
        "chart name {chart:?} starts with a digit, and a Kubernetes kind must start with a letter; rename the chart, for example to {suggestion:?}"
    )]
    LeadingDigit {
        /// The name in `Chart.yaml`.
        chart: String,
        /// A name that would work.
        suggestion: String,
    },
    /// Kubernetes only allows ASCII letters.
    #[error(
        "chart name {chart:?} contains {found:?}, and a Kubernetes kind consists of ASCII letters and digits; rename the chart"
    )]
    NotAscii {
        /// The name in `Chart.yaml`.
        chart: String,
        /// The first letter that is not ASCII.
        found: char,
    },
    /// A plural must be a DNS label.
    #[error("chart name {chart:?} gives the plural {plural:?} of {} characters, and Kubernetes allows {MAX_LABEL}; shorten the chart's name", plural.len())]
    TooLong {
        /// The name in `Chart.yaml`.
        chart: String,
        /// The plural derived from it.
        plural: String,
    },
}

/// The longest DNS label.
pub(crate) const MAX_LABEL: usize = 63;

impl Names {
    /// The names of the type of the chart `chart`.
    ///
    /// Kind: the parts between characters that are neither letters nor digits, each with a capital first letter,
    /// acronyms all in capitals (`flect.Pascalize`). Plural: `flect.Pluralize` in lower case.
    ///
    /// # Errors
    /// When Kubernetes would reject the result; the message says what to rename.
    pub fn of_chart(chart: &str) -> Result<Self, Error> {
        if let Some(found) = chart.chars().find(|c| !c.is_ascii() && c.is_alphanumeric()) {
            return Err(Error::NotAscii {
                chart: chart.to_owned(),
                found,
            });
        }
        let parts = chart
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|part| !part.is_empty());
        let joined = parts
            .map(|part| part[..1].to_ascii_uppercase() + &part[1..])
            .collect::<String>();
        if joined.is_empty() {
            return Err(Error::Empty {
                chart: chart.to_owned(),
            });
        }
        if joined.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Error::LeadingDigit {
                chart: chart.to_owned(),
                suggestion: format!("app-{chart}"),
            });
        }
        let kind = inflect::pascal_case(&joined);
        let plural = Self::plural_of(&kind);
        // The list kind has to fit too; it is longer than any plural in use.
        if plural.len() > MAX_LABEL || kind.len() + "List".len() > MAX_LABEL {
            return Err(Error::TooLong {
                chart: chart.to_owned(),
                plural,
            });
        }
        Ok(Self {
            list_kind: format!("{kind}List"),
            singular: kind.to_ascii_lowercase(),
            kind,
            plural,
        })
    }

    /// The plural that [`Names::of_chart`] gives a type of this kind, for messages about a type that is not served
    /// yet.
    pub fn plural_of(kind: &str) -> String {
        inflect::plural(kind).to_ascii_lowercase()
    }

    /// The names under which an existing CRD serves its type.
    pub fn of(crd: &crate::CustomResourceDefinition) -> Self {
        let names = &crd.spec.names;
        let kind = names.kind.clone();
        Self {
            list_kind: names.list_kind.clone().unwrap_or_else(|| format!("{kind}List")),
            singular: names
                .singular
                .clone()
                .unwrap_or_else(|| kind.to_ascii_lowercase()),
            plural: names.plural.clone(),
            kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_flect_prints() {
        for line in include_str!("../tests/names/flect.tsv").lines() {
            let [chart, kind, plural] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("three columns in {line:?}");
            };
            assert_eq!(Names::plural_of(kind), plural, "{chart}");
            match Names::of_chart(chart) {
                Ok(names) => assert_eq!(
                    (names.kind.as_str(), names.plural.as_str()),
                    (kind, plural),
                    "{chart}"
                ),
                Err(Error::LeadingDigit { .. }) => {
                    assert!(kind.starts_with(|c: char| c.is_ascii_digit()), "{chart}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_name_that_kubernetes_would_refuse_is_refused_with_advice() {
        let message = |chart: &str| Names::of_chart(chart).expect_err(chart).to_string();
        assert!(message("2048-game").contains("\"app-2048-game\""));
        assert!(message("_2048").contains("starts with a digit"));
        assert!(message("---").contains("no letter or digit"));
        assert!(message("café").contains("'é'"));
        assert!(message(&"a".repeat(64)).contains("shorten"));
    }
}
