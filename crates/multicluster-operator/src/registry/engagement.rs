//! Serves one cluster, from its first answer until its Secret is removed: its client, its watches, its workers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::mesh::{self, Tenant};
use cluster::kubeconfig::{self, Limits};
use cluster::{Answered, Cluster, Item, ObjectId, Pulse};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{CustomResourceExt as _, ResourceExt as _};
use runtime::queue::{Capacity, Priority, Queue};
use runtime::{Backoff, Recorder, Watches};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::member::{Member, lock};
use super::source::Source;
use super::state::ClusterState;
use super::tenants;
use crate::context::{Context, Shared};
use crate::engine::{Memories, Owners, Reach, Site};
use crate::field_manager::FIELD_MANAGER;
use crate::message::chain;
use crate::{crds, pass};

/// How long a cluster may take to answer a probe.
const PROBED_WITHIN: Duration = Duration::from_secs(5);

/// How long the renewal of a token may take, which includes requests to the watch cluster.
const RENEWED_WITHIN: Duration = Duration::from_secs(30);

/// How often an unreachable cluster is probed.
const PROBE_AGAIN: Duration = Duration::from_secs(5);

/// How soon a cluster is probed again after a request got no answer.
const DOUBTED_AGAIN: Duration = Duration::from_secs(1);

/// A server sends a bookmark on each watch about once a minute. One that has sent nothing for longer is probed.
const SILENT_AT_MOST: Duration = Duration::from_secs(70);

/// Shortest and longest pause before a cluster that could not be engaged is tried again.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The most watches on objects of releases on one cluster, each of which is a connection: a cluster that reports ever
/// more releases must leave connections for the others. Releases beyond that are compared at each resync only.
const MOST_WATCHES: usize = 500;

type Metadata = Item<PartialObjectMeta<DynamicObject>>;

/// Access to the releases of a cluster, while it is engaged.
pub(super) type Engaged = Arc<Mutex<Option<Arc<Site>>>>;

