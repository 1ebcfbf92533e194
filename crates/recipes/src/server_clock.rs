//! The server's wall clock, read off the time that it stamps on a change (H76).
//!
//! Owns the only wall clock that recipes may compare with a time in the tree. It must never read
//! this machine's own, which may be minutes off, and must never be ahead of the server's: what is
//! due by it is due there.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use baton_client::{BootInstant, CreateMode, Error, Op, OpResult, Session};
use bytes::Bytes;
use uuid::Uuid;

use crate::parents::{ParentKind, ensure_parents};
use crate::retry;

/// Time that one reading serves. Within it two clocks of the usual quality part by some
/// milliseconds.
const SERVES: Duration = Duration::from_secs(60);

/// The server's clock as last read, and how far our own has come since.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Option<ClockReading>>);

/// Time of the server's clock, at the latest when its answer was here.
#[derive(Clone, Copy, Debug)]
struct ClockReading {
    session_id: i64,
    server_ms: i64,
    at: BootInstant,
}

impl ServerClock {
    /// Milliseconds since 1970 by the server's clock: not ahead of it, and behind by at most one
    /// round trip, plus what the two clocks part in a minute.
    ///
    /// Reads the clock again by a change that leaves nothing behind, at a node of its own below
    /// `dir`, when the last reading is of another session or a minute old. `dir` is made as a
    /// container if missing; watchers of its children are woken. Cancel-safe.
    ///
    /// # Errors
    /// A refusal, or the end of the session.
    pub(crate) async fn now_ms(&self, session: &Session, dir: &str) -> Result<i64, Error> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = known
            && reading.session_id == session.id()
        {
            let since = session.clock().now().saturating_duration_since(reading.at);
            if since < SERVES {
                return Ok(reading.server_ms.saturating_add(millis(since)));
            }
        }
        let server_ms = read_time(session, dir).await?;
        self.set(session, server_ms);
        Ok(server_ms)
    }

    /// Takes it that the server's clock shows this now.
    pub(crate) fn set(&self, session: &Session, server_ms: i64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ClockReading {
            session_id: session.id(),
            server_ms,
            at: session.clock().now(),
        });
    }
}

/// A duration as the unit of times in the tree.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The time that the server stamps on a change. A lost answer need not be resolved: the change
/// undoes itself, so it is made again.
async fn read_time(session: &Session, dir: &str) -> Result<i64, Error> {
    loop {
        let path = baton_proto::path::join(dir, &format!("t-{}", Uuid::new_v4().simple()));
        let ops = [
            Op::create(&*path, Bytes::new(), CreateMode::Persistent),
            // The record of what a multi creates is not in every server's answer; that of what it
            // sets is.
            Op::set_data(&*path, Bytes::new(), None),
            Op::delete(&*path, None),
        ];
        match session.multi(&ops).await {
            Ok(results) => {
                let stamped = results.iter().find_map(|result| match result {
                    OpResult::DataSet(stat) => Some(stat.mtime),
                    _ => None,
                });
                if let Some(mtime) = stamped {
                    return Ok(mtime);
                }
            }
            Err(error) if error.is_no_node() => {
                ensure_parents(session, dir, ParentKind::Container).await?;
            }
            Err(error) => retry::until_readable(session, error).await?,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use baton_client::{Client, Config};
    use baton_server::Server;

    use super::*;

    pub(crate) fn own_ms() -> i64 {
        millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap())
    }

    /// A server, and a client of it.
    pub(crate) async fn started() -> (Server, Client) {
        let server = Server::builder()
            .in_memory()
            .listen("127.0.0.1:0")
            .start()
            .await
            .unwrap();
        let addr = server.local_addr().unwrap();
        let client = Client::connect(Config::new(&addr.to_string()).unwrap())
            .await
            .unwrap();
        (server, client)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn h76_the_servers_clock_is_read_without_a_trace_and_goes_on_by_itself() {
        let (_server, client) = started().await;
        let session = client.session().await.unwrap();
        let clock = ServerClock::default();
        let before = own_ms();
        let first = clock.now_ms(&session, "/deep/clock").await.unwrap();
        // The server runs on this machine, so its clock is ours.
        assert!((before..=own_ms()).contains(&first), "{first}");
        assert!(
            session
                .children("/deep/clock")
                .await
                .unwrap()
                .names
                .is_empty()
        );
        let made = session.exists("/deep/clock").await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        let later = clock.now_ms(&session, "/deep/clock").await.unwrap();
        assert!(later > first && later <= own_ms());
        // The second read asked nobody.
        assert_eq!(session.exists("/deep/clock").await.unwrap().unwrap(), made);
    }
}
