//! Reads `kubectl get --watch` for one object, because polling keeps a processor busy.

use std::io::BufReader;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// One object, for as long as this is not dropped.
pub struct Watch {
    kubectl: Child,
    states: Receiver<Option<Value>>,
}

/// What a watch said.
pub enum Said {
    /// The object as it is now; `None` when it was removed. One that was never there is not told.
    State(Option<Value>),
    /// Nothing in this time.
    Nothing,
    /// That it has ended, as it does when the type is not there.
    End,
}

impl Watch {
    /// `kubectl` is to be told what to get of which object.
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

    /// What it says next.
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
        // It may have ended by itself.
        let _ = self.kubectl.kill();
        let _ = self.kubectl.wait();
    }
}
