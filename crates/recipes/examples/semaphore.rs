//! Ten jobs, three at a time; a heavy one takes all three places at once.
//!
//! `cargo run -p baton-locks --features embedded --example semaphore`

use std::time::Duration;

use baton::{Client, Semaphore, embedded::Embedded};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = Embedded::in_memory().await?;
    let mut jobs = Vec::new();
    for number in 1..=10 {
        let places = if number == 5 { 3 } else { 1 };
        jobs.push(tokio::spawn(job(server.client().clone(), number, places)));
    }
    for job in jobs {
        job.await??;
    }
    server.shutdown().await?;
    Ok(())
}

async fn job(client: Client, number: u32, places: u32) -> Result<(), Failure> {
    // The number of permits is stored in the tree: anyone who comes with another one is refused.
    let semaphore = Semaphore::new(&client, "/machines", 3)?.name(&format!("job {number}"));
    let guard = semaphore.acquire(places).await?;
    let token = guard.token();
    println!("job {number:2} begins on {places} of 3 machines, under token {token}");
    guard
        .run(tokio::time::sleep(Duration::from_millis(50)))
        .await?;
    println!("job {number:2} ends");
    guard.release().await?;
    Ok(())
}
