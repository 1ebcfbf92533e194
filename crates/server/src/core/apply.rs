//! Applies one committed log entry, with the reads that belong between its writes, and sends the
//! results: replies to the clients that asked, events to those that watch. An entry that came from
//! another server takes the same way, and answers nobody. Everything here happens under the tree's
//! write lock, in slices, so that reads of other clients get their turn.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use baton_proto::{
    ConnectResponse, ErrorCode, EventKind, MultiResult, Perms, ReplyHeader, Response, frame,
};
use baton_tree::{
    Batch, BatchItem, Change, ChangeKind, Command, Effects, FormatLevel, Identity, Outcome,
    OverQuota, QuotaOf, Tree, Unapplied,
};
use parking_lot::RwLockWriteGuard;

use crate::audit::changes::{Applied, Changes};
use crate::connections::conn::{Attached, CloseReason, Conn};
use crate::connections::inbox::{Group, Kind, Queued, Work};
use crate::connections::touch::Touch;
use crate::core::apply::lost_session::LostSession;
use crate::core::apply::session_ends::{CloseRequest, SessionEnds};
use crate::core::batches::in_flight::Requested;
use crate::observers::changes::{ChangeObserver, ChangedBy, ObservedChange};
use crate::observers::traces::TracedWrite;
use crate::progress::Progress;
use crate::read::answer::{self, Flow, ReadRequest};
use crate::read::sliced::{SliceOutcome, SliceSource};
use crate::report::escaped::EscapedText;
use crate::report::notice::Notice;
use crate::session::clocks::SessionClocks;
use crate::state::ServerState;
use crate::stats::counters::Stats;
use crate::stats::requests::Tally;
use crate::time::micros;
use crate::watch::access::WatchAccess;
use crate::watch::event_run::EventRun;
use crate::watch::table::{EventWatchers, WatchTable};

mod lost_session;
mod session_ends;

/// Steps under one hold of the tree's lock.
const STEPS_PER_LOCK: usize = 128;

/// Changes, and watchers that they are shown to, under one hold of the lock. One command may exceed
/// it.
const WORK_PER_LOCK: usize = 4096;

/// Connections that are asked for their permission, or receive events, for one command, and
/// watchers that are found for it, of which this number costs as much as one of those. A connection
/// that is to receive more ends: its client connects again, and receives what it has missed when it
/// sets its watches again. Events that few receive are handed out all the same, so that a waiter of
/// a lock has its event.
const MOST_RECEIVERS: usize = 150_000;
const WATCHERS_PER_RECEIVER: usize = 16;
const FEW_RECEIVERS: usize = 8;

/// Bytes of answers to reads under one hold of the lock; then tasks that wait for it go first.
const READ_BYTES_PER_LOCK: usize = 256 << 10;

/// Most connections that get their answers from the core itself, because waking their tasks would
/// take longer. More are better served by the socket threads, while the core goes on with the
/// next entry.
const DIRECT_CONNECTIONS: usize = 4;

/// Observers of the changes of one command.
struct Observing<'a> {
    observer: &'a dyn ChangeObserver,
    by: ChangedBy,
    time_ms: i64,
}

impl Observing<'_> {
    fn show(&self, change: &Change<'_>) {
        let is_created = match change.kind {
            ChangeKind::Created => true,
            ChangeKind::Deleted => false,
            ChangeKind::DataChanged | ChangeKind::ChildrenChanged => return,
        };
        let is_open = is_created && change.acl.permits(&Identity::anonymous(), Perms::READ);
        self.observer.changed(&ObservedChange {
            open_data: is_open.then(|| change.data.unwrap_or_default()),
            is_created,
            path: change.path,
            session: change.session,
            by: self.by,
            zxid: change.zxid,
            time_ms: self.time_ms,
        });
    }
}

/// Returns the author of this command's changes.
const fn changed_by(item: &BatchItem<'_>) -> ChangedBy {
    match item.command {
        Command::Write { .. } => ChangedBy::Client(item.session),
        Command::CloseSession { reason, .. } => match reason {
            baton_tree::CloseReason::Client => ChangedBy::ClosedSession,
            baton_tree::CloseReason::Expired => ChangedBy::ExpiredSession,
        },
        _ => ChangedBy::Server,
    }
}

