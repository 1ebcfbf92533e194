//! Two workers, one report: each writes it only while it holds the lock, and with its fencing
//! token.
//!
//! `cargo run -p baton-locks --features embedded --example mutex`

use baton::tree::CreateMode;
use baton::{Client, Mutex, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let session = server.client().session().await?;
    session
        .create("/report", b"empty", CreateMode::Persistent)
        .await?;

    let one = tokio::spawn(work(server.client().clone(), "one"));
    let other = tokio::spawn(work(server.client().clone(), "other"));
    one.await?.map_err(|error| error.to_string())?;
    other.await?.map_err(|error| error.to_string())?;

    server.shutdown().await?;
    Ok(())
}

async fn work(
    client: Client,
    name: &'static str,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mutex = Mutex::new(&client, "/locks/report")?.name(name);
    let guard = mutex.acquire().await?;
    // Dropped the moment the lock is no longer ours.
    let text = guard.run(write_text(name, guard.token())).await?;
    // Applied by the server only if the lock is still ours at that point.
    guard
        .txn()
        .set("/report", text.as_bytes(), None)
        .commit()
        .await?;
    println!("{text}");
    guard.release().await?;
    Ok(())
}

async fn write_text(name: &str, token: u64) -> String {
    format!("report by {name}, under token {token}")
}
