//! State that the core and the sockets share: the tree and the watches under their locks, the
//! inbox, the clocks, the connections. Locks are taken in one order: tree, watches, a connection's
//! outbox. Owns what takes several of these parts; each part by itself is in a module of its own.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use baton_proto::{AuthPacket, ErrorCode, Limits};
use baton_tree::Tree;
use parking_lot::{Mutex, RwLock};

use crate::audit::line::{Ending, Fields, Operation};
use crate::audit::record::{Audit, Principal};
use crate::auth::attempts::{Attempts, Claim};
use crate::auth::credentials;
use crate::connections::conn::{CloseReason, Conn};
use crate::connections::inbound::Inbound;
use crate::connections::inbox::Inbox;
use crate::connections::outbound::Outbound;
use crate::connections::peer::Peer;
use crate::connections::registry::{Connections, TooMany};
use crate::connections::relief;
use crate::listening::tls::Certificates;
use crate::observers::changes::ObservedTree;
use crate::options::Options;
use crate::report::client_log::ClientLog;
use crate::report::listings::{Listed, ListingName, Listings, Refusal, Source};
use crate::report::notice::Notice;
use crate::session::rounds::Rounds;
use crate::state::backups::Backups;
use crate::state::ensemble_status::EnsembleStatus;
use crate::stats::counters::Stats;
use crate::stats::progress::Progress;
use crate::time::ServerTime;
use crate::watch::table::WatchTable;

pub(crate) mod backups;
pub(crate) mod ensemble_status;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;

/// Watches of an ended connection that are removed under one hold of their lock.
pub(crate) const WATCHES_PER_LOCK: usize = 1000;

/// A step that takes longer makes the server not ready. A sync that takes a second is counted as
/// slow already.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// State of one server, shared by its core and its sockets.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) tree: RwLock<Tree>,
    pub(crate) watches: Mutex<WatchTable>,
    pub(crate) inbox: Inbox,
    pub(crate) time: ServerTime,
    pub(crate) rounds: Rounds,
    pub(crate) stats: Stats,
    pub(crate) client_log: ClientLog,
    pub(crate) listings: Arc<Listings>,
    pub(crate) password_attempts: Attempts,
    pub(crate) progress: Progress,
    pub(crate) backups: Backups,
    pub(crate) certificates: Certificates,
    /// The uptime in milliseconds before which no session is opened or taken on: leases of before a
    /// restore may still count.
    pub(crate) held_until_ms: AtomicU64,
    /// The zxid of the last applied write. Set after every event up to it has been pushed.
    pub(crate) last_zxid: AtomicI64,
    /// Sessions that are open.
    pub(crate) sessions: AtomicUsize,
    /// Server time at which the last session or connection ended.
    pub(crate) idle_since_ms: AtomicU64,
    pub(crate) connections: Mutex<Connections>,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) inbound: Inbound,
    /// The record of who did what; `None`: there is none.
    pub(crate) audit: Option<Arc<Audit>>,
    /// This server's part in its ensemble; `None`: it stands alone.
    pub(crate) ensemble: Option<Mutex<EnsembleStatus>>,
    #[cfg(feature = "simulation")]
    pub(crate) simulated: crate::state::simulated::Simulated,
}

/// A seed of the hash tables of a tree, which no client can know.
pub(crate) fn hash_seed() -> u64 {
    RandomState::new().hash_one(0)
}

impl ServerState {
    pub(crate) fn zxid(&self) -> i64 {
        self.last_zxid.load(Ordering::Acquire)
    }

    /// Returns the time for which no session may be opened or taken on yet, since leases of before
    /// a restore may still count; `None`: sessions are served.
    pub(crate) fn held_for(&self) -> Option<Duration> {
        let until_ms = self.held_until_ms.load(Ordering::Relaxed);
        let left_ms = until_ms.checked_sub(self.time.uptime_ms())?;
        Some(Duration::from_millis(left_ms)).filter(|left| !left.is_zero())
    }

    /// Serves no session for this long from now on.
    pub(crate) fn hold_for(&self, held: Duration) {
        let held_ms = u64::try_from(held.as_millis()).unwrap_or(u64::MAX);
        let until_ms = self.time.uptime_ms().saturating_add(held_ms);
        self.held_until_ms.fetch_max(until_ms, Ordering::Relaxed);
    }

    /// Whether this server of an ensemble answers reads though no leader is known.
    pub(crate) fn is_read_only(&self) -> bool {
        let ensemble = self.ensemble.as_ref();
        ensemble.is_some_and(|status| status.lock().is_read_only)
    }

