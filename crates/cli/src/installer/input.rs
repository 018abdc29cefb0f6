//! Reads the installer that a command line names: its chart or a file with its values, and the values given on top.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value};

use super::components::List;
use crate::args::{Source, Values};
use crate::{chart_at, values};

/// A chart, or a file with values.
pub(super) struct Input {
    /// The values of the chart or the file, overridden by those given on the command line.
    pub(super) values: Map<String, Value>,
}

impl Input {
    /// Reads it. A file that is not an archive contains values, which are used as they are: defaults are in the chart
    /// only.
    pub(super) fn read(target: &str, given: &Values, source: &Source) -> Result<Self> {
        let given = values::merged(given)?;
        let path = Path::new(target);
        let is_values = source.repo.is_none()
            && path.is_file()
            && path
                .extension()
                .is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known));
        if is_values {
            let text = std::fs::read(path).with_context(|| format!("could not read {target}"))?;
            let values =
                helm::values::read(&text).with_context(|| format!("{target} does not contain values"))?;
            return Ok(Self::of(values, given));
        }
        Ok(Self::of(chart_at::load(target, source)?.values(), given))
    }

    fn of(mut values: Map<String, Value>, given: Map<String, Value>) -> Self {
        helm::values::merge(&mut values, given);
        Self { values }
    }

    /// The components, if the list is valid.
    ///
    /// # Errors
    /// All faults, one per line.
    pub(super) fn components(&self) -> Result<List> {
        let (list, mut faults) = List::read(&self.values);
        faults.extend(list.faults());
        match &faults[..] {
            [] => Ok(list),
            [fault] => Err(anyhow::anyhow!("{fault}")),
            faults => Err(anyhow::anyhow!(
                "{} faults in components:\n  {}",
                faults.len(),
                faults.join("\n  ")
            )),
        }
    }
}
