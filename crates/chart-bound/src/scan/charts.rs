//! The charts of a tree: their files, their default values, and what their schemas allow.

use std::cell::OnceCell;

use helm::chart::Chart;
use serde_json::{Map, Value};

use super::possible::ChartIndex;

/// One chart of the tree. A chart that is declared twice, under two names, is listed twice.
pub(super) struct ChartNode<'c> {
    pub(super) chart: &'c Chart,
    /// Names from the root chart down to this one.
    names: Vec<String>,
    /// Charts from the root down to and including this one.
    line: Vec<ChartIndex>,
    /// Its `values.yaml`.
    values: Map<String, Value>,
    /// Its default values, with those that the charts above it give it.
    effective: OnceCell<Map<String, Value>>,
    schema: Option<Value>,
}

impl ChartNode<'_> {
    /// The path that its file names begin with, as in `# Source:`.
    pub(super) fn path(&self) -> String {
        self.names.join("/charts/")
    }

    /// The name it is declared under.
    pub(super) fn name(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }
}

/// At most this many charts are looked at. A dependency counts once for each name that it is declared under, so their
/// number can double with each level.
pub(super) const MAX_CHARTS: usize = 500;

/// A chart and all charts below it, enabled or not; and whether the list is complete.
pub(super) fn all(chart: &Chart) -> (Vec<ChartNode<'_>>, bool) {
    let mut nodes = Vec::new();
    add(chart, chart.name(), &[], &[], &mut nodes);
    let is_complete = nodes.len() <= MAX_CHARTS;
    nodes.truncate(MAX_CHARTS);
    (nodes, is_complete)
}

fn add<'c>(
    chart: &'c Chart,
    name: &str,
    names: &[String],
    line: &[ChartIndex],
    nodes: &mut Vec<ChartNode<'c>>,
) {
    if nodes.len() > MAX_CHARTS {
        return;
    }
    let index = nodes.len();
    let names = [names, &[name.to_owned()]].concat();
    let line = [line, &[index]].concat();
    nodes.push(ChartNode {
        chart,
        names: names.clone(),
        line: line.clone(),
        values: chart.values(),
        effective: OnceCell::new(),
        schema: chart
            .schema()
            .and_then(|schema| serde_json::from_slice(schema).ok()),
    });
    for subchart in chart.dependencies() {
        let declared = chart.metadata().dependencies.iter().flatten();
        let mut aliases: Vec<&str> = declared
            .filter(|dependency| dependency.name == subchart.name())
            .map(|dependency| {
                if dependency.alias.is_empty() {
                    dependency.name.as_str()
                } else {
                    dependency.alias.as_str()
                }
            })
            .collect();
        if aliases.is_empty() {
            aliases.push(subchart.name());
        }
        aliases.sort_unstable();
        aliases.dedup();
        for alias in aliases {
            add(subchart, alias, &names, &line, nodes);
        }
    }
}

/// What the `values.yaml` of the chart and of the charts above it have at a path.
pub(super) fn defaults<'v>(nodes: &'v [ChartNode<'_>], index: ChartIndex, path: &[String]) -> Defaults<'v> {
    let node = &nodes[index];
    let mut defaults = Defaults::default();
    for (depth, &above) in node.line.iter().enumerate() {
        let values = &nodes[above].values;
        let full: Vec<&str> = node.names[depth + 1..]
            .iter()
            .chain(path)
            .map(String::as_str)
            .collect();
        defaults.at(values, &full);
        if path.first().is_some_and(|key| key == "global") {
            defaults.at(values, &full[full.len() - path.len()..]);
        }
    }
    defaults
}

/// The values that a chart has if nobody sets any.
pub(super) fn effective<'v>(nodes: &'v [ChartNode<'_>], index: ChartIndex) -> &'v Map<String, Value> {
    let node = &nodes[index];
    node.effective.get_or_init(|| {
        let mut values = node.values.clone();
        let above = node.line.iter().rev().nth(1);
        let Some(above) = above.map(|&above| effective(nodes, above)) else {
            return values;
        };
        if let Some(Value::Object(given)) = above.get(node.name()) {
            helm::values::merge(&mut values, given.clone());
        }
        values
    })
}

/// What [`effective`] has at a path. Of the globals, the uppermost chart's that has them counts.
pub(super) fn effective_at<'v>(
    nodes: &'v [ChartNode<'_>],
    index: ChartIndex,
    path: &[String],
) -> Defaults<'v> {
    let full: Vec<&str> = path.iter().map(String::as_str).collect();
    let mut defaults = Defaults::default();
    let is_global = full.first() == Some(&"global");
    let above = nodes[index]
        .line
        .iter()
        .filter(|&&above| is_global && above != index);
    for chart in above.chain([&index]) {
        if defaults.found.is_empty() {
            defaults.at(effective(nodes, *chart), &full);
        }
    }
    defaults
}

/// Values found at a path.
#[derive(Default)]
pub(super) struct Defaults<'v> {
    /// What was found.
    pub(super) found: Vec<&'v Value>,
    /// How many values were looked at on the way.
    pub(super) visited: usize,
}

impl<'v> Defaults<'v> {
    fn at(&mut self, values: &'v Map<String, Value>, path: &[&str]) {
        let Some((key, rest)) = path.split_first() else {
            return;
        };
        if *key == "*" {
            for value in values.values() {
                self.below(value, rest);
            }
        } else if let Some(value) = values.get(*key) {
            self.below(value, rest);
        }
    }

    fn below(&mut self, value: &'v Value, path: &[&str]) {
        self.visited += 1;
        match (path.split_first(), value) {
            (None, value) => self.found.push(value),
            (Some(_), Value::Object(map)) => self.at(map, path),
            (Some((&"*", rest)), Value::Array(items)) => {
                for item in items {
                    self.below(item, rest);
                }
            }
            (Some((index, rest)), Value::Array(items)) => {
                if let Some(item) = index.parse().ok().and_then(|index: usize| items.get(index)) {
                    self.below(item, rest);
                }
            }
            _ => {}
        }
    }
}

/// The texts that the chart's schema allows at a path, when it lists them all.
pub(super) fn listed(nodes: &[ChartNode<'_>], index: ChartIndex, path: &[String]) -> Option<Vec<String>> {
    let mut at = nodes[index].schema.as_ref()?;
    for key in path {
        at = if key == "*" {
            at.get("items").or_else(|| at.get("additionalProperties"))?
        } else {
            at.get("properties")?.get(key)?
        };
    }
    let listed = at.get("enum")?.as_array()?;
    listed
        .iter()
        .map(|text| text.as_str().map(str::to_owned))
        .collect()
}
