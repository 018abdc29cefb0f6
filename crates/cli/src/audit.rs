//! `kco audit-rbac`: the most that a chart's controller may ever be granted, and whether renderings stay within that.

pub(crate) mod args;
mod consents;
pub(crate) mod grant;
mod lookups;
mod origins;
mod rbac;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use api::grant::{DefinitionRef, GrantedChart};
use chart_bound::scan::{Kind, Scan, scan};
use chart_bound::{Allowed, BuiltIn, GroupResource, Resolved, is_ruling};
use helm::capabilities::Capabilities;
use helm::chart::Chart;
use helm::engine::{Engine, Operation, ReleaseOptions, RenderOptions, Rendered};
use serde_json::{Map, Value};

use self::grant::{Grant, Granted, Guessed, Rendering};
use crate::args::Source;
use crate::report::out;
use crate::{chart_at, progress, template, values};

/// The kinds of the chart's own CRDs, by group and kind, and whether they are namespaced.
type Defined = BTreeMap<(String, String), (GroupResource, bool)>;

/// The namespace of the composition that charts are rendered for.
const HOME: &str = "audit";
/// What the progress counts.
const SCANNED: &str = "charts scanned";

/// Prints the bound of each chart, or checks renderings against it.
pub(crate) fn run(args: &args::Audit) -> Result<()> {
    let has_values = args.release.is_some() || !args.values.is_empty();
    if has_values && !args.grant {
        bail!("values and --release are for --grant: without it, nothing is rendered with them");
    }
    let charts = found(args)?;
    if args.check {
        return check(&charts);
    }
    if args.lookups {
        return lookups::run(&charts);
    }
    if args.origins {
        return origins::run(&charts);
    }
    if args.consents {
        return consents::run(&charts);
    }
    let values = values::merged(&args.values)?;
    let allowed = Allowed {
        all_kinds: true,
        ..Allowed::default()
    };
    for (number, reference) in progress::counted(SCANNED, &charts).enumerate() {
        let chart = chart_at::load(reference, &args.source).with_context(|| format!("chart {reference}"))?;
        let version = chart.metadata().version.clone();
        if args.grant {
            let (values, release) = (&values, args.release.as_deref());
            let (name, scan, rendering) = template::on_large_stack(move || {
                let (name, scan) = (chart.name().to_owned(), scan(&chart));
                let rendering = Rendering::of(&Engine::new(chart), values, &scan, release);
                Ok((name, scan, rendering))
            })?;
            let between = if number == 0 { "" } else { "---\n" };
            let granted = granted(reference, &name, version, &args.source);
            let grant = Grant::needed(granted, &scan, &rendering, &Allowed::default());
            out(&format!("{between}{}", grant.yaml()?))?;
            continue;
        }
        let (name, scan) = template::on_large_stack(move || Ok((chart.name().to_owned(), scan(&chart))))?;
        let resolved = Resolved::new(&scan, &allowed, &BuiltIn, "krateo-system");
        out(&told(&name, &scan, &resolved))?;
    }
    Ok(())
}

/// The charts that the arguments stand for.
fn found(args: &args::Audit) -> Result<Vec<String>> {
    let of_folders = [
        (args.check, "--check"),
        (args.lookups, "--lookups"),
        (args.origins, "--origins"),
        (args.consents, "--consents"),
    ];
    let of_folders = of_folders
        .into_iter()
        .find_map(|(is_set, flag)| is_set.then_some(flag));
    let mut charts = Vec::new();
    for reference in &args.charts {
        let path = Path::new(reference);
        if let Some(flag) = of_folders
            && !path.exists()
        {
            if reference.contains("://") {
                bail!(
                    "{flag} reads charts from folders, and {reference} is an address: fetch it first, with kco pull {reference} \
                     --untar"
                );
            }
            bail!("{flag} reads charts from folders, and there is none at {reference}: check the path");
        }
        let before = charts.len();
        collect(reference, &mut charts)?;
        if charts.len() == before {
            bail!(
                "there is no chart in {reference}: a chart is a folder with a Chart.yaml; hidden folders and links are not \
                 searched"
            );
        }
    }
    Ok(charts)
}

