//! If one API server is engaged under several names, decides which of these clusters serves a tenant that names none:
//! the first one that saw it.
//!
//! Servers are identified by their addresses. Everything else they report, UIDs included, can be imitated by another
//! server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::key::Key;

/// The claims of this process; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Claims(Arc<Mutex<Held>>);

/// The cluster that has claimed a tenant, by API server and tenant.
type Held = HashMap<(String, Key), String>;

impl Claims {
    /// True if the cluster serves the tenant from now on, or already did.
    pub(crate) fn claim(&self, server: &str, tenant: &Key, cluster: &str) -> bool {
        let mut claims = self.lock();
        let holder = claims
            .entry((server.to_owned(), tenant.clone()))
            .or_insert_with(|| cluster.to_owned());
        holder == cluster
    }

    /// The cluster reports that the tenant no longer exists; drops the claim if it is this cluster's.
    pub(crate) fn forget(&self, server: &str, tenant: &Key, cluster: &str) {
        let place = (server.to_owned(), tenant.clone());
        let mut claims = self.lock();
        if claims.get(&place).is_some_and(|holder| holder == cluster) {
            claims.remove(&place);
        }
    }

    /// The cluster is no longer served.
    pub(crate) fn release(&self, cluster: &str) {
        self.lock().retain(|_, holder| holder != cluster);
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Kind;

    fn tenant(name: &str) -> Key {
        Key {
            kind: Kind::Tenant,
            namespace: "teams".to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn the_first_cluster_that_saw_a_tenant_serves_it_until_it_goes() {
        let claims = Claims::default();
        let (server, acme) = ("https://one:6443", tenant("acme"));
        assert!(claims.claim(server, &acme, "one") && claims.claim(server, &acme, "one"));
        assert!(!claims.claim(server, &acme, "other"));
        assert!(claims.claim(server, &tenant("beta"), "other"));
        claims.forget(server, &acme, "other");
        assert!(!claims.claim(server, &acme, "other"));
        claims.forget(server, &acme, "one");
        assert!(claims.claim(server, &acme, "other"));
        claims.release("other");
        assert!(claims.claim(server, &tenant("beta"), "one"));
    }

    #[test]
    fn one_server_cannot_claim_tenants_of_another() {
        let claims = Claims::default();
        let acme = tenant("acme");
        assert!(claims.claim("https://hostile:6443", &acme, "hostile"));
        assert!(claims.claim("https://one:6443", &acme, "one"));
    }
}
