//! What the operator may do on a joined cluster, as rules of a `ClusterRole`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, bail};
use chart_bound::Bound;
use chart_bound::GroupResource;
use chart_bound::scan::RELEASE;
use serde_json::{Value, json};

/// API servers refuse shorter lifetimes of tokens.
pub(super) const SHORTEST_TOKEN: Duration = Duration::from_mins(10);

/// A token with a longer lifetime is as bad as one that never expires.
pub(super) const LONGEST_TOKEN: Duration = Duration::from_hours(366 * 24);

/// The verbs for reading, watching and writing a release's objects.
const WRITTEN: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// The verbs that are allowed on each kind.
type Rights = BTreeMap<GroupResource, BTreeSet<String>>;

/// The rules for a chart with this bound: the operator's own, and what the chart's objects need.
///
/// An API server lets an account write a role if it has all permissions in that role itself. So if the chart may
/// contain roles, the account gets the permissions that the scan found in them, and needs neither `escalate` nor
/// `bind`.
///
/// # Errors
/// If the roles in the chart contain a wildcard.
pub(super) fn of_chart(bound: Option<&Bound>) -> Result<Vec<Value>> {
    let mut rules = own();
    let mut rights = Rights::new();
    let mut named: BTreeMap<(GroupResource, String), Vec<String>> = BTreeMap::new();
    if let Some(bound) = bound {
        for kind in bound.namespaced.iter().chain(&bound.cluster) {
            let verbs = rights.entry(kind.clone()).or_default();
            verbs.extend(WRITTEN.map(str::to_owned));
        }
        for (kind, verbs) in bound.inspected() {
            let read = verbs.iter().map(|verb| verb.as_str().to_owned());
            rights.entry(kind).or_default().extend(read);
        }
        for held in bound.chart_rules.iter().chain(&bound.chart_cluster_rules) {
            // `verb group/resource`, or `verb group/resource name`; the group is empty for the core group.
            let mut words = held.split(' ');
            let (verb, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            // In a name it is a character like others.
            if verb.contains('*') || kind.contains('*') {
                bail!(
                    "the chart contains roles with {held:?}, and no account gets a `*` here: create a ClusterRole on the \
                     target that holds what the chart needs, and name it with --cluster-role"
                );
            }
            let (group, resource) = kind.split_once('/').unwrap_or(("", kind));
            let kind = GroupResource::new(group, resource);
            // A name that depends on the release or on values is not known yet.
            match words
                .next()
                .filter(|name| *name != "?" && !name.contains(RELEASE))
            {
                Some(name) => named
                    .entry((kind, verb.to_owned()))
                    .or_default()
                    .push(name.to_owned()),
                None => _ = rights.entry(kind).or_default().insert(verb.to_owned()),
            }
        }
    }
    // The operator's own rules allow reading Secrets by name.
    let secrets = GroupResource::new("", "secrets");
    if let Some(verbs) = rights.get_mut(&secrets) {
        verbs.retain(|verb| verb != "list" && verb != "watch");
    }
    for ((kind, verb), names) in named {
        if !rights.get(&kind).is_some_and(|verbs| verbs.contains(&verb)) {
            rules.push(json!({
                "apiGroups": [kind.group],
                "resources": [kind.resource],
                "verbs": [verb],
                "resourceNames": names,
            }));
        }
    }
    rules.extend(grouped(rights));
    Ok(rules)
}

/// What the operator needs for any chart.
fn own() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut definition = rule(
        "apiextensions.k8s.io",
        &["customresourcedefinitions"],
        &["get", "create", "patch"],
    );
    definition["resourceNames"] = json!(["tenants.mesh.openkcm.io"]);
    vec![
        definition,
        rule(
            "mesh.openkcm.io",
            &["tenants"],
            &["get", "list", "watch", "patch"],
        ),
        rule("mesh.openkcm.io", &["tenants/status"], &["patch"]),
        // The namespace of a tenant has the tenant's name, which is not known beforehand.
        rule("", &["namespaces"], &["get", "create", "patch", "delete"]),
        // Records of releases, by name.
        rule("", &["secrets"], &["get", "create", "update", "patch", "delete"]),
        // The Leases of releases.
        rule(
            "coordination.k8s.io",
            &["leases"],
            &["get", "create", "update", "patch", "delete"],
        ),
        // Output of hooks.
        rule("", &["pods"], &["get", "list", "watch"]),
        rule("", &["pods/log"], &["get"]),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ]
}

