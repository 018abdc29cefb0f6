//! `kco node reset`: removes what is left of a node.

use anyhow::{Context as _, Result};
use api::joining::JoiningNode;
use cluster::{Cluster, Delete, ObjectId, ResourceId, Selector};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;

use super::args::Reset;
use super::list::is_ready;
use super::plan::{Etcd, NodeFacts, Observed, Step, plan, remains};
use super::{CONTROL_PLANE_LABEL, KUBE_SYSTEM, etcd};
use crate::release::session;
use crate::report::out;

/// Removes the node, or prints what would be done.
pub(super) fn run(args: &Reset) -> Result<()> {
    session::run(&args.connection, async |session| {
        let cluster = &session.cluster;
        let observed = observe(cluster, &args.name).await?;
        let steps = plan(&observed)?;
        for step in &steps {
            if args.yes {
                let done = perform(cluster, args, step).await;
                let told = done
                    .with_context(|| format!("could not {step}; run the same command again to continue"))?;
                out(&format!("{}: {told}\n", args.name))?;
            } else {
                out(&format!("{}: would {step}\n", args.name))?;
            }
        }
        out(&remains(&observed))?;
        if !args.yes {
            out("nothing was done: add --yes to do it\n")?;
        }
        Ok(())
    })
}

async fn observe(cluster: &Cluster, name: &str) -> Result<Observed> {
    let nodes: Vec<Node> = cluster
        .list(&ResourceId::of::<Node>(), Selector::default())
        .await?;
    // A cluster that was not created by `kco init` does not have this type.
    let joining: Vec<JoiningNode> = cluster
        .list(&ResourceId::of::<JoiningNode>(), Selector::default())
        .await
        .unwrap_or_default();
    let facts = |node: &Node| NodeFacts {
        is_control_plane: node.labels().contains_key(CONTROL_PLANE_LABEL),
        is_ready: is_ready(node),
    };
    let node = nodes.iter().find(|node| node.name_any() == name).map(facts);
    let mut other = None;
    for candidate in nodes.iter().filter(|node| node.name_any() != name) {
        let facts = facts(candidate);
        if other.is_none() && facts.is_control_plane && facts.is_ready {
            other = etcd_on(cluster, &candidate.name_any()).await?;
        }
    }
    let about = joining.iter().filter(|joining| joining.spec.name == name);
    Ok(Observed {
        name: name.to_owned(),
        node,
        other,
        joining: about.map(kube::ResourceExt::name_any).collect(),
    })
}

/// The etcd that kubeadm runs on a control plane node.
async fn etcd_on(cluster: &Cluster, node: &str) -> Result<Option<Etcd>> {
    let id = ObjectId::of::<Pod>(Some(KUBE_SYSTEM), &format!("etcd-{node}"))?;
    let pod: Option<Pod> = cluster.get(&id).await?;
    let spec = pod.and_then(|pod| pod.spec);
    let container = spec.and_then(|spec| spec.containers.into_iter().next());
    let image = container.and_then(|container| container.image);
    Ok(image.map(|image| Etcd {
        node: node.to_owned(),
        image,
    }))
}

/// Performs one step, and returns its result in words.
async fn perform(cluster: &Cluster, args: &Reset, step: &Step) -> Result<&'static str> {
    let name = &args.name;
    match step {
        Step::RemoveMember(etcd) => {
            let was_there = etcd::remove_member(cluster, etcd, name, args.timeout).await?;
            Ok(if was_there {
                "its member of etcd is removed"
            } else {
                "it has no member of etcd"
            })
        }
        Step::DeleteJoining(joining) => {
            let id = ObjectId::of::<JoiningNode>(None, joining)?;
            cluster.delete(&id, &Delete::default()).await?;
            Ok("its JoiningNode is deleted")
        }
        Step::DeleteNode => {
            let id = ObjectId::of::<Node>(None, name)?;
            cluster.delete(&id, &Delete::default()).await?;
            Ok("its Node is deleted")
        }
    }
}
