//! core-provider: a chart that a CompositionDefinition points at becomes a type and a controller.

mod args;
mod backlog;
mod bound;
mod bundle;
mod definition;
mod definition_type;
mod grants;
mod labelling;
mod namespaces;
mod run;
mod templates;
mod webhook;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    runtime::args::parse::<args::Args>().run().await
}
