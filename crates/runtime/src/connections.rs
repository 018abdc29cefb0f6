//! A listener with a bound on the connections that are open at once, of all callers and of each.
//!
//! A connection costs memory before anything was asked, and nobody has to say who he is to open one. Each caller's share is
//! small, so that whoever opens all he can leaves room for the others.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::Metrics;
use crate::metrics::Refused;
use crate::server::MAX_UNREAD;

/// How many connections may be open at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// Of all callers together.
    pub most: usize,
    /// Of one IP address.
    pub most_of_one: usize,
}

impl Default for Connections {
    /// 1024, and 128 of one address. An API server has one for each review under way, and a controller one to
    /// chart-inspector for each pass that asks it, those that wait included: some ninety with ten workers.
    fn default() -> Self {
        Self {
            most: 1024,
            most_of_one: 128,
        }
    }
}

impl Connections {
    /// 128, and 32 of one address: for probes and figures alone.
    pub fn few() -> Self {
        Self {
            most: 128,
            most_of_one: 32,
        }
    }

    /// The most memory, in bytes, of what was sent on all of them and is not read yet.
    pub fn most_memory(self) -> usize {
        self.most * MAX_UNREAD
    }
}

/// Accepts what the bound allows; what is above it is closed at once, and counted.
pub struct Bounded<L> {
    listener: L,
    metrics: Metrics,
    open: Arc<Open>,
}

impl<L> Bounded<L> {
    /// Bounds the connections of a listener.
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
                Ok(place) => return (Counted { io, _place: place }, caller),
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
}

impl Open {
    fn enter(this: &Arc<Self>, caller: IpAddr) -> Result<Place, Refused> {
        let mut open = this.lock();
        let own = open.each.get(&caller).copied().unwrap_or_default();
        if own >= this.connections.most_of_one {
            return Err(Refused::Address);
        }
        if open.all >= this.connections.most {
            return Err(Refused::Process);
        }
        open.all += 1;
        open.each.insert(caller, own + 1);
        Ok(Place {
            open: this.clone(),
            caller,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ByCaller> {
        self.by_caller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Is counted until it is dropped.
struct Place {
    open: Arc<Open>,
    caller: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
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

/// A connection that is counted for as long as it is there.
pub struct Counted<I> {
    io: I,
    _place: Place,
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
            connections: Connections { most, most_of_one },
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
    async fn what_is_above_the_bound_is_closed_and_the_next_is_served_once_there_is_room() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let bound = Connections {
            most: 9,
            most_of_one: 1,
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
}
