//! `kco installer install|diff|uninstall`: the verbs for releases, with what is special about the installer.

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result};

use super::args::{Diff, Install, Uninstall};
use super::home::home;
use super::input::Input;
use super::status;
use crate::release::args::{self, Making};
use crate::{release, report};

/// Installs the umbrella, or upgrades it.
pub(super) fn install(args: Install) -> Result<()> {
    let Install {
        chart,
        release,
        earlier_values,
        mut making,
        connection,
    } = args;
    check(&chart, &making)?;
    making.create_namespace = true;
    release::upgrade(&args::Upgrade {
        release,
        chart,
        install: true,
        earlier_values,
        making,
        connection: home(connection),
    })
}

/// Shows what an upgrade would change.
pub(super) fn diff(args: Diff) -> Result<()> {
    let Diff {
        chart,
        release,
        exit_code,
        earlier_values,
        making,
        connection,
    } = args;
    check(&chart, &making)?;
    release::diff(&args::Diff {
        release,
        chart,
        exit_code,
        earlier_values,
        making,
        connection: home(connection),
    })
}

/// Removes the umbrella, and shows on a terminal what still exists meanwhile.
pub(super) fn uninstall(args: Uninstall) -> Result<()> {
    let Uninstall {
        release,
        ignore_not_found,
        dry_run,
        waiting,
        connection,
    } = args;
    let connection = home(connection);
    if !dry_run && (std::io::stderr().is_terminal() || connection.debug) {
        status::accompany(connection.clone());
    }
    release::uninstall(&args::Uninstall {
        releases: vec![release],
        keep_history: false,
        ignore_not_found,
        cascade: args::Cascade::Background,
        description: None,
        dry_run,
        no_hooks: false,
        waiting,
        connection,
    })
    .context(
        "the platform is not removed, because of what is named here; once that is resolved, run the same command again",
    )
}

/// Refuses an invalid list of components before any request to the cluster.
fn check(chart: &str, making: &Making) -> Result<()> {
    let list = Input::read(chart, &making.values, &making.source)?.components()?;
    for doubt in list.doubts() {
        report::warn(&doubt);
    }
    Ok(())
}
