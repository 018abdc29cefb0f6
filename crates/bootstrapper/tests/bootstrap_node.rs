//! The lock under load, and nodes that are killed at every stage: each reaches an end, and has exactly one winner.
#![expect(clippy::unwrap_used, reason = "a file or thread that fails is a failed test")]

use std::convert::Infallible;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use attest::{Bytes, CLUSTER_REGISTER, ClusterId, Secret};
use attested_tls::soft_tpm::RegisterFile;
use bootstrapper::lock::NodeLock;
use bootstrapper::node::{Node, Outcome, Start, start};
use bootstrapper::record::{Failure, Record, RecordFile};
use bootstrapper::stage::{Half, Role, Stage, stages};

const THREADS: usize = 64;
const ROUNDS: usize = 10_000;

#[test]
fn of_64_threads_one_locks_the_node_in_each_of_10_000_rounds() {
    let locks: Vec<NodeLock> = (0..ROUNDS).map(|_| NodeLock::default()).collect();
    let measured: Vec<AtomicUsize> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
    let won = AtomicUsize::new(0);
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                barrier.wait();
                for (lock, measured) in locks.iter().zip(&measured) {
                    let measure = || {
                        measured.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, Infallible>(())
                    };
                    let Ok(locked) = lock.try_lock_once(measure);
                    won.fetch_add(usize::from(locked), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(won.into_inner(), ROUNDS);
    assert!(measured.into_iter().all(|measured| measured.into_inner() == 1));
}

fn id() -> ClusterId {
    ClusterId::derive(&Secret::new([1; 32]), Bytes([2; 32]))
}

fn record(folder: &Path) -> RecordFile {
    RecordFile::new(&folder.join("record.json"))
}

fn registers(folder: &Path) -> RegisterFile {
    RegisterFile::open(&folder.join("registers")).unwrap()
}

/// What a process that starts in this folder would do.
fn restarted(folder: &Path) -> Start {
    let is_bootstrapped = registers(folder).registers().is_bootstrapped();
    start(is_bootstrapped, record(folder).read().unwrap().as_ref())
}

/// A process with a real measurement, which calls `perform` for every stage.
async fn bootstrap(
    folder: &Path,
    half: Half,
    role: Role,
    perform: impl AsyncFnMut(Stage) -> Result<(), String>,
) -> Outcome {
    let node = Node::new(record(folder));
    let mut registers = registers(folder);
    let measure = || {
        let extended = registers.extend(CLUSTER_REGISTER, id().measured());
        extended.map_err(|error| error.to_string())
    };
    let outcome = node.bootstrap(half, role, measure, perform).await.unwrap();
    assert!(node.lock.is_locked());
    assert!(node.cleaner.init.is_closed() && node.cleaner.join.is_closed());
    outcome
}

const WAYS: [(Half, Role); 3] = [
    (Half::Init, Role::ControlPlane),
    (Half::Join, Role::ControlPlane),
    (Half::Join, Role::Worker),
];

/// The stages besides measuring and stopping the halves.
fn performed(half: Half, role: Role) -> Vec<Stage> {
    let stages = stages(half, role).iter().copied();
    stages
        .filter(|stage| !matches!(stage, Stage::Measure | Stage::Clean))
        .collect()
}

#[tokio::test]
async fn a_node_goes_through_its_stages_in_order_and_starts_the_kubelet_after_a_reboot() {
    for (half, role) in WAYS {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(restarted(folder.path()), Start::Bootstrap);
        let mut seen = Vec::new();
        let outcome = bootstrap(folder.path(), half, role, async |stage| {
            seen.push(stage);
            Ok(())
        })
        .await;
        assert_eq!(outcome, Outcome::Done);
        assert_eq!(seen, performed(half, role));
        assert_eq!(restarted(folder.path()), Start::Kubelet);
        let registers = registers(folder.path());
        assert_eq!(registers.registers().value(CLUSTER_REGISTER), Ok(id().register()));
    }
}

#[tokio::test]
async fn a_stage_that_fails_is_the_last_one_and_the_failure_survives_a_restart() {
    for (half, role) in WAYS {
        for failing in performed(half, role) {
            let folder = tempfile::tempdir().unwrap();
            let mut seen = Vec::new();
            let outcome = bootstrap(folder.path(), half, role, async |stage| {
                seen.push(stage);
                if stage == failing {
                    Err("port in use".to_owned())
                } else {
                    Ok(())
                }
            })
            .await;
            let failure = Failure {
                stage: failing,
                reason: "port in use".to_owned(),
            };
            assert_eq!(outcome, Outcome::Failed(failure.clone()));
            assert_eq!(seen.last(), Some(&failing));
            assert_eq!(restarted(folder.path()), Start::Fail(failure));
        }
    }
}

/// The future is dropped in the middle of a stage: the disk then contains what a killed process would leave.
#[tokio::test]
async fn a_node_that_is_killed_in_any_stage_has_failed_in_it() {
    for (half, role) in WAYS {
        for killed in performed(half, role) {
            let folder = tempfile::tempdir().unwrap();
            let (reached, waiting) = tokio::sync::oneshot::channel();
            let mut reached = Some(reached);
            let running = bootstrap(folder.path(), half, role, async |stage| {
                if stage == killed {
                    reached.take().unwrap().send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                Ok(())
            });
            tokio::select! {
                outcome = running => panic!("{outcome:?} although killed"),
                reached = waiting => reached.unwrap(),
            }
            let Start::Fail(failure) = restarted(folder.path()) else {
                panic!("{half:?} {role:?} killed {killed} did not fail");
            };
            assert_eq!(failure.stage, killed);
            record(folder.path())
                .write(&Record::Failed(failure.clone()))
                .unwrap();
            assert_eq!(restarted(folder.path()), Start::Fail(failure));
        }
    }
}

#[test]
fn a_node_that_is_killed_around_the_measurement_is_locked_exactly_when_it_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let (half, role, stage) = (Half::Join, Role::Worker, Stage::Measure);
    record(folder.path())
        .write(&Record::Locked { half, role, stage })
        .unwrap();
    assert_eq!(restarted(folder.path()), Start::Bootstrap);
    registers(folder.path())
        .extend(CLUSTER_REGISTER, id().measured())
        .unwrap();
    let started = restarted(folder.path());
    assert!(
        matches!(
            started,
            Start::Fail(Failure {
                stage: Stage::Measure,
                ..
            })
        ),
        "{started:?}"
    );
}

#[tokio::test]
async fn a_node_whose_registers_were_lost_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let ok = async |_| Ok(());
    bootstrap(folder.path(), Half::Init, Role::ControlPlane, ok).await;
    std::fs::remove_file(folder.path().join("registers")).unwrap();
    let Start::Fail(failure) = restarted(folder.path()) else {
        panic!("it would be bootstrapped again");
    };
    assert!(failure.reason.contains("registers were lost"), "{failure}");
}

/// For halves that must not begin a stage.
async fn never(stage: Stage) -> Result<(), String> {
    Err(format!("{stage} begun"))
}

#[tokio::test]
async fn a_measurement_that_fails_is_final() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::new(record(folder.path()));
    let measure = || Err("no register".to_owned());
    let outcome = node
        .bootstrap(Half::Init, Role::ControlPlane, measure, never)
        .await
        .unwrap();
    let failure = Failure {
        stage: Stage::Measure,
        reason: "no register".to_owned(),
    };
    assert_eq!(outcome, Outcome::Failed(failure.clone()));
    assert!(node.cleaner.init.is_closed() && node.cleaner.join.is_closed());
    let again = node
        .bootstrap(Half::Join, Role::Worker, || Ok(()), never)
        .await
        .unwrap();
    assert_eq!(again, Outcome::AlreadyLocked);
    assert_eq!(restarted(folder.path()), Start::Fail(failure));
}

