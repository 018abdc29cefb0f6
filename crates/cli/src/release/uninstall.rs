//! `kco uninstall`.

use anyhow::{Context as _, Result, bail};
use helm::release::Status;
use helm_client::records::Record;
use helm_client::release::Options;

use super::args;
use super::make::{given, wait};
use super::session::{self, Session};
use crate::report::out;

/// Uninstalls one release after the other.
pub(crate) fn run(args: &args::Uninstall) -> Result<()> {
    session::run(&args.connection, async |session| {
        for release in &args.releases {
            uninstall(session, release, args).await?;
        }
        Ok(())
    })
}

async fn uninstall(session: &Session, release: &str, args: &args::Uninstall) -> Result<()> {
    let done = format!("release {release:?} uninstalled\n");
    // A release that does not exist is not locked: its namespace may not exist either.
    let newest = session.find(release).await?.newest;
    if newest.is_none() {
        session.clear(release).await?;
    }
    match newest.as_ref().map(Record::status) {
        None if args.ignore_not_found => return out(&done),
        None => bail!("uninstall: Release not loaded: {release}: release: not found"),
        Some(Status::Uninstalled) if args.keep_history => {
            bail!("the release named {release:?} is already deleted")
        }
        Some(_) => {}
    }
    if args.dry_run {
        return out(&done);
    }
    let options = Options {
        timeout: args.waiting.timeout,
        wait: wait(&args.waiting, false),
        hooks: !args.no_hooks,
        keep_history: args.keep_history,
        propagation: args.cascade.into(),
        description: given(args.description.as_deref()),
        ..Options::default()
    };
    let uninstalled = session
        .act(release, options, async |releases, observed| {
            let failed = || format!("failed to uninstall {release}");
            Box::pin(releases.uninstall(observed)).await.with_context(failed)
        })
        .await?;
    if !uninstalled.kept.is_empty() {
        let kept = uninstalled.kept.iter();
        let lines: Vec<String> = kept
            .map(|id| format!("[{}] {}\n", id.resource().kind, id.name()))
            .collect();
        out(&format!(
            "These resources were kept due to the resource policy:\n{}\n",
            lines.concat()
        ))?;
    }
    out(&done)
}
