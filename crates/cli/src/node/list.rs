//! `kco node list`: the nodes of the cluster, and the machines that are joining.

use std::collections::BTreeMap;

use anyhow::Result;
use api::joining::JoiningNode;
use cluster::{ResourceId, Selector};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use serde::Serialize;

use super::CONTROL_PLANE_LABEL;
use super::args::List;
use crate::release::output;
use crate::release::screen::{Paint, Screen};
use crate::release::session;
use crate::release::table::{Cell, table};

/// A node.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    role: &'static str,
    state: &'static str,
    version: String,
    address: String,
}

/// Prints the nodes sorted by name.
pub(super) fn run(args: &List) -> Result<()> {
    let (rows, screen) = session::run(&args.connection, async |session| {
        let cluster = &session.cluster;
        let nodes: Vec<Node> = cluster
            .list(&ResourceId::of::<Node>(), Selector::default())
            .await?;
        // A cluster that was not created by `kco init` does not have this type.
        let joining = cluster
            .list(&ResourceId::of::<JoiningNode>(), Selector::default())
            .await;
        Ok((rows(&nodes, &joining.unwrap_or_default()), session.screen))
    })?;
    output::print(args.output.output, &rows, || text(&rows, screen))
}

fn rows(nodes: &[Node], joining: &[JoiningNode]) -> Vec<Row> {
    let waiting = joining.iter().map(|joining| {
        let spec = &joining.spec;
        let row = Row {
            name: spec.name.clone(),
            role: role(spec.is_control_plane),
            state: "Joining",
            version: String::new(),
            address: String::new(),
        };
        (spec.name.clone(), row)
    });
    let there = nodes.iter().map(|node| (node.name_any(), row(node)));
    // A machine that has a Node has joined, even if its ticket is still there.
    let rows: BTreeMap<String, Row> = waiting.chain(there).collect();
    rows.into_values().collect()
}

fn row(node: &Node) -> Row {
    let status = node.status.as_ref();
    let address = status
        .and_then(|status| status.addresses.as_ref())
        .and_then(|addresses| addresses.iter().find(|address| address.type_ == "InternalIP"));
    let version = status.and_then(|status| status.node_info.as_ref());
    Row {
        name: node.name_any(),
        role: role(node.labels().contains_key(CONTROL_PLANE_LABEL)),
        state: if is_ready(node) { "Ready" } else { "NotReady" },
        version: version.map_or_else(String::new, |info| info.kubelet_version.clone()),
        address: address.map_or_else(String::new, |address| address.address.clone()),
    }
}

/// True if the node's kubelet reports that it can run pods.
pub(super) fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn role(is_control_plane: bool) -> &'static str {
    if is_control_plane {
        "control-plane"
    } else {
        "worker"
    }
}

fn text(rows: &[Row], screen: Screen) -> String {
    let headers = ["NAME", "ROLE", "STATE", "VERSION", "ADDRESS"];
    let mut cells: Vec<Vec<Cell>> = vec![headers.map(Cell::from).into()];
    cells.extend(rows.iter().map(|row| {
        let Row {
            name,
            role,
            state,
            version,
            address,
        } = row;
        let paint = match *state {
            "Ready" => Paint::Good,
            "NotReady" => Paint::Bad,
            _ => Paint::Busy,
        };
        vec![
            name.as_str().into(),
            (*role).into(),
            screen.cell(paint, *state),
            version.as_str().into(),
            address.as_str().into(),
        ]
    }));
    table(&cells)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(name: &str, ready: &str) -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {CONTROL_PLANE_LABEL: ""}},
            "status": {
                "addresses": [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "198.18.0.2"}],
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }))
        .unwrap()
    }

    fn joining(name: &str) -> JoiningNode {
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"name": name, "deadline": "2026-01-01T00:00:00Z"},
        }))
        .unwrap()
    }

    #[test]
    fn nodes_are_shown_with_those_that_are_about_to_join() {
        let nodes = [node("node-1", "True"), node("node-3", "Unknown")];
        let rows = rows(&nodes, &[joining("node-2"), joining("node-3")]);
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.name.as_str(), row.role, row.state, row.address.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                ("node-1", "control-plane", "Ready", "198.18.0.2"),
                ("node-2", "worker", "Joining", ""),
                ("node-3", "control-plane", "NotReady", "198.18.0.2"),
            ]
        );
    }
}
