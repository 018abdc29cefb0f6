//! The rules about `Chart.yaml` (Helm's `pkg/chart/v2/lint/rules/chartfile.go`).

use helm::chart::{self, Metadata};
use helm::semver::Version;
use helm::yaml;
use serde_json::Value;

use super::source::Source;
use super::{Messages, Severity, chain};

const FILE: &str = "Chart.yaml";

/// The fields of a chart, of a dependency and of a maintainer.
const FIELDS: [&str; 17] = [
    "annotations",
    "apiVersion",
    "appVersion",
    "condition",
    "dependencies",
    "deprecated",
    "description",
    "home",
    "icon",
    "keywords",
    "kubeVersion",
    "maintainers",
    "name",
    "sources",
    "tags",
    "type",
    "version",
];
const DEPENDENCY_FIELDS: [&str; 8] = [
    "alias",
    "condition",
    "enabled",
    "import-values",
    "name",
    "repository",
    "tags",
    "version",
];
const MAINTAINER_FIELDS: [&str; 3] = ["email", "name", "url"];

/// Checks `Chart.yaml`.
pub(super) fn check(source: &Source, messages: &mut Messages) {
    let metadata = match chart::definition(&source.definition) {
        Ok(metadata) => metadata,
        Err(error) => {
            let text = format!("unable to parse YAML\n\t{}", chain(error));
            return messages.add(Severity::Error, FILE, text);
        }
    };
    let read = yaml::parse(&source.definition).unwrap_or_default();
    if let Err(fault) = strictly(&source.definition, &read) {
        let text = format!("failed to strictly parse chart metadata file\n\t{fault}");
        messages.add(Severity::Warning, FILE, text);
    }
    for outcome in [
        check_name(&metadata),
        check_api_version(&metadata),
        is_text(&read, "version"),
        check_version(&metadata),
        is_text(&read, "appVersion"),
        check_maintainers(&metadata),
        check_sources(&metadata),
    ] {
        messages.check(Severity::Error, FILE, outcome);
    }
    if metadata.icon.is_empty() {
        messages.add(Severity::Info, FILE, "icon is recommended");
    } else if !is_request_url(&metadata.icon) {
        let text = format!("invalid icon URL '{}'", metadata.icon);
        messages.add(Severity::Error, FILE, text);
    }
    let api_version = &metadata.api_version;
    if !metadata.chart_type.is_empty() && api_version != "v2" {
        let text =
            format!("chart type is not valid in apiVersion '{api_version}'. It is valid in apiVersion 'v2'");
        messages.add(Severity::Error, FILE, text);
    }
    if metadata.dependencies.iter().flatten().next().is_some() && api_version != "v2" {
        let text = format!(
            "dependencies are not valid in the Chart file with apiVersion '{api_version}'. They are valid in \
             apiVersion 'v2'"
        );
        messages.add(Severity::Error, FILE, text);
    }
    if Version::parse_strict(&metadata.version).is_err() {
        let text = format!("version '{}' is not a valid SemVerV2", metadata.version);
        messages.add(Severity::Warning, FILE, text);
    }
}

/// Whether every field is known, and written once.
fn strictly(text: &[u8], read: &Value) -> Result<(), String> {
    yaml::parse_strict(text).map_err(|error| format!("error converting YAML to JSON: {}", chain(error)))?;
    let unknown = |field: String| {
        Err(format!(
            "error unmarshaling JSON: while decoding JSON: json: unknown field {field:?}"
        ))
    };
    let Value::Object(fields) = read else {
        return Ok(());
    };
    // Go checks the fields in alphabetical order, and compares these names case-insensitively.
    for (name, value) in fields {
        if !is_known(name, &FIELDS) {
            return unknown(name.clone());
        }
        let known: &[&str] = match name.to_ascii_lowercase().as_str() {
            "dependencies" => &DEPENDENCY_FIELDS,
            "maintainers" => &MAINTAINER_FIELDS,
            _ => continue,
        };
        let entries = value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_object);
        if let Some(name) = entries
            .flat_map(|entry| entry.keys())
            .find(|name| !is_known(name, known))
        {
            return unknown(name.clone());
        }
    }
    Ok(())
}

fn is_known(name: &str, known: &[&str]) -> bool {
    known.iter().any(|field| field.eq_ignore_ascii_case(name))
}

