//! `make release`: builds everything that users download from the programs of a commit.
//!
//! Nothing here depends on the time or on who runs it: the same commit, programs and key give the same bytes.
#![expect(clippy::print_stdout, reason = "the last line says what was made")]
#![expect(
    clippy::print_stderr,
    reason = "progress is what the person at the terminal waits for"
)]

mod archive;
mod assembly;
mod changelog;
mod charts;
mod crates;
mod digest;
mod elf;
mod images;
mod licenses;
mod oci;
mod programs;
mod sbom;
mod signing;
mod source;
mod version;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Builds everything that users download.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the files of a commit as the sources of a version.
    Source(source::Source),
    /// Build the programs from these sources.
    Build(programs::Build),
    /// Build archives, images, charts and everything else from built programs.
    Assemble(assembly::Assemble),
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Source(source) => source.lay_out(),
        Command::Build(build) => build.run(),
        Command::Assemble(assemble) => {
            println!("{}", assemble.run()?);
            Ok(())
        }
    }
}

/// Prints what is being done.
fn progress(what: impl std::fmt::Display) {
    eprintln!("dist: {what}");
}
