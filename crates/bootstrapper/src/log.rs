//! The log of the bootstrapping for the caller: the output of kubeadm, without tokens.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// How many bytes are kept. kubeadm prints about 10 kB.
const MOST: usize = 1024 * 1024;

/// The size of one message of the stream, in bytes.
pub const CHUNK: usize = 1024;

/// The log of this process, in memory.
#[derive(Debug)]
pub struct Log {
    bytes: Mutex<Vec<u8>>,
    length: watch::Sender<usize>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            bytes: Mutex::default(),
            length: watch::Sender::new(0),
        }
    }
}

impl Log {
    /// Appends a line without the tokens in it. Lines that no longer fit are dropped.
    pub fn line(&self, line: &str) {
        let line = redacted(line);
        tracing::info!(target: "kubeadm", "{line}");
        let mut bytes = self.bytes();
        if bytes.len() + line.len() < MOST {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
            self.length.send_replace(bytes.len());
        }
    }

    /// At most [`CHUNK`] bytes, starting at this position.
    pub fn chunk(&self, position: usize) -> Vec<u8> {
        let bytes = self.bytes();
        let end = bytes.len().min(position + CHUNK);
        bytes.get(position..end).unwrap_or_default().to_vec()
    }

    /// The number of bytes, which can be watched.
    pub fn length(&self) -> watch::Receiver<usize> {
        self.length.subscribe()
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lengths of the two parts of a bootstrap token.
const TOKEN: (usize, usize) = (6, 16);

/// Removes every bootstrap token and every long run of base64 or hexadecimal, which may be a key. A labelled hash,
/// `sha256:…`, stays.
pub fn redacted(line: &str) -> String {
    let is_part_of_word = |char: char| char.is_ascii_alphanumeric() || "._-+/=".contains(char);
    let mut words = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(is_part_of_word) {
        let (before, after) = rest.split_at(start);
        words.push_str(before);
        let end = after.find(|char| !is_part_of_word(char)).unwrap_or(after.len());
        let (word, after) = after.split_at(end);
        let is_hash = words.ends_with("sha256:");
        let is_secret = !is_hash && (has_token(word) || is_key(word));
        words.push_str(if is_secret { "…" } else { word });
        rest = after;
    }
    words + rest
}

fn has_token(word: &str) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let length = TOKEN.0 + 1 + TOKEN.1;
    word.as_bytes().windows(length).any(|window| {
        let (id, secret) = window.split_at(TOKEN.0);
        id.iter().all(is_letter) && secret[0] == b'.' && secret[1..].iter().all(is_letter)
    })
}

/// 32 bytes are 43 characters of base64. Paths and names of that length contain separators.
fn is_key(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+=_-".contains(&byte);
    let mut runs = word.split(['/', '.']);
    runs.any(|run| {
        run.len() >= 43 && run.bytes().all(is_letter) && run.bytes().any(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_keys_are_left_out() {
        for (line, expected) in [
            (
                "[bootstrap-token] Using token: abcdef.0123456789abcdef",
                "[bootstrap-token] Using token: …",
            ),
            (
                "kubeadm join 198.18.0.2:6443 --token=abcdef.0123456789abcdef x",
                "kubeadm join 198.18.0.2:6443 … x",
            ),
            (
                "--discovery-token-ca-cert-hash sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "--discovery-token-ca-cert-hash sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            ),
            (
                "key MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY= ends",
                "key … ends",
            ),
            (
                "[certs] Using certificateDir folder \"/etc/kubernetes/pki\"",
                "[certs] Using certificateDir folder \"/etc/kubernetes/pki\"",
            ),
            (
                "[kubelet-check] The kubelet is healthy after 501.2ms",
                "[kubelet-check] The kubelet is healthy after 501.2ms",
            ),
        ] {
            assert_eq!(redacted(line), expected);
        }
    }

    #[test]
    fn chunks_are_the_log_and_it_ends_somewhere() {
        let log = Log::default();
        for number in 0..400 {
            log.line(&format!("line {number}"));
        }
        let (mut read, mut position) = (Vec::new(), 0);
        loop {
            let chunk = log.chunk(position);
            assert!(chunk.len() <= CHUNK);
            if chunk.is_empty() {
                break;
            }
            position += chunk.len();
            read.extend(chunk);
        }
        assert!(read.starts_with(b"line 0\nline 1\n") && read.ends_with(b"line 399\n"));
        assert_eq!(*log.length().borrow(), read.len());
        for _ in 0..2_000 {
            log.line(&"x ".repeat(500));
        }
        assert!(*log.length().borrow() <= MOST);
        assert!(log.chunk(usize::MAX - CHUNK).is_empty());
    }
}
