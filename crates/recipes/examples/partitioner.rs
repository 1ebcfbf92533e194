//! Eight shards, indexed by anyone who is there: one worker at first, then two, then the first one
//! goes.
//!
//! `cargo run -p baton-locks --features embedded --example partitioner`

use std::collections::HashMap;
use std::time::Duration;

use baton::partition::PartitionEvent;
use baton::{Client, Partitioner, embedded::Embedded};
use tokio::sync::oneshot;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = Embedded::in_memory().await?;
    let pause = Duration::from_millis(300);

    let (stop_one, stopped_one) = oneshot::channel();
    let one = tokio::spawn(work(server.client().clone(), "one", stopped_one));
    tokio::time::sleep(pause).await;
    let (stop_two, stopped_two) = oneshot::channel();
    let two = tokio::spawn(work(server.client().clone(), "two", stopped_two));
    tokio::time::sleep(pause).await;
    drop(stop_one);
    one.await??;
    tokio::time::sleep(pause).await;
    drop(stop_two);
    two.await??;

    server.shutdown().await?;
    Ok(())
}

async fn work(
    client: Client,
    name: &'static str,
    mut stopped: oneshot::Receiver<()>,
) -> Result<(), Failure> {
    let shards = (0..8).map(|number| format!("shard-{number}"));
    let mut partition = Partitioner::new(&client, "/index", shards)?.join(name)?;
    let mut mine = HashMap::new();
    loop {
        let event = tokio::select! {
            event = partition.next() => event?,
            _ = &mut stopped => break,
        };
        match event {
            PartitionEvent::Assigned { item, guard } => {
                println!("{name} has {item}, token {}", guard.token());
                mine.insert(item, guard);
            }
            PartitionEvent::Revoked { item } => {
                println!("{name} lets {item} go");
                if let Some(guard) = mine.remove(&item) {
                    guard.release().await?;
                }
            }
            other => println!("{name}: {other:?}"),
        }
    }
    partition.leave().await;
    println!("{name} leaves with {} shards", mine.len());
    for (_, guard) in mine {
        guard.release().await?;
    }
    Ok(())
}
