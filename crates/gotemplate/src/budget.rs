//! Limits of executions, so that no template takes time or memory from others.
//!
//! Usage is counted up and never given back: whatever was created counts, whether it is still held or not. So the
//! memory in use never exceeds the count, and nothing has to track when values are freed. The limits leave room for
//! this: see [`Limits::default`].

use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// What executions may not exceed. Depth and stack apply to each execution, the others to all executions that share a
/// [`Budget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nesting depth of template calls.
    pub depth: usize,
    /// Bytes of the thread's stack, from where the execution starts. One `include` within another takes up to 5 KiB,
    /// 10 without optimisation, so the default is enough for about 200 of them (100 without optimisation) and fits
    /// the threads that Rust and tokio start. For the 1000 that Helm allows, execute on a thread with a stack of 8
    /// MiB and set this to 7 MiB.
    pub stack: usize,
    /// Bytes of output. The output of included templates counts while they run.
    pub output: usize,
    /// Nodes and commands that are evaluated, plus the cost of functions: a step corresponds to about 100 ns.
    pub steps: u64,
    /// Total bytes of the strings, lists and maps that functions create.
    pub memory: usize,
}

/// Go's own limit on nested template calls.
const DEPTH: usize = 100_000;
/// Half the stack of a thread of Rust or tokio.
const STACK: usize = 1 << 20;
/// As much as a release record can hold.
const OUTPUT: usize = 16 << 20;
/// About ten seconds: twenty RSA keys of 4096 bits.
const STEPS: u64 = 100_000_000;
/// Less than a fifth of a pod's memory, as up to three renders run at once.
const MEMORY: usize = 96 << 20;

impl Default for Limits {
    /// Of 404 public charts with their default values, the most expensive ones take 19 million steps, 60 MB of memory
    /// and 5 MB of output.
    fn default() -> Self {
        Self {
            depth: DEPTH,
            stack: STACK,
            output: OUTPUT,
            steps: STEPS,
            memory: MEMORY,
        }
    }
}

impl Limits {
    /// For a process that works for one user, who can interrupt it and owns the memory.
    pub fn large() -> Self {
        Self {
            output: 256 << 20,
            steps: 1_000_000_000,
            memory: 1 << 30,
            ..Self::default()
        }
    }
}

/// A limit that was exceeded; found in the chain of an [`Error`](crate::exec::Error) with
/// [`Error::limit`](crate::exec::Error::limit). The same template exceeds it again the next time, except
/// [`Limit::Time`], which depends on the load of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Go has this limit too.
    #[error("exceeded maximum template depth ({0})")]
    Depth(usize),
    /// See [`Limits::stack`].
    #[error("exceeded the stack of the execution ({0} bytes): templates are nested too deeply")]
    Stack(usize),
    /// See [`Limits::output`].
    #[error("the render prints more than {}", Size(*.0))]
    Output(usize),
    /// See [`Limits::steps`].
    #[error(
        "the render takes more than {0} steps: a loop is too long, or expensive functions are called too often"
    )]
    Steps(u64),
    /// See [`Limits::memory`].
    #[error("the render creates strings, lists and maps of more than {} in total", Size(*.0))]
    Memory(usize),
    /// The deadline given by the caller has passed.
    #[error("the render takes longer than {0:?}")]
    Time(Duration),
}

/// A number of bytes, printed in the largest unit that divides it.
struct Size(usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units
            .iter()
            .find(|(size, _)| self.0 >= *size && self.0.is_multiple_of(*size))
        {
            Some((size, unit)) => write!(f, "{} {unit}", self.0 / size),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// How many steps an execution takes from its budget at a time. It checks the deadline each time.
pub(crate) const STEPS_AT_ONCE: u32 = 4096;

/// The budget shared by all executions of one render.
pub struct Budget<'b> {
    limits: Limits,
    steps: Cell<u64>,
    memory: Cell<usize>,
    output: Cell<usize>,
    /// The first limit that was exceeded: from then on no steps are granted, which ends all executions.
    exceeded: Cell<Option<Limit>>,
    /// The time allowed, and a function that says whether it is over.
    time: Option<(Duration, &'b dyn Fn() -> bool)>,
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("limits", &self.limits)
            .field("spent", &self.spent())
            .finish_non_exhaustive()
    }
}

/// What has been taken from a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// See [`Limits::steps`].
    pub steps: u64,
    /// See [`Limits::memory`].
    pub memory: usize,
    /// See [`Limits::output`].
    pub output: usize,
}

