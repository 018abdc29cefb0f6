//! A chart with its dependencies resolved for given values: aliases applied, disabled subcharts removed, values
//! imported (Helm's `pkg/chart/v2/util/dependencies.go`).

use gotemplate::value::{Map, Value as GoValue};
use serde_json::Value;

use super::{Chart, Crd, Dependency, File, Metadata, is_crd};
use crate::{
    line::HelmLine,
    semver,
    values::{
        as_table,
        coalesce::{self, Error},
    },
};

/// A chart as one release sees it. Its default values, including those of its subcharts, belong to one thread.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedChart<'c> {
    /// The chart as loaded.
    pub(crate) chart: &'c Chart,
    /// The line of Helm whose rules apply.
    pub(crate) helm: HelmLine,
    /// Its metadata, with the alias as name and, once resolved, only the enabled dependencies.
    pub(crate) metadata: Metadata,
    /// Its default values, once resolved merged with those of its declared subcharts.
    pub(crate) values: Map,
    /// Its enabled subcharts.
    pub(crate) dependencies: Vec<ResolvedChart<'c>>,
}

/// Maximum number of charts below a chart, where a chart counts once for each name it is declared under and for each
/// chart that contains it. The number can double with each level of dependencies; the largest public charts have a
/// few hundred.
const MAX_CHARTS: usize = 5000;

/// Maximum size in bytes of the values of all these charts; the globals count for each chart. This comes on top of
/// the memory that the templates of a render may use.
const MAX_VALUES: usize = 64 << 20;

/// What remains of these limits while the charts below a chart are resolved.
#[derive(Debug, Clone, Copy)]
struct Room {
    charts: usize,
    values: usize,
    /// The size of the globals, which every chart gets.
    globals: usize,
}

impl Room {
    fn new(chart: &Chart, user: &Map) -> Self {
        let globals = [&Map::frozen(chart.values.clone()), user]
            .map(|values| values.get(coalesce::GLOBAL).map_or(0, |globals| memory(&globals)));
        Self {
            charts: MAX_CHARTS,
            values: MAX_VALUES,
            globals: globals
                .iter()
                .fold(0, |sum, globals| sum.saturating_add(*globals)),
        }
    }

    /// Takes the share of a copy of a chart, including the charts below it.
    fn take(&mut self, chart: &ResolvedChart<'_>) -> Result<(), Error> {
        let charts = self.charts.checked_sub(1);
        self.charts = charts.ok_or(Error::TooManyCharts(MAX_CHARTS))?;
        let size = memory(&GoValue::Map(chart.values.clone())).saturating_add(self.globals);
        let values = self.values.checked_sub(size);
        self.values = values.ok_or(Error::ValuesTooLarge(MAX_VALUES))?;
        chart.dependencies.iter().try_for_each(|chart| self.take(chart))
    }
}

fn memory(value: &GoValue) -> usize {
    value.weight(MAX_VALUES).memory()
}

impl<'c> ResolvedChart<'c> {
    /// Resolves the dependencies of a chart for a user's values.
    ///
    /// Undeclared subcharts come first, in the order of their folders, then declared ones in the order of their
    /// declarations. A chart without declarations keeps all its subcharts, and those are not resolved either.
    ///
    /// # Errors
    /// When a subchart's values are not a table, or when there are too many charts or values.
    pub(crate) fn new(
        chart: &'c Chart,
        user: &Map,
        helm: HelmLine,
        warnings: &mut Vec<String>,
    ) -> Result<Self, Error> {
        let mut resolved = Self::unresolved(chart, helm);
        resolved.enable(user, "", &mut Room::new(chart, user), warnings)?;
        resolved.import_values(warnings)?;
        Ok(resolved)
    }

    fn unresolved(chart: &'c Chart, helm: HelmLine) -> Self {
        let subcharts = chart.dependencies.iter();
        Self {
            chart,
            helm,
            metadata: chart.metadata.clone(),
            values: Map::frozen(chart.values.clone()),
            dependencies: subcharts
                .map(|subchart| Self::unresolved(subchart, helm))
                .collect(),
        }
    }

