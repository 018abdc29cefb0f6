//! Decides what to do about drift, by kind, name and path.

use std::str::FromStr;

use cluster::ObjectId;
use cluster::fields::Path;

/// What to do about a field that differs from what was applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Report it and correct it.
    #[default]
    Correct,
    /// Report it.
    Warn,
    /// Nothing: the field belongs to somebody else.
    Ignore,
}

/// What to do about drift in the objects of a release.
///
/// Written as a list of rules, separated by commas or line ends; the last one that matches a field applies:
///
/// ```text
/// warn
/// ignore=Deployment.apps/web:.spec.replicas
/// ignore=.metadata.annotations
/// ```
///
/// A rule is a mode, optionally followed by `=` and a scope: a kind (with its group if needed) and a name, both of
/// which may be left out, and after `:` a path as in reports. A path includes everything below it, and `[*]` matches
/// any item of a list. A mode alone applies to everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    mode: Mode,
    kind: Option<String>,
    group: Option<String>,
    name: Option<String>,
    path: String,
}

/// A policy that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?} is not a drift rule: {reason}; a rule looks like ignore=Deployment/web:.spec.replicas")]
pub struct InvalidPolicy {
    rule: String,
    reason: &'static str,
}

impl Policy {
    /// The same mode for every field.
    pub fn all(mode: Mode) -> Self {
        let rule = Rule {
            mode,
            kind: None,
            group: None,
            name: None,
            path: String::new(),
        };
        Self { rules: vec![rule] }
    }

    /// What to do about this field of this object; the empty path is the object as a whole.
    pub fn mode(&self, id: &ObjectId, path: &Path) -> Mode {
        let path = path.to_string();
        let fitting = self.rules.iter().rev().find(|rule| rule.fits(id, &path));
        fitting.map_or(Mode::default(), |rule| rule.mode)
    }
}

impl FromStr for Policy {
    type Err = InvalidPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPolicy> {
        let mut rules = Vec::new();
        let (mut depth, mut start) = (0_i32, 0);
        // Selectors of list items contain commas: `[containerPort=80,protocol="TCP"]`.
        for (at, c) in text.char_indices().chain([(text.len(), ',')]) {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                ',' | '\n' if depth <= 0 || at == text.len() => {
                    let rule = text[start..at].trim();
                    if !rule.is_empty() {
                        rules.push(rule.parse()?);
                    }
                    start = at + 1;
                }
                _ => {}
            }
        }
        Ok(Self { rules })
    }
}

impl FromStr for Rule {
    type Err = InvalidPolicy;

    fn from_str(text: &str) -> Result<Self, InvalidPolicy> {
        let refused = |reason| InvalidPolicy {
            rule: text.to_owned(),
            reason,
        };
        let (mode, about) = text.split_once('=').unwrap_or((text, ""));
        let mode = match mode.trim() {
            "correct" => Mode::Correct,
            "warn" => Mode::Warn,
            "ignore" => Mode::Ignore,
            _ => return Err(refused("it does not begin with correct, warn or ignore")),
        };
        let about = about.trim();
        let (object, path) = match about.split_once(":.") {
            Some((object, path)) => (object, format!(".{path}")),
            None if about.starts_with('.') => ("", about.to_owned()),
            None => (about, String::new()),
        };
        if object.contains([':', '[']) {
            return Err(refused("the path does not begin with a dot"));
        }
        let (kind, name) = match object.split_once('/') {
            Some((kind, name)) => (kind, Some(name)),
            None => (object, None),
        };
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group)),
            None => (kind, None),
        };
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Ok(Self {
            mode,
            kind: given(kind),
            group: group.and_then(given),
            name: name.and_then(given),
            path: if path == "." { String::new() } else { path },
        })
    }
}

impl Rule {
    fn fits(&self, id: &ObjectId, path: &str) -> bool {
        let is =
            |wanted: &Option<String>, actual: &str| wanted.as_ref().is_none_or(|wanted| wanted == actual);
        is(&self.kind, &id.resource().kind)
            && is(&self.group, &id.resource().group)
            && is(&self.name, id.name())
            && leads_to(&self.path, path)
    }
}

/// True when `path` is the one of the rule, or below it.
fn leads_to(rule: &str, path: &str) -> bool {
    if let Some((before, after)) = rule.split_once("[*]") {
        let rest = path.strip_prefix(before).filter(|rest| rest.starts_with('['));
        return rest
            .and_then(|rest| rest.find(']').map(|end| &rest[end + 1..]))
            .is_some_and(|rest| leads_to(after, rest));
    }
    path.strip_prefix(rule)
        .is_some_and(|rest| rest.is_empty() || rule.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use cluster::ResourceId;
    use k8s_openapi::api::apps::v1::Deployment;

    use super::*;

    #[track_caller]
    fn check(policy: &str, path: &str, expected: Mode) {
        let policy: Policy = policy.parse().unwrap();
        let id = ObjectId::new(ResourceId::of::<Deployment>(), Some("shop"), "web").unwrap();
        let path = Path::of_fields(path.split('.').skip(1));
        assert_eq!(policy.mode(&id, &path), expected);
    }

    #[test]
    fn the_last_rule_that_fits_counts() {
        check("", ".spec.replicas", Mode::Correct);
        check("warn", ".spec.replicas", Mode::Warn);
        check(
            "warn, ignore=Deployment/web:.spec.replicas",
            ".spec.replicas",
            Mode::Ignore,
        );
        check("ignore=Deployment.apps:.spec", ".spec.replicas", Mode::Ignore);
        check(
            "ignore=Deployment.extensions:.spec",
            ".spec.replicas",
            Mode::Correct,
        );
        check("ignore=StatefulSet:.spec", ".spec.replicas", Mode::Correct);
        check("ignore=Deployment/other", ".spec.replicas", Mode::Correct);
        check("ignore=.spec.rep", ".spec.replicas", Mode::Correct);
        check(
            "ignore=.spec\ncorrect=.spec.replicas",
            ".spec.replicas",
            Mode::Correct,
        );
    }

    #[test]
    fn items_of_lists_are_named_or_meant_all() {
        assert!(leads_to(
            ".spec.containers[*].image",
            ".spec.containers[name=\"web\"].image"
        ));
        assert!(!leads_to(
            ".spec.containers[*].image",
            ".spec.containers[name=\"web\"].args"
        ));
        assert!(leads_to(".spec.ports", ".spec.ports[containerPort=80].name"));
        let policy: Policy = "ignore=.ports[containerPort=80,protocol=\"TCP\"].name, warn"
            .parse()
            .unwrap();
        assert_eq!(policy.rules.len(), 2);
    }

    #[test]
    fn what_is_no_rule_is_named() {
        for (policy, rule) in [
            ("fix", "\"fix\""),
            (
                "warn, ignore=Deployment:spec.replicas",
                "\"ignore=Deployment:spec.replicas\"",
            ),
        ] {
            let refused = policy.parse::<Policy>().unwrap_err().to_string();
            assert!(refused.starts_with(rule), "{refused}");
        }
    }
}
