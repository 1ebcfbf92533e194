//! Batches of requests: those of this server's clients on their way to the leader, and on a leader
//! those of all servers on their way into the log.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use baton_consensus::ProposeError;
use baton_peers::codec::{Forward, Frame};
use baton_peers::net::FramePermit;
use baton_proto::OpCode;
use baton_tree::{Batch, BatchBuilder, Command, Origin};
use bytes::Bytes;

use super::CoreDriver;
use crate::connections::conn::CloseReason;
use crate::connections::inbox::Work;
use crate::core::batches::in_flight::{Requested, Step};
use crate::core::batches::outstanding::Content;
use crate::error::ServerError;
use crate::observers::traces::WriteStep;
use crate::stats::sizes::SizesSeen;

impl CoreDriver {
    /// The name of the next batch of this server's clients.
    fn next_origin(&self) -> Origin {
        Origin {
            server: self.links.id,
            run: self.links.run,
            number: self.outstanding.next_number(),
        }
    }

    /// The requests that a batch answers here; `None` if it was made elsewhere, or applied before.
    pub(crate) fn take(&mut self, origin: Option<Origin>) -> Option<Requested> {
        let (server, run) = (self.links.id, self.links.run);
        let origin = origin.filter(|origin| (origin.server, origin.run) == (server, run))?;
        self.outstanding.take(origin.number)
    }

    /// A batch that this server answers.
    pub(crate) fn new_client_batch(&self) -> BatchBuilder {
        let mut builder = self.new_batch();
        builder.set_origin(self.next_origin());
        builder
    }

