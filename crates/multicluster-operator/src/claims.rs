//! Which cluster serves a tenant that names none, where one API server is engaged under several names: the first that saw it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The claims of this process, by the UID of the tenant.
#[derive(Default)]
pub(crate) struct Claims(Mutex<HashMap<String, String>>);

impl Claims {
    /// True when the cluster serves the tenant from now on, or did already.
    pub(crate) fn claim(&self, uid: &str, cluster: &str) -> bool {
        let mut claims = self.lock();
        if let Some(holder) = claims.get(uid) {
            return holder == cluster;
        }
        claims.insert(uid.to_owned(), cluster.to_owned());
        true
    }

    /// A cluster is not served any more.
    pub(crate) fn release(&self, cluster: &str) {
        self.lock().retain(|_, holder| holder != cluster);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cluster_that_saw_a_tenant_serves_it_until_it_goes() {
        let claims = Claims::default();
        assert!(claims.claim("42", "one") && claims.claim("42", "one"));
        assert!(!claims.claim("42", "other"));
        assert!(claims.claim("43", "other"));
        claims.release("one");
        assert!(claims.claim("42", "other"));
    }
}
