//! The admin's consent to definitions that a chart brings: which ones its controller may write, for which chart, and
//! which of the admin's annotations it may set on them.
//!
//! Without it, an admin would have to approve each definition that a chart brings. The consent is given once, on the
//! definition of that chart, and the policy of its controller checks every write of a definition against it. So an
//! entry names everything that decides what is allowed, because the author of the composition controls the rest.

use std::collections::BTreeMap;

use api::annotations;
use serde::{Deserialize, Serialize};

use crate::group_resource::GroupResource;

/// Maximum number of entries. The policy of a controller compares each write with all of them.
pub const MAX_ENTRIES: usize = 64;

/// Longest text, in bytes: all of it is part of one expression of the policy, which may have 100 000 characters.
pub const MAX_TEXT: usize = 32 * 1024;

/// The annotations that an entry may allow. Those that let a chart bring definitions of its own, or look up objects
/// that are not its own, have to be set by an admin on the very definition.
pub const ALLOWABLE: [&str; 3] = [
    annotations::ALLOWED_KINDS,
    annotations::ALLOWED_NAMESPACES,
    annotations::ALLOW_CHART_RBAC,
];

/// A definition that the releases of a chart may bring.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedDefinition {
    /// Name of the definition.
    pub name: String,
    /// Namespace of the definition.
    pub namespace: String,
    /// `spec.chart.url`.
    pub url: String,
    /// `spec.chart.version`, an exact version.
    pub version: String,
    /// `spec.chart.repo`; empty when the definition has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub repo: String,
    /// `spec.chart.digest`; empty when any digest or none is allowed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// True when the definition may set `spec.chart.insecureSkipVerifyTLS`.
    #[serde(default, rename = "insecureSkipVerifyTLS", skip_serializing_if = "is_false")]
    pub insecure_skip_verify_tls: bool,
    /// True when the definition may set `spec.chart.plainHTTP`.
    #[serde(default, rename = "plainHTTP", skip_serializing_if = "is_false")]
    pub plain_http: bool,
    /// The kind generated from the chart, which releases may contain besides the kinds found by the scan; empty for
    /// none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Annotations reserved to the admin that the definition may have, with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// A text that is not a list of allowed definitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowable {
    /// It is too long.
    #[error("it has {bytes} bytes, and at most {MAX_TEXT} are read: list fewer definitions")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// It is not a JSON list.
    #[error(
        "it is not a JSON list like [{{\"name\": …, \"namespace\": …, \"url\": …, \"version\": …}}]: {why}"
    )]
    NotAList {
        /// What the parser says.
        why: String,
    },
    /// It has too many entries.
    #[error("it lists {entries} definitions, and at most {MAX_ENTRIES} are allowed")]
    TooMany {
        /// How many.
        entries: usize,
    },
    /// An entry that is not valid.
    #[error("entry {number}, {entry}: {why}")]
    Entry {
        /// Its position, counted from 1.
        number: usize,
        /// The definition that it names, as far as it names one.
        entry: String,
        /// What is wrong with it, and what to write.
        why: String,
    },
}

/// Reads the annotation `krateo.io/allowed-definitions`.
///
/// # Errors
/// # Errors
/// When it is too long or not a list of entries, or an entry allows nothing or too much.
pub fn parse(text: &str) -> Result<Vec<AllowedDefinition>, NotAllowable> {
    if text.len() > MAX_TEXT {
        return Err(NotAllowable::TooLong { bytes: text.len() });
    }
    let entries: Vec<serde_json::Value> =
        serde_json::from_str(text).map_err(|error| NotAllowable::NotAList {
            why: error.to_string(),
        })?;
    if entries.len() > MAX_ENTRIES {
        return Err(NotAllowable::TooMany {
            entries: entries.len(),
        });
    }
    let mut definitions: Vec<AllowedDefinition> = Vec::new();
    for (place, entry) in entries.into_iter().enumerate() {
        let named = |field: &str| entry[field].as_str().unwrap_or("?").to_owned();
        let told = format!("definition {}/{}", named("namespace"), named("name"));
        let refused = |why: String| NotAllowable::Entry {
            number: place + 1,
            entry: told.clone(),
            why,
        };
        let definition: AllowedDefinition =
            serde_json::from_value(entry).map_err(|error| refused(error.to_string()))?;
        definition.check().map_err(&refused)?;
        let is_same = |other: &&AllowedDefinition| {
            (&other.namespace, &other.name) == (&definition.namespace, &definition.name)
        };
        if definitions.iter().any(|other| is_same(&other)) {
            return Err(refused("it is listed twice: keep one entry".to_owned()));
        }
        definitions.push(definition);
    }
    Ok(definitions)
}

