//! Renders a chart again as it was rendered, to find out which documents the values chose.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use helm::capabilities::Capabilities;
use helm::context::{Answer, Context, LookupKey, Random};
use helm::engine::Document;
use jiff::Timestamp;

use super::{RENDER_TIMEOUT, Rendering, Task, system_random};
use crate::pool::{Busy, Party, Pool};

/// The inputs of a render.
pub(super) struct Again {
    pub(super) task: Arc<Task>,
    pub(super) capabilities: Capabilities,
    pub(super) answers: BTreeMap<LookupKey, Answer>,
    pub(super) now: Timestamp,
    pub(super) drawn: Drawn,
}

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Again")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// How many random bytes of a render are kept: enough for hundreds of keys. A render that draws more is not repeated
/// exactly, so what it prints from then on counts as chosen by values.
const MOST_DRAWN: usize = 1 << 20;

/// How much longer than the render itself the second one may take: functions look for marks in their arguments.
const STEPS_FOR_MARKS: u64 = 2;

/// The random bytes that a render drew. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Drawn(Arc<Mutex<Vec<u8>>>);

impl Drawn {
    /// A source that records what it returns from `random`.
    pub(super) fn recording(&self, mut random: impl Random + Send + 'static) -> impl Random + Send + 'static {
        let drawn = self.clone();
        move |bytes: &mut [u8]| {
            random.fill(bytes);
            let mut drawn = drawn.0.lock().unwrap_or_else(PoisonError::into_inner);
            if drawn.len() + bytes.len() <= MOST_DRAWN {
                drawn.extend_from_slice(bytes);
            }
        }
    }

    /// A source that returns the recorded bytes, and then what `random` does.
    fn repeating(&self, mut random: impl Random + Send + 'static) -> impl Random + Send + 'static {
        let (drawn, mut used) = (self.clone(), 0);
        move |bytes: &mut [u8]| {
            let drawn = drawn.0.lock().unwrap_or_else(PoisonError::into_inner);
            match drawn.get(used..used + bytes.len()) {
                Some(recorded) => bytes.copy_from_slice(recorded),
                None => random.fill(bytes),
            }
            used += bytes.len();
        }
    }
}

/// A random number below `bound`.
fn below(bound: u64) -> u64 {
    Context::new(Timestamp::UNIX_EPOCH, system_random).random_below(bound)
}

impl Rendering {
    /// Which of these documents, by the path of their template and as they were rendered, have a kind that the values
    /// chose and not the chart: see [`Engine::chosen_by_values`](helm::engine::Engine::chosen_by_values). All of them if
    /// the chart cannot be rendered again.
    ///
    /// # Errors
    /// When no slot to render becomes free.
    pub async fn chosen_by_values(
        &self,
        party: Party<'_>,
        documents: Vec<(String, Arc<str>)>,
    ) -> Result<Vec<bool>, Busy> {
        let Again {
            task,
            capabilities,
            answers,
            now,
            drawn,
        } = &self.again;
        let (task, now) = (task.clone(), *now);
        let (capabilities, answers) = (capabilities.clone(), answers.clone());
        let random = drawn.repeating(system_random);
        let work = move |deadline| {
            let context = Context::new(now, random).with_deadline(deadline);
            let mut options = task.options(&capabilities, &answers, context);
            options.limits.steps *= STEPS_FOR_MARKS;
            let documents: Vec<_> = documents
                .iter()
                .map(|(path, text)| Document { path, text })
                .collect();
            let chosen = task
                .engine
                .chosen_by_values(&(task.values.0)(), &options, &documents, below);
            chosen.unwrap_or_else(|_| vec![true; documents.len()])
        };
        Pool::of_process().run(party, RENDER_TIMEOUT, work).await
    }
}
