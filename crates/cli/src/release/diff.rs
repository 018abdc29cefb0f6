//! `kco diff`: what an upgrade would change, object by object, according to the server's dry run.

use std::fmt::Write as _;

use anyhow::Result;
use helm_client::release::{Change, Effect};
use serde_json::{Map, Value, json};
use similar::{ChangeTag, TextDiff};

use super::args;
use super::make::ReleaseInput;
use super::screen::{Paint, Screen};
use super::session;
use crate::report::out;

/// The exit status of `--exit-code` when something would change.
const CHANGES: i32 = 2;

/// Prints what would change.
pub(crate) fn run(args: &args::Diff) -> Result<()> {
    let input = ReleaseInput::load(&args.release, &args.chart, &args.making)?;
    let changes = session::run(&args.connection, async |session| {
        let observed = session.find(&args.release).await?;
        let desired = input
            .render(session, &observed, args.earlier_values, &args.making)
            .await?;
        let changes = session.releases().preview(&desired, &observed).await?;
        out(&shown(&changes, session.screen)?)?;
        Ok(changes)
    })?;
    let would_change = changes
        .iter()
        .any(|change| !matches!(change.effect, Effect::Unchanged | Effect::Kept));
    if args.exit_code && would_change {
        std::process::exit(CHANGES);
    }
    Ok(())
}

fn shown(changes: &[Change], screen: Screen) -> Result<String> {
    let mut text = String::new();
    let mut counts = [0_usize; 5];
    for Change { id, effect } in changes {
        let empty = Value::Null;
        match effect {
            Effect::Create { after } => {
                counts[0] += 1;
                let _ = writeln!(text, "{}", screen.paint(Paint::Good, &format!("+ {id}")));
                text.push_str(&difference(&empty, after, screen)?);
            }
            Effect::Update { before, after } => {
                counts[1] += 1;
                let _ = writeln!(text, "{}", screen.paint(Paint::Busy, &format!("~ {id}")));
                text.push_str(&difference(before, after, screen)?);
            }
            Effect::Delete => {
                counts[2] += 1;
                let _ = writeln!(text, "{}", screen.paint(Paint::Bad, &format!("- {id}")));
            }
            Effect::Refused { why } => {
                counts[3] += 1;
                let _ = writeln!(text, "{}", screen.paint(Paint::Bad, &format!("! {id}: {why}")));
            }
            Effect::Unchanged | Effect::Kept => counts[4] += 1,
        }
    }
    let [create, update, delete, refused, same] = counts;
    let _ = writeln!(
        text,
        "{create} to create, {update} to change, {delete} to remove, {refused} refused, {same} unchanged"
    );
    Ok(text)
}

/// Both objects as YAML, compared line by line, with context around each change.
fn difference(before: &Value, after: &Value, screen: Screen) -> Result<String> {
    let (before, after) = (essence(before), essence(after));
    let (before, after) = without_secrets(before, after);
    let as_text = |value: &Value| -> Result<String> {
        Ok(if value.is_null() {
            String::new()
        } else {
            format!("{}\n", helm::yaml::to_string(value)?)
        })
    };
    let (before, after) = (as_text(&before)?, as_text(&after)?);
    let diff = TextDiff::from_lines(&before, &after);
    let mut text = String::new();
    for (index, group) in diff.grouped_ops(3).iter().enumerate() {
        if index > 0 {
            text.push_str("    ...\n");
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = change.value().trim_end_matches('\n');
            let line = match change.tag() {
                ChangeTag::Delete => screen.paint(Paint::Bad, &format!("  - {line}")),
                ChangeTag::Insert => screen.paint(Paint::Good, &format!("  + {line}")),
                ChangeTag::Equal => format!("    {line}"),
            };
            let _ = writeln!(text, "{line}");
        }
    }
    Ok(text)
}

/// An object without the fields that the server maintains.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in [
            "managedFields",
            "resourceVersion",
            "uid",
            "creationTimestamp",
            "generation",
            "selfLink",
        ] {
            metadata.remove(key);
        }
    }
    object
}

/// The annotation in which `kubectl apply` stores a copy of everything it was given.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Both versions of a Secret with their contents replaced by placeholders: only the keys and which of them change are
/// shown.
fn without_secrets(mut before: Value, mut after: Value) -> (Value, Value) {
    let is_secret = |object: &Value| object["kind"] == "Secret" && object["apiVersion"] == "v1";
    if !is_secret(&before) && !is_secret(&after) {
        return (before, after);
    }
    for path in ["/data", "/stringData", "/metadata/annotations"] {
        let old = before
            .pointer(path)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        let new = after
            .pointer(path)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        mask(&mut before, path, &new, "(hidden)", "(hidden, as it was)");
        mask(&mut after, path, &old, "(hidden)", "(hidden, as it will be)");
    }
    (before, after)
}

fn mask(object: &mut Value, path: &str, other: &Map<String, Value>, same: &str, differs: &str) {
    let Some(fields) = object.pointer_mut(path).and_then(Value::as_object_mut) else {
        return;
    };
    for (key, value) in fields {
        if path == "/metadata/annotations" && key != LAST_APPLIED {
            continue;
        }
        let word = match other.get(key) {
            Some(other) if other != value => differs,
            Some(_) | None => same,
        };
        *value = json!(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_of_a_secret_are_never_shown() {
        let secret = |data: Value| {
            json!({"apiVersion": "v1", "kind": "Secret", "data": data, "metadata": {"annotations": {
            LAST_APPLIED: data.to_string(), "team": "a"}}})
        };
        let before = secret(json!({"same": "c2FtZQ==", "other": "b2xk", "gone": "Z29uZQ=="}));
        let after = secret(json!({"same": "c2FtZQ==", "other": "bmV3", "more": "bW9yZQ=="}));
        let (before, after) = without_secrets(before, after);
        let text = format!("{before}{after}");
        for content in ["c2FtZQ==", "b2xk", "bmV3", "Z29uZQ==", "bW9yZQ=="] {
            assert!(!text.contains(content), "{text}");
        }
        assert_eq!(before["data"]["same"], after["data"]["same"]);
        assert_ne!(before["data"]["other"], after["data"]["other"]);
        assert_eq!(after["metadata"]["annotations"]["team"], "a");
    }
}
