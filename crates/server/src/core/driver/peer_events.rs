//! What the other servers send, on its way through the core of a member.

use std::time::{Duration, Instant};

use baton_consensus::{MessageKind, PeerMessage, Role, StepError};
use baton_peers::codec::{Clock, Frame, Lane, Refusal};
use baton_peers::net::{Direction, PeerEvent, RefusedBy};

use super::CoreDriver;
use crate::error::ServerError;

/// How long a server waits before it campaigns once the leader is known to be gone, by its place
/// among those that are left.
const CAMPAIGN_DELAY: Duration = Duration::from_millis(5);
const CAMPAIGN_STEP: Duration = Duration::from_millis(25);

impl CoreDriver {
    /// What the other servers have sent.
    pub(crate) fn take_peer_events(&mut self, now: Instant) -> Result<(), ServerError> {
        let member = &mut self.member;
        for event in member.links.events.take() {
            self.peer_event(event, now)?;
        }
        Ok(())
    }

    pub(crate) fn peer_event(&mut self, event: PeerEvent, now: Instant) -> Result<(), ServerError> {
        let member = &mut self.member;
        member.links.peer_log.event(&event, now);
        if let PeerEvent::Connected {
            hello,
            clock_offset_ms,
            ..
        } = &event
        {
            member.members.connected(hello);
            let moment = self.state.time.moment();
            let wall_ms = moment.wall_ms.saturating_add(*clock_offset_ms);
            member.clocks.heard(hello.from, wall_ms, moment.uptime_ms);
            self.heard_hello(hello);
        }
        let member = &mut self.member;
        if let PeerEvent::Gone { peer } = &event {
            member.members.gone(*peer);
        }
        if let Some(bootstrap) = &mut member.links.bootstrap {
            for (to, frame) in bootstrap.event(&event) {
                // Whoever misses it reports again when it is connected.
                let _ = member.links.wire.send(to, frame);
            }
        }
        match event {
            PeerEvent::Frame { link, frame, held } => match frame {
                Frame::Raft(messages) => {
                    member.heard_at.insert(link.peer, now);
                    for message in &messages {
                        if message.kind == MessageKind::AppendResponse
                            && !message.reject
                            && (member.role.role, member.role.term) == (Role::Leader, message.term)
                        {
                            let (now, stats) =
                                (self.state.time.now(), &self.state.stats.replication);
                            let proposed = &mut member.proposed;
                            proposed.acknowledged(link.peer, message.index, now, stats);
                        }
                    }
                    for message in messages {
                        // A server that names another one as the sender is not believed.
                        if message.from == link.peer && self.admits(&message) {
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
                frame => self.transfer_frame(link.peer, frame, now),
            },
            PeerEvent::Refused {
                by: RefusedBy::Us,
                refusal: Refusal::NotAMember { id, .. } | Refusal::OtherIncarnation { id, .. },
                hello: Some(hello),
                ..
            } if id == hello.from => member.members.refused(&hello, now),
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
                member.connected.insert(link.peer);
                member.levels.insert(link.peer, hello.level);
                if hello.protocol.newest >= Clock::SINCE {
                    member.clock_readers.insert(link.peer);
                } else {
                    member.clock_readers.remove(&link.peer);
                }
            }
            PeerEvent::Disconnected { link, .. } if link.lane == Lane::Snapshot => {
                self.transfer_gone(link.peer);
            }
            PeerEvent::Disconnected { link, .. } if link.direction == Direction::Outbound => {
                match link.lane {
                    Lane::Urgent => {
                        member.connected.remove(&link.peer);
                    }
                    Lane::Log if member.role.leader == Some(link.peer) => self.sent_is_lost(),
                    _ => {}
                }
                self.consensus.report_unreachable(link.peer);
            }
            PeerEvent::Gone { peer } if member.role.leader == Some(peer) => {
                let voters = &self.consensus.membership().voters;
                let left = voters.iter().filter(|id| **id != peer);
                let place = left.take_while(|id| **id != member.id).count();
                let place = u32::try_from(place).unwrap_or(u32::MAX);
                let step = member.stretched(CAMPAIGN_STEP);
                member.campaign_at = Some(now + CAMPAIGN_DELAY + step * place);
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