fn check_name(metadata: &Metadata) -> Result<(), String> {
    if metadata.name.is_empty() {
        return Err("name is required".to_owned());
    }
    if metadata.name.contains('/') {
        return Err(format!("chart name {:?} is invalid", metadata.name));
    }
    Ok(())
}

fn check_api_version(metadata: &Metadata) -> Result<(), String> {
    const WANTED: &str = "The value must be either \"v1\" or \"v2\"";
    match metadata.api_version.as_str() {
        "v1" | "v2" => Ok(()),
        "" => Err(format!("apiVersion is required. {WANTED}")),
        other => Err(format!("apiVersion '{other}' is not valid. {WANTED}")),
    }
}

/// A version that YAML parses as a number is not the version that was meant.
fn is_text(read: &Value, field: &str) -> Result<(), String> {
    let kind = match read.get(field) {
        None | Some(Value::String(_)) => return Ok(()),
        Some(Value::Number(_)) => "float64",
        Some(Value::Bool(_)) => "bool",
        Some(Value::Null) => "<nil>",
        Some(Value::Array(_)) => "[]interface {}",
        Some(Value::Object(_)) => "map[string]interface {}",
    };
    Err(format!(
        "{field} should be of type string but it's of type {kind}"
    ))
}

fn check_version(metadata: &Metadata) -> Result<(), String> {
    if metadata.version.is_empty() {
        return Err("version is required".to_owned());
    }
    match Version::parse(&metadata.version) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("version '{}' is not a valid SemVer", metadata.version)),
    }
}

fn check_maintainers(metadata: &Metadata) -> Result<(), String> {
    for maintainer in &metadata.maintainers {
        let name = &maintainer.name;
        if name.is_empty() {
            return Err("each maintainer requires a name".to_owned());
        }
        if !maintainer.email.is_empty() && !is_email(&maintainer.email) {
            return Err(format!(
                "invalid email '{}' for maintainer '{name}'",
                maintainer.email
            ));
        }
        if !maintainer.url.is_empty() && !is_url(&maintainer.url) {
            return Err(format!(
                "invalid url '{}' for maintainer '{name}'",
                maintainer.url
            ));
        }
    }
    Ok(())
}

fn check_sources(metadata: &Metadata) -> Result<(), String> {
    match metadata.sources.iter().find(|source| !is_request_url(source)) {
        Some(source) => Err(format!("invalid source URL '{source}'")),
        None => Ok(()),
    }
}

/// An email address, by its shape: a mailbox, and a host of more than one label.
fn is_email(text: &str) -> bool {
    let Some((mailbox, host)) = text.rsplit_once('@') else {
        return false;
    };
    let is_legal = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_alphanumeric() || c == '-')
    };
    !mailbox.is_empty()
        && mailbox.split('.').all(|part| !part.is_empty())
        && mailbox.chars().all(is_legal)
        && host.contains('.')
        && host.split('.').all(is_label)
}

/// A URL whose scheme may be missing.
fn is_url(text: &str) -> bool {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    text.len() >= 3
        && !text.starts_with('.')
        && !text.contains(char::is_whitespace)
        && (host == "localhost" || host.starts_with("localhost:") || host.contains(['.', ':']))
}

/// A URL with a scheme, followed by a path or a host.
fn is_request_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && rest.starts_with('/')
        && !text.contains(|c: char| c.is_ascii_control())
        && !rest
            .trim_start_matches('/')
            .split('/')
            .next()
            .is_some_and(|host| host.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_judged_by_their_shape() {
        for text in ["jo@example.com", "jo.doe+charts@mail.example.com"] {
            assert!(is_email(text), "{text}");
        }
        for text in [
            "jo",
            "jo@",
            "@example.com",
            "jo doe@example.com",
            "jo@example",
            "jo@-x.com",
        ] {
            assert!(!is_email(text), "{text}");
        }
        for text in [
            "https://example.com/icon.svg",
            "ftp://example.com",
            "file:///icon.svg",
        ] {
            assert!(is_request_url(text), "{text}");
        }
        for text in [
            "icon.svg",
            "/icon.svg",
            "example.com/icon.svg",
            "data:image/png;base64,AA",
            "https:icon",
            "1s://x",
        ] {
            assert!(!is_request_url(text), "{text}");
        }
        for text in ["https://example.com", "example.com", "localhost"] {
            assert!(is_url(text), "{text}");
        }
        for text in ["x", ".example.com", "two words", "example"] {
            assert!(!is_url(text), "{text}");
        }
    }
}
