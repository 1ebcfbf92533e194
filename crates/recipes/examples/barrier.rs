//! Three workers that compute in step, a gate that lets them start, and a latch that opens when all
//! have loaded.
//!
//! `cargo run -p baton-locks --features embedded --example barrier`

use baton::{Barrier, Client, CountdownLatch, DoubleBarrier, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let client = server.client().clone();

    let gate = Barrier::new(&client, "/start")?;
    gate.close().await?;
    let loaded = CountdownLatch::new(&client, "/loaded", 3)?;
    let workers: Vec<_> = (1..=3)
        .map(|worker| tokio::spawn(work(worker, client.clone())))
        .collect();

    loaded.wait().await?;
    println!("all have loaded: open the gate");
    gate.open().await?;
    for worker in workers {
        worker.await?.map_err(|error| error.to_string())?;
    }
    loaded.remove().await?;
    server.shutdown().await?;
    Ok(())
}

async fn work(worker: u32, client: Client) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    CountdownLatch::new(&client, "/loaded", 3)?
        .count_down(&format!("worker-{worker}"))
        .await?;
    Barrier::new(&client, "/start")?.wait().await?;

    let step = DoubleBarrier::new(&client, "/step", 3)?.name(&format!("worker-{worker}"));
    for _ in 0..2 {
        let inside = step.enter().await?;
        println!("worker {worker}: in round {:?}", inside.round());
        let left = inside.leave().await?;
        assert_eq!(left.lost, 0);
    }
    Ok(())
}
