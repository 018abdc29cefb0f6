//! Reads `kubectl get --watch` for one object, because polling keeps a processor busy.

use std::io::BufReader;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Watches one object until this is dropped.
pub struct Watch {
    kubectl: Child,
    states: Receiver<Option<Value>>,
}

/// An event of a watch.
pub enum Said {
    /// The object as it is now; `None` if it was removed. Nothing is reported for one that never existed.
    State(Option<Value>),
    /// No event in this time.
    Nothing,
    /// The watch has ended, as it does if the type does not exist.
    End,
}

impl Watch {
    /// `kubectl` with arguments that select the object.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut kubectl: Command) -> Result<Self> {
        let mut kubectl = kubectl
            .args(["--watch", "--output-watch-events", "--output", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("could not start kubectl")?;
        let printed = kubectl.stdout.take().context("kubectl has no output")?;
        let (send, states) = mpsc::channel();
        std::thread::spawn(move || {
            let events = serde_json::Deserializer::from_reader(BufReader::new(printed)).into_iter::<Value>();
            for mut event in events.map_while(Result::ok) {
                let object = event["object"].take();
                if send.send((event["type"] != "DELETED").then_some(object)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { kubectl, states })
    }

    /// The next event.
    pub fn next(&self, within: Duration) -> Said {
        match self.states.recv_timeout(within) {
            Ok(state) => Said::State(state),
            Err(RecvTimeoutError::Timeout) => Said::Nothing,
            Err(RecvTimeoutError::Disconnected) => Said::End,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}
