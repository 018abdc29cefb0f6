//! Renders a chart and values into manifests, hooks and notes (Helm's `pkg/engine/engine.go` and `renderResources`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use gotemplate::{
    exec::{self, Budget, MissingKey},
    frozen::FrozenMap,
    include_cache::IncludeCache,
    marks::Marks,
    set::Set,
    value::{CycleGuard, Map as GoMap, Value as GoValue},
};
use memchr::{memchr_iter, memmem};
use serde_json::{Map, Value};

use crate::{
    capabilities::Capabilities,
    chart::{Chart, Crd, Metadata, ResolvedChart},
    context::{Context, Deadline, LookupKey},
    functions,
    hook::Hook,
    kind_order::KindOrder,
    line::HelmLine,
    manifest::{self, Dropped, Manifest, Sorted},
    release::RecordedChart,
    schema, semver,
    values::{self, CoalesceError, coalesce},
};

mod chart_struct;
mod failure;
mod own_text;
mod scope;

use self::own_text::OwnText;
pub use self::{
    failure::{Position, TemplateFailure},
    own_text::Document,
};
pub use gotemplate::exec::{Limit, Limits};

/// The name of the root template, which Helm's messages show for texts passed to `tpl`.
const ROOT: &str = "gotpl";

/// How many sets of parsed templates are cached: one for each combination of enabled subcharts.
const MAX_SETS: usize = 8;

/// A chart with its parsed templates; parsed once, rendered many times, on many threads at once.
///
/// Which templates are used depends on the subcharts that the values enable, so parsing happens on the first
/// rendering of each combination.
#[derive(Debug)]
pub struct Engine {
    chart: Arc<Chart>,
    sets: Mutex<Vec<(SetId, Set)>>,
}

/// A template: its full path and the address of its file in memory.
type TemplateId = (String, usize);

/// The line of Helm, which selects the functions, and the templates.
type SetId = (HelmLine, Vec<TemplateId>);

/// The inputs of a rendering besides the values.
#[derive(Debug)]
pub struct RenderOptions {
    /// The release.
    pub release: ReleaseOptions,
    /// The capabilities of the cluster.
    pub capabilities: Capabilities,
    /// Time, randomness, host names and cluster objects.
    pub context: Context,
    /// Whether to skip the validation of values against the charts' schemas.
    pub skip_schema_validation: bool,
    /// Whether the notes of subcharts are included in the notes.
    pub subchart_notes: bool,
    /// Limits for the templates of the chart and all its subcharts together.
    pub limits: exec::Limits,
    /// The line of Helm whose rules apply; the Helm version that templates see is in the capabilities.
    pub helm: HelmLine,
}

impl RenderOptions {
    /// Options for a release, with Helm's defaults for the rest.
    pub fn new(release: ReleaseOptions, capabilities: Capabilities, context: Context) -> Self {
        Self {
            release,
            capabilities,
            context,
            skip_schema_validation: false,
            subchart_notes: false,
            limits: exec::Limits::default(),
            helm: HelmLine::default(),
        }
    }
}

/// The release that templates see as `.Release`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseOptions {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its revision, from 1.
    pub revision: i64,
    /// Why it is rendered.
    pub operation: Operation,
}

/// Why a chart is rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `.Release.IsInstall` holds.
    Install,
    /// `.Release.IsUpgrade` holds.
    Upgrade,
}

/// The result of a rendering.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rendered {
    /// The documents to install, in install order.
    pub manifests: Vec<Manifest>,
    /// The hooks, in install order of their kinds.
    pub hooks: Vec<Hook>,
    /// Documents that are neither, because they name a hook event that does not exist.
    pub dropped: Vec<Dropped>,
    /// The rendered `NOTES.txt`.
    pub notes: String,
    /// The files below `crds/` of the chart and its enabled subcharts.
    pub crds: Vec<Crd>,
    /// The lookups that could not be answered: fetch them and render again.
    pub missing_lookups: BTreeSet<LookupKey>,
    /// Helm's warnings from merging values.
    pub warnings: Vec<String>,
    /// The chart's metadata with the dependencies that are enabled.
    pub metadata: Metadata,
    /// The chart's default values; with declared dependencies, merged with those of the subcharts.
    pub default_values: FrozenMap,
}

