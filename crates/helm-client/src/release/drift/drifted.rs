//! What differs between an object of a release and what was applied.

use cluster::ObjectId;
use cluster::fields::Path;
use jiff::Timestamp;
use serde_json::Value;

use super::policy::Mode;

/// An object of a release that differs from what was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftedObject {
    /// Which object it is.
    pub object: ObjectId,
    /// What to do about an object that was removed; `None` when it exists.
    pub removed: Option<Mode>,
    /// The fields that differ.
    pub paths: Vec<DriftedPath>,
    /// Fields that differ as well, but that the policy ignores. They stay as they are when others are corrected.
    pub ignored: Vec<Path>,
}

/// A field of an object that differs from what was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftedPath {
    /// Where it is.
    pub path: Path,
    /// Its wanted value; `None` when the field was added.
    pub wanted: Option<Value>,
    /// Its actual value; `None` when the field was removed.
    pub actual: Option<Value>,
    /// Who set it, if known: removing a field leaves no trace.
    pub manager: Option<String>,
    /// When that manager last wrote.
    pub time: Option<Timestamp>,
    /// What to do about it.
    pub mode: Mode,
}

impl DriftedObject {
    /// True when something in it has to be corrected.
    pub fn is_to_be_corrected(&self) -> bool {
        let is_correct = |mode: Mode| mode == Mode::Correct;
        self.removed.is_some_and(is_correct) || self.paths.iter().any(|path| is_correct(path.mode))
    }

    /// The part of it that is corrected; `None` if nothing is.
    #[must_use]
    pub fn corrected(&self) -> Option<Self> {
        let mut part = self.clone();
        part.paths.retain(|path| path.mode == Mode::Correct);
        part.is_to_be_corrected().then_some(part)
    }

    /// True when something in it differs and is left alone.
    pub(super) fn leaves_some(&self) -> bool {
        !self.ignored.is_empty() || self.paths.iter().any(|path| path.mode != Mode::Correct)
    }
}

impl DriftedPath {
    /// The most bytes of memory that it takes.
    pub(super) fn size(&self) -> usize {
        let values = [&self.wanted, &self.actual].into_iter().flatten();
        let values: usize = values.map(|value| value.to_string().len()).sum();
        let manager = self.manager.as_ref().map_or(0, String::len);
        // Every step of a path, and every value in a value, has a character of its own.
        size_of::<Self>() + (self.path.to_string().len() + values) * size_of::<Value>() + manager
    }
}

/// In one line: `ConfigMap shop/a: .data.size by kubectl-edit at 2026-01-01T00:00:00Z`.
impl std::fmt::Display for DriftedObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.object)?;
        if self.removed.is_some() {
            return f.write_str(" is gone");
        }
        for (place, path) in self.paths.iter().enumerate() {
            write!(f, "{} {path}", if place == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// `.data.size changed by kubectl-edit at 2026-01-01T00:00:00Z`.
impl std::fmt::Display for DriftedPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = match (&self.wanted, &self.actual) {
            (None, _) => "added",
            (Some(_), None) => "removed",
            (Some(_), Some(_)) => "changed",
        };
        write!(f, "{} {how}", self.path)?;
        if let Some(manager) = &self.manager {
            write!(f, " by {manager}")?;
        }
        if let Some(time) = self.time {
            write!(f, " at {time}")?;
        }
        Ok(())
    }
}
