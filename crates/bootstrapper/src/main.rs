//! bootstrapper: from a bare node to one of a cluster.

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    bootstrapper::args::Args::parse().run().await
}
