//! The lease on its way to a caller: every schedule of a small model, with [`Lease::read`] itself
//! in it.
//!
//! An agent renews the lease of its guard at a server, and passes it on to a caller. The caller's
//! clock is the agent's, that of a time namespace, or another machine's. Between two quanta of time
//! an adversary decides which message arrives, and where the agent is paused; the caller's machine
//! may sleep. The caller follows the rule of the clients: it reads its clock before it sends, and
//! counts from that reading.
//!
//! The invariant: at the next grant, which is no earlier than the timeout after the agent sent its
//! newest request, no check of the caller is true.
//!
//! Each [`SeededBug`] must be found: a model that does not find them proves nothing.
//!
//! `cargo test -p baton-locks-agent --lib lease::model` runs the bounded form,
//! `BATON_AGENT_MODEL=whole` with `--release` the whole.

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use super::Lease;

/// Nanoseconds of a quantum of time.
const QUANTUM: u64 = 100_000_000;
/// The session timeout.
const TIMEOUT: u64 = 2 * QUANTUM;
/// The share of a lease that a caller on another clock counts, in percent: its clock may be this
/// much slower.
const COUNTED: i64 = 99;

/// A wrong rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeededBug {
    /// The agent counts a lease from the receipt of the server's answer.
    CountsFromReceipt,
    /// The agent reads its clock after what remains.
    ReadsClockLast,
    /// The caller counts `lease_ms` from the receipt of the answer.
    NoSendInstant,
    /// The caller takes `lease_until_ns` for an instant of its own clock, whatever socket it came
    /// through.
    TrustsSocket,
    /// The same, but only if the boot ids agree.
    TrustsBootId,
    /// The caller counts all of a lease on another machine's clock.
    CountsAll,
    /// The caller's clock stands still while its machine sleeps.
    ClockStopsInSleep,
}

/// The caller's clock, and what is tried.
#[derive(Clone, Copy, Debug)]
struct Setting {
    is_same_boot: bool,
    /// Its reading at the agent's zero, in quanta.
    offset: i64,
    /// Its rate in percent of the agent's.
    rate: i64,
    /// Quanta of a schedule.
    horizon: u64,
    mistake: Option<SeededBug>,
}

impl Setting {
    fn has(&self, mistake: SeededBug) -> bool {
        self.mistake == Some(mistake)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    now_ns: u64,
    lease_until_ns: u64,
    lease_ms: u64,
}

/// A reading of the agent's clock that was made after the caller had read `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Anchor {
    sent: i64,
    agent: u64,
    is_same_clock: bool,
}

/// The stage of the caller's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    None,
    /// On its way since this reading of the caller's clock.
    Sent(i64),
    /// Its answer is on its way.
    Answered(i64, Message),
}

/// All times are the agent's, but for those of the caller's clock, which are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Model {
    now: u64,
    /// Time that the caller's machine has slept.
    slept: u64,
    /// The agent's request to the server that has no answer yet.
    touch: Option<u64>,
    /// The earliest instant of the next grant.
    next_grant: u64,
    /// The end of the guard's lease, as the agent knows it.
    guard_until: u64,
    request: Request,
    event: Option<Message>,
    anchor: Option<Anchor>,
    /// The end of the lease on the caller's clock.
    until: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Pass,
    Sleep,
    Touch,
    TouchAnswered,
    Ask,
    /// The agent answers, with pauses of quanta between its readings.
    Answer([u64; 2]),
    Push([u64; 2]),
    DeliverAnswer,
    DeliverEvent,
}

const PAUSES: [[u64; 2]; 3] = [[0, 0], [1, 0], [0, 1]];

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap()
}

impl Model {
    /// The agent has acquired the lock at zero, for a request that was sent then.
    fn new(setting: &Setting) -> Self {
        let mut model = Self {
            now: 0,
            slept: 0,
            touch: None,
            next_grant: TIMEOUT,
            guard_until: TIMEOUT,
            request: Request::None,
            event: None,
            anchor: None,
            until: None,
        };
        model.request = Request::Sent(model.clock(0, setting));
        model
    }

    /// The caller's clock at an instant, if its machine does not sleep from now on.
    fn clock(&self, at: u64, setting: &Setting) -> i64 {
        let stood = match setting.has(SeededBug::ClockStopsInSleep) {
            true => self.slept,
            false => 0,
        };
        let awake = signed(at) - signed(stood);
        awake * setting.rate / 100 + setting.offset * signed(QUANTUM)
    }