impl AllowedDefinition {
    /// The kind generated from the chart, if the entry names one.
    pub fn kind(&self) -> Option<&str> {
        (!self.kind.is_empty()).then_some(&*self.kind)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let Self {
            name,
            namespace,
            url,
            version,
            repo,
            digest,
            insecure_skip_verify_tls: _,
            plain_http: _,
            kind,
            annotations,
        } = self;
        for (field, text) in [("name", name), ("namespace", namespace)] {
            if !is_name(text) {
                return Err(format!(
                    "{field} is {text:?}: write the {field} of the definition"
                ));
            }
        }
        let is_url = ["oci://", "https://", "http://"]
            .iter()
            .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme));
        if !is_url || !is_plain(url) {
            return Err(format!(
                "url is {url:?}: write spec.chart.url of the definition, an oci://, https:// or http:// URL"
            ));
        }
        if !is_exact(version) {
            return Err(format!(
                "version is {version:?}: write spec.chart.version of the definition, an exact one as 1.2.3; a range would \
                 allow charts that nobody has seen"
            ));
        }
        if !repo.is_empty() && !is_plain(repo) {
            return Err(format!(
                "repo is {repo:?}: write spec.chart.repo of the definition, or leave it out"
            ));
        }
        if !digest.is_empty() && !is_digest(digest) {
            return Err(format!(
                "digest is {digest:?}: write sha256: and 64 hexadecimal digits, or leave it out"
            ));
        }
        if !kind.is_empty() && !is_kind(kind) {
            return Err(format!(
                "kind is {kind:?}: write the kind that the chart becomes, as FireworksApp, or leave it out"
            ));
        }
        annotations
            .iter()
            .try_for_each(|(name, value)| check_annotation(name, value))
    }
}

fn check_annotation(name: &str, value: &str) -> Result<(), String> {
    let items = || value.split(',').map(str::trim).filter(|item| !item.is_empty());
    let is_meant = match name {
        annotations::ALLOWED_KINDS => {
            if let Some(error) = items().find_map(|item| item.parse::<GroupResource>().err()) {
                return Err(format!("annotation {name}: {error}"));
            }
            items().next().is_some()
        }
        annotations::ALLOWED_NAMESPACES => items().next().is_some() && items().all(is_name),
        annotations::ALLOW_CHART_RBAC => value == "true",
        _ => {
            return Err(format!(
                "annotation {name} is the admin's to set on the definition itself; an entry may list {}",
                ALLOWABLE.join(", ")
            ));
        }
    };
    if is_meant && is_plain(&value.replace(' ', "")) {
        Ok(())
    } else {
        Err(format!(
            "annotation {name} is {value:?}, which allows nothing: write what the definition is to have, or leave it out"
        ))
    }
}

/// True for a text that can be the name of a namespace or definition.
fn is_name(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    (1..=253).contains(&text.len()) && text.chars().all(is_of_name)
}

/// True for printable ASCII without spaces, quotes and backslashes: a reviewer sees exactly what it is, and it needs
/// no escaping in an expression of a policy.
fn is_plain(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | '`'))
}

/// True for an exact version: `1.2.3`, with or without a pre-release and build metadata.
pub fn is_exact(text: &str) -> bool {
    let has_parts = |text: &str| {
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        !text.is_empty() && text.chars().all(is_inner)
    };
    let text = text.strip_prefix('v').unwrap_or(text);
    let (rest, build) = text
        .split_once('+')
        .map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre_release) = rest
        .split_once('-')
        .map_or((rest, None), |(core, rest)| (core, Some(rest)));
    let is_number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && pre_release.is_none_or(has_parts)
        && build.is_none_or(has_parts)
}

/// True for `sha256:` and 64 hexadecimal digits in lower case.
pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hash| {
        hash.len() == 64
            && hash
                .chars()
                .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
    })
}

