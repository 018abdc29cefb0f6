//! What an expression can evaluate to when every branch is taken: a small set of alternatives.
//!
//! What is not known is a *hole*: one character of a private plane that stands for it inside a text and says
//! why it is unknown. So a text with holes stays a text, and two texts that differ in nothing else are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// More alternatives than this are taken as unknown.
const MAX_ALTERNATIVES: usize = 48;

/// Longest text that is followed; what decides a kind or a namespace is short.
pub(super) const MAX_TEXT: usize = 400;

/// First character that stands for a hole.
const FIRST_HOLE: u32 = 0xF_0000;

/// How many different reasons are told apart.
const MAX_HOLES: u32 = 0xFF00;

/// Stands for the namespace of the release inside a text.
pub(super) const RELEASE_NAMESPACE: char = '\u{10_0000}';

/// Something unknown inside a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hole(char);

impl Hole {
    pub(super) fn as_char(self) -> char {
        self.0
    }

    /// The first hole in a text.
    pub(super) fn first_in(text: &str) -> Option<Self> {
        text.chars().find(|&c| Self::is(c)).map(Self)
    }

    pub(super) fn is(c: char) -> bool {
        (FIRST_HOLE..FIRST_HOLE + MAX_HOLES).contains(&u32::from(c))
    }
}

/// Why things are unknown, each reason once.
#[derive(Debug, Default)]
pub(super) struct Holes {
    reasons: Vec<String>,
    by_reason: BTreeMap<String, Hole>,
}

impl Holes {
    pub(super) fn because(&mut self, reason: &str) -> Hole {
        if let Some(&hole) = self.by_reason.get(reason) {
            return hole;
        }
        let next = u32::try_from(self.reasons.len())
            .unwrap_or(MAX_HOLES)
            .min(MAX_HOLES - 1);
        let hole = Hole(char::from_u32(FIRST_HOLE + next).unwrap_or(RELEASE_NAMESPACE));
        if self.reasons.len() < MAX_HOLES as usize {
            self.reasons.push(reason.to_owned());
            self.by_reason.insert(reason.to_owned(), hole);
        }
        hole
    }

    pub(super) fn reason(&self, hole: Hole) -> &str {
        let index = (u32::from(hole.0) - FIRST_HOLE) as usize;
        self.reasons.get(index).map_or("a value", String::as_str)
    }
}

/// A chart of the tree, by its place in the list of all.
pub(super) type ChartIndex = usize;

/// One thing that a value can be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alternative {
    Text(Rc<str>),
    Int(i64),
    Bool(bool),
    Hole(Hole),
    /// What `dict` makes.
    Map(Rc<BTreeMap<String, Possible>>),
    /// What `list` makes; the order does not matter to what follows.
    List(Rc<BTreeSet<Possible>>),
    /// The dot that a file of a chart begins with.
    Root(ChartIndex),
    /// `.Values` of a chart, and a path into it; `*` is any key.
    Values(ChartIndex, Rc<[String]>),
    /// `.Chart`
    Metadata(ChartIndex),
    /// `.Release`
    Release,
    /// `.Files` of a chart.
    Files(ChartIndex),
}

/// Everything that a value can be.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Possible(BTreeSet<Alternative>);

impl Possible {
    /// No value at all, as of an action that prints nothing.
    pub(super) fn nothing() -> Self {
        Self::default()
    }

    pub(super) fn one(alternative: Alternative) -> Self {
        Self(BTreeSet::from([alternative]))
    }

    pub(super) fn text(text: &str) -> Self {
        Self::one(Alternative::Text(text.into()))
    }

    pub(super) fn hole(hole: Hole) -> Self {
        Self::one(Alternative::Hole(hole))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Alternative> {
        self.0.iter()
    }

    /// What either can be.
    pub(super) fn or(mut self, other: &Self) -> Self {
        self.0.extend(other.0.iter().cloned());
        self
    }

    pub(super) fn any_of<'p>(all: impl IntoIterator<Item = &'p Self>) -> Self {
        all.into_iter().fold(Self::nothing(), Self::or)
    }

    /// The same, or one hole when there are too many alternatives; never two holes.
    pub(super) fn bounded(self, holes: &mut Holes) -> Self {
        if self.0.len() > MAX_ALTERNATIVES {
            return Self::hole(holes.because("a value with many alternatives"));
        }
        let mut is_first = true;
        Self(
            self.0
                .into_iter()
                .filter(|alternative| {
                    !matches!(alternative, Alternative::Hole(_)) || std::mem::take(&mut is_first)
                })
                .collect(),
        )
    }
}

impl FromIterator<Alternative> for Possible {
    fn from_iter<I: IntoIterator<Item = Alternative>>(alternatives: I) -> Self {
        Self(alternatives.into_iter().collect())
    }
}
