//! Exclusion check: the holders of a thing, and whether too many hold it at once. Asks every guard
//! itself, at the instant at which another one appears: two intervals of validity overlap if and
//! only if the earlier is still valid when the later begins.

use std::sync::{Arc, Mutex, PoisonError};

use crate::boundary::GRANT_OVER;
use crate::network::Network;

type Check = Box<dyn Fn() -> bool + Send>;

struct Holder {
    who: String,
    weight: usize,
    token: u64,
    valid: Check,
}

#[derive(Default)]
struct State {
    holders: Vec<Holder>,
    newest_token: Option<u64>,
    grants: usize,
}

/// Watches over one lock, or one set of permits. Cheap to clone.
#[derive(Clone)]
pub struct Occupancy {
    network: Network,
    what: Arc<str>,
    capacity: usize,
    state: Arc<Mutex<State>>,
}

impl Occupancy {
    pub(crate) fn new(network: Network, what: &str, capacity: usize) -> Self {
        Self {
            network,
            what: Arc::from(what),
            capacity,
            state: Arc::default(),
        }
    }

    /// `who` holds `weight` of the capacity from now until `valid` says no. Fails the run where
    /// that is too much together with those whose guards are valid at this instant, and, for a
    /// holder of all of it, where `token` is not larger than every token before it. One whose guard
    /// is not valid any more holds nothing.
    pub fn enter(
        &self,
        who: &str,
        weight: usize,
        token: u64,
        valid: impl Fn() -> bool + Send + 'static,
    ) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.holders.retain(|holder| (holder.valid)());
        let what = &self.what;
        if !valid() {
            self.network.recorder().mark(GRANT_OVER);
            // Reported late: a process that was paused meanwhile knows from its guard that it holds
            // nothing.
            self.network
                .recorder()
                .note(|| format!("{who} held {what}, token {token}, and does not any more"));
            return;
        }
        let taken: usize = state.holders.iter().map(|holder| holder.weight).sum();
        if taken + weight > self.capacity {
            let others: Vec<String> = state
                .holders
                .iter()
                .map(|holder| format!("{} (token {})", holder.who, holder.token))
                .collect();
            let others = others.join(", ");
            self.network.recorder().fail(&format!(
                "{what}: {who} (token {token}) holds it at the same time as {others}"
            ));
        }
        if weight == self.capacity
            && let Some(newest) = state.newest_token.filter(|newest| token <= *newest)
        {
            self.network.recorder().fail(&format!(
                "{what}: {who} was given token {token} after token {newest}"
            ));
        }
        state.newest_token = state.newest_token.max(Some(token));
        state.grants += 1;
        self.network
            .recorder()
            .note(|| format!("{who} holds {what}, token {token}"));
        state.holders.push(Holder {
            who: who.to_owned(),
            weight,
            token,
            valid: Box::new(valid),
        });
    }

    /// Returns the part of the capacity that is held at this instant.
    #[must_use]
    pub fn held(&self) -> usize {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.holders.retain(|holder| (holder.valid)());
        state.holders.iter().map(|holder| holder.weight).sum()
    }

    /// Returns the number of grants.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .grants
    }
}

impl std::fmt::Debug for Occupancy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Occupancy").field(&self.what).finish()
    }
}