    /// Whether a check is true at the next grant, or will be if nothing else happens.
    fn is_broken(&self, setting: &Setting) -> bool {
        let at_grant = self.clock(self.next_grant, setting);
        self.until.is_some_and(|until| at_grant < until)
    }

    /// The agent reads its clock and what remains of its guard.
    fn read(&mut self, pauses: [u64; 2], setting: &Setting) -> Option<Message> {
        if self.guard_until <= self.now {
            return None;
        }
        let now = Cell::new(self.now);
        let mut pauses = pauses.map(|quanta| quanta * QUANTUM).into_iter();
        let readings = Cell::new(pauses.next());
        let second = Cell::new(pauses.next());
        let pause = || {
            let first = readings.replace(second.take());
            now.set(now.get() + first.unwrap_or(0));
        };
        let clock = || {
            let read = now.get();
            pause();
            read
        };
        let remaining = || {
            let left = self.guard_until.saturating_sub(now.get());
            pause();
            Duration::from_nanos(left)
        };
        let lease = if setting.has(SeededBug::ReadsClockLast) {
            let left = remaining();
            Lease::read("boot", clock, || left)
        } else {
            Lease::read("boot", clock, remaining)
        };
        self.now = now.get();
        if self.now > setting.horizon * QUANTUM {
            return None;
        }
        Some(Message {
            now_ns: lease.now_ns,
            lease_until_ns: lease.lease_until_ns,
            lease_ms: lease.lease_ms,
        })
    }

    /// The caller has the answer to what it sent at `sent`.
    fn answered(&mut self, sent: i64, message: Message, setting: &Setting) {
        let received = self.clock(self.now, setting);
        let agent = signed(message.now_ns);
        let anchor = Anchor {
            sent,
            agent: message.now_ns,
            is_same_clock: setting.is_same_boot && sent <= agent && agent <= received,
        };
        self.anchor = Some(anchor);
        let from = match setting.has(SeededBug::NoSendInstant) {
            true => received,
            false => sent,
        };
        // Both forms of the rule: by the instant, and by what was left.
        let left = signed(message.lease_ms * 1_000_000);
        self.hold_until(from + left * COUNTED / 100);
        self.extend(anchor, message, setting);
    }

    /// The caller has a message of the lease, and counts from its anchor.
    fn extend(&mut self, anchor: Anchor, message: Message, setting: &Setting) {
        let trusts = setting.has(SeededBug::TrustsSocket)
            || setting.has(SeededBug::TrustsBootId) && setting.is_same_boot;
        if trusts {
            return self.hold_until(signed(message.lease_until_ns));
        }
        let left = signed(message.lease_until_ns) - signed(anchor.agent);
        let counted = match anchor.is_same_clock || setting.has(SeededBug::CountsAll) {
            true => left,
            false => left * COUNTED / 100,
        };
        self.hold_until(anchor.sent + counted);
    }

    fn hold_until(&mut self, until: i64) {
        self.until = Some(self.until.map_or(until, |known| known.max(until)));
    }

    /// The model after a move; `None` where it is impossible.
    fn after(mut self, step: Move, setting: &Setting) -> Option<Self> {
        let may = |possible: bool| possible.then_some(());
        match step {
            Move::Pass | Move::Sleep => {
                may(self.now < setting.horizon * QUANTUM)?;
                // To a clock that runs on, a sleep is a pause.
                may(matches!(step, Move::Pass) || setting.has(SeededBug::ClockStopsInSleep))?;
                self.now += QUANTUM;
                if let Move::Sleep = step {
                    self.slept += QUANTUM;
                }
            }
            Move::Touch => {
                may(self.touch.is_none() && self.now < self.next_grant)?;
                self.touch = Some(self.now);
                // The server may count it at once, which is the earliest.
                self.next_grant = self.now + TIMEOUT;
            }
            Move::TouchAnswered => {
                let sent = self.touch.take()?;
                let from = match setting.has(SeededBug::CountsFromReceipt) {
                    true => self.now,
                    false => sent,
                };
                self.guard_until = self.guard_until.max(from + TIMEOUT);
            }
            Move::Ask => {
                may(self.request == Request::None)?;
                self.request = Request::Sent(self.clock(self.now, setting));
            }
            Move::Answer(pauses) => {
                let Request::Sent(sent) = self.request else {
                    return None;
                };
                let message = self.read(pauses, setting)?;
                self.request = Request::Answered(sent, message);
            }
            Move::Push(pauses) => {
                may(self.event.is_none() && self.anchor.is_some())?;
                self.event = Some(self.read(pauses, setting)?);
            }
            Move::DeliverAnswer => {
                let Request::Answered(sent, message) = self.request else {
                    return None;
                };
                self.request = Request::None;
                self.answered(sent, message, setting);
            }
            Move::DeliverEvent => {
                let (anchor, message) = (self.anchor?, self.event.take()?);
                self.extend(anchor, message, setting);
            }
        }
        // A lease that has ended on the caller's clock has ended for ever.
        let now = self.clock(self.now, setting);
        self.until = self.until.filter(|until| *until > now);
        Some(self)
    }
}

