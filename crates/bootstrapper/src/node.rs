//! What a node does at its start, and what it does once one of the halves has locked it.

use std::fmt::Display;

use tokio::time::timeout;

use crate::lock::{Cleaner, NodeLock};
use crate::record::{self, Failure, Record, RecordFile};
use crate::stage::{Half, Role, Stage, stages};

/// What a process on this node has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// Run both halves.
    Bootstrap,
    /// Start the kubelet and exit: the node was bootstrapped before it was rebooted.
    Kubelet,
    /// Record the failure, if it is new, and exit.
    Fail(Failure),
}

/// What to do at the start, based on register 15 and the record.
///
/// The record is written before the register. So a node that was killed in between has a record but a zero register, is
/// not locked and starts over; one that was killed later has failed, because it is unknown how far the stage got.
pub fn start(is_bootstrapped: bool, record: Option<&Record>) -> Start {
    match (record, is_bootstrapped) {
        (
            None
            | Some(Record::Locked {
                stage: Stage::Measure,
                ..
            }),
            false,
        ) => Start::Bootstrap,
        (None | Some(Record::Done), true) => Start::Kubelet,
        (Some(Record::Failed(failure)), _) => Start::Fail(failure.clone()),
        (Some(Record::Locked { stage, .. }), true) => Start::Fail(Failure {
            stage: *stage,
            reason: "the bootstrapper ended before the stage was complete".to_owned(),
        }),
        (Some(Record::Locked { stage, .. }), false) => Start::Fail(registers_lost(*stage)),
        (Some(Record::Done), false) => Start::Fail(registers_lost(Stage::Measure)),
    }
}

fn registers_lost(stage: Stage) -> Failure {
    Failure {
        stage,
        reason: "register 15 is zero, although the cluster id was measured: the registers were lost"
            .to_owned(),
    }
}

/// How the attempt of a half to bootstrap ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The other half, or another request, has locked the node. This one stops without having done anything.
    AlreadyLocked,
    /// The node is part of its cluster.
    Done,
    /// The node is locked and has failed. It is never retried.
    Failed(Failure),
}

/// What both halves share.
#[derive(Debug)]
pub struct Node {
    /// Decides between the halves.
    pub lock: NodeLock,
    /// Stops them.
    pub cleaner: Cleaner,
    /// Records how far the node has come.
    pub record: RecordFile,
}

impl Node {
    /// An unlocked node.
    pub fn new(record: RecordFile) -> Self {
        Self {
            lock: NodeLock::default(),
            cleaner: Cleaner::default(),
            record,
        }
    }

    /// Locks the node and goes through the stages of this half. Each is recorded before it begins, and has a time
    /// limit. `measure` is called first, by the winner only; `perform` for every stage after [`Stage::Clean`].
    ///
    /// # Errors
    /// If the record cannot be written. The node is then locked, and nothing after the last recorded stage was begun.
    pub async fn bootstrap<M, P, E>(
        &self,
        half: Half,
        role: Role,
        measure: M,
        mut perform: P,
    ) -> Result<Outcome, record::Error>
    where
        M: FnOnce() -> Result<(), E>,
        P: AsyncFnMut(Stage) -> Result<(), E>,
        E: Display,
    {
        match self.try_lock(half, role, measure) {
            Ok(true) => {}
            Ok(false) => return Ok(Outcome::AlreadyLocked),
            Err(NotMeasured::Record(error)) => {
                self.cleaner.clean();
                return Err(error);
            }
            Err(NotMeasured::Measure(error)) => {
                self.cleaner.clean();
                return self.fail(Stage::Measure, &error);
            }
        }
        // Before anything that could fail, so that the other half ends in any case.
        self.cleaner.clean();
        for &stage in stages(half, role) {
            if matches!(stage, Stage::Measure | Stage::Clean) {
                continue;
            }
            self.record.write(&Record::Locked { half, role, stage })?;
            tracing::info!(%stage, "stage begins");
            match timeout(stage.limit(), perform(stage)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return self.fail(stage, &error),
                Err(_) => {
                    let limit = stage.limit().as_secs();
                    return self.fail(stage, &format_args!("not done after {limit} seconds"));
                }
            }
        }
        self.record.write(&Record::Done)?;
        Ok(Outcome::Done)
    }

    fn try_lock<E>(
        &self,
        half: Half,
        role: Role,
        measure: impl FnOnce() -> Result<(), E>,
    ) -> Result<bool, NotMeasured<E>> {
        self.lock.try_lock_once(|| {
            let stage = Stage::Measure;
            self.record
                .write(&Record::Locked { half, role, stage })
                .map_err(NotMeasured::Record)?;
            measure().map_err(NotMeasured::Measure)
        })
    }

    fn fail(&self, stage: Stage, reason: &dyn Display) -> Result<Outcome, record::Error> {
        let reason = reason.to_string();
        let failure = Failure { stage, reason };
        self.record.write(&Record::Failed(failure.clone()))?;
        Ok(Outcome::Failed(failure))
    }
}

/// Why the node is locked without a measurement.
enum NotMeasured<E> {
    Record(record::Error),
    Measure(E),
}
