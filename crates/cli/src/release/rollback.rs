//! `kco rollback`.

use anyhow::{Result, bail};
use helm::release::Status;
use helm_client::records::Observed;
use helm_client::release::{Error, Options, To};

use super::args;
use super::make::{given, is_dry, wait};
use super::session;
use crate::report::out;

/// Helm's `MaxDescriptionLength`.
const LONGEST_DESCRIPTION: usize = 256;

/// Rolls back to an earlier revision.
pub(crate) fn run(args: &args::Rollback) -> Result<()> {
    let is_dry = is_dry(&args.dry_run)?;
    args.refused.check()?;
    let description = given(args.description.as_deref());
    let length = description.as_deref().map_or(0, |text| text.chars().count());
    if length > LONGEST_DESCRIPTION {
        bail!("description must be {LONGEST_DESCRIPTION} characters or less, got {length}");
    }
    let options = Options {
        max_history: args.history_max,
        timeout: args.waiting.timeout,
        wait: wait(&args.waiting, false),
        hooks: !args.no_hooks,
        force_conflicts: args.force_conflicts,
        description,
        ..Options::default()
    };
    session::run(&args.connection, async |session| {
        if is_dry {
            session.revision(&args.release, args.revision).await?;
            return Ok(());
        }
        session
            .act(&args.release, options, async |releases, observed| {
                if is_continued(observed, args.revision) {
                    Box::pin(releases.resume(observed, None)).await?;
                    return Ok(());
                }
                let to = match args.revision {
                    0 => To::Previous,
                    revision => To::Revision(revision),
                };
                match Box::pin(releases.rollback(to, observed)).await {
                    Ok(_) => Ok(()),
                    Err(Error::NoRelease) => bail!("release: not found"),
                    Err(Error::NoRevision { revision, .. }) => bail!("release has no {revision} version"),
                    Err(failure) => Err(failure.into()),
                }
            })
            .await
    })?;
    out("Rollback was a success! Happy Helming!\n")
}

/// True if an interrupted rollback to this same revision is continued.
fn is_continued(observed: &Observed, wanted: i64) -> bool {
    let pending = observed.newest.as_ref().filter(|newest| !newest.is_foreign());
    pending.is_some_and(|newest| {
        let is_to = newest.release.info.rollback_revision == wanted;
        *newest.status() == Status::PendingRollback && (is_to || wanted == 0)
    })
}
