//! chart-inspector: which objects would this composition's chart touch?

mod args;
mod callers;
mod definitions;
mod document;
mod http;
mod inspector;
mod run;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    runtime::args::parse::<args::Args>().run().await
}
