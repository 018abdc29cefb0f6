//! What templates see: `.Values .Chart .Release .Capabilities .Files .Template .Subcharts`, and which templates there
//! are (the part of Helm's `engine.go` before parsing).

use std::{collections::BTreeMap, sync::LazyLock};

use gotemplate::{
    function::{self, Concrete, Functions, Receiver},
    string::Str,
    types::{self, Type},
    value::{Map, Value},
};

use super::chart_struct;
use crate::{
    chart::{Dependency, File, Metadata, ResolvedChart},
    files,
    line::HelmLine,
    values, yaml,
};

/// The type of `.Values`, of `.Template` and of the dot of a file: a map with a few methods.
static VALUES: Type = Type::map("common.Values", &types::INTERFACE)
    .defined_as(&types::MAP)
    .with_methods(&METHODS);
/// The same in Helm 3.
static VALUES_HELM_3: Type = Type::map("chartutil.Values", &types::INTERFACE)
    .defined_as(&types::MAP)
    .with_methods(&METHODS);

fn values_type(helm: HelmLine) -> &'static Type {
    match helm {
        HelmLine::Three => &VALUES_HELM_3,
        HelmLine::Four => &VALUES,
    }
}

static METHODS: LazyLock<Functions> = LazyLock::new(|| {
    let mut methods = Functions::default();
    methods.add("AsMap", |this: Receiver| -> Map {
        this.map().as_type(&types::MAP)
    });
    methods.add("YAML", |this: Receiver| -> Result<String, function::Error> {
        let text = yaml::to_yaml(&Value::Map(this.map())).map_err(function::Error::from_error)?;
        Ok(format!("{text}\n"))
    });
    methods.add(
        "Table",
        |this: Receiver, path: Str| -> Result<Concrete, function::Error> {
            let values = this.map();
            let table = table(&values, &path.lossy()).ok_or_else(|| no_table(&path))?;
            Ok(Concrete(Value::Map(table.as_type(values.ty()))))
        },
    );
    methods.add(
        "PathValue",
        |this: Receiver, path: Str| -> Result<Value, function::Error> {
            if path.is_empty() {
                return Err(function::Error::new("YAML path cannot be empty"));
            }
            path_value(&this.map(), &path.lossy()).ok_or_else(|| no_value(&path))
        },
    );
    methods
});

fn last_key(path: &Str) -> String {
    let path = path.lossy();
    path.rsplit('.').next().unwrap_or(&path).to_owned()
}

fn no_table(path: &Str) -> function::Error {
    function::Error::new(format!("{:?} is not a table", last_key(path)))
}

fn no_value(path: &Str) -> function::Error {
    function::Error::new(format!("{:?} is not a value", last_key(path)))
}

/// The table at a path of keys separated by dots.
fn table(map: &Map, path: &str) -> Option<Map> {
    let mut table = map.clone();
    for key in path.split('.') {
        // Unlike in values, tables of Helm's own type are accepted here.
        table = table.get(key)?.as_map()?.clone();
    }
    Some(table)
}

/// The value at a path of keys separated by dots, unless it is a table.
fn path_value(map: &Map, path: &str) -> Option<Value> {
    let (folder, key) = match path.rsplit_once('.') {
        Some((folder, key)) => (table(map, folder)?, key),
        None => (map.clone(), path),
    };
    folder.get(key).filter(|value| values::as_table(value).is_none())
}

/// The key of a chart's files in its dot.
pub(super) const FILES: &str = "Files";

/// Shared by all charts of a release.
pub(super) struct Shared {
    /// `.Release`.
    pub(super) release: Value,
    /// `.Capabilities`.
    pub(super) capabilities: Value,
    /// The line of Helm that determines their types.
    pub(super) helm: HelmLine,
}

/// A template with the dot of its chart.
pub(super) struct Template<'c> {
    pub(super) file: &'c File,
    /// The dot, shared by all files of a chart.
    pub(super) dot: Map,
    /// `.Template.BasePath`.
    pub(super) base_path: String,
}

/// The templates of a chart and its subcharts by their full paths.
pub(super) fn templates<'c>(
    chart: &ResolvedChart<'c>,
    values: &Map,
    shared: &Shared,
) -> BTreeMap<String, Template<'c>> {
    let mut templates = BTreeMap::new();
    collect(
        chart,
        chart.name(),
        &values.as_type(values_type(shared.helm)),
        true,
        shared,
        &mut templates,
    );
    templates
}