/// A chart for which no definition is known: one of its name in a namespace of its own.
fn granted(reference: &str, name: &str, version: String, source: &Source) -> Granted {
    let (url, repo) = match &source.repo {
        Some(repository) => (Some(repository.as_str()), Some(reference)),
        None if reference.contains("://") => (Some(reference), None),
        None => (None, None),
    };
    let is_set = |flag: bool| flag.then_some(true);
    let title = format!("{name} {version}");
    let name = name
        .to_lowercase()
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    Granted {
        definition: DefinitionRef {
            namespace: format!("{name}-system"),
            name: name.clone(),
        },
        name,
        title,
        chart: GrantedChart {
            url: url.unwrap_or("oci://registry.example/charts/CHART").to_owned(),
            repo: repo.map(str::to_owned),
            versions: vec![version],
            digest: None,
            plain_http: is_set(source.access.remote.plain_http),
            insecure_skip_verify_tls: is_set(source.access.remote.insecure_skip_tls_verify),
        },
        guessed: Guessed {
            definition: true,
            url: url.is_none(),
        },
    }
}

/// The roles that a chart renders with its defaults, as `kind/name`; none if it does not render with them.
pub(crate) fn rendered_roles(engine: &Engine, scan: &Scan) -> BTreeSet<String> {
    let Ok(rendered) = render(engine, &Map::new(), scan, Operation::Install) else {
        return BTreeSet::new();
    };
    let named = objects(&rendered).into_iter().filter_map(|(_, object)| {
        let kind = object["kind"].as_str()?;
        let name = object["metadata"]["name"].as_str()?;
        ["Role", "ClusterRole"]
            .contains(&kind)
            .then(|| format!("{kind}/{name}"))
    });
    named.collect()
}

