//! Checks something that rustls does not report about a `ClientHello`: whether it tries to resume an earlier session.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The extensions with which a client resumes an earlier session, and sends data before the server has answered.
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;

/// A stream that records what is read from it until it is told to stop. rustls limits how much it reads for a hello.
#[derive(Debug)]
pub(crate) struct Recorded<IO> {
    io: IO,
    recorded: Option<Vec<u8>>,
}

impl<IO> Recorded<IO> {
    pub(crate) fn new(io: IO) -> Self {
        let recorded = Some(Vec::new());
        Self { io, recorded }
    }

    /// Stops recording, and returns what was read.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.recorded.take().unwrap_or_default()
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Recorded<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.io).poll_read(context, buffer);
        if let Some(recorded) = &mut self.recorded {
            recorded.extend_from_slice(&buffer.filled()[before..]);
        }
        polled
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Recorded<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// True if the first flight of a client tries to resume an earlier session. Also true if it cannot be parsed: rustls
/// accepted it, but it must not get any further.
pub(crate) fn asks_to_resume(flight: &[u8]) -> bool {
    let Some(message) = handshake(flight) else {
        return true;
    };
    let Some(types) = extension_types(&message) else {
        return true;
    };
    types.contains(&PRE_SHARED_KEY) || types.contains(&EARLY_DATA)
}

/// The first handshake message, which may be split over several records (RFC 8446, 5.1).
fn handshake(mut flight: &[u8]) -> Option<Vec<u8>> {
    const HANDSHAKE: u8 = 22;
    let mut message = Vec::new();
    loop {
        let [HANDSHAKE, _, _] = take(&mut flight, 3)? else {
            return None;
        };
        message.extend_from_slice(vector(&mut flight, 2)?);
        let mut body = message.get(1..).unwrap_or_default();
        if let Some(body) = vector(&mut body, 3) {
            return Some(body.to_vec());
        }
    }
}

/// The types of the extensions of a `ClientHello` (RFC 8446, 4.1.2).
fn extension_types(mut hello: &[u8]) -> Option<Vec<u16>> {
    let hello = &mut hello;
    take(hello, 2 + 32)?; // Version and random.
    vector(hello, 1)?; // Session id.
    vector(hello, 2)?; // Cipher suites.
    vector(hello, 1)?; // Compression methods.
    let extensions = &mut vector(hello, 2)?;
    let mut types = Vec::new();
    while !extensions.is_empty() {
        types.push(u16::from_be_bytes(take(extensions, 2)?.try_into().ok()?));
        vector(extensions, 2)?;
    }
    Some(types)
}

/// A vector that is preceded by its length in `width` bytes.
fn vector<'a>(bytes: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let mut rest = *bytes;
    let length = take(&mut rest, width)?;
    let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let vector = take(&mut rest, length)?;
    *bytes = rest;
    Some(vector)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello with extensions of these types, in records of at most `size` bytes.
    fn flight(types: &[u16], size: usize) -> Vec<u8> {
        let extensions: Vec<u8> = types
            .iter()
            .flat_map(|kind| [kind.to_be_bytes(), [0, 1]].concat().into_iter().chain([7]))
            .collect();
        let mut body = vec![3; 34];
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut message = vec![1, 0, 0, body.len() as u8];
        message.extend(body);
        let records = message.chunks(size).map(|chunk| {
            let mut record = vec![22, 3, 1, 0, chunk.len() as u8];
            record.extend(chunk);
            record
        });
        records.collect::<Vec<_>>().concat()
    }

    #[test]
    fn an_offer_to_resume_is_seen_however_the_hello_is_cut() {
        for size in [1, 3, 4, 5, 40, 200] {
            assert!(!asks_to_resume(&flight(&[0, 43, 51], size)), "{size}");
            assert!(
                asks_to_resume(&flight(&[0, 43, 51, PRE_SHARED_KEY], size)),
                "{size}"
            );
            assert!(asks_to_resume(&flight(&[EARLY_DATA, 43], size)), "{size}");
        }
    }

    #[test]
    fn a_hello_that_cannot_be_read_is_not_let_through() {
        let whole = flight(&[0, 43], 200);
        for end in 0..whole.len() {
            assert!(asks_to_resume(&whole[..end]), "{end}");
        }
    }
}
