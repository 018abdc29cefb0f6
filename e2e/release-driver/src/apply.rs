//! Applies objects in parallel: `kubectl apply` sends one after another, and would dominate the measurement.

use std::io::stdin;

use anyhow::{Context as _, Result};
use cluster::{Apply, Cluster};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use crate::{ApplyList, connect};

/// Applies the items of the list on standard input.
pub(crate) async fn run(args: &ApplyList) -> Result<()> {
    let mut list: Value = serde_json::from_reader(stdin()).context("standard input is no JSON")?;
    let Value::Array(objects) = list["items"].take() else {
        anyhow::bail!("standard input is no list");
    };
    let cluster = connect(&args.kubeconfig, "release-driver/apply").await?;
    stream::iter(&objects)
        .map(|object| apply(object, &cluster))
        .buffer_unordered(args.at_once)
        .try_collect()
        .await
}

async fn apply(object: &Value, cluster: &Cluster) -> Result<()> {
    let id = cluster.locate(object, None).await?;
    cluster.apply(&id, object, &Apply::by("release-driver")).await?;
    Ok(())
}
