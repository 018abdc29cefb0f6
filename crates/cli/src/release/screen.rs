//! Progress and colours for people, on a terminal only.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use helm::release::Status;
use helm_client::release::Progress;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use super::args::{Colour, Connection};
use super::table::Cell;
use crate::progress;

/// How to print to the user's terminal or file.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "two outputs, each with a switch of its own"
)]
pub(crate) struct Screen {
    /// Standard output is coloured.
    is_coloured: bool,
    /// Standard error is coloured.
    is_coloured_there: bool,
    /// Progress is shown: standard error is a terminal, or `--debug` is given.
    shows_progress: bool,
    debug: bool,
}

/// Colours by meaning; each terminal has its own shades of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Good,
    Bad,
    Busy,
    Quiet,
    Namespace,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Busy => "33",
            Self::Quiet => "90",
            Self::Namespace => "36",
        }
    }

    fn on(self, text: &str) -> String {
        format!("\u{1b}[{}m{text}\u{1b}[0m", self.code())
    }
}

impl Screen {
    pub(crate) fn new(connection: &Connection) -> Self {
        let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let wants = |is_terminal: bool| match connection.color {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => is_terminal && !forbidden,
        };
        let there = std::io::stderr().is_terminal();
        Self {
            is_coloured: wants(std::io::stdout().is_terminal()),
            is_coloured_there: wants(there),
            shows_progress: there || connection.debug,
            debug: connection.debug,
        }
    }

    /// The text in a colour, if colours are on.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        if self.is_coloured {
            paint.on(text)
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn cell(self, paint: Paint, text: impl Into<String>) -> Cell {
        let text = text.into();
        Cell {
            shown: self.is_coloured.then(|| paint.on(&text)),
            text,
        }
    }

    pub(crate) fn status(self, status: &Status) -> Cell {
        let paint = match status {
            Status::Deployed => Paint::Good,
            Status::Failed => Paint::Bad,
            status if status.is_pending() || *status == Status::Uninstalling => Paint::Busy,
            _ => Paint::Quiet,
        };
        self.cell(paint, status.to_string())
    }

    /// Prints a step of an action if progress is shown; output of hooks is always printed.
    pub(crate) fn tell(self, progress: &Progress<'_>) {
        if matches!(progress, Progress::Undoing { .. } | Progress::Recorded { .. }) {
            progress::end_wait();
        }
        if !self.shows_progress && !matches!(progress, Progress::Output { .. }) {
            return;
        }
        let paint = match progress {
            Progress::Undoing { .. } => Paint::Bad,
            Progress::Awaiting { health, .. } if !health.is_current() => Paint::Busy,
            Progress::Deleted { .. } | Progress::Kept { .. } | Progress::Recorded { .. } => Paint::Quiet,
            _ => Paint::Good,
        };
        let mark = if self.is_coloured_there {
            paint.on("·")
        } else {
            "·".to_owned()
        };
        progress::above(&format!("{mark} {progress}"));
        if let Progress::Awaiting { id, health } = progress {
            progress::awaiting(id.to_string(), health.is_current());
        }
    }

    /// Prints the warnings of the library, and with `--debug` all its log.
    pub(crate) fn follow(self) {
        let level = if self.debug { Level::DEBUG } else { Level::WARN };
        let told = Told { screen: self, level };
        // If a process runs a second command, which happens in tests only, the first one's subscriber stays.
        let _ = tracing_subscriber::registry().with(told).try_init();
    }
}

/// Turns the log events of the library into lines for people.
struct Told {
    screen: Screen,
    level: Level,
}

impl<S: Subscriber> Layer<S> for Told {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let is_ours = metadata.target().starts_with("helm_client");
        if *metadata.level() > self.level || (!is_ours && *metadata.level() > Level::WARN) {
            return;
        }
        let mut line = Line::default();
        event.record(&mut line);
        progress::above(&line.shown(*metadata.level(), self.screen.is_coloured_there));
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn shown(&self, level: Level, is_coloured: bool) -> String {
        let paint = |paint: Paint, text: &str| {
            if is_coloured {
                paint.on(text)
            } else {
                text.to_owned()
            }
        };
        let mark = match level {
            Level::ERROR | Level::WARN => paint(Paint::Bad, "WARNING:"),
            _ => paint(Paint::Good, "·"),
        };
        format!("{mark} {}{}", self.message, paint(Paint::Quiet, &self.fields))
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