/// Sends a change to the connections that watch it.
struct Deliver<'a> {
    state: &'a ServerState,
    /// The connection whose request it is.
    by: Option<&'a Conn>,
    watches: &'a mut WatchTable,
    wake: &'a mut Vec<Arc<Conn>>,
    run: &'a mut EventRun,
    relief: &'a mut usize,
    stats: &'a Stats,
    observing: Option<Observing<'a>>,
    /// The znodes that are deleted, where the audit record is to have them.
    deleted: Option<&'a mut Vec<String>>,
    /// Whether the entry is one of those that a start applies again.
    is_recovering: bool,
}

impl Effects for Deliver<'_> {
    fn event(&mut self, change: Change<'_>) {
        let kind = match change.kind {
            ChangeKind::Created => EventKind::NodeCreated,
            ChangeKind::Deleted => EventKind::NodeDeleted,
            ChangeKind::DataChanged => EventKind::NodeDataChanged,
            ChangeKind::ChildrenChanged => EventKind::NodeChildrenChanged,
        };
        if let (ChangeKind::Deleted, Some(deleted)) = (change.kind, &mut self.deleted) {
            deleted.push(change.path.to_owned());
        }
        if let Some(observing) = &self.observing {
            observing.show(&change);
        }
        let fired = self.watches.fire(kind, change.path);
        if fired == EventWatchers::Nobody {
            return;
        }
        let watchers = match kind {
            EventKind::NodeCreated => &self.stats.created_watches,
            EventKind::NodeDeleted => &self.stats.deleted_watches,
            EventKind::NodeDataChanged => &self.stats.changed_watches,
            _ => &self.stats.children_watches,
        };
        watchers.record(self.watches.hits().len() as u64);
        let cost = self.run.work() + self.watches.work() / WATCHERS_PER_RECEIVER;
        if cost > MOST_RECEIVERS && self.watches.hits().len() > FEW_RECEIVERS {
            return self.end_watchers();
        }
        self.run.add(
            (self.watches, fired),
            change.acl,
            |frames| answer::event(frames, change.zxid, kind, change.path),
            (self.stats, self.wake),
        );
        if self.state.outbound.needs_relief(self.relief) {
            self.state.relieve(self.wake);
        }
    }

    fn over_quota(&mut self, over: OverQuota<'_>) {
        if self.is_recovering {
            return;
        }
        let (counter, what) = if over.is_hard {
            (&self.stats.quota_hard_exceeded, "refused")
        } else {
            (&self.stats.quota_soft_exceeded, "over the soft quota")
        };
        counter.fetch_add(1, Relaxed);
        if over.is_hard {
            self.stats.quota_refusals.count(over.path);
        }
        let of = match over.of {
            QuotaOf::Count => "znodes",
            QuotaOf::Bytes => "bytes of data",
        };
        self.state.notice(
            Notice::Quota,
            self.by.map(|conn| &conn.peer),
            format_args!(
                "{what}: {} would have {} {of}, its quota is {}; raise the quota or delete something",
                EscapedText(over.path),
                over.amount,
                over.limit,
            ),
        );
    }
}

impl Deliver<'_> {
    /// Ends the connections that watch the last event, behind what they have received before.
    fn end_watchers(&mut self) {
        self.run.end(self.stats, self.wake);
        for id in self.watches.hits() {
            if let Some(conn) = self.watches.conn(*id)
                && conn.close(CloseReason::TooManyEvents, self.wake)
            {
                self.stats.event_floods_closed.fetch_add(1, Relaxed);
            }
        }
        self.watches.remove_hit();
    }
}

/// Applies entries. Holds the buffers that live from one entry to the next.
#[derive(Debug)]
pub(crate) struct Applier {
    /// The progress of a server that starts and applies what its log has: sessions have no clocks
    /// yet, and nothing is counted or logged a second time.
    pub(crate) replay: Option<Arc<Progress>>,
    /// The server of an ensemble whose clients gave the commands of the entry.
    origin: Option<u64>,
    /// Whether this server has proposed the entry.
    pub(crate) is_own: bool,
    /// Changes for the audit record; `None` where there is none.
    audit: Option<Box<Changes>>,
    deleted: Vec<String>,
    /// Result of the membership change in the last entry.
    pub(crate) reconfigured: Option<Result<Outcome, Unapplied>>,
    /// The tree's format level after the last entry.
    pub(crate) level: FormatLevel,
    /// An ended session that has ephemerals left after the last entry.
    pub(crate) unfinished_end: Option<i64>,
    /// Whether a deletion was applied that no client has asked for.
    pub(crate) has_deleted: bool,
    pub(crate) ends: SessionEnds,
    /// Requests for sessions whose id was used: another id is to be drawn for each.
    pub(crate) again: Work,
    pub(crate) wake: Vec<Arc<Conn>>,
    /// Connections that the last entry answered or notified.
    pub(crate) notified: usize,
    run: EventRun,
    /// See [`Outbound::needs_relief`](crate::connections::outbound::Outbound::needs_relief).
    relief: usize,
    tally: Tally,
    /// Writes of the entry that were answered, for the tracer.
    traced: Vec<TracedWrite>,
}

