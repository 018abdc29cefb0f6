//! The changes of a version: its section of CHANGELOG.md.

use crate::progress;
use crate::version::Version;

/// The name of the section for what is not released yet.
const UNRELEASED: &str = "Unreleased";

/// The text below the version's heading, or below the Unreleased heading if the version has none.
pub(crate) fn section(changelog: &str, version: &Version) -> String {
    if let Some(text) = below(changelog, version.as_str()) {
        return text;
    }
    progress(format_args!(
        "CHANGELOG.md has no section {version}: the notes are those of {UNRELEASED}"
    ));
    below(changelog, UNRELEASED).unwrap_or_default()
}

fn below(changelog: &str, heading: &str) -> Option<String> {
    let mut lines = changelog.lines();
    lines.find(|line| is_heading(line, heading))?;
    let text: Vec<&str> = lines.take_while(|line| !line.starts_with("## ")).collect();
    Some(text.join("\n").trim().to_owned())
}

/// `## 1.2.3`, also in brackets or followed by a date.
fn is_heading(line: &str, heading: &str) -> bool {
    line.strip_prefix("## ")
        .and_then(|line| line.split_whitespace().next())
        .is_some_and(|word| word.trim_matches(['[', ']']) == heading)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\nIntro.\n\n## Unreleased\n\n- next\n\n## [1.1.0] - 2026-01-02\n\n### Added\n\n- a\n\n\
                             ## 1.0.0\n\n- first\n";

    #[test]
    fn a_version_has_its_own_section_or_what_is_not_released() {
        let section = |version: &str| section(CHANGELOG, &version.parse().unwrap());
        assert_eq!(section("1.1.0"), "### Added\n\n- a");
        assert_eq!(section("1.0.0"), "- first");
        assert_eq!(section("1.1.1"), "- next");
    }
}
