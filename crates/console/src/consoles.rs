//! One console for each identity that looks at a page.
//!
//! Owns how many there may be, and when one that nobody looks at ends, with its session. Who has
//! which identity is the caller's to say.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use baton_client::Client;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::console::{Console, MOST_VIEWERS};
use crate::servers::Words;

/// Identities at a time. Each may cost a session, and memory for a survey.
const MOST_IDENTITIES: usize = 8;
/// Viewers of one identity: none takes all places of the others.
const MOST_OF_ONE: usize = 8;
/// Time that a console without users is kept.
const LINGER: Duration = Duration::from_secs(10);
/// Between two looks at what is not used.
const CLEAR_PACE: Duration = Duration::from_secs(5);
/// Limit on the end of a session.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Consoles by identity. Cheap to clone.
pub struct Consoles<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    name: String,
    kept: Mutex<ConsoleTable<K>>,
    /// Places of all viewers.
    places: Arc<Semaphore>,
}

struct ConsoleTable<K> {
    consoles: Vec<Entry<K>>,
    /// Clears what is not used, while there is something.
    clearing: JoinSet<()>,
    closed: bool,
}

struct Entry<K> {
    identity: K,
    console: Console,
    used: Instant,
}

impl<K> Clone for Consoles<K> {
    fn clone(&self) -> Self {
        let shared = Arc::clone(&self.shared);
        Self { shared }
    }
}

impl<K> fmt::Debug for Consoles<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consoles")
            .field("name", &self.shared.name)
            .field("identities", &self.shared.kept().consoles.len())
            .finish_non_exhaustive()
    }
}

impl<K> Shared<K> {
    fn kept(&self) -> MutexGuard<'_, ConsoleTable<K>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: PartialEq + Send + 'static> Consoles<K> {
    /// An empty set for the servers that people call `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            shared: Arc::new(Shared {
                name: name.to_owned(),
                kept: Mutex::new(ConsoleTable {
                    consoles: Vec::new(),
                    clearing: JoinSet::new(),
                    closed: false,
                }),
                places: Arc::new(Semaphore::new(MOST_VIEWERS)),
            }),
        }
    }

    /// The console of an identity; `open` gives the client and the words of a new one, and no
    /// session is opened before somebody looks. `None`: there are as many as there may be, and all
    /// of them are in use. Needs a tokio runtime.
    pub fn of(
        &self,
        identity: K,
        open: impl FnOnce() -> (Client, Option<Arc<dyn Words>>),
    ) -> Option<Console> {
        let mut kept = self.shared.kept();
        if kept.closed {
            return None;
        }
        let mut known = kept.consoles.iter_mut();
        if let Some(entry) = known.find(|entry| entry.identity == identity) {
            entry.used = Instant::now();
            return Some(entry.console.clone());
        }
        if kept.consoles.len() >= MOST_IDENTITIES {
            let unused = kept.consoles.iter().enumerate();
            let unused = unused.filter(|(_, entry)| entry.console.is_unused());
            let (oldest, _) = unused.min_by_key(|(_, entry)| entry.used)?;
            end(kept.consoles.swap_remove(oldest));
        }
        let (client, words) = open();
        let places = Arc::clone(&self.shared.places);
        let console = Console::sharing(&client, &self.shared.name, words, MOST_OF_ONE, places);
        kept.consoles.push(Entry {
            identity,
            console: console.clone(),
            used: Instant::now(),
        });
        while kept.clearing.try_join_next().is_some() {}
        if kept.clearing.is_empty() {
            let clearing = clear(Arc::downgrade(&self.shared));
            kept.clearing.spawn(clearing);
        }
        Some(console)
    }

    /// Ends all consoles and their sessions. There are none after this.
    pub async fn close(&self) {
        let consoles = {
            let mut kept = self.shared.kept();
            kept.closed = true;
            kept.clearing.abort_all();
            std::mem::take(&mut kept.consoles)
        };
        let mut closing = JoinSet::new();
        for entry in consoles {
            let client = entry.console.client().clone();
            closing.spawn(async move { client.close_timeout(CLOSE_LIMIT).await });
        }
        while closing.join_next().await.is_some() {}
    }
}

