//! How long a session is known to live: the arithmetic of the lease (`hazards.md` §2.8).
//!
//! Owns which evidence counts, and for how long. It must never count a received byte as evidence (`H27`), only the instant at
//! which a request was *sent* that was later acknowledged; and never read a clock: instants come from the caller.
//!
//! Three kinds of evidence, each giving an instant before which the server cannot have given our locks away:
//! - *Baton's server*: an answer to anything means that the leader has counted the request. Lease: `S + T`.
//! - *any ensemble, strict*: an acknowledged write, sent at `S`. The write reached the leader behind every touch that its
//!   follower had relayed before. The follower relays at least each `tick/2`; so whatever it had **acknowledged to us** by
//!   `S − tick/2` is registered. With `p` the send instant of the newest such request, the lease is `p + T`. In the steady
//!   state of one heartbeat each `h` this is the `S + T − h − tick/2` of §2.8; unlike that, it does not rest on requests
//!   having travelled as evenly as they were sent. A new leader starts its timers after that commit, hence later than `p`.
//! - *any ensemble, by ping*: `S + T − tick/2 − syncLimit·tick`: a follower cut off from the leader serves no longer than that.
//!
//! All are shortened by the clock-rate bound and the slack of [`LeaseOptions`].

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::BootInstant;
use crate::error::LeaseError;

/// How a session proves to itself that it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LeaseMode {
    /// By pings where they are sound (Baton's server, or a timeout of at least 3·syncLimit·tick), else strict.
    #[default]
    Auto,
    /// Always by a heartbeat write, whatever the server is.
    Strict,
}

/// What is known about the ensemble's timing and the clocks. It is not on the wire, so it has to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// The ensemble's `tickTime` (2 s, ZooKeeper's stock setting). Without effect on Baton's server.
    pub tick: Duration,
    /// The ensemble's `syncLimit` in ticks (5, the stock setting). Without effect on Baton's server.
    pub sync_limit: u32,
    /// How much faster a server's clock may run than ours, in parts per million (10,000 = 1 %).
    pub clock_rate_ppm: u32,
    /// Slack for a leader that is late with its timers (50 ms, but never more than a twentieth of the session timeout).
    pub epsilon: Duration,
    /// How leases are kept.
    pub mode: LeaseMode,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            tick: Duration::from_secs(2),
            sync_limit: 5,
            clock_rate_ppm: 10_000,
            epsilon: Duration::from_millis(50),
            mode: LeaseMode::Auto,
        }
    }
}

/// Which evidence this session's lease rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// Baton's server: any acknowledged request.
    AnyAck,
    /// A timeout long enough for pings on any ensemble.
    LongPing,
    /// Acknowledged writes.
    Write,
}

/// The lease of one session: evidence in, deadline out.
#[derive(Debug)]
pub(crate) struct LeaseBook {
    options: LeaseOptions,
    timeout: Duration,
    /// Whether the connected server has said that an answer means the leader has counted us.
    ping_lease: bool,
    deadline: BootInstant,
    /// This connection's acknowledgements: when one was read, and when its request was sent. Oldest first.
    acked: VecDeque<(BootInstant, BootInstant)>,
}

impl LeaseBook {
    pub(crate) fn new(options: LeaseOptions, timeout: Duration) -> Self {
        Self {
            options,
            timeout,
            ping_lease: false,
            deadline: BootInstant::ZERO,
            acked: VecDeque::new(),
        }
    }

    pub(crate) fn deadline(&self) -> BootInstant {
        self.deadline
    }

    /// `T` by the server's clock is at least this by ours.
    fn shortened(&self, span: Duration) -> Duration {
        let ppm = self.options.clock_rate_ppm.min(1_000_000);
        let kept = span.saturating_sub(span.mul_f64(f64::from(ppm) / 1_000_000.0));
        kept.saturating_sub(self.options.epsilon.min(self.timeout / 20))
    }

    fn cut_off(&self) -> Duration {
        self.options.tick.saturating_mul(self.options.sync_limit)
    }

