//! `kco search repo`: searches the charts in the cached indexes of the repositories of `kco repo add` (Helm's
//! `pkg/cmd/search_repo.go` and `pkg/cmd/search/search.go`).

use std::cmp::Ordering;
use std::collections::HashSet;

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};
use gostd::regexp::Regexp;
use helm::chart::Metadata;
use helm::semver::{Constraint, Version};
use serde::Serialize;

use crate::release::args::Format;
use crate::release::output;
use crate::release::table::{Cell, table_within};
use crate::repo::{Cache, File};
use crate::{environment, report};

/// Separates the searched texts of a chart; none of them can contain it.
const SEPARATOR: char = '\u{b}';

/// Where charts are searched.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Search the repositories that were added.
    Repo(Repo),
}

/// The flags of `helm search repo`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are the flags of helm")]
pub(crate) struct Repo {
    /// What name, description or keywords of a chart contain; without it, all charts.
    #[arg(value_name = "KEYWORD")]
    keywords: Vec<String>,
    /// The keyword is a regular expression.
    #[arg(short, long)]
    regexp: bool,
    /// Show all versions, not the newest alone.
    #[arg(short = 'l', long)]
    versions: bool,
    /// Take pre-releases, too; as --version '>0.0.0-0'.
    #[arg(long)]
    devel: bool,
    /// The range of versions.
    #[arg(long)]
    version: Option<String>,
    /// The most characters of a column.
    #[arg(long, default_value_t = 50)]
    max_col_width: usize,
    /// Fail when nothing is found.
    #[arg(long)]
    fail_on_no_result: bool,
    /// How to print the result.
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// A matching chart.
struct Match {
    /// `repository/chart`.
    name: String,
    /// The lower, the better the match.
    score: usize,
    chart: Metadata,
    version: Version,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    version: &'a str,
    app_version: &'a str,
    description: &'a str,
}

/// Searches for charts.
pub(crate) fn run(command: &Command) -> Result<()> {
    let Command::Repo(args) = command;
    let wanted = match args.version.as_deref().filter(|version| !version.is_empty()) {
        Some(version) => version,
        None if args.devel => ">0.0.0-0",
        None => ">0.0.0",
    };
    let keyword = Keyword::new(&args.keywords.join(" "), args.regexp)?;
    let mut matches = all(&keyword)?;
    matches.sort_by(Match::order);
    let constraint = Constraint::parse(wanted)
        .map_err(|error| anyhow::anyhow!("an invalid version/constraint format: {error}"))?;
    matches.retain(|chart| constraint.check(&chart.version));
    if !args.versions {
        let mut shown = HashSet::new();
        matches.retain(|chart| shown.insert(chart.name.clone()));
    }
    if matches.is_empty() {
        ensure!(!args.fail_on_no_result, "no results found");
        if args.output == Format::Table {
            return report::out("No results found\n");
        }
    }
    print(&matches, args)
}

fn print(matches: &[Match], args: &Repo) -> Result<()> {
    let rows: Vec<Row<'_>> = matches.iter().map(Match::row).collect();
    output::print(args.output, &rows, || {
        let header = ["NAME", "CHART VERSION", "APP VERSION", "DESCRIPTION"];
        let header = header.into_iter().map(Into::into).collect();
        let cells = rows.iter().map(|row| {
            let cells = [row.name, row.version, row.app_version, row.description];
            cells.into_iter().map(Into::into).collect()
        });
        let rows: Vec<Vec<Cell>> = std::iter::once(header).chain(cells).collect();
        table_within(&rows, args.max_col_width)
    })
}

/// All charts of all repositories that match the keyword.
fn all(keyword: &Keyword) -> Result<Vec<Match>> {
    let path = environment::path("HELM_REPOSITORY_CONFIG");
    let file = File::load_or_new(&path)?;
    if file.repositories.is_empty() {
        bail!("no repositories configured");
    }
    let mut matches = Vec::new();
    for entry in &file.repositories {
        let index = match Cache::of(&entry.name).and_then(|cache| cache.load()) {
            Ok(index) => index,
            Err(error) => {
                report::warn(&format!(
                    "repo {:?} is corrupt or missing, update it with kco repo update: {error:#}",
                    entry.name
                ));
                continue;
            }
        };
        for (name, versions) in index.charts {
            for chart in versions {
                let Ok(version) = Version::parse(&chart.version) else {
                    continue;
                };
                if let Some(score) = keyword.score(&searched(&entry.name, &chart)) {
                    matches.push(Match {
                        name: format!("{}/{name}", entry.name),
                        score,
                        chart,
                        version,
                    });
                }
            }
        }
    }
    Ok(matches)
}

/// The texts of a chart that are searched.
fn searched(repository: &str, chart: &Metadata) -> String {
    let Metadata {
        name,
        description,
        keywords,
        ..
    } = chart;
    format!(
        "{name}{SEPARATOR}{repository}/{name}{SEPARATOR}{description}{SEPARATOR}{}",
        keywords.join(" ")
    )
}

impl Match {
    fn order(&self, other: &Self) -> Ordering {
        let by_name = || self.name.cmp(&other.name);
        let by_version = || other.version.cmp(&self.version);
        self.score
            .cmp(&other.score)
            .then_with(by_name)
            .then_with(by_version)
    }

