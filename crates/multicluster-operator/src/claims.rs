//! Which cluster serves a tenant that names none, where one API server is engaged under several names: the first that saw it.
//!
//! Servers are told apart by their addresses. What they say about their objects, UIDs included, others can say as well.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::key::Key;

/// The claims of this process; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Claims(Arc<Mutex<Held>>);

/// The cluster that holds a tenant, by its API server and place.
type Held = HashMap<(String, Key), String>;

impl Claims {
    /// True when the cluster serves the tenant from now on, or did already.
    pub(crate) fn claim(&self, server: &str, tenant: &Key, cluster: &str) -> bool {
        let mut claims = self.lock();
        let holder = claims
            .entry((server.to_owned(), tenant.clone()))
            .or_insert_with(|| cluster.to_owned());
        holder == cluster
    }

    /// A tenant is not there any more, as the cluster says; only its own claim goes.
    pub(crate) fn forget(&self, server: &str, tenant: &Key, cluster: &str) {
        let place = (server.to_owned(), tenant.clone());
        let mut claims = self.lock();
        if claims.get(&place).is_some_and(|holder| holder == cluster) {
            claims.remove(&place);
        }
    }

    /// A cluster is not served any more.
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
    fn what_one_server_says_takes_no_tenant_of_another() {
        let claims = Claims::default();
        let acme = tenant("acme");
        assert!(claims.claim("https://hostile:6443", &acme, "hostile"));
        assert!(claims.claim("https://one:6443", &acme, "one"));
    }
}