impl Applier {
    /// For the start on a tree of this level.
    pub(crate) fn new(level: FormatLevel, state: &ServerState) -> Self {
        let audit = state.audit.as_ref().map(Arc::clone);
        Self {
            replay: None,
            origin: None,
            is_own: true,
            audit: audit.map(|audit| Box::new(Changes::new(audit))),
            deleted: Vec::new(),
            reconfigured: None,
            level,
            unfinished_end: state.tree.read().unfinished_end(),
            has_deleted: false,
            ends: SessionEnds::default(),
            again: Work::default(),
            wake: Vec::new(),
            notified: 0,
            run: EventRun::default(),
            relief: 0,
            tally: Tally::default(),
            traced: Vec::new(),
        }
    }

    /// Whether the server starts, and applies what its log has.
    pub(crate) const fn is_recovering(&self) -> bool {
        self.replay.is_some()
    }

    /// Takes on the level of the tree. A server that serves says that it has risen, in a line of
    /// the log: from there on no earlier version can take its place.
    pub(crate) fn set_level(&mut self, level: FormatLevel) {
        if level > self.level && !self.is_recovering() {
            tracing::info!(
                from = self.level.number(),
                to = level.number(),
                "format level raised; earlier versions of Baton no longer read this data folder"
            );
        }
        self.level = level;
    }

