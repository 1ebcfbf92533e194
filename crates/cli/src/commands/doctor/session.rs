//! A session with one server: how long its answers take, what its lease rests on, and how much of
//! the lease is left while it is kept.

use std::time::{Duration, Instant};

use baton_client::{Config, EnsembleConfig, Error, Session};

/// Reads whose times are measured.
const READS: usize = 5;
/// Between two looks at the lease.
const INTERVAL: Duration = Duration::from_millis(20);
/// Time that a session that has done its work may take to end.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// The unlisted znode by which Baton's servers are known.
const BATON: &str = "/zookeeper/baton";

/// Facts that a session with one server has shown.
#[derive(Debug, Clone)]
pub(super) struct SessionFacts {
    /// The time for the whole handshake.
    pub(super) opened_within: Duration,
    /// The timeout that was asked for, and the one that the server gives.
    pub(super) asked: Duration,
    pub(super) timeout: Duration,
    /// The slowest of several reads.
    pub(super) slowest_read: Duration,
    /// A `sync`, which the leader answers; or why there was no answer.
    pub(super) sync: Result<Duration, String>,
    pub(super) is_baton: bool,
    /// The members; or why they could not be read.
    pub(super) members: Result<EnsembleConfig, String>,
    /// The least of the lease that was left while it was kept; or why none can be kept.
    pub(super) lease: Result<Duration, String>,
}

/// Opens a session, measures, and ends it. The server has to answer within `patience`.
pub(super) async fn measure(
    config: Config,
    asked: Duration,
    patience: Duration,
) -> MeasuredSession {
    let begun = Instant::now();
    let opening = tokio::time::timeout(patience, Session::connect(config));
    let session = match opening.await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return Err(error.to_string()),
        Err(_) => return Err("the server opens no session in time".to_owned()),
    };
    let opened_within = begun.elapsed();
    let limited = session.with_deadline(patience);
    let facts = facts(&session, &limited, asked, opened_within).await;
    let _ = session.close_timeout(CLOSE_LIMIT).await;
    facts.map_err(|error| error.to_string())
}

/// Measurements, or the reason why there are none.
pub(super) type MeasuredSession = Result<SessionFacts, String>;

async fn facts(
    session: &Session,
    limited: &Session,
    asked: Duration,
    opened_within: Duration,
) -> Result<SessionFacts, Error> {
    let mut slowest_read = Duration::ZERO;
    for _ in 0..READS {
        let begun = Instant::now();
        limited.exists("/").await?;
        slowest_read = slowest_read.max(begun.elapsed());
    }
    let begun = Instant::now();
    let sync = limited.sync("/").await;
    let sync = sync.map(|()| begun.elapsed());
    // On another server somebody may have made one.
    let baton = limited.get_data(BATON).await;
    let is_baton = baton.is_ok_and(|node| node.stat.czxid == 0);
    let members = match limited.ensemble_config().await {
        Ok(members) => Ok(members),
        // A server that stands alone need not have the znode.
        Err(error) if error.is_no_node() => Ok(EnsembleConfig::default()),
        Err(error) => Err(error.to_string()),
    };
    Ok(SessionFacts {
        opened_within,
        asked,
        timeout: session.timeout(),
        slowest_read,
        sync: sync.map_err(|error| error.to_string()),
        is_baton,
        members,
        lease: least_lease(session).await,
    })
}

/// Keeps the lease until it has been renewed, and notes the least of it that was left.
async fn least_lease(session: &Session) -> Result<Duration, String> {
    let hold = session.hold_lease().await;
    let _hold = hold.map_err(|error| error.to_string())?;
    let timeout = session.timeout();
    // It is renewed each quarter of the timeout.
    let enough = timeout / 3;
    let begun = Instant::now();
    // What there is at first rests on the handshake.
    let mut least = timeout;
    while begun.elapsed() < enough {
        tokio::time::sleep(INTERVAL).await;
        least = least.min(session.lease().remaining());
    }
    Ok(least)
}
