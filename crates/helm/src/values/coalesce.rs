//! Merges the user's values over a chart's defaults, and those of its subcharts (Helm's
//! `pkg/chart/common/util/coalesce.go`).
//!
//! The resulting maps are shared where Helm shares them: a table below `global` is the same object in parent and
//! subchart, so a template that changes it changes both.

use gotemplate::{
    format,
    string::Str,
    value::{Map, TooDeep, Value},
};

use super::as_table;
use crate::{chart::ResolvedChart, line::HelmLine};

/// The key of the values that every subchart sees.
pub(crate) const GLOBAL: &str = "global";

/// Why values could not be coalesced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The values have another type where a subchart's table is expected.
    #[error("type mismatch on {subchart}: {found}")]
    NotATable {
        /// The subchart.
        subchart: String,
        /// The value, as Go prints it.
        found: String,
    },
    /// The chart has too many subcharts, including nested ones.
    #[error(
        "the chart has more than {0} subcharts, where each counts once for every name it is declared under and for \
         every chart that contains it"
    )]
    TooManyCharts(usize),
    /// The values of all these charts are too large.
    #[error(
        "the values of the subcharts take more than {} MiB, where each subchart counts once for every name it is \
         declared under",
        .0 >> 20
    )]
    ValuesTooLarge(usize),
    /// The values are nested endlessly.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// A value that a message would quote cannot be printed.
    #[error(transparent)]
    Print(#[from] format::Error),
}

/// How nulls are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nulls {
    /// They delete their key.
    Delete,
    /// They stay.
    Keep,
}

/// Merges the user's values over the defaults of a chart and its subcharts; nulls delete.
///
/// The user's values are copied first. Warnings are appended in Helm's words.
///
/// # Errors
/// When a subchart's values are not a table.
pub(crate) fn coalesce(
    chart: &ResolvedChart<'_>,
    values: &Map,
    warnings: &mut Vec<String>,
) -> Result<Map, Error> {
    Coalescing { warnings }.start(chart, values, Nulls::Delete)
}

/// The defaults of a chart and its subcharts, including nulls.
///
/// # Errors
/// When a subchart's values are not a table.
pub(crate) fn defaults(chart: &ResolvedChart<'_>, warnings: &mut Vec<String>) -> Result<Map, Error> {
    Coalescing { warnings }.start(chart, &Map::new(), Nulls::Keep)
}

/// Adds missing entries to a table; nulls are kept. Tables are changed in place and shared, as in Helm.
pub(crate) fn merge_tables(onto: &Map, from: &Map, warnings: &mut Vec<String>) -> Result<(), Error> {
    Coalescing { warnings }.tables(onto, from, "", Nulls::Keep)
}

struct Coalescing<'w> {
    warnings: &'w mut Vec<String>,
}

