//! `kco template`: the output of `helm template` (Helm's `pkg/cmd/template.go`).

pub(crate) mod args;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{BufWriter, Read, Write},
    path::Path,
};

use anyhow::{Context as _, Result, anyhow, bail};
use gotemplate::{exec, set::Set, value::Value as GoValue};
use helm::{
    capabilities::{Capabilities, KubeVersion},
    chart::{Chart, Crd},
    context::{Context, Resolver},
    engine::{self, Engine, Operation, ReleaseOptions, RenderOptions, Rendered},
    functions,
    hook::{Hook, HookEvent},
    line::HelmLine,
    manifest::{self, Manifest},
    path_match,
};

use crate::report::{out, warn};
use crate::{chart_at, values};

/// Stack size for deeply nested templates; pages that are not used cost nothing.
const STACK: usize = 256 << 20;

/// The part of the stack that templates may use.
pub(crate) const STACK_OF_CHARTS: usize = STACK - (STACK >> 4);

/// Renders and prints.
pub(crate) fn run(args: &args::Template) -> Result<()> {
    let helm = if args.helm3 {
        HelmLine::Three
    } else {
        HelmLine::Four
    };
    let kube_version = args
        .kube_version
        .as_deref()
        .map(|text| KubeVersion::parse(text).with_context(|| format!("invalid kube version '{text}'")));
    let mut capabilities = Capabilities::of(helm);
    if let Some(version) = kube_version.transpose()? {
        capabilities.kube_version = version;
    }
    capabilities
        .api_versions
        .extend(args.api_versions.iter().cloned());
    match args.dry_run.as_str() {
        "client" | "unset" | "true" => {}
        "server" => bail!("--dry-run=server needs a cluster; charts are rendered without one here"),
        other => bail!("invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\""),
    }
    if args.validate {
        bail!("--validate needs a cluster; charts are rendered without one here");
    }
    if args.post_renderer.is_some() {
        bail!("--post-renderer is not supported: it names a plugin of Helm. Change what is printed instead");
    }
    let (name, reference) = name_and_chart(args, helm)?;
    let values = values::merged_as(&args.values, helm)?;
    let chart = if args.dependency_update {
        chart_at::complete(&reference, &args.source, helm)?.chart
    } else {
        chart_at::load_as(&reference, &args.source, helm)?
    };
    check_as(&chart, helm)?;
    check_release_name_as(&name, helm)?;

    let operation = if args.is_upgrade {
        Operation::Upgrade
    } else {
        Operation::Install
    };
    let release = ReleaseOptions {
        name: name.clone(),
        namespace: args.namespace.clone(),
        revision: 1,
        operation,
    };
    let rendered = on_large_stack(move || {
        let mut options = RenderOptions::new(release, capabilities, context(args.enable_dns)?);
        options.helm = helm;
        options.skip_schema_validation = args.skip_schema_validation;
        options.limits = limits();
        let engine = Engine::new(chart);
        let rendered = engine.render(&values, &options);
        // The process ends soon, and freeing a parsed chart piece by piece takes longer than rendering it.
        std::mem::forget((engine, values, options));
        Ok(rendered?)
    });
    match rendered {
        Ok(rendered) => print(&rendered, &name, args, helm),
        Err(error) => {
            if args.debug {
                print_invalid(&error)?;
            }
            Err(error)
        }
    }
}

/// The limits for a chart that is rendered locally: the user can interrupt it, so only the stack is limited.
pub(crate) fn limits() -> exec::Limits {
    exec::Limits {
        stack: STACK_OF_CHARTS,
        ..exec::Limits::large()
    }
}

/// Runs on a thread whose stack allows nesting as deep as in Helm.
pub(crate) fn on_large_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, work);
        let outcome = thread.context("could not start a thread")?.join();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The system's clock, time zone and randomness.
pub(crate) fn context(enable_dns: bool) -> Result<Context> {
    let mut random =
        File::open("/dev/urandom").context("could not open the system's source of randomness")?;
    let fill = move |bytes: &mut [u8]| {
        // Reading this device does not fail once it is open.
        let _ = random.read_exact(bytes);
    };
    let context = Context::new(jiff::Timestamp::now(), fill).with_lazy_time_zone(jiff::tz::TimeZone::system);
    Ok(if enable_dns {
        context.with_resolver(Hosts)
    } else {
        context
    })
}

/// The system's resolver.
struct Hosts;

impl Resolver for Hosts {
    fn addresses(&self, host: &str) -> Vec<String> {
        addresses(host)
    }
}

