//! Watching who leads, without competing.
//!
//! `cargo run -p baton-locks --features embedded --example observe`

use baton::election::Departure;
use baton::{LeaderElection, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let election = LeaderElection::new(server.client(), "/election")?;
    let mut observer = election.leaders().with_reasons();
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
    assert!(observer.next().await?.is_none(), "nobody follows");
    assert_eq!(observer.departure(), Some(Departure::Resigned));
    println!("it has resigned, and nobody leads");

    server.shutdown().await?;
    Ok(())
}