    /// Its name in the parent: the alias if it has one.
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The templates that are used: of a library chart only those whose names start with an underscore.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &'c File> + use<'c> {
        let is_library = self.metadata.is_library();
        let is_partial = |file: &&File| {
            file.name
                .rsplit('/')
                .next()
                .is_some_and(|base| base.starts_with('_'))
        };
        self.chart
            .templates
            .iter()
            .filter(move |file| !is_library || is_partial(file))
    }

    /// The files below `crds/` of the chart and its subcharts, under their full paths.
    pub(crate) fn crds(&self) -> Vec<Crd> {
        let mut crds = Vec::new();
        self.collect_crds(self.name(), &mut crds);
        crds
    }

    fn collect_crds(&self, path: &str, crds: &mut Vec<Crd>) {
        let own = self.chart.files.iter().filter(|file| is_crd(&file.name));
        crds.extend(own.map(|file| Crd {
            path: format!("{path}/{}", file.name),
            data: file.data.clone(),
        }));
        for subchart in &self.dependencies {
            subchart.collect_crds(&format!("{path}/charts/{}", subchart.name()), crds);
        }
    }

    fn enable(
        &mut self,
        user: &Map,
        path: &str,
        room: &mut Room,
        warnings: &mut Vec<String>,
    ) -> Result<(), Error> {
        let Some(mut declared) = self.metadata.dependencies.take() else {
            return Ok(());
        };
        self.dependencies = self.matched(&declared, room)?;
        for dependency in &mut declared {
            if !dependency.alias.is_empty() {
                dependency.name.clone_from(&dependency.alias);
            }
            dependency.enabled = true;
        }
        let coalesced = coalesce::coalesce(self, user, warnings)?;
        apply_tags(&mut declared, &coalesced, warnings);
        apply_conditions(&mut declared, &coalesced, path, warnings);

        // A disabled name removes all subcharts of that name, including undeclared ones.
        let disabled: Vec<String> = declared
            .iter()
            .filter(|dependency| !dependency.enabled)
            .map(|dependency| dependency.name.clone())
            .collect();
        self.dependencies
            .retain(|subchart| !disabled.iter().any(|name| name == subchart.name()));
        declared.retain(|dependency| !disabled.contains(&dependency.name));
        for subchart in &mut self.dependencies {
            let path = format!("{path}{}.", subchart.name());
            subchart.enable(&coalesced, &path, room, warnings)?;
        }
        // If none are left, this is Go's nil slice: no values are imported then.
        self.metadata.dependencies = Some(declared).filter(|declared| !declared.is_empty());
        Ok(())
    }

    /// The loaded subcharts without a declaration, then for each declaration the first chart that matches it.
    fn matched(&self, declared: &[Dependency], room: &mut Room) -> Result<Vec<ResolvedChart<'c>>, Error> {
        let fits = |subchart: &Self, dependency: &Dependency| {
            subchart.name() == dependency.name
                && semver::satisfies(&dependency.version, &subchart.metadata.version).unwrap_or(false)
        };
        let loaded = &self.dependencies;
        let undeclared = loaded
            .iter()
            .filter(|subchart| !declared.iter().any(|dependency| fits(subchart, dependency)));
        let mut matched = Vec::new();
        for subchart in undeclared {
            room.take(subchart)?;
            matched.push(subchart.clone());
        }
        for dependency in declared {
            let Some(subchart) = loaded.iter().find(|subchart| fits(subchart, dependency)) else {
                continue;
            };
            room.take(subchart)?;
            let mut subchart = subchart.clone();
            if !dependency.alias.is_empty() {
                subchart.metadata.name.clone_from(&dependency.alias);
            }
            matched.push(subchart);
        }
        Ok(matched)
    }

    /// Merges the defaults of subcharts into those of the chart, innermost first.
    fn import_values(&mut self, warnings: &mut Vec<String>) -> Result<(), Error> {
        for subchart in &mut self.dependencies {
            subchart.import_values(warnings)?;
        }
        let Some(mut declared) = self.metadata.dependencies.take() else {
            return Ok(());
        };
        let defaults = coalesce::defaults(self, warnings)?;
        let imported = Map::new();
        for dependency in &mut declared {
            import(dependency, &defaults, &imported, warnings)?;
        }
        // Imported values share tables with the defaults, so they are copied before the two are merged.
        let GoValue::Map(values) = GoValue::Map(defaults).deep_copy()? else {
            return Ok(());
        };
        coalesce::merge_tables(&values, &imported, warnings)?;
        // Frozen, because every use of them starts with a copy.
        self.values = Map::frozen(values.freeze());
        self.metadata.dependencies = Some(declared);
        Ok(())
    }
}

