//! `make attacks`: what tenants, chart authors, thieves of tokens, peers on the network, registries and definition
//! authors can try, each with a real token on a real control plane. Prints a line for each, and how many got through.
#![allow(clippy::print_stdout, reason = "the table is what it is for")]

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use e2e::progress;
use e2e::trials::attacks::{self, Attack, Stage};

/// Runs attacks, which must all be refused.
#[derive(Debug, Parser)]
struct Args {
    /// Names of attacks, or beginnings of names; all attacks if none is given.
    #[arg(long)]
    only: Vec<String>,
    /// Only those of `make test`, which take a request or two each.
    #[arg(long)]
    quick: bool,
    /// Also those that are not refused yet.
    #[arg(long)]
    later: bool,
    /// List them.
    #[arg(long)]
    list: bool,
    /// How many run at a time.
    #[arg(long, default_value_t = 3)]
    at_once: usize,
}

impl Args {
    fn wants(&self, attack: &Attack) -> bool {
        let is_named = self
            .only
            .iter()
            .any(|name| attack.name.starts_with(name.as_str()));
        if !self.only.is_empty() {
            return is_named;
        }
        (self.later || !attack.later) && (attack.quick || !self.quick)
    }
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let attacks: Vec<Attack> = attacks::all()
        .into_iter()
        .filter(|attack| args.wants(attack))
        .collect();
    ensure!(
        !attacks.is_empty(),
        "there is no attack of that name: --list has all"
    );
    if args.list {
        for attack in &attacks {
            println!("{} | {}: {}", attack.actor, attack.name, attack.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let stage = Stage::start()?;
    let table = attacks::run(&stage, &attacks, args.at_once)?;
    if !table.is_good() {
        progress(format_args!("logs are in {}", stage.collect_logs()?.display()));
    }
    println!("{table}");
    Ok(if table.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
