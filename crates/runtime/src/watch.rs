//! Watches whose objects are parsed one by one.

use cluster::Item;
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{Error, Event};

/// The events about objects that can be parsed; events that report an object that cannot be parsed are logged.
///
/// To consumers of this stream, an object that cannot be parsed does not exist. Where that would be wrong, use the
/// events themselves.
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
            tracing::warn!(object = %unreadable, "ignored an object that cannot be read");
            None
        }
    }
}