/// One rule for all kinds of a group with the same verbs.
fn grouped(rights: Rights) -> Vec<Value> {
    let mut groups: BTreeMap<(String, Vec<String>), Vec<String>> = BTreeMap::new();
    for (GroupResource { group, resource }, verbs) in rights {
        let verbs = verbs.into_iter().collect();
        groups.entry((group, verbs)).or_default().push(resource);
    }
    groups
        .into_iter()
        .map(|((group, verbs), resources)| json!({"apiGroups": [group], "resources": resources, "verbs": verbs}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound() -> Bound {
        let mut bound = Bound::default();
        for (group, resource) in [("apps", "deployments"), ("", "services"), ("", "secrets")] {
            bound.namespaced.insert(GroupResource::new(group, resource));
        }
        bound.cluster.insert(GroupResource::new("", "namespaces"));
        bound
    }

    /// The verbs on a kind in all rules.
    fn verbs(rules: &[Value], group: &str, resource: &str) -> Vec<String> {
        let has = |rule: &&Value| {
            let has =
                |field: &str, value: &str| rule[field].as_array().unwrap().iter().any(|one| one == value);
            has("apiGroups", group) && has("resources", resource)
        };
        let all: BTreeSet<String> = rules
            .iter()
            .filter(has)
            .flat_map(|rule| rule["verbs"].as_array().unwrap())
            .map(|verb| verb.as_str().unwrap().to_owned())
            .collect();
        all.into_iter().collect()
    }

    #[test]
    fn the_kinds_of_the_chart_may_be_written_and_nothing_else() {
        let rules = of_chart(Some(&bound())).unwrap();
        for (group, resource) in [("apps", "deployments"), ("", "services")] {
            assert_eq!(verbs(&rules, group, resource).len(), WRITTEN.len(), "{resource}");
        }
        assert_eq!(verbs(&rules, "apps", "statefulsets"), [""; 0]);
        assert_eq!(
            verbs(&rules, "rbac.authorization.k8s.io", "clusterroles"),
            [""; 0]
        );
    }

    #[test]
    fn secrets_are_never_listed_and_no_rule_has_a_star() {
        let mut bound = bound();
        bound.chart_rbac = true;
        bound.chart_cluster_rules.insert("list /secrets".into());
        for rules in [of_chart(Some(&bound)).unwrap(), of_chart(None).unwrap()] {
            let secrets = verbs(&rules, "", "secrets");
            assert_eq!(secrets, ["create", "delete", "get", "patch", "update"]);
            assert!(!json!(rules).to_string().contains('*'));
        }
    }

    #[test]
    fn the_account_has_the_permissions_in_the_charts_roles() {
        let mut bound = bound();
        bound.chart_rules.insert("get /pods/log".into());
        bound
            .chart_cluster_rules
            .insert("update cert-manager.io/issuers/status".into());
        let rules = of_chart(Some(&bound)).unwrap();
        assert_eq!(verbs(&rules, "cert-manager.io", "issuers/status"), ["update"]);
        assert_eq!(verbs(&rules, "", "pods/log"), ["get"]);
        // A rule for one object stays one, as far as its name is known; the chart writes services anyway.
        for held in [
            "get /nodes one",
            "approve cert-manager.io/signers issuers.cert-manager.io/*",
            "get /events <release>",
            "list /events ?",
            "get /services x",
        ] {
            bound.chart_cluster_rules.insert(held.into());
        }
        let rules = of_chart(Some(&bound)).unwrap();
        let of = |resource: &str| {
            rules
                .iter()
                .filter(|rule| rule["resources"] == json!([resource]))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("nodes").len(), 1);
        assert_eq!(of("nodes")[0]["resourceNames"], json!(["one"]));
        assert_eq!(verbs(&rules, "", "events"), ["get", "list"]);
        assert!(rules.iter().all(|rule| rule["resourceNames"] != json!(["x"])));
        bound.chart_cluster_rules.insert("* apps/*".into());
        let error = of_chart(Some(&bound)).unwrap_err();
        assert!(error.to_string().contains("--cluster-role"), "{error}");
    }

    #[test]
    fn tenants_are_not_made_or_removed() {
        let rules = of_chart(None).unwrap();
        assert_eq!(
            verbs(&rules, "mesh.openkcm.io", "tenants"),
            ["get", "list", "patch", "watch"]
        );
    }
}
