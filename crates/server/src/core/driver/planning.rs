//! Batches made of the requests that wait: what goes into one, in which order, and what is refused
//! before it is in the log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_proto::{OpCode, PASSWORD_BYTES};
use baton_tree::{BatchBuilder, CloseReason as SessionEnd, Command, FormatLevel, Stamp};

use super::CoreDriver;
use crate::connections::conn::{Attached, CloseReason};
use crate::connections::inbox::{Kind, Queued, Work};
use crate::connections::peer::PeerGroup;
use crate::core::apply;
use crate::core::batches::backlog::ENTRY_BYTES;
use crate::core::batches::in_flight::{Requested, Step};
use crate::core::batches::outstanding::Content;

impl CoreDriver {
    /// Makes batches of the requests that wait, while few are on their way. Without a leader to
    /// send them to they wait as they are: by then, the connection of a handshake may have ended.
    pub(crate) fn plan_waiting(&mut self) {
        while self.may_plan() {
            let mut work = self.in_flight.work();
            self.backlog.take(&mut work);
            let work = self.set_reconfigures_apart(work);
            self.plan_batches(work);
        }
        self.backlog.put_back(&mut self.held);
    }

    /// Whether a batch may be made of requests that wait.
    pub(crate) fn may_plan(&self) -> bool {
        !self.backlog.is_empty()
            && self.leadership.settled_leader().is_some()
            && self.outstanding.has_room()
            && self.applier.level >= FormatLevel::Attachments
    }

    /// Makes batches of these requests.
    fn plan_batches(&mut self, work: Work) {
        if work.is_empty() {
            return;
        }
        let work = Arc::new(work);
        let contents = match self.leadership.is_alone() {
            // Nothing is sent twice, so what asks for sessions keeps its place.
            true => &[Content::Everything][..],
            false => &[Content::Handshakes, Content::Requests],
        };
        for content in contents {
            let mut builder = self.new_client_batch();
            let mut first = 0;
            for (place, group) in work.groups.iter().enumerate() {
                let next = first + group.len;
                let asks_for_session = work.requests.get(first).is_some_and(|request| {
                    matches!(
                        request.kind,
                        Kind::OpenSession { .. } | Kind::Reattach { .. }
                    )
                });
                // A connection that has been given up would take the session from the next one.
                let is_void = asks_for_session && group.conn.is_closing();
                if content.takes(asks_for_session) && !is_void {
                    self.plan(&work, place, first, &mut builder);
                    if builder.bytes() >= ENTRY_BYTES {
                        self.submit(builder, *content, &work);
                        builder = self.new_client_batch();
                    }
                }
                first = next;
            }
            self.submit(builder, *content, &work);
        }
        self.finish(Requested {
            work,
            steps: Vec::new(),
        });
        self.nothing_opens();
    }

    /// Adds the steps of one group; returns where the next group's requests begin.
    pub(crate) fn plan(
        &mut self,
        work: &Work,
        place: usize,
        first: usize,
        builder: &mut BatchBuilder,
    ) -> usize {
        let Some(group) = work.groups.get(place) else {
            return first;
        };
        let next = first + group.len;
        let session = group.conn.session();
        // Only the connection that owns the session may write for it (hazards.md H02). Apply
        // decides that. A connection that has lost the session never gets it back, so what it sends
        // need not go into the log.
        let is_owner = self.clocks.get(session).is_none_or(|clocked| {
            clocked
                .conn
                .as_ref()
                .is_some_and(|conn| conn.id == group.conn.id)
        });
        if session != 0 && !is_owner {
            group
                .conn
                .close(CloseReason::SessionMoved, &mut self.applier.wake);
            return next;
        }
        let attached = group.conn.attached();
        // The leader of an ensemble judges its identity before it is in the log.
        let is_reconfigure = work
            .requests
            .get(first)
            .is_some_and(|request| request.kind == Kind::Write(OpCode::Reconfig));
        let mut has_begun = false;
        let mut begin = |builder: &mut BatchBuilder| {
            let stamp = attached.and_then(Attached::next_stamp);
            if !std::mem::replace(&mut has_begun, true) {
                match attached.filter(|_| !is_reconfigure) {
                    Some(attached) => attached.begin_group(builder, &group.identity, stamp),
                    None => builder.begin(session, &group.identity, stamp),
                }
            }
        };
        for (offset, request) in work
            .requests
            .get(first..next)
            .unwrap_or_default()
            .iter()
            .enumerate()
        {
            let mut step = Step {
                group: Some(place),
                request: first + offset,
                is_command: true,
            };
            let body = work.body(request);
            let password = || <[u8; PASSWORD_BYTES]>::try_from(body).ok();
            match request.kind {
                Kind::Write(op) => {
                    begin(builder);
                    builder.push(request.xid, Command::Write { op, body });
                }
                Kind::CloseSession => {
                    let command = Command::CloseSession {
                        session_id: session,
                        reason: SessionEnd::Client,
                    };
                    begin(builder);
                    builder.push(request.xid, command);
                }
                Kind::OpenSession { timeout_ms, .. } => {
                    let client = PeerGroup::of(Some(&group.conn.peer));
                    if let Some(reason) = self.refusal_of_session(client) {
                        let stats = &self.state.stats;
                        stats.sessions_refused.fetch_add(1, Relaxed);
                        group.conn.close(reason, &mut self.applier.wake);
                        return next;
                    }
                    self.opening += 1;
                    self.opening_of.add(client);
                    let session_id = self.ids.next(&self.state.tree.read());
                    let password = password().unwrap_or_default();
                    let command = Command::OpenSession {
                        session_id,
                        password,
                        timeout_ms,
                    };
                    let stamp = Some(self.first_stamp());
                    builder.begin(session_id, &group.identity, stamp);
                    builder.push(0, command);
                }
                Kind::Reattach {
                    session: session_id,
                    timeout_ms,
                    mirror_read_only,
                } => {
                    let Some(password) = password() else {
                        let read_only = mirror_read_only.then_some(false);
                        apply::refuse_session(&group.conn, read_only, &mut self.applier.wake);
                        continue;
                    };
                    let command = Command::ReattachSession {
                        session_id,
                        password,
                        timeout_ms,
                    };
                    let stamp = Some(self.first_stamp());
                    builder.begin(session_id, &group.identity, stamp);
                    builder.push(0, command);
                }
                Kind::Read(_) | Kind::Ready { .. } => step.is_command = false,
                // Counted when it came.
                Kind::Ping => continue,
            }
            self.steps.push(step);
        }
        next
    }

