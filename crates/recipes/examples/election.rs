//! Three candidates, one leader at a time: each leads once, and the stages of one of them are
//! printed.
//!
//! `cargo run -p baton-locks --features embedded --example election`

use baton::{LeaderElection, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let mut candidates = Vec::new();
    for name in ["a", "b", "c"] {
        let election = LeaderElection::new(server.client(), "/election")?.name(name);
        let mut stages = election.stages();
        candidates.push(tokio::spawn(async move {
            // Dropped before another may lead, should leadership end early.
            election
                .lead(async |term| println!("{name} leads in term {}", term.epoch))
                .await
        }));
        if name == "b" {
            tokio::spawn(async move {
                while let Some(stage) = stages.next().await {
                    println!("  b: {stage:?}");
                }
            });
        }
    }
    for candidate in candidates {
        candidate.await??;
    }
    server.shutdown().await?;
    Ok(())
}
