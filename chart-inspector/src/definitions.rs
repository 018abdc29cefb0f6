//! A cache of definitions: a controller asks about hundreds of compositions of the same one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::CompositionDefinition;
use cluster::{Cluster, ObjectId};
use kube::ResourceExt as _;

/// The definitions that were asked for, as last read.
#[derive(Default)]
pub(crate) struct Definitions(Mutex<HashMap<ObjectId, Arc<CompositionDefinition>>>);

impl Definitions {
    /// The definition; none when it does not exist. It is read again, unless the cached one has the `resourceVersion`
    /// that the caller knows.
    pub(crate) async fn get(
        &self,
        id: &ObjectId,
        known: Option<&str>,
        cluster: &Cluster,
    ) -> Result<Option<Arc<CompositionDefinition>>, cluster::Error> {
        if let Some(read) = self.read_as(id, known) {
            return Ok(Some(read));
        }
        let definition: Option<CompositionDefinition> = cluster.get(id).await?;
        let definition = definition.map(Arc::new);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &definition {
            Some(definition) => all.insert(id.clone(), Arc::clone(definition)),
            None => all.remove(id),
        };
        Ok(definition)
    }

    fn read_as(&self, id: &ObjectId, known: Option<&str>) -> Option<Arc<CompositionDefinition>> {
        let known = known?;
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let read = all.get(id)?;
        (read.resource_version().as_deref() == Some(known)).then(|| Arc::clone(read))
    }
}
