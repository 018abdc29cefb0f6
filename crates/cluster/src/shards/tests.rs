//! Replicas with a server that stores Leases, with the optimistic locking of a real one.

use futures::FutureExt as _;
use http::Method;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::scripted::Script;

/// Long enough that the load of the machine decides nothing.
const TIMES: ShardTimes = ShardTimes {
    lease: Duration::from_secs(3),
    renew_deadline: Duration::from_secs(2),
    renew: Duration::from_millis(100),
    retry: Duration::from_millis(20),
    look: Duration::from_millis(500),
};

/// The time limit for everything that has no deadline of its own.
const PATIENCE: Duration = Duration::from_secs(20);

fn sharding(count: u16) -> Sharding {
    Sharding {
        namespace: "defs".to_owned(),
        name: "webs-v1".to_owned(),
        count,
        label: ("of".to_owned(), "webs-v1".to_owned()),
        owner: None,
        count_annotation: "shards".to_owned(),
        asks_annotation: "asks".to_owned(),
        manager: "me".to_owned(),
        times: TIMES,
    }
}

/// The Leases, and whether the server answers.
#[derive(Clone)]
struct Server {
    leases: Arc<Mutex<BTreeMap<String, Value>>>,
    answers: Arc<AtomicBool>,
    writes: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new() -> Self {
        Self {
            leases: Arc::default(),
            answers: Arc::new(AtomicBool::new(true)),
            writes: Arc::default(),
        }
    }

    /// The connection of one replica.
    fn cluster(&self) -> Cluster {
        let this = self.clone();
        let script = Script::new("leases");
        script
            .from_then_on(move |method, url, sent| this.answer(method, url, sent))
            .cluster()
    }

