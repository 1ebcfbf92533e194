//! The sessions of each user: one for each session timeout that the user's programs ask for, shared
//! by all of them, opened when it is first needed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use baton::{Client, Config};
use parking_lot::Mutex;

use crate::caller::Caller;
use crate::error::ApiError;

/// Different session timeouts that one user may have at a time.
const MAX_TIMEOUTS: usize = 8;

/// The sessions of all users.
#[derive(Debug)]
pub(crate) struct Sessions {
    config: Config,
    default_timeout: Duration,
    clients: Mutex<BTreeMap<(u32, Duration), Client>>,
    unavailable_since: Mutex<Option<Instant>>,
}

impl Sessions {
    pub(crate) fn new(config: Config, default_timeout: Duration) -> Self {
        Self {
            config,
            default_timeout,
            clients: Mutex::new(BTreeMap::new()),
            unavailable_since: Mutex::new(None),
        }
    }

    /// The client of this user with that session timeout.
    pub(crate) fn client(
        &self,
        caller: Caller,
        timeout_ms: Option<u64>,
    ) -> Result<Client, ApiError> {
        let timeout = timeout_ms.map_or(self.default_timeout, Duration::from_millis);
        if timeout.is_zero() {
            let cause = "a session of no time ends as it begins".to_owned();
            let next = "leave session_timeout_ms out, or name milliseconds";
            return Err(ApiError::refused("session_timeout_ms", cause, next));
        }
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&(caller.uid, timeout)) {
            return Ok(client.clone());
        }
        let of_user = clients.range((caller.uid, Duration::ZERO)..=(caller.uid, Duration::MAX));
        if of_user.count() >= MAX_TIMEOUTS {
            let cause = format!("this user has {MAX_TIMEOUTS} different session timeouts already");
            let next = "leave session_timeout_ms out, or use one of them";
            return Err(ApiError::refused("session_timeout_ms", cause, next)
                .with_status(axum::http::StatusCode::TOO_MANY_REQUESTS));
        }
        let client = Client::lazy(self.config.clone().session_timeout(timeout));
        clients.insert((caller.uid, timeout), client.clone());
        Ok(client)
    }

    /// Notes whether the servers could be reached, for [`Sessions::unavailable_for`].
    pub(crate) fn note(&self, error: Option<&ApiError>) {
        let mut since = self.unavailable_since.lock();
        *since = match error {
            Some(error) if error.is_unavailable() => Some(since.unwrap_or_else(Instant::now)),
            Some(_) => *since,
            None => None,
        };
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

    /// Takes all clients, for the stop.
    pub(crate) fn take(&self) -> Vec<Client> {
        std::mem::take(&mut *self.clients.lock())
            .into_values()
            .collect()
    }
}
