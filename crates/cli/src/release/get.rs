//! `kco get`: the parts of a stored revision.

use std::fmt::Write as _;

use anyhow::Result;
use helm::release::Release;
use serde_json::{Map, Value};

use super::args::{Get, GetPart, GetValues, What};
use super::output;
use super::session;
use super::status::{self, Shown};
use crate::report::out;

/// Prints the requested part.
pub(crate) fn run(args: &Get) -> Result<()> {
    match &args.what {
        What::All(part) => all(part),
        What::Hooks(part) => out(&hooks(&release(part)?)),
        // The manifest ends with a line break; Helm adds another one.
        What::Manifest(part) => out(&format!("{}\n", release(part)?.manifest)),
        What::Notes(part) => out(&notes(&release(part)?)),
        What::Values(values) => print_values(values),
        What::Compositions(list) => crate::composition::list(list),
    }
}

fn release(part: &GetPart) -> Result<Release> {
    session::run(&part.connection, async |session| {
        Ok(session.revision(&part.release, part.revision).await?.release)
    })
}

pub(super) fn hooks(release: &Release) -> String {
    release.hooks.iter().fold(String::new(), |mut text, hook| {
        let _ = write!(text, "---\n# Source: {}\n{}\n", hook.path, hook.manifest);
        text
    })
}

fn notes(release: &Release) -> String {
    match release.info.notes.as_str() {
        "" => String::new(),
        notes => format!("NOTES:\n{notes}\n"),
    }
}

fn print_values(args: &GetValues) -> Result<()> {
    let release = release(&args.part)?;
    let format = args.output.output;
    if args.all {
        let values = Value::Object(computed(&release));
        return output::print_values(format, "COMPUTED VALUES:", &values);
    }
    output::print_values(format, "USER-SUPPLIED VALUES:", &given(&release))
}

fn all(part: &GetPart) -> Result<()> {
    let (release, screen) = session::run(&part.connection, async |session| {
        Ok((
            session.revision(&part.release, part.revision).await?.release,
            session.screen,
        ))
    })?;
    let bare = Release {
        info: helm::release::Info {
            notes: String::new(),
            ..release.info.clone()
        },
        ..release.clone()
    };
    let shown = Shown {
        hide_notes: true,
        with_chart: true,
        objects: &[],
    };
    let mut text = status::text(&bare, &shown, screen);
    let _ = writeln!(
        text,
        "USER-SUPPLIED VALUES:\n{}",
        output::values_text(&given(&release))?
    );
    let _ = writeln!(
        text,
        "COMPUTED VALUES:\n{}",
        output::values_text(&Value::Object(computed(&release)))?
    );
    let _ = write!(
        text,
        "HOOKS:\n{}MANIFEST:\n{}\n",
        hooks(&release),
        release.manifest
    );
    if !release.info.notes.is_empty() {
        let _ = writeln!(text, "NOTES:\n{}", release.info.notes.trim());
    }
    out(&text)
}

/// The user's values; Helm prints null if there are none.
fn given(release: &Release) -> Value {
    if release.config.is_empty() {
        return Value::Null;
    }
    Value::Object(release.config.clone())
}

/// The user's values merged over the chart's defaults; nulls delete.
pub(super) fn computed(release: &Release) -> Map<String, Value> {
    let mut values = release.chart.values.clone();
    helm::values::merge(&mut values, release.config.clone());
    without_nulls(&mut values);
    values
}

fn without_nulls(values: &mut Map<String, Value>) {
    values.retain(|_, value| !value.is_null());
    for value in values.values_mut() {
        if let Value::Object(table) = value {
            without_nulls(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_null_deletes_a_default() {
        let table = |value: Value| value.as_object().cloned().unwrap_or_default();
        let mut release = Release {
            config: table(json!({"a": {"b": null}, "c": 1})),
            ..Release::default()
        };
        release.chart.values = table(json!({"a": {"b": 1, "d": 2}, "e": 3}));
        assert_eq!(
            Value::Object(computed(&release)),
            json!({"a": {"d": 2}, "c": 1, "e": 3})
        );
    }
}
