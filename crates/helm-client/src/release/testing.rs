//! Runs the tests of a chart on demand (Helm's `pkg/action/release_testing.go`).

use helm::hook::{Hook, HookEvent, HookPhase};
use jiff::Timestamp;

use super::hooks::due;
use super::{Error, Releases};
use crate::records::Observed;

/// Which tests to run; all by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestFilter {
    /// Only tests with these names, if any are given. Helm's `--filter name=…`.
    pub only: Vec<String>,
    /// No tests with these names. Helm's `--filter '!name=…'`.
    pub except: Vec<String>,
}

/// The results of a release's tests.
#[derive(Debug)]
pub struct Tested {
    /// The revision that was tested.
    pub revision: i64,
    /// Its tests in order. After a failed one, the others are not run.
    pub runs: Vec<TestRun>,
    /// Why one failed.
    pub failure: Option<Error>,
}

/// The result of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestRun {
    /// Its name.
    pub name: String,
    /// When it was started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// Its phase.
    pub phase: HookPhase,
    /// The last lines that it printed, if they can be read.
    pub output: Option<String>,
}

impl TestFilter {
    fn takes(&self, hook: &Hook) -> bool {
        (self.only.is_empty() || self.only.contains(&hook.name)) && !self.except.contains(&hook.name)
    }
}

impl Releases {
    /// Runs the tests of the newest revision, which must be deployed, and notes the results in its record.
    ///
    /// A failing test is not an error of this function.
    ///
    /// # Errors
    /// [`Error::NoRelease`], [`Error::NotDeployed`]; [`Error::Records`] when the record cannot be written.
    pub async fn test(&self, observed: &Observed, filter: &TestFilter) -> Result<Tested, Error> {
        let newest = observed.newest.as_ref().ok_or(Error::NoRelease)?;
        let record = observed.deployed().ok_or_else(|| Error::NotDeployed {
            release: newest.release.name.clone(),
        })?;
        let mut record = record.clone();
        let records = self.records(&record.release.namespace, &record.release.name);
        let wanted = due(&record, &HookEvent::Test, None, |hook| filter.takes(hook));
        let names: Vec<usize> = wanted.iter().map(|due| due.index).collect();
        let (outputs, failure) = match self
            .run_due(&records, &mut record, &HookEvent::Test, wanted, true)
            .await
        {
            Ok(outputs) => (outputs, None),
            Err((outputs, failure)) => (outputs, Some(failure)),
        };
        self.update(&records, &mut record).await?;
        let run = |index: &usize| {
            let hook = &record.release.hooks[*index];
            let output = outputs.iter().find(|(of, _)| of == index);
            TestRun {
                name: hook.name.clone(),
                started_at: hook.last_run.started_at,
                completed_at: hook.last_run.completed_at,
                phase: hook.last_run.phase.clone(),
                output: output.and_then(|(_, output)| output.clone()),
            }
        };
        Ok(Tested {
            revision: record.revision(),
            runs: names.iter().map(run).collect(),
            failure,
        })
    }
}
