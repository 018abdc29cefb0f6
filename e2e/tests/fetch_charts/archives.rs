//! Archives that are not charts, or contain more than a chart.

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use tar::{Builder, EntryType, Header};

use super::repositories::{Files, serve};
use super::sources::{Sources, refused};

const CHART: &[u8] = b"apiVersion: v2\nname: mean\nversion: 1.0.0\n";

/// An entry of an archive: its path, its type, its content or link target.
type Entry<'a> = (&'a str, EntryType, &'a [u8]);

#[test]
fn an_archive_that_is_no_honest_chart_is_refused() -> Result<()> {
    let namespace = Sources::shared()?.platform.namespace("archives")?;
    let file = EntryType::Regular;
    let cases: [(&str, &[Entry<'_>], &str); 5] = [
        (
            "traversal",
            &[
                ("mean/Chart.yaml", file, CHART),
                ("mean/../../etc/passwd", file, b"x"),
            ],
            "chart illegally references parent directory",
        ),
        (
            "absolute",
            &[("mean/Chart.yaml", file, CHART), ("mean//etc/passwd", file, b"x")],
            "chart illegally contains absolute paths",
        ),
        (
            "two-roots",
            &[
                ("mean/Chart.yaml", file, CHART),
                ("other/templates/a.yaml", file, b"x: y"),
            ],
            "chart archive has two folders at its top, mean and other: a chart has one",
        ),
        (
            "link",
            &[
                ("mean/Chart.yaml", file, CHART),
                ("mean/templates/a.yaml", EntryType::Symlink, b"/etc/passwd"),
            ],
            "chart archive contains mean/templates/a.yaml, which is a link or a device: a chart consists of files and folders only",
        ),
        (
            "hard-link",
            &[
                ("mean/Chart.yaml", file, CHART),
                ("mean/templates/a.yaml", EntryType::Link, b"mean/Chart.yaml"),
            ],
            "chart archive contains mean/templates/a.yaml, which is a link or a device: a chart consists of files and folders only",
        ),
    ];
    let mut files = Files::new();
    for (name, entries, _) in &cases {
        files.insert(format!("/{name}-1.0.0.tgz"), pack(entries)?);
    }
    files.insert(
        "/no-archive-1.0.0.tgz".to_owned(),
        b"<html>Not found</html>".to_vec(),
    );
    let server = serve(files)?;
    let check = |name: &str, fault: &str| {
        let url = server.url(&format!("/{name}-1.0.0.tgz"));
        let message =
            format!("what was fetched from {url} is not a usable chart: could not unpack the chart: {fault}");
        refused(&namespace, name, &json!({"url": url}), &message).map(drop)
    };
    for (name, _, fault) in &cases {
        check(name, fault)?;
    }
    check(
        "no-archive",
        "could not read the chart archive: invalid gzip header",
    )
}

fn pack(entries: &[Entry<'_>]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, kind, content) in entries {
        let mut header = Header::new_gnu();
        // `set_path` refuses exactly the paths that this test needs.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        let is_file = kind.is_file();
        if !is_file {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(content);
        }
        header.set_size(if is_file { content.len() as u64 } else { 0 });
        header.set_cksum();
        tar.append(&header, if is_file { *content } else { b"" })?;
    }
    Ok(tar.into_inner()?.finish()?)
}