#[tokio::test]
async fn a_record_that_cannot_be_written_keeps_the_node_locked_and_unmeasured() {
    let folder = tempfile::tempdir().unwrap();
    let node = Node::new(record(&folder.path().join("missing")));
    let mut measured = false;
    let measure = || {
        measured = true;
        Ok(())
    };
    let error = node
        .bootstrap(Half::Init, Role::ControlPlane, measure, never)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("could not write"), "{error}");
    assert!(!measured && node.lock.is_locked() && node.cleaner.join.is_closed());
}

/// Whichever half is first, the other one is refused while the first is still working, and changes nothing.
#[tokio::test]
async fn the_half_that_is_second_stops_in_both_orders() {
    for (first, second) in [(Half::Init, Half::Join), (Half::Join, Half::Init)] {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(record(folder.path()));
        let role = Role::ControlPlane;
        let work = async |stage| {
            let before = node.record.read().unwrap();
            let measure = || Err("measured".to_owned());
            let other = node.bootstrap(second, role, measure, never).await;
            assert_eq!(other.unwrap(), Outcome::AlreadyLocked, "{stage}");
            assert_eq!(node.record.read().unwrap(), before);
            Ok::<_, String>(())
        };
        let outcome = node.bootstrap(first, role, || Ok(()), work).await;
        assert_eq!(outcome.unwrap(), Outcome::Done);
    }
}

/// The paused clock advances once everything waits, so the test does not take minutes.
#[tokio::test(start_paused = true)]
async fn a_stage_that_hangs_fails_after_its_limit() {
    for (half, role) in WAYS {
        for stuck in performed(half, role) {
            let folder = tempfile::tempdir().unwrap();
            let outcome = bootstrap(folder.path(), half, role, async |stage| {
                if stage == stuck {
                    std::future::pending::<()>().await;
                }
                Ok(())
            })
            .await;
            let Outcome::Failed(failure) = outcome else {
                panic!("{outcome:?}");
            };
            assert_eq!(failure.stage, stuck);
            assert!(failure.reason.starts_with("not done after"), "{failure}");
        }
    }
}

#[test]
fn a_record_that_is_damaged_is_not_taken_for_none() {
    let folder = tempfile::tempdir().unwrap();
    let record = record(folder.path());
    assert_eq!(record.read().unwrap(), None);
    for damaged in [
        "",
        "{",
        r#"{"state":"Done"}"#,
        r#"{"state":"failed","stage":"disk"}"#,
    ] {
        std::fs::write(folder.path().join("record.json"), damaged).unwrap();
        assert!(record.read().is_err(), "{damaged}");
    }
    record.write(&Record::Done).unwrap();
    assert_eq!(record.read().unwrap(), Some(Record::Done));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
