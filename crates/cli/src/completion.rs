//! `kco completion` and `kco docs`: shell completions and manual pages, generated from the arguments.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Command};
use clap_complete::Shell;

/// The shell.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell: bash, zsh, fish or powershell.
    shell: Shell,
    /// Accepted without effect: what is completed is described where the shell shows descriptions.
    #[arg(long, hide = true)]
    no_descriptions: bool,
}

/// The flags of `helm docs`.
#[derive(Debug, Args)]
pub(crate) struct Docs {
    /// The folder to write to.
    #[arg(long, default_value = "./")]
    dir: PathBuf,
    /// What to write: "man".
    #[arg(long = "type", default_value = "man")]
    kind: String,
}

/// Prints the completions of `command`.
pub(crate) fn run(args: &Completion, mut command: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "kco", &mut text);
    crate::report::out(&String::from_utf8_lossy(&text))
}

/// Writes a manual page for `command` and each of its subcommands.
pub(crate) fn docs(args: &Docs, command: Command) -> Result<()> {
    if args.kind != "man" {
        bail!("unknown doc type {:?}: only \"man\" is written", args.kind);
    }
    clap_mangen::generate_to(command, &args.dir)
        .with_context(|| format!("could not write to {}", args.dir.display()))
}
