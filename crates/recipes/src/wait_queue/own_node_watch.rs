//! The watch on our own node.
//!
//! Owns the notification that it is gone, or that its holder is asked to release; it sees to it
//! that a watch stays set, across reconnects and changes of the data. Must never report a node gone
//! that it merely could not read.

use baton_client::{Data, Error, Pending, Session, Watch};
use baton_proto::EventKind;

use super::WaiterNode;
use super::release_request::is_release_request;
use crate::lost_reason::LostReason;
use crate::retry;

/// A watch on a node of ours, for as long as it is there.
#[derive(Debug)]
pub(crate) struct OwnNodeWatch {
    session: Session,
    path: String,
    /// A node at the path with another `czxid` is another's (H09).
    czxid: i64,
    state: State,
    asked_back: bool,
}

#[derive(Debug)]
enum State {
    /// Boxed so that the long-lived acquire future stays small.
    Asked(Box<Pending<(Data, Watch)>>),
    Watching(Watch),
    /// The read came to nothing, for now or for good.
    Failed(Box<Error>),
}

/// A notification about our own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeNotification {
    /// Somebody has asked its holder to release.
    AskedBack,
    /// It is gone, or its session. No further notification follows.
    Gone(LostReason),
}

impl OwnNodeWatch {
    /// Starts to watch: the request is queued before this returns.
    pub(crate) fn watch(waiter: &WaiterNode) -> Self {
        Self::at(waiter.session(), waiter.path(), waiter.czxid())
    }

    /// [`OwnNodeWatch::watch`] for a node of `session` outside a wait queue.
    pub(crate) fn at(session: &Session, path: &str, czxid: i64) -> Self {
        // The watch is to end with the session, and not to keep it open.
        let (session, path) = (session.detached(), path.to_owned());
        let state = State::Asked(Box::new(session.get_data_watch(&path)));
        Self {
            session,
            path,
            czxid,
            state,
            asked_back: false,
        }
    }

    /// Returns whether somebody has asked the holder to release, as far as the notifications taken
    /// so far show.
    pub(crate) fn is_asked_back(&self) -> bool {
        self.asked_back
    }

    /// Resolves when the node is gone or its session lost. Cancel-safe.
    pub(crate) async fn gone(&mut self) -> LostReason {
        loop {
            if let NodeNotification::Gone(reason) = self.next().await {
                return reason;
            }
        }
    }

    /// The next notification. Cancel-safe.
    pub(crate) async fn next(&mut self) -> NodeNotification {
        loop {
            match &mut self.state {
                State::Asked(asked) => match asked.await {
                    Ok((read, _)) if read.stat.czxid != self.czxid => {
                        return NodeNotification::Gone(LostReason::NodeGone);
                    }
                    Ok((read, watch)) => {
                        self.state = State::Watching(watch);
                        if !self.asked_back && is_release_request(&read.data) {
                            self.asked_back = true;
                            return NodeNotification::AskedBack;
                        }
                        continue;
                    }
                    Err(error) if error.is_no_node() => {
                        return NodeNotification::Gone(LostReason::NodeGone);
                    }
                    Err(error) => {
                        self.state = State::Failed(Box::new(error));
                        continue;
                    }
                },
                State::Watching(watch) => match watch.await {
                    Ok(event) if event.kind == EventKind::NodeDeleted => {
                        return NodeNotification::Gone(LostReason::NodeGone);
                    }
                    Ok(_) => {}
                    Err(_) => return NodeNotification::Gone(LostReason::SessionLost),
                },
                State::Failed(error) => {
                    let error = Error::clone(error);
                    if Box::pin(is_unreadable(&self.session, &self.path, error)).await {
                        return NodeNotification::Gone(LostReason::SessionLost);
                    }
                }
            }
            self.state = State::Asked(Box::new(self.session.get_data_watch(&self.path)));
        }
    }
}

/// After `error`: `false` once the node may be read again, `true` once the session is over.
async fn is_unreadable(session: &Session, path: &str, error: Error) -> bool {
    let Err(error) = retry::until_retryable(session, error).await else {
        return false;
    };
    if !error.is_session_ended() {
        // Not readable by us (ACL): the session's end is then all that can be known.
        tracing::warn!(path, %error, "own lock node cannot be watched");
        session.ended().await;
    }
    true
}
