//! Hooks: documents that run at an event of a release instead of belonging to its manifest (Helm's `hook.go`).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{empty, open_enum::open_enum, timestamp};

/// The annotation whose value lists the events of a hook, separated by commas.
pub const HOOK: &str = "helm.sh/hook";
/// The annotation that orders the hooks of one event, smallest first.
pub const HOOK_WEIGHT: &str = "helm.sh/hook-weight";
/// The annotation that says when a hook's object is deleted.
pub const HOOK_DELETE_POLICY: &str = "helm.sh/hook-delete-policy";
/// The annotation that says when a hook's logs are printed.
pub const HOOK_OUTPUT_LOG_POLICY: &str = "helm.sh/hook-output-log-policy";

open_enum! {
    /// When a hook runs.
    HookEvent {
        /// Before the first object of an install.
        PreInstall = "pre-install",
        /// After the last object of an install is ready.
        PostInstall = "post-install",
        /// Before the first deletion of an uninstall.
        PreDelete = "pre-delete",
        /// After the last deletion of an uninstall.
        PostDelete = "post-delete",
        /// Before the first change of an upgrade.
        PreUpgrade = "pre-upgrade",
        /// After the last change of an upgrade.
        PostUpgrade = "post-upgrade",
        /// Before the first change of a rollback.
        PreRollback = "pre-rollback",
        /// After the last change of a rollback.
        PostRollback = "post-rollback",
        /// Only on request, by `helm test`.
        Test = "test",
    }
}

impl HookEvent {
    /// Parses one word of the annotation [`HOOK`], already trimmed and in lower case.
    ///
    /// `None` for a word Helm does not know: such a document is dropped as a whole.
    pub fn parse(word: &str) -> Option<Self> {
        // Helm 2 had an event of its own for successful tests.
        let word = if word == "test-success" { "test" } else { word };
        match Self::from(word) {
            Self::Other(_) => None,
            event => Some(event),
        }
    }
}

open_enum! {
    /// When the object of a hook is deleted.
    HookDeletePolicy {
        /// After it succeeded.
        HookSucceeded = "hook-succeeded",
        /// After it failed.
        HookFailed = "hook-failed",
        /// Before it is created again; the default if a hook names no policy.
        BeforeHookCreation = "before-hook-creation",
    }
}

open_enum! {
    /// When the logs of a hook are printed.
    HookOutputLogPolicy {
        /// After it succeeded.
        HookSucceeded = "hook-succeeded",
        /// After it failed.
        HookFailed = "hook-failed",
    }
}

open_enum! {
    /// The state of the last run of a hook.
    #[derive(Default)]
    HookPhase {
        /// It has not run yet.
        #[default]
        NotRun = "",
        /// Its state is unknown.
        Unknown = "Unknown",
        /// It was created and has not ended.
        Running = "Running",
        /// It succeeded.
        Succeeded = "Succeeded",
        /// It failed.
        Failed = "Failed",
    }
}

/// The last run of a hook.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookExecution {
    /// When it was started.
    #[serde(
        default,
        with = "timestamp::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(
        default,
        with = "timestamp::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub completed_at: Option<Timestamp>,
    /// Its state.
    #[serde(default)]
    pub phase: HookPhase,
}

/// A hook as rendered and as stored in a release record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// `metadata.name` of its document.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `kind` of its document.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The full path of its template, as in `# Source:`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Its document.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// The events it runs at.
    #[serde(
        default,
        deserialize_with = "empty::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub events: Vec<HookEvent>,
    /// Its last run.
    #[serde(default, deserialize_with = "empty::null_as_default")]
    pub last_run: HookExecution,
    /// Its position among the hooks of one event, smallest first.
    #[serde(default, skip_serializing_if = "empty::is_zero")]
    pub weight: i64,
    /// When its object is deleted; empty means [`HookDeletePolicy::BeforeHookCreation`].
    #[serde(
        default,
        deserialize_with = "empty::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub delete_policies: Vec<HookDeletePolicy>,
    /// When its logs are printed.
    #[serde(
        default,
        deserialize_with = "empty::null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub output_log_policies: Vec<HookOutputLogPolicy>,
}

impl Hook {
    /// Whether the hook runs at this event.
    pub fn runs_at(&self, event: &HookEvent) -> bool {
        self.events.contains(event)
    }

    /// Whether the policy applies, with Helm's default for hooks that name none.
    pub fn has_delete_policy(&self, policy: &HookDeletePolicy) -> bool {
        if self.delete_policies.is_empty() {
            return *policy == HookDeletePolicy::BeforeHookCreation;
        }
        self.delete_policies.contains(policy)
    }
}

/// The hooks of one event in the order in which they run: by weight, then by name, then as stored.
pub fn in_execution_order<'a>(hooks: &'a [Hook], event: &HookEvent) -> Vec<&'a Hook> {
    let mut due: Vec<&Hook> = hooks.iter().filter(|hook| hook.runs_at(event)).collect();
    due.sort_by(|a, b| a.weight.cmp(&b.weight).then_with(|| a.name.cmp(&b.name)));
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(name: &str, weight: i64, event: HookEvent) -> Hook {
        Hook {
            name: name.to_owned(),
            weight,
            events: vec![event],
            ..Hook::default()
        }
    }

    #[test]
    fn hooks_of_an_event_run_by_weight_and_then_by_name() {
        let hooks = [
            hook("b", 0, HookEvent::PreInstall),
            hook("late", 5, HookEvent::PreInstall),
            hook("other", -9, HookEvent::PostInstall),
            hook("a", 0, HookEvent::PreInstall),
            hook("early", -5, HookEvent::PreInstall),
        ];
        let names: Vec<_> = in_execution_order(&hooks, &HookEvent::PreInstall)
            .iter()
            .map(|hook| hook.name.as_str())
            .collect();
        assert_eq!(names, ["early", "a", "b", "late"]);
    }

    #[test]
    fn a_hook_without_policies_is_deleted_before_it_is_created_anew() {
        let mut hook = hook("a", 0, HookEvent::Test);
        assert!(hook.has_delete_policy(&HookDeletePolicy::BeforeHookCreation));
        hook.delete_policies = vec![HookDeletePolicy::HookSucceeded];
        assert!(!hook.has_delete_policy(&HookDeletePolicy::BeforeHookCreation));
        assert!(hook.has_delete_policy(&HookDeletePolicy::HookSucceeded));
    }

    #[test]
    fn the_event_of_helm_2_is_known_and_an_invented_one_is_not() {
        assert_eq!(HookEvent::parse("test-success"), Some(HookEvent::Test));
        assert_eq!(HookEvent::parse("pre-delete"), Some(HookEvent::PreDelete));
        assert_eq!(HookEvent::parse("crd-install"), None);
        assert_eq!(HookEvent::parse(""), None);
    }
}
