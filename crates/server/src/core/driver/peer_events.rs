//! Events from the other servers, on their way through the core of a member.

use std::time::Instant;

use baton_consensus::{MessageKind, PeerMessage, StepError};
use baton_peers::codec::{Frame, Lane, Refusal};
use baton_peers::net::{Direction, PeerEvent, RefusedBy};

use super::CoreDriver;
use crate::error::ServerError;

impl CoreDriver {
    /// Takes the events of the other servers.
    pub(crate) fn take_peer_events(&mut self, now: Instant) -> Result<(), ServerError> {
        for event in self.links.events.take() {
            self.peer_event(event, now)?;
        }
        Ok(())
    }

    pub(crate) fn peer_event(&mut self, event: PeerEvent, now: Instant) -> Result<(), ServerError> {
        self.links.peer_log.event(&event, now);
        if let PeerEvent::Connected {
            hello,
            clock_offset_ms,
            ..
        } = &event
        {
            self.members.connected(hello);
            let moment = self.state.time.moment();
            let wall_ms = moment.wall_ms.saturating_add(*clock_offset_ms);
            self.wall_clocks
                .heard(hello.from, wall_ms, moment.uptime_ms);
            self.heard_hello(hello);
        }
        if let PeerEvent::Gone { peer } = &event {
            self.members.gone(*peer);
        }
        if let Some(bootstrap) = &mut self.links.bootstrap {
            for (to, frame) in bootstrap.event(&event) {
                // A server that misses it reports again when it is connected.
                let _ = self.links.wire.send(to, frame);
            }
        }
        match event {
            PeerEvent::Frame { link, frame, held } => match frame {
                Frame::Raft(messages) => {
                    self.peers.heard(link.peer, now);
                    for message in &messages {
                        if message.kind == MessageKind::AppendResponse
                            && !message.reject
                            && self.leadership.leads()
                            && self.leadership.term() == message.term
                        {
                            let (now, stats) =
                                (self.state.time.now(), &self.state.stats.replication);
                            self.timings
                                .acknowledged(link.peer, message.index, now, stats);
                        }
                    }
                    for message in messages {
                        // A server that names another one as the sender is not believed.
                        if message.from == link.peer
                            && self
                                .transfers
                                .admits(&message, self.consensus.commit_index())
                        {
                            self.step(message)?;
                        }
                    }
                }
                Frame::Forward(forward) => self.take_forwarded(link.peer, &forward, held),
                Frame::Touch(touch) => self.take_touches(link.peer, touch),
                Frame::Counted(counted) => self.answer_pings(link.peer, &counted),
                Frame::Digest(state) => self.compare_digest(link.peer, state)?,
                Frame::Contradiction(state) => self.contradicted(link.peer, state)?,
                Frame::Clock(clock) => self.clock_read(link.peer, clock),
                frame => {
                    let committed = self.consensus.commit_index();
                    self.transfers.frame(link.peer, frame, committed, now);
                }
            },
            PeerEvent::Refused {
                by: RefusedBy::Us,
                refusal: Refusal::NotAMember { id, .. } | Refusal::OtherIncarnation { id, .. },
                hello: Some(hello),
                ..
            } if id == hello.from => self.members.refused(&hello, now),
            PeerEvent::Refused {
                by: RefusedBy::Us,
                refusal: Refusal::OlderCopy { id, .. },
                hello: Some(hello),
                ..
            } if id == hello.from => self.heard_hello(&hello),
            PeerEvent::Refused {
                by: RefusedBy::Them,
                refusal,
                ..
            } => {
                self.refused_by_member(&refusal);
                self.refused_as_older_copy(&refusal);
            }
            PeerEvent::Connected { link, hello, .. }
                if link.direction == Direction::Outbound && link.lane == Lane::Urgent =>
            {
                self.peers.connected(link.peer, &hello);
            }
            PeerEvent::Disconnected { link, .. } if link.lane == Lane::Snapshot => {
                self.transfers.gone(link.peer);
            }
            PeerEvent::Disconnected { link, .. } if link.direction == Direction::Outbound => {
                match link.lane {
                    Lane::Urgent => self.peers.disconnected(link.peer),
                    Lane::Log if self.leadership.leader() == Some(link.peer) => self.sent_is_lost(),
                    _ => {}
                }
                self.consensus.report_unreachable(link.peer);
            }
            PeerEvent::Gone { peer } if self.leadership.leader() == Some(peer) => {
                let voters = &self.consensus.membership().voters;
                self.leadership.leader_is_gone(voters, now);
                self.consensus.forget_leader();
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn step(&mut self, message: PeerMessage) -> Result<(), ServerError> {
        let is_snapshot = message.kind == MessageKind::Snapshot;
        match self.consensus.step(message) {
            // What follows from it has to be begun before anything else is handled.
            Ok(()) if is_snapshot => self.settle(),
            Ok(()) => Ok(()),
            Err(error @ StepError::LostLog { .. }) => Err(ServerError::LostLog(error)),
            Err(error) => {
                tracing::debug!("a message of another server was dropped: {error}");
                Ok(())
            }
        }
    }
}
