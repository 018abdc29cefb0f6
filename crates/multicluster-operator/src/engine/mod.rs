//! One release on one cluster: observed, planned and written in the same way for tenants and deployments.

mod apply;
mod elsewhere;
mod memory;
mod observe;
mod plan;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::mesh;
use cluster::Cluster;
use helm_client::authenticity::Parent;
use helm_client::release::{CrdPolicy, Options, Releases, Wait};
use runtime::queue::Seat;
use runtime::{Backoff, Queue, Recorder, Watches};
use serde_json::{Map, Value};
use tokio::sync::Notify;

pub(crate) use apply::{Change, Error as ApplyError, apply};
pub(crate) use memory::{Memories, Memory, Owners};
pub(crate) use observe::{Error as ObserveError, Observed, observe};
pub(crate) use plan::{Blocked, Plan, Standing, Step, plan};

use crate::chart::Form;
use crate::claims::Claims;
use crate::cluster_id::ClusterId;
use crate::context::{Context, Engine};
use crate::key::{Key, Kind};
use crate::metrics::OperatorMetrics;
use crate::registry::member::Member;

/// How long an uninstall waits until the objects are gone.
const UNINSTALL_TIMEOUT: Duration = Duration::from_mins(2);

/// An API server that releases are written to.
pub(crate) struct Site {
    pub(crate) id: ClusterId,
    /// Name of the cluster in the names of releases, conditions and metrics.
    pub(crate) name: String,
    /// The address of its API server, which shows that two names refer to the same server.
    pub(crate) server: String,
    pub(crate) claims: Claims,
    pub(crate) cluster: Cluster,
    pub(crate) releases: Releases,
    pub(crate) queue: Arc<Queue<Key>>,
    /// Keyed by the UID in the labels of the objects.
    pub(crate) watches: Watches<String>,
    pub(crate) owners: Arc<Owners>,
    pub(crate) memories: Memories,
    pub(crate) backoff: Backoff<Key>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: OperatorMetrics,
    pub(crate) reach: Arc<Reach>,
    /// Reports about the cluster on the watch cluster.
    pub(crate) member: Weak<Member>,
}

impl Site {
    /// Records on the watch cluster what an object left behind here when it was removed without its release.
    pub(crate) async fn left_behind(&self, what: &str, ctx: &Context) {
        if let Some(member) = self.member.upgrade() {
            member.left_behind(what, ctx).await;
        }
    }
}

/// What is known about whether a cluster answers.
#[derive(Default)]
pub(crate) struct Reach {
    is_lost: AtomicBool,
    doubt: Notify,
    back: Notify,
}

impl Reach {
    /// True while no work begins there because it does not answer.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    pub(crate) fn set_lost(&self, is_lost: bool) {
        self.is_lost.store(is_lost, Ordering::Relaxed);
    }

    /// A request got no answer: the cluster is probed at once.
    pub(crate) fn doubt(&self) {
        self.doubt.notify_one();
    }

    /// It answers again: waiting work continues at once.
    pub(crate) fn is_back(&self) {
        self.back.notify_one();
    }

    pub(crate) async fn back(&self) {
        self.back.notified().await;
    }

    pub(crate) async fn doubted(&self) {
        self.doubt.notified().await;
    }
}

/// What to release, and for which object.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) key: Key,
    pub(crate) uid: String,
    /// Name of the release.
    pub(crate) release: String,
    pub(crate) values: Map<String, Value>,
    /// The values if the object sets none.
    pub(crate) default_values: Map<String, Value>,
    /// The fingerprint of the last install, as noted on the object.
    pub(crate) noted: Option<String>,
    /// The newest revision, as noted on the object.
    pub(crate) revision: i64,
    pub(crate) deleting: bool,
    /// True if the object has other releases on the same API server.
    pub(crate) is_shared: bool,
}

impl Subject {
    /// The annotation that allows the use of an existing namespace.
    pub(crate) fn opening(&self) -> &'static str {
        match self.key.kind {
            Kind::Tenant => mesh::annotations::FOR_TENANT,
            Kind::Deployment => mesh::annotations::FOR_DEPLOYMENT,
        }
    }

    fn form(&self) -> Form {
        match self.key.kind {
            Kind::Tenant => Form::Listed,
            Kind::Deployment => Form::Archive,
        }
    }

    /// What a tenant's release waits for, and how long; the health of a deployment is checked by passes instead.
    fn wait(&self) -> (Wait, Duration) {
        match self.key.kind {
            Kind::Tenant => (Wait::Ready, Duration::from_mins(3)),
            Kind::Deployment => (Wait::No, Duration::from_mins(5)),
        }
    }
}

impl Engine {
    /// Access to the releases of a site, with the options for one object.
    fn releases(&self, subject: &Subject, memory: &Memory, site: &Site) -> Releases {
        let (wait, timeout) = subject.wait();
        let options = Options {
            max_history: self.max_history,
            wait,
            timeout: if subject.deleting {
                UNINSTALL_TIMEOUT
            } else {
                timeout
            },
            crds: if self.install_crds {
                CrdPolicy::Create
            } else {
                CrdPolicy::Skip
            },
            ..Options::default()
        };
        let parent = Parent {
            label: mesh::OWNER_UID,
            uid: subject.uid.clone(),
            keys: Some(self.keys.get()),
        };
        site.releases
            .clone()
            .with_options(options)
            .cached_in(memory.cache.clone())
            .belonging_to(parent)
            .parked_at(Arc::new(Seat::new(&site.queue, &subject.key)))
    }
}