    /// Runs the steps that were requested; those that are commands take the items of `batch`, one
    /// after the other.
    pub(crate) fn run(
        &mut self,
        state: &ServerState,
        clocks: &mut SessionClocks,
        requested: &Requested,
        batch: Option<&Batch<'_>>,
    ) {
        let work = &*requested.work;
        let time_ms = batch.map_or(0, Batch::time_ms);
        self.origin = batch.and_then(Batch::origin).map(|origin| origin.server);
        self.relief = 0;
        self.reconfigured = None;
        let is_recovering = self.is_recovering();
        let is_audited = !is_recovering && batch.is_some();
        if let Some(audit) = self.audit.as_mut().filter(|_| is_audited) {
            audit.begin(state.time.wall_ms());
        }
        let observer = state.options.observer.as_deref();
        let observer = observer.filter(|_| !is_recovering);
        let mut items = batch.map(Batch::iter).into_iter().flatten();
        let mut rest = requested.steps.iter();
        while rest.len() > 0 {
            let mut tree = state.tree.write();
            let mut watches = state.watches.lock();
            let mut read_bytes = 0;
            let mut work_done = 0;
            for _ in 0..STEPS_PER_LOCK {
                // Before the step is taken: one that is left for the next hold must not be lost.
                if work_done >= WORK_PER_LOCK {
                    break;
                }
                let Some(step) = rest.next() else {
                    break;
                };
                let group = step.group.and_then(|group| work.groups.get(group));
                let outcome = if step.is_command {
                    let Some((item, identity)) = items.next() else {
                        break;
                    };
                    let is_reconfigure = matches!(item.command, Command::Reconfigure { .. });
                    self.deleted.clear();
                    let names_deleted = self.audit.is_some()
                        && is_audited
                        && matches!(item.command, Command::CloseSession { .. });
                    let mut deliver = Deliver {
                        state,
                        by: group.map(|group| &*group.conn),
                        watches: &mut watches,
                        wake: &mut self.wake,
                        run: &mut self.run,
                        relief: &mut self.relief,
                        stats: &state.stats,
                        observing: observer.map(|observer| Observing {
                            observer,
                            by: changed_by(item),
                            time_ms,
                        }),
                        deleted: names_deleted.then_some(&mut self.deleted),
                        is_recovering,
                    };
                    // Read first: its ephemerals are gone once the command has been applied.
                    let lost = expired_by(&item.command)
                        .filter(|_| !is_recovering)
                        .and_then(|session| LostSession::read(&tree, session));
                    let applied = tree.apply_item(time_ms, item, identity, &mut deliver);
                    #[cfg(feature = "simulation")]
                    let applied = match applied {
                        Err(why) if state.simulated.ignores(why) => Ok(tree.apply(
                            time_ms,
                            item.session,
                            identity,
                            item.command,
                            &mut deliver,
                        )),
                        applied => applied,
                    };
                    self.run.end(&state.stats, &mut self.wake);
                    if state.outbound.needs_relief(&mut self.relief) {
                        state.relieve(&mut self.wake);
                    }
                    work_done += tree.take_steps() + watches.take_work() + self.run.take_work();
                    // After the events, so that a client that sees this zxid finds them in its
                    // outbox; before the reply that carries it.
                    state.last_zxid.store(tree.zxid(), Release);
                    if is_reconfigure {
                        self.reconfigured = Some(applied.clone());
                    }
                    let outcome = match applied {
                        Ok(outcome) => outcome,
                        Err(why) => {
                            self.refuse(group, why);
                            continue;
                        }
                    };
                    if let Some(audit) = self.audit.as_mut().filter(|_| is_audited) {
                        let ended_by = || match item.command {
                            Command::CloseSession { session_id, .. } => {
                                self.ends.closed_by(session_id)
                            }
                            _ => None,
                        };
                        audit.applied(&Applied {
                            item,
                            client: group.or_else(ended_by),
                            is_own: self.is_own && self.origin.is_none(),
                            outcome: &outcome,
                            deleted: &self.deleted,
                        });
                    }
                    if !is_recovering {
                        let lost = lost.as_ref().filter(|_| outcome.result.is_ok());
                        if lost.is_some_and(LostSession::holds) {
                            let stats = &state.stats;
                            stats.sessions_expired_holding.fetch_add(1, Relaxed);
                        }
                        let conn = group.map(|group| &group.conn);
                        self.after_command(state, clocks, item, &outcome, lost, conn);
                    }
                    self.has_deleted |= group.is_none()
                        && matches!(
                            item.command,
                            Command::CloseSession { .. } | Command::DeleteContainer { .. }
                        );
                    let asked = group.zip(work.requests.get(step.request));
                    if self.ends.begun(&tree, item, asked) {
                        continue;
                    }
                    self.answer_complete_ends(state, &tree);
                    Some((outcome, item.command))
                } else {
                    None
                };
                let Some(group) = group else {
                    continue;
                };
                let Some(request) = work.requests.get(step.request) else {
                    continue;
                };
                match outcome {
                    Some((outcome, command)) => {
                        if is_id_taken(&tree, &command, &outcome) {
                            let body = work.body(request);
                            self.again
                                .begin(&group.conn, &group.identity, group.received);
                            self.again.push(request.xid, request.kind, body);
                            continue;
                        }
                        if is_refused_takeover(&tree, &command, &outcome) {
                            state.stats.auth_failed.fetch_add(1, Relaxed);
                        }
                        self.reply(state, &group.conn, request, &command, &outcome);
                        if let Some(write) = work.traced(step.request) {
                            let asked = (group.conn.session(), request.xid);
                            let code = refusal(&outcome.result).unwrap_or(ErrorCode::Ok);
                            let end = (outcome.zxid, code);
                            let now = state.time.now();
                            self.traced.push(write.answered(asked, end, now));
                        }
                    }
                    None => {
                        let asked = InTurn {
                            conn: &group.conn,
                            identity: &group.identity,
                            request,
                            body: work.body(request),
                        };
                        read_bytes += self.in_turn(state, &tree, &mut watches, &asked);
                        if read_bytes >= READ_BYTES_PER_LOCK {
                            break;
                        }
                    }
                }
            }
            drop(watches);
            self.set_level(tree.level());
            state.stats.steps_under_lock(work_done);
            self.unfinished_end = tree.unfinished_end();
            if read_bytes >= READ_BYTES_PER_LOCK || work_done >= WORK_PER_LOCK {
                RwLockWriteGuard::unlock_fair(tree);
            }
        }
        if let Some(audit) = &mut self.audit {
            audit.finish();
        }
        state.stats.requests.add(&std::mem::take(&mut self.tally));
        self.notified = self.wake.len();
        let direct = self.notified <= DIRECT_CONNECTIONS;
        if self.gives_way(state.ensemble.is_some()) {
            std::thread::yield_now();
        }
        for conn in self.wake.drain(..) {
            conn.wake(direct);
        }
        if let Some(tracer) = &state.options.tracer {
            for write in self.traced.drain(..) {
                tracer.answered(write);
            }
        }
    }

