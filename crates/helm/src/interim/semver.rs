//! Versions and constraints by the `semver` crate.

/// True when a version fits a constraint.
pub(crate) fn satisfies(version: &str, constraint: &str) -> bool {
    let constraint = if constraint.trim().is_empty() {
        "*"
    } else {
        constraint
    };
    match (parse(version), semver::VersionReq::parse(constraint)) {
        (Some(version), Ok(constraint)) => constraint.matches(&version),
        _ => false,
    }
}

/// True for what can be read as a version.
pub(crate) fn is_version(text: &str) -> bool {
    parse(text).is_some()
}

fn parse(text: &str) -> Option<semver::Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let numbers = text.split(['-', '+']).next()?.split('.').count();
    let filled = if numbers < 3 && !text.contains(['-', '+']) {
        format!("{text}{}", ".0".repeat(3 - numbers))
    } else {
        text.to_owned()
    };
    semver::Version::parse(&filled).ok()
}
