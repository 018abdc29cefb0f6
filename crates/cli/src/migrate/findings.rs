//! The findings of `kco migrate check`, one per line.

use std::fmt::Write as _;

use serde::Serialize;

/// Something that will happen, or that has to be settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// Kind, namespace and name of the object.
    pub(super) about: String,
    /// What will happen.
    pub(super) what: String,
    /// What an admin has to do; none if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) settle: Option<String>,
}

/// All findings.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The programs and their release.
    pub(super) platform: Vec<Finding>,
    /// Definitions and their controllers.
    pub(super) definitions: Vec<Finding>,
    /// Compositions and their releases.
    pub(super) compositions: Vec<Finding>,
    /// Grants that definitions will want.
    pub(super) grants: Vec<Finding>,
    /// Krateo's objects that are removed at the end.
    pub(super) removed: Vec<String>,
}

impl Finding {
    /// Something that happens without an admin.
    pub(super) fn told(about: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            about: about.into(),
            what: what.into(),
            settle: None,
        }
    }

    /// Something that an admin has to settle.
    pub(super) fn settled_by(
        about: impl Into<String>,
        what: impl Into<String>,
        settle: impl Into<String>,
    ) -> Self {
        Self {
            settle: Some(settle.into()),
            ..Self::told(about, what)
        }
    }
}

impl Report {
    /// What has to be settled, as text.
    pub(super) fn unsettled(&self) -> Vec<String> {
        let all = self
            .platform
            .iter()
            .chain(&self.definitions)
            .chain(&self.compositions)
            .chain(&self.grants);
        all.filter_map(|finding| {
            let settle = finding.settle.as_ref()?;
            Some(format!("{}: {}: {settle}", finding.about, finding.what))
        })
        .collect()
    }

    /// The report as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (title, findings) in [
            ("PLATFORM", &self.platform),
            ("DEFINITIONS", &self.definitions),
            ("COMPOSITIONS", &self.compositions),
            ("GRANTS", &self.grants),
        ] {
            if title == "GRANTS" && findings.is_empty() {
                continue;
            }
            let _ = writeln!(text, "{title}:");
            for Finding { about, what, settle } in findings {
                let mark = if settle.is_some() { '!' } else { ' ' };
                let _ = writeln!(text, "{mark} {about}: {what}");
                if let Some(settle) = settle {
                    let _ = writeln!(text, "    {settle}");
                }
            }
        }
        let _ = writeln!(text, "REMOVED AT THE END:");
        for removed in &self.removed {
            let _ = writeln!(text, "  {removed}");
        }
        let unsettled = self.unsettled().len();
        let _ = writeln!(text, "\n{unsettled} to settle");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_to_settle_are_marked_and_counted() {
        let report = Report {
            definitions: vec![
                Finding::told("definition a/b", "its controller is replaced"),
                Finding::settled_by("definition a/c", "it is held", "annotate it"),
            ],
            ..Report::default()
        };
        assert_eq!(report.unsettled(), ["definition a/c: it is held: annotate it"]);
        let text = report.text();
        assert!(
            text.contains("! definition a/c: it is held\n    annotate it\n"),
            "{text}"
        );
        assert!(text.ends_with("\n1 to settle\n"), "{text}");
        assert!(!text.contains("GRANTS"), "{text}");
    }

    #[test]
    fn wanted_grants_are_told() {
        let report = Report {
            grants: vec![Finding::told("definition a/b", "it will want a ChartGrant")],
            ..Report::default()
        };
        assert!(report.unsettled().is_empty());
        let text = report.text();
        assert!(
            text.contains("GRANTS:\n  definition a/b: it will want a ChartGrant\n"),
            "{text}"
        );
    }
}
