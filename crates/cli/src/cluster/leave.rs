//! `kco cluster leave`: removes the Secret at home, then the account on the target.

use anyhow::{Context as _, Result, bail};
use api::mesh::{KryptonDeployment, TENANT_FINALIZER, Tenant};
use cluster::kubeconfig::{self, renew};
use cluster::{Cluster, Delete, Propagation, ResourceId, Scoped, Selector};
use kube::Resource;
use serde_json::Value;

use super::args::Leave;
use super::join::{home_uid, secret_id};
use super::target::Account;
use super::{home, target_options};
use crate::release::session::{self, Session};
use crate::report::{out, warn};

/// How many of the objects that still use a cluster are named in the error.
const NAMED: usize = 5;

/// Removes a cluster from the operator. Releases are never touched.
pub(super) fn run(args: &Leave) -> Result<()> {
    let connection = home(args.connection.clone());
    session::run(&connection, async |session| {
        let secret = secret_id(session, &args.name)?;
        let found = session.cluster.get_metadata(&secret).await?;
        let metadata = found
            .as_ref()
            .map(|found| found.metadata.clone())
            .unwrap_or_default();
        let noted = metadata
            .annotations
            .unwrap_or_default()
            .remove(renew::SERVICE_ACCOUNT);
        if found.is_some()
            && !metadata
                .labels
                .unwrap_or_default()
                .contains_key(kubeconfig::LABEL)
        {
            bail!(
                "Secret {} in namespace {} does not belong to a cluster: `kco cluster list` shows them",
                args.name,
                session.namespace
            );
        }
        let target = if args.home_only {
            None
        } else {
            let file = args.target_kubeconfig.as_ref();
            let options = target_options(&args.connection, file, args.context.as_ref());
            let client = cluster::client(&options).await.context("the target")?;
            Some(Cluster::new(client))
        };
        let account = Account::new(&args.name, &home_uid(session).await?, "");
        check_free(args, session, target.as_ref()).await?;
        if found.is_none() && target.is_none() {
            bail!(
                "there is no cluster {} in namespace {}: `kco cluster list` shows them",
                args.name,
                session.namespace
            );
        }
        session
            .cluster
            .delete(&secret, &Delete::with(Propagation::Background))
            .await?;
        let Some(target) = target else {
            return out(&format!(
                "{} left: its Secret is removed. The account {} is still on the target: remove it there, or wait until its token has \
                 expired\n",
                args.name,
                noted.as_deref().unwrap_or("that its kubeconfig is of")
            ));
        };
        let removed = account
            .remove(&target)
            .await
            .context("the Secret is removed; once that is resolved, run the same command again")?;
        let removed: Vec<String> = removed.iter().map(ToString::to_string).collect();
        let what = match removed.as_slice() {
            [] => "there was nothing on the target".to_owned(),
            all => format!("removed on the target: {}", all.join(", ")),
        };
        out(&format!(
            "{} left: its Secret at home is removed; {what}\n",
            args.name
        ))
    })
}

/// Refuses to leave while there are objects that only the operator can remove.
async fn check_free(args: &Leave, session: &Session, target: Option<&Cluster>) -> Result<()> {
    let mut holding = Vec::new();
    if let Some(target) = target {
        for tenant in list::<Tenant>(target).await? {
            let finalizers = tenant["metadata"]["finalizers"].as_array();
            if finalizers.is_some_and(|all| all.iter().any(|one| one == TENANT_FINALIZER)) {
                holding.push(format!("Tenant {} on the target", place(&tenant)));
            }
        }
    }
    for deployment in list::<KryptonDeployment>(&session.cluster).await? {
        if goes_to(&deployment["spec"]["region"], &args.name) {
            holding.push(format!("KryptonDeployment {} at home", place(&deployment)));
        }
    }
    if holding.is_empty() {
        return Ok(());
    }
    let more = holding.len().saturating_sub(NAMED);
    holding.truncate(NAMED);
    let mut named = holding.join(", ");
    if more > 0 {
        named = format!("{named} and {more} more");
    }
    if args.keep_releases {
        warn(&format!(
            "{named}: the releases stay on the target, and nothing removes them"
        ));
        return Ok(());
    }
    bail!(
        "{named} still there, whose releases only the operator removes: delete them first, or leave them behind with \
         --keep-releases"
    )
}

/// Whether a deployment's region selects the Secret of this name.
fn goes_to(region: &Value, name: &str) -> bool {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let named =
        text(&region["kubeconfig"]["secret"]["name"]).or_else(|| text(&region["kubeconfigSecretName"]));
    match named {
        Some(named) => named == name,
        None => text(&region["name"]).is_some_and(|region| format!("{region}-kubeconfig") == name),
    }
}

/// All objects of a kind of ours; empty if the kind is not served.
async fn list<K>(cluster: &Cluster) -> Result<Vec<Value>>
where
    K: Resource<DynamicType = ()>,
    K::Scope: Scoped,
{
    match cluster.list(&ResourceId::of::<K>(), Selector::default()).await {
        Ok(found) => Ok(found),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn place(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deployment_goes_where_its_region_says() {
        let secret = |name: &str| json!({"name": "eu", "kubeconfig": {"secret": {"name": name}}});
        assert!(goes_to(&secret("edge"), "edge"));
        assert!(!goes_to(&secret("other"), "edge"));
        assert!(goes_to(
            &json!({"name": "eu", "kubeconfigSecretName": "edge"}),
            "edge"
        ));
        assert!(goes_to(&json!({"name": "eu"}), "eu-kubeconfig"));
        assert!(!goes_to(
            &json!({"name": "eu", "kubeconfigSecretName": "edge"}),
            "eu-kubeconfig"
        ));
        assert!(!goes_to(&json!({}), "edge"));
    }
}
