//! Events of the renders of a process that an operator may want to count. The process decides where they are counted.

use std::sync::OnceLock;
use std::time::Duration;

use helm::engine::Limit;

/// An event of a render.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It waited for a slot, successfully or not.
    Waited(Duration),
    /// It got no slot: it `waited` too long, the caller `left`, the namespace's line was `full`, or the process is
    /// `ending`.
    Refused(&'static str),
    /// It exceeded the limit of this name.
    Exceeded(&'static str),
}

type Tell = Box<dyn Fn(Event) + Send + Sync>;

static TELL: OnceLock<Tell> = OnceLock::new();

/// Reports the events of this process from now on; only the first call has an effect.
pub fn tell_events(tell: impl Fn(Event) + Send + Sync + 'static) {
    // It fails when events are already being reported.
    let _ = TELL.set(Box::new(tell));
}

pub(crate) fn happened(event: Event) {
    if let Some(tell) = TELL.get() {
        tell(event);
    }
}

/// The caller gave up waiting.
pub(crate) const LEFT: Event = Event::Refused("left");

pub(crate) fn exceeded(limit: Limit) {
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

    use futures::FutureExt as _;

    use super::*;
    use crate::pool::{Busy, Pool};

    #[tokio::test]
    async fn who_waits_in_vain_is_told_twice() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let noted = told.clone();
        // Other tests of this process report events, too.
        tell_events(move |event| noted.lock().unwrap_or_else(PoisonError::into_inner).push(event));
        let told = |is_wanted: fn(&Event) -> bool| {
            let told = told.lock().unwrap_or_else(PoisonError::into_inner);
            told.iter().any(is_wanted)
        };
        let pool = Pool::new(1, Duration::from_millis(1)).told();
        let _held = pool.slot("a").await.unwrap();
        pool.slot("b").await.unwrap_err();
        assert!(told(|event| *event == Event::Refused("waited")));
        assert!(told(|event| matches!(event, Event::Waited(_))));

        let mut left = Box::pin(pool.slot("b"));
        assert!(left.as_mut().now_or_never().is_none());
        drop(left);
        assert!(told(|event| *event == LEFT));

        // Pools for other work than renders report nothing.
        let pool = Pool::new(1, Duration::from_mins(1));
        let _held = pool.slot("a").await.unwrap();
        let mut waiting = Vec::new();
        let full = loop {
            let mut slot = Box::pin(pool.slot("b"));
            match slot.as_mut().now_or_never() {
                Some(slot) => break slot.unwrap_err(),
                None => waiting.push(slot),
            }
        };
        assert!(matches!(full, Busy::Full { .. }), "{full}");
        assert!(!told(|event| *event == Event::Refused("full")));
    }
}
