//! composition-dynamic-controller: objects of one generated type become Helm releases.

mod args;
mod backlog;
mod composition;
mod compositions;
mod controller;
mod definitions;
mod inspector;
mod lookups;
mod metrics;
mod release_key;
mod run;
mod shards;
mod types;
mod watches;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    runtime::args::parse::<args::Args>().run().await
}
