//! Cost of a waiting acquire to the client: resident memory of this process with many of them, on
//! one session.
//!
//! The server is another process, so that its memory does not count.
//!
//! `cargo run --release -p baton-locks --features embedded --example waiters_memory -- [WAITERS]`

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use baton::lock::LockError;
use baton::{Client, Config, Mutex, embedded::Embedded};
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Length of a wait queue: each waiter that joins lists it once.
const LINE: usize = 100;

#[tokio::main]
async fn main() -> Outcome<()> {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("serve") {
        return serve().await;
    }
    let waiters: usize = argument.map_or(Ok(10_000), |text| text.parse())?;
    let mut server = Command::new(std::env::current_exe()?)
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;

    let measured = measure(line.trim(), waiters).await;
    // The end of its input is the end of the server.
    drop(server.stdin.take());
    server.wait()?;
    measured
}

async fn measure(servers: &str, waiters: usize) -> Outcome<()> {
    let client = Client::connect(Config::new(servers)?).await?;
    let mut held = Vec::new();
    let mut locks = Vec::new();
    for nth in 0..waiters.div_ceil(LINE) {
        let lock = Mutex::new(&client, &format!("/lines/{nth}"))?;
        held.push(lock.acquire().await?);
        locks.push(lock);
    }
    let future_bytes = locks.first().map_or(0, |lock| size_of_val(&lock.acquire()));
    println!("the future of an acquire: {future_bytes} bytes");
    let before = resident_bytes()?;
    let mut waiting = JoinSet::new();
    for (nth, lock) in locks.iter().cycle().take(waiters).enumerate() {
        let lock = lock.clone();
        waiting.spawn(async move { lock.acquire().await.map(drop) });
        if nth % 500 == 499 {
            settle(&client).await?;
        }
    }
    settle(&client).await?;
    let after = resident_bytes()?;
    println!(
        "{waiters} waiting acquires on one session: {} bytes each ({} MiB in all)",
        after.saturating_sub(before) / waiters,
        after.saturating_sub(before) >> 20
    );
    drop(held);
    while let Some(done) = waiting.join_next().await {
        done?.map_err(|error: LockError| error.to_string())?;
    }
    Ok(())
}

/// Waits until what the waiters have asked is answered.
async fn settle(client: &Client) -> Outcome<()> {
    for _ in 0..10 {
        client.session().await?.sync("/").await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn resident_bytes() -> Outcome<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: usize = line
        .ok_or("no VmRSS")?
        .trim()
        .trim_end_matches(" kB")
        .trim()
        .parse()?;
    Ok(kib * 1024)
}

async fn serve() -> Outcome<()> {
    let server = Embedded::in_memory().await?;
    println!("{}", server.connect_string());
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    server.shutdown().await?;
    Ok(())
}
