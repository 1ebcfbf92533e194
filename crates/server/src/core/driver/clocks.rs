//! The wall clocks of the servers: each says to the others what its own shows, since a leader gives
//! no entry a time that a majority's clocks have not reached.

use std::time::Instant;

use baton_peers::codec::{Clock, Frame};

use super::CoreDriver;
use super::member::CLOCK_INTERVAL;

impl CoreDriver {
    /// Says to the other servers what this one's wall clock shows.
    pub(crate) fn send_clock(&mut self, now: Instant) {
        let member = &mut self.member;
        if now < member.next_clock {
            return;
        }
        member.next_clock = now + CLOCK_INTERVAL;
        let wall_ms = self.state.time.wall_ms();
        for to in member.connected.intersection(&member.clock_readers) {
            // The next one comes in a moment.
            let _ = member.links.wire.send(*to, Frame::Clock(Clock { wall_ms }));
        }
        let members = &self.consensus.membership().members;
        let is_member = |id| members.iter().any(|member| member.id == id);
        member.clocks.retain(is_member);
    }

    /// Another server has said what its wall clock shows.
    pub(crate) fn clock_read(&mut self, from: u64, clock: Clock) {
        let uptime_ms = self.state.time.moment().uptime_ms;
        self.member.clocks.heard(from, clock.wall_ms, uptime_ms);
    }
}
