//! `kco plan`: what the next pass of a composition's controller would do, and the permissions that it would need.

use std::fmt::Write as _;

use anyhow::Result;
use composition::approval::is_demanded;
use composition::plan::{self, Growth, NamespacePhase, Observed, Rights, Standing};
use serde::Serialize;

use super::args;
use super::names::{self, Named};
use super::permissions::{self, ReleaseContext, Right};
use super::{desired, find, standing};
use crate::release::output;
use crate::release::screen::{Paint, Screen};
use crate::release::session::{self, Session};
use crate::release::table::{Cell, table};

/// The exit status with `--exit-code` if there is something to do.
const TO_DO: i32 = 2;

/// The output.
#[derive(Debug, Serialize)]
struct Planned {
    release: String,
    /// What the next pass does, in this order.
    steps: Vec<String>,
    /// The state of the composition after that.
    standing: String,
    permissions: Vec<Right>,
}

/// Prints the plan.
pub(crate) fn run(args: &args::Plan) -> Result<()> {
    let (planned, screen) = session::run(&args.one.connection, async |session| {
        Ok((Box::pin(planned(session, args)).await?, session.screen))
    })?;
    output::print(args.one.output.output, &planned, || text(&planned, screen))?;
    if args.exit_code && !planned.steps.is_empty() {
        std::process::exit(TO_DO);
    }
    Ok(())
}

async fn planned(session: &Session, args: &args::Plan) -> Result<Planned> {
    let (resource, composition) = find::one(session, &args.one.composition).await?;
    let Named { release, offered } = names::name(session, &resource, &composition).await?;
    let records = session.find(release.as_str()).await?;
    let governed = desired::find(session, &composition, &release, &args.controller.krateo_namespace).await?;
    let desired = governed.desired(&records).await?;
    let context = ReleaseContext {
        composition: &composition,
        resource: &resource,
        release: &release,
        records: &records,
    };
    let granting = permissions::granting(
        session,
        &context,
        &governed.definition,
        &desired.touched,
        &args.controller,
    )
    .await?;
    let growth = if is_demanded(&composition, [&governed.definition]) {
        Growth::Approved
    } else {
        Growth::Granted
    };
    let metadata = &governed.definition.metadata;
    let observed = Observed {
        definition: metadata.namespace.clone().zip(metadata.name.clone()),
        named: offered.name,
        rights: Rights {
            needed: granting.needed.clone(),
            granted: granting.granted.clone(),
        },
        growth,
        outside: None,
        release: standing::standing(session, &composition, &desired.release, &records).await?,
        namespace: NamespacePhase::Active,
        unrecorded: Vec::new(),
    };
    let plan = plan::plan(&composition, &observed)?;
    Ok(Planned {
        release: release.to_string(),
        steps: plan.steps.iter().map(ToString::to_string).collect(),
        standing: word(plan.standing).to_owned(),
        permissions: granting.rights(),
    })
}

fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::UpToDate => "up to date",
        Standing::Underway => "another pass follows at once",
        Standing::Waiting => "waiting until somebody else has finished",
        Standing::Resting => "waiting before the next attempt after a failure",
        Standing::Paused => "paused",
        Standing::GracefullyPaused => "gracefully paused",
        Standing::ObservedOnly => "observed only",
        Standing::Removed => "removed",
    }
}

fn text(planned: &Planned, screen: Screen) -> String {
    let mut text = format!("RELEASE: {}\nNEXT PASS:\n", planned.release);
    if planned.steps.is_empty() {
        text.push_str("  nothing to do\n");
    }
    for step in &planned.steps {
        let _ = writeln!(text, "  {step}");
    }
    let _ = writeln!(text, "THEN: {}\nPERMISSIONS:", planned.standing);
    let headers = ["", "NAMESPACE", "RESOURCE", "NAMES", "VERBS"];
    let mut rows: Vec<Vec<Cell>> = vec![headers.map(Cell::from).into()];
    rows.extend(planned.permissions.iter().map(|right| {
        let (mark, paint) = if right.granted {
            (" ", Paint::Quiet)
        } else {
            ("+", Paint::Busy)
        };
        let all_if_empty = |text: String, all: &str| if text.is_empty() { all.to_owned() } else { text };
        vec![
            screen.cell(paint, mark),
            all_if_empty(right.namespace.clone(), "(cluster)").into(),
            right.resources.as_str().into(),
            all_if_empty(right.names.join(","), "(all)").into(),
            right.verbs.join(",").into(),
        ]
    }));
    text.push_str(&table(&rows));
    text
}