    /// Shows the whole tree to the observer, which has missed how it came to be.
    pub(crate) fn show_restored(&self) {
        if let Some(observer) = &self.options.observer {
            observer.restored(&ObservedTree::new(&self.tree.read()));
        }
    }

    /// Adds a connection to those that are open.
    ///
    /// # Errors
    /// [`TooMany`].
    pub(crate) fn open(&self, peer: Peer) -> Result<Arc<Conn>, TooMany> {
        let mut connections = self.connections.lock();
        let opened =
            connections.open(peer, &self.options, || self.time.now_ms(), &self.outbound)?;
        if connections.len() == 1 {
            self.rounds.wake();
        }
        Ok(opened)
    }

    /// Notes how many sessions are open.
    pub(crate) fn set_sessions(&self, count: usize) {
        if self.sessions.swap(count, Ordering::Relaxed) == 0 {
            self.rounds.wake();
        }
    }

    /// Bytes received and sent since the start, over all connections.
    pub(crate) fn transferred_bytes(&self) -> (u64, u64) {
        let connections = self.connections.lock();
        let stats = &self.stats;
        let mut total = (
            stats.bytes_in_before.load(Ordering::Relaxed),
            stats.bytes_out_before.load(Ordering::Relaxed),
        );
        for conn in connections.iter() {
            total.0 += conn.stats.bytes_in.load(Ordering::Relaxed);
            total.1 += conn.stats.bytes_out.load(Ordering::Relaxed);
        }
        total
    }

