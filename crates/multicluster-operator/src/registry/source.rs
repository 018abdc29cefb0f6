//! How to connect to a cluster, from the Secret that says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use sha2::{Digest as _, Sha256};

use crate::cluster_id::ClusterId;
use crate::context::Context;

/// The name under which the watch cluster itself is served.
pub(crate) const SELF: &str = "self-cluster";

/// How to connect to a cluster.
#[derive(Clone)]
pub(crate) enum Source {
    /// With this process's own client: it is the watch cluster.
    Home,
    /// With a kubeconfig, whose author may be malicious; if it is empty, the cluster cannot be reached.
    Kubeconfig {
        text: Arc<[u8]>,
        /// Annotations of its Secret, which say whether its token is renewed.
        annotations: BTreeMap<String, String>,
    },
}

impl Source {
    /// A digest that is the same for sources of the same connection.
    pub(super) fn digest(&self) -> [u8; 32] {
        match self {
            Self::Home => [0; 32],
            Self::Kubeconfig { text, .. } => Sha256::digest(text).into(),
        }
    }
}

/// The source of a cluster from its Secret.
pub(crate) fn source(secret: &Secret, key: &str) -> Option<Source> {
    let ByteString(text) = secret.data.as_ref()?.get(key)?;
    (!text.is_empty()).then(|| Source::Kubeconfig {
        text: text.as_slice().into(),
        annotations: secret.annotations().clone(),
    })
}

/// True for the watch cluster, which is served with this process's own client.
pub(super) fn is_self(id: &ClusterId, ctx: &Context) -> bool {
    ctx.serves_self && id.name == SELF && id.namespace == ctx.discovery_namespace
}
