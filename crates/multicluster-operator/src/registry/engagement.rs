//! One cluster, from its first answer to the end of its Secret: its client, its watches, its workers.

use std::sync::Arc;
use std::time::Duration;

use api::mesh::{self, Tenant};
use cluster::{Answered, Cluster, Item, ObjectId, ResourceId, kubeconfig};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, CustomResourceExt as _, ResourceExt as _};
use runtime::queue::{Capacity, Priority, Queue};
use runtime::{Backoff, Recorder, Watches, chain};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Limits, Member, Source, State, lock};
use crate::context::{Context, Shared};
use crate::engine::{FIELD_MANAGER, Memories, Owners, Reach, Site};
use crate::key::{Key, Kind};
use crate::{crds, pass};

/// How long a cluster may take to say that it is there.
const PROBED_WITHIN: Duration = Duration::from_secs(5);

/// How often one is asked that was not there.
const PROBE_AGAIN: Duration = Duration::from_secs(5);

/// Shortest and longest pause before a cluster that could not be engaged is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How many tenants are listed at once: nothing but their metadata.
const PAGE: u32 = 100;

type Metadata = Item<PartialObjectMeta<DynamicObject>>;

/// A cluster could not be engaged.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the kubeconfig is refused")]
    Kubeconfig(#[source] kubeconfig::Error),
    #[error("the cluster gives no answer")]
    Probe(#[source] kube::Error),
    #[error("the cluster gave no answer within {} s", PROBED_WITHIN.as_secs())]
    TimedOut,
    #[error("could not make the type Tenant on the cluster")]
    Type(#[source] cluster::Error),
}

/// Serves a cluster until `until`; one that is not there is tried again.
pub(super) async fn run(member: Arc<Member>, source: Source, ctx: Shared, until: CancellationToken) {
    let mut pause = PAUSES.0;
    member.stand(State::Connecting, "", &ctx).await;
    loop {
        let connecting = connect(&source, &member, &ctx);
        match until.run_until_cancelled(connecting).await {
            None => return,
            Some(Ok(cluster)) => {
                serve(cluster, &member, &ctx, &until).await;
                *lock(&member.site) = None;
                ctx.claims.release(&member.name);
                return;
            }
            Some(Err(error)) => {
                member.stand(State::Unreachable, &chain(&error), &ctx).await;
                tracing::warn!(cluster = member.name, error = chain(&error), retry_in = ?pause, "could not engage a cluster");
            }
        }
        if until
            .run_until_cancelled(tokio::time::sleep(pause))
            .await
            .is_none()
        {
            return;
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

async fn connect(source: &Source, member: &Member, ctx: &Context) -> Result<Cluster, Error> {
    let cluster = match source {
        Source::Home => ctx.home.clone(),
        Source::Kubeconfig { text, .. } => client(text, &ctx.limits).map_err(Error::Kubeconfig)?,
    };
    probe(&cluster).await?;
    if ctx.mode.has_tenants() {
        let definition = Tenant::crd();
        let ensuring = crds::ensure(&cluster, &definition);
        ensuring.await.map_err(Error::Type)?;
    }
    tracing::debug!(cluster = member.name, "connected");
    Ok(cluster)
}

fn client(text: &[u8], limits: &Limits) -> Result<Cluster, kubeconfig::Error> {
    let config = kubeconfig::untrusted(text, limits)?;
    let agent = concat!("multicluster-operator/", env!("CARGO_PKG_VERSION"));
    let client = kubeconfig::client(config, limits, agent, |_: &Answered| {})?;
    Ok(Cluster::new(client))
}

async fn probe(cluster: &Cluster) -> Result<(), Error> {
    let client = cluster.client();
    match tokio::time::timeout(PROBED_WITHIN, client.apiserver_version()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::Probe(error)),
        Err(_) => Err(Error::TimedOut),
    }
}

/// Works on what is on the cluster until `until`.
async fn serve(cluster: Cluster, member: &Member, ctx: &Shared, until: &CancellationToken) {
    let site = Arc::new(site(cluster, member, ctx));
    *lock(&member.site) = Some(site.clone());
    member.stand(State::Engaged, "", ctx).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(pass::dispatch(site.clone(), ctx.clone(), until.clone()));
    if ctx.mode.has_tenants() {
        tasks.spawn(watch_tenants(site.clone(), ctx.clone(), until.clone()));
    }
    until.run_until_cancelled(keep_probing(&site, member, ctx)).await;
    while tasks.join_next().await.is_some() {}
}

fn site(cluster: Cluster, member: &Member, ctx: &Shared) -> Site {
    let queue = Arc::new(Queue::new(ctx.telemetry.queue(), Capacity::of(ctx.workers)));
    let owners = Arc::<Owners>::default();
    let (waiting, owned) = (queue.clone(), owners.clone());
    let moved = move |uid: String| {
        if let Some(key) = owned.get(&uid) {
            waiting.add(key, Priority::Normal);
        }
    };
    Site {
        id: member.id.clone(),
        name: member.name.clone(),
        releases: helm_client::release::Releases::new(
            cluster.clone(),
            helm_client::release::Options::default(),
        ),
        watches: Watches::new(cluster.clone(), mesh::OWNER_UID.to_owned(), owner, moved),
        owners,
        memories: Memories::default(),
        backoff: Backoff::new(ctx.min_retry, ctx.max_retry),
        recorder: Recorder::new(cluster.clone(), mesh::events::TENANTS, &ctx.instance),
        figures: ctx.figures.clone(),
        reach: Reach::default(),
        queue,
        cluster,
    }
}

/// Whom an object belongs to, by UID.
fn owner(object: &Metadata) -> Option<String> {
    object.labels().get(mesh::OWNER_UID).cloned()
}

/// Asks the cluster now and then whether it is there, and renews the token by which it is reached.
async fn keep_probing(site: &Site, member: &Member, ctx: &Shared) {
    let mut pause = ctx.probe_interval;
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = site.reach.doubted() => {}
        }
        match probe(&site.cluster).await {
            Ok(()) => {
                pause = ctx.probe_interval;
                site.reach.set_lost(false);
                if member.standing().state != State::Engaged {
                    member.stand(State::Engaged, "it answers again", ctx).await;
                    for key in site.memories.keys() {
                        site.queue.add(key, Priority::Normal);
                    }
                }
                renew_token(site, member, ctx).await;
            }
            Err(error) => {
                pause = PROBE_AGAIN.min(ctx.probe_interval);
                site.reach.set_lost(true);
                member.stand(State::Unreachable, &chain(&error), ctx).await;
            }
        }
    }
}

/// Has the cluster make a new token once half of the life of ours is over. The Secret with it engages the cluster anew.
async fn renew_token(site: &Site, member: &Member, ctx: &Context) {
    let now = Timestamp::now();
    if !kubeconfig::renew::is_due(&lock(&member.annotations), now) {
        return;
    }
    let secret = async {
        let id = ObjectId::of::<Secret>(Some(&member.id.namespace), &member.id.name)?;
        ctx.home.get::<Secret>(&id).await
    };
    let secret = match secret.await {
        Ok(Some(secret)) => secret,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(
                cluster = member.name,
                error = chain(&error),
                "could not read a kubeconfig to renew its token"
            );
            return;
        }
    };
    match kubeconfig::renew::renew(&ctx.home, &site.cluster, &secret, FIELD_MANAGER, now).await {
        Ok(renewed) => {
            tracing::info!(cluster = member.name, expires = %renewed.expires, "renewed the token of a cluster");
        }
        Err(error) => {
            tracing::warn!(
                cluster = member.name,
                error = chain(&error),
                "could not renew the token of a cluster"
            );
        }
    }
}

/// Puts the tenants of a cluster into its queue as they move.
async fn watch_tenants(site: Arc<Site>, ctx: Shared, until: CancellationToken) {
    let api: Api<Metadata> = ResourceId::of::<Tenant>().api(site.cluster.client(), None);
    let events = watcher(api, watcher::Config::default().page_size(PAGE))
        .default_backoff()
        .take_until(until.cancelled());
    tokio::pin!(events);
    let mut listing = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(tenant)) => {
                let key = key_of(&tenant);
                listing.push(key.clone());
                saw(&site, &ctx, key, &tenant, Priority::Low);
            }
            Ok(Event::InitDone) => {
                let known = site.memories.keys();
                let gone = known
                    .into_iter()
                    .filter(|key| key.kind == Kind::Tenant && !listing.contains(key));
                gone.for_each(|key| site.forget(&key));
            }
            Ok(Event::Apply(tenant)) => {
                let key = key_of(&tenant);
                saw(&site, &ctx, key, &tenant, Priority::High);
            }
            Ok(Event::Delete(tenant)) => site.forget(&key_of(&tenant)),
            Err(error) => {
                tracing::warn!(
                    cluster = site.name,
                    error = chain(&error),
                    "could not watch the tenants"
                );
            }
        }
    }
}

fn saw(site: &Site, ctx: &Context, key: Key, tenant: &Metadata, priority: Priority) {
    if !ctx.serves(&key.namespace) {
        return;
    }
    let version = tenant.resource_version().unwrap_or_default();
    if site.memories.version(&key).as_deref() != Some(version.as_str()) {
        site.memories.saw(key.clone(), version);
        site.queue.add(key, priority);
    }
}

fn key_of(tenant: &Metadata) -> Key {
    Key {
        kind: Kind::Tenant,
        namespace: tenant.namespace().unwrap_or_default(),
        name: tenant.name_any(),
    }
}