    /// Counts a batch of `bytes` bytes that is on its way.
    pub(crate) fn count_batch(&self, bytes: usize, requested: &Requested) {
        let steps = &requested.steps;
        let commands = steps.iter().filter(|step| step.is_command).count() as u64;
        let stats = &self.state.stats;
        let group = |step: &Step| requested.work.groups.get(step.group?);
        if let Some(oldest) = steps.first().and_then(group) {
            let waited = self.state.time.micros_since(oldest.received);
            stats.queue_time.record(waited);
        }
        stats.commands.fetch_add(commands, Relaxed);
        stats.batch_requests.record(commands);
        stats.batch_bytes.record(bytes as u64);
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
            let outstanding = &mut self.outstanding;
            outstanding.push(builder.finish(), content, requested);
        } else if requested.steps.is_empty() {
            self.finish(requested);
        } else if let Some(reads) = self.outstanding.push_reads(requested) {
            self.applier
                .run(&self.state, &mut self.clocks, &reads, None);
            self.finish(reads);
        }
    }

    /// Sends this server's batches to the leader, in order.
    pub(crate) fn send_outstanding(&mut self) {
        let Some(leader) = self.leadership.settled_leader() else {
            return;
        };
        #[cfg(feature = "simulation")]
        self.forward_expiries(leader);
        while let Some((number, payload)) = self.outstanding.send_apart() {
            if leader == self.links.id {
                self.take_reconfigure(payload, None);
                break;
            }
            if !self.forward(leader, number, payload) {
                self.outstanding.not_sent(number);
                return;
            }
        }
        let now = self.is_traced.then(|| self.state.time.now());
        while let Some((number, payload)) = self.outstanding.first_unsent() {
            let is_own = leader == self.links.id;
            if is_own {
                self.proposals.push(leader, payload, None);
            } else if !self.forward(leader, number, payload) {
                return;
            }
            self.outstanding.mark_sent(now.filter(|_| !is_own));
        }
    }

    /// Sends a batch to the leader; whether it has left. It is tried again with the next turn.
    fn forward(&self, leader: u64, number: u64, body: Bytes) -> bool {
        let frame = Frame::Forward(Forward {
            run: self.links.run,
            first: number,
            count: 1,
            body,
        });
        self.links.wire.send(leader, frame).is_ok()
    }

    /// Seeded bug: has the leader end the sessions that this server had decided to end when it led.
    #[cfg(feature = "simulation")]
    fn forward_expiries(&mut self, leader: u64) {
        let sessions = self.state.simulated.take_forwarded();
        if sessions.is_empty() {
            return;
        }
        let mut builder = self.new_batch();
        // A number that no batch of a client has: nobody awaits its outcome.
        let (run, number) = (self.links.run, u64::MAX);
        builder.set_origin(Origin {
            server: self.links.id,
            run,
            number,
        });
        for session in sessions {
            self.push_expiry(session, &mut builder);
        }
        self.steps.clear();
        let body = builder.finish();
        if leader == self.links.id {
            self.proposals.push_own(body);
        } else {
            // Lost where there is no connection.
            let _ = self.forward(leader, number, body);
        }
    }

    /// A batch of another server's clients, for the log. Where this server does not lead, the other
    /// one sends it again once it knows who does.
    pub(crate) fn take_forwarded(&mut self, from: u64, forward: &Forward, held: FramePermit) {
        if !self.leadership.leads() {
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
            self.proposals.push(from, body, Some(held));
        } else {
            tracing::error!(
                server = from,
                "a forwarded batch cannot be read, and is dropped"
            );
        }
    }

    /// Sends again what may not have reached the leader's log. Handshakes are not sent again,
    /// because their clients connect again.
    pub(crate) fn sent_is_lost(&mut self) {
        for (requested, connections) in self.outstanding.lost() {
            for conn in connections {
                conn.close(CloseReason::RequestLost, &mut self.applier.wake);
            }
            self.finish(requested);
        }
        self.run_due_reads();
    }

    /// Answers reads before which nothing waits any more.
    pub(crate) fn run_due_reads(&mut self) {
        while let Some(reads) = self.outstanding.take_reads() {
            self.applier
                .run(&self.state, &mut self.clocks, &reads, None);
            self.finish(reads);
        }
    }

    /// Proposes what the server does by itself, as the leader. Where nothing waits for other
    /// servers, it is applied when this returns.
    pub(crate) fn commit_for_nobody(&mut self, builder: BatchBuilder) -> Result<(), ServerError> {
        if builder.is_empty() {
            return Ok(());
        }
        self.proposals.push_own(builder.finish());
        self.propose_waiting();
        self.settle()
    }

    /// Proposes what waits for that.
    pub(crate) fn propose_waiting(&mut self) {
        let is_alone = self.leadership.is_alone();
        let time_ms = self.entry_ms;
        while let Some(payload) = self.proposals.next() {
            // Also of a batch that another server made: no clock but the leader's counts.
            let Ok(payload) = Batch::stamped(payload, time_ms) else {
                self.proposals.drop_next();
                continue;
            };
            let bytes = payload.len() as u64;
            match self.consensus.propose(payload) {
                // Those tell when it is possible again, or a change of role follows.
                Err(ProposeError::TooMuchUncommitted { .. } | ProposeError::HandingOver { .. }) => {
                    return;
                }
                Ok(position) => {
                    self.proposals.proposed(position.index);
                    if !is_alone {
                        let stats = &self.state.stats.replication;
                        stats.proposals.fetch_add(1, Relaxed);
                        stats.proposal_sizes.record(SizesSeen::one(bytes));
                        let now = self.state.time.now();
                        self.timings.proposed(position.index, now);
                    }
                }
                Err(_) => self.proposals.drop_next(),
            }
        }
    }

    /// Has the tree use the newest format that every member can read: an older server would have to
    /// stop.
    pub(crate) fn raise_level_as_leader(&mut self) {
        let id = self.links.id;
        let others = self.consensus.membership().members.iter();
        let others = others.map(|other| other.id).filter(|other| *other != id);
        let level = self.peers.level_of_all(others);
        if self.applier.level < level && self.raising != (self.leadership.term(), level) {
            self.raising = (self.leadership.term(), level);
            // The time is given to it when it is proposed.
            let batch = BatchBuilder::raising(level, 0);
            self.proposals.push_own(batch.finish());
        }
    }
}
