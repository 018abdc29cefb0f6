//! The context, cluster and user that a kubeconfig selects.

use std::collections::BTreeSet;

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig};

use super::Error;
use super::error::shown;

/// The parts that the current context refers to.
#[derive(Debug, Clone)]
pub(super) struct CurrentContext {
    pub(super) context_name: String,
    pub(super) context: Context,
    pub(super) cluster: Cluster,
    /// Without a user, requests are anonymous.
    pub(super) user: AuthInfo,
}

/// Parses a kubeconfig of one document.
pub(super) fn parse(text: &[u8]) -> Result<Kubeconfig, Error> {
    serde_saphyr::from_slice(text).map_err(|error| {
        // The message may quote the line, and thereby a password.
        let location = error.location();
        Error::Unreadable {
            line: location.map_or(0, |at| at.line()),
            column: location.map_or(0, |at| at.column()),
        }
    })
}

impl CurrentContext {
    /// The parts that the current context of a kubeconfig refers to.
    pub(super) fn of(kubeconfig: Kubeconfig) -> Result<Self, Error> {
        let Kubeconfig {
            clusters,
            auth_infos,
            contexts,
            current_context,
            preferences: _,
            extensions: _,
            kind: _,
            api_version: _,
            other: _,
        } = kubeconfig;
        let contexts: Vec<_> = contexts.into_iter().map(|one| (one.name, one.context)).collect();
        let clusters: Vec<_> = clusters.into_iter().map(|one| (one.name, one.cluster)).collect();
        let users: Vec<_> = auth_infos
            .into_iter()
            .map(|one| (one.name, one.auth_info))
            .collect();
        unique("context", &contexts)?;
        unique("cluster", &clusters)?;
        unique("user", &users)?;
        let context_name = current_context
            .filter(|name| !name.is_empty())
            .ok_or(Error::NoCurrentContext)?;
        let context = find("context", contexts, &context_name, || {
            "current-context".to_owned()
        })?;
        let by = || format!("context {}", shown(&context_name));
        let cluster = find("cluster", clusters, &context.cluster, by)?;
        let user = match context.user.as_deref() {
            None | Some("") => AuthInfo::default(),
            Some(name) => find("user", users, name, by)?,
        };
        Ok(Self {
            context_name,
            context,
            cluster,
            user,
        })
    }

    /// The cluster, for a message.
    pub(super) fn of_cluster(&self) -> String {
        format!("cluster {}", shown(&self.context.cluster))
    }

    /// The user, for a message.
    pub(super) fn of_user(&self) -> String {
        format!("user {}", shown(self.context.user.as_deref().unwrap_or_default()))
    }
}

fn unique<T>(list: &'static str, entries: &[(String, T)]) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for (name, _) in entries {
        if !seen.insert(name) {
            return Err(Error::Duplicate {
                list,
                name: shown(name),
            });
        }
    }
    Ok(())
}

/// The entry with this name; one without content counts as missing.
fn find<T>(
    list: &'static str,
    entries: Vec<(String, Option<T>)>,
    name: &str,
    by: impl Fn() -> String,
) -> Result<T, Error> {
    let found = entries.into_iter().find(|(entry, _)| entry == name);
    found
        .and_then(|(_, content)| content)
        .ok_or_else(|| Error::Missing {
            list,
            name: shown(name),
            by: by(),
        })
}
