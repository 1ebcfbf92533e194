//! Every schedule of a small world, up to a number of quanta.
//!
//! The present is always [`NOW`]: when a quantum passes, every other instant moves back by one. So
//! states that differ by their date only are one state.

use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use super::former::{FormerRule, FormerRuleBook};
use super::{Rules, whole};
use crate::clock::BootInstant;
use crate::lease::{AnswerKind, CountedAnswers, LeaseBook, LeaseMode, LeaseOptions, WriteProof};

/// Quanta before which nothing has happened.
const NOW: u64 = 1_000;
const QUANTUM: Duration = Duration::from_secs(1);

fn at(quanta: u64) -> BootInstant {
    BootInstant::from_nanos(quanta * 1_000_000_000)
}

fn earlier(instant: &mut BootInstant) {
    *instant = *instant - QUANTUM;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ServerMessage {
    Ping,
    Read,
    Write,
    Reattach,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ClientMessage {
    Pong,
    Read,
    Written(bool),
    Reattached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LeaderMessage {
    Write,
    /// The answer to a ping: whether the client was heard of since the last one.
    Report(bool),
    Revalidate,
    /// A ping of the client, to a leader of Baton.
    Touch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LeaderReply {
    Ping,
    Committed,
    Refused,
    Valid,
    /// Baton's leader has counted a ping, and a majority has confirmed that it leads.
    Counted,
    /// The leader has given us up, or itself.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Attached,
    /// Waits for the answer to a re-attach.
    Connecting(BootInstant),
    Detached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Quantum,
    SendPing,
    SendRead,
    SendWrite,
    ClientToServer,
    ServerToClient,
    ServerToLeader,
    LeaderToServer,
    /// Others elect another leader; ours does not know.
    Elect,
    /// The connection breaks; with it goes all that is in flight to the client.
    Break,
    Reattach,
    /// Our server follows the new leader.
    Follow,
}

const MOVES: [Move; 12] = [
    Move::Quantum,
    Move::SendPing,
    Move::SendRead,
    Move::SendWrite,
    Move::ClientToServer,
    Move::ServerToClient,
    Move::ServerToLeader,
    Move::LeaderToServer,
    Move::Elect,
    Move::Break,
    Move::Reattach,
    Move::Follow,
];

/// Setting under test.
#[derive(Clone, Copy, Debug)]
struct Setting {
    /// In quanta, and even.
    tick: u64,
    timeout: u64,
    /// Number of ticks after which servers give up, where it is `Some`; else never, which allows
    /// more.
    sync_limit: Option<u64>,
    /// Number of quanta that are explored in the bounded form.
    horizon: u64,
    /// Requests unanswered at once.
    in_flight: usize,
    /// Whether connections break and leaders change.
    changes: bool,
    /// The client's connection takes no time: a delay there only makes evidence older. Spares most
    /// of the states.
    near: bool,
    /// Baton's ensemble, and which of its answers the client counts.
    baton: Option<CountedAnswers>,
}

struct Trail(Move, Option<Rc<Trail>>);

#[derive(Clone)]
struct Model<R> {
    rules: R,
    client: Client,
    /// Whether the client has sent something in this quantum.
    has_sent: bool,
    pings: VecDeque<BootInstant>,
    reads: VecDeque<BootInstant>,
    writes: VecDeque<(BootInstant, WriteProof)>,
    to_server: VecDeque<ServerMessage>,
    to_client: VecDeque<ClientMessage>,
    to_leader: VecDeque<LeaderMessage>,
    from_leader: VecDeque<LeaderReply>,
    /// Whether our server has heard of the client since its last report.
    heard: bool,
    serves: bool,
    /// Time at which our server has last heard of its leader, and the other way round.
    server_read: BootInstant,
    leader_read: BootInstant,
    /// Time until the leader's next ping.
    next_ping: u64,
    deposed: Option<BootInstant>,
    /// Time at which the true leader has last counted a request of the client.
    counted: BootInstant,
    ended: bool,
    changes: u8,
    trail: Option<Rc<Trail>>,
}

impl<R: Rules> Model<R> {
    fn new(mut rules: R, setting: &Setting, next_ping: u64) -> Self {
        rules.connected(
            at(NOW),
            QUANTUM * u32::try_from(setting.timeout).unwrap(),
            true,
        );
        if let Some(counted) = setting.baton {
            rules.book().set_counted_answers(counted);
        }
        Self {
            rules,
            client: Client::Attached,
            has_sent: false,
            pings: VecDeque::new(),
            reads: VecDeque::new(),
            writes: VecDeque::new(),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            to_leader: VecDeque::new(),
            from_leader: VecDeque::new(),
            heard: false,
            serves: true,
            server_read: at(NOW),
            leader_read: at(NOW),
            next_ping,
            deposed: None,
            counted: at(NOW),
            ended: false,
            changes: 0,
            trail: None,
        }
    }

    /// Returns what distinguishes states. What the leader has counted anyway does not.
    fn key(&mut self) -> u128 {
        let counted = self.counted;
        let known = |instant: BootInstant| instant.max(counted).as_nanos();
        let proof = |proof: &WriteProof| (proof.reported.map(known), proof.counted.map(known));
        let book = self.rules.book();
        let answered: Vec<_> = book
            .answered
            .iter()
            .map(|(read, sent)| (read.as_nanos(), known(*sent)))
            .collect();
        let reported = book.reported.map(known);
        let digest = |salt: u64| {
            let mut hasher = std::hash::DefaultHasher::new();
            salt.hash(&mut hasher);
            (&answered, reported, self.client, self.has_sent).hash(&mut hasher);
            let pings: Vec<_> = self.pings.iter().copied().map(known).collect();
            let reads: Vec<_> = self.reads.iter().copied().map(known).collect();
            let writes: Vec<_> = self
                .writes
                .iter()
                .map(|(sent, shows)| (known(*sent), proof(shows)))
                .collect();
            (pings, reads, writes).hash(&mut hasher);
            (
                &self.to_server,
                &self.to_client,
                &self.to_leader,
                &self.from_leader,
            )
                .hash(&mut hasher);
            (self.heard, self.serves, self.server_read, self.leader_read).hash(&mut hasher);
            (
                self.next_ping,
                self.deposed,
                counted,
                self.ended,
                self.changes,
            )
                .hash(&mut hasher);
            u128::from(hasher.finish())
        };
        digest(1) << 64 | digest(2)
    }

    /// Does one thing; `None` where it cannot be done.
    fn after(&self, what: Move, setting: &Setting) -> Option<Self> {
        let mut world = self.clone();
        world.trail = Some(Rc::new(Trail(what, self.trail.clone())));
        world.apply(what, setting).map(|()| world)
    }

    fn apply(&mut self, what: Move, setting: &Setting) -> Option<()> {
        let may = |condition: bool| condition.then_some(());
        match what {
            Move::Quantum => self.quantum(setting),
            Move::SendPing | Move::SendRead | Move::SendWrite => {
                may(self.client == Client::Attached && !self.has_sent)?;
                let in_flight = self.pings.len() + self.reads.len() + self.writes.len();
                may(in_flight < setting.in_flight)?;
                self.has_sent = true;
                match what {
                    Move::SendPing => {
                        self.pings.push_back(at(NOW));
                        self.to_server.push_back(ServerMessage::Ping);
                    }
                    Move::SendRead => {
                        // ZooKeeper's servers answer reads and pings alike.
                        may(setting.baton.is_some())?;
                        self.reads.push_back(at(NOW));
                        self.to_server.push_back(ServerMessage::Read);
                    }
                    _ => {
                        let proof = self.rules.write_sent(at(NOW));
                        self.writes.push_back((at(NOW), proof));
                        self.to_server.push_back(ServerMessage::Write);
                    }
                }
                if setting.near {
                    self.apply(Move::ClientToServer, setting)?;
                }
            }
            Move::ClientToServer => {
                may(self.serves)?;
                // What Baton's servers report besides pings only keeps the session for longer.
                self.heard = setting.baton.is_none();
                match self.to_server.pop_front()? {
                    ServerMessage::Ping if setting.baton.is_some() => {
                        self.to_leader.push_back(LeaderMessage::Touch);
                    }
                    what @ (ServerMessage::Ping | ServerMessage::Read) => {
                        self.to_client.push_back(match what {
                            ServerMessage::Ping => ClientMessage::Pong,
                            _ => ClientMessage::Read,
                        });
                        if setting.near {
                            self.client_reads(setting)?;
                        }
                    }
                    ServerMessage::Write => self.to_leader.push_back(LeaderMessage::Write),
                    ServerMessage::Reattach => self.to_leader.push_back(LeaderMessage::Revalidate),
                }
            }
            Move::ServerToClient => self.client_reads(setting)?,
            Move::ServerToLeader => {
                self.leader_read = at(NOW);
                match self.to_leader.pop_front()? {
                    LeaderMessage::Report(heard) => {
                        if heard {
                            self.touch();
                        }
                    }
                    LeaderMessage::Write | LeaderMessage::Touch if self.deposed.is_some() => {}
                    LeaderMessage::Touch => {
                        may(!self.ended)?;
                        self.touch();
                        self.from_leader.push_back(LeaderReply::Counted);
                    }
                    LeaderMessage::Write => {
                        if setting.baton.is_some() {
                            self.touch();
                        }
                        self.from_leader.push_back(if self.ended {
                            LeaderReply::Refused
                        } else {
                            LeaderReply::Committed
                        });
                    }
                    LeaderMessage::Revalidate => {
                        // Baton's answer to a re-attach is an entry of the log.
                        may(setting.baton.is_none() || self.deposed.is_none())?;
                        self.touch();
                        // A deposed leader knows no better; one that has ended the session answers,
                        // and the client is gone.
                        may(!self.ended || self.deposed.is_some())?;
                        self.from_leader.push_back(LeaderReply::Valid);
                    }
                }
            }
            Move::LeaderToServer => {
                may(self.serves)?;
                self.server_read = at(NOW);
                match self.from_leader.pop_front()? {
                    LeaderReply::Ping => {
                        let heard = std::mem::take(&mut self.heard);
                        self.to_leader.push_back(LeaderMessage::Report(heard));
                    }
                    LeaderReply::Committed => {
                        self.to_client.push_back(ClientMessage::Written(true))
                    }
                    LeaderReply::Refused => self.to_client.push_back(ClientMessage::Written(false)),
                    LeaderReply::Valid => self.to_client.push_back(ClientMessage::Reattached),
                    LeaderReply::Counted => self.to_client.push_back(ClientMessage::Pong),
                    LeaderReply::End => self.serves = false,
                }
                if setting.near && !self.to_client.is_empty() {
                    self.client_reads(setting)?;
                }
            }
            Move::Elect => {
                may(setting.changes && self.changes < 2 && self.deposed.is_none() && !self.ended)?;
                self.changes += 1;
                self.deposed = Some(at(NOW));
                self.counted = at(NOW);
            }
            Move::Break => {
                may(setting.changes && self.changes < 2 && self.client == Client::Attached)?;
                self.changes += 1;
                self.disconnect();
            }
            Move::Reattach => {
                may(self.client == Client::Detached && self.serves)?;
                self.client = Client::Connecting(at(NOW));
                self.to_server.push_back(ServerMessage::Reattach);
            }
            Move::Follow => {
                may(self.deposed.is_some())?;
                self.disconnect();
                self.deposed = None;
                self.to_leader.clear();
                self.from_leader.clear();
                self.serves = true;
                self.heard = false;
                self.server_read = at(NOW);
                self.leader_read = at(NOW);
            }
        }
        Some(())
    }

    fn disconnect(&mut self) {
        self.client = Client::Detached;
        self.pings.clear();
        self.reads.clear();
        self.writes.clear();
        self.to_client.clear();
        self.to_server.clear();
        // Their answers find nobody.
        self.from_leader
            .retain(|what| matches!(what, LeaderReply::Ping | LeaderReply::End));
        self.to_leader
            .retain(|what| matches!(what, LeaderMessage::Report(_)));
    }

    /// The leader that the report reached counts the session, if it is the true one and has not
    /// ended it.
    fn touch(&mut self) {
        if self.deposed.is_none() && !self.ended {
            self.counted = at(NOW);
        }
    }

    fn client_reads(&mut self, setting: &Setting) -> Option<()> {
        match self.to_client.pop_front()? {
            ClientMessage::Pong => {
                let sent = self.pings.pop_front()?;
                self.rules.acknowledged(at(NOW), sent, AnswerKind::Ping);
            }
            ClientMessage::Read => {
                let sent = self.reads.pop_front()?;
                self.rules.acknowledged(at(NOW), sent, AnswerKind::Read);
            }
            ClientMessage::Written(applied) => {
                let (sent, proof) = self.writes.pop_front()?;
                let answered = match applied {
                    true => AnswerKind::Write(proof),
                    false => AnswerKind::Read,
                };
                self.rules.acknowledged(at(NOW), sent, answered);
            }
            ClientMessage::Reattached => {
                let Client::Connecting(sent) = self.client else {
                    return None;
                };
                self.client = Client::Attached;
                let timeout = self.rules.book().timeout();
                self.rules.connected(sent, timeout, false);
                if let Some(counted) = setting.baton {
                    self.rules.book().set_counted_answers(counted);
                }
            }
        }
        Some(())
    }

    fn quantum(&mut self, setting: &Setting) {
        self.has_sent = false;
        let instants = [
            &mut self.server_read,
            &mut self.leader_read,
            &mut self.counted,
        ];
        instants.into_iter().for_each(earlier);
        self.deposed.iter_mut().for_each(earlier);
        self.pings.iter_mut().for_each(earlier);
        self.reads.iter_mut().for_each(earlier);
        for (sent, proof) in &mut self.writes {
            earlier(sent);
            proof.reported.iter_mut().for_each(earlier);
            proof.counted.iter_mut().for_each(earlier);
        }
        if let Client::Connecting(sent) = &mut self.client {
            earlier(sent);
        }
        let book = self.rules.book();
        for (read, sent) in &mut book.answered {
            earlier(read);
            earlier(sent);
        }
        book.reported.iter_mut().for_each(earlier);
        self.ended |= at(NOW) >= self.ends(setting);
        if setting.baton.is_none() {
            self.next_ping -= 1;
        }
        if self.next_ping == 0 {
            self.next_ping = setting.tick / 2;
            // More of them in one stream say nothing that these do not.
            let pings = self
                .from_leader
                .iter()
                .filter(|what| **what == LeaderReply::Ping);
            if pings.count() < 3 {
                self.from_leader.push_back(LeaderReply::Ping);
            }
        }
        let Some(sync_limit) = setting.sync_limit else {
            // No server gives up: when it last received a message does not matter.
            self.server_read = at(NOW);
            self.leader_read = at(NOW);
            return;
        };
        let patience = QUANTUM * u32::try_from(sync_limit * setting.tick).unwrap();
        let tick = QUANTUM * u32::try_from(setting.tick).unwrap();
        self.serves &= at(NOW) < self.server_read + patience;
        let gives_up = at(NOW) >= self.leader_read + patience
            || self
                .deposed
                .is_some_and(|since| at(NOW) >= since + patience + tick);
        if gives_up && self.from_leader.back() != Some(&LeaderReply::End) {
            self.from_leader.push_back(LeaderReply::End);
        }
    }

    /// The earliest instant at which the true leader may end the session.
    fn ends(&self, setting: &Setting) -> BootInstant {
        self.counted + QUANTUM * u32::try_from(setting.timeout).unwrap()
    }

    /// Returns whether the lease may outlive the session. What was found sound stays so: sessions
    /// never end earlier than they could.
    fn broken(&mut self, setting: &Setting) -> bool {
        let broken = self.rules.deadline() > self.ends(setting);
        let book = self.rules.book();
        book.deadline = BootInstant::ZERO;
        book.write_wanted = false;
        broken
    }

    fn story(&self) -> String {
        let mut moves = Vec::new();
        let mut trail = self.trail.as_ref();
        while let Some(step) = trail {
            moves.push(format!("{:?}", step.0));
            trail = step.1.as_ref();
        }
        moves.reverse();
        moves.join(" ")
    }
}

/// Explores every schedule; returns how many states there are, or the story of the first that is
/// broken.
fn explore<R: Rules>(rules: &R, setting: &Setting) -> Result<usize, String> {
    let mut states = 0;
    let mut level: Vec<Model<R>> = (1..=setting.tick / 2)
        .map(|phase| Model::new(rules.clone(), setting, phase))
        .collect();
    for _ in 0..=setting.horizon {
        let mut seen = HashSet::new();
        let mut next = Vec::new();
        let mut next_seen = HashSet::new();
        while let Some(mut world) = level.pop() {
            if world.broken(setting) {
                return Err(world.story());
            }
            if !seen.insert(world.key()) {
                continue;
            }
            for what in MOVES {
                let Some(mut after) = world.after(what, setting) else {
                    continue;
                };
                if what != Move::Quantum {
                    level.push(after);
                } else if next_seen.insert(after.key()) {
                    next.push(after);
                }
            }
        }
        states += seen.len();
        level = next;
    }
    Ok(states)
}

fn book(setting: &Setting, mode: LeaseMode, tick_is_stated: bool) -> LeaseBook {
    let options = LeaseOptions {
        tick: tick_is_stated.then(|| QUANTUM * u32::try_from(setting.tick).unwrap()),
        sync_limit: setting
            .sync_limit
            .map(|limit| u32::try_from(limit).unwrap()),
        clock_rate_ppm: 0,
        epsilon: Duration::ZERO,
        mode,
    };
    LeaseBook::new(options, Duration::ZERO)
}

fn former(rule: FormerRule, setting: &Setting) -> FormerRuleBook {
    FormerRuleBook {
        rule,
        book: book(setting, LeaseMode::Strict, true),
        timeout: QUANTUM * u32::try_from(setting.timeout).unwrap(),
        tick: QUANTUM * u32::try_from(setting.tick).unwrap(),
        sync_limit: u32::try_from(setting.sync_limit.unwrap_or(1)).unwrap(),
    }
}

/// Two writes, with nothing known of `syncLimit` and no bound on any delay.
const BY_WRITES: Setting = Setting {
    tick: 4,
    timeout: 8,
    sync_limit: None,
    horizon: 4,
    in_flight: 2,
    changes: false,
    near: true,
    baton: None,
};

/// Answers, with servers that give up.
const BY_PINGS: Setting = Setting {
    tick: 2,
    timeout: 12,
    sync_limit: Some(1),
    horizon: 4,
    in_flight: 1,
    changes: false,
    near: true,
    baton: None,
};

/// Baton's ensemble, whose servers answer reads by themselves and pings once a majority stands
/// behind that; with no bound on any delay.
const BATON: Setting = Setting {
    tick: 2,
    timeout: 3,
    sync_limit: None,
    horizon: 4,
    in_flight: 2,
    changes: true,
    near: false,
    baton: Some(CountedAnswers::Confirmed),
};

/// Explores as far as the bounded form goes, or the whole.
fn sound(mode: LeaseMode, setting: Setting, whole_horizon: u64) {
    let horizon = if whole() {
        whole_horizon
    } else {
        setting.horizon
    };
    let setting = Setting { horizon, ..setting };
    match explore(&book(&setting, mode, true), &setting) {
        Ok(states) => eprintln!("{mode:?}, {setting:?}: {states} states, all sound"),
        Err(story) => panic!("the lease outlives the session, {setting:?}: {story}"),
    }
}

fn wrong(rule: FormerRule, setting: Setting) {
    let found = explore(&former(rule, &setting), &setting);
    let story = found.expect_err(&format!("the model does not find that {rule:?} is wrong"));
    eprintln!("{rule:?} is wrong: {story}");
}

#[test]
fn h91_two_writes_are_sound_whatever_the_streams_to_the_leader_do() {
    sound(LeaseMode::Strict, BY_WRITES, 6);
}

#[test]
fn h91_two_writes_are_sound_whatever_the_client_s_own_connection_does() {
    let setting = Setting {
        tick: 2,
        timeout: 4,
        horizon: 2,
        near: false,
        ..BY_WRITES
    };
    sound(LeaseMode::Strict, setting, 4);
}

#[test]
fn h91_two_writes_are_sound_over_re_attaches_and_new_leaders() {
    let setting = Setting {
        tick: 2,
        timeout: 4,
        changes: true,
        horizon: 3,
        ..BY_WRITES
    };
    sound(LeaseMode::Strict, setting, 5);
}

#[test]
fn h91_answers_are_sound_where_the_timing_is_stated() {
    sound(LeaseMode::Ping, BY_PINGS, 9);
}

#[test]
fn r33_pings_and_writes_are_sound_on_batons_ensemble() {
    sound(LeaseMode::Auto, BATON, 6);
}

#[test]
fn r33_an_older_client_s_writes_are_sound_on_batons_ensemble() {
    let setting = Setting {
        tick: 2,
        timeout: 4,
        horizon: 3,
        near: true,
        baton: Some(CountedAnswers::Unstated),
        ..BATON
    };
    sound(LeaseMode::Auto, setting, 5);
}

#[test]
fn r33_the_model_finds_b09_wrong_that_reads_count_on_batons_ensemble() {
    let setting = Setting {
        baton: Some(CountedAnswers::All),
        ..BATON
    };
    let found = explore(&book(&setting, LeaseMode::Auto, true), &setting);
    let story = found.expect_err("the model does not find that reads do not count");
    eprintln!("reads count: {story}");
}

#[test]
fn the_model_finds_former_rules_wrong() {
    for rule in [
        FormerRule::OneWrite,
        FormerRule::PipelinedWrites,
        FormerRule::NoReportInterval,
    ] {
        wrong(rule, BY_WRITES);
    }
    wrong(FormerRule::ByPing, BY_PINGS);
    wrong(
        FormerRule::OneTimeout,
        Setting {
            horizon: 6,
            ..BY_PINGS
        },
    );
}
