//! A storm of reconnects: thousands of sessions lose their connections with TLS at once and come
//! back at once, while others go on working. Counts the sessions that were lost, of both.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use baton_proto::{ConnectRequest, ConnectResponse, Request};
use baton_testkit::{RawClient, RawError};
use baton_tls::ClientTls;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::TARGETS;
use crate::Result;
use crate::process::Server;
use crate::secure::Credentials;
use crate::table::{markdown, show};

/// The shortest session that a server with a tick of 2 s grants.
const SHORT_SESSION: Duration = Duration::from_secs(4);
/// Longer than the storm may last: this client computes its half of each handshake on the same
/// cores, and its own slowness is not to cost sessions.
const LONG_SESSION: Duration = Duration::from_secs(180);
/// Sessions that work beside the storm, half of them with TLS.
const BYSTANDERS: usize = 20;
const WORKS_EVERY: Duration = Duration::from_millis(250);
/// Sessions are opened this many at a time, before the storm.
const OPENED_AT_A_TIME: usize = 64;
/// A client that could not connect tries again after this.
const PAUSE: Duration = Duration::from_millis(500);
/// Limit on the storm.
const LIMIT: Duration = Duration::from_secs(150);

/// Runs it on both servers; the table.
pub(super) fn run(
    count: u16,
    baton: &Path,
    dir: &Path,
    credentials: &Credentials,
) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let mut rows = Vec::new();
    for target in TARGETS {
        eprintln!("storm of {count} on {target:?}");
        let folder = dir.join(format!("storm-{target:?}"));
        let server = credentials.start(target, baton, &folder, "want")?;
        let outcome = runtime.block_on(storm(usize::from(count), &server, credentials))?;
        let row = vec![
            format!("{target:?}"),
            count.to_string(),
            format!("{} s", show(outcome.seconds)),
            outcome.attempts.to_string(),
            outcome.lost.to_string(),
            BYSTANDERS.to_string(),
            outcome.bystanders_lost.to_string(),
            format!("{} ms", show(outcome.slowest.as_secs_f64() * 1e3)),
        ];
        eprintln!("{}", row.join(", "));
        rows.push(row);
    }
    let head = [
        "storm on",
        "connections lost at once",
        "all back after",
        "attempts",
        "sessions lost",
        "other sessions, of 4 s",
        "of these lost",
        "their slowest answer",
    ];
    Ok(markdown(&head, &rows) + "\n")
}

struct Outcome {
    seconds: f64,
    attempts: usize,
    lost: usize,
    bystanders_lost: usize,
    slowest: Duration,
}

/// Address and transport of a session.
#[derive(Clone)]
struct ServerTarget {
    addr: SocketAddr,
    tls: Option<ClientTls>,
}

impl ServerTarget {
    async fn connect(
        &self,
        timeout: Duration,
        session: Option<&ConnectResponse>,
    ) -> std::result::Result<RawClient, RawError> {
        let none = [0; 16];
        let request = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            session_id: session.map_or(0, |session| session.session_id),
            password: session.map_or(&none, |session| &session.password),
            read_only: Some(false),
        };
        match &self.tls {
            Some(tls) => RawClient::handshake_with_tls(self.addr, tls, &request).await,
            None => RawClient::handshake(self.addr, &request).await,
        }
    }
}

async fn storm(count: usize, server: &Server, credentials: &Credentials) -> Result<Outcome> {
    let secure = ServerTarget {
        addr: server.secure_addr().ok_or("no port with TLS")?,
        tls: Some(ClientTls::new(credentials.authority(true))?),
    };
    let plain = ServerTarget {
        addr: server.addr().parse()?,
        tls: None,
    };
    let mut clients = Vec::with_capacity(count);
    let mut opening = JoinSet::new();
    let turns = Arc::new(Semaphore::new(OPENED_AT_A_TIME));
    for _ in 0..count {
        let (way, turns) = (secure.clone(), Arc::clone(&turns));
        opening.spawn(async move {
            let _turn = turns.acquire_owned().await;
            // A server may refuse some of these handshakes.
            let mut attempts_left = 20;
            loop {
                match way.connect(LONG_SESSION, None).await {
                    Err(_) if attempts_left > 0 => attempts_left -= 1,
                    opened => return opened,
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    while let Some(opened) = opening.join_next().await {
        clients.push(opened??);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let mut working = JoinSet::new();
    for number in 0..BYSTANDERS {
        let way = if number % 2 == 0 { &plain } else { &secure };
        let client = way.connect(SHORT_SESSION, None).await?;
        working.spawn(work(client, Arc::clone(&is_over)));
    }

    let attempts = Arc::new(AtomicUsize::new(0));
    let sessions: Vec<ConnectResponse> = clients.iter().map(|client| *client.session()).collect();
    clients.into_iter().for_each(RawClient::reset);
    let begin = Instant::now();
    let mut coming = JoinSet::new();
    for session in sessions {
        coming.spawn(come_back(
            secure.clone(),
            session,
            Arc::clone(&attempts),
            begin,
        ));
    }
    let (mut back, mut lost) = (Vec::with_capacity(count), 0);
    while let Some(came) = coming.join_next().await {
        match came? {
            Some(client) => back.push(client),
            None => lost += 1,
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    // What the storm has cost a session shows when its time is over.
    tokio::time::sleep(2 * SHORT_SESSION).await;
    is_over.store(true, Ordering::Relaxed);
    let (mut bystanders_lost, mut slowest) = (0, Duration::ZERO);
    while let Some(worked) = working.join_next().await {
        match worked? {
            Some(longest) => slowest = slowest.max(longest),
            None => bystanders_lost += 1,
        }
    }
    Ok(Outcome {
        seconds,
        attempts: attempts.load(Ordering::Relaxed),
        lost,
        bystanders_lost,
        slowest,
    })
}

/// Takes the session up again, as often as that takes; `None`: it is lost, or the limit is over.
async fn come_back(
    way: ServerTarget,
    session: ConnectResponse,
    attempts: Arc<AtomicUsize>,
    begin: Instant,
) -> Option<RawClient> {
    while begin.elapsed() < LIMIT {
        attempts.fetch_add(1, Ordering::Relaxed);
        match way.connect(LONG_SESSION, Some(&session)).await {
            Ok(client) => return Some(client),
            Err(RawError::SessionRefused { .. }) => return None,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    None
}

/// Asks something again and again; its slowest answer, or nothing if the session was lost.
async fn work(mut client: RawClient, is_over: Arc<AtomicBool>) -> Option<Duration> {
    let mut slowest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let exists = Request::Exists {
            path: "/zookeeper",
            watch: false,
        };
        client.call(&exists).await.ok()?;
        slowest = slowest.max(begin.elapsed());
        tokio::time::sleep(WORKS_EVERY).await;
    }
    Some(slowest)
}
