//! `kco repo`: the chart repositories that Helm knows by name, in the same files (Helm's `pkg/cmd/repo*.go`).

mod cache;
mod file;
mod index;
mod named;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use charts::source::{self, ChartRef, Limits};
use clap::{Args, Subcommand};
use futures::StreamExt as _;
use serde_json::json;

use crate::release::args::{Format, duration};
use crate::release::output;
use crate::release::table::table;
use crate::wait::wait_for;
use crate::{environment, progress, prompt, report};
pub(crate) use cache::Cache;
pub(crate) use file::{Entry, File};
pub(crate) use named::{Named, all};

/// How many indexes are fetched concurrently.
const AT_ONCE: usize = 6;

/// Repositories that no longer exist, and where their charts are now (Helm's list).
const GONE: [(&str, &str); 2] = [
    (
        "//kubernetes-charts.storage.googleapis.com",
        "https://charts.helm.sh/stable",
    ),
    (
        "//kubernetes-charts-incubator.storage.googleapis.com",
        "https://charts.helm.sh/incubator",
    ),
];

/// What is done with repositories.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a repository under a name.
    Add(Box<Add>),
    /// Write the index of a folder of archives.
    Index(index::Make),
    /// List the repositories.
    #[command(visible_alias = "ls")]
    List(List),
    /// Remove repositories.
    #[command(visible_alias = "rm")]
    Remove(Remove),
    /// Fetch the indexes of all repositories, or of some, anew.
    #[command(visible_alias = "up")]
    Update(Update),
}

/// The flags of `helm repo add`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub(crate) struct Add {
    /// What to call it.
    name: String,
    /// The address of the folder that holds index.yaml.
    url: String,
    /// User name.
    #[arg(long)]
    username: Option<String>,
    /// Password. Everybody on this machine can see it in the list of processes: better use --password-stdin.
    #[arg(long)]
    password: Option<String>,
    /// Read the password from standard input.
    #[arg(long)]
    password_stdin: bool,
    /// Replace a repository of this name.
    #[arg(long)]
    force_update: bool,
    /// Also add one of Helm's old repositories, which are gone.
    #[arg(long)]
    allow_deprecated_repos: bool,
    /// A file with certificates of authorities that the server's certificate may come from.
    #[arg(long)]
    ca_file: Option<PathBuf>,
    /// A file with a certificate to show to the server.
    #[arg(long)]
    cert_file: Option<PathBuf>,
    /// A file with the private key of that certificate.
    #[arg(long)]
    key_file: Option<PathBuf>,
    /// Take any certificate that the server shows.
    #[arg(long)]
    insecure_skip_tls_verify: bool,
    /// Kept for Helm; kco itself sends user name and password to their own host alone.
    #[arg(long)]
    pass_credentials: bool,
    /// The longest time that fetching the index may take.
    #[arg(long, default_value = "2m0s", value_parser = duration)]
    timeout: Duration,
}

/// The flags of `helm repo list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Leave the headers out.
    #[arg(long)]
    no_headers: bool,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// The arguments of `helm repo remove`.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// Names of repositories.
    #[arg(required = true, value_name = "REPO")]
    names: Vec<String>,
}

/// The flags of `helm repo update`.
#[derive(Debug, Args)]
pub(crate) struct Update {
    /// Names of repositories; without any, all.
    #[arg(value_name = "REPO")]
    names: Vec<String>,
    /// The longest time that fetching an index may take.
    #[arg(long, default_value = "2m0s", value_parser = duration)]
    timeout: Duration,
}

/// Manages the list of repositories.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Add(args) => add(args),
        Command::Index(args) => index::make(args),
        Command::List(args) => list(args),
        Command::Remove(args) => remove(args),
        Command::Update(args) => update(args),
    }
}

fn add(args: &Add) -> Result<()> {
    let gone = GONE.iter().find(|(old, _)| args.url.contains(old));
    if let (Some((_, new)), false) = (gone, args.allow_deprecated_repos) {
        bail!("repo {:?} is no longer available; try {new:?} instead", args.url);
    }
    let path = environment::path("HELM_REPOSITORY_CONFIG");
    let _lock = file::lock(&path)?;
    let mut file = File::load_or_new(&path)?;
    let username = args.username.clone().unwrap_or_default();
    let mut password = args.password.clone().unwrap_or_default();
    if !username.is_empty() && password.is_empty() {
        password = if args.password_stdin {
            prompt::piped()?
        } else {
            prompt::secret("Password: ")?
        };
    }
    let text = |path: &Option<PathBuf>| {
        path.as_ref()
            .map_or(String::new(), |path| path.display().to_string())
    };
    let entry = Entry {
        name: args.name.clone(),
        url: args.url.clone(),
        username,
        password,
        cert_file: text(&args.cert_file),
        key_file: text(&args.key_file),
        ca_file: text(&args.ca_file),
        insecure_skip_tls_verify: args.insecure_skip_tls_verify,
        pass_credentials_all: args.pass_credentials,
    };
    ensure!(
        !entry.name.contains('/'),
        "repository name ({}) contains '/', please specify a different name without '/'",
        entry.name
    );
    if let (Some(existing), false) = (file.get(&entry.name), args.force_update) {
        ensure!(
            *existing == entry,
            "repository name ({}) already exists, please specify a different name",
            entry.name
        );
        return report::out(&format!(
            "{:?} already exists with the same configuration, skipping\n",
            entry.name
        ));
    }
    let fetched = wait_for(download(&entry, args.timeout))?;
    fetched.with_context(|| {
        format!(
            "looks like {:?} is not a valid chart repository or cannot be reached",
            args.url
        )
    })?;
    let name = entry.name.clone();
    file.put(entry);
    file.save(&path)?;
    report::out(&format!("{name:?} has been added to your repositories\n"))
}

