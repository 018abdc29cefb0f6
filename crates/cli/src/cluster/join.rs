//! `kco cluster join`: creates an account on the target with the fewest permissions that the operator can work with,
//! and a Secret at home that describes the cluster.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use api::mesh::Tenant;
use chart_bound::scan::scan;
use chart_bound::{Allowed, Resolved};
use cluster::kubeconfig::{self, Limits, Token, renew};
use cluster::{Access, Answered, Cluster, ObjectId, ResourceId};
use helm::chart::Chart;
use helm::origin::ALLOW_FROM_NAMESPACES;
use inspection::ServedKinds;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use serde_json::{Value, json};

use super::args::Join;
use super::target::Account;
use super::{MANAGER, home, rules, target_options};
use crate::release::session::{self, Session};
use crate::report::{out, warn};
use crate::{chart_at, template};

/// The longest name: with suffixes, it becomes part of the names of releases and annotations.
const LONGEST_NAME: usize = 51;

/// Discovery of the target is never answered from a cache.
const SERVED_AGE: Duration = Duration::ZERO;

/// How long to wait for a new role: it takes effect once every API server of the target has seen it.
const IN_FORCE: Duration = Duration::from_secs(30);

/// Joins a cluster, or joins it again with another chart, role or token.
pub(super) fn run(args: &Join) -> Result<()> {
    check_name(&args.name)?;
    let options = target_options(
        &args.connection,
        args.target.file.as_ref(),
        args.target.context.as_ref(),
    );
    let connection = home(args.connection.clone());
    // Fetched before the session starts, because fetching has its own runtime.
    let chart = args.chart.as_deref();
    let chart = chart
        .map(|reference| chart_at::load(reference, &args.source))
        .transpose()?;
    session::run(&connection, async |session| {
        let target = Cluster::new(cluster::client(&options).await.context("the target")?);
        let account = Account::new(
            &args.name,
            &home_uid(session).await?,
            &args.target.account_namespace,
        );
        let rules = rules(args, chart, &target).await?;
        let objects = account.objects(&rules, &args.cluster_role);
        if args.dry_run {
            return out(&format!(
                "{:#}\n",
                json!({"apiVersion": "v1", "kind": "List", "items": objects})
            ));
        }
        let secret = secret_id(session, &args.name)?;
        check_ours(session, &secret).await?;
        account.make(&target, &objects).await.context(
            "the account on the target is not complete; once that is resolved, run the same command again",
        )?;
        let token =
            kubeconfig::request_token(&target, &account.namespace, &account.name, args.lifetime).await?;
        let text = kubeconfig::with_token(&options, args.server.as_deref(), &args.name, &token.secret)
            .context("the target's kubeconfig")?;
        try_out(&text).await?;
        tell(args, session, &secret, &account, &token, &text).await
    })
}

/// The UID of the operator's namespace, which identifies home.
pub(super) async fn home_uid(session: &Session) -> Result<String> {
    let id = ObjectId::of::<Namespace>(None, &session.namespace)?;
    let found = session.cluster.get_metadata(&id).await?;
    found
        .and_then(|namespace| namespace.metadata.uid)
        .with_context(|| {
            format!(
                "there is no namespace {} at home: name the operator's with --namespace",
                session.namespace
            )
        })
}

pub(super) fn secret_id(session: &Session, name: &str) -> Result<ObjectId> {
    Ok(ObjectId::of::<Secret>(Some(&session.namespace), name)?)
}

fn check_name(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    ensure!(
        !name.is_empty()
            && name.len() <= LONGEST_NAME
            && name.chars().all(fits)
            && !name.starts_with('-')
            && !name.ends_with('-'),
        "{name:?} is not a valid name of a cluster: use lower-case letters, digits and dashes, at most {LONGEST_NAME}"
    );
    Ok(())
}