    /// Answers a change of the servers that was applied before. Since then its client may have seen
    /// later zxids, in events and answers to pings: the answer has that of now, so that no client
    /// goes back.
    pub(crate) fn answer_reconfigure(
        &mut self,
        state: &ServerState,
        requested: &Requested,
        outcome: &Result<Outcome, Unapplied>,
    ) {
        let command = Command::Reconfigure {
            refusal: 0,
            body: &[],
        };
        for step in &requested.steps {
            let group = step
                .group
                .and_then(|group| requested.work.groups.get(group));
            let request = requested.work.requests.get(step.request);
            match (group, request, outcome) {
                (Some(group), Some(request), Ok(outcome)) => {
                    if let Some(audit) = &mut self.audit {
                        audit.begin(state.time.wall_ms());
                        let body = requested.work.body(request);
                        audit.reconfigured(group, body, outcome);
                        audit.finish();
                    }
                    let answered = Outcome {
                        zxid: state.zxid(),
                        result: outcome.result.clone(),
                    };
                    self.reply(state, &group.conn, request, &command, &answered);
                }
                (group, _, Err(why)) => self.refuse(group, *why),
                _ => {}
            }
        }
        state.stats.requests.add(&std::mem::take(&mut self.tally));
    }

    /// Ends the connection of a command that was not applied because of its stamp. One that was
    /// applied before has been answered.
    fn refuse(&mut self, group: Option<&Group>, why: Unapplied) {
        let reason = match why {
            Unapplied::SessionMoved => CloseReason::SessionMoved,
            Unapplied::AfterGap => CloseReason::RequestLost,
            Unapplied::Duplicate => return,
        };
        if let Some(group) = group {
            group.conn.close(reason, &mut self.wake);
        }
    }

    /// Keeps the clocks in step with the tree's sessions. `lost` is the session that the command
    /// has expired; `conn` gave the command, if it is one of this server's.
    fn after_command(
        &mut self,
        state: &ServerState,
        clocks: &mut SessionClocks,
        item: &BatchItem<'_>,
        outcome: &Outcome,
        lost: Option<&LostSession>,
        conn: Option<&Arc<Conn>>,
    ) {
        if outcome.result.is_err() {
            return;
        }
        match &item.command {
            Command::OpenSession {
                session_id,
                timeout_ms,
                ..
            }
            | Command::ReattachSession {
                session_id,
                timeout_ms,
                ..
            } => {
                let timeout_ms = u32::try_from(*timeout_ms).unwrap_or(0);
                let touch = self.hand_over(state, clocks, *session_id, timeout_ms, conn);
                if let Some(conn) = conn {
                    conn.attach(Attached {
                        session: *session_id,
                        timeout_ms,
                        touch,
                        nonce: item.stamp.map(|stamp| stamp.nonce),
                        last_sequence: 0.into(),
                        is_read_only: false,
                        stored_identity: Default::default(),
                    });
                }
            }
            Command::CloseSession { session_id, reason } => {
                let Some(ended) = clocks.end(*session_id) else {
                    return;
                };
                state.set_sessions(clocks.len());
                state.idle_since_ms.store(state.time.now_ms(), Relaxed);
                if *reason == baton_tree::CloseReason::Expired {
                    #[cfg(feature = "simulation")]
                    state.simulated.expired(*session_id);
                    state.stats.sessions_expired.fetch_add(1, Relaxed);
                    if let Some(lost) = lost {
                        lost.log(state, &ended, self.is_own);
                    }
                    if let Some(conn) = ended.conn {
                        conn.close(CloseReason::SessionExpired, &mut self.wake);
                    }
                }
            }
            Command::Write { .. }
            | Command::Reconfigure { .. }
            | Command::DeleteContainer { .. }
            | Command::SetLevel(_)
            | Command::ResetTime { .. } => {}
        }
    }