/// Fetches and stores the index of a repository.
async fn download(entry: &Entry, timeout: Duration) -> Result<()> {
    let repository =
        ChartRef::repository(&entry.url)?.with_insecure_skip_verify(entry.insecure_skip_tls_verify);
    let limits = Limits {
        time: timeout,
        ..Limits::default()
    };
    let index = source::fetch_index(&repository, &named::access(entry)?, limits).await?;
    Cache::of(&entry.name)?.keep(&index)
}

fn list(args: &List) -> Result<()> {
    // Like in Helm, an invalid file counts as one without repositories.
    let file = File::load(&environment::path("HELM_REPOSITORY_CONFIG")).unwrap_or_default();
    if file.repositories.is_empty() && args.output == Format::Table {
        report::note("no repositories to show");
        return Ok(());
    }
    let listed: Vec<_> = file
        .repositories
        .iter()
        .map(|entry| json!({"name": entry.name, "url": entry.url}))
        .collect();
    output::print(args.output, &listed, || {
        let headers = (!args.no_headers).then(|| vec!["NAME".into(), "URL".into()]);
        let rows = file
            .repositories
            .iter()
            .map(|entry| vec![entry.name.as_str().into(), entry.url.as_str().into()]);
        table(&headers.into_iter().chain(rows).collect::<Vec<_>>())
    })
}

fn remove(args: &Remove) -> Result<()> {
    let path = environment::path("HELM_REPOSITORY_CONFIG");
    ensure!(path.exists(), "no repositories configured");
    let _lock = file::lock(&path)?;
    let mut file = File::load(&path)?;
    ensure!(!file.repositories.is_empty(), "no repositories configured");
    for name in &args.names {
        ensure!(file.remove(name), "no repo named {name:?} found");
        file.save(&path)?;
        Cache::of(name)?.forget()?;
        report::out(&format!("{name:?} has been removed from your repositories\n"))?;
    }
    Ok(())
}

fn update(args: &Update) -> Result<()> {
    const REPOSITORIES: &str = "repositories are up to date";
    const NONE: &str = "no repositories found. You must add one before updating";
    let path = environment::path("HELM_REPOSITORY_CONFIG");
    ensure!(path.exists(), NONE);
    let file = File::load(&path)?;
    ensure!(!file.repositories.is_empty(), NONE);
    for name in &args.names {
        ensure!(
            file.get(name).is_some(),
            "no repositories found matching '{name}'.  Nothing will be updated"
        );
    }
    let wanted = |entry: &&Entry| args.names.is_empty() || args.names.contains(&entry.name);
    let entries: Vec<&Entry> = file.repositories.iter().filter(wanted).collect();
    let total = entries.len();
    report::out("Hang tight while we grab the latest from your chart repositories...\n")?;
    let failed = wait_for(async {
        let mut fetched = futures::stream::iter(entries)
            .map(|entry| async move { (entry, download(entry, args.timeout).await) })
            .buffer_unordered(AT_ONCE);
        let mut failed = Vec::new();
        let mut done = 0;
        progress::count(REPOSITORIES, done, total);
        while let Some((entry, outcome)) = fetched.next().await {
            let Entry { name, url, .. } = entry;
            match outcome {
                Ok(()) => report::out(&format!(
                    "...Successfully got an update from the {name:?} chart repository\n"
                ))?,
                Err(failure) => {
                    report::out(&format!(
                        "...Unable to get an update from the {name:?} chart repository ({url}):\n\t{failure:#}\n"
                    ))?;
                    failed.push(url.clone());
                }
            }
            done += 1;
            progress::count(REPOSITORIES, done, total);
        }
        Ok::<_, anyhow::Error>(failed)
    })??;
    ensure!(
        failed.is_empty(),
        "failed to update the following repositories: [{}]",
        failed.join(" ")
    );
    report::out("Update Complete. ⎈Happy Helming!⎈\n")
}