    fn answer(&self, method: &Method, url: &str, sent: &Value) -> (u16, Value) {
        let refused = |code: u16, reason: &str| {
            let status = json!({"kind": "Status", "code": code, "reason": reason, "message": reason});
            (code, status)
        };
        if !self.answers.load(Ordering::Relaxed) {
            return refused(503, "ServiceUnavailable");
        }
        let mut leases = self.leases.lock().unwrap();
        let path = url.split('?').next().unwrap();
        let name = path.rsplit('/').next().unwrap().to_owned();
        if *method == Method::GET && name == "leases" {
            let items: Vec<Value> = leases.values().cloned().collect();
            return (200, json!({"metadata": {}, "items": items}));
        }
        let known = leases.get(&name).cloned();
        if *method == Method::GET {
            return known.map_or_else(|| refused(404, "NotFound"), |lease| (200, lease));
        }
        self.writes.lock().unwrap().push(format!("{method} {name}"));
        let version = |lease: &Value| {
            lease["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or("0")
                .to_owned()
        };
        let mut lease = match (method, known) {
            (&Method::PATCH, Some(known)) => return (200, known),
            (&Method::PATCH, None) => sent.clone(),
            (_, None) => return refused(404, "NotFound"),
            (_, Some(known)) if version(&known) != version(sent) => return refused(409, "Conflict"),
            (_, Some(_)) => sent.clone(),
        };
        let next = version(&lease).parse::<u64>().unwrap() + 7;
        lease["metadata"]["resourceVersion"] = next.to_string().into();
        leases.insert(name, lease.clone());
        (200, lease)
    }

    async fn join(&self, identity: &str, count: u16) -> Shards {
        let joined = Shards::join(self.cluster(), sharding(count), identity, || {}).await;
        joined.unwrap().0
    }

    fn holders(&self) -> Vec<String> {
        let leases = self.leases.lock().unwrap();
        let holder = |lease: &Value| lease["spec"]["holderIdentity"].as_str().unwrap().to_owned();
        leases.values().map(holder).collect()
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not so after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn held(shards: &Shards) -> usize {
    shards.door().count().0
}

/// A UID in this shard.
fn uid_in(shard: u16, count: usize) -> String {
    let mut uids = (0..).map(|number: u32| number.to_string());
    uids.find(|uid| shard_of(uid, count) == shard).unwrap()
}

#[tokio::test]
async fn one_replica_holds_all_and_renews_one_lease() {
    let server = Server::new();
    let (a, mut news) = Shards::join(server.cluster(), sharding(4), "a", || {})
        .await
        .unwrap();
    assert_eq!(server.holders(), ["a"; 4]);
    for _ in 0..4 {
        assert!(matches!(news.recv().await, Some(ShardNews::Gained(_))));
    }
    server.writes.lock().unwrap().clear();
    until("some renewals", || server.writes.lock().unwrap().len() > 5).await;
    let anchor = format!("PUT {}", a.anchor());
    assert!(server.writes.lock().unwrap().iter().all(|write| *write == anchor));
}

#[tokio::test]
async fn replicas_share_evenly_and_one_that_leaves_is_replaced_at_once() {
    let server = Server::new();
    let a = server.join("a", 8).await;
    let b = server.join("b", 8).await;
    until("an even share of two", || (held(&a), held(&b)) == (4, 4)).await;
    let c = server.join("c", 8).await;
    until("an even share of three", || {
        let mut shares = [held(&a), held(&b), held(&c)];
        shares.sort_unstable();
        shares == [2, 3, 3]
    })
    .await;
    for shard in 0..8 {
        let uid = uid_in(shard, 8);
        let let_in = [&a, &b, &c]
            .iter()
            .filter(|shards| shards.door().enter(&uid).is_some())
            .count();
        assert_eq!(let_in, 1, "shard {shard}");
    }
    let (begun, left) = (Instant::now(), held(&a) + held(&b));
    c.release().await;
    until("what was left to be taken", || held(&a) + held(&b) == 8).await;
    assert!(
        left < 8 && begun.elapsed() < TIMES.lease,
        "nobody waited for a Lease to run out"
    );
    assert!(a.fence().holds() && !a.lost().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_busy_replica_does_not_take_back_what_it_gave() {
    let server = Server::new();
    let (a, mut news) = Shards::join(server.cluster(), sharding(8), "a", || {})
        .await
        .unwrap();
    // Each end of work in a shard that is being left lets the replica look at the shards again.
    let busy = tokio::spawn({
        let door = a.door();
        async move {
            for number in 0_u32.. {
                let entered = door.enter(&number.to_string());
                tokio::time::sleep(Duration::from_millis(1)).await;
                drop(entered);
            }
        }
    });
    let b = server.join("b", 8).await;
    until("an even share", || (held(&a), held(&b)) == (4, 4)).await;
    busy.abort();
    let mut gained = 0;
    while let Ok(news) = news.try_recv() {
        gained += usize::from(matches!(news, ShardNews::Gained(_)));
    }
    assert_eq!(gained, 8, "only at the start");
}

#[tokio::test]
async fn work_under_way_keeps_its_shard_until_it_ends() {
    let server = Server::new();
    let a = server.join("a", 2).await;
    // The shard that is given away: the anchor never is.
    let given = (0..2)
        .find(|shard| !a.anchor().ends_with(&shard.to_string()))
        .unwrap();
    let uid = uid_in(given, 2);
    let entered = a.door().enter(&uid).unwrap();
    assert_eq!(entered.is_to_leave().now_or_never(), None);
    let joining = tokio::spawn({
        let server = server.clone();
        async move { server.join("b", 2).await }
    });
    until("the shard to be left", || held(&a) == 1).await;
    assert!(a.door().enter(&uid).is_none(), "nothing new begins");
    entered.is_to_leave().await;
    tokio::time::sleep(TIMES.renew * 3).await;
    assert!(!joining.is_finished() && server.holders() == ["a", "a"]);
    drop(entered);
    let b = joining.await.unwrap();
    assert!(b.door().enter(&uid).is_some());
}

#[tokio::test]
async fn a_dead_replica_is_replaced_once_its_time_is_over() {
    let server = Server::new();
    let a = server.join("a", 4).await;
    drop(a);
    let begun = Instant::now();
    let b = server.join("b", 4).await;
    assert!(begun.elapsed() >= TIMES.lease);
    until("all to be taken", || held(&b) == 4).await;
    assert_eq!(server.holders(), ["b"; 4]);
}

#[tokio::test]
async fn who_cannot_renew_stops_before_another_begins() {
    let server = Server::new();
    let a = server.join("a", 2).await;
    let begun = Instant::now();
    server.answers.store(false, Ordering::Relaxed);
    tokio::time::timeout(PATIENCE, a.lost().cancelled())
        .await
        .unwrap();
    assert!(begun.elapsed() < TIMES.lease);
    assert!(!a.fence().holds() && a.door().enter("x").is_none() && held(&a) == 0);
}

#[tokio::test]
async fn who_finds_its_lease_with_another_has_lost_all() {
    let server = Server::new();
    let a = server.join("a", 2).await;
    for lease in server.leases.lock().unwrap().values_mut() {
        lease["spec"]["holderIdentity"] = "b".into();
        lease["metadata"]["resourceVersion"] = "99".into();
    }
    tokio::time::timeout(PATIENCE, a.lost().cancelled())
        .await
        .unwrap();
    a.release().await;
    assert_eq!(server.holders(), ["b", "b"], "what is lost is not freed");
}

#[tokio::test]
async fn who_counts_otherwise_waits_until_the_others_are_gone() {
    let server = Server::new();
    let a = server.join("a", 2).await;
    let joining = tokio::spawn({
        let server = server.clone();
        async move { server.join("b", 4).await }
    });
    tokio::time::sleep(TIMES.look * 2).await;
    assert!(!joining.is_finished() && held(&a) == 2);
    a.release().await;
    let b = joining.await.unwrap();
    until("all to be taken", || held(&b) == 4).await;
}

#[test]
fn the_shard_of_an_object_is_written_down_and_shards_are_even() {
    let uid = |number: usize| format!("8f4f3c1e-4e0e-4d6b-9c70-{number:012x}");
    let written: Vec<u16> = (0..8).map(|number| shard_of(&uid(number), 8)).collect();
    assert_eq!(written, [2, 1, 4, 3, 6, 5, 0, 7]);
    let mut counts = [0_usize; 8];
    for number in 0..8000 {
        counts[usize::from(shard_of(&uid(number), 8))] += 1;
    }
    assert!(
        counts.iter().all(|count| (800..1200).contains(count)),
        "{counts:?}"
    );
}
