//! Many readers or one writer, and the changes between them.
//!
//! `cargo run -p baton-locks --features embedded --example rw_lock`

use baton::lock::LockError;
use baton::{RwLock, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let lock = RwLock::new(server.client(), "/config")?.name("loader");

    let first = lock.read().await?;
    let second = lock.read().await?;
    println!(
        "two read, with tokens {} and {}",
        first.token(),
        second.token()
    );
    assert!(lock.try_write().await?.is_none(), "nobody writes meanwhile");

    // Two readers that both waited to become the writer would wait for each other for ever.
    let refused = match first.upgrade().await {
        Ok(_) => return Err("became the writer beside a reader".into()),
        Err(refused) => refused,
    };
    assert!(matches!(refused.source, LockError::WouldDeadlock { .. }));
    println!("refused: {refused}");
    refused.guard.release().await?;
    second.release().await?;

    let writer = lock.write().await?;
    println!("one writes, with token {}", writer.token());
    // In one step, so that no other writer comes between.
    let reader = writer.downgrade().await?;
    println!("and reads on, with token {}", reader.token());
    reader.release().await?;

    server.shutdown().await?;
    Ok(())
}
