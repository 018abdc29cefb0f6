//! Chart repositories with an index that the real Helm wrote, and archives behind plain URLs.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use e2e::http_server::{Answer, Asked};
use e2e::{HttpServer, Site};
use serde_json::{Value, json};

use super::sources::{PASSWORD, Sources, USER, chart, fetched, password, refused};

/// Files by their path.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// A repository below `/charts/`: archives of these names and versions, and their index.
pub(super) fn repository(site: &Site, charts: &[(&str, &str)]) -> Result<Files> {
    let folder = tempfile::tempdir()?;
    for (name, version) in charts {
        let package = chart(name, version)?.package(site)?;
        std::fs::copy(
            package.file(),
            folder.path().join(package.file().file_name().unwrap()),
        )?;
    }
    index(site, folder.path(), &[])?;
    files_of(folder.path())
}

pub(super) fn index(site: &Site, folder: &std::path::Path, flags: &[&str]) -> Result<()> {
    let mut index = site.helm(["repo", "index", &folder.to_string_lossy()]);
    index.args(flags);
    site.run(index).map(drop)
}

pub(super) fn files_of(folder: &std::path::Path) -> Result<Files> {
    let mut files = Files::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("/charts/{}", entry.file_name().to_string_lossy());
        files.insert(path, std::fs::read(entry.path())?);
    }
    Ok(files)
}

/// Answers with the files, and 404 for others.
pub(super) fn serve(files: Files) -> Result<HttpServer> {
    let files = Arc::new(files);
    HttpServer::start(move |asked| file(&files, asked))
}

pub(super) fn file(files: &Files, asked: &Asked) -> Answer {
    files
        .get(&asked.path)
        .map_or(Answer::Status(404), |bytes| Answer::Content(bytes.clone()))
}

pub(super) fn known() -> String {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")))
}

#[test]
fn a_chart_comes_from_a_repository_or_straight_from_its_address() -> Result<()> {
    let platform = Sources::shared()?.platform;
    let namespace = platform.namespace("repositories")?;
    // Two charts with the same version must not be confused.
    let files = repository(
        platform.site(),
        &[
            ("shelf", "1.0.0"),
            ("shelf", "1.1.0"),
            ("shelf", "2.0.0-rc.1"),
            ("drawer", "1.0.0"),
            ("latest", "3.1.4"),
        ],
    )?;
    let server = serve(files)?;
    let check = |name: &str, chart: Value, version: &str| -> Result<()> {
        let definition = fetched(&namespace, name, &chart)?;
        assert_eq!(definition["status"]["chart"]["version"], version, "{name}");
        let kind = definition["status"]["kind"].as_str().unwrap().to_lowercase();
        assert_eq!(kind, name, "the type is made from the chart that was asked for");
        Ok(())
    };
    let url = server.url("/charts");
    check(
        "shelf",
        json!({"url": url, "repo": "shelf", "version": "^1"}),
        "1.1.0",
    )?;
    check(
        "drawer",
        json!({"url": url, "repo": "drawer", "version": "1.0.0"}),
        "1.0.0",
    )?;
    check(
        "latest",
        json!({"url": url, "repo": "latest", "version": "latest"}),
        "3.1.4",
    )?;

    let archive = chart("archive", "0.4.0")?.package(platform.site())?;
    let direct = serve(Files::from([(
        "/files/archive-0.4.0.tgz".to_owned(),
        archive.bytes()?,
    )]))?;
    check(
        "archive",
        json!({"url": direct.url("/files/archive-0.4.0.tgz")}),
        "0.4.0",
    )
}

