//! The charts of a tree: their files, their default values, what their schemas allow.

use helm::chart::Chart;
use serde_json::{Map, Value};

use super::possible::ChartIndex;

/// One chart of the tree. A chart that is declared twice, under two names, is in the list twice.
pub(super) struct Place<'c> {
    pub(super) chart: &'c Chart,
    /// The names that lead to it, the root's first.
    names: Vec<String>,
    /// The charts on the way to it, the root first, itself last.
    line: Vec<ChartIndex>,
    /// Its `values.yaml`.
    values: Map<String, Value>,
    schema: Option<Value>,
}

impl Place<'_> {
    /// The path that its files begin with, as in `# Source:`.
    pub(super) fn path(&self) -> String {
        self.names.join("/charts/")
    }

    /// The name it goes by.
    pub(super) fn name(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }
}

/// A chart and all charts below it, whether enabled or not.
pub(super) fn all(chart: &Chart) -> Vec<Place<'_>> {
    let mut places = Vec::new();
    add(chart, chart.name(), &[], &[], &mut places);
    places
}

fn add<'c>(chart: &'c Chart, name: &str, names: &[String], line: &[ChartIndex], places: &mut Vec<Place<'c>>) {
    let index = places.len();
    let names = [names, &[name.to_owned()]].concat();
    let line = [line, &[index]].concat();
    places.push(Place {
        chart,
        names: names.clone(),
        line: line.clone(),
        values: chart.values(),
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
            add(subchart, alias, &names, &line, places);
        }
    }
}

/// What `values.yaml` of the chart, and those of the charts above it, say at a path.
pub(super) fn defaults<'v>(places: &'v [Place<'_>], index: ChartIndex, path: &[String]) -> Vec<&'v Value> {
    let place = &places[index];
    let mut found = Vec::new();
    for (depth, &above) in place.line.iter().enumerate() {
        let values = &places[above].values;
        let full: Vec<String> = place.names[depth + 1..].iter().chain(path).cloned().collect();
        at(values, &full, &mut found);
        if path.first().is_some_and(|key| key == "global") {
            at(values, path, &mut found);
        }
    }
    found
}

fn at<'v>(values: &'v Map<String, Value>, path: &[String], found: &mut Vec<&'v Value>) {
    let Some((key, rest)) = path.split_first() else {
        return;
    };
    let next: Vec<&Value> = if key == "*" {
        values.values().collect()
    } else {
        values.get(key).into_iter().collect()
    };
    for value in next {
        below(value, rest, found);
    }
}

fn below<'v>(value: &'v Value, path: &[String], found: &mut Vec<&'v Value>) {
    match (path.split_first(), value) {
        (None, value) => found.push(value),
        (Some(_), Value::Object(map)) => at(map, path, found),
        (Some((key, rest)), Value::Array(items)) if key == "*" => {
            for item in items {
                below(item, rest, found);
            }
        }
        _ => {}
    }
}

/// The texts that the chart's schema allows at a path, when it lists them all.
pub(super) fn listed(places: &[Place<'_>], index: ChartIndex, path: &[String]) -> Option<Vec<String>> {
    let mut at = places[index].schema.as_ref()?;
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