/// The addresses of a host, by the system's resolver.
pub(crate) fn addresses(host: &str) -> Vec<String> {
    let found = std::net::ToSocketAddrs::to_socket_addrs(&(host, 0));
    found
        .into_iter()
        .flatten()
        .map(|address| address.ip().to_string())
        .collect()
}

/// The release's name and the chart's reference, following Helm's rules.
fn name_and_chart(args: &args::Template, helm: HelmLine) -> Result<(String, String)> {
    match &args.name_and_chart[..] {
        [chart] => {
            let name = match &args.name_template {
                Some(template) => templated_name(template, helm)?,
                None => "release-name".to_owned(),
            };
            Ok((name, chart.clone()))
        }
        [_, _] if args.generate_name => bail!("cannot set --generate-name and also specify a name"),
        [_, _] if args.name_template.is_some() => bail!("cannot set --name-template and also specify a name"),
        [name, chart] => Ok((name.clone(), chart.clone())),
        [_, _, rest @ ..] => bail!(
            "expected at most two arguments, unexpected arguments: {}",
            rest.join(", ")
        ),
        [] => bail!("\"kco template\" requires at least 1 argument"),
    }
}

/// The name of a release, by `--name-template`.
pub(crate) fn templated_name(template: &str, helm: HelmLine) -> Result<String> {
    filled("name-template", template, GoValue::Nil, helm)
}

/// A template of a command line, which is called so, with these data.
pub(crate) fn filled(name: &str, template: &str, data: GoValue, helm: HelmLine) -> Result<String> {
    let mut set = Set::new(name, functions::of(helm).clone());
    set.parse(name, template).map_err(|error| anyhow!("{error}"))?;
    let context = context(false)?;
    let options = exec::Options {
        host: &context,
        ..exec::Options::default()
    };
    let text = set
        .execute(name, data, &options)
        .map_err(|error| anyhow!("{error}"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Refuses charts that cannot be installed.
pub(crate) fn check(chart: &Chart) -> Result<()> {
    check_as(chart, HelmLine::Four)
}

fn check_as(chart: &Chart, helm: HelmLine) -> Result<()> {
    let metadata = chart.metadata();
    if !matches!(metadata.chart_type.as_str(), "" | "application") {
        return Err(engine::Error::NotInstallable {
            chart_type: metadata.chart_type.clone(),
        }
        .into());
    }
    if metadata.deprecated {
        warn("this chart is deprecated");
    }
    let missing = chart.missing_dependencies();
    if missing.is_empty() {
        return Ok(());
    }
    let (an, command) = match helm {
        HelmLine::Three => ("An", "`helm dependency build`"),
        HelmLine::Four => ("an", "'helm dependency build'"),
    };
    bail!(
        "{an} error occurred while checking for chart dependencies. You may need to run {command} to fetch missing \
         dependencies: found in Chart.yaml, but missing in charts/ directory: {}",
        missing.join(", ")
    )
}

/// Helm's `ValidateReleaseName`.
pub(crate) fn check_release_name(name: &str) -> Result<()> {
    check_release_name_as(name, HelmLine::Four)
}

fn check_release_name_as(name: &str, helm: HelmLine) -> Result<()> {
    const PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
    let refused = match helm {
        HelmLine::Three => format!("release name {name:?}"),
        HelmLine::Four => format!("release name check failed: release name {name:?}"),
    };
    if name.is_empty() {
        bail!("{refused}: no name provided");
    }
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_alphanumeric)
            && label.ends_with(is_alphanumeric)
            && label.chars().all(|c| is_alphanumeric(c) || c == '-')
    };
    if name.len() > 53 || !name.split('.').all(is_label) {
        bail!(
            "{refused}: invalid release name, must match regex {PATTERN} and the length must not be longer than 53"
        );
    }
    Ok(())
}

fn print(rendered: &Rendered, release: &str, args: &args::Template, helm: HelmLine) -> Result<()> {
    for warning in &rendered.warnings {
        warn(warning);
    }
    let is_shown = |hook: &&Hook| !(args.skip_tests && hook.runs_at(&HookEvent::Test));
    let hooks: Vec<&Hook> = rendered
        .hooks
        .iter()
        .filter(is_shown)
        .filter(|_| !args.no_hooks)
        .collect();
    let crds: Vec<_> = rendered.crds.iter().filter(|_| args.include_crds).collect();
    if let Some(folder) = &args.output_dir {
        write_files(
            rendered,
            &crds,
            &hooks,
            folder,
            args.release_name.then_some(release),
        )?;
        return out(&selected("\n", args, helm)?);
    }
    if args.show_only.is_empty() {
        let mut out = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
        return write_text(rendered, &crds, &hooks, &mut out)
            .and_then(|()| out.flush())
            .context("could not write to standard output");
    }
    let mut text = Vec::new();
    write_text(rendered, &crds, &hooks, &mut text)?;
    out(&selected(&String::from_utf8_lossy(&text), args, helm)?)
}

/// The documents selected by `--show-only`.
fn selected<'t>(text: &'t str, args: &args::Template, helm: HelmLine) -> Result<Cow<'t, str>> {
    if args.show_only.is_empty() {
        return Ok(text.into());
    }
    Ok(shown_only(text, &args.show_only, helm)?.into())
}

