//! What an expression can evaluate to when every branch is taken: a small set of alternatives.
//!
//! An unknown part is a *hole*: one character of a private plane that stands for it inside a text and records why it
//! is unknown. So a text with holes is still a text, and two texts that differ in nothing else are equal.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::rc::Rc;

/// A value with more alternatives than this is treated as unknown.
pub(super) const MAX_ALTERNATIVES: usize = 48;

/// A value with more alternatives than this in total, those within maps and lists counted, is treated as unknown.
const MAX_SIZE: usize = 4096;

/// So is one whose maps and lists are nested more deeply than this.
const MAX_DEPTH: usize = 32;

/// For a variable with more alternatives than this from its assignments, all its maps are merged into one.
const MAX_ASSIGNED: usize = 64;

/// Longest text that is tracked; texts that decide a kind or a namespace are short.
pub(super) const MAX_TEXT: usize = 400;

/// The first character that is used for holes.
const FIRST_HOLE: u32 = 0xF_0000;

/// How many different reasons can be distinguished.
const MAX_HOLES: u32 = 0xFF00;

/// Stands for the name of the release inside a text: a hole that is the same everywhere.
pub(super) const RELEASE_NAME: char = '\u{F_0000}';

/// The hole for what is made of the name of the release.
const OF_RELEASE_NAME: Hole = Hole('\u{F_0001}');

/// Stands for the namespace of the release inside a text.
pub(super) const RELEASE_NAMESPACE: char = '\u{10_0000}';

/// Something unknown inside a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hole(char);

impl Hole {
    pub(super) fn as_char(self) -> char {
        self.0
    }

    /// The reason for the first hole in a text, as a hole.
    pub(super) fn first_in(text: &str) -> Option<Self> {
        let first = text.chars().find(|&c| Self::is(c))?;
        Some(if first == RELEASE_NAME {
            OF_RELEASE_NAME
        } else {
            Self(first)
        })
    }

    pub(super) fn is(c: char) -> bool {
        (FIRST_HOLE..FIRST_HOLE + MAX_HOLES).contains(&u32::from(c))
    }
}

/// The reasons why parts are unknown, each once.
#[derive(Debug)]
pub(super) struct Holes {
    reasons: Vec<String>,
    by_reason: BTreeMap<String, Hole>,
    /// Holes that stand for values of which something is known.
    values: BTreeMap<Hole, Possible>,
    by_value: BTreeMap<Possible, Hole>,
}

impl Default for Holes {
    fn default() -> Self {
        let reason = ".Release.Name".to_owned();
        Self {
            reasons: vec![reason.clone(); 2],
            by_reason: BTreeMap::from([(reason, OF_RELEASE_NAME)]),
            values: BTreeMap::new(),
            by_value: BTreeMap::new(),
        }
    }
}

impl Holes {
    /// The hole for a value, with the reason why it is not known altogether.
    pub(super) fn standing_for(&mut self, value: &Possible, reason: &str) -> Hole {
        if let Some(&hole) = self.by_value.get(value) {
            return hole;
        }
        if self.reasons.len() >= MAX_HOLES as usize {
            return self.because(reason);
        }
        let hole = self.next();
        self.reasons.push(reason.to_owned());
        self.values.insert(hole, value.clone());
        self.by_value.insert(value.clone(), hole);
        hole
    }

    /// The value that a character stands for.
    pub(super) fn value(&self, of: char) -> Option<&Possible> {
        self.values.get(&Hole(of))
    }

    fn next(&self) -> Hole {
        let next = u32::try_from(self.reasons.len())
            .unwrap_or(MAX_HOLES)
            .min(MAX_HOLES - 1);
        Hole(char::from_u32(FIRST_HOLE + next).unwrap_or(RELEASE_NAMESPACE))
    }

