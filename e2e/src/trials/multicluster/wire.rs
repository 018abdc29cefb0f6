//! A connection to an API server that can be cut: then packets of new connections are lost, and nothing gets through
//! existing ones.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// How many connections may wait to be accepted before the kernel drops more.
const BACKLOG: u32 = 1;

/// The connection; it ends with this value.
pub(super) struct Wire {
    address: SocketAddr,
    cut: watch::Sender<bool>,
    runtime: Runtime,
    /// These fill the queue of connections that wait to be accepted.
    waiting: Vec<TcpStream>,
}

impl Wire {
    /// A connection to this address.
    pub(super) fn to(target: SocketAddr) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("could not start the thread of a wire")?;
        let listener = {
            let _inside = runtime.enter();
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            socket.listen(BACKLOG)?
        };
        let address = listener.local_addr()?;
        let (cut, is_cut) = watch::channel(false);
        runtime.spawn(accept(listener, target, is_cut));
        Ok(Self {
            address,
            cut,
            runtime,
            waiting: Vec::new(),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts it.
    pub(super) fn cut(&mut self) {
        self.cut.send_replace(true);
        let address = self.address;
        // The queue takes one more, then packets are dropped.
        for _ in 0..=BACKLOG + 1 {
            let connecting = async {
                let within = std::time::Duration::from_millis(300);
                tokio::time::timeout(within, TcpStream::connect(address)).await
            };
            if let Ok(Ok(stream)) = self.runtime.block_on(connecting) {
                self.waiting.push(stream);
            }
        }
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, mut is_cut: watch::Receiver<bool>) {
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted,
            // The listener stays open, and accepts nobody.
            () = until_cut(&mut is_cut) => std::future::pending().await,
        };
        let Ok((stream, _)) = stream else { continue };
        let Ok(there) = TcpStream::connect(target).await else {
            continue;
        };
        let (read, write) = stream.into_split();
        let (read_there, write_there) = there.into_split();
        tokio::spawn(copy(read, write_there, is_cut.clone()));
        tokio::spawn(copy(read_there, write, is_cut.clone()));
    }
}

/// Forwards bytes until the connection is cut; then it stays open and nothing gets through.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_cut: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            // Existing connections stay open, and nothing gets through.
            () = until_cut(&mut is_cut) => std::future::pending().await,
        };
        match read {
            Ok(length @ 1..) if to.write_all(&buffer[..length]).await.is_ok() => {}
            _ => return,
        }
    }
}

async fn until_cut(is_cut: &mut watch::Receiver<bool>) {
    drop(is_cut.wait_for(|cut| *cut).await);
}