/// Why a cluster could not be engaged.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("the Secret has no kubeconfig under the key {0}")]
    NoKubeconfig(String),
    #[error("the kubeconfig is refused")]
    Kubeconfig(#[source] kubeconfig::Error),
    #[error("the cluster does not answer")]
    Probe(#[source] kube::Error),
    #[error("the cluster gave no answer within {} s", PROBED_WITHIN.as_secs())]
    TimedOut,
    #[error("could not create the type Tenant on the cluster")]
    Type(#[source] cluster::Error),
}

/// Serves a cluster until `until`; retries while it cannot be engaged. At the end it waits no longer than passes in
/// flight may take.
pub(super) async fn run(
    member: Arc<Member>,
    engaged: Engaged,
    source: Source,
    ctx: Shared,
    until: CancellationToken,
) {
    let mut pause = PAUSES.0;
    member.stand(ClusterState::Connecting, "", &ctx).await;
    loop {
        let connecting = connect(&source, &member, &ctx);
        match until.run_until_cancelled(connecting).await {
            None => return,
            Some(Ok(connected)) => {
                serve(connected, &member, &engaged, &ctx, &until).await;
                *lock(&engaged) = None;
                ctx.claims.release(&member.name);
                // Whatever serves the cluster next may see other objects there.
                ctx.metrics.vacate(&member.name);
                return;
            }
            Some(Err(error)) => {
                tracing::warn!(cluster = member.name, error = chain(&error), retry_in = ?pause, "could not engage a cluster");
                let why = chain(&error);
                let waiting = async {
                    member.stand(ClusterState::Unreachable, &why, &ctx).await;
                    tokio::time::sleep(pause).await;
                };
                if until.run_until_cancelled(waiting).await.is_none() {
                    return;
                }
            }
        }
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// A cluster that has answered.
struct Connected {
    cluster: Cluster,
    /// The address of its API server.
    server: String,
    /// When its watches last received something.
    pulse: Pulse,
}

async fn connect(source: &Source, member: &Member, ctx: &Context) -> Result<Connected, Error> {
    let connected = match source {
        Source::Home => Connected {
            cluster: ctx.home.clone(),
            server: String::new(),
            pulse: ctx.home_pulse.clone(),
        },
        Source::Kubeconfig { text, .. } if text.is_empty() => {
            return Err(Error::NoKubeconfig(ctx.kubeconfig_key.clone()));
        }
        Source::Kubeconfig { text, .. } => client(text, &ctx.limits).map_err(Error::Kubeconfig)?,
    };
    probe(&connected.cluster).await?;
    if member.has_tenants {
        let definition = Tenant::crd();
        let ensuring = crds::ensure(&connected.cluster, &definition);
        ensuring.await.map_err(Error::Type)?;
    }
    tracing::debug!(cluster = member.name, "connected");
    Ok(connected)
}

/// A client, and the server's address.
fn client(text: &[u8], limits: &Limits) -> Result<Connected, kubeconfig::Error> {
    let config = kubeconfig::untrusted(text, limits)?;
    let server = config.cluster_url.to_string();
    let agent = concat!("multicluster-operator/", env!("CARGO_PKG_VERSION"));
    let pulse = Pulse::default();
    let client = kubeconfig::client_heard(config, limits, agent, |_: &Answered| {}, &pulse)?;
    Ok(Connected {
        cluster: Cluster::new(client),
        server: server.trim_end_matches('/').to_owned(),
        pulse,
    })
}

async fn probe(cluster: &Cluster) -> Result<(), Error> {
    let client = cluster.client();
    match tokio::time::timeout(PROBED_WITHIN, client.apiserver_version()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::Probe(error)),
        Err(_) => Err(Error::TimedOut),
    }
}

/// Reconciles the objects on the cluster until `until`.
async fn serve(
    connected: Connected,
    member: &Arc<Member>,
    engaged: &Engaged,
    ctx: &Shared,
    until: &CancellationToken,
) {
    let Connected {
        cluster,
        server,
        pulse,
    } = connected;
    let site = Arc::new(site(cluster, server, member, ctx));
    *lock(engaged) = Some(site.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(pass::dispatch(site.clone(), ctx.clone(), until.clone()));
    if member.has_tenants {
        let watching = Box::pin(tenants::watch(site.clone(), member.clone(), ctx.clone()));
        let until = until.clone();
        tasks.spawn(async move { until.run_until_cancelled(watching).await.unwrap_or_default() });
    }
    let keeping = async {
        member.stand(ClusterState::Engaged, "", ctx).await;
        keep_probing(&site, &pulse, member, ctx).await;
    };
    until.run_until_cancelled(keeping).await;
    while tasks.join_next().await.is_some() {}
}

fn site(cluster: Cluster, server: String, member: &Arc<Member>, ctx: &Shared) -> Site {
    let queue = Arc::new(Queue::new(ctx.telemetry.queue(), Capacity::of(ctx.workers)));
    let owners = Arc::<Owners>::default();
    let reach = Arc::<Reach>::default();
    let (waiting, owned, doubted) = (queue.clone(), owners.clone(), reach.clone());
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
            .at_most(MOST_WATCHES)
            .when_one_fails(move || doubted.doubt()),
        owners,
        memories: Memories::default(),
        backoff: Backoff::new(ctx.min_retry, ctx.max_retry),
        recorder: Recorder::new(cluster.clone(), mesh::events::TENANTS, &ctx.instance),
        metrics: ctx.metrics.clone(),
        reach,
        member: Arc::downgrade(member),
        queue,
        cluster,
    }
}

/// The UID of the object that owns an object of a release.
fn owner(object: &Metadata) -> Option<String> {
    object.labels().get(mesh::OWNER_UID).cloned()
}

/// How long no probe is needed, because a watch has received something recently; none if one is needed now.
fn heard_for(
    silent_for: Option<Duration>,
    is_lost: bool,
    is_doubted: bool,
    interval: Duration,
) -> Option<Duration> {
    let left = SILENT_AT_MOST.max(interval).checked_sub(silent_for?)?;
    (!left.is_zero() && !is_lost && !is_doubted).then_some(left)
}

/// Probes the cluster when its watches are silent, and renews its token.
async fn keep_probing(site: &Site, pulse: &Pulse, member: &Member, ctx: &Shared) {
    let interval = ctx.probe_interval;
    let mut pause = interval;
    loop {
        // A cluster could otherwise make us probe it all the time.
        let floor = DOUBTED_AGAIN.min(pause);
        tokio::time::sleep(floor).await;
        let is_doubted = tokio::select! {
            () = tokio::time::sleep(pause.saturating_sub(floor)) => false,
            () = site.reach.doubted() => true,
        };
        let heard = heard_for(pulse.silent_for(), site.reach.is_lost(), is_doubted, interval);
        pause = heard.map_or(interval, |left| left.min(interval));
        let probed = match heard {
            Some(_) => Ok(()),
            None => probe(&site.cluster).await,
        };
        match probed {
            Ok(()) => {
                site.reach.set_lost(false);
                if member.standing().state != ClusterState::Engaged {
                    member.stand(ClusterState::Engaged, "it answers again", ctx).await;
                    site.reach.is_back();
                    for key in site.memories.keys() {
                        site.queue.add(key, Priority::Normal);
                    }
                }
                member.tell_again(ctx).await;
                let renewing = renew_token(site, member, ctx);
                if tokio::time::timeout(RENEWED_WITHIN, renewing).await.is_err() {
                    tracing::warn!(cluster = member.name, "could not renew a token in time");
                }
            }
            Err(error) => {
                pause = PROBE_AGAIN.min(interval);
                site.reach.set_lost(true);
                member.stand(ClusterState::Unreachable, &chain(&error), ctx).await;
            }
        }
    }
}

/// Makes the cluster issue a new token after half the lifetime of the current one. The changed Secret then engages the
/// cluster again.
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
        // The Secret has changed meanwhile, and will be read again.
        Err(kubeconfig::renew::Error::Store(error)) if error.is_conflict() => {}
        Err(error) => {
            let why = format!("its token could not be renewed: {}", chain(&error));
            member.complain(&why, ctx).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_probed_once_its_watches_are_silent_for_too_long() {
        let second = Duration::from_secs;
        let heard = |silent_for: Option<u64>, interval| {
            let left = heard_for(silent_for.map(second), false, false, second(interval));
            left.map(|left| left.as_secs())
        };
        assert_eq!((heard(Some(0), 30), heard(Some(61), 30)), (Some(70), Some(9)));
        assert_eq!(heard(Some(61), 1), Some(9));
        assert_eq!((heard(Some(70), 30), heard(Some(3600), 30)), (None, None));
        // Without a watch there is nothing to hear from.
        assert_eq!(heard(None, 30), None);
        // A longer configured interval is respected.
        assert_eq!((heard(Some(100), 120), heard(Some(120), 120)), (Some(20), None));
    }

    #[test]
    fn events_of_a_watch_do_not_count_once_a_request_has_failed() {
        let interval = Duration::from_secs(30);
        let just_now = Some(Duration::from_secs(1));
        assert!(heard_for(just_now, false, false, interval).is_some());
        assert!(heard_for(just_now, true, false, interval).is_none());
        assert!(heard_for(just_now, false, true, interval).is_none());
    }
}