/// The rules of the account: what the operator needs, and what the chart's objects need.
async fn rules(args: &Join, chart: Option<Chart>, target: &Cluster) -> Result<Vec<Value>> {
    let Some(chart) = chart else {
        return rules::of_chart(None);
    };
    let served = ServedKinds(
        target
            .discovery()
            .served(SERVED_AGE)
            .await
            .context("the target")?,
    );
    let scan = template::on_large_stack(move || Ok(scan(&chart)))?;
    let allowed = Allowed {
        chart_rbac: args.allow_chart_rbac,
        all_kinds: true,
        ..Allowed::default()
    };
    let Resolved {
        bound,
        guessed,
        closed: _,
        void: _,
        needs: _,
    } = Resolved::new(&scan, &allowed, &served, &args.target.account_namespace);
    for line in guessed {
        warn(&line);
    }
    for place in &scan.unresolved {
        warn(&format!(
            "the scan cannot resolve a part of the chart: {place}; permissions that it misses can be given with --cluster-role"
        ));
    }
    let brings_roles = scan
        .kinds
        .iter()
        .any(|kind| kind.group() == "rbac.authorization.k8s.io");
    if brings_roles && !args.allow_chart_rbac {
        warn(
            "the chart contains roles or bindings, which the account may not write: --allow-chart-rbac allows it",
        );
    }
    rules::of_chart(Some(&bound))
}

/// Refuses a Secret of this name that was not written by kco.
async fn check_ours(session: &Session, id: &ObjectId) -> Result<()> {
    let Some(found) = session.cluster.get_metadata(id).await? else {
        return Ok(());
    };
    let annotations = found.metadata.annotations.unwrap_or_default();
    if !annotations.contains_key(renew::SERVICE_ACCOUNT) {
        bail!(
            "Secret {} in namespace {} exists and was not written by kco: choose another name, or remove it",
            id.name(),
            session.namespace
        );
    }
    Ok(())
}

/// Connects the way the operator will.
async fn try_out(text: &str) -> Result<()> {
    let connect = |limits: &Limits| -> Result<Cluster> {
        let config = kubeconfig::untrusted(text.as_bytes(), limits)?;
        let agent = concat!("kco/", env!("CARGO_PKG_VERSION"));
        let client = kubeconfig::client(config, limits, agent, |_: &Answered| {})?;
        Ok(Cluster::new(client))
    };
    let strict = Limits::default();
    if let Err(error) = kubeconfig::untrusted(text.as_bytes(), &strict) {
        warn(&format!(
            "{error}. The operator refuses this address unless it is told otherwise; --server names another"
        ));
    }
    // The operator may reach the target through another address than we do, so here only the certificate is required.
    let here = Limits {
        loopback: true,
        link_local: true,
        ..strict
    };
    let target = connect(&here)?;
    let tenants = ResourceId::of::<Tenant>();
    let needed = [Access::to("watch", &tenants, None)];
    target.wait_until_allowed(&needed, IN_FORCE).await.context(
        "the account was created, but cannot be used; once that is resolved, run the same command again",
    )
}

/// Writes the Secret that describes the cluster to the operator.
async fn tell(
    args: &Join,
    session: &Session,
    id: &ObjectId,
    account: &Account,
    token: &Token,
    text: &str,
) -> Result<()> {
    let Account { namespace, name, .. } = account;
    let note = renew::Note::about(namespace, name, token, args.lifetime, Timestamp::now());
    let mut annotations = note.annotations();
    if !args.allow_from.is_empty() {
        annotations[ALLOW_FROM_NAMESPACES] = json!(args.allow_from.join(","));
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": args.name, "namespace": session.namespace, "annotations": annotations,
            "labels": {kubeconfig::LABEL: "true", "app.kubernetes.io/managed-by": MANAGER},
        },
        "stringData": {&args.kubeconfig_key: text},
    });
    match session.cluster.create(id, &secret, MANAGER).await {
        Err(error) if error.is_already_exists() => {
            // Removes an annotation that is no longer wanted.
            let mut patch = secret;
            if args.allow_from.is_empty() {
                patch["metadata"]["annotations"][ALLOW_FROM_NAMESPACES] = Value::Null;
            }
            session.cluster.merge(id, &patch, MANAGER).await?;
        }
        written => drop(written?),
    }
    out(&format!(
        "{} joined: Secret {} in namespace {} at home, service account {namespace}/{name} on the target, token until {} and \
         renewed from {}\n",
        args.name,
        args.name,
        session.namespace,
        token.expires,
        note.due()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_leave_room_for_suffixes() {
        for good in ["edge", "eu-1", "a", &"a".repeat(51)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "Edge", "-a", "a-", "a.b", "a/b", &"a".repeat(52)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
