//! The version of a release.

use std::fmt;
use std::str::FromStr;

use anyhow::{Error, ensure};

/// `1.2.3`, or `1.2.3-rc.1`; without `v`, and without build metadata, which the tag of an image cannot contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version(String);

impl Version {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// True for `1.2.3-rc.1`.
    pub(crate) fn is_prerelease(&self) -> bool {
        self.0.contains('-')
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (numbers, pre) = match text.split_once('-') {
            Some((numbers, pre)) => (numbers, Some(pre)),
            None => (text, None),
        };
        let is_number = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|byte| byte.is_ascii_digit())
                && (part == "0" || !part.starts_with('0'))
        };
        let is_identifier = |part: &str| {
            let is_plain = part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            let is_digits = part.bytes().all(|byte| byte.is_ascii_digit());
            !part.is_empty() && is_plain && (!is_digits || is_number(part))
        };
        ensure!(
            numbers.split('.').count() == 3
                && numbers.split('.').all(is_number)
                && pre.is_none_or(|pre| pre.split('.').all(is_identifier)),
            "{text} is no version: write 1.2.3 or 1.2.3-rc.1, without a v and without +"
        );
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_can_be_a_tag_and_a_chart_version() {
        for good in ["0.1.0", "1.20.3", "1.0.0-rc.1", "1.0.0-alpha-2"] {
            assert_eq!(good.parse::<Version>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "1.0",
            "v1.0.0",
            "1.0.0+build",
            "01.0.0",
            "1.0.0-",
            "1.0.0-01",
            "1.0.0-a..b",
            "1.0.x",
        ] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }
}
