//! `kco test`: runs the tests of a chart.

use anyhow::{Context as _, Result, bail};
use helm_client::release::{Options, TestFilter, Tested};

use super::args;
use super::output;
use super::session;
use super::status::{self, Shown};
use crate::report::out;

/// Runs the tests and prints their results.
pub(crate) fn run(args: &args::Test) -> Result<()> {
    let filter = filter(&args.filter);
    let options = Options {
        timeout: args.timeout,
        ..Options::default()
    };
    let tested = session::run(&args.connection, async |session| {
        let tested = session
            .act(&args.release, options, async |releases, observed| {
                if observed.newest.is_none() {
                    bail!("release: not found");
                }
                Ok(Box::pin(releases.test(observed, &filter)).await?)
            })
            .await?;
        let record = session.revision(&args.release, tested.revision).await?;
        let shown = Shown {
            hide_notes: true,
            with_chart: false,
            objects: &[],
        };
        let text = || status::text(&record.release, &shown, session.screen);
        output::print_release(args.output.output, &record.release, text)?;
        Ok(tested)
    })?;
    if args.logs {
        out(&logs(&tested))?;
    }
    match tested.failure {
        Some(failure) => Err(failure).with_context(|| format!("tests of {} failed", args.release)),
        None => Ok(()),
    }
}

fn logs(tested: &Tested) -> String {
    let runs = tested.runs.iter();
    let texts = runs.filter_map(|run| Some(format!("POD LOGS: {}\n{}\n", run.name, run.output.as_ref()?)));
    texts.collect()
}

/// `name=a` and `!name=b`, in Helm's syntax.
fn filter(words: &[String]) -> TestFilter {
    let mut filter = TestFilter::default();
    for word in words {
        if let Some(name) = word.strip_prefix("name=") {
            filter.only.push(name.to_owned());
        } else if let Some(name) = word
            .strip_prefix('!')
            .and_then(|word| word.trim().strip_prefix("name="))
        {
            filter.except.push(name.to_owned());
        }
    }
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_spelled_as_in_helm() {
        let words = ["name=a".to_owned(), "!name=b".to_owned(), "! name=c".to_owned()];
        let found = filter(&words);
        assert_eq!(
            (found.only, found.except),
            (vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()])
        );
    }
}
