//! Installs through the library compared with the same writes by a bare client.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use helm_client::records::Observed;
use helm_client::release::{Options, Releases};
use serde_json::Map;

use crate::bare;
use crate::charts::Input;
use crate::{Compare, connect};

/// Prints the times and their ratio.
pub(crate) async fn run(args: &Compare) -> Result<()> {
    ensure!(
        args.rounds > 0 && args.place.releases >= args.rounds,
        "there must be a release for each round"
    );
    let input = Input::load(&args.chart, Map::new())?;
    let each = args.place.releases / args.rounds;
    let (mut library, mut client) = (Duration::ZERO, Duration::ZERO);
    // The first request of a client discovers what the server serves; both have done that before the time is taken.
    let (ours, theirs) = (
        connect(&args.place.kubeconfig, "release-driver/library").await?,
        connect(&args.place.kubeconfig, "release-driver/bare").await?,
    );
    let warm = Observed::default();
    input.render(&ours, &args.library, "warm", &warm).await?;
    let releases = Releases::new(ours.clone(), Options::default());
    for round in 0..args.rounds {
        let names: Vec<String> = (0..each)
            .map(|number| format!("r{}", round * each + number))
            .collect();
        let mut writes = Vec::new();
        for name in &names {
            let desired = input.render(&theirs, &args.bare, name, &warm).await?;
            writes.push(bare::install(&theirs, &desired).await?);
        }
        let begun = Instant::now();
        stream::iter(&names)
            .map(|name| async {
                let observed = Observed::default();
                let desired = input.render(&ours, &args.library, name, &observed).await?;
                Box::pin(releases.install(&desired, &observed)).await?;
                anyhow::Ok(())
            })
            .buffer_unordered(args.place.at_once)
            .try_collect::<()>()
            .await?;
        library += begun.elapsed();
        let begun = Instant::now();
        stream::iter(&writes)
            .map(|writes| bare::send(writes, &theirs))
            .buffer_unordered(args.place.at_once)
            .try_collect::<Vec<usize>>()
            .await?;
        client += begun.elapsed();
    }
    let (library, client) = (library.as_secs_f64(), client.as_secs_f64());
    println!(
        "{} releases, {} at a time: library {library:.2} s, bare client {client:.2} s, ratio {:.2}",
        each * args.rounds,
        args.place.at_once,
        library / client
    );
    Ok(())
}
