//! A lock that is one node and no wait queue, as simple clients make it: a release wakes all that
//! wait.
//!
//! `cargo run -p baton-locks --features embedded --example simple_mutex`

use baton::embedded::Embedded;
use baton::lock::SimpleMutex;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let mutex = SimpleMutex::new(server.client(), "/demo")?;

    let guard = mutex.acquire().await?;
    println!("holding {} with token {}", guard.node(), guard.token());
    assert!(mutex.try_acquire().await?.is_none(), "held already");
    guard.release().await?;

    let again = mutex.acquire().await?;
    println!("holding again with token {}", again.token());
    again.release().await?;
    server.shutdown().await?;
    Ok(())
}
