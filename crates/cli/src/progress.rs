//! Progress of long steps, for people: only on a terminal, and never on standard output.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use charts::source::{Transfer, Watcher};

/// Steps shorter than this are not shown.
const SHORT: Duration = Duration::from_millis(500);
/// How often the line is drawn.
const PAUSE: Duration = Duration::from_millis(100);
/// Width of the bar in characters.
const WIDTH: u64 = 24;

/// The line of the terminal on which progress is drawn.
struct Line {
    /// When the current transfer began, and its name.
    began: Option<(Instant, String)>,
    drawn: Option<Instant>,
}

static LINE: Mutex<Line> = Mutex::new(Line {
    began: None,
    drawn: None,
});

/// The function that draws downloads and uploads; none if standard error is not a terminal.
pub(crate) fn watcher() -> Option<Watcher> {
    stderr().is_terminal().then_some(draw)
}

/// Prints a step that is done.
pub(crate) fn step(text: &str) {
    if stderr().is_terminal() {
        clear();
        let _ = writeln!(stderr(), "· {text}");
    }
}

/// Removes the line, so that something else can be printed.
pub(crate) fn clear() {
    let mut line = line();
    if line.drawn.take().is_some() {
        let _ = write!(stderr(), "\r\u{1b}[K");
    }
}

fn line() -> MutexGuard<'static, Line> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn draw(transfer: Transfer<'_>) {
    if transfer.total == Some(transfer.done) {
        line().began = None;
        return clear();
    }
    let mut line = line();
    let now = Instant::now();
    let began = match &line.began {
        Some((began, path)) if path == transfer.path => *began,
        _ => {
            line.began = Some((now, transfer.path.to_owned()));
            now
        }
    };
    let is_due = line.drawn.is_none_or(|drawn| now - drawn >= PAUSE);
    if now - began >= SHORT && is_due {
        line.drawn = Some(now);
        let _ = write!(stderr(), "\r{}\u{1b}[K", shown(transfer));
    }
}

/// The text of the line. Control characters in a name that a server chose are not printed.
fn shown(transfer: Transfer<'_>) -> String {
    let Transfer {
        path, done, total, ..
    } = transfer;
    let name = path.rsplit('/').next().unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
    let megabytes = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    match total {
        Some(total) => {
            let filled = (done.min(total) * WIDTH).checked_div(total).unwrap_or(WIDTH) as usize;
            let bar = format!("{}{}", "#".repeat(filled), ".".repeat(WIDTH as usize - filled));
            format!("· {name} [{bar}] {} of {} MB", megabytes(done), megabytes(total))
        }
        None => format!("· {name} {} MB", megabytes(done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_and_how_far() {
        let of = |path, done, total| {
            shown(Transfer {
                host: "host",
                path,
                done,
                total,
            })
        };
        assert_eq!(
            of("/charts/web-1.0.0.tgz", 1_500_000, Some(3_000_000)),
            "· web-1.0.0.tgz [############............] 1.5 of 3.0 MB"
        );
        assert_eq!(of("charts/web:1.0.0", 1_500_000, None), "· web:1.0.0 1.5 MB");
        assert_eq!(
            of("a\u{1b}[2Jb", 0, Some(1)),
            "· a[2Jb [........................] 0.0 of 0.0 MB"
        );
    }
}
