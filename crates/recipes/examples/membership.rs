//! A group: two members, one of which loses its session and nobody notices.
//!
//! `cargo run -p baton-locks --features embedded --example membership`

use baton::{Client, Config, Membership, embedded::Embedded};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let group = Membership::new(server.client(), "/services/web")?;
    let mut view = group.updates()?;
    assert!(view.next().await?.members.is_empty());

    let first = group.join("10.0.0.7", b"port=80")?;
    first.registered().await?;
    println!("joined: {}", view.next().await?.joined.len());

    // Another process, with a client of its own.
    let elsewhere = Client::connect(Config::new(&server.connect_string())?).await?;
    let second = Membership::new(&elsewhere, "/services/web")?.join("10.0.0.8", b"port=80")?;
    second.registered().await?;
    println!("members: {}", view.next().await?.members.len());

    // Its session is lost, and is still alive at the server: the next session takes the node over.
    let _lost = elsewhere.session().await?.hand_over();
    let update = view.next().await?;
    assert!(update.left.is_empty());
    for member in &update.changed {
        println!("{} has a new session; nobody saw it leave", member.id);
    }

    first.set_data(b"port=80 draining")?;
    for member in &view.next().await?.changed {
        println!("{} is {:?}", member.id, member.data);
    }

    first.leave().await;
    let update = view.next().await?;
    for member in &update.left {
        println!("{} has left; {} remains", member.id, update.members.len());
    }

    second.leave().await;
    server.shutdown().await?;
    Ok(())
}
