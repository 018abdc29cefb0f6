//! join-service: lets attested nodes into the cluster.

mod args;
mod issued;
mod keys;
mod machine;
mod plan;
mod run;
mod serve;
mod world;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    runtime::args::parse::<args::Args>().run().await
}
