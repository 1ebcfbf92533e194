//! A producer, and a consumer whose work fails now and then: what is not acknowledged comes back,
//! and what never works is kept.
//!
//! `cargo run -p baton-locks --features embedded --example work_queue`

use std::time::Duration;

use baton::work_queue::WorkItem;
use baton::{WorkQueue, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let queue = WorkQueue::new(server.client(), "/thumbnails")?
        .max_attempts(3)
        .backoff(Duration::from_millis(50), Duration::from_secs(1));

    queue
        .offer_all(["cat.jpg", "dog.jpg", "broken.jpg"].map(WorkItem::new))
        .await?;
    queue
        .offer(WorkItem::new("now.jpg").priority(0).id("now"))
        .await?;

    let mut done = 0;
    while done < 3 || queue.oldest_dead_letters(1).await?.is_empty() {
        let claim = queue.take().await?;
        let name = String::from_utf8_lossy(claim.payload()).into_owned();
        // The work is dropped the moment the claim is lost.
        match claim.run(resize(&name)).await? {
            Ok(()) => {
                println!("{name}: done at attempt {}", claim.attempt());
                claim.ack().await?;
                done += 1;
            }
            Err(why) => {
                println!("{name}: attempt {}: {why}", claim.attempt());
                claim.nack(&why).await?;
            }
        }
    }
    for letter in queue.dead_letters().await? {
        println!(
            "{}: dead after {} attempts: {}",
            String::from_utf8_lossy(&letter.payload),
            letter.attempts,
            letter.reason
        );
    }
    server.shutdown().await?;
    Ok(())
}

async fn resize(name: &str) -> Result<(), String> {
    if name.starts_with("broken") {
        return Err("no picture".to_owned());
    }
    Ok(())
}
