//! Objects of a composition's release changed by others: how soon they are corrected.
//!
//! Times come from the audit log: from the answer to the edit until the answer to the last write that corrects the
//! object. So they do not include the start of a client or the time until somebody looks at the object.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use local_cluster::audit::{Audit, AuditRecord, Stage};
use serde_json::{Value, json};

use super::{Rig, await_released, compose, until};
use crate::trials::releases::drift::{CASES, Case, RELEASE};
use crate::trials::releases::{CONSENT, TrialChart, bare, difference};
use crate::{Namespace, progress};

/// How long corrections took.
#[derive(Debug, Default)]
pub struct Times {
    /// What was done, and how long until it was corrected.
    pub took: Vec<(String, Duration)>,
    /// Edits that were not corrected.
    pub faults: Vec<String>,
}

impl Times {
    /// The percentile of the durations.
    pub fn percentile(&self, percent: usize) -> Duration {
        let mut all: Vec<Duration> = self.took.iter().map(|(_, took)| *took).collect();
        all.sort_unstable();
        let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
        all.get(place).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut longest: BTreeMap<&str, Duration> = BTreeMap::new();
        for (what, took) in &self.took {
            let longest = longest.entry(what).or_default();
            *longest = (*longest).max(*took);
        }
        writeln!(f, "| done behind our back | longest until put back |\n|---|---|")?;
        for (what, took) in longest {
            writeln!(f, "| {what} | {} ms |", took.as_millis())?;
        }
        for fault in &self.faults {
            writeln!(f, "fault: {fault}")?;
        }
        write!(
            f,
            "{} edits, p50 {} ms, p99 {} ms, longest {} ms, {} not put back",
            self.took.len() + self.faults.len(),
            self.percentile(50).as_millis(),
            self.percentile(99).as_millis(),
            self.percentile(100).as_millis(),
            self.faults.len()
        )
    }
}

/// Makes this many edits, of each kind in turn, each after the previous one was corrected.
///
/// Secrets are left out: they are not watched, so that a controller needs no right to read those of others, and are
/// corrected at the next full comparison.
///
/// # Errors
/// When the composition is not released or an edit cannot be made.
pub fn run(rig: &Rig, edits: usize) -> Result<Times> {
    let namespace = rig.platform.namespace("composition-drift")?;
    let chart = TrialChart::named("drifting")?;
    let url = rig.push(std::path::Path::new(&chart.path()), "drifting")?;
    let type_ = rig.define(&namespace, "drifting", &url, &BTreeMap::from(CONSENT), &[])?;
    compose(
        &namespace,
        &[type_.composition(namespace.namespace(), RELEASE, &json!({}))],
    )?;
    await_released(&namespace, &type_, 1)?;
    let watcher = Watcher {
        audit: rig.platform.plane().audit(),
        controller: type_.user(),
        namespace: &namespace,
    };
    let cases: Vec<&Case> = CASES.iter().filter(|case| case.object != "Secret").collect();
    let mut times = Times::default();
    for case in cases.iter().cycle().take(edits) {
        let resource = case.object.to_lowercase();
        match watcher.put_back(&resource, RELEASE, case.by) {
            Ok(took) => times.took.push((case.what.to_owned(), took)),
            Err(fault) => {
                let fault = format!("{}: {fault:#}", case.what);
                progress(&fault);
                times.faults.push(fault);
            }
        }
    }
    Ok(times)
}

/// Finds edits and their corrections in the audit log.
pub struct Watcher<'w> {
    /// The audit log.
    pub audit: Audit,
    /// The user that corrects.
    pub controller: String,
    /// The namespace of the objects.
    pub namespace: &'w Namespace,
}

impl Watcher<'_> {
    /// Edits an object with kubectl and waits until it is as it was before; returns how long that took.
    ///
    /// # Errors
    /// When the edit is refused, or the object is not put back in minutes.
    pub fn put_back(&self, resource: &str, name: &str, edit: &[&str]) -> Result<Duration> {
        let before = self.object(resource, name)?.context("the object is not there")?;
        let mark = self.audit.mark()?;
        self.namespace.kubectl(edit)?;
        let of_object = |record: &AuditRecord| {
            record.namespace == self.namespace.namespace()
                && record.name == name
                && record
                    .resource
                    .strip_suffix('s')
                    .is_some_and(|kind| resource.starts_with(kind))
        };
        until(&format!("{resource} {name} to be put back"), || {
            let (mut edited, mut put_back) = (None, None);
            for record in self.audit.since(mark)? {
                let record = record?;
                let is_done =
                    record.stage == Stage::ResponseComplete && record.code < 300 && record.is_write();
                if !is_done || !of_object(&record) {
                    continue;
                }
                if record.user == self.controller {
                    put_back = Some(record.timestamp);
                } else if record.user_agent.starts_with("kubectl") {
                    edited = Some(record.timestamp);
                }
            }
            let (Some(edited), Some(put_back)) = (edited, put_back) else {
                return Ok(None);
            };
            let is_as_before = self
                .object(resource, name)?
                .is_some_and(|now| difference(std::slice::from_ref(&before), &[now]).is_none());
            let (edited, put_back): (Timestamp, Timestamp) = (edited.parse()?, put_back.parse()?);
            // The controller may have reacted to the previous edit.
            let took = Duration::try_from(put_back.duration_since(edited)).ok();
            Ok(took.filter(|_| is_as_before))
        })
    }

    fn object(&self, resource: &str, name: &str) -> Result<Option<Value>> {
        let object = self.namespace.get(resource, name)?;
        object
            .map(|object| bare(&object, self.namespace.namespace()))
            .transpose()
    }
}
