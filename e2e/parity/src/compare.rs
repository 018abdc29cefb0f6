//! Compares two texts, given a third that shows where they may differ.

use std::sync::LazyLock;

use regex::Regex;

/// The result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same bytes.
    Equal,
    /// The same bytes wherever two runs of Helm agree with each other.
    EqualWhereStable,
    /// Different texts: the first lines that differ, as a report.
    Different(Difference),
    /// Both programs refuse.
    BothRefuse {
        /// True if both programs agree.
        same: bool,
        theirs: String,
        ours: String,
    },
    OnlyHelmRefuses(String),
    OnlyKcoRefuses(String),
    /// One of the programs could not be run to its end.
    NotRun(String),
}

/// Where two texts differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    line: usize,
    source: String,
    theirs: Vec<String>,
    ours: Vec<String>,
}

impl Verdict {
    /// A report about the case; `None` if all is well.
    pub(crate) fn report(&self, lines: usize) -> Option<String> {
        let first = |text: &str| listed("\n    ", text.lines().take(lines));
        match self {
            Self::Equal | Self::EqualWhereStable | Self::BothRefuse { same: true, .. } => None,
            Self::Different(difference) => Some(format!("DIFFERENT {}", difference.report(lines))),
            Self::BothRefuse {
                same: false,
                theirs,
                ours,
            } => Some(format!(
                "both refuse, in other words\n  helm:{}\n  kco:{}",
                first(theirs),
                first(ours)
            )),
            Self::OnlyHelmRefuses(why) => Some(format!("ONLY HELM REFUSES{}", first(why))),
            Self::OnlyKcoRefuses(why) => Some(format!("ONLY KCO REFUSES{}", first(why))),
            Self::NotRun(why) => Some(format!("NOT RUN{}", first(why))),
        }
    }
}

impl Difference {
    fn report(&self, lines: usize) -> String {
        let shown = |sign: &str, all: &[String]| {
            listed(
                &format!("\n  {sign} "),
                all.iter().map(String::as_str).take(lines),
            )
        };
        format!(
            "at line {} ({}){}{}",
            self.line,
            self.source,
            shown("-", &self.theirs),
            shown("+", &self.ours)
        )
    }
}

/// Every line with the same prefix.
fn listed<'l>(before: &str, lines: impl Iterator<Item = &'l str>) -> String {
    lines.flat_map(|line| [before, line]).collect()
}

/// The result for two texts that are not equal, given what Helm printed in a second run.
pub(crate) fn unequal(theirs: &str, again: &str, ours: &str) -> Verdict {
    if theirs == again {
        return Verdict::Different(difference(theirs, ours));
    }
    // Keys and certificates vary in length, so they are removed before lines are compared.
    let (theirs, again, ours) = (without_blobs(theirs), without_blobs(again), without_blobs(ours));
    let stable = stable_lines(&theirs, &again);
    let mut masked = Vec::new();
    for (i, line) in ours.lines().enumerate() {
        let may_be = |pattern: &LinePattern| pattern.matches(line);
        let known = stable.get(i).filter(|pattern| may_be(pattern));
        masked.push(known.map_or_else(|| line.to_owned(), |pattern| pattern.shown.clone()));
    }
    let ours = masked.join("\n");
    let theirs = stable
        .iter()
        .map(|pattern| pattern.shown.as_str())
        .collect::<Vec<_>>()
        .join("\n");
    if theirs == ours {
        Verdict::EqualWhereStable
    } else {
        Verdict::Different(difference(&theirs, &ours))
    }
}

/// A line of Helm's with the part masked that differs between two runs.
struct LinePattern {
    before: String,
    after: String,
    is_stable: bool,
    /// The length of the masked part, if both runs agree on that.
    masked: Option<usize>,
    shown: String,
}

impl LinePattern {
    fn matches(&self, line: &str) -> bool {
        if self.is_stable {
            return line == self.before;
        }
        let fixed = self.before.len() + self.after.len();
        line.len() >= fixed
            && line.starts_with(&self.before)
            && line.ends_with(&self.after)
            && self.masked.is_none_or(|length| line.len() == fixed + length)
    }
}

fn stable_lines(theirs: &str, again: &str) -> Vec<LinePattern> {
    let mut again = again.lines();
    theirs
        .lines()
        .map(|line| line_pattern(line, again.next().unwrap_or_default()))
        .collect()
}

