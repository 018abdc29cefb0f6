//! `make attacks`: what each of eight actors can try against a shared platform, with that actor's real token on a real
//! control plane, and what the victim sees of it.
//!
//! An attack is refused if the victim sees nothing of it, whatever refused it. One that works, and that
//! `docs/security.md` describes, is residue; the sentence is looked for there. Everything else got through.

mod accounts;
mod approvals;
mod bindings;
mod clusters;
mod compositions;
mod consents;
mod definitions;
mod granted;
mod grants;
mod holder;
mod inspector;
mod kinds;
mod lookups;
mod namespaces;
pub(crate) mod records;
mod registries;
pub(crate) mod release_text;
mod sizes;
mod stage;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};

pub use bindings::{Hall, OWN as OWN_BINDINGS};
pub use grants::{ELSEWHERE, Post};
pub use holder::{Answer, Holder};
pub use stage::{Scene, Stage, Type};

use crate::{image, progress};

/// Who attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// Has compositions in a namespace, and the built-in role `edit` there.
    Tenant = 1,
    /// Wrote a chart that somebody else serves.
    ChartAuthor = 2,
    /// Has the token of a type's controller.
    Controller = 3,
    /// Has the token of chart-inspector.
    Inspector = 4,
    /// Reaches the programs over the network, without any token.
    Peer = 5,
    /// Runs a registry, an index, or the host that they redirect to.
    Registry = 6,
    /// Is admin of a namespace and writes definitions there.
    DefinitionAuthor = 7,
    /// Writes a kubeconfig or a deployment of the multicluster operator, or runs the API server that a kubeconfig names.
    ClusterOwner = 8,
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Tenant => "tenant",
            Self::ChartAuthor => "chart author",
            Self::Controller => "controller's token",
            Self::Inspector => "chart-inspector's token",
            Self::Peer => "network peer",
            Self::Registry => "registry",
            Self::DefinitionAuthor => "definition author",
            Self::ClusterOwner => "cluster owner",
        };
        write!(f, "{} {name}", *self as u8)
    }
}

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The victim saw nothing of it.
    Refused {
        /// What refused it.
        by: String,
        /// What the victim saw.
        seen: String,
    },
    /// The attack worked.
    GotThrough {
        /// What the victim saw.
        seen: String,
    },
}

impl Outcome {
    fn refused(by: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::Refused {
            by: by.into(),
            seen: seen.into(),
        }
    }

    fn got_through(seen: impl Into<String>) -> Self {
        Self::GotThrough { seen: seen.into() }
    }
}

type Try = Box<dyn Fn(&Stage) -> Result<Outcome> + Send + Sync>;

/// One attack.
pub struct Attack {
    /// The name by which it is selected, and the prefix of its namespaces.
    pub name: String,
    /// The actor.
    pub actor: Actor,
    /// What the actor tries, in a few words.
    pub what: String,
    /// True if it takes one request or two: those are part of `make test`.
    pub quick: bool,
    /// True if it stops a type for everybody, so that it runs alone, after all others.
    pub alone: bool,
    /// True if it is not refused yet: it only runs on request.
    pub later: bool,
    /// The sentence of `docs/security.md` that admits it.
    pub residue: Option<&'static str>,
    attempt: Try,
}

impl Attack {
    fn new(
        name: impl Into<String>,
        actor: Actor,
        what: impl Into<String>,
        attempt: impl Fn(&Stage) -> Result<Outcome> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            actor,
            what: what.into(),
            quick: false,
            alone: false,
            later: false,
            residue: None,
            attempt: Box::new(attempt),
        }
    }

    fn quick(mut self) -> Self {
        self.quick = true;
        self
    }

    fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    fn later(mut self) -> Self {
        self.later = true;
        self
    }

    fn residue(mut self, sentence: &'static str) -> Self {
        self.residue = Some(sentence);
        self
    }
}

/// All attacks.
pub fn all() -> Vec<Attack> {
    let mut all = Vec::new();
    all.extend(records::attacks());
    all.extend(lookups::attacks());
    all.extend(namespaces::attacks());
    all.extend(compositions::attacks());
    all.extend(approvals::attacks());
    all.extend(accounts::attacks());
    all.extend(grants::attacks());
    all.extend(bindings::attacks());
    all.extend(inspector::attacks());
    all.extend(registries::attacks());
    all.extend(sizes::attacks());
    all.extend(definitions::attacks());
    all.extend(consents::attacks());
    all.extend(clusters::attacks());
    all.extend(kinds::attacks());
    all.extend(granted::attacks());
    all
}

