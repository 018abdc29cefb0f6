//! The umbrella chart `charts/installer` from a terminal, and the code of its hook Jobs.

pub(crate) mod args;
mod check;
mod components;
mod consent;
mod crds;
mod grants;
mod graph;
mod home;
mod hook;
mod input;
mod names;
mod release;
mod schema;
mod status;
mod world;

use anyhow::Result;

/// Runs a command of `kco installer`.
pub(crate) fn run(command: args::Command) -> Result<()> {
    match command {
        args::Command::Check(args) => check::run(&args),
        args::Command::Install(args) => release::install(*args),
        args::Command::Diff(args) => release::diff(*args),
        args::Command::Status(args) => status::run(&args),
        args::Command::Uninstall(args) => release::uninstall(*args),
        args::Command::Schema(args) => schema::run(&args),
        args::Command::Hook(hook) => hook::run(&hook),
    }
}
