//! Settings kept in memory: one multi of changes is one step of the view.
//!
//! `cargo run -p baton-locks --features embedded --example tree_cache`

use baton::cache::CacheEvent;
use baton::tree::{CreateMode, Op};
use baton::{TreeCache, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let session = server.client().session().await?;
    let cache = TreeCache::builder(server.client(), "/settings")?
        .max_nodes(1_000)
        .start()?;
    let mut events = cache.events();
    if let Some(CacheEvent::Reset(snapshot)) = events.next().await {
        println!("at first: {} nodes", snapshot.len());
    }

    let host = Op::create("/settings/host", "db-1", CreateMode::Persistent);
    let port = Op::create("/settings/port", "5432", CreateMode::Persistent);
    let top = Op::create("/settings", "", CreateMode::Persistent);
    session.multi(&[top, host, port]).await?;
    if let Some(CacheEvent::Update(update)) = events.next().await {
        println!(
            "{} changes up to zxid {}:",
            update.changes.len(),
            update.as_of
        );
        for change in &update.changes {
            println!("  {}", change.path());
        }
    }

    let snapshot = cache.catch_up().await?;
    for name in snapshot.children("/settings") {
        println!(
            "{name} = {:?}",
            cache
                .get(&format!("/settings/{name}"))
                .map(|node| node.data)
        );
    }
    server.shutdown().await?;
    Ok(())
}