/// Ends a console that nobody uses, and its session.
fn end<K>(entry: Entry<K>) {
    let client = entry.console.client().clone();
    tokio::spawn(async move {
        if let Err(error) = client.close_timeout(CLOSE_LIMIT).await {
            tracing::debug!(%error, "a session of the console ends by its timeout");
        }
    });
}

/// Ends consoles that nobody uses, until there are none.
async fn clear<K: Send + 'static>(shared: Weak<Shared<K>>) {
    loop {
        tokio::time::sleep(CLEAR_PACE).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let mut kept = shared.kept();
        let now = Instant::now();
        for entry in &mut kept.consoles {
            if !entry.console.is_unused() {
                entry.used = now;
            }
        }
        let is_over = |entry: &mut Entry<K>| now - entry.used > LINGER;
        let over: Vec<_> = kept.consoles.extract_if(.., is_over).collect();
        over.into_iter().for_each(end);
        if kept.consoles.is_empty() {
            // Under the lock: a caller that adds one now starts another task.
            kept.clearing.detach_all();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_client::{Config, ConfigError, ConnectError};

    use super::*;

    fn client() -> Result<Client, ConfigError> {
        let config = Config::new("127.0.0.1:1")?;
        Ok(Client::lazy(config.connect_within(Duration::ZERO)))
    }

    #[tokio::test(start_paused = true)]
    async fn identities_have_a_bound_and_those_that_nobody_uses_make_room()
    -> Result<(), ConfigError> {
        let client = client()?;
        let consoles = Consoles::new("test");
        let of = |identity: usize| consoles.of(identity, || (client.clone(), None));
        let mut used: Vec<_> = (0..MOST_IDENTITIES).filter_map(of).collect();
        assert_eq!(used.len(), MOST_IDENTITIES);
        assert!(of(MOST_IDENTITIES).is_none());
        // One that is there is shared.
        assert!(of(3).is_some());
        used.remove(3);
        assert!(of(MOST_IDENTITIES).is_some());
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_nobody_has_looked_for_a_while() -> Result<(), ConfigError> {
        let (one, other) = (client()?, client()?);
        let consoles = Consoles::new("test");
        let used = consoles.of(1, || (one.clone(), None));
        drop(consoles.of(2, || (other.clone(), None)));
        while other.session().await.err() != Some(ConnectError::Closed) {
            tokio::time::sleep(CLEAR_PACE).await;
        }
        assert_ne!(one.session().await.err(), Some(ConnectError::Closed));
        drop(used);
        while one.session().await.err() != Some(ConnectError::Closed) {
            tokio::time::sleep(CLEAR_PACE).await;
        }
        let again = client()?;
        let _used = consoles.of(3, || (again.clone(), None));
        consoles.close().await;
        assert_eq!(again.session().await.err(), Some(ConnectError::Closed));
        assert!(consoles.of(4, || (again.clone(), None)).is_none());
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn one_identity_leaves_places_to_others() -> Result<(), ConfigError> {
        let client = client()?;
        let consoles = Consoles::new("test");
        let views = |identity: usize| {
            let console = consoles.of(identity, || (client.clone(), None));
            let console = console.into_iter();
            let views = console.flat_map(|console| std::iter::from_fn(move || console.view()));
            views.take(MOST_VIEWERS).collect::<Vec<_>>()
        };
        let (one, other) = (views(1), views(2));
        assert_eq!(
            (one.len(), other.len()),
            (MOST_OF_ONE, MOST_VIEWERS - MOST_OF_ONE)
        );
        assert!(views(3).is_empty());
        drop(one);
        assert_eq!(views(3).len(), MOST_OF_ONE);
        Ok(())
    }
}
