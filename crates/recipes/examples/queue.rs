//! One producer, two consumers: each item goes to one of them, in order.
//!
//! `cargo run -p baton-locks --features embedded --example queue`

use baton::{DistributedQueue, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let mut consumers = Vec::new();
    for name in ["one", "other"] {
        let queue = DistributedQueue::new(server.client(), "/jobs")?;
        consumers.push(tokio::spawn(async move {
            loop {
                let item = queue.take().await?;
                if item.is_empty() {
                    return Ok::<_, baton::queue::QueueError>(());
                }
                println!("{name} got {}", String::from_utf8_lossy(&item));
            }
        }));
    }

    let queue = DistributedQueue::new(server.client(), "/jobs")?;
    for build in 1..=6 {
        queue.offer(format!("build {build}").as_bytes()).await?;
    }
    // An empty item makes a consumer stop.
    for _ in &consumers {
        queue.offer(b"").await?;
    }
    for consumer in consumers {
        consumer.await??;
    }
    assert!(queue.poll().await?.is_none());
    server.shutdown().await?;
    Ok(())
}
