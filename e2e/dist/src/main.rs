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

/// Makes what users download.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lays out the files of a commit as those of a version.
    Source(source::Source),
    /// Builds the programs of these sources.
    Build(programs::Build),
    /// Makes archives, images, charts and what comes with them of programs that are built.
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

/// Says what is being done.
fn progress(what: impl std::fmt::Display) {
    eprintln!("dist: {what}");
}