fn line_pattern(line: &str, again: &str) -> LinePattern {
    if line == again {
        return LinePattern {
            before: line.to_owned(),
            after: String::new(),
            is_stable: true,
            masked: None,
            shown: line.to_owned(),
        };
    }
    // Masking takes whole words, because a random letter may be the same in both runs.
    let common = line
        .char_indices()
        .zip(again.chars())
        .take_while(|((_, a), b)| a == b)
        .last();
    let common = common.map_or(0, |((at, c), _)| at + c.len_utf8());
    let before = word_start(&line[..common]);
    let (rest, rest_again) = (&line[before..], again.get(before..).unwrap_or_default());
    let common = rest
        .chars()
        .rev()
        .zip(rest_again.chars().rev())
        .take_while(|(a, b)| a == b);
    let common: usize = common.map(|(a, _)| a.len_utf8()).sum();
    let after = word_end(&rest[rest.len() - common..]);
    let (before, after) = (line[..before].to_owned(), after.to_owned());
    let masked = (line.len() == again.len()).then(|| line.len() - before.len() - after.len());
    let shown = format!("{before}<differs between runs>{after}");
    LinePattern {
        before,
        after,
        is_stable: false,
        masked,
        shown,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || "+/=_-.:$!@#%^&*~".contains(c)
}

/// Where the word at the end of a text begins.
fn word_start(text: &str) -> usize {
    text.trim_end_matches(is_word).len()
}

/// The rest after the word at the start of a text.
fn word_end(text: &str) -> &str {
    text.trim_start_matches(is_word)
}

static BLOBS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    // A PEM block, whichever way it is indented or escaped, or a long run of base64.
    Regex::new(r"(?s)-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----|[A-Za-z0-9+/]{200,}={0,2}").ok()
});

fn without_blobs(text: &str) -> String {
    match &*BLOBS {
        Some(blobs) => blobs.replace_all(text, "<blob>").into_owned(),
        None => text.to_owned(),
    }
}

fn difference(theirs: &str, ours: &str) -> Difference {
    let (theirs, ours): (Vec<&str>, Vec<&str>) = (theirs.split('\n').collect(), ours.split('\n').collect());
    let same = theirs.iter().zip(&ours).take_while(|(a, b)| a == b).count();
    let source = theirs
        .iter()
        .take(same + 1)
        .rev()
        .find_map(|line| line.strip_prefix("# Source: "));
    let rest = |lines: &[&str]| {
        lines[same.min(lines.len())..]
            .iter()
            .take(40)
            .map(|line| (*line).to_owned())
            .collect()
    };
    Difference {
        line: same + 1,
        source: source.unwrap_or("start").to_owned(),
        theirs: rest(&theirs),
        ours: rest(&ours),
    }
}

/// True when a text holds a key or a certificate, as it is or in base64.
pub(crate) fn holds_keys(text: &str) -> bool {
    // `-----BEGIN ` in base64.
    text.contains("-----BEGIN ") || text.contains("LS0tLS1CRUdJTi")
}

/// True if two refusals have the same message, apart from what only one of the programs adds.
pub(crate) fn same_refusal(theirs: &str, ours: &str) -> bool {
    essence(theirs) == essence(ours)
}

/// The message from `Error:` on, without hints, log lines and the places that kco shows. Helm lists errors in values in
/// random order, so lines are sorted.
fn essence(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.starts_with("Error:"));
    let lines =
        lines.take_while(|line| !line.starts_with("Use --debug") && !line.trim_start().starts_with("--> "));
    let mut lines: Vec<String> = lines.map(str::to_owned).filter(|line| !line.is_empty()).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_two_runs_of_helm_may_differ_from_kco() {
        let verdict = |a: &str, b: &str, ours: &str| unequal(a, b, ours);
        assert_eq!(
            verdict("p: abc1\nq: 2", "p: abx7\nq: 2", "p: zzzz\nq: 2"),
            Verdict::EqualWhereStable
        );
        assert!(matches!(
            verdict("p: abc1\nq: 2", "p: abx7\nq: 2", "p: zzzz\nq: 3"),
            Verdict::Different(_)
        ));
        assert!(matches!(
            verdict("p: abc1\nq: 2", "p: abx7\nq: 2", "r: zzzz\nq: 2"),
            Verdict::Different(_)
        ));
        assert!(matches!(verdict("p: 1", "p: 1", "p: 2"), Verdict::Different(_)));
    }

    #[test]
    fn keys_are_masked_whatever_their_length() {
        let key = |body: &str| {
            format!(
                "k: |\n  -----BEGIN RSA PRIVATE KEY-----\n  {body}\n  -----END RSA PRIVATE KEY-----\nz: 1"
            )
        };
        assert_eq!(
            unequal(&key("a\n  b"), &key("c"), &key("d\n  e\n  f")),
            Verdict::EqualWhereStable
        );
    }

    #[test]
    fn refusals_are_compared_without_what_surrounds_them() {
        let theirs = "level=WARN x\nError: a\n  b\n\nUse --debug flag to render out invalid YAML\n";
        assert!(same_refusal(theirs, "Error: a\n  b\n\n  --> f:1:2\n   | \n"));
        assert!(!same_refusal(theirs, "Error: a\n"));
    }
}