    /// From here on `conn` owns the session, or a connection of another server: what the one before
    /// still sends is refused (hazards.md H02).
    fn hand_over(
        &mut self,
        state: &ServerState,
        clocks: &mut SessionClocks,
        session: i64,
        timeout_ms: u32,
        conn: Option<&Arc<Conn>>,
    ) -> Arc<Touch> {
        let before = clocks.get_mut(session).and_then(|known| known.conn.take());
        if let Some(before) = before {
            before.close(CloseReason::SessionMoved, &mut self.wake);
        }
        let now_ms = state.time.now_ms();
        let touch = clocks.start(session, timeout_ms, now_ms, conn.cloned());
        if let Some(server) = self.origin {
            clocks.connected_to(session, server);
        }
        state.set_sessions(clocks.len());
        touch
    }

    /// Answers clients whose sessions have ended and have no ephemeral left.
    fn answer_complete_ends(&mut self, state: &ServerState, tree: &Tree) {
        while !self.ends.is_empty()
            && let Some(complete) = self.ends.next_complete(tree)
        {
            let Some(CloseRequest { group, request }) = complete else {
                continue;
            };
            let command = Command::CloseSession {
                session_id: group.conn.session(),
                reason: baton_tree::CloseReason::Client,
            };
            let outcome = Outcome {
                zxid: tree.zxid(),
                result: Ok(Response::Empty),
            };
            self.reply(state, &group.conn, &request, &command, &outcome);
        }
    }

    fn reply(
        &mut self,
        state: &ServerState,
        conn: &Arc<Conn>,
        request: &Queued,
        command: &Command<'_>,
        outcome: &Outcome,
    ) {
        match (request.kind, command) {
            (
                Kind::OpenSession {
                    mirror_read_only, ..
                }
                | Kind::Reattach {
                    mirror_read_only, ..
                },
                Command::OpenSession {
                    session_id,
                    password,
                    timeout_ms,
                }
                | Command::ReattachSession {
                    session_id,
                    password,
                    timeout_ms,
                },
            ) => {
                let read_only = mirror_read_only.then_some(false);
                if let Err(code) = &outcome.result {
                    let what = format_args!(
                        "session 0x{session_id:x} refused: it has expired, or its client did not show the session's password and the certificate that has opened it ({code})"
                    );
                    state.notice(Notice::BadCredentials, Some(&conn.peer), what);
                    refuse_session(conn, read_only, &mut self.wake);
                    return;
                }
                let opens = matches!(command, Command::OpenSession { .. });
                let zxid = outcome.zxid - i64::from(opens);
                if let Some(seen) = conn.is_ahead_of(zxid) {
                    // Everything that was committed before is applied: this is another cluster, or
                    // one that has lost writes (R32).
                    let what = format_args!(
                        "session 0x{session_id:x} refused: its client has seen zxid 0x{seen:x}, the ensemble is at 0x{zxid:x}; is this the right ensemble, with its right data?"
                    );
                    state.notice(Notice::BadFrame, Some(&conn.peer), what);
                    conn.close(CloseReason::SessionRefused, &mut self.wake);
                    return;
                }
                if !opens {
                    state.stats.sessions_reattached.fetch_add(1, Relaxed);
                }
                let response = ConnectResponse {
                    protocol_version: 0,
                    timeout_ms: *timeout_ms,
                    session_id: *session_id,
                    password: *password,
                    read_only,
                };
                conn.push(1, &mut self.wake, |out| {
                    frame::write_connect_response(out, &response);
                });
            }
            _ => {
                if let Command::Write { op, body } = command
                    && let Some(code) = refusal(&outcome.result)
                {
                    state.refused(conn, op, body, code);
                }
                let header = |code: ErrorCode| ReplyHeader {
                    xid: request.xid,
                    zxid: outcome.zxid,
                    err: code.code(),
                };
                let tally = &mut self.tally;
                conn.push(1, &mut self.wake, |out| {
                    let before = out.len();
                    match &outcome.result {
                        Ok(response) => {
                            frame::write_reply(out, header(ErrorCode::Ok), Some(response))
                        }
                        Err(code) => frame::write_reply(out, header(*code), None),
                    };
                    tally.answer(out.len() - before);
                });
                if request.kind == Kind::CloseSession {
                    conn.close(CloseReason::SessionClosed, &mut self.wake);
                } else if outcome.result == Err(ErrorCode::SessionExpired) {
                    conn.close(CloseReason::SessionExpired, &mut self.wake);
                }
            }
        }
    }

