//! What is compared of two programs, and how it came out.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::Result;
use flate2::read::GzDecoder;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compared {
    /// Status, output and files.
    All,
    /// Status and files: the output differs on purpose.
    Effects,
}

/// One command line, and its results with both programs.
#[derive(Debug)]
pub struct Row {
    /// The command line.
    pub command: String,
    /// What differs, if anything does.
    pub fault: Option<String>,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Table {
    /// Its rows.
    pub rows: Vec<Row>,
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for row in &self.rows {
            match &row.fault {
                None => writeln!(f, "{:<70} ok", row.command)?,
                Some(fault) => writeln!(f, "{:<70} FAULT\n{fault}", row.command)?,
            }
        }
        let faults = self.rows.iter().filter(|row| row.fault.is_some()).count();
        write!(f, "{} command lines, {faults} faults", self.rows.len())
    }
}

/// The result of a command, and the contents of the folder after it.
pub(super) struct Ended {
    pub(super) succeeded: bool,
    pub(super) printed: String,
    pub(super) said: String,
    pub(super) files: BTreeMap<String, String>,
}

impl Ended {
    /// The first thing in which they differ.
    pub(super) fn difference(&self, other: &Self, compared: Compared) -> Option<String> {
        let mut parts = vec![("status", self.succeeded.to_string(), other.succeeded.to_string())];
        if compared == Compared::All {
            parts.push(("output", self.printed.clone(), other.printed.clone()));
        }
        let names = |ended: &Self| format!("{:#?}", ended.files.keys().collect::<Vec<_>>());
        parts.push(("files", names(self), names(other)));
        for (name, content) in &self.files {
            parts.push((
                name,
                content.clone(),
                other.files.get(name).cloned().unwrap_or_default(),
            ));
        }
        let (what, ours, theirs) = parts.into_iter().find(|(_, ours, theirs)| ours != theirs)?;
        Some(format!(
            "{what} of kco:\n{ours}\n{what} of helm:\n{theirs}\nkco said: {}\nhelm said: {}",
            self.said, other.said
        ))
    }
}

/// The contents of an archive, in order: path, mode, content. Times are only listed if they are not those of the trial.
pub(super) fn listed(archive: &[u8]) -> Result<String> {
    let mut text = format!("head {:?}\n", &archive.get(..4));
    for entry in tar::Archive::new(GzDecoder::new(archive)).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let (mode, time) = (entry.header().mode()?, entry.header().mtime()?);
        let time = if time < 1_780_000_000 { time } else { 0 };
        let mut content = String::new();
        entry.read_to_string(&mut content)?;
        text = format!("{text}== {path} {mode:o} {time}\n{content}\n");
    }
    Ok(text)
}
