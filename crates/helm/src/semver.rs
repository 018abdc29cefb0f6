//! Versions and constraints of Masterminds/semver 3.5 (`version.go`, `constraints.go`), which differ from Cargo's in
//! nearly every rule.

use std::{cmp::Ordering, fmt, str::FromStr, sync::LazyLock};

use regex::Regex;

const MAX_VERSION: usize = 256;
const MAX_CONSTRAINT: usize = 512;
const MAX_GROUPS: usize = 32;

/// The text is not a version or constraint, in Masterminds' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum Error {
    #[error("invalid semantic version")]
    InvalidVersion,
    #[error("version string empty")]
    Empty,
    #[error("invalid characters in version")]
    InvalidCharacters,
    #[error("version segment starts with 0")]
    LeadingZero,
    #[error("invalid metadata string")]
    InvalidMetadata,
    #[error("invalid prerelease string")]
    InvalidPrerelease,
    #[error("version string is too long (max {MAX_VERSION} bytes)")]
    VersionTooLong,
    #[error("{}strconv.ParseUint: parsing {digits:?}: value out of range", if *.strict { "" } else { "error parsing version segment: " })]
    OutOfRange { digits: String, strict: bool },
    #[error("constraint string is too long (max {MAX_CONSTRAINT} bytes)")]
    ConstraintTooLong,
    #[error("too many constraint groups (max {MAX_GROUPS})")]
    TooManyGroups,
    #[error("improper constraint: {quoted}")]
    ImproperConstraint { quoted: String },
    #[error("constraint parser error")]
    ConstraintParser,
    #[error("{part} version increment would overflow uint64")]
    Overflow { part: &'static str },
}

/// A version, however loosely written: `v1.2` is 1.2.0.
#[derive(Clone, Debug, Default)]
pub struct Version {
    /// The first number.
    pub major: u64,
    /// The second number.
    pub minor: u64,
    /// The third number.
    pub patch: u64,
    /// The text after `-`, or empty.
    pub prerelease: String,
    /// The text after `+`, or empty. It is ignored when versions are compared.
    pub metadata: String,
    original: String,
}

impl Version {
    /// Parses one to three numbers, leading zeros allowed, with an optional `v`, pre-release and metadata
    /// (`NewVersion`).
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_VERSION {
            return Err(Error::VersionTooLong);
        }
        let (core, metadata) = cut(text, '+');
        let (core, prerelease) = cut(core, '-');
        let mut numbers = core.strip_prefix('v').unwrap_or(core).split('.');
        let mut number = || -> Result<Option<&str>, Error> {
            match numbers.next() {
                Some(digits) if digits.is_empty() || !is_digits(digits) => Err(Error::InvalidVersion),
                digits => Ok(digits),
            }
        };
        let (major, minor, patch, more) = (number()?, number()?, number()?, number()?);
        let well_formed = |part: Option<&str>| {
            part.is_none_or(|part| part.split('.').all(|id| !id.is_empty() && is_identifier(id)))
        };
        if more.is_some() || !well_formed(prerelease) || !well_formed(metadata) {
            return Err(Error::InvalidVersion);
        }
        let version = Self {
            major: parse_number(major.unwrap_or("0"), false)?,
            minor: parse_number(minor.unwrap_or("0"), false)?,
            patch: parse_number(patch.unwrap_or("0"), false)?,
            prerelease: prerelease.unwrap_or_default().to_owned(),
            metadata: metadata.unwrap_or_default().to_owned(),
            original: text.to_owned(),
        };
        if let Some(prerelease) = prerelease {
            check_prerelease(prerelease)?;
        }
        Ok(version)
    }

    /// Parses a version that strictly follows the standard (`StrictNewVersion`).
    pub fn parse_strict(text: &str) -> Result<Self, Error> {
        if text.is_empty() {
            return Err(Error::Empty);
        }
        if text.len() > MAX_VERSION {
            return Err(Error::VersionTooLong);
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Error::InvalidVersion);
        };
        let (rest, metadata) = cut(rest, '+');
        if let Some(metadata) = metadata
            && !metadata.split('.').all(|id| !id.is_empty() && is_identifier(id))
        {
            return Err(Error::InvalidMetadata);
        }
        let (patch, prerelease) = cut(rest, '-');
        if let Some(prerelease) = prerelease {
            check_prerelease(prerelease)?;
        }
        for digits in [major, minor, patch] {
            if !is_digits(digits) {
                return Err(Error::InvalidCharacters);
            }
            if digits.len() > 1 && digits.starts_with('0') {
                return Err(Error::LeadingZero);
            }
        }
        Ok(Self {
            major: parse_number(major, true)?,
            minor: parse_number(minor, true)?,
            patch: parse_number(patch, true)?,
            prerelease: prerelease.unwrap_or_default().to_owned(),
            metadata: metadata.unwrap_or_default().to_owned(),
            original: text.to_owned(),
        })
    }

    /// The version as it was written.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// The next major version, without pre-release.
    pub fn increment_major(&self) -> Result<Self, Error> {
        let major = self
            .major
            .checked_add(1)
            .ok_or(Error::Overflow { part: "major" })?;
        Ok(self.changed_to(major, 0, 0))
    }

    /// The next minor version, without pre-release.
    pub fn increment_minor(&self) -> Result<Self, Error> {
        let minor = self
            .minor
            .checked_add(1)
            .ok_or(Error::Overflow { part: "minor" })?;
        Ok(self.changed_to(self.major, minor, 0))
    }

    /// The next patch version; for a pre-release, its release.
    pub fn increment_patch(&self) -> Result<Self, Error> {
        let step = u64::from(self.prerelease.is_empty());
        let patch = self
            .patch
            .checked_add(step)
            .ok_or(Error::Overflow { part: "patch" })?;
        Ok(self.changed_to(self.major, self.minor, patch))
    }

    /// The same version with another pre-release.
    pub fn with_prerelease(&self, prerelease: &str) -> Result<Self, Error> {
        if !prerelease.is_empty() {
            check_prerelease(prerelease)?;
        }
        Ok(Self {
            prerelease: prerelease.to_owned(),
            ..self.clone()
        }
        .named_after(self))
    }

    /// The same version with other metadata.
    pub fn with_metadata(&self, metadata: &str) -> Result<Self, Error> {
        if !metadata.is_empty() && !metadata.split('.').all(|id| !id.is_empty() && is_identifier(id)) {
            return Err(Error::InvalidMetadata);
        }
        Ok(Self {
            metadata: metadata.to_owned(),
            ..self.clone()
        }
        .named_after(self))
    }

    fn changed_to(&self, major: u64, minor: u64, patch: u64) -> Self {
        Self {
            major,
            minor,
            patch,
            ..Self::default()
        }
        .named_after(self)
    }

    /// Keeps the `v` of the version that this one was derived from.
    fn named_after(mut self, other: &Self) -> Self {
        let prefix = if other.original.starts_with('v') { "v" } else { "" };
        self.original = format!("{prefix}{self}");
        self
    }
}

