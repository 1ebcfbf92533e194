//! Batches of requests: those of this server's clients on their way to the leader, and on a leader
//! those of all servers on their way into the log.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_consensus::{ProposeError, Role};
use baton_peers::codec::{Forward, Frame};
use baton_peers::net::Held;
use baton_proto::OpCode;
#[cfg(feature = "simulation")]
use baton_tree::Origin;
use baton_tree::{Batch, BatchBuilder, Command, FormatLevel};

use super::{CommitPipeline, MOST_BATCHES};
use crate::commit::in_flight::Requested;
use crate::commit::outstanding::Content;
use crate::commit::pipeline::ENTRY_BYTES;
use crate::connections::conn::CloseReason;
use crate::connections::inbox::{Kind, Queued, Work};
use crate::error::ServerError;
use crate::stats::sizes::SizesSeen;
use crate::traces::WriteStep;

impl CommitPipeline {
    /// Makes batches of the requests that wait, while few are on their way. Without a leader to send
    /// them to they wait as they are: by then, the connection of a handshake may have ended.
    pub(super) fn plan_waiting(&mut self) -> Result<(), ServerError> {
        let Some(member) = &mut self.member else {
            return Ok(());
        };
        if member.waiting.is_empty()
            || member.settled_leader().is_none()
            || member.outstanding.batches() >= MOST_BATCHES
            || self.applier.level < FormatLevel::Attachments
        {
            return Ok(());
        }
        self.set_reconfigures_apart();
        let Some(member) = &mut self.member else {
            return Ok(());
        };
        if member.waiting.is_empty() {
            member.waiting.append(&mut member.held);
            return Ok(());
        }
        let work = Arc::new(std::mem::take(&mut member.waiting));
        member.waiting.append(&mut member.held);
        for content in [Content::Handshakes, Content::Requests] {
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
                if asks_for_session == (content == Content::Handshakes) && !is_void {
                    self.plan(&work, place, first, &mut builder);
                    if builder.bytes() >= ENTRY_BYTES {
                        self.submit(builder, content, &work);
                        builder = self.new_client_batch();
                    }
                }
                first = next;
            }
            self.submit(builder, content, &work);
        }
        self.finish(Requested {
            work,
            steps: Vec::new(),
        });
        self.nothing_opens();
        if !self.applier.again.is_empty() {
            // Refused only where the server stops, and then nobody is answered any more.
            let _ = self.state.inbox.submit(&mut self.applier.again);
        }
        Ok(())
    }

    /// Takes each `reconfig` out of what waits, as a batch of its own, once everything that its
    /// connection asked for before is applied; and what connections asked for behind theirs.
    fn set_reconfigures_apart(&mut self) {
        let Some(member) = &mut self.member else {
            return;
        };
        let is_reconfigure = |request: &Queued| request.kind == Kind::Write(OpCode::Reconfig);
        let has_apart = member.outstanding.has_apart() || member.members.is_awaited();
        if !has_apart && !member.waiting.requests.iter().any(is_reconfigure) {
            return;
        }
        let work = std::mem::take(&mut member.waiting);
        let mut apart = Vec::new();
        // Connections whose next requests wait.
        let mut blocked: Vec<u32> = Vec::new();
        let mut first = 0;
        for group in &work.groups {
            let requests = work.requests.get(first..first + group.len);
            let requests = requests.unwrap_or_default();
            first += group.len;
            let conn = group.conn.id;
            let waits = blocked.contains(&conn)
                || member.outstanding.is_set_apart(conn)
                || member.members.is_awaited_by(conn);
            let place = match waits {
                true => Some(0),
                false => requests.iter().position(is_reconfigure),
            };
            let (before, behind) = requests.split_at(place.unwrap_or(requests.len()));
            let mut is_before = member.waiting.groups.iter();
            let is_first = before.is_empty()
                && !is_before.any(|group| group.conn.id == conn)
                && !member.outstanding.has(conn);
            let is_ready = !waits && place.is_some() && is_first;
            let (one, behind) = behind.split_at(usize::from(is_ready));
            if place.is_some() {
                blocked.push(conn);
            }
            let mut work_apart = Work::default();
            for (into, requests) in [
                (&mut member.waiting, before),
                (&mut work_apart, one),
                (&mut member.held, behind),
            ] {
                if requests.is_empty() {
                    continue;
                }
                into.begin(&group.conn, &group.identity, group.received);
                for request in requests {
                    into.push(request.xid, request.kind, work.body(request));
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
    }

    /// A batch that this server answers.
    pub(super) fn new_client_batch(&self) -> BatchBuilder {
        let mut builder = self.new_batch();
        if let Some(member) = &self.member {
            builder.set_origin(member.next_origin());
        }
        builder
    }

    /// Takes on a batch of this server's clients, and the steps that were planned with it.
    pub(super) fn submit(&mut self, builder: BatchBuilder, content: Content, work: &Arc<Work>) {
        let requested = Requested {
            work: Arc::clone(work),
            steps: std::mem::replace(&mut self.steps, self.in_flight.steps()),
        };
        let Some(member) = &mut self.member else {
            return;
        };
        if !builder.is_empty() {
            self.count_batch(builder.bytes(), &requested);
            if self.is_traced {
                requested.mark(WriteStep::Batched, self.state.time.now());
            }
            let Some(member) = &mut self.member else {
                return;
            };
            member
                .outstanding
                .push(builder.finish(), content, requested);
        } else if requested.steps.is_empty() {
            self.finish(requested);
        } else if let Some(reads) = member.outstanding.push_reads(requested) {
            self.applier
                .run(&self.state, &mut self.clocks, &reads, None);
            self.finish(reads);
        }
    }

    /// As the leader, a batch that no client has asked for.
    pub(in crate::commit::pipeline) fn submit_for_nobody(&mut self, builder: BatchBuilder) {
        self.steps.clear();
        if let Some(member) = &mut self.member
            && !builder.is_empty()
        {
            member.proposals.push_back((builder.finish(), None));
        }
    }

    /// Sends this server's batches to the leader, in order.
    pub(super) fn send_outstanding(&mut self) {
        let Some(member) = &mut self.member else {
            return;
        };
        let Some(leader) = member.settled_leader() else {
            return;
        };
        #[cfg(feature = "simulation")]
        self.forward_expiries(leader);
        let Some(member) = &mut self.member else {
            return;
        };
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
        let Some(member) = &mut self.member else {
            return;
        };
        let now = self.is_traced.then(|| self.state.time.now());
        while let Some((number, payload)) = member.outstanding.first_unsent() {
            let is_own = leader == member.id;
            if is_own {
                member.proposals.push_back((payload, None));
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
        let Some(member) = &self.member else {
            return;
        };
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
        let Some(member) = &mut self.member else {
            return;
        };
        if leader == member.id {
            member.proposals.push_back((body, None));
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
    pub(super) fn take_forwarded(&mut self, from: u64, forward: &Forward, held: Held) {
        let Some(member) = &mut self.member else {
            return;
        };
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
            member
                .proposals
                .push_back((forward.body.clone(), Some(held)));
        } else {
            tracing::error!(
                server = from,
                "a forwarded batch cannot be read, and is dropped"
            );
        }
    }

    /// What was sent to the leader may not be in its log: it is sent again, but for handshakes,
    /// whose clients connect again.
    pub(super) fn sent_is_lost(&mut self) {
        let Some(member) = &mut self.member else {
            return;
        };
        for (requested, connections) in member.outstanding.lost() {
            for conn in connections {
                conn.close(CloseReason::RequestLost, &mut self.applier.wake);
            }
            self.finish(requested);
        }
        self.run_due_reads();
    }

    /// Answers reads before which nothing waits any more.
    pub(super) fn run_due_reads(&mut self) {
        while let Some(member) = &mut self.member
            && let Some(reads) = member.outstanding.take_reads()
        {
            self.applier
                .run(&self.state, &mut self.clocks, &reads, None);
            self.finish(reads);
        }
    }

    /// Proposes what waits for that.
    pub(super) fn propose_waiting(&mut self) {
        let Some(member) = &mut self.member else {
            return;
        };
        let voters = &self.consensus.membership().voters;
        let time_ms = member.entry_time_ms(voters, self.state.time.moment());
        while let Some((payload, _)) = member.proposals.front() {
            // Whoever made it: no clock but the leader's counts.
            let Ok(payload) = Batch::stamped(payload, time_ms) else {
                member.proposals.pop_front();
                continue;
            };
            let bytes = payload.len() as u64;
            match self.consensus.propose(payload) {
                // Those tell when it is possible again, or a change of role follows.
                Err(ProposeError::TooMuchUncommitted { .. } | ProposeError::HandingOver { .. }) => {
                    return;
                }
                Ok(position) => {
                    let stats = &self.state.stats.replication;
                    stats.proposals.fetch_add(1, Relaxed);
                    stats.proposal_sizes.record(SizesSeen::one(bytes));
                    let now = self.state.time.now();
                    member.proposed.push(position.index, now);
                    member.proposals.pop_front();
                }
                Err(_) => {
                    member.proposals.pop_front();
                }
            }
        }
    }

    /// Has the tree use the newest format that every member can read: an older server would have to
    /// stop.
    pub(super) fn raise_level_as_leader(&mut self) {
        let Some(member) = &mut self.member else {
            return;
        };
        let others = self.consensus.membership().members.iter();
        let others = others.filter(|other| other.id != member.id);
        let level = level_of_all(others.map(|other| member.levels.get(&other.id).copied()));
        if self.applier.level < level && member.raising != (member.role.term, level) {
            member.raising = (member.role.term, level);
            // The time is given to it when it is proposed.
            let batch = BatchBuilder::raising(level, 0);
            member.proposals.push_back((batch.finish(), None));
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