fn collect<'c>(
    chart: &ResolvedChart<'c>,
    path: &str,
    values: &Map,
    is_root: bool,
    shared: &Shared,
    templates: &mut BTreeMap<String, Template<'c>>,
) -> Map {
    let subcharts = Map::new();
    let dot = Map::with_type(values_type(shared.helm));
    let about = match shared.helm {
        HelmLine::Three => chart_struct::value(&chart.metadata, is_root),
        HelmLine::Four => metadata(&chart.metadata, is_root),
    };
    dot.insert("Chart", about);
    dot.insert(FILES, files::to_value(chart.chart.files()));
    dot.insert("Release", shared.release.clone());
    dot.insert("Capabilities", shared.capabilities.clone());
    dot.insert("Values", Value::Map(values.clone()));
    dot.insert("Subcharts", Value::Map(subcharts.clone()));
    for subchart in &chart.dependencies {
        let name = subchart.name();
        // A name with a dot is treated as a path, which finds nothing, and the subchart gets no values.
        let own = table(values, name)
            .unwrap_or_default()
            .as_type(values_type(shared.helm));
        let scope = collect(
            subchart,
            &format!("{path}/charts/{name}"),
            &own,
            false,
            shared,
            templates,
        );
        subcharts.insert(name, Value::Map(scope.as_type(&types::MAP)));
    }
    for file in chart.templates() {
        let template = Template {
            file,
            dot: dot.clone(),
            base_path: format!("{path}/templates"),
        };
        templates.insert(format!("{path}/{}", file.name), template);
    }
    dot
}

/// `.Template`: the file being rendered.
pub(super) fn template(name: &str, base_path: &str, helm: HelmLine) -> Value {
    let template: Map = [("Name", Value::from(name)), ("BasePath", Value::from(base_path))]
        .into_iter()
        .collect();
    Value::Map(template.as_type(values_type(helm)))
}

/// `.Chart` of Helm 4: the fields under their Go names, including empty ones.
fn metadata(metadata: &Metadata, is_root: bool) -> Value {
    // All fields are listed, so that a new one is not forgotten here.
    let Metadata {
        name,
        home,
        sources,
        version,
        description,
        keywords,
        maintainers,
        icon,
        api_version,
        condition,
        tags,
        app_version,
        deprecated,
        annotations,
        kube_version,
        dependencies,
        chart_type,
    } = metadata;
    let maintainers = maintainers.iter().map(|maintainer| {
        table_of([
            ("Name", &maintainer.name),
            ("Email", &maintainer.email),
            ("URL", &maintainer.url),
        ])
    });
    let annotations = if annotations.is_empty() {
        Map::nil(&types::STRING_MAP)
    } else {
        let entries = annotations
            .iter()
            .map(|(key, value)| (Str::from(key), Value::from(value)));
        Map::from_entries(&types::STRING_MAP, entries.collect())
    };
    let map: Map = [
        ("Name", Value::from(name)),
        ("Home", Value::from(home)),
        ("Sources", texts(sources)),
        ("Version", Value::from(version)),
        ("Description", Value::from(description)),
        ("Keywords", texts(keywords)),
        ("Maintainers", Value::list(maintainers)),
        ("Icon", Value::from(icon)),
        ("APIVersion", Value::from(api_version)),
        ("Condition", Value::from(condition)),
        ("Tags", Value::from(tags)),
        ("AppVersion", Value::from(app_version)),
        ("Deprecated", Value::from(*deprecated)),
        ("Annotations", Value::Map(annotations)),
        ("KubeVersion", Value::from(kube_version)),
        (
            "Dependencies",
            Value::list(dependencies.iter().flatten().map(dependency)),
        ),
        ("Type", Value::from(chart_type)),
        ("IsRoot", Value::from(is_root)),
    ]
    .into_iter()
    .collect();
    Value::Map(map)
}

fn dependency(dependency: &Dependency) -> Value {
    let Dependency {
        name,
        version,
        repository,
        condition,
        tags,
        enabled,
        import_values,
        alias,
    } = dependency;
    let map: Map = [
        ("Name", Value::from(name)),
        ("Version", Value::from(version)),
        ("Repository", Value::from(repository)),
        ("Condition", Value::from(condition)),
        ("Tags", texts(tags)),
        ("Enabled", Value::from(*enabled)),
        (
            "ImportValues",
            Value::list(import_values.iter().map(values::to_value)),
        ),
        ("Alias", Value::from(alias)),
    ]
    .into_iter()
    .collect();
    Value::Map(map)
}

fn texts(texts: &[String]) -> Value {
    Value::list(texts.iter().map(Value::from))
}

fn table_of<const N: usize>(entries: [(&str, &String); N]) -> Value {
    Value::Map(entries.into_iter().collect())
}
