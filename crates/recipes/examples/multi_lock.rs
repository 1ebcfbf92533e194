//! Money moves between accounts: each transfer holds both accounts, and no two transfers wait for
//! each other in a circle.
//!
//! `cargo run -p baton-locks --features embedded --example multi_lock`

use baton::tree::CreateMode;
use baton::{Client, MultiLock, embedded::Embedded};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = Embedded::in_memory().await?;
    let session = server.client().session().await?;
    session
        .create("/accounts", b"", CreateMode::Persistent)
        .await?;
    for account in ["/accounts/ann", "/accounts/bob"] {
        session
            .create(account, b"100", CreateMode::Persistent)
            .await?;
    }

    let there = tokio::spawn(transfer(server.client().clone(), "ann", "bob", 30));
    let back = tokio::spawn(transfer(server.client().clone(), "bob", "ann", 10));
    there.await??;
    back.await??;

    for account in ["/accounts/ann", "/accounts/bob"] {
        let sum = session.get_data(account).await?.data;
        println!("{account}: {}", String::from_utf8_lossy(&sum));
    }
    server.shutdown().await?;
    Ok(())
}

async fn transfer(
    client: Client,
    from: &'static str,
    to: &'static str,
    amount: i64,
) -> Result<(), Failure> {
    // Whatever order they are given in, they are taken in one order.
    let lock = MultiLock::new(&client, [from, to].map(|name| format!("/locks/{name}")))?;
    let guard = lock.acquire().await?;
    let session = guard.session().clone();
    let (from, to) = (format!("/accounts/{from}"), format!("/accounts/{to}"));
    let mut sums = Vec::new();
    for account in [&from, &to] {
        let data = session.get_data(account).await?.data;
        sums.push(std::str::from_utf8(&data)?.parse::<i64>()?);
    }
    let (less, more) = match sums[..] {
        [less, more] => (less - amount, more + amount),
        _ => return Err("two accounts have two sums".into()),
    };
    // Both or none, and only while both locks are held.
    guard
        .txn()
        .set(&from, less.to_string().as_bytes(), None)
        .set(&to, more.to_string().as_bytes(), None)
        .commit()
        .await?;
    println!("{amount} from {from} to {to}");
    guard.release().await?;
    Ok(())
}
