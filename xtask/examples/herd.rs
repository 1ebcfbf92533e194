//! The herd effect, counted: how many waiters a release wakes, for a lock that all watch and for a
//! queue of waiters.
//!
//! Each waiter has a connection of its own. A fault proxy in between, which here only counts, sees
//! each watch event that the server sends to a waiter.
//!
//! `cargo run --release -p xtask --example herd -- [WAITERS] [RELEASES]`

use baton::lock::SimpleMutex;
use baton::{Client, Config, Guard, Mutex, embedded::Embedded};
use baton_client::{EventKind, OpCode};
use baton_testkit::{Match, Proxy};
use tokio::task::JoinSet;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const PATH: &str = "/demo";

#[tokio::main]
async fn main() -> Outcome<()> {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let waiters = numbers.next().transpose()?.unwrap_or(1000).max(1);
    let releases = numbers.next().transpose()?.unwrap_or(5).min(waiters);
    for herd in [true, false] {
        let name = if herd { "SimpleMutex" } else { "Mutex" };
        let (woken, requests) = measure(waiters, releases, herd).await?;
        println!(
            "{name:<11}  {waiters} waiters, {releases} releases: {woken} wake-ups, {requests} requests to the server"
        );
    }
    Ok(())
}

/// Counts the waiters that were woken, and the requests that the server got, for a number of
/// releases.
async fn measure(waiters: u64, releases: u64, herd: bool) -> Outcome<(u64, u64)> {
    let server = Embedded::in_memory().await?;
    let proxy = Proxy::start(server.connect_string().parse()?).await?;
    let watches = Match::reply(OpCode::GetData).path_contains(PATH).error(0);
    let watches = proxy.on(watches.every()).observe();
    let mut guard = acquire(proxy.connect_string(), herd).await?;
    let mut waiting = JoinSet::new();
    for _ in 0..waiters {
        waiting.spawn(acquire(proxy.connect_string(), herd));
        // One after the other, so that the server is not asked for a thousand sessions at once.
        tokio::task::yield_now().await;
    }
    // The holder watches its own node; a waiter that of the holder, or its own and that of the one
    // before it.
    let per_waiter = if herd { 1 } else { 2 };
    let mut set = 1 + waiters * per_waiter;
    watches.fired_times(set).await;

    let woken = Match::event(EventKind::NodeDeleted).path_contains(PATH);
    let woken = proxy.on(woken.every()).observe();
    let requests = proxy
        .on(Match::any_request().path_contains(PATH).every())
        .observe();
    // The events that tell a holder of the end of its own node are no wake-ups.
    let mut own = 0;
    for nth in 0..releases {
        guard.release().await?;
        own += 1;
        guard = waiting.join_next().await.ok_or("nobody waits")???;
        if herd {
            // The next holder watches its own node, all others that node again.
            set += waiters - nth;
            watches.fired_times(set).await;
        }
    }
    woken.fired_times(own + releases).await;
    let counted = (woken.times() - own, requests.times());
    waiting.abort_all();
    drop(guard);
    Ok(counted)
}

async fn acquire(servers: String, herd: bool) -> Outcome<Guard> {
    let client = Client::connect(Config::new(&servers)?).await?;
    Ok(if herd {
        SimpleMutex::new(&client, PATH)?.acquire().await?
    } else {
        Mutex::new(&client, PATH)?.acquire().await?
    })
}
