//! `kco install`.

use anyhow::{Context as _, Result, bail};
use helm::line::HelmLine;
use helm::release::Status;
use helm_client::records::{Observed, Record};
use helm_client::release::{Releases, State};
use jiff::Timestamp;

use super::args::{self, EarlierValues, Making};
use super::make::{self, ReleaseInput};
use super::output;
use super::session::{self, Session};
use super::status::{self, Shown};
use crate::template;

/// Installs and prints the release.
pub(crate) fn run(args: &args::Install) -> Result<()> {
    carry_out(args).context("INSTALLATION FAILED")
}

fn carry_out(args: &args::Install) -> Result<()> {
    let (name, reference) = name_and_chart(args)?;
    let input = ReleaseInput::load(&name, &reference, &args.making)?;
    session::run(&args.connection, async |session| {
        let newest = session.find(&name).await?.newest;
        let is_uninstalled = newest.is_some_and(|newest| *newest.status() == Status::Uninstalled);
        if is_uninstalled && !args.replace {
            bail!("cannot reuse a name that is still in use");
        }
        Box::pin(install(session, input, &args.making)).await
    })
}

/// Installs the wanted release, also on top of failed or uninstalled revisions. An interrupted install of the same
/// release is continued.
pub(super) async fn install(session: &Session, input: ReleaseInput, making: &Making) -> Result<()> {
    let name = input.name.clone();
    let anew = EarlierValues {
        reset_values: true,
        ..EarlierValues::default()
    };
    if make::is_dry(&making.dry_run)? {
        let observed = session.find(&name).await?;
        let desired = input.render(session, &observed, anew, making).await?;
        return make::print_dry_run(session, &desired, &observed, making);
    }
    if making.create_namespace {
        // First, because the Lease of the release is in that namespace.
        make::create_namespace(session).await?;
    }
    let record = session
        .act(
            &name,
            make::options(making),
            async |releases: &Releases, observed: &Observed| {
                let desired = input.render(session, observed, anew, making).await?;
                let deployed = match releases.state(&desired, observed, Vec::new()).await? {
                    State::Interrupted(_) => {
                        Box::pin(releases.install_or_upgrade(&desired, observed)).await?
                    }
                    _ => Box::pin(releases.install(&desired, observed)).await?,
                };
                Ok(deployed.record)
            },
        )
        .await?;
    print(session, &record, making)
}

/// Prints a new release.
pub(super) fn print(session: &Session, record: &Record, making: &Making) -> Result<()> {
    let shown = Shown {
        hide_notes: making.hide_notes,
        with_chart: false,
        objects: &[],
    };
    let text = || status::text(&record.release, &shown, session.screen);
    output::print_release(making.output.output, &record.release, text)
}

fn name_and_chart(args: &args::Install) -> Result<(String, String)> {
    if let (Some(template), [chart]) = (&args.name_template, &args.name_and_chart[..]) {
        return Ok((template::templated_name(template, HelmLine::Four)?, chart.clone()));
    }
    match (&args.name_and_chart[..], args.generate_name) {
        ([_, _], false) if args.name_template.is_some() => {
            bail!("cannot set --name-template and also specify a name")
        }
        ([chart], true) => Ok((generated_name(chart), chart.clone())),
        ([_], false) => bail!("must either provide a name or specify --generate-name"),
        ([name, chart], false) => Ok((name.clone(), chart.clone())),
        ([_, _], true) => bail!("cannot set --generate-name and also specify a name"),
        (more, _) => bail!(
            "expected at most two arguments, unexpected arguments: {}",
            more[2..].join(", ")
        ),
    }
}

/// A name from the chart's name and the time, the way Helm generates it.
fn generated_name(reference: &str) -> String {
    let base = reference
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let base = if base.is_empty() || base == "." {
        "chart"
    } else {
        base
    };
    // Helm cuts it at the first dot; a tag or a digest is no part of a name either.
    let name = base.split(['.', '@', ':']).next().unwrap_or(base);
    format!("{}-{}", name, Timestamp::now().as_second())
}
