//! Compares `kco template` with `helm template` over folders of charts: both print the same text, or both refuse.
//!
//! Every chart below the folders is rendered with its defaults and with each of its `ci/*values.yaml`. What differs
//! between two runs of Helm itself (certificates, passwords, dates) is masked before comparing, and such cases are
//! counted separately; nothing is skipped. The last two lines print time and memory of both programs, for cases without
//! and with keys or certificates.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use clap::Parser;

mod cases;
mod compare;
mod figures;
mod run;

use crate::{
    cases::Case,
    compare::Verdict,
    figures::Figures,
    run::{Cost, Output, Program},
};

/// Compares kco with helm over folders of charts.
#[derive(Debug, Parser)]
struct Args {
    /// Folders below which charts are looked for.
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// The helm to compare with.
    #[arg(long, default_value = "helm")]
    helm: PathBuf,
    /// The kco to test.
    #[arg(long, default_value = "target/release/kco")]
    kco: PathBuf,
    /// The helm is Helm 3: kco gets `--helm3`.
    #[arg(long)]
    helm3: bool,
    /// Only cases whose path contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Store helm's output in this folder and do not run helm again; for when only kco changes.
    #[arg(long)]
    remember: Option<PathBuf>,
    /// Lines of a difference to show.
    #[arg(long, default_value_t = 12)]
    lines: usize,
    /// Seconds after which a run is aborted.
    #[arg(long, default_value_t = 120)]
    timeout: u64,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut cases = Vec::new();
    for folder in &args.folders {
        cases.extend(cases::below(folder)?);
    }
    cases.retain(|case| case.name.contains(&args.only));
    let figures = compare_all(&args, &cases);
    say(&figures.summary());
    Ok(if figures.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn compare_all(args: &Args, cases: &[Case]) -> Figures {
    let timeout = Duration::from_secs(args.timeout);
    let helm = Program::new(&args.helm, timeout).remembering(args.remember.as_deref());
    let kco = Program::new(&args.kco, timeout).with_flags(args.helm3.then_some("--helm3"));
    let next = AtomicUsize::new(0);
    let figures = Mutex::new(Figures::default());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let judged = judge(&helm, &kco, case);
                    report(case, &judged.verdict, args.lines);
                    let mut figures = figures.lock().unwrap_or_else(PoisonError::into_inner);
                    figures.count(&judged.verdict);
                    if let Some((helm, kco)) = judged.costs {
                        figures.measure(helm, kco, judged.makes_keys);
                    }
                }
            });
        }
    });
    figures.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The result of a case.
struct Judged {
    verdict: Verdict,
    /// Its cost, helm's first; `None` if the answer was stored or the program could not be run.
    costs: Option<(Cost, Cost)>,
    makes_keys: bool,
}

fn judge(helm: &Program, kco: &Program, case: &Case) -> Judged {
    let arguments = case.arguments();
    let (theirs, ours) = match (helm.run(&arguments, 0), kco.run(&arguments, 0)) {
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (Err(error), _) | (_, Err(error)) => {
            return Judged {
                verdict: Verdict::NotRun(format!("{error:#}")),
                costs: None,
                makes_keys: false,
            };
        }
    };
    let has_keys = matches!(&theirs.0, Output::Rendered(text) if compare::holds_keys(text));
    let costs = theirs.1.zip(ours.1);
    let verdict = verdict(helm, &arguments, theirs.0, ours.0);
    Judged {
        // Keys that are the same in two runs are part of the chart.
        makes_keys: has_keys && verdict != Verdict::Equal,
        verdict,
        costs,
    }
}

fn verdict(helm: &Program, arguments: &[String], theirs: Output, ours: Output) -> Verdict {
    match (theirs, ours) {
        (Output::Refused(theirs), Output::Refused(ours)) => Verdict::BothRefuse {
            same: compare::same_refusal(&theirs, &ours),
            theirs,
            ours,
        },
        (Output::Refused(why), Output::Rendered(_)) => Verdict::OnlyHelmRefuses(why),
        (Output::Rendered(_), Output::Refused(why)) => Verdict::OnlyKcoRefuses(why),
        (Output::Rendered(theirs), Output::Rendered(ours)) if theirs == ours => Verdict::Equal,
        (Output::Rendered(theirs), Output::Rendered(ours)) => judge_again(helm, arguments, &theirs, &ours),
    }
}

/// How often Helm is run again before a difference counts. Templates that use the first key of a map have few possible
/// results, so two runs may agree by chance.
const ATTEMPTS: usize = 5;

/// The result for two texts that are not equal, after more runs of Helm, which are only worth their time now.
fn judge_again(helm: &Program, arguments: &[String], theirs: &str, ours: &str) -> Verdict {
    let mut another = theirs.to_owned();
    for attempt in 1..=ATTEMPTS {
        match helm.run(arguments, attempt).map(|(output, _)| output) {
            Ok(Output::Rendered(again)) if again == ours => return Verdict::EqualWhereStable,
            Ok(Output::Rendered(again)) => another = again,
            Ok(Output::Refused(why)) => return Verdict::OnlyHelmRefuses(why),
            Err(error) => return Verdict::NotRun(format!("{error:#}")),
        }
        let verdict = compare::unequal(theirs, &another, ours);
        if verdict == Verdict::EqualWhereStable {
            return verdict;
        }
    }
    compare::unequal(theirs, &another, ours)
}

fn report(case: &Case, verdict: &Verdict, lines: usize) {
    if let Some(text) = verdict.report(lines) {
        say(&format!("{}: {text}", case.name));
    }
}

#[expect(
    clippy::print_stdout,
    reason = "a report on a terminal is all this program makes"
)]
fn say(text: &str) {
    println!("{text}");
}

/// The path as arguments and messages show it.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