#[test]
fn a_repository_without_the_chart_is_quoted_with_what_it_has() -> Result<()> {
    let platform = Sources::shared()?.platform;
    let namespace = platform.namespace("repositories-refuse")?;
    let files = repository(platform.site(), &[("lamp", "1.0.0"), ("lamp", "1.1.0")])?;
    let server = serve(files)?;
    let (url, host) = (server.url("/charts"), server.host());
    let check =
        |name: &str, chart: Value, message: String| refused(&namespace, name, &chart, &message).map(drop);
    check(
        "missing-chart",
        json!({"url": url, "repo": "chair"}),
        format!("the chart repository at {host} has no chart chair: check repo"),
    )?;
    check(
        "missing-version",
        json!({"url": url, "repo": "lamp", "version": "7.0.0"}),
        format!(
            "the chart repository at {host} has no version 7.0.0 of chart lamp; its newest are 1.1.0, 1.0.0"
        ),
    )?;
    check(
        "no-repository",
        json!({"url": server.url("/elsewhere"), "repo": "lamp"}),
        format!(
            "{host} answered 404 for /elsewhere/index.yaml: the url must be that of a chart repository, the folder that \
             holds index.yaml"
        ),
    )?;
    let pinned = chart("pinned", "1.0.0")?.package(platform.site())?;
    let archives = serve(Files::from([("/pinned-1.0.0.tgz".to_owned(), pinned.bytes()?)]))?;
    let other = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    check(
        "other-digest",
        json!({"url": archives.url("/pinned-1.0.0.tgz"), "digest": other}),
        format!(
            "/pinned-1.0.0.tgz at {} has digest {}, not the {other} that is asked for: it was published again with \
             other content; ask for another version, or check what changed and set digest to the new one",
            archives.host(),
            pinned.digest()?
        ),
    )?;
    check(
        "no-archive",
        json!({"url": server.url("/charts/none-1.0.0.tgz")}),
        format!("{host} answered 404 for /charts/none-1.0.0.tgz: there is no such file; check the url"),
    )
}

#[test]
fn credentials_stay_with_the_host_they_are_for() -> Result<()> {
    let platform = Sources::shared()?.platform;
    let namespace = platform.namespace("redirects")?;
    let credentials = password(&namespace)?;
    let bytes = chart("led-away", "1.0.0")?.package(platform.site())?.bytes()?;
    let listed = chart("listed", "1.0.0")?.package(platform.site())?;
    let elsewhere = serve(Files::from([
        ("/files/led-away-1.0.0.tgz".to_owned(), bytes),
        ("/files/listed-1.0.0.tgz".to_owned(), listed.bytes()?),
    ]))?;

    // An archive whose host leads to another one.
    let there = elsewhere.url("/files/led-away-1.0.0.tgz");
    let first = HttpServer::start(move |asked| match &asked.authorization {
        Some(authorization) if *authorization == known() => Answer::Redirect(there.clone()),
        _ => Answer::AskPassword,
    })?;
    let chart = json!({"url": first.url("/led-away-1.0.0.tgz"), "credentials": credentials});
    fetched(&namespace, "led-away", &chart)?;

    // A repository whose index lists archives of another host.
    let folder = tempfile::tempdir()?;
    std::fs::copy(listed.file(), folder.path().join("listed-1.0.0.tgz"))?;
    index(
        platform.site(),
        folder.path(),
        &["--url", &elsewhere.url("/files")],
    )?;
    let files = files_of(folder.path())?;
    let repository = HttpServer::start(move |asked| match &asked.authorization {
        Some(authorization) if *authorization == known() => file(&files, asked),
        _ => Answer::AskPassword,
    })?;
    let chart = json!({"url": repository.url("/charts"), "repo": "listed", "version": "1.0.0", "credentials": credentials});
    fetched(&namespace, "listed", &chart)?;

    let seen = elsewhere.asked();
    let paths: std::collections::BTreeSet<&str> = seen.iter().map(|asked| asked.path.as_str()).collect();
    assert_eq!(paths.len(), 2, "both lead there: {seen:?}");
    for asked in &seen {
        assert!(
            asked.authorization.is_none() && !asked.other_credentials,
            "{asked:?}"
        );
    }
    Ok(())
}