    /// Whether the processor is yielded before clients get their answers. The other servers have
    /// been sent the commit index, and their threads may wait for this processor: a client that is
    /// answered first reads an old value at one of them. Where nobody is answered a yield only
    /// costs a slice of a busy processor, and a server that catches up has one for each entry.
    fn gives_way(&self, is_member: bool) -> bool {
        is_member && (1..=DIRECT_CONNECTIONS).contains(&self.notified)
    }

    /// Answers a read behind writes of its session, or sends a frame whose turn has come. Returns
    /// the bytes of the answer.
    fn in_turn(
        &mut self,
        state: &ServerState,
        tree: &Tree,
        watches: &mut WatchTable,
        asked: &InTurn<'_>,
    ) -> usize {
        let mut closes = false;
        let mut bytes = 0;
        let tally = &mut self.tally;
        asked
            .conn
            .push_answer(&mut self.wake, |out| match asked.request.kind {
                Kind::Read(op) => {
                    let read = ReadRequest {
                        conn: asked.conn,
                        identity: asked.identity,
                        op,
                        xid: asked.request.xid,
                        body: asked.body,
                    };
                    let before = out.len();
                    let access = WatchAccess::Held(watches);
                    let flow = answer::answer_read(tree, state, access, &read, out);
                    let listing = match flow {
                        Flow::Listing(listing) => Some(listing),
                        Flow::Continue => None,
                        Flow::Close => {
                            closes = true;
                            None
                        }
                        // The task of the connection keeps these for itself.
                        Flow::Sliced(mut read) => {
                            let source = SliceSource {
                                tree,
                                state,
                                conn: asked.conn,
                                identity: asked.identity,
                            };
                            let mut access = WatchAccess::Held(watches);
                            let ended = std::iter::repeat_with(|| {
                                let (_, progress) = read.slice(&source, &mut access, out);
                                progress
                            })
                            .find(|progress| *progress != SliceOutcome::More);
                            closes = ended == Some(SliceOutcome::Close);
                            None
                        }
                    };
                    bytes = out.len() - before;
                    tally.answer(bytes + listing.as_ref().map_or(0, |listing| listing.left()));
                    listing
                }
                Kind::Ready { close_after } => {
                    write_ready(out, asked.body, tree.zxid());
                    closes = close_after;
                    None
                }
                _ => None,
            });
        if state.outbound.needs_relief(&mut self.relief) {
            state.relieve(&mut self.wake);
        }
        if closes {
            asked.conn.close(CloseReason::BadRequest, &mut self.wake);
        }
        bytes
    }
}

/// Writes a finished reply, with the zxid of its turn if it has one: that of when its request came
/// may be behind the replies before it.
fn write_ready(out: &mut Vec<u8>, reply: &[u8], zxid: i64) {
    let zxid_at = out.len() + frame::LENGTH_BYTES + size_of::<i32>();
    out.extend_from_slice(reply);
    let behind = out.get_mut(zxid_at..).unwrap_or_default();
    if let Some(field) = behind.first_chunk_mut()
        && i64::from_be_bytes(*field) > 0
    {
        *field = zxid.to_be_bytes();
    }
}

/// Whether the command was to open a session under an id that another one has or had.
fn is_id_taken(tree: &Tree, command: &Command<'_>, outcome: &Outcome) -> bool {
    match command {
        Command::OpenSession { session_id, .. } => {
            outcome.result.is_err() && tree.is_session_id_used(*session_id)
        }
        _ => false,
    }
}

/// Whether the command was to take over a session that lives, by somebody who did not show what its
/// owner has.
fn is_refused_takeover(tree: &Tree, command: &Command<'_>, outcome: &Outcome) -> bool {
    match command {
        Command::ReattachSession { session_id, .. } => {
            outcome.result.is_err() && tree.session(*session_id).is_some()
        }
        _ => false,
    }
}

/// The session that the command expires.
fn expired_by(command: &Command<'_>) -> Option<i64> {
    match command {
        Command::CloseSession { session_id, reason }
            if *reason == baton_tree::CloseReason::Expired =>
        {
            Some(*session_id)
        }
        _ => None,
    }
}

