//! `.Chart` of Helm 3: a struct with the fields of Go's `chart.Metadata`, and `IsRoot`. Accessing an unknown field is
//! an error, while Helm 4's map returns nothing.

use gotemplate::{
    string::Str,
    types::{self, Type},
    value::{List, Map, Object, Value},
};

use crate::{
    chart::{Dependency, Maintainer, Metadata},
    values,
};

static CHART: Type = Type::structure("struct { chart.Metadata; IsRoot bool }");
static METADATA: Type = Type::structure("chart.Metadata");
static MAINTAINER: Type = Type::pointer("*chart.Maintainer");
static MAINTAINERS: Type = Type::slice("[]*chart.Maintainer", &MAINTAINER);
static DEPENDENCY: Type = Type::pointer("*chart.Dependency");
static DEPENDENCIES: Type = Type::slice("[]*chart.Dependency", &DEPENDENCY);

/// A field of a Go struct: its name, its name in JSON, its value.
type Field = (&'static str, &'static str, Value);

/// `.Chart`.
pub(super) fn value(metadata: &Metadata, is_root: bool) -> Value {
    Value::object(Chart {
        metadata: fields_of(metadata),
        is_root,
    })
}

struct Chart {
    metadata: Vec<Field>,
    is_root: bool,
}

impl Object for Chart {
    fn ty(&self) -> &'static Type {
        &CHART
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("Metadata", self.embedded()),
            ("IsRoot", Value::from(self.is_root)),
        ]
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            "Metadata" => Some(self.embedded()),
            "IsRoot" => Some(Value::from(self.is_root)),
            name => find(&self.metadata, name),
        }
    }

    // The fields of an embedded struct appear among its own.
    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        let mut fields = filled(&self.metadata);
        fields.push(("IsRoot", Value::from(self.is_root)));
        Some(fields)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

impl Chart {
    fn embedded(&self) -> Value {
        Value::object(Struct {
            ty: &METADATA,
            fields: self.metadata.clone(),
            always: &[],
        })
    }
}

/// A struct of plain fields.
struct Struct {
    ty: &'static Type,
    fields: Vec<Field>,
    /// Fields that are written to JSON even when they are empty.
    always: &'static [&'static str],
}

impl Object for Struct {
    fn ty(&self) -> &'static Type {
        self.ty
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        let fields = self.fields.iter();
        fields.map(|(name, _, value)| (*name, value.clone())).collect()
    }

    fn field(&self, name: &str) -> Option<Value> {
        find(&self.fields, name)
    }

    fn json_fields(&self) -> Option<Vec<(&'static str, Value)>> {
        let fields = self.fields.iter();
        let shown = fields.filter(|(_, json, value)| self.always.contains(json) || value.truth());
        Some(shown.map(|(_, json, value)| (*json, value.clone())).collect())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn find(fields: &[Field], name: &str) -> Option<Value> {
    let mut fields = fields.iter();
    fields
        .find(|(field, _, _)| *field == name)
        .map(|(_, _, value)| value.clone())
}

/// The fields that are not empty, with their names in JSON.
fn filled(fields: &[Field]) -> Vec<(&'static str, Value)> {
    let fields = fields.iter().filter(|(_, _, value)| value.truth());
    fields.map(|(_, json, value)| (*json, value.clone())).collect()
}

fn fields_of(metadata: &Metadata) -> Vec<Field> {
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
    let annotations = if annotations.is_empty() {
        Map::nil(&types::STRING_MAP)
    } else {
        let entries = annotations
            .iter()
            .map(|(key, value)| (Str::from(key), Value::from(value)));
        Map::from_entries(&types::STRING_MAP, entries.collect())
    };
    let dependencies = dependencies.iter().flatten().map(dependency);
    vec![
        ("Name", "name", Value::from(name)),
        ("Home", "home", Value::from(home)),
        ("Sources", "sources", texts(sources)),
        ("Version", "version", Value::from(version)),
        ("Description", "description", Value::from(description)),
        ("Keywords", "keywords", texts(keywords)),
        (
            "Maintainers",
            "maintainers",
            list(&MAINTAINERS, maintainers.iter().map(maintainer)),
        ),
        ("Icon", "icon", Value::from(icon)),
        ("APIVersion", "apiVersion", Value::from(api_version)),
        ("Condition", "condition", Value::from(condition)),
        ("Tags", "tags", Value::from(tags)),
        ("AppVersion", "appVersion", Value::from(app_version)),
        ("Deprecated", "deprecated", Value::from(*deprecated)),
        ("Annotations", "annotations", Value::Map(annotations)),
        ("KubeVersion", "kubeVersion", Value::from(kube_version)),
        ("Dependencies", "dependencies", list(&DEPENDENCIES, dependencies)),
        ("Type", "type", Value::from(chart_type)),
    ]
}

fn maintainer(maintainer: &Maintainer) -> Value {
    let Maintainer { name, email, url } = maintainer;
    Value::object(Struct {
        ty: &MAINTAINER,
        fields: vec![
            ("Name", "name", Value::from(name)),
            ("Email", "email", Value::from(email)),
            ("URL", "url", Value::from(url)),
        ],
        always: &[],
    })
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
    let import_values = import_values.iter().map(values::to_value);
    Value::object(Struct {
        ty: &DEPENDENCY,
        fields: vec![
            ("Name", "name", Value::from(name)),
            ("Version", "version", Value::from(version)),
            ("Repository", "repository", Value::from(repository)),
            ("Condition", "condition", Value::from(condition)),
            ("Tags", "tags", texts(tags)),
            ("Enabled", "enabled", Value::from(*enabled)),
            ("ImportValues", "import-values", list(&types::LIST, import_values)),
            ("Alias", "alias", Value::from(alias)),
        ],
        always: &["name", "repository"],
    })
}

fn texts(texts: &[String]) -> Value {
    list(&types::STRINGS, texts.iter().map(Value::from))
}

/// A slice; nil if it is missing in `Chart.yaml`.
fn list(ty: &'static Type, items: impl Iterator<Item = Value>) -> Value {
    let items: Vec<Value> = items.collect();
    Value::List(if items.is_empty() {
        List::nil(ty)
    } else {
        List::with_type(ty, items)
    })
}
