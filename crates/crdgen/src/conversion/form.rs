//! Chart versions that values are written for, and their order.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A chart's version, with the order of `SemVer`: build metadata is ignored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Form {
    text: String,
    numbers: [u64; 3],
    /// The part after the first dash; a version without it comes after all versions with it.
    pre: Vec<Identifier>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    Number(u64),
    Word(String),
}

impl Form {
    /// The chart version behind the name of a served version, as far as the name tells it.
    pub(super) fn of_served(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix('v')?.splitn(4, '-');
        let numbers: Vec<_> = parts
            .by_ref()
            .take(3)
            .take_while(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
            .collect();
        let rest = name.get(1 + numbers.join("-").len()..)?.replacen('-', "", 1);
        let text = numbers.join(".");
        let text = if rest.is_empty() {
            text
        } else {
            format!("{text}-{}", rest.replace('-', "."))
        };
        Self::try_from(text).ok()
    }
}

impl TryFrom<String> for Form {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let refused = || format!("{text:?} is not a chart version, such as \"1.2.3\"");
        let plain = text.split('+').next().unwrap_or_default();
        let (numbers, pre) = match plain.split_once('-') {
            Some((numbers, pre)) => (numbers, Some(pre)),
            None => (plain, None),
        };
        let mut read = [0; 3];
        let parts: Vec<_> = numbers.trim_start_matches('v').split('.').collect();
        if parts.len() > read.len() {
            return Err(refused());
        }
        for (number, part) in read.iter_mut().zip(parts) {
            *number = part.parse().map_err(|_| refused())?;
        }
        let identifier = |part: &str| match part.parse() {
            Ok(number) => Identifier::Number(number),
            Err(_) => Identifier::Word(part.to_ascii_lowercase()),
        };
        Ok(Self {
            numbers: read,
            pre: pre
                .into_iter()
                .flat_map(|pre| pre.split('.'))
                .map(identifier)
                .collect(),
            text,
        })
    }
}

impl From<Form> for String {
    fn from(form: Form) -> Self {
        form.text
    }
}

impl fmt::Display for Form {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl Ord for Form {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        numbers.then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (true, true) | (false, false) => self.pre.cmp(&other.pre),
        })
    }
}

impl PartialOrd for Form {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Form {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Form {}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> Form {
        Form::try_from(text.to_owned()).expect(text)
    }

    #[test]
    fn versions_are_ordered_as_semver_orders_them() {
        let ordered = [
            "0.9.0",
            "1.0.0-alpha",
            "1.0.0-rc.2",
            "1.0.0-rc.10",
            "1.0.0",
            "1.0.1",
            "1.10.0",
            "2",
        ];
        assert!(ordered.map(form).is_sorted());
        assert_eq!(form("1.0.0+b1"), form("v1.0.0"));
        for text in ["", "x", "1.2.3.4", "1..2"] {
            assert!(Form::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_served_name_says_its_version() {
        for (name, version) in [
            ("v1-2-3", "1.2.3"),
            ("v1-0-0-rc-1", "1.0.0-rc.1"),
            ("v2", "2"),
            ("v1-2-x", "1.2-x"),
        ] {
            assert_eq!(Form::of_served(name).expect(name).to_string(), version);
        }
        assert!(Form::of_served("vacuum").is_none());
    }
}