    /// A connection begins: its handshake was sent at `sent`. A handshake that *created* the session went through the quorum.
    pub(crate) fn connected(&mut self, sent: BootInstant, timeout: Duration, created: bool) {
        self.timeout = timeout;
        self.ping_lease = false;
        self.acked.clear();
        // A re-attach makes the server ask the leader, which touches the session before the answer: no relay, no tick/2.
        self.acked.push_back((BootInstant::ZERO, sent));
        if created {
            self.extend(sent + self.shortened(timeout));
        }
    }

    /// The connected server has said what its answers mean.
    pub(crate) fn set_ping_lease(&mut self, sound: bool) {
        self.ping_lease = sound && self.options.mode != LeaseMode::Strict;
    }

    /// What a write sent at `now` will prove when it is acknowledged: pass it to [`LeaseBook::acknowledged`].
    pub(crate) fn write_basis(&mut self, now: BootInstant) -> Option<BootInstant> {
        let registered_by = self.prune(now);
        self.acked
            .front()
            .filter(|(read, _)| *read <= registered_by)
            .map(|(_, sent)| *sent)
    }

    /// A request sent at `sent` was answered, the answer read at `now`. `basis` is [`LeaseBook::write_basis`] of that instant
    /// when the request was a write that went through the quorum.
    pub(crate) fn acknowledged(
        &mut self,
        now: BootInstant,
        sent: BootInstant,
        basis: Option<BootInstant>,
    ) {
        if self.ping_lease {
            self.extend(sent + self.shortened(self.timeout));
            return;
        }
        let by_ping = self
            .timeout
            .checked_sub(self.options.tick / 2 + self.cut_off());
        if let Some(span) = by_ping.filter(|_| self.options.mode != LeaseMode::Strict) {
            self.extend(sent + self.shortened(span));
        }
        if let Some(basis) = basis {
            self.extend(basis + self.shortened(self.timeout));
        }
        // One entry each tick/16 is enough; leaving entries out only makes a later basis older.
        let coarse = self.options.tick / 16;
        if self
            .acked
            .back()
            .is_none_or(|(read, _)| *read + coarse <= now)
        {
            self.prune(now);
            self.acked.push_back((now, sent));
        }
    }

    /// Forgets what a later entry outdoes; returns the instant up to which what was acknowledged is registered.
    fn prune(&mut self, now: BootInstant) -> BootInstant {
        let registered_by = now - self.options.tick / 2;
        while self
            .acked
            .get(1)
            .is_some_and(|(read, _)| *read <= registered_by)
        {
            self.acked.pop_front();
        }
        registered_by
    }

    fn extend(&mut self, to: BootInstant) {
        self.deadline = self.deadline.max(to);
    }

    /// Which evidence the lease rests on here.
    pub(crate) fn evidence(&self) -> Evidence {
        if self.ping_lease {
            Evidence::AnyAck
        } else if self.options.mode != LeaseMode::Strict
            && self.timeout >= self.cut_off().saturating_mul(3)
        {
            Evidence::LongPing
        } else {
            Evidence::Write
        }
    }

    /// How often evidence is renewed while a lease is held: a quarter of the timeout (§2.8).
    pub(crate) fn heartbeat(&self) -> Duration {
        self.timeout / 4
    }

    /// Whether a lease can be kept with this timeout; else the smallest timeout with which it could.
    ///
    /// In strict mode the lease has `T − 2h − tick/2 = T/2 − tick/2` left when the next heartbeat is sent; with `T = 2·tick`
    /// that is half a tick, the least that leaves room for a slow answer.
    pub(crate) fn check(&self) -> Result<(), LeaseError> {
        if self.evidence() != Evidence::Write {
            return Ok(());
        }
        let smallest = self.options.tick.saturating_mul(2);
        if self.timeout >= smallest {
            return Ok(());
        }
        Err(LeaseError::TimeoutTooShort {
            timeout: self.timeout,
            tick: self.options.tick,
            smallest,
        })
    }
}