    fn row(&self) -> Row<'_> {
        Row {
            name: &self.name,
            version: &self.chart.version,
            app_version: &self.chart.app_version,
            description: &self.chart.description,
        }
    }
}

/// What to search for.
enum Keyword {
    /// Everything, with the same score.
    All,
    /// In lower case.
    Text(String),
    Pattern(Box<Regexp>),
}

impl Keyword {
    fn new(text: &str, is_pattern: bool) -> Result<Self> {
        if text.is_empty() {
            return Ok(Self::All);
        }
        if !is_pattern {
            return Ok(Self::Text(text.to_lowercase()));
        }
        let pattern = Regexp::compile(text.as_bytes())?;
        Ok(Self::Pattern(Box::new(pattern)))
    }

    /// The index of the first text that contains it.
    fn score(&self, searched: &str) -> Option<usize> {
        match self {
            Self::All => Some(0),
            Self::Text(text) => {
                let searched = searched.to_lowercase();
                Some(texts_before(&searched, searched.find(text.as_str())?))
            }
            Self::Pattern(pattern) => {
                let found = pattern.find(searched.as_bytes())?;
                let at = found.as_ptr() as usize - searched.as_ptr() as usize;
                Some(texts_before(searched, at))
            }
        }
    }
}

fn texts_before(searched: &str, at: usize) -> usize {
    searched
        .bytes()
        .take(at)
        .filter(|byte| *byte == SEPARATOR as u8)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(keyword: &str, is_pattern: bool) -> Option<usize> {
        let chart = Metadata {
            name: "web".to_owned(),
            version: "1.0.0".to_owned(),
            description: "A Web server".to_owned(),
            keywords: vec!["http".to_owned(), "proxy".to_owned()],
            ..Metadata::default()
        };
        Keyword::new(keyword, is_pattern)
            .unwrap()
            .score(&searched("shop", &chart))
    }

    #[test]
    fn matches_in_the_name_come_first() {
        for (keyword, expected) in [
            ("", Some(0)),
            ("WEB", Some(0)),
            ("shop/w", Some(1)),
            ("server", Some(2)),
            ("http proxy", Some(3)),
            ("ftp", None),
        ] {
            assert_eq!(score(keyword, false), expected, "{keyword}");
        }
        for (keyword, expected) in [
            ("^web", Some(0)),
            ("W.b", Some(2)),
            ("prox[yi]$", Some(3)),
            ("x$", None),
        ] {
            assert_eq!(score(keyword, true), expected, "{keyword}");
        }
        assert!(Keyword::new("(", true).is_err());
    }
}
