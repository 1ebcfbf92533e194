//! The task that keeps a node there.
//!
//! Owns every write to the node. It must never delete or make it again while our session has it
//! (H80), never leave the path empty between two of our sessions (H79), and never touch another's
//! node: its owner session shows whose it is, or the instance id in its data for the time before
//! this process.

use std::collections::VecDeque;
use std::sync::Arc;

use baton_client::{
    Client, ConnectError, CreateMode, Data, Error, EventKind, Op, Pending, Session, Watch, path,
};

use super::error::MemberError;
use super::layout;
use super::node_control::{ActiveRegistration, NodeControl, NodeState};
use crate::background;
use crate::backoff::Backoff;
use crate::parents::{ParentKind, ensure_parents};
use crate::retry;

/// Number of our own former sessions that are remembered: more than can be dying at once.
const FORMER: usize = 64;

/// Ends the registration when the task does, however it does.
struct EndOnDrop(Arc<NodeControl>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.set_state(NodeState::Ended(closed(&self.0)), None);
    }
}

pub(super) fn closed(control: &NodeControl) -> MemberError {
    MemberError::Closed {
        path: control.path.to_string(),
    }
}

/// Reason why a session's part is over.
enum KeepEnd {
    /// The handle is closed, and the node gone.
    Stopped,
    /// Another session goes on.
    SessionOver,
    /// Another process is this instance now.
    Superseded(i64),
    Refused(MemberError),
}

pub(super) async fn keep(control: Arc<NodeControl>, client: Client) {
    let _ending = EndOnDrop(Arc::clone(&control));
    let mut own = OwnChanges::default();
    let mut backoff = Backoff::default();
    while !control.is_stopping() {
        let session = tokio::select! {
            biased;
            session = client.session() => session,
            () = stopped(&control) => return,
        };
        let error = match session {
            Ok(session) => {
                let was_registered = own.registrations;
                let keeper = NodeKeeper {
                    control: &control,
                    session: &session,
                    own: &mut own,
                };
                let end = keeper.run().await;
                own.remember(session.id());
                if own.registrations != was_registered {
                    backoff.reset();
                }
                match end {
                    KeepEnd::Stopped => return,
                    KeepEnd::SessionOver => {
                        control.set_state(NodeState::Absent, None);
                        continue;
                    }
                    KeepEnd::Superseded(session_id) => {
                        let path = control.path.to_string();
                        let error = MemberError::Superseded { path, session_id };
                        control.set_state(NodeState::Ended(error), None);
                        return;
                    }
                    KeepEnd::Refused(error) => error,
                }
            }
            Err(ConnectError::Closed) => return,
            Err(source) => MemberError::connect(&control.path, source),
        };
        control.set_state(NodeState::Blocked(error), None);
        tokio::select! {
            biased;
            () = background::sleep(&client, backoff.pause()) => {}
            () = stopped(&control) => return,
        }
    }
}

async fn stopped(control: &NodeControl) {
    while !control.is_stopping() {
        control.changed.notified().await;
    }
}

/// Knowledge of this process about its own changes.
#[derive(Default)]
struct OwnChanges {
    former_sessions: VecDeque<i64>,
    /// Number of times that the node was made ours.
    registrations: u64,
    /// The revision of the data that was written last.
    written: Option<u64>,
}

impl OwnChanges {
    fn remember(&mut self, session_id: i64) {
        if !self.former_sessions.contains(&session_id) {
            self.former_sessions.push_back(session_id);
        }
        if self.former_sessions.len() > FORMER {
            self.former_sessions.pop_front();
        }
    }
}

struct NodeKeeper<'a> {
    control: &'a NodeControl,
    session: &'a Session,
    own: &'a mut OwnChanges,
}

type PendingRead = Pending<(Data, Watch)>;