impl Coalescing<'_> {
    fn start(&mut self, chart: &ResolvedChart<'_>, values: &Map, nulls: Nulls) -> Result<Map, Error> {
        let values = deep_copy(values)?;
        self.chart(chart, &values, "", nulls)?;
        Ok(values)
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }

    fn chart(
        &mut self,
        chart: &ResolvedChart<'_>,
        values: &Map,
        prefix: &str,
        nulls: Nulls,
    ) -> Result<(), Error> {
        self.own_defaults(chart, values, prefix, nulls)?;
        self.subcharts(chart, values, prefix, nulls)
    }

    fn own_defaults(
        &mut self,
        chart: &ResolvedChart<'_>,
        values: &Map,
        prefix: &str,
        nulls: Nulls,
    ) -> Result<(), Error> {
        let prefix = join(prefix, chart.name());
        let defaults = deep_copy(&chart.values)?;
        for (key, default) in defaults.entries() {
            match values.get(&key) {
                Some(Value::Nil) if nulls == Nulls::Delete => {
                    values.remove(&key);
                }
                Some(given) => self.over_default(chart, &key, &given, &default, &prefix, nulls)?,
                None => {
                    if nulls == Nulls::Delete && chart.helm == HelmLine::Four {
                        // A null default would hide a global or print as `<nil>`.
                        if matches!(default, Value::Nil) {
                            continue;
                        }
                        remove_nulls(&default);
                    }
                    values.insert(key, default);
                }
            }
        }
        Ok(())
    }

    fn over_default(
        &mut self,
        chart: &ResolvedChart<'_>,
        key: &Str,
        given: &Value,
        default: &Value,
        prefix: &str,
        nulls: Nulls,
    ) -> Result<(), Error> {
        let Some(given) = as_table(given) else {
            return Ok(());
        };
        let Some(table) = as_table(default) else {
            if !matches!(default, Value::Nil) {
                self.warn(format!("warning: skipped value for {prefix}.{key}: Not a table."));
            }
            return Ok(());
        };
        // Below a subchart's name nulls must be kept: they delete the subchart's own defaults in the next step.
        let is_subchart = chart.dependencies.iter().any(|subchart| *key == subchart.name());
        let nulls = if is_subchart { Nulls::Keep } else { nulls };
        if nulls == Nulls::Delete && chart.helm == HelmLine::Four {
            remove_nulls(default);
        }
        self.tables(given, table, &join(prefix, &key.lossy()), nulls)
    }

    fn subcharts(
        &mut self,
        chart: &ResolvedChart<'_>,
        values: &Map,
        prefix: &str,
        nulls: Nulls,
    ) -> Result<(), Error> {
        for subchart in &chart.dependencies {
            let name = subchart.name();
            let given = values.get(name).unwrap_or_else(|| {
                let empty = Value::map();
                values.insert(name, empty.clone());
                empty
            });
            let Some(table) = as_table(&given) else {
                return Err(Error::NotATable {
                    subchart: name.to_owned(),
                    found: found(&given)?,
                });
            };
            let prefix = join(prefix, chart.name());
            self.globals(table, values, &prefix)?;
            self.chart(subchart, table, &prefix, nulls)?;
        }
        Ok(())
    }

    /// Merges a chart's globals over those of its subchart.
    fn globals(&mut self, onto: &Map, from: &Map, prefix: &str) -> Result<(), Error> {
        let Some(target) = table_or_empty(onto) else {
            self.warn(format!(
                "warning: skipping globals because destination {GLOBAL} is not a table."
            ));
            return Ok(());
        };
        let Some(source) = table_or_empty(from) else {
            self.warn(format!(
                "warning: skipping globals because source {GLOBAL} is not a table."
            ));
            return Ok(());
        };
        for (key, value) in source.entries() {
            let present = target.get(&key);
            match (as_table(&value), present) {
                (Some(table), None) => {
                    target.insert(key, Value::Map(shallow_copy(table)));
                }
                (Some(table), Some(present)) => match as_table(&present) {
                    Some(present) => {
                        let merged = shallow_copy(table);
                        // Nulls are always kept here: coalescing the subchart comes next and deletes them.
                        self.tables(&merged, present, &join(prefix, &key.lossy()), Nulls::Keep)?;
                        target.insert(key, Value::Map(merged));
                    }
                    None => self.warn(format!(
                        "Conflict: cannot merge map onto non-map for {key:?}. Skipping."
                    )),
                },
                (None, Some(present)) if as_table(&present).is_some() => {
                    self.warn(format!("key {key} is table. Skipping"));
                }
                (None, _) => {
                    target.insert(key, value);
                }
            }
        }
        onto.insert(GLOBAL, Value::Map(target));
        Ok(())
    }

    /// Adds the entries of `from` that `onto` lacks; `onto` takes precedence.
    fn tables(&mut self, onto: &Map, from: &Map, prefix: &str, nulls: Nulls) -> Result<(), Error> {
        // A chart's defaults already contain those of its subcharts, so most values compared here are equal.
        if onto.is_same_frozen(from) && !from.may_hold_nil() {
            return Ok(());
        }
        let had_value: Vec<Str> = from
            .borrow()
            .iter()
            .filter(|(_, value)| !matches!(value, Value::Nil))
            .map(|(key, _)| key.clone())
            .collect();
        for (key, value) in onto.entries() {
            if matches!(value, Value::Nil) {
                from.insert(key, Value::Nil);
            }
        }
        for (key, value) in from.entries() {
            let Some(present) = onto.get(&key) else {
                onto.insert(key, value);
                continue;
            };
            let erases = nulls == Nulls::Delete && matches!(present, Value::Nil);
            // A null without a default to erase is kept.
            if erases && had_value.binary_search(&key).is_ok() {
                onto.remove(&key);
                continue;
            }
            let full = || join(prefix, &key.lossy());
            match (as_table(&present), as_table(&value)) {
                (Some(present), Some(value)) => self.tables(present, value, &full(), nulls)?,
                (None, Some(_)) => {
                    let text = format!(
                        "warning: cannot overwrite table with non table for {} ({})",
                        full(),
                        shown(&value)?
                    );
                    self.warn(text);
                }
                (Some(_), None) if !matches!(value, Value::Nil) => {
                    let text = format!(
                        "warning: destination for {} is a table. Ignoring non-table value ({})",
                        full(),
                        shown(&value)?
                    );
                    self.warn(text);
                }
                (Some(_) | None, None) => {}
            }
        }
        Ok(())
    }
}

fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() {
        name.to_owned()
    } else {
        format!("{prefix}.{name}")
    }
}

fn deep_copy(map: &Map) -> Result<Map, TooDeep> {
    match Value::Map(map.clone()).deep_copy()? {
        Value::Map(copy) => Ok(copy),
        _ => Ok(Map::new()),
    }
}

fn shallow_copy(map: &Map) -> Map {
    map.entries().into_iter().collect()
}

/// The `global` table of some values; a new one if there is none, `None` if it is not a table.
fn table_or_empty(values: &Map) -> Option<Map> {
    match values.get(GLOBAL) {
        None => Some(Map::new()),
        Some(global) => as_table(&global).cloned(),
    }
}

fn remove_nulls(value: &Value) {
    let Some(table) = as_table(value).filter(|table| table.may_hold_nil()) else {
        return;
    };
    for (key, value) in table.entries() {
        if matches!(value, Value::Nil) {
            table.remove(&key);
        } else {
            remove_nulls(&value);
        }
    }
}

/// A value as Go's `%t` prints it.
fn found(value: &Value) -> Result<String, format::Error> {
    let text = format::sprintf(b"%t", std::slice::from_ref(value))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A value as Go's `%v` prints it.
fn shown(value: &Value) -> Result<String, format::Error> {
    Ok(format::to_string(value)?.lossy().into_owned())
}