    pub(super) fn because(&mut self, reason: &str) -> Hole {
        if let Some(&hole) = self.by_reason.get(reason) {
            return hole;
        }
        let hole = self.next();
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

/// A chart of the tree, by its index in the list of all charts.
pub(super) type ChartIndex = usize;

/// One thing that a value can be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alternative {
    Text(Rc<str>),
    Int(i64),
    Bool(bool),
    Hole(Hole),
    /// The result of `dict`.
    Map(Shared<BTreeMap<String, Possible>>),
    /// The result of `list`; the order does not matter here.
    List(Shared<BTreeSet<Possible>>),
    /// The dot at the start of a chart's file.
    Root(ChartIndex),
    /// `.Values` of a chart, and a path into it; `*` is any key.
    Values(ChartIndex, Shared<[String]>),
    /// `.Chart`
    Metadata(ChartIndex),
    /// `.Release`
    Release,
    /// `.Files` of a chart.
    Files(ChartIndex),
}

impl Alternative {
    fn extent(&self) -> Extent {
        match self {
            Self::Map(map) => Extent::around(map.values()),
            Self::List(items) => Extent::around(items.iter()),
            Self::Text(_)
            | Self::Int(_)
            | Self::Bool(_)
            | Self::Hole(_)
            | Self::Root(_)
            | Self::Values(..)
            | Self::Metadata(_)
            | Self::Release
            | Self::Files(_) => Extent { size: 1, depth: 1 },
        }
    }
}

/// The size of a value: what it costs to compare it with another one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Extent {
    /// The number of alternatives that it is made of; one that occurs in several maps and lists counts each time.
    size: usize,
    /// Nesting depth of maps and lists.
    depth: usize,
}

impl Extent {
    fn around<'p>(parts: impl Iterator<Item = &'p Possible>) -> Self {
        parts
            .map(Possible::extent)
            .fold(Self { size: 1, depth: 1 }, |all, part| Self {
                size: all.size.saturating_add(part.size).saturating_add(1),
                depth: all.depth.max(part.depth + 1),
            })
    }

    fn beside(self, other: Self) -> Self {
        Self {
            size: self.size.saturating_add(other.size),
            depth: self.depth.max(other.depth),
        }
    }

    fn is_followed(self) -> bool {
        self.size <= MAX_SIZE && self.depth <= MAX_DEPTH
    }
}

/// A value shared between many places; two references to the same one are equal without comparing the contents.
#[derive(Debug)]
pub(super) struct Shared<T: ?Sized>(Rc<T>);

impl<T: ?Sized> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized, R: Into<Rc<T>>> From<R> for Shared<T> {
    fn from(shared: R) -> Self {
        Self(shared.into())
    }
}

impl<T: ?Sized + Ord> Ord for Shared<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        if Rc::ptr_eq(&self.0, &other.0) {
            return Ordering::Equal;
        }
        self.0.cmp(&other.0)
    }
}

impl<T: ?Sized + Ord> PartialOrd for Shared<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: ?Sized + Ord> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T: ?Sized + Ord> Eq for Shared<T> {}

/// Everything that a value can be. Copies share their contents.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Possible(Option<Shared<Alternatives>>);

/// Sorted alternatives without duplicates.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alternatives {
    sorted: Vec<Alternative>,
    extent: Extent,
}

impl Possible {
    /// No value at all, such as the result of an action that prints nothing.
    pub(super) fn nothing() -> Self {
        Self::default()
    }

    pub(super) fn one(alternative: Alternative) -> Self {
        Self::of(vec![alternative])
    }

    /// From alternatives that are already sorted.
    fn of(sorted: Vec<Alternative>) -> Self {
        if sorted.is_empty() {
            return Self(None);
        }
        let extents = sorted.iter().map(Alternative::extent);
        let extent = extents.fold(Extent::default(), Extent::beside);
        Self(Some(Rc::new(Alternatives { sorted, extent }).into()))
    }

    pub(super) fn text(text: &str) -> Self {
        Self::one(Alternative::Text(text.into()))
    }

