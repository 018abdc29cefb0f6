//! bootstrapper: turns a bare node into a node of a cluster.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    bootstrapper::args::Args::parse().run().await
}
