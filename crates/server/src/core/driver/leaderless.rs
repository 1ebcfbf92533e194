//! Service to clients of a member while no leader is known. First their requests wait; then their
//! connections are closed, so that they look for another server (R08). From then on, where the
//! settings allow it, the server is in read-only mode: sockets open sessions that can read and
//! nothing else ([`net::read_only`](crate::net)). The core has no part in such a session but to
//! close its connection. Clients of a server that was removed are sent elsewhere at once.

use std::time::Instant;

use super::CoreDriver;
use crate::connections::conn::CloseReason;

impl CoreDriver {
    /// Ends the connections of clients that could be served elsewhere, once no leader has been
    /// known for long. Begins read-only mode with that.
    pub(crate) fn serve_leaderless(&mut self, now: Instant) {
        if self.members.serves_nobody() {
            self.close_clients(CloseReason::NotAMember);
            return;
        }
        if !self.leadership.is_leaderless(now) {
            return;
        }
        if self.state.is_read_only() {
            self.close_silent_readers(now);
            return;
        }
        // Before connections are closed: one that comes later finds the mode.
        self.begin_read_only_mode();
        self.close_clients(CloseReason::NoLeader);
    }

    /// Ends the connections of all clients but those of read-only mode.
    fn close_clients(&mut self, reason: CloseReason) {
        let mut open = self.state.all_connections();
        open.retain(|conn| !conn.is_read_only() && !conn.is_closing());
        if !open.is_empty() {
            tracing::warn!(
                connections = open.len(),
                why = reason.text(),
                "clients are disconnected, so that they look for another server"
            );
        }
        for conn in open {
            conn.close(reason, &mut self.applier.wake);
        }
    }

    /// Begins read-only mode, if the settings allow it and this server shows everything that it
    /// knows to be committed (R31).
    fn begin_read_only_mode(&mut self) {
        let is_allowed = self
            .state
            .options
            .ensemble
            .as_ref()
            .is_some_and(|ensemble| ensemble.read_only_mode);
        let is_installing = self.transfers.is_installing();
        let lags = self.consensus.applied_index() < self.consensus.commit_index();
        if !is_allowed || is_installing || lags {
            return;
        }
        if let Some(status) = &self.state.ensemble {
            status.lock().is_read_only = true;
            let zxid = self.state.zxid();
            tracing::warn!(
                zxid,
                "no leader is known; read-only mode begins: clients that ask for it may read"
            );
        }
    }

    /// A leader is known: clients of read-only mode connect again, for sessions that can write.
    pub(crate) fn end_read_only_mode(&mut self) {
        let Some(status) = &self.state.ensemble else {
            return;
        };
        // No such session is opened after this; all before it are found below.
        if !std::mem::take(&mut status.lock().is_read_only) {
            return;
        }
        let mut open = self.state.all_connections();
        open.retain(|conn| conn.is_read_only());
        tracing::info!(
            connections = open.len(),
            "a leader is known: read-only mode ends, and its clients are disconnected"
        );
        for conn in open {
            conn.close(CloseReason::ReadOnlyModeEnded, &mut self.applier.wake);
        }
    }

    /// Ends the sessions of read-only mode whose clients were silent for their timeout.
    fn close_silent_readers(&mut self, now: Instant) {
        let now_ms = self.state.time.at_ms(now);
        for conn in self.state.all_connections() {
            let Some(attached) = conn.attached().filter(|attached| attached.is_read_only) else {
                continue;
            };
            let last_ms = attached.touch.last_ms();
            let is_due = now_ms > last_ms.saturating_add(attached.timeout_ms.into());
            if is_due && !conn.has_unread_bytes() && attached.touch.end(last_ms) {
                conn.close(CloseReason::SessionExpired, &mut self.applier.wake);
            }
        }
    }
}
