//! `kco installer status`: shows the components by wave, once or continuously.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::ops::ControlFlow;

use anyhow::{Result, bail};
use serde::Serialize;

use super::args;
use super::graph::{self, Row, State};
use super::home::home;
use super::world::World;
use crate::release::args::Connection;
use crate::release::output;
use crate::release::screen::{Paint, Screen};
use crate::release::session;
use crate::release::table::{Cell, table};
use crate::report::out;

/// Clears the terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J\u{1b}[3J";

/// The output.
#[derive(Debug, Serialize)]
struct Shown {
    roots: Vec<String>,
    components: Vec<Row>,
    summary: String,
}

impl Shown {
    fn of(world: &World) -> Self {
        let snapshot = world.snapshot();
        let components = world
            .list()
            .map(|list| graph::rows(list, &snapshot))
            .unwrap_or_default();
        Self {
            roots: world.roots(),
            summary: graph::summary(&components),
            components,
        }
    }

    fn text(&self, screen: Screen) -> String {
        let headers = ["WAVE", "COMPONENT", "VERSION", "STATE"];
        let mut rows: Vec<Vec<Cell>> = vec![headers.map(Cell::from).into()];
        let mut before = None;
        for row in &self.components {
            // The number of a wave is shown in its first row only.
            let wave = match row.wave {
                wave if wave == before && wave.is_some() => String::new(),
                Some(wave) => wave.to_string(),
                None => "-".to_owned(),
            };
            before = row.wave;
            rows.push(vec![
                wave.into(),
                row.name.as_str().into(),
                row.version.as_str().into(),
                screen.cell(paint(&row.state), row.state.words()),
            ]);
        }
        let mut text = String::new();
        for root in &self.roots {
            let _ = writeln!(text, "{root}");
        }
        let _ = writeln!(text, "{}{}", table(&rows), self.summary);
        text
    }
}

fn paint(state: &State) -> Paint {
    match state {
        State::Ready => Paint::Good,
        State::Progressing { .. } | State::Due | State::Removing { .. } => Paint::Busy,
        State::Waiting { .. } | State::NoType { .. } | State::Off => Paint::Quiet,
    }
}

/// Prints the state of the components.
pub(super) fn run(args: &args::Status) -> Result<()> {
    let connection = home(args.connection.clone());
    if args.watch {
        return watch(&connection, args.until_ready);
    }
    let (shown, screen) = session::run(&connection, async |session| {
        let world = World::read(&session.cluster, &session.namespace).await?;
        if world.is_bare() && world.list().is_none() {
            bail!(
                "there is no installer in namespace {}: name another with --namespace, or install one with `kco installer \
                 install`",
                session.namespace
            );
        }
        Ok((Shown::of(&world), session.screen))
    })?;
    output::print(args.output.output, &shown, || shown.text(screen))
}

fn watch(connection: &Connection, until_ready: bool) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    session::run(connection, async |session| {
        let screen = session.screen;
        let mut changes = Changes::default();
        World::follow(&session.cluster, &session.namespace, |world| {
            let shown = Shown::of(world);
            if is_terminal {
                out(&format!("{CLEAR}{}", shown.text(screen)))?;
            } else {
                for line in changes.since(&shown) {
                    out(&format!("{line}\n"))?;
                }
            }
            let is_complete = !shown.components.is_empty() && graph::is_complete(&shown.components);
            Ok(if until_ready && is_complete {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })
        .await
    })
}

/// Prints changes to standard error while another action runs, until the process ends. Errors are not reported, because
/// this is not part of the action.
pub(super) fn accompany(connection: Connection) {
    std::thread::spawn(move || {
        let _ = session::run(&connection, async |session| {
            let mut changes = Changes::default();
            World::follow(&session.cluster, &session.namespace, |world| {
                for line in changes.since(&Shown::of(world)) {
                    say(&line);
                }
                Ok(ControlFlow::Continue(()))
            })
            .await
        });
    });
}

#[expect(clippy::print_stderr, reason = "this is what a terminal program is for")]
fn say(text: &str) {
    eprintln!("· {text}");
}

/// The last text of each line.
#[derive(Default)]
struct Changes(BTreeMap<String, String>);

impl Changes {
    /// The lines whose text has changed.
    fn since(&mut self, shown: &Shown) -> Vec<String> {
        let roots = shown.roots.iter().filter_map(|root| root.split_once(": "));
        let roots = roots.map(|(name, words)| (name.to_owned(), words.to_owned()));
        let components = shown
            .components
            .iter()
            .map(|row| (row.name.clone(), row.state.words()));
        let summary = std::iter::once(("=".to_owned(), shown.summary.clone()));
        let mut lines = Vec::new();
        for (name, words) in roots.chain(components).chain(summary) {
            if self.0.get(&name) == Some(&words) {
                continue;
            }
            lines.push(if name == "=" {
                words.clone()
            } else {
                format!("{name}: {words}")
            });
            self.0.insert(name, words);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(states: [State; 2]) -> Shown {
        let [one, two] = states;
        let row = |wave: usize, name: &str, state: State| Row {
            wave: Some(wave),
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            state,
        };
        let components = vec![row(0, "a-crd", one), row(0, "a", two)];
        Shown {
            roots: vec!["Installer krateo-system/installer: ready".to_owned()],
            summary: graph::summary(&components),
            components,
        }
    }

    #[test]
    fn only_changed_lines_are_printed_again() {
        let mut changes = Changes::default();
        let waits = || State::Waiting {
            dependencies: vec!["a-crd".to_owned()],
        };
        assert_eq!(changes.since(&shown([State::Due, waits()])).len(), 4);
        assert_eq!(changes.since(&shown([State::Due, waits()])), [""; 0]);
        assert_eq!(
            changes.since(&shown([State::Ready, waits()])),
            ["a-crd: ready", "1 of 2 components ready, 1 waiting"]
        );
    }
}
