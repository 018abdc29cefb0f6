//! Progress of long steps, for people: only on a terminal, and never on standard output.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use api::message::shortened;
use charts::source::{Transfer, Watcher};
use rustix::termios::tcgetwinsize;

/// Steps shorter than this are not shown.
const SHORT: Duration = Duration::from_millis(500);
/// How often the line is drawn.
const PAUSE: Duration = Duration::from_millis(100);
/// Width of the bar in characters.
const WIDTH: usize = 24;

/// The line of the terminal on which progress is drawn.
struct Line {
    /// Downloads and uploads that are underway, the oldest first.
    transfers: Vec<Running>,
    /// What is counted meanwhile.
    count: Option<Count>,
    /// The objects that a release waits for, and which of them are as they should be.
    awaited: BTreeMap<String, bool>,
    drawn: Option<Instant>,
}

/// A download or an upload.
struct Running {
    began: Instant,
    path: String,
    done: u64,
    total: Option<u64>,
}

/// So many are done of so many.
#[derive(Clone, Copy)]
struct Count {
    what: &'static str,
    done: usize,
    total: usize,
}

static LINE: Mutex<Line> = Mutex::new(Line {
    transfers: Vec::new(),
    count: None,
    awaited: BTreeMap::new(),
    drawn: None,
});

/// The function that draws downloads and uploads; none if standard error is not a terminal.
pub(crate) fn watcher() -> Option<Watcher> {
    stderr().is_terminal().then_some(draw)
}

/// Prints a step that is done.
pub(crate) fn step(text: &str) {
    if stderr().is_terminal() {
        above(&format!("· {text}"));
    }
}

/// Prints a line on standard error, above that of the progress. It may quote a chart, a registry or a cluster at any
/// length.
pub(crate) fn above(text: &str) {
    let mut line = line();
    line.clear();
    let _ = writeln!(stderr(), "{}", shortened(text));
    line.draw();
}

/// Shows how many of something are done; once all are, nothing any more.
pub(crate) fn count(what: &'static str, done: usize, total: usize) {
    if stderr().is_terminal() {
        let mut line = line();
        line.count = (done < total).then_some(Count { what, done, total });
        line.clear();
        line.draw();
    }
}

/// The items one after the other; shows how many of them are done while the next one is worked on.
pub(crate) fn counted<'i, T>(what: &'static str, items: &'i [T]) -> impl Iterator<Item = &'i T> {
    let at = move |done| count(what, done, items.len());
    let end = std::iter::from_fn(move || {
        at(items.len());
        None
    });
    let each = items.iter().enumerate().map(move |(done, item)| {
        at(done);
        item
    });
    each.chain(end)
}

/// An object that a release waits for is as it should be, or is not yet.
pub(crate) fn awaiting(object: String, is_ready: bool) {
    let (ready, total) = {
        let awaited = &mut line().awaited;
        awaited.insert(object, is_ready);
        (awaited.values().filter(|ready| **ready).count(), awaited.len())
    };
    count("objects are ready", ready, total);
}

/// The wait is over, however it ended.
pub(crate) fn end_wait() {
    line().awaited.clear();
    count("", 0, 0);
}

/// Removes the line, so that something else can be printed.
pub(crate) fn clear() {
    line().clear();
}

fn line() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn draw(transfer: Transfer<'_>) {
    let mut line = line();
    line.note(transfer, Instant::now());
    let is_due = line.drawn.is_none_or(|drawn| drawn.elapsed() >= PAUSE);
    if is_due || line.transfers.is_empty() {
        line.clear();
        line.draw();
    }
}

impl Line {
    fn note(&mut self, transfer: Transfer<'_>, now: Instant) {
        let Transfer {
            path, done, total, ..
        } = transfer;
        if total == Some(done) {
            self.transfers.retain(|running| running.path != path);
            return;
        }
        match self.transfers.iter_mut().find(|running| running.path == path) {
            Some(running) => (running.done, running.total) = (done, total),
            None => self.transfers.push(Running {
                began: now,
                path: path.to_owned(),
                done,
                total,
            }),
        }
    }

