//! What an operator counts of the renders of a process. Who runs the process says where it is counted.

use std::sync::OnceLock;
use std::time::Duration;

use helm::engine::Limit;

use super::Busy;

/// Something that happened to a render.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It waited for a place, whether it got it or not.
    Waited(Duration),
    /// It got no place: `waited` too long, the namespace's line was `full`, or the process is `ending`.
    Refused(&'static str),
    /// It took more than it may: the limit's name.
    Exceeded(&'static str),
}

type Tell = Box<dyn Fn(Event) + Send + Sync>;

static TELL: OnceLock<Tell> = OnceLock::new();

/// Has the events of this process told from now on; only the first call counts.
pub fn tell_events(tell: impl Fn(Event) + Send + Sync + 'static) {
    // An error says that somebody is told already.
    let _ = TELL.set(Box::new(tell));
}

pub(super) fn happened(event: Event) {
    if let Some(tell) = TELL.get() {
        tell(event);
    }
}

pub(super) fn refused(busy: &Busy) {
    happened(Event::Refused(match busy {
        Busy::Waited { .. } => "waited",
        Busy::Full { .. } => "full",
        Busy::Ending => "ending",
    }));
}

pub(super) fn exceeded(limit: Limit) {
    happened(Event::Exceeded(match limit {
        Limit::Depth(_) => "depth",
        Limit::Stack(_) => "stack",
        Limit::Output(_) => "output",
        Limit::Steps(_) => "steps",
        Limit::Memory(_) => "memory",
        Limit::Time(_) => "time",
    }));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::super::Pool;
    use super::*;

    #[tokio::test]
    async fn who_waits_in_vain_is_told_twice() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = told.clone();
        // Other tests of this process have theirs told, too.
        tell_events(move |event| noted.lock().unwrap_or_else(PoisonError::into_inner).push(event));
        let pool = Pool::new(1, Duration::from_millis(1));
        let _held = pool.place("a").await.unwrap();
        pool.place("b").await.unwrap_err();
        let told = told.lock().unwrap();
        assert!(told.contains(&Event::Refused("waited")), "{told:?}");
        assert!(
            told.iter().any(|event| matches!(event, Event::Waited(_))),
            "{told:?}"
        );
    }
}
