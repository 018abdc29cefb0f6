//! `kco`: the same plans as the controllers', from a terminal.

use std::process::ExitCode;

mod args;
mod audit;
mod chart_at;
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
mod init;
mod installer;
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

/// As the controllers do; see the crate `runtime`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match command::Kco::of(std::env::args_os()) {
        Ok(kco) => kco.run(),
        Err(error) => {
            // Help is asked for and no failure; everything else ends with 1, as in Helm, where clap would end with 2.
            let _ = error.print();
            ExitCode::from(u8::from(error.use_stderr()))
        }
    }
}
