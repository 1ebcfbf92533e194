//! The sessions of each owner: one for each session timeout that its programs ask for, shared by
//! all of them, opened when it is first needed and closed when nobody has used it for a minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use baton::{Client, Config};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::caller::{Caller, Owner};
use crate::error::ApiError;

/// Different session timeouts that one owner may have at a time.
const MAX_TIMEOUTS: usize = 8;
/// Sessions of all owners.
const MAX_SESSIONS: usize = 1_000;
/// Time after which a session that nobody uses is closed.
const LINGER: Duration = Duration::from_secs(60);
/// Longest time for a session to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

type Key = (Owner, Duration);

/// A client of an owner. As long as it lives, its session is not closed for being unused.
pub(crate) type UsedClient = Arc<Client>;

#[derive(Debug)]
struct Entry {
    client: UsedClient,
    used: Instant,
}

/// The sessions of all owners.
#[derive(Debug)]
pub(crate) struct Sessions {
    config: Config,
    default_timeout: Duration,
    linger: Duration,
    clients: Mutex<BTreeMap<Key, Entry>>,
    unavailable_since: Mutex<Option<Instant>>,
}

impl Sessions {
    pub(crate) fn new(config: Config, default_timeout: Duration) -> Self {
        Self {
            config,
            default_timeout,
            linger: LINGER,
            clients: Mutex::new(BTreeMap::new()),
            unavailable_since: Mutex::new(None),
        }
    }

    /// The client of this caller with that session timeout. What holds something in its session
    /// keeps it.
    pub(crate) fn client(
        self: &Arc<Self>,
        caller: &Caller,
        timeout_ms: Option<u64>,
    ) -> Result<UsedClient, ApiError> {
        let timeout = timeout_ms.map_or(self.default_timeout, Duration::from_millis);
        if timeout.is_zero() {
            let cause = "a session timeout of 0 ends the session at once";
            let next = "leave session_timeout_ms out, or name milliseconds";
            return Err(ApiError::refused("session_timeout_ms", cause, next));
        }
        let key = (caller.owner(), timeout);
        let mut clients = self.clients.lock();
        if let Some(entry) = clients.get_mut(&key) {
            entry.used = Instant::now();
            return Ok(Arc::clone(&entry.client));
        }
        let all = (key.0.clone(), Duration::ZERO)..=(key.0.clone(), Duration::MAX);
        if clients.range(all).count() >= MAX_TIMEOUTS {
            let cause = format!("this user has {MAX_TIMEOUTS} different session timeouts already");
            let next = "leave session_timeout_ms out, or use one of them";
            return Err(ApiError::refused("session_timeout_ms", cause, next)
                .with_status(StatusCode::TOO_MANY_REQUESTS));
        }
        if clients.len() >= MAX_SESSIONS {
            let cause = format!("there are {MAX_SESSIONS} sessions of callers, which is the limit");
            let next = "ask again in a minute, when unused ones are closed";
            return Err(ApiError::refused("the session", cause, next)
                .with_status(StatusCode::SERVICE_UNAVAILABLE));
        }
        let config = caller.settings(self.config.clone());
        let client = Arc::new(Client::lazy(config.session_timeout(timeout)));
        let entry = Entry {
            client: Arc::clone(&client),
            used: Instant::now(),
        };
        clients.insert(key.clone(), entry);
        tokio::spawn(close_unused(Arc::downgrade(self), key));
        Ok(client)
    }

    /// Takes a session out that nobody has used for a while; `Err`: how long to wait.
    fn take_unused(&self, key: &Key) -> Result<Option<UsedClient>, Duration> {
        let mut clients = self.clients.lock();
        let Some(entry) = clients.get_mut(key) else {
            return Ok(None);
        };
        if Arc::strong_count(&entry.client) > 1 {
            entry.used = Instant::now();
            return Err(self.linger);
        }
        match self.linger.saturating_sub(entry.used.elapsed()) {
            Duration::ZERO => Ok(clients.remove(key).map(|entry| entry.client)),
            left => Err(left),
        }
    }

    /// The same, with sessions that are closed after another time.
    #[cfg(test)]
    pub(crate) fn lingering(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Notes whether the servers could be reached, and adds to a refusal for how long they could
    /// not.
    pub(crate) fn note<T>(&self, answer: Result<T, ApiError>) -> Result<T, ApiError> {
        let mut since = self.unavailable_since.lock();
        match answer {
            Ok(value) => {
                *since = None;
                Ok(value)
            }
            Err(error) if error.is_unavailable() => {
                Err(error.unavailable_for(since.get_or_insert_with(Instant::now).elapsed()))
            }
            Err(error) => Err(error),
        }
    }

    /// For how long no server could be reached.
    pub(crate) fn unavailable_for(&self) -> Option<Duration> {
        self.unavailable_since.lock().map(|since| since.elapsed())
    }

    pub(crate) fn servers(&self) -> String {
        self.config.servers()
    }

    /// Number of sessions.
    pub(crate) fn count(&self) -> usize {
        self.clients.lock().len()
    }

    /// Closes all sessions.
    pub(crate) async fn close(&self) {
        let clients = std::mem::take(&mut *self.clients.lock());
        let mut closing = JoinSet::new();
        for entry in clients.into_values() {
            closing.spawn(close(entry.client));
        }
        closing.join_all().await;
    }
}

/// Closes this session once nobody has used it for a while.
async fn close_unused(sessions: Weak<Sessions>, key: Key) {
    while let Some(sessions) = sessions.upgrade() {
        let left = match sessions.take_unused(&key) {
            Ok(Some(unused)) => return close(unused).await,
            Ok(None) => return,
            Err(left) => left,
        };
        drop(sessions);
        tokio::time::sleep(left).await;
    }
}

async fn close(client: UsedClient) {
    if let Err(error) = client.close_timeout(CLOSE_LIMIT).await {
        tracing::warn!(%error, "a session was not closed; its locks last until it expires");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_stays_open_for_a_while_after_it_was_asked_for_last() {
        let timeout = Duration::from_secs(10);
        let config = Config::new("127.0.0.1:1").unwrap();
        let sessions = Arc::new(Sessions::new(config, timeout));
        let caller = Caller::process(1, None);
        let key = (caller.owner(), timeout);
        let ask = || drop(sessions.client(&caller, None).unwrap());
        let let_linger = || {
            let mut clients = sessions.clients.lock();
            let entry = clients.get_mut(&key).unwrap();
            entry.used = entry.used.checked_sub(LINGER).unwrap();
        };
        ask();
        let_linger();
        ask();
        assert!(sessions.take_unused(&key).is_err(), "asked for just now");
        let_linger();
        assert!(matches!(sessions.take_unused(&key), Ok(Some(_))));
        assert_eq!(sessions.count(), 0);
    }
}