    fn clear(&mut self) {
        if self.drawn.take().is_some() {
            let _ = write!(stderr(), "\r\u{1b}[K");
        }
    }

    fn draw(&mut self) {
        let Some(text) = self.text(Instant::now()) else {
            return;
        };
        // A line that is broken into two could not be removed.
        let width = tcgetwinsize(stderr()).map_or(80, |size| usize::from(size.ws_col));
        let text: String = text.chars().take(width.saturating_sub(1)).collect();
        self.drawn = Some(Instant::now());
        let _ = write!(stderr(), "{text}");
        let _ = stderr().flush();
    }

    /// What is to be seen at `now`.
    fn text(&self, now: Instant) -> Option<String> {
        let mut long = self
            .transfers
            .iter()
            .filter(|running| now.duration_since(running.began) >= SHORT);
        if let Some(running) = long.next() {
            let more = match long.count() {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            return Some(format!("{}{more}", running.text()));
        }
        let Count { what, done, total } = self.count?;
        Some(format!(
            "· {} {done} of {total} {what}",
            bar(done as u64, total as u64)
        ))
    }
}

impl Running {
    /// What a host calls a file is no command for the terminal.
    fn text(&self) -> String {
        let Self {
            path, done, total, ..
        } = self;
        let name = path.rsplit('/').next().unwrap_or_default();
        let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
        match *total {
            Some(total) => format!(
                "· {name} {} {} of {} MB",
                bar(*done, total),
                megabytes(*done),
                megabytes(total)
            ),
            None => format!("· {name} {} MB", megabytes(*done)),
        }
    }
}

fn bar(done: u64, total: u64) -> String {
    let filled = (done.min(total) * WIDTH as u64)
        .checked_div(total)
        .unwrap_or(WIDTH as u64);
    let filled = filled as usize;
    format!("[{}{}]", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Line {
        Line {
            transfers: Vec::new(),
            count: None,
            awaited: BTreeMap::new(),
            drawn: None,
        }
    }

    fn transfer(path: &str, done: u64, total: Option<u64>) -> Transfer<'_> {
        Transfer {
            host: "host",
            path,
            done,
            total,
        }
    }

    #[test]
    fn the_line_says_what_and_how_far() {
        let of = |path, done, total| {
            let mut line = empty();
            let began = Instant::now();
            line.note(transfer(path, done, total), began);
            assert_eq!(line.text(began), None);
            line.text(began + SHORT)
        };
        assert_eq!(
            of("/charts/web-1.0.0.tgz", 1_500_000, Some(3_000_000)).as_deref(),
            Some("· web-1.0.0.tgz [############............] 1.5 of 3.0 MB")
        );
        assert_eq!(
            of("charts/web:1.0.0", 1_500_000, None).as_deref(),
            Some("· web:1.0.0 1.5 MB")
        );
        assert_eq!(
            of("a\u{1b}[2Jb", 0, Some(1)).as_deref(),
            Some("· a[2Jb [........................] 0.0 of 0.0 MB")
        );
    }

    #[test]
    fn several_at_a_time_share_the_line() {
        let mut line = empty();
        let began = Instant::now();
        for path in ["a/one", "a/two", "a/three"] {
            line.note(transfer(path, 1, None), began);
        }
        line.note(transfer("a/two", 2_000_000, None), began + SHORT);
        let text = |line: &Line| line.text(began + SHORT);
        assert_eq!(text(&line).as_deref(), Some("· one 0.0 MB, and 2 more"));
        line.note(transfer("a/one", 5, Some(5)), began + SHORT);
        assert_eq!(text(&line).as_deref(), Some("· two 2.0 MB, and 1 more"));
        line.note(transfer("a/two", 5, Some(5)), began + SHORT);
        line.note(transfer("a/three", 5, Some(5)), began + SHORT);
        assert_eq!(text(&line), None);
        line.count = Some(Count {
            what: "repositories",
            done: 1,
            total: 4,
        });
        assert_eq!(
            text(&line).as_deref(),
            Some("· [######..................] 1 of 4 repositories")
        );
    }
}
