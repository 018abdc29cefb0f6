//! Queues the tenants of one cluster when they change. A cluster that reports more tenants than are served costs no
//! more than that limit.

use std::collections::HashSet;
use std::sync::Arc;

use api::mesh::Tenant;
use cluster::{Item, ResourceId};
use futures::StreamExt as _;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use runtime::queue::Priority;

use super::member::Member;
use crate::context::{Context, Shared};
use crate::engine::Site;
use crate::key::{Key, Kind};
use crate::message::chain;

/// Page size of lists: only metadata is listed.
const PAGE: u32 = 100;

/// The most tenants that are served on a cluster.
const MOST: usize = 10_000;

/// A list that is longer counts as endless and is not read any further.
const LONGEST_LIST: usize = 10 * MOST;

/// The longest namespace and name that an API server accepts.
const LONGEST_NAMES: (usize, usize) = (63, 253);

type Metadata = Item<PartialObjectMeta<DynamicObject>>;

/// What a list has contained so far.
#[derive(Default)]
struct Listing {
    keys: HashSet<Key>,
    length: usize,
}

impl Listing {
    /// Notes a listed tenant; false if the list is too long to read on. Known tenants are always noted, so that none of
    /// them counts as gone.
    fn note(&mut self, key: &Key, is_known: bool) -> bool {
        self.length += 1;
        if is_known || self.keys.len() < MOST {
            self.keys.insert(key.clone());
        }
        self.length <= LONGEST_LIST
    }
}

/// Queues the tenants of a cluster when they change.
pub(super) async fn watch(site: Arc<Site>, member: Arc<Member>, ctx: Shared) {
    loop {
        let following = async {
            follow(&site, &member, &ctx).await;
            // A cluster with an endless list is not read more often than this.
            tokio::time::sleep(ctx.resync_interval).await;
        };
        tokio::select! {
            () = following => {}
            // Earlier than the watch's own backoff would retry.
            () = site.reach.back() => {}
        }
    }
}

/// Follows them until a list turns out to be endless.
async fn follow(site: &Site, member: &Member, ctx: &Context) {
    let api: Api<Metadata> = ResourceId::of::<Tenant>().api(site.cluster.client(), None);
    let events = watcher(api, watcher::Config::default().page_size(PAGE)).default_backoff();
    tokio::pin!(events);
    let mut listing = Listing::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listing = Listing::default(),
            Ok(Event::InitApply(tenant)) => {
                let key = key_of(&tenant);
                if !listing.note(&key, site.memories.knows(&key)) {
                    let why = format!(
                        "it lists more than {LONGEST_LIST} tenants; the rest of the list is not read"
                    );
                    member.complain(&why, ctx).await;
                    return;
                }
                saw(site, member, ctx, key, &tenant, Priority::Low).await;
            }
            Ok(Event::InitDone) => {
                let known = site.memories.keys();
                let gone = known
                    .into_iter()
                    .filter(|key| key.kind == Kind::Tenant && !listing.keys.contains(key));
                gone.for_each(|key| site.forget(&key));
                listing = Listing::default();
            }
            Ok(Event::Apply(tenant)) => {
                let key = key_of(&tenant);
                saw(site, member, ctx, key, &tenant, Priority::High).await;
            }
            Ok(Event::Delete(tenant)) => site.forget(&key_of(&tenant)),
            Err(error) => {
                tracing::warn!(
                    cluster = site.name,
                    error = chain(&error),
                    "could not watch the tenants"
                );
                site.reach.doubt();
            }
        }
    }
}

async fn saw(site: &Site, member: &Member, ctx: &Context, key: Key, tenant: &Metadata, priority: Priority) {
    if !ctx.serves(&key.namespace) || !is_named(&key) {
        return;
    }
    if !site.memories.knows(&key) && site.memories.number() >= MOST {
        let why = format!("it has more than {MOST} tenants; the others are ignored");
        member.complain(&why, ctx).await;
        return;
    }
    let version = tenant.resource_version().unwrap_or_default();
    if site.memories.version(&key).as_deref() != Some(version.as_str()) {
        site.memories.saw(key.clone(), version);
        site.queue.add(key, priority);
    }
}

/// True if its names are ones that an API server accepts.
fn is_named(key: &Key) -> bool {
    let (namespace, name) = LONGEST_NAMES;
    (1..=namespace).contains(&key.namespace.len()) && (1..=name).contains(&key.name.len())
}

fn key_of(tenant: &Metadata) -> Key {
    Key {
        kind: Kind::Tenant,
        namespace: tenant.namespace().unwrap_or_default(),
        name: tenant.name_any(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key {
            kind: Kind::Tenant,
            namespace: "teams".to_owned(),
            name: format!("tenant-{number}"),
        }
    }

    #[test]
    fn a_list_without_an_end_is_not_kept_and_not_read_on() {
        let mut listing = Listing::default();
        for number in 0..LONGEST_LIST {
            assert!(listing.note(&key(number), false), "{number}");
        }
        assert_eq!(listing.keys.len(), MOST);
        assert!(!listing.note(&key(LONGEST_LIST), false));
    }

    #[test]
    fn a_known_tenant_at_the_end_of_a_long_list_is_not_gone() {
        let mut listing = Listing::default();
        for number in 0..MOST + 5 {
            listing.note(&key(number), number == MOST + 3);
        }
        assert!(listing.keys.contains(&key(MOST + 3)) && !listing.keys.contains(&key(MOST + 4)));
    }

    #[test]
    fn names_that_no_api_server_gives_are_left_alone() {
        assert!(is_named(&key(1)));
        let named = |namespace: &str, name: &str| Key {
            kind: Kind::Tenant,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        assert!(!is_named(&named("", "acme")) && !is_named(&named("teams", "")));
        assert!(!is_named(&named("teams", &"a".repeat(254))));
        assert!(!is_named(&named(&"n".repeat(64), "acme")));
    }
}
