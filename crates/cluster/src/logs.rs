//! Reads the logs of a pod's containers.

use crate::request::Call;
use crate::{Attempt, Cluster, Error, ObjectId};

/// How much of a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The maximum number of lines, counted from the end.
    pub lines: u32,
    /// The maximum number of bytes.
    pub bytes: u32,
}

impl Cluster {
    /// The end of the log of a pod's container; of its only container when none is named.
    ///
    /// # Errors
    ///
    /// [`Error::Request`], also before the container has started.
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
        // The script answers in JSON; read as text, this is the log.
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
