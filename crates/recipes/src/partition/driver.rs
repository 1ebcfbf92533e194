//! The task of a partition's member: wants the items that the hash gives it, and locks them.
//!
//! Owns the acquisitions under way, and the notifications about guards that were handed out. Must
//! never take a guard back from its user: it asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};

use super::{PartitionError, PartitionEvent, hash};
use crate::acquire::LockError;
use crate::background;
use crate::backoff::Backoff;
use crate::guard::{Guard, LostReason};
use crate::lock::Mutex;
use crate::membership::{GroupUpdate, GroupView, NodeState, Registration};

pub(super) struct Driver {
    registration: Registration,
    view: GroupView,
    items: Arc<BTreeMap<Arc<str>, Mutex>>,
    events: mpsc::Sender<Result<PartitionEvent, PartitionError>>,
    /// Items that are to be ours.
    wanted: BTreeSet<Arc<str>>,
    /// Items whose lock is being acquired, or will be after a pause.
    acquiring: BTreeMap<Arc<str>, AbortHandle>,
    /// Items that were handed out.
    held: BTreeMap<Arc<str>, AssignedItem>,
    pauses: BTreeMap<Arc<str>, Backoff>,
    tasks: JoinSet<FinishedTask>,
    runtime: Handle,
}

struct AssignedItem {
    ask_back: Box<dyn Fn() + Send + Sync>,
    asked: bool,
}

/// A task of the driver's that has come to its end.
enum FinishedTask {
    Acquired(Arc<str>, Result<Guard, LockError>),
    Ended(Arc<str>, LostReason),
}

/// Nobody takes the events any more.
struct ReceiverGone;

impl Driver {
    pub(super) fn new(
        registration: Registration,
        view: GroupView,
        items: Arc<BTreeMap<Arc<str>, Mutex>>,
        events: mpsc::Sender<Result<PartitionEvent, PartitionError>>,
        runtime: Handle,
    ) -> Self {
        Self {
            registration,
            view,
            items,
            events,
            wanted: BTreeSet::new(),
            acquiring: BTreeMap::new(),
            held: BTreeMap::new(),
            pauses: BTreeMap::new(),
            tasks: JoinSet::new(),
            runtime,
        }
    }

    /// Runs until `leaving` resolves.
    pub(super) async fn run(mut self, mut leaving: oneshot::Receiver<()>) {
        tokio::select! {
            biased;
            _ = &mut leaving => {}
            () = self.drive() => {}
        }
        // What is acquired from here on would be nobody's.
        self.tasks.abort_all();
        self.registration.leave().await;
    }

    async fn drive(&mut self) {
        loop {
            let handled = tokio::select! {
                biased;
                update = self.view.next() => match update {
                    Ok(update) => self.spread(&update).await,
                    Err(error) => {
                        // Nobody may be there to read it.
                        let _ = self.events.send(Err(error.into())).await;
                        return;
                    }
                },
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => match done {
                    Ok(FinishedTask::Acquired(item, outcome)) => self.acquired(item, outcome).await,
                    Ok(FinishedTask::Ended(item, reason)) => self.ended(item, reason).await,
                    // Aborted, because the item is no longer wanted.
                    Err(_) => Ok(()),
                },
            };
            if handled.is_err() {
                return;
            }
        }
    }

    /// Wants what this list of members makes ours.
    async fn spread(&mut self, update: &GroupUpdate) -> Result<(), ReceiverGone> {
        let me = self.registration.id();
        let present = match self.registration.node().state() {
            NodeState::Present(registered) => Some(registered.czxid),
            _ => None,
        };
        let listed = |id: &str| {
            let mut members = update.members.iter();
            members.any(|member| member.id == id && Some(member.czxid) == present)
        };
        self.wanted.clear();
        if listed(me) {
            for item in self.items.keys() {
                let members = update.members.iter().map(|member| &*member.id);
                if hash::winner(members, item) == Some(me) {
                    self.wanted.insert(Arc::clone(item));
                }
            }
        }
        let wanted = &self.wanted;
        self.acquiring.retain(|item, task| {
            let keep = wanted.contains(item);
            if !keep {
                task.abort();
            }
            keep
        });
        let mut revoked = Vec::new();
        for (item, held) in &mut self.held {
            if !held.asked && !self.wanted.contains(item) {
                held.asked = true;
                (held.ask_back)();
                revoked.push(Arc::clone(item));
            }
        }
        for item in self.wanted.clone() {
            self.acquire(item);
        }
        for item in revoked {
            self.send(PartitionEvent::Revoked { item }).await?;
        }
        Ok(())
    }

    /// Acquires the lock of an item, unless it is held or being acquired already.
    fn acquire(&mut self, item: Arc<str>) {
        if self.held.contains_key(&item) || self.acquiring.contains_key(&item) {
            return;
        }
        let Some(lock) = self.items.get(&item).cloned() else {
            return;
        };
        let lock = lock.name(self.registration.id());
        let pause = self.pauses.get_mut(&item).map(Backoff::pause);
        let of = Arc::clone(&item);
        let acquiring = async move {
            if let Some(pause) = pause {
                background::sleep(lock.client(), pause).await;
            }
            let outcome = lock.acquire().await;
            FinishedTask::Acquired(of, outcome)
        };
        let task = self.tasks.spawn_on(acquiring, &self.runtime);
        self.acquiring.insert(item, task);
    }

    async fn acquired(
        &mut self,
        item: Arc<str>,
        outcome: Result<Guard, LockError>,
    ) -> Result<(), ReceiverGone> {
        // It may have been given up, and wanted again since: then this one is not the task that is
        // known.
        if !self.wanted.contains(&item) || self.held.contains_key(&item) {
            return Ok(());
        }
        if let Some(other) = self.acquiring.remove(&item) {
            other.abort();
        }
        let guard = match outcome {
            Ok(guard) => guard,
            Err(error) => {
                self.pauses.entry(Arc::clone(&item)).or_default();
                self.acquire(Arc::clone(&item));
                return self.send(PartitionEvent::Failed { item, error }).await;
            }
        };
        self.pauses.remove(&item);
        let (lost, of) = (guard.lost(), Arc::clone(&item));
        let ending = async move { FinishedTask::Ended(of, lost.await) };
        self.tasks.spawn_on(ending, &self.runtime);
        let held = AssignedItem {
            ask_back: Box::new(guard.asking_back()),
            asked: false,
        };
        self.held.insert(Arc::clone(&item), held);
        self.send(PartitionEvent::Assigned { item, guard }).await
    }

    async fn ended(&mut self, item: Arc<str>, reason: LostReason) -> Result<(), ReceiverGone> {
        self.held.remove(&item);
        if self.wanted.contains(&item) {
            self.acquire(Arc::clone(&item));
        }
        match reason {
            LostReason::Released => Ok(()),
            reason => self.send(PartitionEvent::Lost { item, reason }).await,
        }
    }

    async fn send(&self, event: PartitionEvent) -> Result<(), ReceiverGone> {
        self.events.send(Ok(event)).await.map_err(|_| ReceiverGone)
    }
}