/// A folder that is not a chart itself stands for all charts below it.
fn collect(reference: &str, charts: &mut Vec<String>) -> Result<()> {
    let path = Path::new(reference);
    if !path.is_dir() || path.join("Chart.yaml").is_file() {
        charts.push(reference.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(path).with_context(|| format!("could not list {}", path.display()))?;
    let mut entries = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    entries.sort();
    let is_hidden = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'))
    };
    for entry in entries
        .iter()
        .filter(|entry| entry.is_dir() && !entry.is_symlink() && !is_hidden(entry))
    {
        collect(&entry.to_string_lossy(), charts)?;
    }
    Ok(())
}

/// The charts that are not examined.
#[derive(Default)]
struct Skipped {
    not_loaded: usize,
    /// Charts whose dependencies are missing in `charts/`: they are not rendered.
    incomplete: usize,
}

/// Examines each chart folder that can be rendered; libraries cannot.
fn for_each_whole(
    charts: &[String],
    mut examine: impl FnMut(&Path, Chart) -> Result<()> + Send,
) -> Result<Skipped> {
    let mut skipped = Skipped::default();
    for reference in progress::counted(SCANNED, charts) {
        let folder = Path::new(reference);
        let Ok(chart) = charts::source::folder::load(folder) else {
            skipped.not_loaded += 1;
            continue;
        };
        if chart.metadata().chart_type == "library" {
            continue;
        }
        if !chart.missing_dependencies().is_empty() {
            skipped.incomplete += 1;
            continue;
        }
        let examine = &mut examine;
        template::on_large_stack(move || examine(folder, chart))?;
    }
    Ok(skipped)
}

fn told(name: &str, scan: &Scan, resolved: &Resolved) -> String {
    let bound = &resolved.bound;
    let pairs =
        |pairs: &BTreeSet<GroupResource>| pairs.iter().map(GroupResource::to_string).collect::<Vec<_>>();
    let lookups = bound.inspected();
    let lookups = lookups.iter().map(|(pair, verbs)| {
        let verbs: Vec<_> = verbs.iter().map(|verb| verb.as_str()).collect();
        format!("{pair} ({})", verbs.join(", "))
    });
    let own_rbac = scan
        .kinds
        .iter()
        .filter(|kind| kind.group() == "rbac.authorization.k8s.io");
    let ruling = bound
        .namespaced
        .iter()
        .chain(&bound.cluster)
        .filter(|kind| is_ruling(kind));
    let sections = [
        ("namespaced kinds", pairs(&bound.namespaced)),
        ("cluster-scoped kinds", pairs(&bound.cluster)),
        (
            "namespaces that the chart names",
            scan.namespaces.iter().cloned().collect(),
        ),
        ("looked up in the cluster", lookups.collect()),
        (
            "needs krateo.io/allow-chart-rbac or a ChartGrant",
            own_rbac.map(|kind| kind.kind.clone()).collect(),
        ),
        (
            "needs krateo.io/allowed-kinds or a ChartGrant (--grant)",
            ruling.map(GroupResource::to_string).collect(),
        ),
        (
            "guessed, not served without a cluster",
            resolved.guessed.iter().cloned().collect(),
        ),
        (
            "not resolved: depends on values",
            scan.unresolved.iter().map(ToString::to_string).collect(),
        ),
    ];
    let mut text = vec![name.to_owned()];
    for (title, lines) in sections.into_iter().filter(|(_, lines)| !lines.is_empty()) {
        text.push(format!("  {title}:"));
        text.extend(lines.iter().map(|line| format!("    {line}")));
    }
    text.join("\n") + "\n"
}

/// Scanning any public chart should take less than this.
const SLOW: Duration = Duration::from_millis(100);

/// The totals over all charts.
#[derive(Default)]
struct Counts {
    charts: usize,
    kinds: usize,
    missed: usize,
    unresolved: usize,
    not_loaded: usize,
    not_rendered: usize,
    rbac: rbac::Counts,
    /// The chart that took longest to scan, and how long.
    slowest: (Duration, PathBuf),
}

/// Renders each chart with its defaults and with each of its `ci/*values.yaml`: every kind has to be in the scan's
/// result, or its template has to be listed as unresolved. So have the rules and bindings that the defaults render.
fn check(charts: &[String]) -> Result<()> {
    let mut counts = Counts::default();
    for reference in progress::counted(SCANNED, charts) {
        let Ok(chart) = charts::source::folder::load(Path::new(reference)) else {
            counts.not_loaded += 1;
            continue;
        };
        if chart.metadata().chart_type == "library" {
            continue;
        }
        counts.charts += 1;
        let folder = PathBuf::from(reference);
        let counts = &mut counts;
        template::on_large_stack(move || check_one(&folder, chart, counts))?;
    }
    out(&format!(
        "{} templates unresolved, {} charts not loaded, {} renderings refused\n\
         {}\n\
         {} charts, {} kinds, {} missed, slowest scan {} ms: {}\n",
        counts.unresolved,
        counts.not_loaded,
        counts.not_rendered,
        counts.rbac,
        counts.charts,
        counts.kinds,
        counts.missed,
        counts.slowest.0.as_millis(),
        counts.slowest.1.display()
    ))?;
    if counts.missed + counts.rbac.missed() > 0 || counts.charts == 0 {
        bail!("the scan missed something, or there was no chart to scan");
    }
    Ok(())
}

fn check_one(folder: &Path, chart: Chart, counts: &mut Counts) -> Result<()> {
    let started = Instant::now();
    let scan = scan(&chart);
    let took = started.elapsed();
    if took > SLOW {
        out(&format!(
            "{}: scanned in {} ms\n",
            folder.display(),
            took.as_millis()
        ))?;
    }
    if took > counts.slowest.0 {
        counts.slowest = (took, folder.to_owned());
    }
    let unresolved: BTreeSet<&str> = scan.unresolved.iter().map(|place| place.file.as_str()).collect();
    counts.unresolved += unresolved.len();
    let engine = Engine::new(chart);
    let mut seen: BTreeSet<Kind> = BTreeSet::new();
    for (index, values) in cases(folder)?.into_iter().enumerate() {
        let Ok(rendered) = render(&engine, &values, &scan, Operation::Install) else {
            counts.not_rendered += 1;
            continue;
        };
        if index == 0 {
            for told in rbac::check(&rendered, &scan, &unresolved, &mut counts.rbac) {
                out(&format!("{}: {told}\n", folder.display()))?;
            }
        }
        for (path, kind) in kinds(&rendered) {
            let is_known = scan.kinds.contains(&kind) || unresolved.contains(path.as_str());
            if !is_known && !seen.contains(&kind) {
                counts.missed += 1;
                out(&format!("{}: missed {kind} of {path}\n", folder.display()))?;
            }
            seen.insert(kind);
        }
        for lookup in &rendered.missing_lookups {
            let kind = Kind {
                api_version: lookup.api_version.clone(),
                kind: lookup.kind.clone(),
            };
            let is_listed = scan
                .unresolved
                .iter()
                .any(|place| place.what.contains("looked up"));
            let is_found = scan.lookups.contains_key(&kind) || scan.text_lookups.contains_key(&kind);
            if !is_found && !is_listed && seen.insert(kind.clone()) {
                counts.missed += 1;
                out(&format!("{}: missed the lookup of {kind}\n", folder.display()))?;
            }
        }
    }
    counts.kinds += seen.len();
    Ok(())
}

fn cases(folder: &Path) -> Result<Vec<Map<String, Value>>> {
    Ok(named_cases(folder)?
        .into_iter()
        .map(|(_, values)| values)
        .collect())
}

/// The values that a chart is rendered with, and what they are called.
fn named_cases(folder: &Path) -> Result<Vec<(String, Map<String, Value>)>> {
    let mut cases = vec![("its defaults".to_owned(), Map::new())];
    let Ok(entries) = fs::read_dir(folder.join("ci")) else {
        return Ok(cases);
    };
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();
    let is_values = |path: &PathBuf| {
        let name = path.to_string_lossy().into_owned();
        name.ends_with("values.yaml") || name.ends_with("values.yml")
    };
    for file in files.iter().filter(|file| is_values(file)) {
        cases.extend(values::of_file(file).map(|values| (file.display().to_string(), values)));
    }
    Ok(cases)
}

fn render(
    engine: &Engine,
    values: &Map<String, Value>,
    scan: &Scan,
    operation: Operation,
) -> Result<Rendered> {
    Ok(engine.render(values, &options(scan, operation)?)?)
}

/// Capabilities with every version that the scan found, so that charts render as much as they can.
fn options(scan: &Scan, operation: Operation) -> Result<RenderOptions> {
    let mut capabilities = Capabilities::default();
    for kind in &scan.kinds {
        capabilities.api_versions.push(kind.api_version.clone());
        capabilities
            .api_versions
            .push(format!("{}/{}", kind.api_version, kind.kind));
    }
    let release = ReleaseOptions {
        name: rbac::AUDITED.to_owned(),
        namespace: HOME.to_owned(),
        revision: if operation == Operation::Install { 1 } else { 2 },
        operation,
    };
    let mut options = RenderOptions::new(release, capabilities, template::context(false)?);
    options.limits = template::limits();
    Ok(options)
}

fn kinds(rendered: &Rendered) -> Vec<(String, Kind)> {
    let mut found = Vec::new();
    for (path, object) in objects(rendered) {
        add(&object, None, &path, &mut found);
    }
    found
}

/// The documents of a rendering, each with the path of its template.
fn objects(rendered: &Rendered) -> Vec<(String, Value)> {
    let manifests = rendered
        .manifests
        .iter()
        .map(|manifest| (&manifest.path, manifest.text.clone()));
    let hooks = rendered
        .hooks
        .iter()
        .map(|hook| (&hook.path, hook.manifest.clone()));
    let crds = rendered
        .crds
        .iter()
        .map(|crd| (&crd.path, String::from_utf8_lossy(&crd.data).into_owned()));
    let mut found = Vec::new();
    for (path, text) in manifests.chain(hooks).chain(crds) {
        for document in helm::manifest::split(&text) {
            if let Ok(object) = helm::yaml::parse_typed(document.as_bytes()) {
                found.push((path.clone(), object));
            }
        }
    }
    found
}

/// The names of the Secrets in a rendering.
fn secrets(rendered: &Rendered) -> Vec<String> {
    let manifests = rendered.manifests.iter().map(|manifest| manifest.text.as_str());
    let hooks = rendered.hooks.iter().map(|hook| hook.manifest.as_str());
    let mut names = Vec::new();
    for text in manifests.chain(hooks) {
        for document in helm::manifest::split(text) {
            if let Ok(object) = helm::yaml::parse_typed(document.as_bytes())
                && object["kind"] == "Secret"
            {
                names.extend(object["metadata"]["name"].as_str().map(str::to_owned));
            }
        }
    }
    names
}

/// The kinds in a document: of a list, those of its items.
pub(crate) fn kinds_of(document: &Value) -> Vec<Kind> {
    let mut found = Vec::new();
    add(document, None, "", &mut found);
    found.into_iter().map(|(_, kind)| kind).collect()
}

/// A List counts as its items, since Helm sends those.
fn add(object: &Value, list: Option<&Kind>, path: &str, found: &mut Vec<(String, Kind)>) {
    let text = |key: &str| object[key].as_str().map(str::to_owned);
    let of_list = |of: fn(&Kind) -> String| list.map(of).unwrap_or_default();
    let kind = Kind {
        api_version: text("apiVersion").unwrap_or_else(|| of_list(|kind| kind.api_version.clone())),
        kind: text("kind").unwrap_or_else(|| of_list(|kind| kind.kind.trim_end_matches("List").to_owned())),
    };
    if kind.kind.is_empty() {
        return;
    }
    match object["items"].as_array().filter(|_| kind.kind.ends_with("List")) {
        Some(items) => items.iter().for_each(|item| add(item, Some(&kind), path, found)),
        None => found.push((path.to_owned(), kind)),
    }
}