    /// The stamp of a command that attaches a connection to its session.
    fn first_stamp(&mut self) -> Stamp {
        Stamp {
            nonce: self.nonces.draw(),
            sequence: 0,
        }
    }

    /// Returns why this client may not open another session, if it may not.
    fn refusal_of_session(&self, client: PeerGroup) -> Option<CloseReason> {
        let options = &self.state.options;
        let is_full = |count: usize, most: usize| most > 0 && count >= most;
        let of_client = self.clocks.of_client(client) + self.opening_of.of(client);
        if is_full(self.clocks.len() + self.opening, options.max_sessions) {
            Some(CloseReason::TooManySessions)
        } else if is_full(of_client, options.max_sessions_per_address) {
            Some(CloseReason::TooManySessionsOfAddress)
        } else {
            None
        }
    }

    /// The entry is made: its sessions count in the clocks as soon as it is applied.
    pub(crate) fn nothing_opens(&mut self) {
        self.opening = 0;
        self.opening_of.clear();
    }

    /// Takes each `reconfig` out of `work`, as a batch of its own, once everything that its
    /// connection asked for before is applied. Holds what connections asked for behind theirs, and
    /// returns the rest.
    fn set_reconfigures_apart(&mut self, work: Work) -> Work {
        if self.state.options.ensemble.is_none() {
            // It is answered in its place: there is nothing to change.
            return work;
        }
        let is_reconfigure = |request: &Queued| request.kind == Kind::Write(OpCode::Reconfig);
        let has_apart =
            self.outstanding.has_apart() || self.members.is_awaited() || !self.held.is_empty();
        if !has_apart && !work.requests.iter().any(is_reconfigure) {
            return work;
        }
        let mut rest = Work::default();
        let mut apart = Vec::new();
        // Connections whose next requests wait.
        let held = self.held.groups.iter().map(|group| group.conn.id);
        let waiting = held.chain(self.outstanding.set_apart());
        let waiting = waiting.chain(self.members.awaited_by());
        let mut blocked: BTreeSet<u32> = waiting.collect();
        // Connections of which something is in `rest`, or not applied.
        let mut in_rest = BTreeSet::new();
        let mut unapplied = None;
        let mut first = 0;
        for (place, group) in work.groups.iter().enumerate() {
            let requests = work.requests.get(first..first + group.len);
            let requests = requests.unwrap_or_default();
            let (begin, end) = (first, first + group.len);
            first = end;
            let conn = group.conn.id;
            let waits = blocked.contains(&conn);
            let at = match waits {
                true => Some(0),
                false => requests.iter().position(is_reconfigure),
            };
            let mut is_unapplied = || {
                let all = unapplied.get_or_insert_with(|| self.outstanding.connections());
                all.contains(&conn)
            };
            let is_first = at == Some(0) && !in_rest.contains(&conn) && !is_unapplied();
            let is_ready = !waits && is_first;
            if at.is_some() {
                blocked.insert(conn);
            }
            let at = at.map_or(end, |at| begin + at);
            if at > begin {
                in_rest.insert(conn);
            }
            let behind = at + usize::from(is_ready);
            let mut work_apart = Work::default();
            for (into, range) in [
                (&mut rest, begin..at),
                (&mut work_apart, at..behind),
                (&mut self.held, behind..end),
            ] {
                if !range.is_empty() {
                    work.copy_requests(place, range, into);
                }
            }
            if is_ready {
                apart.push(work_apart);
            }
        }
        for one in apart {
            let work = Arc::new(one);
            let mut builder = self.new_client_batch();
            self.plan(&work, 0, 0, &mut builder);
            self.submit(builder, Content::Reconfigure, &work);
            self.finish(Requested {
                work,
                steps: Vec::new(),
            });
        }
        rest
    }
}
