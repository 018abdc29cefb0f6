//! The multicluster operator's clusters from a terminal. Each is described by a Secret with a kubeconfig in one
//! namespace at home.

pub(crate) mod args;
mod join;
mod leave;
mod list;
mod rules;
mod target;

use std::path::PathBuf;

use anyhow::Result;
use cluster::ClientOptions;

use crate::release::args::Connection;

/// The default namespace of the operator, where it looks for clusters.
const HOME: &str = "multicluster-operator";

/// The field manager.
const MANAGER: &str = "kco";

/// Runs a command of `kco cluster`.
pub(crate) fn run(command: args::Command) -> Result<()> {
    match command {
        args::Command::Join(args) => join::run(&args),
        args::Command::List(args) => list::run(*args),
        args::Command::Leave(args) => leave::run(&args),
    }
}

/// The connection to the operator's namespace.
fn home(mut connection: Connection) -> Connection {
    if connection.namespace.as_deref().is_none_or(str::is_empty) {
        connection.namespace = Some(HOME.to_owned());
    }
    connection
}

/// How to connect to the target.
fn target_options(
    connection: &Connection,
    kubeconfig: Option<&PathBuf>,
    context: Option<&String>,
) -> ClientOptions {
    ClientOptions {
        kubeconfig: kubeconfig.or(connection.kubeconfig.as_ref()).cloned(),
        context: context.cloned(),
        user_agent: concat!("kco/", env!("CARGO_PKG_VERSION")).to_owned(),
    }
}
