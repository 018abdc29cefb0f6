//! What the containers of a pod printed.

use crate::request::Call;
use crate::{Attempt, Cluster, Error, ObjectId};

/// How much of a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// At most so many of its last lines.
    pub lines: u32,
    /// At most so many bytes of them.
    pub bytes: u32,
}

impl Cluster {
    /// The end of what a container of a pod printed; of its only container when none is named.
    ///
    /// # Errors
    ///
    /// [`Error::Request`], also while the container has not started.
    pub async fn logs(&self, pod: &ObjectId, container: Option<&str>, tail: Tail) -> Result<String, Error> {
        let mut call = Call::get(format!("{}/log", pod.path()))
            .query("tailLines", &tail.lines.to_string())
            .query("limitBytes", &tail.bytes.to_string());
        if let Some(container) = container {
            call = call.query("container", container);
        }
        let answer = self.transport.send_for_text(call).await;
        answer.map_err(|source| Error::Request {
            attempt: Attempt::ReadLogs,
            object: Box::new(pod.clone()),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;
    use crate::scripted::Script;

    #[tokio::test]
    async fn a_log_is_text_and_its_end_is_asked_for() {
        let url = "/api/v1/namespaces/shop/pods/migrate-x/log?tailLines=5&limitBytes=1000&container=main";
        // The script answers in JSON; as text it is what was printed.
        let script = Script::new("printed").get(url, json!("no such table"));
        let pod = ObjectId::of::<Pod>(Some("shop"), "migrate-x").unwrap();
        let tail = Tail {
            lines: 5,
            bytes: 1000,
        };
        let text = script.cluster().logs(&pod, Some("main"), tail).await.unwrap();
        assert_eq!(text, "\"no such table\"");
        script.finish();
    }
}
