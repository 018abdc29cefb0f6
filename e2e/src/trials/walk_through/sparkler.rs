//! The composition of the walk-throughs: `sparkler`, of fireworks-app.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{FIREWORKS, Walk};
use crate::namespace::condition;

/// Its type and its name.
const SPARKLER: [&str; 2] = ["fireworksapps", "sparkler"];

impl Walk {
    /// The live object.
    pub(super) fn sparkler(&self) -> Result<Value> {
        let [type_, name] = SPARKLER;
        let found = self.namespace(FIREWORKS).get(type_, name)?;
        found.context("sparkler is not there")
    }

    /// Waits until `is_so` accepts it.
    pub(super) fn await_sparkler(&self, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let [type_, name] = SPARKLER;
        self.namespace(FIREWORKS).wait(type_, name, is_so)
    }

    /// Runs kubectl on it.
    pub(super) fn change_sparkler(&self, verb: &str, how: &[&str]) -> Result<()> {
        let words = [&[verb], &SPARKLER[..], how].concat();
        self.namespace(FIREWORKS).kubectl(&words).map(drop)
    }

    /// The name of its release.
    pub(super) fn release(&self) -> Result<String> {
        let sparkler = self.sparkler()?;
        let release = sparkler["status"]["releaseName"].as_str();
        release.map(str::to_owned).context("it says no release")
    }
}

/// True if the condition is True.
pub(super) fn holds(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition["status"] == "True")
}
