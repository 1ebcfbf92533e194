//! An item stays in the queue until its consumer says that it is done: one that gives up leaves it
//! to the next.
//!
//! `cargo run -p baton-locks --features embedded --example locking_queue`

use baton::embedded::Embedded;
use baton::queue::LockingQueue;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let queue = LockingQueue::new(server.client(), "/orders")?;
    queue.offer_all(["order 1", "order 2"]).await?;

    let first = queue.take().await?;
    println!("one has {}", String::from_utf8_lossy(first.data()));
    let second = queue.take().await?;
    println!("other has {}", String::from_utf8_lossy(second.data()));
    assert!(queue.poll().await?.is_none(), "both are locked");

    // The first gives up (or crashes, or loses its session): the order is free again.
    drop(first);
    let again = queue.take().await?;
    println!("other has {} too", String::from_utf8_lossy(again.data()));

    // Removed only if they are still ours at that instant, decided by the server.
    second.consume().await?;
    again.consume().await?;
    assert_eq!(queue.depth().await?, 0);
    server.shutdown().await?;
    Ok(())
}
