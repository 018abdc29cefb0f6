//! multicluster-operator: one chart, released on many clusters.

mod args;
mod chart;
mod claims;
mod cluster_id;
mod context;
mod crds;
mod deployment;
mod engine;
mod field_manager;
mod fingerprint;
mod key;
mod message;
mod metrics;
mod names;
mod next;
mod pass;
mod registry;
mod release_key;
mod run;
mod self_cluster;
mod tenant;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    Box::pin(runtime::args::parse::<args::Args>().run()).await
}
