//! `kco completion` and `kco docs`: completions for shells, and manual pages, made from the arguments themselves.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Kco;

/// Which shell.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell: bash, zsh, fish or powershell.
    shell: Shell,
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

/// Prints the completions.
pub(crate) fn run(args: &Completion) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Kco::command(), "kco", &mut text);
    crate::report::out(&String::from_utf8_lossy(&text))
}

/// Writes a manual page for each command.
pub(crate) fn docs(args: &Docs) -> Result<()> {
    if args.kind != "man" {
        bail!("unknown doc type {:?}: only \"man\" is written", args.kind);
    }
    clap_mangen::generate_to(Kco::command(), &args.dir)
        .with_context(|| format!("could not write to {}", args.dir.display()))
}
