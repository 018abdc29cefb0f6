//! `kco`: the controllers' plans, and Helm's commands, in a terminal.

use std::process::ExitCode;

mod access;
mod args;
mod audit;
mod chart_at;
mod clock;
mod cluster;
mod command;
mod completion;
mod composition;
mod crd;
mod create;
mod credential_helper;
mod dependency;
mod environment;
mod everywhere;
mod fetch;
mod grant;
mod init;
mod input;
mod installer;
mod keyring;
mod lint;
mod migrate;
mod node;
mod package;
mod private_file;
mod progress;
mod prompt;
mod pull;
mod push;
mod registry;
mod release;
mod repo;
mod report;
mod schema;
mod search;
mod show;
mod template;
mod values;
mod verify;
mod version;
mod wait;

/// The same allocator as the controllers'; see the crate `runtime`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match command::Kco::of(std::env::args_os()) {
        Ok(kco) => kco.run(),
        Err(error) => {
            // Asking for help is not a failure; everything else exits with 1 as Helm does, where clap would exit with
            // 2.
            let _ = error.print();
            ExitCode::from(u8::from(error.use_stderr()))
        }
    }
}