/// Writes CRDs and manifests without trailing whitespace, then hooks.
fn write_text(
    rendered: &Rendered,
    crds: &[&Crd],
    hooks: &[&Hook],
    out: &mut impl Write,
) -> std::io::Result<()> {
    let crds = crds
        .iter()
        .map(|crd| (&*crd.path, String::from_utf8_lossy(&crd.data)));
    let manifests = rendered
        .manifests
        .iter()
        .map(|manifest| (&*manifest.path, Cow::from(&manifest.text)));
    let mut documents = crds.chain(manifests).peekable();
    while let Some((path, text)) = documents.next() {
        if documents.peek().is_some() {
            write!(out, "{}", manifest::Framed { path, text: &text })?;
        } else {
            out.write_all(manifest::frame(path, &text).trim_end().as_bytes())?;
        }
    }
    out.write_all(b"\n")?;
    for Hook { path, manifest, .. } in hooks {
        write!(out, "{}", manifest::Framed { path, text: manifest })?;
    }
    Ok(())
}

/// Writes one file per template. The first document truncates the file, unless it belongs to a hook and the file
/// exists.
fn write_files(
    rendered: &Rendered,
    crds: &[&Crd],
    hooks: &[&Hook],
    folder: &Path,
    release: Option<&str>,
) -> Result<()> {
    for crd in crds {
        write(folder, &crd.path, &String::from_utf8_lossy(&crd.data), false)?;
    }
    let folder = release.map_or_else(|| folder.to_owned(), |release| folder.join(release));
    let mut written = BTreeSet::new();
    for Manifest { path, text, .. } in &rendered.manifests {
        write(&folder, path, text, !written.insert(path))?;
    }
    for hook in hooks {
        write(
            &folder,
            &hook.path,
            &hook.manifest,
            folder.join(&hook.path).exists(),
        )?;
    }
    Ok(())
}

/// The documents of the selected templates, in the order of the arguments.
fn shown_only(text: &str, wanted: &[String], helm: HelmLine) -> Result<String> {
    let documents: Vec<(&str, &str)> = manifest::split_as(helm, text)
        .filter_map(|document| Some((source_in_chart(document)?, document)))
        .collect();
    let mut shown = String::new();
    for pattern in wanted {
        let matches = |path: &str| path_match::matches(pattern, path).unwrap_or(false);
        let before = shown.len();
        for (_, document) in documents.iter().filter(|(path, _)| matches(path)) {
            shown.push_str("---\n");
            shown.push_str(document);
            shown.push('\n');
        }
        if shown.len() == before {
            bail!("could not find template {pattern} in chart");
        }
    }
    Ok(shown)
}

/// The path after `# Source:`, without the chart's name: `# Source: [^/]+/(.+)`.
fn source_in_chart(document: &str) -> Option<&str> {
    document.match_indices("# Source: ").find_map(|(start, mark)| {
        let rest = &document[start + mark.len()..];
        let line = rest.lines().next()?;
        // The chart's name may not be empty; Go's character class would also match a line break, which no path
        // contains.
        let (chart, path) = line.split_once('/')?;
        (!chart.is_empty() && !path.is_empty()).then_some(path)
    })
}

/// Writes a document to its file in the output folder.
fn write(folder: &Path, path: &str, text: &str, append: bool) -> Result<()> {
    let file = folder.join(path);
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent).with_context(|| format!("could not create {}", parent.display()))?;
    }
    let opened = OpenOptions::new()
        .create(true)
        .write(true)
        .append(append)
        .truncate(!append)
        .open(&file);
    let written = opened.and_then(|mut opened| opened.write_all(manifest::frame(path, text).as_bytes()));
    written.with_context(|| format!("could not write {}", file.display()))?;
    out(&format!("wrote {}\n", file.display()))
}

/// Prints what was rendered before it turned out to be invalid.
fn print_invalid(error: &anyhow::Error) -> Result<()> {
    if let Some(engine::Error::Manifest(invalid)) = error.downcast_ref() {
        let text: String = invalid
            .files
            .iter()
            .map(|(path, text)| manifest::frame(path, text))
            .collect();
        out(&format!("{}\n", text.trim()))?;
    }
    Ok(())
}
