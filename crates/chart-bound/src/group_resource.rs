//! Kinds of objects in RBAC's terms: a group and a plural name.

use std::fmt;
use std::str::FromStr;

/// A kind of object in RBAC's terms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Plural resource name.
    pub resource: String,
}

impl GroupResource {
    /// The kind of this group, empty for the core group, and plural name.
    pub fn new(group: &str, resource: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }

    pub(crate) fn secrets() -> Self {
        Self::new("", "secrets")
    }

    pub(crate) fn is_secrets(&self) -> bool {
        self.group.is_empty() && self.resource == "secrets"
    }

    /// In the form that policies compare: there is always a slash.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.group, self.resource)
    }
}

/// `apps/deployments`, and `services` in the core group.
impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}/{}", self.group, self.resource)
        }
    }
}

/// An annotation entry that does not name a kind of object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a kind of object: write group/resource, as in apps/deployments, or the resource alone in the core group"
)]
pub struct NotAKind {
    text: String,
}

impl FromStr for GroupResource {
    type Err = NotAKind;

    fn from_str(text: &str) -> Result<Self, NotAKind> {
        let (group, resource) = text.trim().split_once('/').unwrap_or(("", text.trim()));
        let is_name = |text: &str| {
            text.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '/'))
        };
        if resource.is_empty() || !is_name(group) || !is_name(resource) {
            return Err(NotAKind {
                text: text.to_owned(),
            });
        }
        Ok(Self::new(group, resource))
    }
}