    /// Removes a connection that has ended, and its watches.
    pub(crate) fn forget(&self, conn: &Conn) {
        // First: watches that it asks for from now on are not set, those before are forgotten
        // below.
        let ended = conn.detach();
        self.inbound.release(conn, ended);
        // Between the slices, events are delivered, and others set watches.
        while self.watches.lock().forget(conn.id, WATCHES_PER_LOCK) {}
        let mut connections = self.connections.lock();
        connections.remove(conn);
        for (total, own) in [
            (&self.stats.bytes_in_before, &conn.stats.bytes_in),
            (&self.stats.bytes_out_before, &conn.stats.bytes_out),
        ] {
            total.fetch_add(own.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.idle_since_ms
            .store(self.time.now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.connections.lock().len()
    }

    /// Every open connection, in order of id.
    pub(crate) fn all_connections(&self) -> Vec<Arc<Conn>> {
        let mut all: Vec<_> = self.connections.lock().iter().cloned().collect();
        all.sort_by_key(|conn| conn.id);
        all
    }

    /// Closes the connections for which `is_due` holds. Their sessions outlive that.
    pub(crate) fn close_connections_of(&self, is_due: impl Fn(&Conn) -> bool, reason: CloseReason) {
        let mut wake = Vec::new();
        for conn in self.all_connections() {
            if is_due(&conn) {
                conn.close(reason, &mut wake);
            }
        }
        for conn in wake {
            conn.wake(false);
        }
    }

    /// Closes every connection and refuses further ones.
    pub(crate) fn close_connections(&self) {
        self.connections.lock().stop();
        let mut wake = Vec::new();
        for conn in self.all_connections() {
            conn.close(CloseReason::ServerStops, &mut wake);
        }
        for conn in wake {
            conn.wake(false);
        }
    }

    /// Returns the time without a session and without a connection; zero while one is open.
    pub(crate) fn idle(&self) -> Duration {
        if self.sessions.load(Ordering::Relaxed) > 0 || self.open_connections() > 0 {
            return Duration::ZERO;
        }
        let since = self.idle_since_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.time.now_ms().saturating_sub(since))
    }

    /// Ends connections until the unread bytes of all others are below the bound. The caller wakes
    /// those on `wake` once it holds no outbox. Takes the lock of the connections.
    pub(crate) fn relieve(&self, wake: &mut Vec<Arc<Conn>>) {
        let (now_ms, connections) = (self.time.now_ms(), self.all_connections());
        relief::relieve(&self.outbound, &connections, now_ms, wake);
    }

    /// Counts `bytes` of a connection as arrived and not taken on; see [`Inbound::set`].
    pub(crate) fn set_unfinished(&self, conn: &Conn, bytes: usize, taken_on: bool) {
        if self
            .inbound
            .set(conn, bytes, taken_on, || self.time.now_ms())
        {
            let (now_ms, connections) = (self.time.now_ms(), self.all_connections());
            self.inbound.relieve(&connections, now_ms);
        }
    }

    /// Writes a rate-limited line about `peer` into the log; see [`ClientLog::report`].
    pub(crate) fn notice(&self, notice: Notice, peer: Option<&Peer>, what: fmt::Arguments<'_>) {
        self.client_log
            .report(notice, peer, what, self.time.now_ms());
    }

    /// Adds a line to the audit record, if there is one. `more` writes the fields between the
    /// operation and how it ended.
    pub(crate) fn record(
        &self,
        operation: Operation,
        ending: Ending,
        who: impl FnOnce() -> Principal,
        more: impl FnOnce(&mut Fields<'_>),
    ) {
        if let Some(audit) = &self.audit {
            let now_ms = self.time.wall_ms();
            audit.add(now_ms, &who(), operation, ending, more);
        }
    }

    /// Writes the line for a request that is answered with `code`, if that code is one for the log.
    pub(crate) fn refused(&self, conn: &Conn, op: &dyn fmt::Display, body: &[u8], code: ErrorCode) {
        let now_ms = self.time.now_ms();
        self.client_log
            .report_refused(&conn.peer, op, body, code, now_ms);
    }

    /// The listing of this name, made for this asker and all others who wait for it. Cancelling has
    /// no effect on them.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn list(
        self: &Arc<Self>,
        name: ListingName,
        source: Source,
        make: impl FnOnce(&ServerState) -> Result<String, Refusal> + Send + 'static,
    ) -> Listed {
        let state = Arc::clone(self);
        self.listings.list(name, source, move || make(&state)).await
    }

    /// The claim of a packet that claims to come from the superuser: only that can be guessed at,
    /// as any other pair of name and password is an identity of its own.
    pub(crate) fn superuser_claim(&self, peer: &Peer, packet: &AuthPacket<'_>) -> Option<Claim> {
        let account = credentials::claimed_account(packet);
        let claims = credentials::claims_superuser(packet, &self.options);
        claims.then(|| self.password_attempts.of_user(peer, account))
    }

    /// Counts and reports a wrong password of the superuser, whose sender is then an ordinary user
    /// of that name; a right one ends the delays of its claim.
    pub(crate) fn judge_superuser(&self, peer: &Peer, claim: Claim, packet: &AuthPacket<'_>) {
        if credentials::proves_superuser(packet, &self.options) {
            self.password_attempts.succeeded(claim);
        } else {
            self.password_attempts.failed(self.time.uptime_ms());
            self.stats.auth_failed.fetch_add(1, Ordering::Relaxed);
            let what = format_args!("a wrong password for the superuser");
            self.notice(Notice::BadCredentials, Some(peer), what);
            let who = || Principal::at(peer, None);
            self.record(Operation::Login, Ending::Failure, who, |fields| {
                fields.word("scheme", "super");
            });
        }
    }

    /// Returns the time that the core has spent at its present step; zero if it waits for work.
    pub(crate) fn core_busy(&self) -> Duration {
        self.progress.busy(self.time.uptime_ms())
    }

    /// Returns the time for which the core has been stuck at one step, if it is.
    pub(crate) fn core_stuck(&self) -> Option<Duration> {
        Some(self.core_busy()).filter(|busy| *busy > STUCK_AFTER)
    }

    /// Returns the reason for which writes take long, and the remedy.
    pub(crate) fn why_writes_wait(&self) -> String {
        if self.stats.disk_full.load(Ordering::Relaxed) {
            return "the disk is full; make room on it".to_owned();
        }
        match self.core_stuck() {
            Some(stuck) => format!(
                "the disk has not answered for {} s; look after the disk",
                stuck.as_secs()
            ),
            None => {
                let waiting = self.inbox.queued_requests();
                format!("{waiting} requests wait for the log; take load off the server")
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use baton_wal::MemoryStorage;

    use super::*;
    use crate::core::start::starting::Starting;
    use crate::server::prepare;

    /// State of a server without sockets, whose core does not run.
    pub(crate) fn state(options: Options) -> Arc<ServerState> {
        let storage = Arc::new(MemoryStorage::new());
        prepare(
            options,
            None,
            storage,
            ServerTime::new(),
            &Starting::default(),
        )
        .unwrap()
        .0
    }

    #[tokio::test(start_paused = true)]
    async fn why_writes_wait_is_reported_with_what_to_do() {
        let state = state(Options::default());
        let load = "0 requests wait for the log; take load off the server";
        assert_eq!(state.why_writes_wait(), load);
        state.progress.step(state.time.uptime_ms());
        tokio::time::advance(STUCK_AFTER).await;
        assert_eq!(state.core_stuck(), None);
        assert_eq!(state.why_writes_wait(), load);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(state.core_stuck(), Some(Duration::from_secs(7)));
        assert_eq!(
            state.why_writes_wait(),
            "the disk has not answered for 7 s; look after the disk"
        );
        state.stats.disk_full.store(true, Ordering::Relaxed);
        assert_eq!(state.why_writes_wait(), "the disk is full; make room on it");
    }
}
