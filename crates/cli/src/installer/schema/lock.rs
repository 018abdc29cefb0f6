//! The charts that a schema was generated from.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::installer::components::{Component, List};

/// Explains the file to its readers.
const HEAD: &str = "# What values.schema.json was made of: written by `kco installer schema`, not by hand.\n";

/// The charts by component.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lock {
    components: BTreeMap<String, Pin>,
}

/// One chart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    /// Its URL.
    url: String,
    /// Its name in a repository.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    repo: String,
    version: String,
    /// Digest of its archive; none if its schema is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl Pin {
    fn of(list: &List, component: &Component) -> Self {
        Self {
            url: list.url(component),
            repo: component.chart_repo.clone(),
            version: component.version.clone(),
            digest: None,
        }
    }

    /// The fields of the pin that changed.
    fn moved(&self, before: &Self) -> Vec<String> {
        let pairs = [
            ("url", &before.url, &self.url),
            ("repo", &before.repo, &self.repo),
            ("version", &before.version, &self.version),
        ];
        pairs
            .into_iter()
            .filter(|(_, before, now)| before != now)
            .map(|(what, before, now)| format!("{what} {before:?} became {now:?}"))
            .collect()
    }
}

impl Lock {
    /// Parses the file.
    ///
    /// # Errors
    /// If it does not have the format that `text` writes.
    pub(super) fn read(text: &str) -> Result<Self> {
        let value = helm::yaml::parse_typed(text.as_bytes()).context("it is not YAML")?;
        serde_json::from_value(value).context("it does not list components")
    }

    /// The text of the file.
    ///
    /// # Errors
    /// If it cannot be written as YAML.
    pub(super) fn text(&self) -> Result<String> {
        let value = serde_json::to_value(self)?;
        let mut text = HEAD.to_owned();
        let _ = writeln!(text, "{}", helm::yaml::to_string(&value)?.trim_end_matches('\n'));
        Ok(text)
    }

    /// Adds a component, with the digest of its chart.
    pub(super) fn insert(&mut self, list: &List, component: &Component, digest: Option<&str>) {
        let pin = Pin {
            digest: digest.map(str::to_owned),
            ..Pin::of(list, component)
        };
        self.components.insert(component.name.clone(), pin);
    }

    /// The number of components.
    pub(super) fn len(&self) -> usize {
        self.components.len()
    }

    /// The differences between the pins in a list and these, one per line.
    pub(super) fn moved_pins(&self, list: &List) -> Vec<String> {
        let mut now = Self::default();
        for component in &list.components {
            let mut pin = Pin::of(list, component);
            pin.digest = self
                .components
                .get(&component.name)
                .and_then(|before| before.digest.clone());
            now.components.insert(component.name.clone(), pin);
        }
        now.moved_since(self)
    }

    /// The differences between this and an earlier lock, one per line.
    pub(super) fn moved_since(&self, before: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, pin) in &self.components {
            let Some(before) = before.components.get(name) else {
                lines.push(format!("component {name:?} is new"));
                continue;
            };
            let moved = pin.moved(before);
            if !moved.is_empty() {
                lines.push(format!("component {name:?}: {}", moved.join(", ")));
            } else if pin.digest != before.digest {
                let shown = |digest: &Option<String>| digest.clone().unwrap_or_else(|| "none".to_owned());
                lines.push(format!(
                    "component {name:?}: version {} was published again, digest {} became {}",
                    pin.version,
                    shown(&before.digest),
                    shown(&pin.digest)
                ));
            }
        }
        let gone = before
            .components
            .keys()
            .filter(|name| !self.components.contains_key(*name));
        lines.extend(gone.map(|name| format!("component {name:?} is no longer listed")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(version: &str) -> List {
        let values = json!({"ociRepo": "oci://registry.example/charts", "components": [
            {"name": "a", "kind": "A", "version": version, "tier": "platform"},
        ]});
        List::read(values.as_object().unwrap()).0
    }

    fn lock(version: &str, digest: Option<&str>) -> Lock {
        let (list, mut lock) = (list(version), Lock::default());
        lock.insert(&list, &list.components[0], digest);
        lock
    }

    #[test]
    fn a_changed_pin_is_reported_before_anything_is_fetched() {
        let before = lock("1.0.0", Some("sha256:1"));
        assert_eq!(Lock::read(&before.text().unwrap()).unwrap(), before);
        assert_eq!(before.moved_pins(&list("1.0.0")), [""; 0]);
        assert_eq!(
            before.moved_pins(&list("1.1.0")),
            [r#"component "a": version "1.0.0" became "1.1.0""#]
        );
        assert_eq!(
            Lock::default().moved_pins(&list("1.0.0")),
            [r#"component "a" is new"#]
        );
        assert_eq!(
            Lock::default().moved_since(&before),
            [r#"component "a" is no longer listed"#]
        );
        assert_eq!(
            lock("1.0.0", Some("sha256:2")).moved_since(&before),
            [r#"component "a": version 1.0.0 was published again, digest sha256:1 became sha256:2"#]
        );
        assert!(Lock::read("components: [a]").is_err());
    }
}
