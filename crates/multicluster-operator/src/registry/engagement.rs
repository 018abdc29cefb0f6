//! One cluster, from its first answer to the end of its Secret: its client, its watches, its workers.

use std::sync::Arc;
use std::time::Duration;

use api::mesh::{self, Tenant};
use cluster::{Answered, Cluster, Item, ObjectId, kubeconfig};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{CustomResourceExt as _, ResourceExt as _};
use runtime::queue::{Capacity, Priority, Queue};
use runtime::{Backoff, Recorder, Watches};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Limits, Member, Source, State, lock, tenants};
use crate::context::{Context, Shared};
use crate::engine::{FIELD_MANAGER, Memories, Owners, Reach, Site};
use crate::message::chain;
use crate::{crds, pass};

/// How long a cluster may take to say that it is there.
const PROBED_WITHIN: Duration = Duration::from_secs(5);

/// How often one is asked that was not there.
const PROBE_AGAIN: Duration = Duration::from_secs(5);

/// Shortest and longest pause before a cluster that could not be engaged is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How many watches there are on objects of releases on one cluster, each a connection: a cluster that tells of ever more
/// releases leaves connections to the others. Releases beyond that are compared at each resync alone.
const MOST_WATCHES: usize = 500;

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
            Some(Ok((cluster, server))) => {
                serve(cluster, server, &member, &ctx, &until).await;
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

/// The cluster, and where its API server is.
async fn connect(source: &Source, member: &Member, ctx: &Context) -> Result<(Cluster, String), Error> {
    let (cluster, server) = match source {
        Source::Home => (ctx.home.clone(), String::new()),
        Source::Kubeconfig { text, .. } => client(text, &ctx.limits).map_err(Error::Kubeconfig)?,
    };
    probe(&cluster).await?;
    if member.has_tenants {
        let definition = Tenant::crd();
        let ensuring = crds::ensure(&cluster, &definition);
        ensuring.await.map_err(Error::Type)?;
    }
    tracing::debug!(cluster = member.name, "connected");
    Ok((cluster, server))
}

/// A client, and where it leads.
fn client(text: &[u8], limits: &Limits) -> Result<(Cluster, String), kubeconfig::Error> {
    let config = kubeconfig::untrusted(text, limits)?;
    let server = config.cluster_url.to_string();
    let agent = concat!("multicluster-operator/", env!("CARGO_PKG_VERSION"));
    let client = kubeconfig::client(config, limits, agent, |_: &Answered| {})?;
    Ok((Cluster::new(client), server.trim_end_matches('/').to_owned()))
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
async fn serve(
    cluster: Cluster,
    server: String,
    member: &Arc<Member>,
    ctx: &Shared,
    until: &CancellationToken,
) {
    let site = Arc::new(site(cluster, server, member, ctx));
    *lock(&member.site) = Some(site.clone());
    member.stand(State::Engaged, "", ctx).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(pass::dispatch(site.clone(), ctx.clone(), until.clone()));
    if member.has_tenants {
        let watching = tenants::watch(site.clone(), member.clone(), ctx.clone());
        let until = until.clone();
        tasks.spawn(async move { until.run_until_cancelled(watching).await.unwrap_or_default() });
    }
    until.run_until_cancelled(keep_probing(&site, member, ctx)).await;
    while tasks.join_next().await.is_some() {}
}

fn site(cluster: Cluster, server: String, member: &Arc<Member>, ctx: &Shared) -> Site {
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
        server,
        claims: ctx.claims.clone(),
        releases: helm_client::release::Releases::new(
            cluster.clone(),
            helm_client::release::Options::default(),
        ),
        watches: Watches::new(cluster.clone(), mesh::OWNER_UID.to_owned(), owner, moved)
            .at_most(MOST_WATCHES),
        owners,
        memories: Memories::default(),
        backoff: Backoff::new(ctx.min_retry, ctx.max_retry),
        recorder: Recorder::new(cluster.clone(), mesh::events::TENANTS, &ctx.instance),
        figures: ctx.figures.clone(),
        reach: Reach::default(),
        member: Arc::downgrade(member),
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
                    site.reach.is_back();
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
    let key = &ctx.kubeconfig_key;
    let renewing = kubeconfig::renew::renew(&ctx.home, &site.cluster, &secret, key, FIELD_MANAGER, now);
    match renewing.await {
        Ok(renewed) => {
            tracing::info!(cluster = member.name, expires = %renewed.expires, "renewed the token of a cluster");
        }
        // The Secret changed meanwhile, and is looked at again.
        Err(kubeconfig::renew::Error::Store(error)) if error.is_conflict() => {}
        Err(error) => {
            let why = format!("its token could not be renewed: {}", chain(&error));
            member.complain(&why, ctx).await;
        }
    }
}
