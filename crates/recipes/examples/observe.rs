//! Watching who leads, without competing.
//!
//! `cargo run -p baton --features embedded --example observe`

use baton::{LeaderElection, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let election = LeaderElection::new(server.client(), "/election")?;
    let mut observer = election.leaders();
    assert!(
        observer.next().await?.is_none(),
        "nobody stands for election yet"
    );

    let leadership = election.clone().name("the one").campaign().await?;
    if let Some(leader) = observer.next().await? {
        let name = leader
            .record
            .and_then(|record| record.name)
            .unwrap_or_default();
        println!(
            "{name} leads, at {}, with token {}",
            leader.node, leader.token
        );
    }
    leadership.resign().await?;
    assert!(observer.next().await?.is_none(), "it has resigned");
    println!("nobody leads");

    server.shutdown().await?;
    Ok(())
}