/// Enables and disables by the `tags` table of the root's values: one true tag enables, otherwise one false tag
/// disables.
fn apply_tags(declared: &mut [Dependency], values: &Map, warnings: &mut Vec<String>) {
    let Some(tags) = table(values, "tags") else { return };
    for dependency in declared {
        let mut any_true = false;
        let mut any_false = false;
        for tag in &dependency.tags {
            match tags.get(tag) {
                None => {}
                Some(GoValue::Bool(true)) => any_true = true,
                Some(GoValue::Bool(false)) => any_false = true,
                Some(_) => warnings.push(format!(
                    "returned non-bool value: tag {tag} of chart {}",
                    dependency.name
                )),
            }
        }
        dependency.enabled = any_true || !any_false;
    }
}

/// Enables and disables by conditions, which take precedence over tags: the first path that contains a boolean
/// decides.
///
/// Paths are separated by commas and are not trimmed, as in Helm.
fn apply_conditions(declared: &mut [Dependency], values: &Map, path: &str, warnings: &mut Vec<String>) {
    for dependency in declared {
        for condition in dependency
            .condition
            .trim()
            .split(',')
            .filter(|condition| !condition.is_empty())
        {
            match scalar(values, &format!("{path}{condition}")) {
                None => {}
                Some(GoValue::Bool(enabled)) => {
                    dependency.enabled = enabled;
                    break;
                }
                Some(_) => {
                    warnings.push(format!(
                        "returned non-bool value: path {condition} of chart {}",
                        dependency.name
                    ));
                }
            }
        }
    }
}

/// Imports the values exported by one dependency into the table of imported values, and expands its import list.
fn import(
    dependency: &mut Dependency,
    defaults: &Map,
    imported: &Map,
    warnings: &mut Vec<String>,
) -> Result<(), Error> {
    let mut spelled_out = Vec::new();
    for wanted in std::mem::take(&mut dependency.import_values) {
        let (child, parent) = match &wanted {
            Value::Object(pair) => (plain(pair.get("child")), plain(pair.get("parent"))),
            Value::String(name) => (format!("exports.{name}"), ".".to_owned()),
            _ => continue,
        };
        match table(defaults, &format!("{}.{child}", dependency.name)) {
            Some(found) => coalesce::merge_tables(imported, &placed_at(&parent, found), warnings)?,
            None => warnings.push(format!(
                "ImportValues missing table {child} from chart {}",
                dependency.name
            )),
        }
        spelled_out.push(serde_json::json!({ "child": child, "parent": parent }));
    }
    dependency.import_values = spelled_out;
    Ok(())
}

/// A scalar as Go's `%v` prints it.
fn plain(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "<nil>".to_owned(),
        Some(value) => super::decode::scalar_text(value).unwrap_or_else(|| value.to_string()),
    }
}

/// Wraps a table so that it ends up at a path; `.` is the root.
fn placed_at(path: &str, table: Map) -> Map {
    if path == "." {
        return table;
    }
    path.rsplit('.').fold(table, |inner, key| {
        [(key, GoValue::Map(inner))].into_iter().collect()
    })
}

/// The table at a path of keys separated by dots.
pub(crate) fn table(values: &Map, path: &str) -> Option<Map> {
    let mut table = values.clone();
    for key in path.split('.') {
        let next = table.get(key)?;
        table = as_table(&next)?.clone();
    }
    Some(table)
}