/// The verdict on an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The victim saw nothing.
    Refused,
    /// It works, and `docs/security.md` says so.
    Residue,
    /// It works.
    GotThrough,
    /// It could not be tried.
    Untried,
}

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    /// The attack's name.
    pub name: String,
    /// Who tried it.
    pub actor: Actor,
    /// What was tried.
    pub what: String,
    /// The verdict.
    pub verdict: Verdict,
    /// What refused it.
    pub by: String,
    /// What the victim saw.
    pub seen: String,
}

/// The results of all attacks, in order.
#[derive(Debug, Default)]
pub struct Table {
    /// One for each attack.
    pub rows: Vec<Row>,
}

impl Table {
    /// How many have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// True when none got through and all were tried.
    pub fn is_good(&self) -> bool {
        !self.rows.is_empty() && self.count(Verdict::GotThrough) == 0 && self.count(Verdict::Untried) == 0
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let verdict = match row.verdict {
                Verdict::Refused => "refused",
                Verdict::Residue => "residue",
                Verdict::GotThrough => "GOT THROUGH",
                Verdict::Untried => "NOT TRIED",
            };
            writeln!(
                f,
                "{verdict:<11} | {} | {}: {} | {} | {}",
                row.actor, row.name, row.what, row.by, row.seen
            )?;
        }
        let untried = self.count(Verdict::Untried);
        if untried > 0 {
            writeln!(f, "{untried} could not be tried")?;
        }
        write!(
            f,
            "{} attacks: {} refused, {} residue that docs/security.md names, {} got through",
            self.rows.len(),
            self.count(Verdict::Refused),
            self.count(Verdict::Residue),
            self.count(Verdict::GotThrough)
        )
    }
}

/// Runs these attacks, so many at a time.
///
/// # Errors
/// When `docs/security.md` cannot be read. An attack that cannot be tried is a row of the table.
pub fn run(stage: &Stage, attacks: &[Attack], at_once: usize) -> Result<Table> {
    let page = image::root().join("docs/security.md");
    let page =
        std::fs::read_to_string(&page).with_context(|| format!("could not read {}", page.display()))?;
    let page = one_line(&page);
    let mut rows: Vec<(usize, Row)> = Vec::new();
    let (alone, together): (Vec<_>, Vec<_>) = attacks.iter().enumerate().partition(|(_, a)| a.alone);
    let queue = Mutex::new(VecDeque::from(together));
    let done = Mutex::new(&mut rows);
    let work = || {
        while let Some((place, attack)) = next(&queue) {
            let row = attempt(stage, attack, &page);
            done.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push((place, row));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(work);
        }
    });
    for (place, attack) in alone {
        rows.push((place, attempt(stage, attack, &page)));
    }
    rows.sort_by_key(|(place, _)| *place);
    Ok(Table {
        rows: rows.into_iter().map(|(_, row)| row).collect(),
    })
}

fn next<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

fn attempt(stage: &Stage, attack: &Attack, page: &str) -> Row {
    let (verdict, by, seen) = match (attack.attempt)(stage) {
        Ok(Outcome::Refused { by, seen }) => (Verdict::Refused, by, seen),
        Ok(Outcome::GotThrough { seen }) => {
            let is_named = attack.residue.is_some_and(|sentence| page.contains(sentence));
            let (verdict, by) = match (attack.residue, is_named) {
                (Some(sentence), true) => (Verdict::Residue, sentence.to_owned()),
                (Some(sentence), false) => (
                    Verdict::GotThrough,
                    format!("docs/security.md does not say: {sentence}"),
                ),
                (None, _) => (Verdict::GotThrough, "nothing".to_owned()),
            };
            (verdict, by, seen)
        }
        Err(error) => (Verdict::Untried, format!("{error:#}"), String::new()),
    };
    let row = Row {
        name: attack.name.clone(),
        actor: attack.actor,
        what: attack.what.clone(),
        verdict,
        by: short(&by),
        seen: short(&seen),
    };
    progress(format_args!(
        "{:?} {}: {} | {}",
        row.verdict, row.name, row.by, row.seen
    ));
    row
}

/// The text without line breaks and repeated spaces.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As much of a text as a table holds.
fn short(text: &str) -> String {
    const MOST: usize = 260;
    let text = one_line(text);
    if text.chars().count() <= MOST {
        return text;
    }
    let kept: String = text.chars().take(MOST).collect();
    format!("{kept}…")
}
