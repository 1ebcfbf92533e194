//! A counter from which ten tasks draw different numbers, and a value that is changed by anyone who
//! saw it last.
//!
//! `cargo run -p baton-locks --features embedded --example counter`

use baton::{Counter, SharedValue, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let tickets = Counter::new(server.client(), "/tickets")?;
    let mut drawing = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let tickets = tickets.clone();
        drawing.spawn(async move { tickets.add(1).await });
    }
    let mut drawn = Vec::new();
    while let Some(ticket) = drawing.join_next().await {
        drawn.push(ticket??);
    }
    drawn.sort_unstable();
    println!("drawn: {drawn:?}");
    assert_eq!(drawn, (1..=10).collect::<Vec<i64>>());

    let limit = SharedValue::new(server.client(), "/settings/limit")?;
    let mut values = limit.values()?;
    assert!(values.next().await?.is_none(), "not there yet");
    limit.set(b"10").await?;
    let seen = values.next().await?;
    println!("received: {:?}", seen.as_ref().map(|value| &value.data));
    assert!(limit.compare_and_set(seen.as_ref(), b"20").await?);
    assert!(
        !limit.compare_and_set(seen.as_ref(), b"30").await?,
        "not what was seen any more"
    );
    println!(
        "received: {:?}",
        values.next().await?.map(|value| value.data)
    );

    server.shutdown().await?;
    Ok(())
}
