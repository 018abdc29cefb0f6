//! Applies or deletes objects in parallel: `kubectl` sends one request after another, and would dominate the
//! measurement.

use std::io::stdin;

use anyhow::{Context as _, Result};
use cluster::{Apply, Cluster, Delete};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use crate::{Objects, connect};

/// Applies the items of the list on standard input.
pub(crate) async fn apply(args: &Objects) -> Result<()> {
    let objects = read()?;
    let cluster = connect(&args.kubeconfig, "release-driver/apply").await?;
    stream::iter(&objects)
        .map(|object| apply_one(object, &cluster))
        .buffer_unordered(args.at_once)
        .try_collect()
        .await
}

/// Deletes the items of the list on standard input, and does not wait until they are gone.
pub(crate) async fn delete(args: &Objects) -> Result<()> {
    let objects = read()?;
    let cluster = connect(&args.kubeconfig, "release-driver/delete").await?;
    stream::iter(&objects)
        .map(|object| delete_one(object, &cluster))
        .buffer_unordered(args.at_once)
        .try_collect()
        .await
}

fn read() -> Result<Vec<Value>> {
    let mut list: Value = serde_json::from_reader(stdin()).context("standard input is no JSON")?;
    match list["items"].take() {
        Value::Array(objects) => Ok(objects),
        _ => anyhow::bail!("standard input is no list"),
    }
}

async fn apply_one(object: &Value, cluster: &Cluster) -> Result<()> {
    let id = cluster.locate(object, None).await?;
    cluster.apply(&id, object, &Apply::by("release-driver")).await?;
    Ok(())
}

async fn delete_one(object: &Value, cluster: &Cluster) -> Result<()> {
    let id = cluster.locate(object, None).await?;
    cluster.delete(&id, &Delete::default()).await?;
    Ok(())
}
