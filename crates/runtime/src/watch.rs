//! Watches whose objects are read one by one.

use cluster::Item;
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{Error, Event};

/// The events about objects that could be read; of the others, those that say that one is there are logged.
///
/// One that cannot be read is as good as not there for whoever takes these. Where it must not be, take the events as
/// they are.
pub fn readable<K>(
    events: impl Stream<Item = Result<Event<Item<K>>, Error>>,
) -> impl Stream<Item = Result<Event<K>, Error>> {
    events.filter_map(|event| std::future::ready(event.map(of_readable).transpose()))
}

fn of_readable<K>(event: Event<Item<K>>) -> Option<Event<K>> {
    let told = match event {
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
        Event::Apply(item) => Event::Apply(read(item)?),
        Event::InitApply(item) => Event::InitApply(read(item)?),
        Event::Delete(Item::Read(object)) => Event::Delete(object),
        Event::Delete(Item::Unreadable(_)) => return None,
    };
    Some(told)
}

fn read<K>(item: Item<K>) -> Option<K> {
    match item {
        Item::Read(object) => Some(object),
        Item::Unreadable(unreadable) => {
            tracing::warn!(object = %unreadable, "left out");
            None
        }
    }
}
