//! The Secrets with kubeconfigs: those in one namespace that have the label. Secrets are listed and watched nowhere
//! else.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::Item;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use tokio_util::sync::CancellationToken;

use super::Registry;
use super::source::{Source, is_self, source};
use crate::cluster_id::ClusterId;
use crate::context::Context;
use crate::message::chain;

/// Page size of lists of Secrets; each may be up to 1 MiB.
const PAGE: u32 = 10;

/// Engages and ends clusters as their Secrets come and go, until `until`; `listed` is called once all are known.
pub(crate) async fn follow(
    registry: Arc<Registry>,
    ctx: &Context,
    label: &str,
    until: CancellationToken,
    listed: impl Fn(),
) {
    let api: Api<Item<Secret>> = Api::namespaced(ctx.home.client(), &ctx.discovery_namespace);
    let config = watcher::Config::default()
        .labels(&format!("{label}=true"))
        .page_size(PAGE);
    let events = watcher(api, config)
        .default_backoff()
        .take_until(until.cancelled());
    tokio::pin!(events);
    let mut listing = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(secret)) => {
                listing.insert(id_of(&secret));
                found(&registry, &secret, ctx);
            }
            Ok(Event::InitDone) => {
                let known = registry.discovered_ids();
                let lost = known
                    .iter()
                    .filter(|id| !listing.contains(id) && !is_self(id, ctx));
                lost.for_each(|id| registry.lost(id));
                listed();
            }
            Ok(Event::Apply(secret)) => found(&registry, &secret, ctx),
            Ok(Event::Delete(secret)) => {
                let id = id_of(&secret);
                if !is_self(&id, ctx) {
                    registry.lost(&id);
                }
            }
            Err(error) => tracing::warn!(error = chain(&error), "could not watch the Secrets of clusters"),
        }
    }
}

fn id_of(secret: &Item<Secret>) -> ClusterId {
    ClusterId {
        namespace: secret.namespace().unwrap_or_default(),
        name: secret.name_any(),
    }
}

fn found(registry: &Registry, secret: &Item<Secret>, ctx: &Context) {
    let id = id_of(secret);
    if is_self(&id, ctx) {
        return;
    }
    let Item::Read(secret) = secret else {
        tracing::warn!(cluster = %id, "the Secret cannot be read");
        registry.lost(&id);
        return;
    };
    // A Secret without a kubeconfig is reported like one whose kubeconfig is unusable.
    let source = source(secret, &ctx.kubeconfig_key).unwrap_or_else(|| Source::Kubeconfig {
        text: Arc::default(),
        annotations: secret.annotations().clone(),
    });
    registry.discovered(&id, source);
}
