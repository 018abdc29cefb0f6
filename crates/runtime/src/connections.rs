//! A listener that limits how many connections are open at once, in total and per caller.
//!
//! If configured so, a new connection replaces one without a request once all are taken.
//!
//! A connection costs memory before anything is requested, and opening one needs no authentication. Each caller's share
//! is small, so that one who opens all he can leaves room for the others.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use crate::Metrics;
use crate::metrics::Refused;

/// How many bytes a connection may send before they are read; also the longest header.
///
/// This is memory that each open connection can take while a body waits for room.
pub const MAX_UNREAD: usize = 64 << 10;

/// How many connections may be open at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Of all callers together.
    pub most: usize,
    /// Of one IP address.
    pub most_of_one: usize,
    /// When all are taken: true closes the connection that has been idle for longest, false refuses the new one.
    pub replaces_idle: bool,
}

impl Default for Connections {
    /// 1024, and 128 per address. An API server has one for each review in flight, and a controller has one to
    /// chart-inspector for each pass that calls it, waiting ones included: about ninety with ten workers.
    fn default() -> Self {
        Self {
            most: 1024,
            most_of_one: 128,
            replaces_idle: false,
        }
    }
}

impl Connections {
    /// 128, and 32 per address: for probes and metrics only. A few addresses that open all they can do not lock out the
    /// kubelet, which would restart the pod.
    pub fn few() -> Self {
        Self {
            most: 128,
            most_of_one: 32,
            replaces_idle: true,
        }
    }

    /// The most memory, in bytes, that data sent on all connections and not read yet can take.
    pub fn most_memory(self) -> usize {
        self.most * MAX_UNREAD
    }
}

/// Accepts connections up to the limit; further ones are closed at once, and counted.
pub struct Bounded<L> {
    listener: L,
    metrics: Metrics,
    open: Arc<Open>,
}

impl<L> Bounded<L> {
    /// Limits the connections of a listener.
    pub fn new(listener: L, connections: Connections, metrics: Metrics) -> Self {
        Self {
            listener,
            metrics,
            open: Arc::new(Open {
                connections,
                by_caller: Mutex::default(),
            }),
        }
    }
}

