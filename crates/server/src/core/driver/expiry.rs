//! Ends of sessions: those that are due, once all sockets have been read, and those that the owner
//! of the server has asked for. Only the leader ends sessions.

use std::sync::atomic::Ordering::Relaxed;

use baton_tree::{BatchBuilder, CloseReason as SessionEnd, Command, MOST_DELETED_AT_ONCE};

use super::CoreDriver;
use crate::connections::conn::CloseReason;
use crate::error::ServerError;
use crate::session::rounds::Round;

/// Progress of the reading of all sockets, which comes before any session expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketRound {
    /// No session is due to expire.
    Idle,
    /// The sockets' tasks have been asked for a round.
    Asked(Round),
    /// They have made it. What they handed in by then is in the inbox, and the core takes it before
    /// a session expires: it may re-attach the session through another connection.
    Made,
}

impl CoreDriver {
    /// Expires the sessions that are due, each by a command of its own.
    pub(crate) fn expire(&mut self) -> Result<(), ServerError> {
        let now_ms = self.state.time.now_ms();
        if self
            .clocks
            .next_due_ms()
            .is_none_or(|due_ms| due_ms > now_ms)
        {
            self.socket_round = SocketRound::Idle;
            return Ok(());
        }
        // One of them may re-attach a session that is due.
        if self.backlog.has_handshakes() || !self.sockets_are_read() {
            return Ok(());
        }
        // The end of one session may cost what the whole entry may. The others stay due.
        let tree = self.state.tree.read();
        let mut left = MOST_DELETED_AT_ONCE;
        let due = self.clocks.due(now_ms, |session| {
            let ephemerals = tree.session(session).map_or(0, |info| info.ephemerals);
            let has_room = left > 0;
            left = left.saturating_sub(1 + ephemerals);
            has_room
        });
        drop(tree);
        let stats = &self.state.stats;
        stats.session_ends_put_off.fetch_add(due.put_off, Relaxed);
        let mut builder = self.new_batch();
        for session_id in due.ended {
            self.push_expiry(session_id, &mut builder);
        }
        self.commit_for_nobody(builder)
    }

    /// Expires the sessions that the owner of the server asked for, at once and whether or not
    /// their clients are there.
    pub(crate) fn expire_requested(&mut self) -> Result<(), ServerError> {
        let requested = self.state.inbox.take_expirations();
        if requested.is_empty() {
            return Ok(());
        }
        let mut builder = self.new_batch();
        for expiration in &requested {
            let Some(clocked) = self.clocks.get(expiration.session) else {
                continue;
            };
            // First, so that its client receives none of the events that the end causes: neither
            // would a client that was silent.
            if let Some(conn) = &clocked.conn {
                conn.close(CloseReason::SessionExpired, &mut self.applier.wake);
            }
            self.push_expiry(expiration.session, &mut builder);
        }
        self.commit_for_nobody(builder)?;
        for expiration in requested {
            self.applier
                .ends
                .notify(expiration.session, expiration.applied);
        }
        Ok(())
    }

    /// Adds the command that expires a session.
    pub(crate) fn push_expiry(&mut self, session_id: i64, builder: &mut BatchBuilder) {
        let command = Command::CloseSession {
            session_id,
            reason: SessionEnd::Expired,
        };
        builder.begin(session_id, &self.nobody, None);
        builder.push(0, command);
    }

    /// Whether all sockets have been read since the first session became due, and what they handed
    /// in has been processed. Otherwise asks for that.
    fn sockets_are_read(&mut self) -> bool {
        match self.socket_round {
            SocketRound::Idle => {
                let round = self.state.rounds.ask();
                self.socket_round = round.map_or(SocketRound::Idle, SocketRound::Asked);
                round.is_none()
            }
            SocketRound::Asked(round) => {
                if self.state.rounds.is_made(round) {
                    self.socket_round = SocketRound::Made;
                }
                false
            }
            SocketRound::Made => {
                self.socket_round = SocketRound::Idle;
                true
            }
        }
    }
}