impl Rendered {
    /// The documents as one text, as Helm stores them in a release record.
    pub fn manifest_text(&self) -> String {
        self.manifests
            .iter()
            .map(|manifest| manifest::frame(&manifest.path, &manifest.text))
            .collect()
    }

    /// The chart as Helm stores it in a release record.
    pub fn recorded_chart(&self, chart: &Chart) -> RecordedChart {
        let values = values::json_map(&self.default_values);
        RecordedChart::new(chart, self.metadata.clone(), values)
    }
}

/// Why a chart was not rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The chart is a library.
    #[error("{chart_type} charts are not installable")]
    NotInstallable {
        /// Its type.
        chart_type: String,
    },
    /// Dependencies could not be resolved for the values.
    #[error("chart dependencies processing failed")]
    Resolve(#[source] CoalesceError),
    /// The same in Helm 3, which adds no words of its own.
    #[error(transparent)]
    ResolveHelm3(CoalesceError),
    /// The values could not be merged with the defaults.
    #[error("could not merge values with the chart's defaults")]
    Coalesce(#[source] CoalesceError),
    /// The values do not fit a schema.
    #[error("values don't meet the specifications of the schema(s) in the following chart(s):\n{0}")]
    Schema(schema::Error),
    /// The chart does not support this version of Kubernetes.
    #[error("chart requires kubeVersion: {constraint} which is incompatible with Kubernetes {version}")]
    KubeVersion {
        /// The constraint of the chart.
        constraint: String,
        /// The version of the cluster.
        version: String,
    },
    /// A template could not be parsed or executed.
    #[error(transparent)]
    Template(#[from] TemplateFailure),
    /// The output is not a list of Kubernetes objects.
    #[error(transparent)]
    Manifest(#[from] InvalidManifests),
}

/// Rendered files that are not Kubernetes objects.
#[derive(Debug)]
pub struct InvalidManifests {
    /// The document, and what is wrong with it.
    pub error: manifest::Error,
    /// All rendered files that are not blank, by path, to help find the cause.
    pub files: Vec<(String, String)>,
}

impl std::fmt::Display for InvalidManifests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for InvalidManifests {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// A user's values as the chart would be rendered with them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Checked {
    /// The values merged over the defaults of the chart and its subcharts.
    pub values: Map<String, Value>,
    /// Where they violate the schema of the chart or of an enabled subchart.
    pub violations: Vec<schema::Violation>,
}

impl Engine {
    /// An engine for a chart.
    pub fn new(chart: impl Into<Arc<Chart>>) -> Self {
        Self {
            chart: chart.into(),
            sets: Mutex::default(),
        }
    }

    /// The chart.
    pub fn chart(&self) -> &Chart {
        &self.chart
    }

    /// Renders the chart for a user's values.
    ///
    /// The steps are: resolve dependencies, merge values and validate them against the schemas, compare the
    /// Kubernetes version, parse all templates, execute them deepest first, then split and sort the output. Two
    /// renderings with equal arguments give equal results if the context's source of randomness does.
    ///
    /// # Errors
    /// When one of these steps fails. Lookups without an answer are not an error.
    pub fn render(&self, values: &Map<String, Value>, options: &RenderOptions) -> Result<Rendered, Error> {
        // Frees cycles made by templates when it is dropped, after everything declared below.
        let _guard = CycleGuard::new();
        let chart = &*self.chart;
        let chart_type = &chart.metadata().chart_type;
        if !matches!(chart_type.as_str(), "" | "application") {
            return Err(Error::NotInstallable {
                chart_type: chart_type.clone(),
            });
        }
        let mut warnings = Vec::new();
        let user = values::to_map(values);
        let resolved = ResolvedChart::new(chart, &user, options.helm, &mut warnings).map_err(|error| {
            match options.helm {
                HelmLine::Three => Error::ResolveHelm3(error),
                HelmLine::Four => Error::Resolve(error),
            }
        })?;
        let values = coalesce::coalesce(&resolved, &user, &mut warnings).map_err(Error::Coalesce)?;
        if !options.skip_schema_validation {
            schema::validate(&resolved, &values).map_err(Error::Schema)?;
        }
        check_kube_version(&resolved, options)?;
        let files = self.execute_in_time(&resolved, &values, options, None)?;
        let (notes, files) = without_notes(files, resolved.name(), options.subchart_notes);
        let Sorted {
            manifests,
            hooks,
            dropped,
        } = sorted(files, options.helm)?;
        Ok(Rendered {
            manifests,
            hooks,
            dropped,
            notes,
            crds: resolved.crds(),
            missing_lookups: options.context.lookups.missing(),
            warnings,
            metadata: resolved.metadata.clone(),
            default_values: resolved.values.freeze(),
        })
    }

    /// Which of a rendering's documents have a kind, or a beginning, that the values chose and not the chart; see the
    /// module. The chart is rendered again, so the values and options must be those of the rendering, and the context
    /// must return the same time, answers and random bytes: a document that is rendered differently counts as chosen.
    ///
    /// `draw` returns an unpredictable number below its argument.
    ///
    /// # Errors
    /// When the chart cannot be rendered again, as [`Engine::render`].
    pub fn chosen_by_values(
        &self,
        values: &Map<String, Value>,
        options: &RenderOptions,
        documents: &[Document<'_>],
        draw: impl FnMut(u64) -> u64,
    ) -> Result<Vec<bool>, Error> {
        let _guard = CycleGuard::new();
        let own = OwnText::new(documents.iter().copied(), draw);
        let (_, defaults) = self.merged(&Map::new(), options.helm)?;
        let (resolved, values) = self.merged(values, options.helm)?;
        own.mark_defaults(&values, &defaults);
        let files = self.execute_in_time(&resolved, &values, options, Some(&own))?;
        let own = own.own(documents.iter().copied(), &files, options.helm);
        Ok(own.into_iter().map(|is_own| !is_own).collect())
    }

    /// The output of each template that is not a partial, by its full path: what `helm lint` checks.
    ///
    /// Unlike [`Engine::render`], this accepts charts of any type and for any version of Kubernetes, and does not
    /// parse the output.
    ///
    /// # Errors
    /// As [`Engine::render`].
    pub fn render_files(
        &self,
        values: &Map<String, Value>,
        options: &RenderOptions,
    ) -> Result<BTreeMap<String, String>, Error> {
        let _guard = CycleGuard::new();
        let (resolved, values) = self.merged(values, HelmLine::Four)?;
        if !options.skip_schema_validation {
            schema::validate(&resolved, &values).map_err(Error::Schema)?;
        }
        self.execute_in_time(&resolved, &values, options, None)
    }

    fn execute_in_time(
        &self,
        resolved: &ResolvedChart<'_>,
        values: &GoMap,
        options: &RenderOptions,
        own: Option<&OwnText>,
    ) -> Result<BTreeMap<String, String>, Error> {
        let deadline = options.context.deadline.as_ref();
        let is_over = || deadline.is_some_and(Deadline::is_over);
        let mut budget = Budget::new(options.limits);
        if let Some(deadline) = deadline {
            budget = budget.until(deadline.allowed(), &is_over);
        }
        self.execute(resolved, values, &budget, options, own)
    }

    /// The user's values merged as for rendering, and where they violate the schemas.
    ///
    /// # Errors
    /// When dependencies cannot be resolved or values cannot be merged. Values that violate a schema are not an
    /// error.
    pub fn check(&self, values: &Map<String, Value>) -> Result<Checked, Error> {
        let checked = self.check_until(values, &|| false)?;
        Ok(checked.unwrap_or_default())
    }

    /// Like [`Engine::check`] with a time limit; returns none once the time is over. This is checked between charts and
    /// between violations, so a single keyword of a schema may take longer, depending on schema and values.
    ///
    /// # Errors
    /// As [`Engine::check`].
    pub fn check_until(
        &self,
        values: &Map<String, Value>,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Checked>, Error> {
        let _guard = CycleGuard::new();
        let (resolved, values) = self.merged(values, HelmLine::Four)?;
        let violations = schema::violations(&resolved, &values, is_over);
        Ok(violations.map(|violations| Checked {
            violations,
            values: values::json_map(&values.freeze()),
        }))
    }

    /// The user's values merged as for rendering, valid or not: [`Engine::check`] without the validation, which takes
    /// many times as long.
    ///
    /// # Errors
    /// As [`Engine::check`].
    pub fn coalesced(&self, values: &Map<String, Value>) -> Result<Map<String, Value>, Error> {
        let _guard = CycleGuard::new();
        let (_, values) = self.merged(values, HelmLine::Four)?;
        Ok(values::json_map(&values.freeze()))
    }

    fn merged(
        &self,
        values: &Map<String, Value>,
        helm: HelmLine,
    ) -> Result<(ResolvedChart<'_>, GoMap), Error> {
        let mut warnings = Vec::new();
        let user = values::to_map(values);
        let resolved = ResolvedChart::new(&self.chart, &user, helm, &mut warnings).map_err(Error::Resolve)?;
        let values = coalesce::coalesce(&resolved, &user, &mut warnings).map_err(Error::Coalesce)?;
        Ok((resolved, values))
    }

    /// Executes each template that is not a partial: the outputs by full path, with marks if `own` is given.
    fn execute(
        &self,
        resolved: &ResolvedChart<'_>,
        values: &GoMap,
        budget: &Budget<'_>,
        options: &RenderOptions,
        own: Option<&OwnText>,
    ) -> Result<BTreeMap<String, String>, Error> {
        let shared = scope::Shared {
            release: release(&options.release),
            capabilities: options.capabilities.to_value(options.helm),
            helm: options.helm,
        };
        let templates = scope::templates(resolved, values, &shared);
        if let Some(own) = own {
            own.mark_files(&templates);
        }
        let order = execution_order(templates.keys());
        let source = |path: &str| {
            templates
                .get(path)
                .map(|template| String::from_utf8_lossy(&template.file.data).into_owned())
        };
        let set = self
            .parsed(options.helm, &templates, &order)
            .map_err(|error| TemplateFailure::parse(&error, source))?;
        let include_cache = IncludeCache::default();
        let host_changes = || options.context.draws();
        let exec_options = exec::Options {
            missing_key: MissingKey::Zero,
            limits: options.limits,
            budget: Some(budget),
            host: &options.context,
            include_cache: Some(&include_cache),
            host_changes: Some(&host_changes),
            marks: own.map(|own| own as &dyn Marks),
        };
        let mut files = BTreeMap::new();
        for path in order {
            let template = &templates[path];
            if is_partial(path) {
                continue;
            }
            template.dot.insert_volatile(
                "Template",
                scope::template(path, &template.base_path, options.helm),
            );
            let output = set
                .execute(path, GoValue::Map(template.dot.clone()), &exec_options)
                .map_err(|error| TemplateFailure::execution(&error, options.helm, source))?;
            let output = without_no_value(output);
            if !path.ends_with("NOTES.txt") {
                budget
                    .take_memory(memory_of_objects(&output))
                    .map_err(|limit| TemplateFailure::output(path, limit))?;
            }
            files.insert(path.clone(), output);
        }
        Ok(files)
    }

    /// The parsed templates, cached from an earlier rendering with the same ones.
    fn parsed(
        &self,
        helm: HelmLine,
        templates: &BTreeMap<String, scope::Template<'_>>,
        order: &[&String],
    ) -> Result<Set, gotemplate::parse::Error> {
        let id = |path: &&String| ((*path).clone(), std::ptr::from_ref(templates[*path].file).addr());
        let ids: SetId = (helm, order.iter().map(id).collect());
        if let Some(set) = self.remembered(&ids) {
            return Ok(set);
        }
        let mut set = Set::new(ROOT, functions::of(helm).clone());
        set.parse_all(
            order
                .iter()
                .map(|path| (path.as_str(), templates[*path].file.data.clone())),
        )?;
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        // Texts passed to `tpl` do not depend on the enabled subcharts, so all sets share their cache.
        if let Some((_, other)) = sets.iter().find(|((known, _), _)| *known == helm) {
            set = set.remembering_with(other);
        }
        if sets.len() == MAX_SETS {
            sets.remove(0);
        }
        sets.push((ids, set.clone()));
        Ok(set)
    }

    fn remembered(&self, ids: &SetId) -> Option<Set> {
        let sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.iter()
            .find(|(known, _)| known == ids)
            .map(|(_, set)| set.clone())
    }
}

fn check_kube_version(chart: &ResolvedChart<'_>, options: &RenderOptions) -> Result<(), Error> {
    let constraint = &chart.metadata.kube_version;
    let version = &options.capabilities.kube_version;
    if constraint.is_empty() || semver::satisfies(constraint, version.constrained()).unwrap_or(false) {
        return Ok(());
    }
    Err(Error::KubeVersion {
        constraint: constraint.clone(),
        version: match options.helm {
            HelmLine::Three => version.constrained().to_owned(),
            HelmLine::Four => version.version.clone(),
        },
    })
}

/// `.Release`.
fn release(options: &ReleaseOptions) -> GoValue {
    let release: GoMap = [
        ("Name", GoValue::from(&options.name)),
        ("Namespace", GoValue::from(&options.namespace)),
        ("Revision", GoValue::Int(options.revision)),
        (
            "IsInstall",
            GoValue::from(options.operation == Operation::Install),
        ),
        (
            "IsUpgrade",
            GoValue::from(options.operation == Operation::Upgrade),
        ),
        ("Service", GoValue::from("Helm")),
    ]
    .into_iter()
    .collect();
    GoValue::Map(release)
}

/// The order of parsing, in which later definitions win, and of executing: deepest first, and within one depth from
/// the last name to the first.
fn execution_order<'p>(paths: impl Iterator<Item = &'p String>) -> Vec<&'p String> {
    let mut order: Vec<&String> = paths.collect();
    order.sort_by_cached_key(|path| std::cmp::Reverse((path.matches('/').count(), *path)));
    order
}

fn is_partial(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|base| base.starts_with('_'))
}

/// Go prints a missing value as `<no value>`; Helm removes that from every file.
fn without_no_value(output: Vec<u8>) -> String {
    let text = String::from_utf8(output)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    if memmem::find(text.as_bytes(), b"<no value>").is_some() {
        text.replace("<no value>", "")
    } else {
        text
    }
}

/// Removes the files that end in `NOTES.txt` and keeps that of the chart, or all of them, as notes.
fn without_notes(
    mut files: BTreeMap<String, String>,
    chart: &str,
    with_subcharts: bool,
) -> (String, BTreeMap<String, String>) {
    let root = format!("{chart}/templates/NOTES.txt");
    let mut notes = String::new();
    files.retain(|path, text| {
        if !path.ends_with("NOTES.txt") {
            return true;
        }
        if with_subcharts || *path == root {
            if !notes.is_empty() {
                notes.push('\n');
            }
            notes.push_str(text);
        }
        false
    });
    (notes, files)
}

/// Estimates the memory of a text read as YAML: 50 bytes for each key, item or line, and every byte may be one.
fn memory_of_objects(text: &str) -> usize {
    // One after the other: each search compares a whole vector register at a time.
    let count = |byte| memchr_iter(byte, text.as_bytes()).count();
    b"\n:,[{".iter().copied().map(count).sum::<usize>() * 50
}

fn sorted(files: BTreeMap<String, String>, helm: HelmLine) -> Result<Sorted, InvalidManifests> {
    let texts = files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    let order = match helm {
        HelmLine::Three => KindOrder::InstallHelm3,
        HelmLine::Four => KindOrder::Install,
    };
    let sorted = manifest::sort_as(helm, texts, order);
    sorted.map_err(|error| {
        let files = files
            .into_iter()
            .filter(|(_, text)| !text.trim().is_empty())
            .collect();
        InvalidManifests { error, files }
    })
}