/// Prints all three numbers, pre-release and metadata, but no `v`.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.prerelease.is_empty() {
            write!(f, "-{}", self.prerelease)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// Compares precedence: metadata and notation are ignored.
impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| {
            match (self.prerelease.is_empty(), other.prerelease.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => compare_prereleases(&self.prerelease, &other.prerelease),
            }
        })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at)
        .map_or((text, None), |(before, after)| (before, Some(after)))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_identifier(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn parse_number(digits: &str, strict: bool) -> Result<u64, Error> {
    match digits.parse() {
        Ok(number) => Ok(number),
        // Go's strict parser also passes missing digits to the number parser.
        Err(_) => Err(Error::OutOfRange {
            digits: digits.to_owned(),
            strict,
        }),
    }
}

fn check_prerelease(text: &str) -> Result<(), Error> {
    for id in text.split('.') {
        if id.is_empty() || !is_identifier(id) {
            return Err(Error::InvalidPrerelease);
        }
        if is_digits(id) && id.len() > 1 && id.starts_with('0') {
            return Err(Error::LeadingZero);
        }
    }
    Ok(())
}

fn compare_prereleases(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (a, b) => compare_identifiers(a.unwrap_or_default(), b.unwrap_or_default()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Empty before numbers before words. Numbers too large for 64 bits count as words.
fn compare_identifiers(a: &str, b: &str) -> Ordering {
    if a == b || a.is_empty() || b.is_empty() {
        return a.len().cmp(&b.len());
    }
    let number = |text: &str| {
        if is_digits(text) {
            text.parse::<u64>().ok()
        } else {
            None
        }
    };
    match (number(a), number(b)) {
        (Some(a), Some(b)) if a > b => Ordering::Greater,
        (Some(_), _) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// A constraint on versions: groups of comparisons. One group must hold with all its comparisons.
#[derive(Clone, Debug)]
pub struct Constraint {
    groups: Vec<Group>,
}

#[derive(Clone, Debug)]
struct Group {
    comparisons: Vec<Comparison>,
    /// Whether pre-releases are considered, because one of the comparisons names one.
    prereleases: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

#[derive(Clone, Debug)]
struct Comparison {
    operator: Operator,
    version: Version,
    /// Whether a part is missing or a wildcard.
    partial: bool,
    partial_minor: bool,
    partial_patch: bool,
}

impl Constraint {
    /// Parses a constraint (`NewConstraint`).
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_CONSTRAINT {
            return Err(Error::ConstraintTooLong);
        }
        let rewritten;
        let text = if may_be_range(text) {
            rewritten = rewrite_ranges(text);
            rewritten.as_str()
        } else {
            text
        };
        let groups: Vec<&str> = text.split("||").collect();
        if groups.len() > MAX_GROUPS {
            return Err(Error::TooManyGroups);
        }
        let groups = groups.into_iter().map(Group::parse).collect::<Result<_, _>>()?;
        Ok(Self { groups })
    }

    /// Whether a version satisfies it.
    pub fn check(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| {
            (version.prerelease.is_empty() || group.prereleases)
                && group
                    .comparisons
                    .iter()
                    .all(|comparison| comparison.check(version))
        })
    }
}

impl FromStr for Constraint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// Whether a version satisfies a constraint (`semverCompare`).
pub fn satisfies(constraint: &str, version: &str) -> Result<bool, Error> {
    let constraint = Constraint::parse(constraint)?;
    Ok(constraint.check(&Version::parse(version)?))
}

impl Group {
    fn parse(text: &str) -> Result<Self, Error> {
        let mut comparisons = Vec::new();
        let mut rest = text.trim_start_matches(is_space);
        loop {
            let Some((comparison, behind)) = Comparison::parse(rest) else {
                return Err(improper(text));
            };
            comparisons.push(comparison);
            rest = behind.trim_start_matches(is_space);
            if rest.is_empty() {
                break;
            }
            match rest.strip_prefix(',') {
                Some(next) => rest = next.trim_start_matches(is_space),
                None if rest.len() < behind.len() => {}
                None => return Err(improper(text)),
            }
        }
        // The syntax of all comparisons is checked before any numbers.
        let comparisons = comparisons.into_iter().collect::<Result<Vec<Comparison>, _>>()?;
        let prereleases = comparisons
            .iter()
            .any(|comparison| !comparison.version.prerelease.is_empty());
        Ok(Self {
            comparisons,
            prereleases,
        })
    }
}

fn improper(text: &str) -> Error {
    let mut quoted = String::new();
    gostd::strconv::quote(text, &mut quoted);
    Error::ImproperConstraint { quoted }
}

/// Go's `\s`.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0c')
}

impl Comparison {
    /// Parses a comparison, and returns the text after it. None if there is none.
    fn parse(text: &str) -> Option<(Result<Self, Error>, &str)> {
        let behind = text.trim_start_matches(['=', '!', '<', '>', '~', '^']);
        let operator = match &text[..text.len() - behind.len()] {
            "" | "=" => Operator::Equal,
            "!=" => Operator::NotEqual,
            ">" => Operator::Greater,
            "<" => Operator::Less,
            ">=" | "=>" => Operator::GreaterOrEqual,
            "<=" | "=<" => Operator::LessOrEqual,
            "~" | "~>" => Operator::Tilde,
            "^" => Operator::Caret,
            _ => return None,
        };
        let text = behind.trim_start_matches(is_space);
        let text = text.strip_prefix('v').unwrap_or(text);
        // Masterminds treats a stray `|` as a digit until the number is parsed.
        let wild = |c: char| c.is_ascii_digit() || matches!(c, 'x' | 'X' | '*' | '|');
        let (major, mut rest) = split_while(text, wild);
        if major.is_empty() {
            return None;
        }
        let mut parts = [Some(major), None, None];
        for part in &mut parts[1..] {
            match rest.strip_prefix('.').map(|rest| split_while(rest, wild)) {
                Some((digits, behind)) if !digits.is_empty() => (*part, rest) = (Some(digits), behind),
                _ => break,
            }
        }
        let (prerelease, rest) = identifiers(rest, '-');
        let (_, rest) = identifiers(rest, '+');
        Some((Self::of_parts(operator, parts, prerelease), rest))
    }

    fn of_parts(
        operator: Operator,
        parts: [Option<&str>; 3],
        prerelease: Option<&str>,
    ) -> Result<Self, Error> {
        let given = |part: Option<&str>| part.is_some_and(|part| !matches!(part, "x" | "X" | "*"));
        let [major, minor, patch] = parts;
        let (partial_major, partial_minor, partial_patch) = match (given(major), given(minor), given(patch)) {
            (false, ..) => (true, false, false),
            (_, false, _) => (false, true, false),
            (_, _, false) => (false, false, true),
            (true, true, true) => (false, false, false),
        };
        let number = |part: Option<&str>, known: bool| match part {
            Some(digits) if known => {
                if is_digits(digits) {
                    digits.parse().map_err(|_| Error::ConstraintParser)
                } else {
                    Err(Error::ConstraintParser)
                }
            }
            _ => Ok(0),
        };
        let version = Version {
            major: number(major, !partial_major)?,
            minor: number(minor, !partial_major && !partial_minor)?,
            patch: number(patch, !partial_major && !partial_minor && !partial_patch)?,
            prerelease: prerelease.unwrap_or_default().to_owned(),
            ..Version::default()
        };
        if prerelease.is_some_and(|prerelease| check_prerelease(prerelease).is_err()) {
            return Err(Error::ConstraintParser);
        }
        Ok(Self {
            operator,
            version,
            partial: partial_major || partial_minor || partial_patch,
            partial_minor,
            partial_patch,
        })
    }

    fn check(&self, version: &Version) -> bool {
        match self.operator {
            Operator::Equal if self.partial => self.is_close_to(version),
            Operator::Equal => *version == self.version,
            Operator::NotEqual => self.differs_from(version),
            Operator::Greater => self.is_below(version),
            Operator::Less => *version < self.version,
            Operator::GreaterOrEqual => *version >= self.version,
            Operator::LessOrEqual => self.is_not_below(version),
            Operator::Tilde => self.is_close_to(version),
            Operator::Caret => self.is_compatible_with(version),
        }
    }

    /// `!=`: with wildcards, outside of the range.
    fn differs_from(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if !self.partial {
            return version != wanted;
        }
        if wanted.major != version.major {
            return true;
        }
        if self.partial_minor {
            return false;
        }
        if wanted.minor != version.minor {
            return true;
        }
        if self.partial_patch {
            return compare_prereleases(&version.prerelease, &wanted.prerelease) != Ordering::Equal;
        }
        wanted.patch != version.patch || version != wanted
    }

    /// `>`: with wildcards, above the range.
    fn is_below(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if !self.partial || version.major != wanted.major {
            return version > wanted && (!self.partial || version.major > wanted.major);
        }
        if self.partial_minor {
            false
        } else if self.partial_patch {
            version.minor > wanted.minor
        } else {
            version > wanted
        }
    }

    /// `<=`: with wildcards, not above the range.
    fn is_not_below(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if !self.partial {
            return version <= wanted;
        }
        version.major < wanted.major
            || (version.major == wanted.major && (version.minor <= wanted.minor || self.partial_minor))
    }

    /// `~`: not less, and equal up to the minor version, as far as that is given.
    fn is_close_to(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if version < wanted {
            return false;
        }
        // `~0.0.0` and `*` accept everything.
        let any = (wanted.major, wanted.minor, wanted.patch) == (0, 0, 0)
            && !self.partial_minor
            && !self.partial_patch;
        any || (version.major == wanted.major && (version.minor == wanted.minor || self.partial_minor))
    }

    /// `^`: not less, and equal up to the first number that is not 0.
    fn is_compatible_with(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if version < wanted || version.major != wanted.major {
            return false;
        }
        if wanted.major > 0 || self.partial_minor {
            return true;
        }
        if version.minor != wanted.minor {
            return false;
        }
        wanted.minor > 0 || self.partial_patch || version.patch == wanted.patch
    }
}

fn split_while(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !fits(c)).unwrap_or(text.len()))
}

/// Identifiers separated by dots, if preceded by `mark`.
fn identifiers(text: &str, mark: char) -> (Option<&str>, &str) {
    let Some(behind) = text.strip_prefix(mark) else {
        return (None, text);
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut length = split_while(behind, fits).0.len();
    if length == 0 {
        return (None, text);
    }
    while let Some(next) = behind[length..].strip_prefix('.') {
        match split_while(next, fits).0.len() {
            0 => break,
            more => length += 1 + more,
        }
    }
    let (identifiers, rest) = behind.split_at(length);
    (Some(identifiers), rest)
}

/// Whether the text contains a `-` on its own, as in a range.
fn may_be_range(text: &str) -> bool {
    text.split(is_space).any(|word| word == "-")
}

/// `1.2 - 1.4` is `>= 1.2, <= 1.4`.
fn rewrite_ranges(text: &str) -> String {
    const VERSION: &str = r"v?([0-9|x|X|\*]+)(\.[0-9|x|X|\*]+)?(\.[0-9|x|X|\*]+)?(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?";
    static RANGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(&format!(
            r"[\t\n\f\r ]*({VERSION})[\t\n\f\r ]+-[\t\n\f\r ]+({VERSION})[\t\n\f\r ]*"
        ))
        .ok()
    });
    let mut rewritten = text.to_owned();
    for range in RANGE.iter().flat_map(|range| range.captures_iter(text)) {
        rewritten = rewritten.replacen(&range[0], &format!(">= {}, <= {} ", &range[1], &range[11]), 1);
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A constraint, versions that satisfy it, and versions that do not, according to Masterminds.
    const CASES: &[(&str, &[&str], &[&str])] = &[
        ("1.2.3", &["1.2.3", "v1.2.3+b"], &["1.2.4", "1.2.3-a"]),
        ("1.2", &["1.2.0", "1.2.9"], &["1.3.0", "1.1.9"]),
        ("1.x || >=3", &["1.9.0", "3.0.0"], &["2.0.0"]),
        ("*", &["0.0.1", "9.9.9"], &["1.0.0-a"]),
        ("!=1.2.x", &["1.3.0"], &["1.2.7"]),
        (">1.2", &["1.3.0"], &["1.2.5", "1.2.0"]),
        ("<=1.2", &["1.2.5"], &["1.3.0"]),
        ("<1.19-0", &["1.18.9"], &["1.19.0"]),
        (">=1.19-0", &["v1.27.3-gke.100", "1.19.0"], &["1.18.9"]),
        (">=1.19", &["1.27.3"], &["v1.27.3-gke.100"]),
        (">=1.19.0-0, <1.25.0", &["1.24.3-eks-1"], &["1.25.0"]),
        (
            "~1.2.3-beta",
            &["1.2.4-alpha", "1.2.3"],
            &["1.3.0", "1.2.3-alpha"],
        ),
        ("~1", &["1.9.9"], &["2.0.0"]),
        ("^0.2.3", &["0.2.9"], &["0.3.0", "0.2.2"]),
        ("^0.0.3", &["0.0.3"], &["0.0.4"]),
        ("^0.0", &["0.0.9"], &["0.1.0"]),
        ("1.2 - 2.3", &["1.2.0", "2.3.4"], &["2.4.0"]),
        ("> 1.0 < 2, !=1.5.0", &["1.5.1"], &["1.5.0", "2.0.0"]),
    ];

    #[test]
    fn constraints_hold_as_for_masterminds() {
        for (constraint, fitting, others) in CASES {
            for version in *fitting {
                assert_eq!(satisfies(constraint, version), Ok(true), "{constraint} {version}");
            }
            for version in *others {
                assert_eq!(
                    satisfies(constraint, version),
                    Ok(false),
                    "{constraint} {version}"
                );
            }
        }
    }

    #[test]
    fn improper_texts_are_refused_in_masterminds_words() {
        let error = |constraint: &str| Constraint::parse(constraint).unwrap_err().to_string();
        assert_eq!(error(""), r#"improper constraint: """#);
        assert_eq!(error(">=1.0,,<2"), r#"improper constraint: ">=1.0,,<2""#);
        assert_eq!(error("1|2"), "constraint parser error");
        let error = |version: &str| Version::parse(version).unwrap_err().to_string();
        assert_eq!(error("abc"), "invalid semantic version");
        assert_eq!(error("1.2.3-01"), "version segment starts with 0");
        assert_eq!(
            error("18446744073709551616"),
            "error parsing version segment: strconv.ParseUint: parsing \"18446744073709551616\": value out of range"
        );
    }

    #[test]
    fn versions_are_read_loosely_and_printed_in_full() {
        let version = Version::parse("v01.2-rc.1+b").unwrap();
        assert_eq!(version.to_string(), "1.2.0-rc.1+b");
        assert_eq!(version.original(), "v01.2-rc.1+b");
        assert_eq!(version.increment_patch().unwrap().original(), "v1.2.0");
        assert_eq!(version.increment_minor().unwrap().to_string(), "1.3.0");
        assert!(Version::parse_strict("1.2").is_err());
    }

    #[test]
    fn prereleases_are_ordered_by_numbers_and_words() {
        let ordered = [
            "1.0.0-1",
            "1.0.0-a",
            "1.0.0-a.1",
            "1.0.0-a.10",
            "1.0.0-a.b",
            "1.0.0",
            "1.0.1",
        ];
        let versions: Vec<Version> = ordered.iter().map(|text| text.parse().unwrap()).collect();
        assert!(versions.is_sorted());
        assert_eq!(Version::parse("1.0.0+a"), Version::parse("1"));
    }
}
