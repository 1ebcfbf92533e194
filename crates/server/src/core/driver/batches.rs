//! Batches of requests: those of this server's clients on their way to the leader, and on a leader
//! those of all servers on their way into the log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_consensus::{ProposeError, Role};
use baton_peers::codec::{Forward, Frame};
use baton_peers::net::Held;
use baton_proto::OpCode;
#[cfg(feature = "simulation")]
use baton_tree::Origin;
use baton_tree::{Batch, BatchBuilder, Command, FormatLevel};

use super::CoreDriver;
use crate::connections::conn::CloseReason;
use crate::connections::inbox::{Kind, Queued, Work};
use crate::core::batches::backlog::ENTRY_BYTES;
use crate::core::batches::in_flight::Requested;
use crate::core::batches::outstanding::Content;
use crate::observers::traces::WriteStep;
use crate::stats::sizes::SizesSeen;

impl CoreDriver {
    /// Makes batches of the requests that wait, while few are on their way. Without a leader to
    /// send them to they wait as they are: by then, the connection of a handshake may have ended.
    pub(crate) fn plan_waiting(&mut self) {
        while self.may_plan() {
            let mut work = self.in_flight.work();
            self.backlog.take(&mut work);
            let work = self.set_reconfigures_apart(work);
            self.plan_batches(work);
            if self.log.is_inline() {
                // What comes while it is written makes the next one.
                break;
            }
        }
        self.backlog.put_back(&mut self.member.held);
    }

    /// Whether a batch may be made of requests that wait.
    pub(crate) fn may_plan(&self) -> bool {
        !self.backlog.is_empty()
            && self.member.settled_leader().is_some()
            && self.member.outstanding.has_room()
            && self.applier.level >= FormatLevel::Attachments
    }

