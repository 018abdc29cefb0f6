//! `kco upgrade`.

use anyhow::{Context as _, Result};
use helm::release::Status;
use helm_client::records::{Observed, Record};
use helm_client::release::{Releases, State};

use super::args;
use super::args::Format;
use super::install::{self, print};
use super::make::{self, ReleaseInput};
use super::session::{self, Session};
use crate::report::out;

/// Upgrades, or with `--install` installs, and prints the release.
pub(crate) fn run(args: &args::Upgrade) -> Result<()> {
    let input = ReleaseInput::load(&args.release, &args.chart, &args.making)?;
    session::run(&args.connection, async |session| {
        let observed = session.find(&args.release).await?;
        let newest = observed.newest.as_ref().map(Record::status);
        let is_there = newest.is_some_and(|status| *status != Status::Uninstalled);
        if args.install && (!is_there || observed.deployed().is_none()) {
            if !is_there && args.making.output.output == Format::Table {
                out(&format!(
                    "Release {:?} does not exist. Installing it now.\n",
                    args.release
                ))?;
            }
            return Box::pin(install::install(session, input, &args.making)).await;
        }
        upgrade(session, input, args, &observed)
            .await
            .context("UPGRADE FAILED")
    })
}

async fn upgrade(
    session: &Session,
    input: ReleaseInput,
    args: &args::Upgrade,
    observed: &Observed,
) -> Result<()> {
    let making = &args.making;
    if make::is_dry(&making.dry_run)? {
        let desired = input
            .render(session, observed, args.earlier_values, making)
            .await?;
        return make::print_dry_run(session, &desired, observed, making);
    }
    let options = make::options(making);
    let record = session
        .act(
            &args.release,
            options,
            async |releases: &Releases, observed: &Observed| {
                let desired = input
                    .render(session, observed, args.earlier_values, making)
                    .await?;
                let deployed = match releases.state(&desired, observed, Vec::new()).await? {
                    State::Interrupted(_) => {
                        Box::pin(releases.install_or_upgrade(&desired, observed)).await?
                    }
                    _ => Box::pin(releases.upgrade(&desired, observed)).await?,
                };
                Ok(deployed.record)
            },
        )
        .await?;
    if making.output.output == Format::Table {
        out(&format!(
            "Release {:?} has been upgraded. Happy Helming!\n",
            args.release
        ))?;
    }
    print(session, &record, making)
}