    pub(super) fn hole(hole: Hole) -> Self {
        Self::one(Alternative::Hole(hole))
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Alternative> {
        self.slice().iter()
    }

    fn slice(&self) -> &[Alternative] {
        self.0.as_ref().map_or(&[], |alternatives| &alternatives.sorted)
    }

    fn extent(&self) -> Extent {
        self.0
            .as_ref()
            .map_or_else(Extent::default, |alternatives| alternatives.extent)
    }

    /// The number of alternatives that it is made of: the most that a comparison can cost.
    pub(super) fn size(&self) -> usize {
        self.extent().size
    }

    /// Everything that either can be.
    pub(super) fn or(self, other: &Self) -> Self {
        let (left, right) = (self.slice(), other.slice());
        if right.is_empty() || std::ptr::eq(left, right) {
            return self;
        }
        if left.is_empty() {
            return other.clone();
        }
        let merged = merged(left, right);
        if merged.len() == left.len() {
            return self;
        }
        if merged.len() == right.len() {
            return other.clone();
        }
        Self::of(merged.into_iter().cloned().collect())
    }

    /// True when it can be everything that the other can be.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let (all, some) = (self.slice(), other.slice());
        std::ptr::eq(all, some) || some.iter().all(|one| all.binary_search(one).is_ok())
    }

    /// Everything that any of them can be.
    pub(super) fn any_of<'p>(all: impl IntoIterator<Item = &'p Self>) -> Self {
        let mut largest = &Self(None);
        let mut sorted: Vec<&Alternative> = Vec::new();
        for one in all {
            if one.slice().len() > largest.slice().len() {
                largest = one;
            }
            sorted.extend(one.iter());
        }
        sorted.sort();
        sorted.dedup();
        if sorted.len() == largest.slice().len() {
            return largest.clone();
        }
        Self::of(sorted.into_iter().cloned().collect())
    }

    /// The same value, or a single hole when there are too many alternatives.
    pub(super) fn bounded(self, holes: &mut Holes) -> Self {
        if self.slice().len() > MAX_ALTERNATIVES || !self.extent().is_followed() {
            return Self::hole(holes.because("a value with many alternatives"));
        }
        let is_hole = |alternative: &&Alternative| matches!(alternative, Alternative::Hole(_));
        if self.iter().filter(is_hole).count() < 2 {
            return self;
        }
        let mut is_first = true;
        let kept = self
            .iter()
            .filter(|alternative| !is_hole(alternative) || std::mem::take(&mut is_first));
        Self::of(kept.cloned().collect())
    }
}

/// Everything a variable can be after an assignment. Each key that is set doubles the number of maps that it can be;
/// when there are too many, they are merged into one in which each key can be everything that it is in any of them.
pub(super) fn assigned(known: Possible, value: &Possible, holes: &mut Holes) -> Possible {
    let all = known.or(value);
    if all.slice().len() <= MAX_ASSIGNED && all.extent().is_followed() {
        return all;
    }
    let joined = joined(all.iter());
    if joined.slice().len() <= MAX_ASSIGNED && joined.extent().is_followed() {
        return joined;
    }
    joined.bounded(holes)
}

/// Merges all maps into one with the keys of all; alternatives that are not maps are kept.
pub(super) fn joined<'a>(all: impl Iterator<Item = &'a Alternative>) -> Possible {
    let mut map: BTreeMap<String, Possible> = BTreeMap::new();
    let mut others = Vec::new();
    for alternative in all {
        match alternative {
            Alternative::Map(one) => {
                for (key, value) in one.iter() {
                    let known = map.entry(key.clone()).or_default();
                    *known = std::mem::take(known).or(value);
                }
            }
            other => others.push(other.clone()),
        }
    }
    if !map.is_empty() {
        others.push(Alternative::Map(Rc::new(map).into()));
    }
    others.into_iter().collect()
}

/// Merges two sorted lists.
fn merged<'a>(mut left: &'a [Alternative], mut right: &'a [Alternative]) -> Vec<&'a Alternative> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    while let ([first, rest @ ..], [other, others @ ..]) = (left, right) {
        let order = first.cmp(other);
        merged.push(if order.is_gt() { other } else { first });
        if order.is_le() {
            left = rest;
        }
        if order.is_ge() {
            right = others;
        }
    }
    merged.extend(left);
    merged.extend(right);
    merged
}

impl FromIterator<Alternative> for Possible {
    fn from_iter<I: IntoIterator<Item = Alternative>>(alternatives: I) -> Self {
        let mut sorted: Vec<Alternative> = alternatives.into_iter().collect();
        sorted.sort();
        sorted.dedup();
        Self::of(sorted)
    }
}
