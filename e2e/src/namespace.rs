//! A namespace of a cluster, and helpers for scenarios in it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::watch::{Said, Watch};
use crate::{Site, platform};

/// How long anything may take before a scenario counts it as lost. Far longer than expected, because a busy machine
/// must not fail a test.
const PATIENCE: Duration = Duration::from_mins(2);

/// How often an object that is watched is also read.
const READ_AGAIN: Duration = Duration::from_secs(5);

/// A namespace of its own.
pub struct Namespace {
    name: String,
    site: Site,
    gave_up: AtomicBool,
}

impl Namespace {
    /// Creates the namespace `name`, which enforces the restricted Pod Security standard.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn make(name: &str, site: &Site) -> Result<Self> {
        let namespace = Self::of(name, site);
        namespace.apply(&json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }))?;
        Ok(namespace)
    }

    /// A namespace that exists, or will exist.
    pub fn of(name: &str, site: &Site) -> Self {
        Self {
            name: name.to_owned(),
            site: site.clone(),
            gave_up: AtomicBool::new(false),
        }
    }

    /// The namespace of the platform, where controllers run.
    pub fn platform(&self) -> Self {
        Self::of(platform::NAMESPACE, &self.site)
    }

    /// Its name.
    pub fn namespace(&self) -> &str {
        &self.name
    }

    /// True if something that was waited for never came.
    pub fn gave_up(&self) -> bool {
        self.gave_up.load(Ordering::Relaxed)
    }

    /// The site.
    pub fn site(&self) -> &Site {
        &self.site
    }

    /// Applies an object as admin.
    ///
    /// # Errors
    /// When the API server refuses it; the message has what it said.
    pub fn apply(&self, object: &Value) -> Result<()> {
        match self.site.admin() {
            Some(admin) => admin.apply(object, "default"),
            None => platform::apply(&self.site, &object.to_string()),
        }
    }

    /// Applies a definition of the chart at `url`, in this namespace.
    ///
    /// # Errors
    /// As [`Namespace::apply`].
    pub fn define(&self, name: &str, url: &str, version: &str) -> Result<()> {
        self.define_as(name, &json!({"url": url, "version": version, "plainHTTP": true}))
    }

    /// Applies a definition with this `spec.chart`.
    ///
    /// # Errors
    /// As [`Namespace::apply`].
    pub fn define_as(&self, name: &str, chart: &Value) -> Result<()> {
        self.apply(&json!({
            "apiVersion": "core.krateo.io/v1alpha1",
            "kind": "CompositionDefinition",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {"chart": chart},
        }))
    }

    /// Runs kubectl in this namespace and gives what it printed.
    ///
    /// # Errors
    /// When it fails; the message has what it said.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.site.kubectl(["--namespace", &self.name]);
        command.args(arguments);
        self.site.run(command)
    }

    /// `kubectl auth can-i` in this namespace, as a `ServiceAccount` written `namespace:name`.
    ///
    /// # Errors
    /// When the answer is neither yes nor no.
    pub fn may(&self, account: &str, verb: &str, resource: &str) -> Result<bool> {
        let account = format!("system:serviceaccount:{account}");
        let mut command = self
            .site
            .kubectl(["auth", "can-i", verb, resource, "--as", &account]);
        command.args(["--namespace", &self.name]);
        // It exits with 1 for "no", so only its output counts.
        let output = command.output()?;
        match String::from_utf8_lossy(&output.stdout).trim() {
            "yes" => Ok(true),
            "no" => Ok(false),
            other => bail!(
                "kubectl auth can-i says {other:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }

    /// Why a ServiceAccount may not apply an object here; `None` if it may. It is a dry run.
    ///
    /// # Errors
    /// When the object cannot be handed to kubectl.
    pub fn refusal(&self, (namespace, account): (&str, &str), object: &Value) -> Result<Option<String>> {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), object.to_string())?;
        let user = format!("--as=system:serviceaccount:{namespace}:{account}");
        let path = file.path().to_string_lossy();
        let apply = ["apply", "--server-side", "--dry-run=server"];
        let refused = self
            .kubectl(&[&apply[..], &[&user, "--filename", &path]].concat())
            .err();
        Ok(refused.map(|error| format!("{error:#}")))
    }

    /// Runs the real Helm in this namespace and gives what it printed.
    ///
    /// # Errors
    /// As [`Namespace::kubectl`].
    pub fn helm(&self, arguments: &[&str]) -> Result<String> {
        let mut command = self.site.helm(["--namespace", &self.name]);
        command.args(arguments);
        self.site.run(command)
    }

    /// Runs `kco` in this namespace and returns its JSON output.
    ///
    /// # Errors
    /// As [`Namespace::kubectl`].
    pub fn kco(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = self.site.kco(arguments)?;
        command.args(["--namespace", &self.name, "--output", "json"]);
        Ok(serde_json::from_str(&self.site.run(command)?)?)
    }

    /// An object of this namespace; `None` when it is not there.
    ///
    /// # Errors
    /// When the answer is no object.
    pub fn get(&self, resource: &str, name: &str) -> Result<Option<Value>> {
        if let Some(admin) = self.site.admin() {
            return admin.get(resource, &self.name, name);
        }
        let found = self.kubectl(&["get", resource, name, "--ignore-not-found", "--output", "json"]);
        match found {
            Ok(text) if text.trim().is_empty() => Ok(None),
            Ok(text) => Ok(Some(serde_json::from_str(&text)?)),
            // The type itself may not be there.
            Err(error)
                if error
                    .to_string()
                    .contains("the server doesn't have a resource type") =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until `is_so` accepts the object, and returns it.
    ///
    /// # Errors
    /// After two minutes, with the object as it was seen last.
    pub fn wait(&self, resource: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut seen = None;
        let mut found = None;
        self.follow(resource, name, "", |state| {
            seen = state;
            found = seen.clone().filter(&is_so);
            found.is_some()
        })
        .with_context(|| {
            format!(
                "seen last: {}",
                seen.map_or("nothing".to_owned(), |seen| shown(&seen))
            )
        })?;
        found.context("nothing was found")
    }

    /// Waits until a condition of the object has this status, and gives the object.
    ///
    /// # Errors
    /// As [`Namespace::wait`].
    pub fn wait_for(&self, resource: &str, name: &str, condition: &str, status: &str) -> Result<Value> {
        self.wait(resource, name, |object| {
            self::condition(object, condition).is_some_and(|condition| condition["status"] == status)
        })
    }

    /// Waits until the object is gone.
    ///
    /// # Errors
    /// As [`Namespace::wait`].
    pub fn wait_gone(&self, resource: &str, name: &str) -> Result<()> {
        self.follow(resource, name, " to go", |state| state.is_none())
    }

    /// Passes each state of an object to `is_over`, `None` while it does not exist, until that returns true. A watch
    /// reports changes at once; the object is also read now and then, because a watch says nothing about an object that
    /// never existed.
    fn follow(
        &self,
        resource: &str,
        name: &str,
        what: &str,
        mut is_over: impl FnMut(Option<Value>) -> bool,
    ) -> Result<()> {
        let mut watch = None;
        self.wait_until(&format!("{resource}/{name}{what}"), || {
            if is_over(self.get(resource, name)?) {
                return Ok(Some(()));
            }
            let watching = match &mut watch {
                Some(watching) => watching,
                none => none.insert(self.watch(resource, name)?),
            };
            let read_again = Instant::now() + READ_AGAIN;
            loop {
                match watching.next(read_again.saturating_duration_since(Instant::now())) {
                    Said::State(state) => {
                        if is_over(state) {
                            return Ok(Some(()));
                        }
                    }
                    Said::Nothing => return Ok(None),
                    Said::End => {
                        watch = None;
                        return Ok(None);
                    }
                }
            }
        })
    }

    fn watch(&self, resource: &str, name: &str) -> Result<Watch> {
        let selector = format!("metadata.name={name}");
        let mut command = self.site.kubectl(["--namespace", &self.name]);
        command.args(["get", resource, "--field-selector", &selector]);
        Watch::start(command)
    }

    /// Waits until `look` finds something.
    ///
    /// # Errors
    /// After two minutes; at once when `look` fails.
    pub fn wait_until<T>(&self, what: &str, mut look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let started = Instant::now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if started.elapsed() > PATIENCE {
                self.gave_up.store(true, Ordering::Relaxed);
                bail!("{what}: not so after {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(250));
        }
    }
}

/// One condition of an object.
pub fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == type_)
}

/// True if an object reports that it is Ready in its current generation.
pub fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|ready| {
        ready["status"] == "True" && ready["observedGeneration"] == object["metadata"]["generation"]
    })
}

fn shown(object: &Value) -> String {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    format!("{object:#}")
}