impl NodeKeeper<'_> {
    async fn run(mut self) -> KeepEnd {
        // The common case takes one round trip: nobody's node is there, ours is made and watched.
        let mut step = self.create().await;
        loop {
            let read = match step {
                Ok(read) => read,
                Err(end) => return end,
            };
            step = match read.await {
                Ok((found, watch)) => self.found(found, watch).await,
                Err(error) if error.is_no_node() && self.control.is_stopping() => {
                    return KeepEnd::Stopped;
                }
                Err(error) if error.is_no_node() => self.create().await,
                Err(error) => self.after(error).await,
            };
        }
    }

    fn read(&self) -> PendingRead {
        self.session.get_data_watch(&self.control.path)
    }

    /// The node is there: somebody's.
    async fn found(&mut self, found: Data, watch: Watch) -> Result<PendingRead, KeepEnd> {
        let owner = found.stat.ephemeral_owner;
        if owner == self.session.id() {
            return self.ours(found, watch).await;
        }
        if self.control.is_stopping() {
            return Err(KeepEnd::Stopped);
        }
        if self.own.former_sessions.contains(&owner) {
            return self.take_over(found).await;
        }
        if self.is_this_instance(&found) {
            if self.own.registrations > 0 {
                return Err(KeepEnd::Superseded(owner));
            }
            return self.take_over(found).await;
        }
        self.control.set_state(
            NodeState::Blocked(MemberError::Taken {
                path: self.control.path.to_string(),
                session_id: owner,
            }),
            None,
        );
        tokio::select! {
            biased;
            _ = watch => Ok(self.read()),
            () = stopped(self.control) => Err(KeepEnd::Stopped),
        }
    }

    fn is_this_instance(&self, found: &Data) -> bool {
        let record = layout::split(&found.data).map(|(record, _)| record.id);
        record.is_some() && record == self.control.instance
    }

    /// The node is ours: waits until it is not, or is to be changed.
    async fn ours(&mut self, found: Data, watch: Watch) -> Result<PendingRead, KeepEnd> {
        if self.control.is_stopping() {
            let deletion = self
                .session
                .delete_eventually(&self.control.path, found.stat.czxid);
            self.control.set_state(NodeState::Absent, None);
            if let Err(error) = deletion.await {
                tracing::warn!(path = &*self.control.path, %error, "registration not deleted");
            }
            return Err(KeepEnd::Stopped);
        }
        let wanted = self.control.wanted();
        if self.own.written != Some(wanted.revision) && found.data != wanted.data {
            // −1 cannot be asked for: it would mean "any" (H24).
            let version = Some(found.stat.version).filter(|version| *version != -1);
            let write = self
                .session
                .set_data(&self.control.path, &wanted.data, version);
            let read = self.read();
            return match write.await {
                Ok(_) => {
                    self.own.written = Some(wanted.revision);
                    Ok(read)
                }
                // Changed or deleted meanwhile.
                Err(error) if error.is_bad_version() || error.is_no_node() => Ok(read),
                Err(error) => self.after(error).await,
            };
        }
        self.own.written = Some(wanted.revision);
        self.own.registrations += 1;
        let registered = ActiveRegistration {
            session_id: found.stat.ephemeral_owner,
            czxid: found.stat.czxid,
        };
        self.control
            .set_state(NodeState::Present(registered), Some(self.session));
        tokio::select! {
            biased;
            event = watch => match event {
                Ok(event) => {
                    if event.kind == EventKind::NodeDeleted {
                        self.control.set_state(NodeState::Absent, None);
                    }
                    Ok(self.read())
                }
                Err(_) => Err(KeepEnd::SessionOver),
            },
            () = self.control.changed.notified() => Ok(self.read()),
        }
    }

    /// Nobody's node is there: creates ours, and reads it with the same packet.
    async fn create(&mut self) -> Result<PendingRead, KeepEnd> {
        let wanted = self.control.wanted();
        self.own.written = None;
        let create = self
            .session
            .create(&self.control.path, &wanted.data, CreateMode::Ephemeral);
        let read = self.read();
        match create.await {
            Ok(_) => {
                self.own.written = Some(wanted.revision);
                Ok(read)
            }
            Err(error) if error.is_node_exists() => Ok(read),
            Err(error) if error.is_no_node() => {
                let above = path::parent(&self.control.path);
                match ensure_parents(self.session, above, ParentKind::Container).await {
                    Ok(()) => Box::pin(self.create()).await,
                    Err(error) => self.after(error).await,
                }
            }
            Err(error) => self.after(error).await,
        }
    }

    /// The node is a dying session's of ours: makes it this session's, at one instant.
    ///
    /// The version distinguishes it from one that somebody made there meanwhile, unless that one
    /// was written as often; it would have to have our id as well, and be made within this round
    /// trip.
    async fn take_over(&mut self, found: Data) -> Result<PendingRead, KeepEnd> {
        let wanted = self.control.wanted();
        self.own.written = None;
        let path = &*self.control.path;
        let version = Some(found.stat.version).filter(|version| *version != -1);
        let mut change = vec![
            Op::delete(path, version),
            Op::create(path, wanted.data.clone(), CreateMode::Ephemeral),
        ];
        // One that still believes in the node that was writes under its version, which must not be
        // that of the new one.
        if found.stat.version == 0 {
            change.push(Op::set_data(path, wanted.data, None));
        }
        let change = self.session.multi(&change);
        let read = self.read();
        match change.await {
            Ok(_) => {
                self.own.written = Some(wanted.revision);
                Ok(read)
            }
            // Gone, or changed, meanwhile.
            Err(error) if error.is_no_node() || error.is_bad_version() => Ok(read),
            Err(error) => self.after(error).await,
        }
    }

    /// Reads again once that makes sense: what is found then shows what was perhaps applied.
    async fn after(&mut self, error: Error) -> Result<PendingRead, KeepEnd> {
        if self.session.state().is_final() {
            return Err(KeepEnd::SessionOver);
        }
        if !error.is_maybe_applied()
            && let Err(source) = retry::until_retryable(self.session, error).await
        {
            if self.session.state().is_final() {
                return Err(KeepEnd::SessionOver);
            }
            return Err(KeepEnd::Refused(MemberError::client(
                &self.control.path,
                source,
            )));
        }
        // The server that has us now may be behind the one that applied it (H02).
        let caught_up = self.session.sync(&self.control.path);
        let read = self.read();
        match caught_up.await {
            Ok(()) => Ok(read),
            Err(error) => Box::pin(self.after(error)).await,
        }
    }
}
