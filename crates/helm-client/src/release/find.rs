//! Releases as a person's tool finds them: by lists, with that person's rights. Controllers name what they read.

use helm::release::{OWNER, label};

use super::{Error, Releases};
use crate::records::{self, Observed, Record};

impl Releases {
    /// Reads what is stored of a release, without knowing about where its newest revision is.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub async fn find(&self, namespace: &str, name: &str) -> Result<Observed, Error> {
        self.records(namespace, name).find().await.map_err(Error::Records)
    }

    /// All revisions of a release, the oldest first.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub async fn history(&self, namespace: &str, name: &str) -> Result<Vec<Record>, Error> {
        self.records(namespace, name).list().await.map_err(Error::Records)
    }

    /// The newest revision of every release in a namespace, or in all of them, by namespace and name.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub async fn list(&self, namespace: Option<&str>) -> Result<Vec<Record>, Error> {
        let labels = format!("{}={OWNER}", label::OWNER);
        let all = records::list(&self.cluster, self.options.driver, namespace, &labels)
            .await
            .map_err(Error::Records)?;
        let mut newest: Vec<Record> = Vec::new();
        for record in all {
            let is_same_release = |last: &Record| {
                let (last, next) = (&last.release, &record.release);
                (&last.namespace, &last.name) == (&next.namespace, &next.name)
            };
            if newest.last().is_some_and(is_same_release) {
                newest.pop();
            }
            newest.push(record);
        }
        Ok(newest)
    }

    /// The record of one revision, if it is there.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub async fn revision(
        &self,
        namespace: &str,
        name: &str,
        revision: i64,
    ) -> Result<Option<Record>, Error> {
        self.records(namespace, name)
            .read(revision)
            .await
            .map_err(Error::Records)
    }
}
