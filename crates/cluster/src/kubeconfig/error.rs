//! What is wrong with a kubeconfig, without any of its secrets.

use std::path::PathBuf;

use super::RefusedAddress;

/// Names are cut to this length in messages.
const LONGEST_NAME: usize = 64;

/// A kubeconfig that is refused. Messages contain nothing of the kubeconfig except names of contexts, clusters and
/// users, and host names, each quoted and cut.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is too large.
    #[error(
        "the kubeconfig has {size} bytes, and {most} are allowed: keep one context in it, as `{}` does",
        MINIFY
    )]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit.
        most: usize,
    },
    /// It is not YAML, or not a kubeconfig.
    #[error("the kubeconfig cannot be read{}: write it with `{}`", place(*.line, *.column), MINIFY)]
    Unreadable {
        /// Line of the error; 0 when unknown.
        line: u64,
        /// Column of the error.
        column: u64,
    },
    /// It has no current context.
    #[error("the kubeconfig has no current-context: set it with `kubectl config use-context NAME`")]
    NoCurrentContext,
    /// A name is referred to that is not in the list.
    #[error(
        "the kubeconfig has no {list} {name}, which {by} names: add it, or write the file with `{}`",
        MINIFY
    )]
    Missing {
        /// `context`, `cluster` or `user`.
        list: &'static str,
        /// The name, quoted.
        name: String,
        /// What refers to it.
        by: String,
    },
    /// A name occurs twice in a list.
    #[error("the kubeconfig has two {list}s with the name {name}: remove or rename one of them")]
    Duplicate {
        /// `context`, `cluster` or `user`.
        list: &'static str,
        /// The name, quoted.
        name: String,
    },
    /// The address of the server is missing or cannot be used.
    #[error("`server` of cluster {cluster} is not usable: {why}")]
    Server {
        /// Name of the cluster, quoted.
        cluster: String,
        /// What to do about it.
        why: &'static str,
    },
    /// Connections to the server's address are forbidden.
    #[error(
        "`server` of cluster {cluster} is on host {host}, {kind}: write the address that the cluster is reached at from \
         elsewhere"
    )]
    Address {
        /// Name of the cluster, quoted.
        cluster: String,
        /// The host, quoted.
        host: String,
        /// The kind of address.
        kind: RefusedAddress,
    },
    /// A field would run a program, open a file, or weaken the connection.
    #[error("`{field}` of {of} is not allowed: {instead}")]
    NotAllowed {
        /// The field.
        field: &'static str,
        /// The user or cluster.
        of: String,
        /// What to do instead.
        instead: &'static str,
    },
    /// A field has an invalid value.
    #[error("`{field}` of {of} is not usable: {why}")]
    Field {
        /// The field.
        field: &'static str,
        /// The user or cluster.
        of: String,
        /// What is expected.
        why: &'static str,
    },
    /// No client can be created from it.
    #[error("no connection can be set up with the certificates or credentials of the kubeconfig")]
    Client(#[source] Box<kube::Error>),
    /// A file could not be read.
    #[error("could not read {path}", path = .path.display())]
    ReadFile {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is neither a kubeconfig nor the service account of a pod.
    #[error(
        "there is no kubeconfig at {looked_at} and no service account of a pod: name a kubeconfig in $KUBECONFIG"
    )]
    Nowhere {
        /// The path, or what should name it.
        looked_at: String,
    },
}

/// The command that writes a kubeconfig in the required form.
pub(super) const MINIFY: &str = "kubectl config view --raw --minify --flatten";

/// Hint for a path in a kubeconfig.
pub(super) const MINIFY_HINT: &str = "files are not read here; write it with `kubectl config view --raw --minify --flatten`, which puts files inline";

/// A name, prepared for a message.
pub(super) fn shown(name: &str) -> String {
    let mut cut: String = name.chars().take(LONGEST_NAME).collect();
    if cut.len() < name.len() {
        cut.push('…');
    }
    format!("{cut:?}")
}

fn place(line: u64, column: u64) -> String {
    match line {
        0 => String::new(),
        line => format!(" at line {line}, column {column}"),
    }
}