/// Kinds of generated types are ASCII, and short enough that the kind with `List` appended fits into a label.
fn is_kind(text: &str) -> bool {
    text.len() <= 59
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry() -> Value {
        json!({"name": "authn", "namespace": "krateo-system", "url": "oci://r.example/authn", "version": "0.22.2"})
    }

    fn with(field: &str, value: Value) -> Value {
        let mut entry = entry();
        entry[field] = value;
        entry
    }

    #[test]
    fn entries_are_read_and_written_as_they_were() {
        let full = json!([{
            "annotations": {
                "krateo.io/allow-chart-rbac": "true",
                "krateo.io/allowed-kinds": "apps/deployments, configmaps",
                "krateo.io/allowed-namespaces": "monitoring",
            },
            "digest": format!("sha256:{}", "a".repeat(64)),
            "insecureSkipVerifyTLS": true,
            "kind": "Authn",
            "name": "authn",
            "namespace": "krateo-system",
            "plainHTTP": true,
            "repo": "authn",
            "url": "oci://r.example/authn",
            "version": "v0.22.2-rc.1+b",
        }]);
        let read = parse(&full.to_string()).unwrap();
        assert_eq!(read[0].kind(), Some("Authn"));
        assert_eq!(json!(read), full);
        let least = parse(&json!([entry()]).to_string()).unwrap();
        assert_eq!(json!(least), json!([entry()]));
        assert_eq!(least[0].kind(), None);
        assert_eq!(parse("[]"), Ok(Vec::new()));
    }

    #[test]
    fn an_entry_that_cannot_be_meant_is_refused_with_its_place_and_what_to_write() {
        let annotated = |name: &str, value: &str| with("annotations", json!({ name: value }));
        for (entry, expected) in [
            (with("name", json!("Authn")), "write the name of the definition"),
            (with("name", json!("")), "write the name of the definition"),
            (with("namespace", json!("a/b")), "write the namespace"),
            (with("url", json!("authn")), "an oci://"),
            (with("url", json!("oci://")), "an oci://"),
            (with("url", json!("oci://r/a\"b")), "an oci://"),
            (with("url", json!("oci://r/a b")), "an oci://"),
            (with("version", json!("^0.22")), "an exact one"),
            (with("version", json!("0.22")), "an exact one"),
            (with("version", json!("latest")), "an exact one"),
            (with("version", json!("1.2.x")), "an exact one"),
            (with("version", json!("1.2.3 || 2")), "an exact one"),
            (with("repo", json!("a b")), "spec.chart.repo"),
            (with("digest", json!("sha256:1")), "64 hexadecimal digits"),
            (with("kind", json!("authns")), "as FireworksApp"),
            (with("kind", json!("*")), "as FireworksApp"),
            (with("versions", json!("1")), "unknown field `versions`"),
            (with("version", Value::Null), "invalid type: null"),
            (
                annotated("krateo.io/allowed-kinds", "apps/*"),
                "is not a kind of object",
            ),
            (annotated("krateo.io/allowed-kinds", " , "), "allows nothing"),
            (annotated("krateo.io/allowed-namespaces", "*"), "allows nothing"),
            (
                annotated("krateo.io/allowed-namespaces", "a,\nb"),
                "allows nothing",
            ),
            (annotated("krateo.io/allow-chart-rbac", "false"), "allows nothing"),
            (
                annotated("krateo.io/allowed-lookups", "pods"),
                "the admin's to set",
            ),
            (
                annotated("krateo.io/allowed-definitions", "[]"),
                "the admin's to set",
            ),
            (
                annotated("krateo.io/rotate-release-key", "1"),
                "the admin's to set",
            ),
        ] {
            let text = json!([self::entry(), entry]).to_string();
            let refused = parse(&text).unwrap_err().to_string();
            assert!(refused.starts_with("entry 2, definition "), "{refused}");
            assert!(refused.contains(expected), "{refused}");
        }
        let twice = parse(&json!([entry(), entry()]).to_string()).unwrap_err();
        assert_eq!(
            twice.to_string(),
            "entry 2, definition krateo-system/authn: it is listed twice: keep one entry"
        );
    }

    #[test]
    fn a_list_is_bounded_in_length_and_entries() {
        let many: Vec<Value> = (0..=MAX_ENTRIES)
            .map(|number| with("name", json!(format!("c{number}"))))
            .collect();
        let told = |text: &str| parse(text).unwrap_err().to_string();
        assert!(told(&json!(many).to_string()).contains("at most 64"));
        assert_eq!(
            parse(&json!(many[1..]).to_string()).unwrap().len(),
            MAX_ENTRIES,
            "as many as that are taken"
        );
        assert!(told(&" ".repeat(MAX_TEXT + 1)).contains("list fewer"));
        assert!(told("{}").contains("not a JSON list"));
        assert!(told("").contains("not a JSON list"));
    }

    #[test]
    fn a_version_is_pinned_to_one() {
        for version in [
            "0.22.2",
            "1.0.0",
            "1.0.0-rc.1",
            "10.20.30",
            "v1.20.2",
            "1.2.3-rc.1+b5",
        ] {
            assert!(is_exact(version), "{version}");
        }
        for version in [
            "", "1", "1.2", "^1.2.3", "1.2.x", "1.2.3.4", "1.2.3-", "1.2.3+", "1.2.3 ", ">1.2.3", "latest",
        ] {
            assert!(!is_exact(version), "{version}");
        }
    }
}
