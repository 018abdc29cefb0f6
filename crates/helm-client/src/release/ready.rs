//! Waits until the objects of a release are ready.

use cluster::{Goal, Health, ObjectId, health};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use tokio::time::Instant;

use super::objects::AT_ONCE;
use super::{Error, Live, Progress, Releases, Wait};

impl Releases {
    /// Waits for the objects as the options say, all of them within one timeout.
    ///
    /// An object whose state right after the apply already shows that it is ready is not read again. A paused
    /// Deployment is not awaited, since it does not roll out.
    ///
    /// # Errors
    /// [`Error::Objects`] for the first that fails, or is not ready in time.
    pub(super) async fn wait_until_ready(&self, objects: &[Live]) -> Result<(), Error> {
        if self.options.wait == Wait::No {
            return Ok(());
        }
        let deadline = Instant::now() + self.options.timeout;
        let waits: Vec<_> = objects
            .iter()
            .filter_map(|live| Some((live.id.clone(), self.awaited(live)?)))
            .map(|(id, goal)| self.wait_for(id, goal, deadline).boxed())
            .collect();
        stream::iter(waits)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await
            .map_err(Error::objects("await"))
    }

    fn awaited(&self, live: &Live) -> Option<Goal> {
        let resource = live.id.resource();
        let kind = (resource.group.as_str(), resource.kind.as_str());
        if self.options.wait == Wait::ReadyAndJobs && kind == ("batch", "Job") {
            return Some(Goal::Complete);
        }
        let is_paused = kind == ("apps", "Deployment") && live.object["spec"]["paused"] == Value::Bool(true);
        (!is_paused && !health(&live.object).is_current()).then_some(Goal::Current)
    }

    async fn wait_for(&self, id: ObjectId, goal: Goal, deadline: Instant) -> Result<(), cluster::Error> {
        let tell = self.tell();
        let mut progress = |health: &Health| tell(&Progress::Awaiting { id: &id, health });
        let left = deadline.saturating_duration_since(Instant::now());
        self.cluster.wait_until(&id, goal, left, &mut progress).await?;
        tell(&Progress::Awaiting {
            id: &id,
            health: &Health::Current,
        });
        Ok(())
    }
}
