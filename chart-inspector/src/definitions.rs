//! Definitions as they were read last: a controller asks about hundreds of compositions of one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use api::CompositionDefinition;
use cluster::{Cluster, ObjectId};
use kube::ResourceExt as _;

/// The definitions that were asked for, each in the state in which it was read last.
#[derive(Default)]
pub(crate) struct Definitions(Mutex<HashMap<ObjectId, Arc<CompositionDefinition>>>);

impl Definitions {
    /// The definition, none when it is not there. It is read, unless what was read last is the state that the caller
    /// knows: a `resourceVersion` stands for one state alone.
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