/// The value at a path of keys separated by dots, unless it is a table.
fn scalar(values: &Map, path: &str) -> Option<GoValue> {
    let (table, key) = match path.rsplit_once('.') {
        Some((folder, key)) => (table(values, folder)?, key),
        None => (values.clone(), path),
    };
    table.get(key).filter(|value| as_table(value).is_none())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "goldens are files")]
mod tests {
    use serde_json::{Map as Table, json};

    use super::*;
    use crate::{chart::Limits, values};

    /// The files of a case, separated by headings `-- path --`, and the user's values.
    fn read(case: &str) -> (Vec<File>, Vec<u8>) {
        let mut files: Vec<(&str, Vec<u8>)> = Vec::new();
        for line in case.split_inclusive('\n') {
            if let Some(heading) = line.strip_prefix("-- ") {
                files.push((heading.trim_end().trim_end_matches(" --"), Vec::new()));
            } else if let Some((_, data)) = files.last_mut() {
                data.extend_from_slice(line.as_bytes());
            }
        }
        let (user, files): (Vec<_>, Vec<_>) = files.into_iter().partition(|(name, _)| *name == "user.yaml");
        let files = files.into_iter().map(|(name, data)| File::new(name, data));
        (files.collect(), user.into_iter().next().unwrap_or_default().1)
    }

    fn chain(error: &dyn std::error::Error) -> String {
        match error.source() {
            Some(source) => format!("{error}: {}", chain(source)),
            None => error.to_string(),
        }
    }

    /// The path of each chart with its declared dependencies.
    fn tree(chart: &ResolvedChart<'_>, path: &str) -> Vec<Value> {
        let declared = serde_json::to_string(&chart.metadata.dependencies).unwrap();
        let mut all = vec![Value::from(format!("{path} {declared}"))];
        for subchart in &chart.dependencies {
            all.extend(tree(subchart, &format!("{path}/charts/{}", subchart.name())));
        }
        all
    }

    fn run(case: &str) -> Result<Value, String> {
        let (files, user) = read(case);
        let chart = Chart::from_files(files, &Limits::default()).map_err(|error| chain(&error))?;
        let user = values::to_map(&values::read(&user).map_err(|error| chain(&error))?);
        let mut warnings = Vec::new();
        let resolved = ResolvedChart::new(&chart, &user, HelmLine::Four, &mut warnings)
            .map_err(|error| error.to_string())?;
        let values =
            coalesce::coalesce(&resolved, &user, &mut warnings).map_err(|error| error.to_string())?;
        let mut outcome = Table::new();
        outcome.insert("charts".to_owned(), Value::from(tree(&resolved, chart.name())));
        for (name, values) in [("defaults", &resolved.values), ("values", &values)] {
            if !values.is_empty() {
                outcome.insert(name.to_owned(), Value::Object(values::json_map(&values.freeze())));
            }
        }
        Ok(Value::Object(outcome))
    }

    #[test]
    fn charts_are_resolved_as_helm_resolves_them() {
        let folder = format!("{}/tests/goldens/resolve", env!("CARGO_MANIFEST_DIR"));
        let golden = std::fs::read_to_string(format!("{folder}/golden.jsonl")).unwrap();
        let mut differences = Vec::new();
        for line in golden.lines() {
            // Go escapes these characters in strings that are JSON themselves; serde does not.
            let line = line.replace("\\\\u003c", "<").replace("\\\\u003e", ">");
            let mut expected: Table<String, Value> = serde_json::from_str(&line).unwrap();
            let name = expected.remove("case").unwrap();
            let name = name.as_str().unwrap();
            let case = std::fs::read_to_string(format!("{folder}/cases/{name}.txt")).unwrap();
            let expected = match expected.get("error") {
                Some(error) => json!({ "error": error }),
                None => values::with_floats(Value::Object(expected)),
            };
            let found = run(&case).unwrap_or_else(|error| json!({ "error": error }));
            if found != expected {
                differences.push(format!("{name}:\n  found    {found}\n  expected {expected}"));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}