impl<L: Listener<Addr = SocketAddr>> Listener for Bounded<L> {
    type Io = Counted<L::Io>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (io, caller) = self.listener.accept().await;
            match Open::enter(&self.open, caller.ip()) {
                Ok(slot) => {
                    let slot = Arc::new(slot);
                    return (Counted { io, slot }, caller);
                }
                Err(reason) => {
                    tracing::debug!(%caller, reason = reason.as_str(), "refused a connection: too many are open");
                    self.metrics.refused(reason);
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// The open connections, by caller.
struct Open {
    connections: Connections,
    by_caller: Mutex<ByCaller>,
}

#[derive(Default)]
struct ByCaller {
    all: usize,
    each: HashMap<IpAddr, usize>,
    /// Connections without a request that may be closed for another, by number, the longest idle first.
    idle: VecDeque<(u64, CancellationToken)>,
    /// How many connections there have been; numbers them.
    numbers: u64,
}

impl Open {
    fn enter(this: &Arc<Self>, caller: IpAddr) -> Result<Slot, Refused> {
        let mut open = this.lock();
        let own = open.each.get(&caller).copied().unwrap_or_default();
        if own >= this.connections.most_of_one {
            return Err(Refused::Address);
        }
        if open.all >= this.connections.most {
            // It is counted until it is closed in a moment.
            let (_, idle) = open.idle.pop_front().ok_or(Refused::Process)?;
            idle.cancel();
        }
        open.all += 1;
        open.each.insert(caller, own + 1);
        open.numbers += 1;
        let slot = Slot {
            open: this.clone(),
            caller,
            number: open.numbers,
            evicted: CancellationToken::new(),
        };
        drop(open);
        slot.set_idle(true);
        Ok(slot)
    }

    fn lock(&self) -> MutexGuard<'_, ByCaller> {
        self.by_caller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot of an open connection; it is counted until this is dropped.
pub(crate) struct Slot {
    open: Arc<Open>,
    caller: IpAddr,
    number: u64,
    evicted: CancellationToken,
}

impl Slot {
    /// Says whether a request is in flight: only a connection without one is closed for another.
    pub(crate) fn set_idle(&self, is_idle: bool) {
        if !self.open.connections.replaces_idle {
            return;
        }
        let mut open = self.open.lock();
        if self.evicted.is_cancelled() {
            return;
        }
        let at = open.idle.iter().position(|(number, _)| *number == self.number);
        match at {
            None if is_idle => open.idle.push_back((self.number, self.evicted.clone())),
            Some(at) if !is_idle => drop(open.idle.remove(at)),
            _ => {}
        }
    }

    /// Waits until the connection is to be closed for another.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.set_idle(false);
        let mut open = self.open.lock();
        open.all -= 1;
        if let Some(own) = open.each.get_mut(&self.caller) {
            *own -= 1;
            if *own == 0 {
                open.each.remove(&self.caller);
            }
        }
    }
}

/// A connection that is counted until it is dropped.
pub struct Counted<I> {
    io: I,
    slot: Arc<Slot>,
}

impl<I> Counted<I> {
    /// Its slot among the open connections.
    pub(crate) fn slot(&self) -> Arc<Slot> {
        self.slot.clone()
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Counted<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Counted<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    fn open(most: usize, most_of_one: usize) -> Arc<Open> {
        Arc::new(Open {
            connections: Connections {
                most,
                most_of_one,
                replaces_idle: false,
            },
            by_caller: Mutex::default(),
        })
    }

    fn caller(last: u8) -> IpAddr {
        Ipv4Addr::new(198, 18, 0, last).into()
    }

    #[test]
    fn one_caller_leaves_room_for_others_and_all_have_a_bound() {
        let open = open(5, 2);
        let mut held: Vec<_> = [1, 1]
            .map(|last| Open::enter(&open, caller(last)).unwrap())
            .into();
        assert_eq!(Open::enter(&open, caller(1)).err(), Some(Refused::Address));
        held.extend([2, 2, 3].map(|last| Open::enter(&open, caller(last)).unwrap()));
        assert_eq!(Open::enter(&open, caller(4)).err(), Some(Refused::Process));
        held.pop();
        drop(Open::enter(&open, caller(4)).unwrap());
        held.clear();
        assert!(open.lock().each.is_empty() && open.lock().all == 0);
    }

    #[tokio::test]
    async fn connections_above_the_limit_are_closed_and_the_next_is_served_once_there_is_room() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let bound = Connections {
            most: 9,
            most_of_one: 1,
            replaces_idle: false,
        };
        let metrics = Metrics::new().unwrap();
        let mut listener = Bounded::new(listener, bound, metrics.clone());
        let _first = TcpStream::connect(address).await.unwrap();
        let (served, _) = listener.accept().await;
        let mut second = TcpStream::connect(address).await.unwrap();
        let accepting = tokio::spawn(async move { listener.accept().await });
        assert_eq!(second.read(&mut [0]).await.unwrap_or(0), 0, "it is closed");
        let text = metrics.text().unwrap();
        assert!(
            text.contains(r#"connections_refused_total{reason="address"} 1"#),
            "{text}"
        );
        drop(served);
        let mut third = TcpStream::connect(address).await.unwrap();
        let (mut served, _) = accepting.await.unwrap();
        third.write_all(b"x").await.unwrap();
        assert_eq!(served.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn the_longest_idle_connection_is_replaced_and_a_busy_one_is_not() {
        let open = Arc::new(Open {
            connections: Connections {
                most: 3,
                most_of_one: 2,
                replaces_idle: true,
            },
            by_caller: Mutex::default(),
        });
        let [busy, asked, silent] = [1, 1, 2].map(|last| Open::enter(&open, caller(last)).unwrap());
        busy.set_idle(false);
        asked.set_idle(false);
        asked.set_idle(true);
        assert_eq!(Open::enter(&open, caller(1)).err(), Some(Refused::Address));
        let fourth = Open::enter(&open, caller(3)).unwrap();
        silent.evicted().await;
        drop(silent);
        let fifth = Open::enter(&open, caller(3)).unwrap();
        asked.evicted().await;
        drop(asked);
        fourth.set_idle(false);
        fifth.set_idle(false);
        assert_eq!(Open::enter(&open, caller(4)).err(), Some(Refused::Process));
        assert!(!busy.evicted.is_cancelled());
        drop((busy, fourth, fifth));
        assert!(open.lock().each.is_empty() && open.lock().all == 0 && open.lock().idle.is_empty());
    }
}
