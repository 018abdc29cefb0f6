//! The Helm release that the programs of a platform were installed with.

use anyhow::{Context as _, Result};
use helm_client::records::Record;

use crate::release::session::Session;

pub(super) async fn newest(session: &Session, name: &str) -> Result<Record> {
    let observed = session.find(name).await?;
    observed.newest.with_context(|| {
        format!(
            "there is no Helm release {name} in namespace {}: name the one that core-provider was installed with, helm list \
             --all-namespaces shows it",
            session.namespace
        )
    })
}
