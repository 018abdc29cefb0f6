//! composition-dynamic-controller: objects of one generated type become Helm releases.

mod args;
mod composition;
mod inspector;
mod run;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    runtime::args::parse::<args::Args>().run().await
}