    /// Makes batches of these requests.
    fn plan_batches(&mut self, work: Work) {
        if work.is_empty() {
            return;
        }
        let work = Arc::new(work);
        let contents = match self.is_alone() {
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

    /// Takes each `reconfig` out of `work`, as a batch of its own, once everything that its
    /// connection asked for before is applied. Holds what connections asked for behind theirs, and
    /// returns the rest.
    fn set_reconfigures_apart(&mut self, work: Work) -> Work {
        if self.state.options.ensemble.is_none() {
            // It is answered in its place: there is nothing to change.
            return work;
        }
        let member = &mut self.member;
        let is_reconfigure = |request: &Queued| request.kind == Kind::Write(OpCode::Reconfig);
        let has_apart = member.outstanding.has_apart()
            || member.members.is_awaited()
            || !member.held.is_empty();
        if !has_apart && !work.requests.iter().any(is_reconfigure) {
            return work;
        }
        let mut rest = Work::default();
        let mut apart = Vec::new();
        // Connections whose next requests wait.
        let held = member.held.groups.iter().map(|group| group.conn.id);
        let waiting = held.chain(member.outstanding.set_apart());
        let waiting = waiting.chain(member.members.awaited_by());
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
                let all = unapplied.get_or_insert_with(|| member.outstanding.connections());
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
                (&mut member.held, behind..end),
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

    /// A batch that this server answers.
    pub(crate) fn new_client_batch(&self) -> BatchBuilder {
        let mut builder = self.new_batch();
        builder.set_origin(self.member.next_origin());
        builder
    }

    /// Takes on a batch of this server's clients, and the steps that were planned with it.
    pub(crate) fn submit(&mut self, builder: BatchBuilder, content: Content, work: &Arc<Work>) {
        let requested = Requested {
            work: Arc::clone(work),
            steps: std::mem::replace(&mut self.steps, self.in_flight.steps()),
        };
        if !builder.is_empty() {
            self.count_batch(builder.bytes(), &requested);
            if self.is_traced {
                requested.mark(WriteStep::Batched, self.state.time.now());
            }
            let outstanding = &mut self.member.outstanding;
            outstanding.push(builder.finish(), content, requested);
        } else if requested.steps.is_empty() {
            self.finish(requested);
        } else if let Some(reads) = self.member.outstanding.push_reads(requested) {
            self.applier
                .run(&self.state, &mut self.clocks, &reads, None);
            self.finish(reads);
        }
    }

    /// Sends this server's batches to the leader, in order.
    pub(crate) fn send_outstanding(&mut self) {
        let member = &mut self.member;
        let Some(leader) = member.settled_leader() else {
            return;
        };
        #[cfg(feature = "simulation")]
        self.forward_expiries(leader);
        let member = &mut self.member;
        while let Some((number, payload)) = member.outstanding.send_apart() {
            if leader == member.id {
                self.take_reconfigure(payload, None);
                break;
            }
            let frame = Frame::Forward(Forward {
                run: member.run,
                first: number,
                count: 1,
                body: payload,
            });
            if member.links.wire.send(leader, frame).is_err() {
                // Tried again with the next turn.
                member.outstanding.not_sent(number);
                return;
            }
        }
        let member = &mut self.member;
        let now = self.is_traced.then(|| self.state.time.now());
        while let Some((number, payload)) = member.outstanding.first_unsent() {
            let is_own = leader == member.id;
            if is_own {
                member.proposals.push(leader, payload, None);
            } else {
                let frame = Frame::Forward(Forward {
                    run: member.run,
                    first: number,
                    count: 1,
                    body: payload,
                });
                if member.links.wire.send(leader, frame).is_err() {
                    // Tried again with the next turn.
                    return;
                }
            }
            member.outstanding.mark_sent(now.filter(|_| !is_own));
        }
    }

    /// By mistake: has the leader end the sessions that this server had decided to end when it led.
    #[cfg(feature = "simulation")]
    fn forward_expiries(&mut self, leader: u64) {
        let sessions = self.state.simulated.take_forwarded();
        if sessions.is_empty() {
            return;
        }
        let mut builder = self.new_batch();
        let member = &self.member;
        // A number that no batch of a client has: nobody awaits its outcome.
        let (run, number) = (member.run, u64::MAX);
        builder.set_origin(Origin {
            server: member.id,
            run,
            number,
        });
        for session in sessions {
            self.push_expiry(session, &mut builder);
        }
        self.steps.clear();
        let body = builder.finish();
        let member = &mut self.member;
        if leader == member.id {
            member.proposals.push_own(body);
        } else {
            let frame = Frame::Forward(Forward {
                run,
                first: number,
                count: 1,
                body,
            });
            // Lost where there is no connection.
            let _ = member.links.wire.send(leader, frame);
        }
    }

    /// A batch of another server's clients, for the log. Where this server does not lead, the other
    /// one sends it again once it knows who does.
    pub(crate) fn take_forwarded(&mut self, from: u64, forward: &Forward, held: Held) {
        let member = &mut self.member;
        if member.role.role != Role::Leader {
            return;
        }
        // What cannot be applied would stop every server.
        let batch = Batch::decode(&forward.body).ok().filter(|batch| {
            batch
                .origin()
                .is_some_and(|origin| origin.server == from && origin.run == forward.run)
        });
        if let Some(batch) = batch {
            // Before anything of it is committed: a client's lease rests on the answer to a write
            // as on that to a ping (R33).
            let now_ms = self.state.time.now_ms();
            for item in batch.items() {
                self.clocks.heard_of(item.session, now_ms);
            }
            if let [item] = batch.items()
                && matches!(
                    item.command,
                    Command::Write {
                        op: OpCode::Reconfig,
                        ..
                    }
                )
            {
                self.take_reconfigure(forward.body.clone(), Some(held));
                return;
            }
            let body = forward.body.clone();
            member.proposals.push(from, body, Some(held));
        } else {
            tracing::error!(
                server = from,
                "a forwarded batch cannot be read, and is dropped"
            );
        }
    }

    /// What was sent to the leader may not be in its log: it is sent again, but for handshakes,
    /// whose clients connect again.
    pub(crate) fn sent_is_lost(&mut self) {
        let member = &mut self.member;
        for (requested, connections) in member.outstanding.lost() {
            for conn in connections {
                conn.close(CloseReason::RequestLost, &mut self.applier.wake);
            }
            self.finish(requested);
        }
        self.run_due_reads();
    }

    /// Answers reads before which nothing waits any more.
    pub(crate) fn run_due_reads(&mut self) {
        while let Some(reads) = self.member.outstanding.take_reads() {
            self.applier
                .run(&self.state, &mut self.clocks, &reads, None);
            self.finish(reads);
        }
    }

    /// Proposes what waits for that.
    pub(crate) fn propose_waiting(&mut self) {
        let is_alone = self.is_alone();
        let member = &mut self.member;
        let time_ms = self.entry_ms;
        while let Some(payload) = member.proposals.next() {
            // Whoever made it: no clock but the leader's counts.
            let Ok(payload) = Batch::stamped(payload, time_ms) else {
                member.proposals.drop_next();
                continue;
            };
            let bytes = payload.len() as u64;
            match self.consensus.propose(payload) {
                // Those tell when it is possible again, or a change of role follows.
                Err(ProposeError::TooMuchUncommitted { .. } | ProposeError::HandingOver { .. }) => {
                    return;
                }
                Ok(position) => {
                    member.proposals.proposed(position.index);
                    if !is_alone {
                        let stats = &self.state.stats.replication;
                        stats.proposals.fetch_add(1, Relaxed);
                        stats.proposal_sizes.record(SizesSeen::one(bytes));
                        let now = self.state.time.now();
                        member.proposed.push(position.index, now);
                    }
                }
                Err(_) => member.proposals.drop_next(),
            }
        }
    }

    /// Has the tree use the newest format that every member can read: an older server would have to
    /// stop.
    pub(crate) fn raise_level_as_leader(&mut self) {
        let member = &mut self.member;
        let others = self.consensus.membership().members.iter();
        let others = others.filter(|other| other.id != member.id);
        let level = level_of_all(others.map(|other| member.levels.get(&other.id).copied()));
        if self.applier.level < level && member.raising != (member.role.term, level) {
            member.raising = (member.role.term, level);
            // The time is given to it when it is proposed.
            let batch = BatchBuilder::raising(level, 0);
            member.proposals.push_own(batch.finish());
        }
    }
}

/// The newest level that this server and the others can read, where `None` is one that has not said
/// it. Every server that can be one of several reads [`FormatLevel::Attachments`].
fn level_of_all(others: impl Iterator<Item = Option<u32>>) -> FormatLevel {
    let (least, newest) = (FormatLevel::Attachments, FormatLevel::NEWEST);
    let readable = |level: Option<u32>| match level.map(u64::from) {
        Some(level) if level >= newest.number() => newest,
        Some(level) => FormatLevel::from_number(level).map_or(least, |level| level.max(least)),
        None => least,
    };
    others.map(readable).fold(newest, FormatLevel::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r39_no_level_that_a_member_cannot_read() {
        let newest = u32::try_from(FormatLevel::NEWEST.number()).unwrap();
        let of = |levels: &[Option<u32>]| level_of_all(levels.iter().copied());
        assert_eq!(of(&[]), FormatLevel::NEWEST);
        // A server of a later version reads what this one does.
        assert_eq!(of(&[Some(newest), Some(newest + 1)]), FormatLevel::NEWEST);
        let least = FormatLevel::Attachments;
        assert_eq!(of(&[Some(newest), Some(2)]), least);
        assert_eq!(of(&[None, Some(newest)]), least);
        assert_eq!(of(&[Some(1), Some(newest)]), least);
    }
}