/// The error of a write, or of the part of a multi at which it failed.
fn refusal(result: &Result<Response, ErrorCode>) -> Option<ErrorCode> {
    match result {
        Err(code) => Some(*code),
        // Of a multi that failed, every part is an error, the last one too.
        Ok(Response::Multi(parts)) if matches!(parts.last(), Some(MultiResult::Error(_))) => {
            parts.iter().find_map(|part| match part {
                MultiResult::Error(code)
                    if !matches!(code, ErrorCode::Ok | ErrorCode::RuntimeInconsistency) =>
                {
                    Some(*code)
                }
                _ => None,
            })
        }
        Ok(_) => None,
    }
}

struct InTurn<'a> {
    conn: &'a Arc<Conn>,
    identity: &'a Identity,
    request: &'a Queued,
    body: &'a [u8],
}

/// Refuses a session as ZooKeeper does: a timeout of zero, then the connection is closed
/// (protocol.md §1.2).
pub(crate) fn refuse_session(conn: &Arc<Conn>, read_only: Option<bool>, wake: &mut Vec<Arc<Conn>>) {
    conn.push(1, wake, |out| {
        frame::write_connect_response(out, &ConnectResponse::refused(read_only));
    });
    conn.close(CloseReason::SessionRefused, wake);
}

/// Counts a work's requests as answered.
pub(crate) fn count_answers(state: &ServerState, work: &Work) {
    let now = state.time.now();
    let (zxid, now_ms) = (state.zxid(), state.time.at_ms(now));
    let mut sent = 0;
    for group in &work.groups {
        let micros = micros(now.saturating_duration_since(group.received));
        let answered = group.len as u64;
        sent += answered;
        state.stats.updates.record_all(answered, micros);
        group.conn.stats.answered(answered, micros, zxid, now_ms);
    }
    state.stats.sent.fetch_add(sent, Relaxed);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use baton_proto::{Decoder, Limits, OpCode};

    use super::*;
    use crate::connections::conn::tests::conn;
    use crate::core::batches::in_flight::Step;
    use crate::options::Options;
    use crate::state::tests::state;

    #[test]
    fn a_server_that_answers_nobody_yields_no_processor_and_can_catch_up_on_a_busy_machine() {
        let mut applier = Applier::new(FormatLevel::NEWEST, &state(Options::default()));
        let mut gives_way = |notified, is_member| {
            applier.notified = notified;
            applier.gives_way(is_member)
        };
        assert!(!gives_way(0, true));
        assert!(gives_way(1, true) && gives_way(DIRECT_CONNECTIONS, true));
        assert!(!gives_way(DIRECT_CONNECTIONS + 1, true));
        assert!(!gives_way(1, false));
    }

    /// It waits until the new members are in force; pings are answered meanwhile.
    #[test]
    fn r32_the_answer_to_a_change_of_the_servers_is_not_behind_what_its_client_has_seen() {
        const APPLIED_AT: i64 = 28;
        const SINCE: i64 = 35;
        let state = state(Options::default());
        let conn = conn(1);
        let mut applier = Applier::new(FormatLevel::NEWEST, &state);
        for result in [Ok(Response::Empty), Err(ErrorCode::BadVersion)] {
            let mut work = Work::default();
            work.begin(&conn, &conn.identity(), Instant::now());
            work.push(7, Kind::Write(OpCode::Reconfig), b"");
            let step = Step {
                group: Some(0),
                ..Step::UNASKED
            };
            let requested = Requested {
                work: Arc::new(work),
                steps: vec![step],
            };
            let zxid = APPLIED_AT;
            let expected = result.as_ref().map_or_else(|code| *code, |_| ErrorCode::Ok);
            state.last_zxid.store(SINCE, Release);
            applier.answer_reconfigure(&state, &requested, &Ok(Outcome { zxid, result }));
            let mut out = Vec::new();
            conn.take(&mut out, usize::MAX);
            let limits = Limits::default();
            let mut body = Decoder::new(&out[frame::LENGTH_BYTES..], &limits);
            let header = ReplyHeader::decode(&mut body).unwrap();
            assert_eq!((header.xid, header.error()), (7, expected));
            assert_eq!(header.zxid, SINCE);
        }
    }
}
