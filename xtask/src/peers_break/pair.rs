//! A holder of a lock and a process that waits for it.

use std::time::Duration;

use super::Subject;
use crate::Result;
use crate::peer::{Event, Log, Peer, Spec};

/// For what must come: a session's end, a grant after it, a JVM's start on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(70);

/// Two peers for one lock; the first holds it, the second waits for it.
pub(super) struct Pair {
    pub(super) log: Log,
    pub(super) holder: Peer,
    pub(super) waiter: Peer,
}

impl Pair {
    /// Starts both and waits until the one holds and the other waits in the queue.
    pub(super) fn start(
        subject: &Subject,
        path: &str,
        holder_at: &str,
        waiter_at: &str,
        timeout: Duration,
    ) -> Result<Self> {
        let log = Log::default();
        let spec = |servers, name| Spec {
            servers,
            recipe: subject.recipe,
            path,
            name,
            timeout,
        };
        let mut holder = Peer::start(&log, &spec(holder_at, "holder"))?;
        holder.ask("acquire", "enter", PATIENCE)?;
        let mut waiter = Peer::start(&log, &spec(waiter_at, "waiter"))?;
        waiter.send("acquire")?;
        Ok(Self {
            log,
            holder,
            waiter,
        })
    }

    /// Returns when the waiter was granted the lock; `None` if it was not.
    pub(super) fn granted(&self, limit: Duration) -> Result<Option<Event>> {
        self.waiter.hear("enter", limit)
    }

    /// The instants at which the holder acted after this one.
    pub(super) fn acts_after(&self, instant: u64) -> Vec<u64> {
        let events = self.log.events();
        let acts = events.iter().filter(|event| {
            event.peer == self.holder.id() && event.what == "act" && event.nanos > instant
        });
        acts.map(|event| event.nanos).collect()
    }
}