/// Result of a search.
#[derive(Debug, Default)]
struct Found {
    states: usize,
    /// A schedule at whose end a check is true at the next grant.
    broken: Option<Model>,
    /// States in which the caller holds for longer than by the first grant.
    extended: usize,
}

/// Every schedule, until one breaks the invariant.
fn search(setting: &Setting) -> Found {
    let mut found = Found::default();
    let first = Model::new(setting);
    let fingerprint =
        |model: &Model| BuildHasherDefault::<DefaultHasher>::default().hash_one(model);
    let mut seen = HashSet::from([fingerprint(&first)]);
    let mut open = vec![first];
    let moves = [
        Move::Pass,
        Move::Sleep,
        Move::Touch,
        Move::TouchAnswered,
        Move::Ask,
        Move::DeliverAnswer,
        Move::DeliverEvent,
    ];
    let answers = PAUSES.map(Move::Answer);
    let moves: Vec<Move> = moves
        .into_iter()
        .chain(answers)
        .chain(PAUSES.map(Move::Push))
        .collect();
    while let Some(model) = open.pop() {
        found.states += 1;
        let first_end = model.clock(TIMEOUT, setting);
        found.extended += usize::from(model.until.is_some_and(|until| until > first_end));
        if model.is_broken(setting) {
            found.broken = Some(model);
            return found;
        }
        for step in &moves {
            let after = model.after(*step, setting);
            open.extend(after.filter(|model| seen.insert(fingerprint(model))));
        }
    }
    found
}

/// Quanta of a schedule: more in the whole form, which takes minutes in a release build.
fn horizon() -> u64 {
    let is_whole = std::env::var("BATON_AGENT_MODEL").is_ok_and(|value| value == "whole");
    if is_whole { 6 } else { 3 }
}

fn settings(mistake: Option<SeededBug>) -> Vec<Setting> {
    let clock = |is_same_boot, offset, rate| Setting {
        is_same_boot,
        offset,
        rate,
        horizon: horizon(),
        mistake,
    };
    let mut settings = vec![clock(true, 0, 100)];
    // A time namespace, whose clock may be off by less than a round trip.
    settings.extend([-1, 1, 1_000].map(|offset| clock(true, offset, 100)));
    // A machine that was cloned while it ran.
    settings.push(clock(true, 1_000, 99));
    for rate in [99, 100, 101] {
        settings.extend([-2, 0, 1_000].map(|offset| clock(false, offset, rate)));
    }
    settings
}

#[test]
fn no_check_of_a_caller_is_true_at_the_next_grant_in_any_schedule() {
    for setting in settings(None) {
        let found = search(&setting);
        assert!(found.broken.is_none(), "{setting:?}: {found:?}");
        assert!(found.states > 1_000, "{setting:?}: {found:?}");
        assert!(found.extended > 100, "{setting:?}: {found:?}");
        println!("{setting:?}: {} states", found.states);
    }
}

#[test]
fn each_wrong_rule_of_the_lease_on_the_wire_is_found() {
    for mistake in [
        SeededBug::CountsFromReceipt,
        SeededBug::ReadsClockLast,
        SeededBug::NoSendInstant,
        SeededBug::TrustsSocket,
        SeededBug::TrustsBootId,
        SeededBug::CountsAll,
        SeededBug::ClockStopsInSleep,
    ] {
        let mut found = settings(Some(mistake)).into_iter();
        let found = found.find_map(|setting| search(&setting).broken);
        assert!(found.is_some(), "{mistake:?} is not found");
    }
}
