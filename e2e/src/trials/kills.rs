//! A program killed at every write of an object's life, then started again: does each step of that life end as if
//! nothing had happened?

use std::fmt::Debug;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::progress;
use crate::proxy::{KillAt, Outcome, Proxy, SIDES, Side};
use crate::trials::releases::difference;

/// How long a step may take before it counts as lost.
const PATIENCE: Duration = Duration::from_mins(2);

/// The life that is repeated for each kill, in steps.
pub trait Life {
    /// One of its steps.
    type Step: Copy + Debug + 'static;

    /// All of them, in order.
    const STEPS: &'static [Self::Step];

    /// A step is over after this long without a write.
    const QUIET: Duration;

    /// What a user does before the step.
    ///
    /// # Errors
    /// When the API server refuses it.
    fn ask_for(&self, step: Self::Step) -> Result<()>;

    /// The program, to be started behind a proxy.
    ///
    /// # Errors
    /// When it is not built.
    fn program(&self) -> Result<Command>;

    /// True when the user has what was asked for.
    ///
    /// # Errors
    /// When that cannot be determined.
    fn is_over(&self, step: Self::Step) -> Result<bool>;

    /// The state after a step, in a form that is the same in all lives.
    ///
    /// # Errors
    /// When it cannot be read, or the way there was wrong.
    fn end(&self, step: Self::Step) -> Result<Vec<Value>>;

    /// What can be seen of a step that does not finish.
    fn looks(&self) -> String;

    /// What happens between a kill and the next start.
    ///
    /// # Errors
    /// When it fails.
    fn bury(&self) -> Result<()> {
        Ok(())
    }
}

/// Kills before and after every `stride`th write of each step, beginning in the middle of a stride; 1 is all of them.
/// `begin` begins a life with this name.
///
/// # Errors
/// When a life without a kill fails; what goes wrong after a kill is in the outcome.
pub fn run<L: Life>(proxy: &Proxy, stride: usize, begin: impl Fn(&str) -> Result<L>) -> Result<Outcome> {
    run_from(proxy, 1, stride, begin)
}

/// The same beginning at a given write, to continue an interrupted run: its last line says how far it came.
///
/// # Errors
/// As [`run`].
pub fn run_from<L: Life>(
    proxy: &Proxy,
    from: usize,
    stride: usize,
    begin: impl Fn(&str) -> Result<L>,
) -> Result<Outcome> {
    let matrix = Matrix { proxy, begin };
    let whole = matrix.whole_life()?;
    let writes: Vec<usize> = whole.iter().map(|(_, writes)| *writes).collect();
    progress(format_args!("writes of {:?}: {writes:?}", L::STEPS));
    let most = writes.iter().copied().max().unwrap_or_default();
    let mut outcome = Outcome::default();
    let writes = (stride.div_ceil(2)..=most).step_by(stride);
    for write in writes.filter(|write| *write >= from) {
        for side in SIDES {
            matrix.interrupted_life(KillAt { write, side }, &whole, &mut outcome);
        }
        progress(format_args!("up to write {write} of {most}: {outcome}"));
    }
    Ok(outcome)
}

struct Matrix<'p, B> {
    proxy: &'p Proxy,
    begin: B,
}

/// The state after a step, and the number of its writes.
type Ended = (Vec<Value>, usize);

impl<L: Life, B: Fn(&str) -> Result<L>> Matrix<'_, B> {
    /// A life without a kill.
    fn whole_life(&self) -> Result<Vec<Ended>> {
        let life = (self.begin)("whole")?;
        let mut ends = Vec::new();
        for &step in L::STEPS {
            life.ask_for(step)?;
            self.proxy.start(life.program()?, None)?;
            let settled = self.is_settled(&life, step);
            let run = self.proxy.stop()?;
            ensure!(
                settled.with_context(|| run.said.clone())?,
                "the program ended by itself: {}",
                run.said
            );
            life.bury()?;
            ends.push((life.end(step)?, run.writes.len()));
        }
        Ok(ends)
    }

    /// A life with a kill in each of its steps; the first fault ends it.
    fn interrupted_life(&self, kill: KillAt, whole: &[Ended], outcome: &mut Outcome) {
        let side = if kill.side == Side::Before { "b" } else { "a" };
        let name = format!("at{}{side}", kill.write);
        let mut killed_at = String::new();
        let mut live = || -> Result<()> {
            let life = (self.begin)(&name)?;
            for (&step, (expected, writes)) in L::STEPS.iter().zip(whole) {
                life.ask_for(step)?;
                let kill = (kill.write <= *writes).then_some(kill);
                if let Some(write) = self.interrupt(&life, step, kill)? {
                    killed_at = format!("{step:?} killed {:?} write {write}", kill.map(|kill| kill.side));
                    outcome.kills += 1;
                    self.start_again(&life, step)?;
                }
                if let Some(difference) = difference(expected, &life.end(step)?) {
                    bail!("it is not as it should be:\n{difference}");
                }
                if !killed_at.is_empty() {
                    outcome.converged += 1;
                    killed_at.clear();
                }
            }
            Ok(())
        };
        if let Err(fault) = live() {
            let fault = format!("{name}: {killed_at}: {fault:#}");
            progress(&fault);
            outcome.faults.push(fault);
        }
    }

    /// Runs the program until it is killed, and returns at which write; `None` if the step was over before.
    fn interrupt(&self, life: &L, step: L::Step, kill: Option<KillAt>) -> Result<Option<String>> {
        self.proxy.start(life.program()?, kill)?;
        let settled = self.is_settled(life, step);
        let run = self.proxy.stop()?;
        life.bury()?;
        if settled.with_context(|| run.said.clone())? {
            return Ok(None);
        }
        let write = run.writes.last().cloned().unwrap_or_default();
        ensure!(
            kill.is_some(),
            "the program ended by itself after {write}: {}",
            run.said
        );
        Ok(Some(format!("{} ({write})", run.writes.len())))
    }

    fn start_again(&self, life: &L, step: L::Step) -> Result<()> {
        self.proxy.start(life.program()?, None)?;
        let settled = self.is_settled(life, step);
        let run = self.proxy.stop()?;
        life.bury()?;
        ensure!(
            settled.with_context(|| run.said.clone())?,
            "the program ended by itself: {}",
            run.said
        );
        Ok(())
    }

    /// Waits until the step is over; false if the program exited before.
    fn is_settled(&self, life: &L, step: L::Step) -> Result<bool> {
        let begun = Instant::now();
        loop {
            if self.proxy.has_ended()? {
                return Ok(false);
            }
            // In this order, because the first check costs nothing.
            if self.proxy.is_quiet(L::QUIET) && life.is_over(step)? {
                return Ok(true);
            }
            ensure!(
                begun.elapsed() < PATIENCE,
                "{step:?} is not over after {PATIENCE:?}: {}",
                life.looks()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
