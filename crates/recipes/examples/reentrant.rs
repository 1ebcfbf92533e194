//! A lock that its holder may acquire again: two functions, each of which locks, and one of
//! which calls the other.
//!
//! `cargo run -p baton-locks --features embedded --example reentrant`

use baton::lock::OwnerId;
use baton::{ReentrantMutex, embedded::Embedded};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let server = Embedded::in_memory().await?;
    let lock = ReentrantMutex::new(server.client(), "/account/7")?;

    let request = OwnerId::unique();
    transfer(&lock, &request).await?;
    // Another request waits for the first, whichever function it calls.
    book(&lock, &OwnerId::unique()).await?;

    server.shutdown().await?;
    Ok(())
}

async fn transfer(lock: &ReentrantMutex, owner: &OwnerId) -> Outcome<()> {
    let guard = lock.acquire(owner).await?;
    book(lock, owner).await?;
    println!(
        "transferred under token {}, by {} guard(s)",
        guard.token(),
        guard.count()
    );
    guard.release().await?;
    Ok(())
}

async fn book(lock: &ReentrantMutex, owner: &OwnerId) -> Outcome<()> {
    let guard = lock.acquire(owner).await?;
    println!(
        "booked under token {}, by {} guard(s)",
        guard.token(),
        guard.count()
    );
    guard.release().await?;
    Ok(())
}
