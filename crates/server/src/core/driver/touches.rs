//! Touches: the leader is notified of the clients that are alive, and pings are answered once a
//! quorum stands behind that.

use baton_peers::codec::{Counted, Frame, Touch};

use super::CoreDriver;
use crate::connections::conn::CloseReason;
use crate::connections::inbox::{Kind, Work};
#[cfg(feature = "simulation")]
use crate::state::simulated::ServerBug;

impl CoreDriver {
    /// Counts pings when they come, and not behind writes: a session lives on while the disk is
    /// slow.
    pub(crate) fn take_pings(&mut self, work: &Work) {
        let touches = &mut self.touches;
        for (group, request) in work.each() {
            if request.kind == Kind::Ping {
                #[cfg(feature = "simulation")]
                if self.state.simulated.makes(ServerBug::AnswersPingsAlone) {
                    let wake = &mut self.applier.wake;
                    group.conn.push_pongs(1, self.state.zxid(), wake);
                    touches.touched(group.conn.session());
                    continue;
                }
                touches.ping(group.conn.session(), group.conn.id);
            }
        }
    }

    /// Sends the touches of this server's clients to the leader, and as the leader asks the quorum
    /// about those that have come.
    pub(crate) fn send_touches(&mut self) {
        let now_ms = self.state.time.now_ms();
        if !self.leadership.acts_as_leader() {
            let touches = &mut self.touches;
            self.clocks
                .collect_touched(now_ms, |session| touches.touched(session));
        }
        if let Some((leader, touch)) = self.touches.next(self.leadership.leader(), now_ms) {
            if leader == self.links.id {
                self.take_touches(leader, touch);
            } else {
                // Lost with its connection, it is sent again.
                let _ = self.links.wire.send(leader, Frame::Touch(touch));
            }
        }
        if self.leadership.leads()
            && self.touches.wants_round()
            && let Ok(round) = self.consensus.read_index()
        {
            self.touches.asked(round);
            #[cfg(feature = "simulation")]
            if self.state.simulated.makes(ServerBug::CountsTouchesAlone) {
                self.touches.confirmed(round, 0);
            }
        }
    }

    /// On the leader: takes touches of clients of `from`.
    pub(crate) fn take_touches(&mut self, from: u64, touch: Touch) {
        if self.leadership.leads() {
            let now_ms = self.state.time.now_ms();
            let clocks = &self.clocks;
            self.touches
                .received(from, touch, now_ms, |from, session, at_ms| {
                    clocks.touch(session, from, at_ms)
                });
        }
    }

    /// On the leader: answers the touches for which a quorum has answered.
    pub(crate) fn answer_touches(&mut self) {
        let applied = self.consensus.applied_index();
        let clocks = &self.clocks;
        let answers = self.touches.answers(applied, |from, session, at_ms| {
            clocks.touch(session, from, at_ms)
        });
        for (to, counted) in answers {
            if to == self.links.id {
                self.answer_pings(to, &counted);
            } else {
                // Lost with its connection, the touches are sent again.
                let _ = self.links.wire.send(to, Frame::Counted(counted));
            }
        }
    }

    /// The leader has counted touches of this server's clients: their pings are answered.
    pub(crate) fn answer_pings(&mut self, from: u64, counted: &Counted) {
        let answered = self.touches.counted(from, counted);
        let zxid = self.state.zxid();
        for pings in answered.pings {
            if let Some(conn) = self.clocks.owner(pings.session, pings.conn) {
                conn.push_pongs(pings.count, zxid, &mut self.applier.wake);
            }
        }
        for session in answered.refused {
            if let Some(conn) = self.clocks.get(session).and_then(|it| it.conn.as_ref()) {
                conn.close(CloseReason::SessionExpired, &mut self.applier.wake);
            }
        }
    }
}
