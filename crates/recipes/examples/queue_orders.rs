//! Queues in another order than that of arrival: by urgency, by time, and items that can be taken
//! back by name.
//!
//! `cargo run -p baton-locks --features embedded --example queue_orders`

use std::time::{Duration, Instant};

use baton::embedded::Embedded;
use baton::queue::{DelayQueue, IdQueue, PriorityQueue};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;

    let urgent = PriorityQueue::new(server.client(), "/tickets")?;
    urgent.offer(b"new colour for the logo", 50).await?;
    urgent.offer(b"nobody can log in", -10).await?;
    urgent.offer(b"a typing error", 50).await?;
    while let Some(ticket) = urgent.poll().await? {
        println!("ticket: {}", String::from_utf8_lossy(&ticket));
    }

    let teas = DelayQueue::new(server.client(), "/teas")?;
    let start = Instant::now();
    teas.offer(b"black", Duration::from_millis(200)).await?;
    teas.offer(b"green", Duration::from_millis(100)).await?;
    assert!(teas.poll().await?.is_none(), "none is ready yet");
    for _ in 0..2 {
        let tea = teas.take().await?;
        let after = start.elapsed().as_millis();
        println!("after {after} ms: {} tea", String::from_utf8_lossy(&tea));
    }

    let mails = IdQueue::new(server.client(), "/mails")?;
    mails.offer(b"welcome!", "alice").await?;
    mails.offer(b"welcome!", "bob").await?;
    println!("taken back: {}", mails.remove("alice").await?);
    while let Some(mail) = mails.poll().await? {
        println!("mail to {}", mail.id);
    }
    server.shutdown().await?;
    Ok(())
}
