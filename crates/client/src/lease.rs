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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(ms: u64) -> BootInstant {
        BootInstant::from_nanos(ms * 1_000_000)
    }

    const fn us(us: u64) -> BootInstant {
        BootInstant::from_nanos(us * 1_000)
    }

    fn options(tick_ms: u64) -> LeaseOptions {
        LeaseOptions {
            tick: Duration::from_millis(tick_ms),
            epsilon: Duration::ZERO,
            ..LeaseOptions::default()
        }
    }

    /// A leader and a follower as §2.0 of `hazards.md` describes them: the follower answers pings by itself, relays touches
    /// with each ping of the leader (every tick/2), passes writes on at once on the same stream, and is cut off from the
    /// leader at `cut`. All in microseconds by the client's clock.
    struct Model {
        timeout: u64,
        half_tick: u64,
        cut: u64,
        /// When the follower last heard of the client, and not told the leader yet.
        touched_follower: bool,
        relayed_until: u64,
        expiry: u64,
    }

    impl Model {
        fn relay(&mut self, now: u64) {
            // Each relay instant up to now; a touch is told at the first one behind it.
            while self.relayed_until + self.half_tick <= now {
                self.relayed_until += self.half_tick;
                if self.relayed_until < self.cut && std::mem::take(&mut self.touched_follower) {
                    self.expiry = self.expiry.max(self.relayed_until + self.timeout);
                }
            }
        }

        /// A packet arrives; a write is acknowledged only if it reaches a leader that has not expired the session.
        fn arrives(&mut self, now: u64, write: bool) -> bool {
            self.relay(now);
            let through = now < self.cut && now < self.expiry;
            // The write itself does not touch: it goes past the session tracker of the leader.
            self.touched_follower = true;
            !write || through
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        /// H26, H91: whatever the delays, whenever the follower is cut off, however the clocks drift within the bound, the
        /// lease ends before the leader can give the session's locks away.
        #[test]
        fn h91_a_strict_lease_ends_before_a_leader_cut_off_from_our_follower_expires_us(
            // In microseconds by our clock, as everything below.
            tick in prop::sample::select(vec![100_000_u64, 1_000_000, 2_000_000]),
            // How much faster the servers' clocks run, in parts per million of ours.
            rate in -10_000_i64..=10_000,
            ratio in 2_u64..12,
            phase in 0_u64..1_000_000,
            // Cut so many per cent of half a tick after this step's packet has arrived.
            cut in (0_usize..40, 0_u64..100),
            // Pause in per cent of the timeout; ways there and back in per cent of the tick; a write or not.
            steps in prop::collection::vec(
                (1_u64..30, prop_oneof![4 => 0_u64..20, 1 => 0_u64..300], 0_u64..20, any::<bool>()),
                1..40,
            ),
        ) {
            let timeout = tick * ratio;
            let start = 10_000_000;
            let by_server = |span: u64| span * u64::try_from(1_000_000 - rate).unwrap_or(0) / 1_000_000;
            let (mut sent, mut arrived, mut read) = (start, start, start);
            let packets: Vec<_> = steps
                .into_iter()
                .map(|(pause, there, back, write)| {
                    sent += timeout * pause / 100 + 1;
                    arrived = arrived.max(sent + tick * there / 100);
                    read = read.max(arrived + tick * back / 100);
                    (sent, arrived, read, write)
                })
                .collect();
            let (step, after) = cut;
            let cut = packets[step % packets.len()].1 + tick * after / 200;
            let options = LeaseOptions {
                tick: Duration::from_micros(tick),
                mode: LeaseMode::Strict,
                epsilon: Duration::ZERO,
                ..LeaseOptions::default()
            };
            let mut book = LeaseBook::new(options, Duration::from_micros(timeout));
            let mut model = Model {
                timeout: by_server(timeout),
                half_tick: by_server(tick / 2),
                cut,
                touched_follower: false,
                relayed_until: start - phase % by_server(tick / 2),
                expiry: start + by_server(timeout),
            };
            book.connected(us(start), Duration::from_micros(timeout), true);
            let mut answers = VecDeque::<(u64, u64, Option<BootInstant>)>::new();
            for (sent, arrived, read, write) in packets {
                // Answers that are in by now are read in order.
                while answers.front().is_some_and(|(read, ..)| *read <= sent)
                    && let Some((read, sent, basis)) = answers.pop_front()
                {
                    book.acknowledged(us(read), us(sent), basis);
                }
                let basis = if write { book.write_basis(us(sent)) } else { None };
                if !model.arrives(arrived, write) {
                    break;
                }
                answers.push_back((read, sent, basis));
            }
            for (read, sent, basis) in answers {
                book.acknowledged(us(read), us(sent), basis);
            }
            model.relay(read + 100 * timeout);
            prop_assert!(
                book.deadline() <= us(model.expiry),
                "lease {:?} outlives the session, which ends at {:?}", book.deadline(), us(model.expiry)
            );
        }
    }

    #[test]
    fn h26_the_lease_is_shorter_than_the_timeout_by_the_clocks_rate_and_the_slack() {
        let mut book = LeaseBook::new(LeaseOptions::default(), Duration::from_secs(4));
        book.connected(at(1000), Duration::from_secs(4), true);
        // 4 s less 1 % less 50 ms.
        assert_eq!(book.deadline(), at(1000 + 4000 - 40 - 50));
    }

    #[test]
    fn an_answer_extends_the_lease_only_where_it_proves_something() {
        let mut book = LeaseBook::new(options(1000), Duration::from_secs(4));
        book.connected(at(10_000), Duration::from_secs(4), false);
        assert_eq!(
            book.deadline(),
            BootInstant::ZERO,
            "a re-attach is not a quorum write"
        );
        book.acknowledged(at(10_010), at(10_000), None);
        assert_eq!(book.deadline(), BootInstant::ZERO, "nor is a ping");
        let basis = book.write_basis(at(10_020));
        assert_eq!(
            basis,
            Some(at(10_000)),
            "the re-attach touched the leader itself"
        );
        book.acknowledged(at(10_030), at(10_020), basis);
        assert_eq!(book.deadline(), at(10_000 + 3960));
        // A ping answered less than tick/2 before a write may not have been relayed.
        book.acknowledged(at(12_000), at(11_990), None);
        assert_eq!(book.write_basis(at(12_400)), Some(at(10_000)));
        assert_eq!(book.write_basis(at(12_500)), Some(at(11_990)));
        book.set_ping_lease(true);
        book.acknowledged(at(13_000), at(12_900), None);
        assert_eq!(book.deadline(), at(12_900 + 3960));
    }

    #[test]
    fn pings_are_enough_only_with_three_times_the_sync_limit() {
        let long = |secs| LeaseBook::new(options(2000), Duration::from_secs(secs));
        assert_eq!(long(30).evidence(), Evidence::LongPing);
        assert_eq!(long(29).evidence(), Evidence::Write);
        let mut book = long(30);
        book.acknowledged(at(100), at(90), None);
        // 30 s less tick/2, less 5 ticks, less 1 %.
        assert_eq!(book.deadline(), at(90 + 18_810));
        let strict = LeaseOptions {
            mode: LeaseMode::Strict,
            ..options(2000)
        };
        let mut book = LeaseBook::new(strict, Duration::from_secs(30));
        book.acknowledged(at(100), at(90), None);
        assert_eq!(
            (book.evidence(), book.deadline()),
            (Evidence::Write, BootInstant::ZERO)
        );
    }

    #[test]
    fn a_timeout_that_no_mode_makes_sound_is_refused_with_the_smallest_that_is() {
        let book = |ms| LeaseBook::new(options(2000), Duration::from_millis(ms));
        assert_eq!(book(4000).check(), Ok(()));
        let Err(LeaseError::TimeoutTooShort { smallest, .. }) = book(3999).check() else {
            panic!("refused")
        };
        assert_eq!(smallest, Duration::from_secs(4));
        let mut baton = book(500);
        baton.set_ping_lease(true);
        assert_eq!(baton.check(), Ok(()));
    }

    #[test]
    fn evidence_that_is_kept_stays_bounded() {
        let mut book = LeaseBook::new(options(1000), Duration::from_secs(30));
        book.connected(at(0), Duration::from_secs(30), true);
        for ms in 0..100_000 {
            book.acknowledged(at(ms), at(ms), None);
        }
        assert!(book.acked.len() < 20, "{}", book.acked.len());
    }
}
