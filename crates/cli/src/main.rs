//! `kco`: the same plans as the controllers', from a terminal.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod chart_at;
mod crd;
mod report;
mod schema;
mod template;
mod values;

fn main() -> ExitCode {
    args::Kco::parse().run()
}
