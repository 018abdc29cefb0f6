//! Gives back the worker slot during the long waits of an action.

use std::sync::Arc;

use cluster::{Parking, parked};

use super::Releases;

impl Releases {
    /// The same, for a caller that gives back its worker slot during long waits.
    pub fn parked_at(self, place: Arc<dyn Parking>) -> Self {
        let parking = Some(place);
        Self { parking, ..self }
    }

    /// Awaits something that may take long.
    pub(super) async fn patiently<T>(&self, wait: impl Future<Output = T>) -> T {
        match &self.parking {
            Some(place) => parked(&**place, wait).await,
            None => wait.await,
        }
    }
}
