//! The API server's rules for names of objects.

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
    must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation \
    is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// Checks the name of an object of this kind.
pub(super) fn check(kind: &str, name: &str) -> Result<(), String> {
    let faults = match kind.to_lowercase().as_str() {
        "service" => faults(
            name,
            63,
            LABEL_1035,
            is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase()),
        ),
        "namespace" => {
            let is_subdomain = name.split('.').all(is_label);
            let rule = if is_subdomain {
                "must not contain dots"
            } else {
                LABEL
            };
            faults(name, 63, rule, is_label(name))
        }
        "certificatesigningrequest" => Vec::new(),
        "role" | "clusterrole" | "rolebinding" | "clusterrolebinding" => path_segment(name),
        _ => faults(name, 253, SUBDOMAIN, name.split('.').all(is_label)),
    };
    if faults.is_empty() {
        return Ok(());
    }
    let faults: Vec<String> = faults
        .iter()
        .map(|fault| format!("metadata.name: Invalid value: {name:?}: {fault}"))
        .collect();
    let faults = match faults.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    Err(format!(
        "object name does not conform to Kubernetes naming requirements: {name:?}: {faults}"
    ))
}

fn faults(name: &str, most: usize, rule: &str, holds: bool) -> Vec<String> {
    let mut faults = Vec::new();
    if name.len() > most {
        faults.push(format!("must be no more than {most} bytes"));
    }
    if !holds {
        faults.push(rule.to_owned());
    }
    faults
}

fn is_label(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
        && text.chars().all(|c| is_alphanumeric(c) || c == '-')
}

fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    let forbidden = ["/", "%"].into_iter().filter(|part| name.contains(part));
    forbidden
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}