impl<'b> Budget<'b> {
    /// A full budget without a time limit.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            steps: Cell::new(limits.steps),
            memory: Cell::new(limits.memory),
            output: Cell::new(limits.output),
            exceeded: Cell::new(None),
            time: None,
        }
    }

    /// The same with a time limit. `is_over` says when the time is over: it is called every 4096 steps, that is, many
    /// times each millisecond, and before expensive functions. `allowed` is only used in the error message.
    #[must_use]
    pub fn until(self, allowed: Duration, is_over: &'b dyn Fn() -> bool) -> Self {
        Self {
            time: Some((allowed, is_over)),
            ..self
        }
    }

    /// The limits of this budget.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What has been taken from it.
    pub fn spent(&self) -> Spent {
        Spent {
            steps: self.limits.steps - self.steps.get(),
            memory: self.limits.memory - self.memory.get(),
            output: self.limits.output - self.output.get(),
        }
    }

    fn exceed(&self, limit: Limit) -> Limit {
        self.exceeded.set(Some(limit));
        limit
    }

    /// Fails when the time is over, or when a limit was exceeded before.
    ///
    /// # Errors
    /// The limit that was exceeded.
    pub fn check_time(&self) -> Result<(), Limit> {
        if let Some(limit) = self.exceeded.get() {
            return Err(limit);
        }
        match self.time {
            Some((allowed, is_over)) if is_over() => Err(self.exceed(Limit::Time(allowed))),
            _ => Ok(()),
        }
    }

    pub(crate) fn take_steps(&self, steps: u64) -> Result<(), Limit> {
        self.check_time()?;
        let left = self.steps.get().checked_sub(steps);
        let left = left.ok_or_else(|| self.exceed(Limit::Steps(self.limits.steps)))?;
        self.steps.set(left);
        Ok(())
    }

    /// Takes up to that many steps, fewer if fewer are left, but at least one.
    pub(crate) fn take_some_steps(&self, most: u32) -> Result<u32, Limit> {
        let steps = self.steps.get().clamp(1, u64::from(most));
        self.take_steps(steps).map(|()| steps as u32)
    }

    pub(crate) fn return_steps(&self, steps: u32) {
        self.steps.set(self.steps.get() + u64::from(steps));
    }

    /// Takes memory for anything besides the output.
    ///
    /// # Errors
    /// When not enough is left.
    #[inline]
    pub fn take_memory(&self, bytes: usize) -> Result<(), Limit> {
        match self.memory.get().checked_sub(bytes) {
            Some(left) => {
                self.memory.set(left);
                Ok(())
            }
            None => Err(self.exceed(Limit::Memory(self.limits.memory))),
        }
    }

    /// Fails when not enough memory is left, without taking any.
    pub(crate) fn check_memory(&self, bytes: usize) -> Result<(), Limit> {
        if bytes > self.memory.get() {
            return Err(self.exceed(Limit::Memory(self.limits.memory)));
        }
        Ok(())
    }

    pub(crate) fn memory_left(&self) -> usize {
        self.memory.get()
    }

    pub(crate) fn output_left(&self) -> usize {
        self.output.get()
    }

    pub(crate) fn take_output(&self, bytes: usize) {
        self.output.set(self.output.get().saturating_sub(bytes));
    }

    pub(crate) fn exceed_output(&self) -> Limit {
        self.exceed(Limit::Output(self.limits.output))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_in_the_unit_that_it_was_given_in() {
        for (bytes, expected) in [
            (1 << 30, "1 GiB"),
            (64 << 20, "64 MiB"),
            (10 << 10, "10 KiB"),
            (10_000, "10000 bytes"),
            (0, "0 bytes"),
        ] {
            assert_eq!(Size(bytes).to_string(), expected);
        }
    }

    #[test]
    fn a_budget_that_was_exceeded_grants_no_more_steps() {
        let budget = Budget::new(Limits {
            memory: 100,
            ..Limits::default()
        });
        assert_eq!(budget.take_memory(60), Ok(()));
        assert_eq!(budget.take_memory(60), Err(Limit::Memory(100)));
        assert_eq!(budget.take_steps(1), Err(Limit::Memory(100)));
        assert_eq!(budget.spent().memory, 60);
    }
}
