//! Every schedule of a small ensemble, with [`TouchRounds`] itself in it.
//!
//! The world has two or three servers and a session or two, each on one of them. Consensus is
//! reduced to what matters here: terms, who believes to lead, logs, the copies of logs, commits by
//! a majority, read indexes that are confirmed server by server. Between two quanta of time an
//! adversary delivers, delays, repeats and loses what it likes, and holds elections. Deposed
//! leaders go on until they hear of a newer term.
//!
//! The invariant: a ping or a write that a client sent at `S`, and whose answer it has, means that
//! no end of the session is committed before `S + T`.
//!
//! Each [`SeededBug`] must be found: a model that does not find them proves nothing.
//!
//! All instants are relative to [`NOW`], and numbers that only have to differ are counted from the
//! start for each state, so that states which differ by their date only are one.
//!
//! `cargo test -p baton-locks-server --lib touch_rounds::model` runs the bounded form,
//! `BATON_TOUCH_MODEL=whole` with `--release` the whole.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use baton_peers::codec::{Counted, Touch};

use super::{RESEND_MS, Stage, TouchRounds};

/// The present, in quanta. A quantum is a millisecond of [`TouchRounds`].
const NOW: u64 = 1_000_000;

/// Seeded bug of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeededBug {
    /// A leader answers before an entry of its own term is committed.
    B05CountsBeforeOwnEntry,
    /// A round that was asked for before the touch came stands for it, as where an id is used
    /// twice.
    B06EarlierRound,
    /// The server of the client answers a ping by itself.
    B07FollowerAnswers,
    /// A leader answers without a round.
    B08NoRound,
    /// A new leader goes by what it counted when it led before, or never.
    B10OldClocks,
    /// A deposed leader's decision to end a session goes to the new leader.
    B11ForwardedEnd,
    /// An answer to a batch of before is taken for one to the batch on its way.
    AnyBatch,
    /// A session whose end the leader has decided is counted.
    CountsEnding,
    /// A write that another server forwards is no touch.
    WriteNotCounted,
}

/// Parameters of a trial.
#[derive(Clone, Debug)]
struct Setting {
    servers: usize,
    /// The server of each session.
    origins: Vec<usize>,
    timeout: u8,
    elections: u8,
    /// Frames on their way at once.
    frames: usize,
    /// Pings of one session without an answer.
    pings: usize,
    /// Writes of each session.
    writes: u8,
    /// Whether frames, and batches at a leader, are kept whose answer nobody awaits. Without them
    /// there are far fewer states, and sessions live no longer.
    keeps_stale: bool,
    mistake: Option<SeededBug>,
}

impl Setting {
    fn has(&self, mistake: SeededBug) -> bool {
        self.mistake == Some(mistake)
    }

    fn is_majority(&self, servers: u8) -> bool {
        2 * servers.count_ones() as usize > self.servers
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Input {
    /// The first entry of a leader.
    First,
    End(usize),
    Write(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entry {
    term: u8,
    what: Input,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Frame {
    Touch(u64, Vec<i64>),
    Counted(u64, Vec<i64>),
    /// A session's write, for the leader.
    Write(usize),
}

/// A frame on its way: from, to, content.
type Sent = (usize, usize, Frame);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Clock {
    /// Quanta since the session was counted, the timeout at most.
    age: u8,
    is_ending: bool,
}

/// A read index: its id, and who has confirmed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Round {
    id: u8,
    confirmed_by: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Server {
    term: u8,
    leads: bool,
    log: Vec<Entry>,
    committed: usize,
    rounds: TouchRounds<u8>,
    clocks: Vec<Clock>,
    asked: Vec<Round>,
}

impl Server {
    /// Whether it leads, and an entry of its own term is committed.
    fn acts(&self) -> bool {
        let mut committed = self.log.iter().take(self.committed);
        self.leads && committed.any(|entry| entry.term == self.term && entry.what == Input::First)
    }

    fn knows(&self, session: usize) -> bool {
        let mut committed = self.log.iter().take(self.committed);
        !committed.any(|entry| entry.what == Input::End(session))
    }

    /// Models [`SessionClocks::touch`](crate::session::clocks::SessionClocks::touch).
    fn touch(&mut self, session: usize, at: u64, setting: &Setting) -> bool {
        let is_known = self.knows(session);
        let clock = &mut self.clocks[session];
        if !is_known || (clock.is_ending && !setting.has(SeededBug::CountsEnding)) {
            return false;
        }
        clock.age = clock.age.min(u8::try_from(NOW - at).unwrap());
        true
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    /// Quanta since each unanswered ping was sent, oldest first.
    pings: VecDeque<u8>,
    write: Option<u8>,
    writes: u8,
    /// Quanta since the newest answered request was sent, as long as a lease rests on it.
    proved: Option<u8>,
    /// Whether its end is committed.
    has_ended: bool,
    /// Whether a deposed leader had decided to end it.
    is_given_up: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Model {
    servers: Vec<Server>,
    sessions: Vec<Session>,
    frames: Vec<Sent>,
    /// The leader of each term.
    leaders: Vec<usize>,
    is_broken: bool,
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Quantum,
    Ping(usize),
    Write(usize),
    /// A server sends what it has for its leader.
    Send(usize),
    SendAgain(usize),
    Deliver(usize),
    Lose(usize),
    /// A leader asks for a read index.
    Ask(usize),
    /// A leader's read index is confirmed by another server.
    Confirm(usize, u8, usize),
    /// A leader handles a read index that a majority has confirmed.
    Answer(usize, u8),
    /// A server becomes leader by the vote of another one.
    Elect(usize, usize),
    /// A leader's log is copied; `true`: the leader hears of that.
    Copy(usize, usize, bool),
    /// A leader decides to end a session.
    End(usize, usize),
    /// A leader ends a session because a deposed one had decided it.
    EndForOther(usize, usize),
}

struct Trail(Move, Option<Rc<Trail>>);

fn id_of(server: usize) -> u64 {
    u64::try_from(server).unwrap()
}

fn session_id(session: usize) -> i64 {
    i64::try_from(session).unwrap()
}

fn session_of(id: i64) -> usize {
    usize::try_from(id).unwrap()
}

impl Model {
    fn new(setting: &Setting) -> Self {
        let log = vec![Entry {
            term: 1,
            what: Input::First,
        }];
        let server = |id| Server {
            term: 1,
            leads: id == 0,
            log: log.clone(),
            committed: 1,
            rounds: TouchRounds::new(0),
            clocks: setting
                .origins
                .iter()
                .map(|_| Clock {
                    age: 0,
                    is_ending: false,
                })
                .collect(),
            asked: Vec::new(),
        };
        let session = Session {
            pings: VecDeque::new(),
            write: None,
            writes: setting.writes,
            proved: None,
            has_ended: false,
            is_given_up: false,
        };
        Self {
            servers: (0..setting.servers).map(server).collect(),
            sessions: setting.origins.iter().map(|_| session.clone()).collect(),
            frames: Vec::new(),
            leaders: vec![0, 0],
            is_broken: false,
        }
    }

    /// Returns the moves that may be possible.
    fn moves(&self, setting: &Setting) -> Vec<Move> {
        let mut moves = vec![Move::Quantum];
        for (id, session) in self.sessions.iter().enumerate() {
            if session.pings.len() < setting.pings {
                moves.push(Move::Ping(id));
            }
            if session.writes > 0 {
                moves.push(Move::Write(id));
            }
        }
        let may_elect = self.leaders.len() < usize::from(setting.elections) + 2;
        for frame in 0..self.frames.len() {
            moves.push(Move::Deliver(frame));
            moves.push(Move::Lose(frame));
        }
        for (id, server) in self.servers.iter().enumerate() {
            match (&server.rounds.outstanding, server.rounds.pings.is_empty()) {
                (None, true) => {}
                (None, false) => moves.push(Move::Send(id)),
                (Some(_), _) => moves.push(Move::SendAgain(id)),
            }
            let others = || (0..setting.servers).filter(move |other| *other != id);
            if !server.leads {
                if may_elect {
                    moves.extend(others().map(|other| Move::Elect(id, other)));
                }
                continue;
            }
            if server.rounds.wants_round() || setting.has(SeededBug::B06EarlierRound) {
                moves.push(Move::Ask(id));
            }
            for round in &server.asked {
                moves.push(Move::Answer(id, round.id));
                moves.extend(others().map(|other| Move::Confirm(id, round.id, other)));
            }
            for other in others() {
                moves.push(Move::Copy(id, other, true));
                moves.push(Move::Copy(id, other, false));
            }
            for (session, clock) in server.clocks.iter().enumerate() {
                if clock.age >= setting.timeout {
                    moves.push(Move::End(id, session));
                }
                if self.sessions[session].is_given_up {
                    moves.push(Move::EndForOther(id, session));
                }
            }
        }
        moves
    }

    /// Does one thing; `None` where it cannot be done.
    fn after(&self, what: Move, setting: &Setting) -> Option<Self> {
        let mut world = self.clone();
        world.apply(what, setting)?;
        world.normalise(setting);
        (world != *self).then_some(world)
    }

    fn apply(&mut self, what: Move, setting: &Setting) -> Option<()> {
        let may = |condition: bool| condition.then_some(());
        match what {
            Move::Quantum => self.quantum(setting),
            Move::Ping(session) => {
                let origin = setting.origins[session];
                may(self.sessions[session].pings.len() < setting.pings)?;
                self.sessions[session].pings.push_back(0);
                self.servers[origin].rounds.ping(session_id(session), 0);
                if setting.has(SeededBug::B07FollowerAnswers) {
                    self.answer_pings(session, 1, setting);
                }
            }
            Move::Write(session) => {
                let origin = setting.origins[session];
                may(self.frames.len() < setting.frames)?;
                let asked = &mut self.sessions[session];
                may(asked.write.is_none() && asked.writes > 0)?;
                asked.writes -= 1;
                asked.write = Some(0);
                let leader = self.leader_of(origin);
                self.send(origin, leader, Frame::Write(session), setting);
            }
            Move::Send(id) | Move::SendAgain(id) => {
                may(self.frames.len() < setting.frames)?;
                let leader = self.leader_of(id);
                let now = match what {
                    Move::Send(_) => NOW,
                    _ => NOW + RESEND_MS,
                };
                let rounds = &mut self.servers[id].rounds;
                let (to, touch) = rounds.next(Some(id_of(leader)), now)?;
                assert_eq!(to, id_of(leader));
                let frame = Frame::Touch(touch.batch, touch.sessions);
                self.send(id, leader, frame, setting);
            }
            Move::Deliver(frame) => {
                let (from, to, frame) = self.frames.remove(frame);
                self.receive(from, to, frame, setting);
            }
            Move::Lose(frame) => {
                self.frames.remove(frame);
            }
            Move::Ask(id) => {
                let leader = &mut self.servers[id];
                may(leader.acts() || setting.has(SeededBug::B05CountsBeforeOwnEntry))?;
                may(leader.asked.len() < 2)?;
                let is_free = |id: &u8| leader.asked.iter().all(|round| round.id != *id);
                let round = Round {
                    id: (0..).find(is_free)?,
                    confirmed_by: 1 << id,
                };
                leader.rounds.asked(round.id);
                leader.asked.push(round);
            }
            Move::Confirm(id, round, other) => {
                let term = self.servers[id].term;
                may(self.servers[other].term <= term)?;
                self.hear_of_term(other, term, setting);
                let mut asked = self.servers[id].asked.iter_mut();
                let round = asked.find(|asked| asked.id == round)?;
                round.confirmed_by |= 1 << other;
            }
            Move::Answer(id, round) => {
                let leader = &mut self.servers[id];
                let place = leader.asked.iter().position(|asked| asked.id == round)?;
                let round = leader.asked[place];
                may(setting.is_majority(round.confirmed_by) || setting.has(SeededBug::B08NoRound))?;
                leader.asked.remove(place);
                let mut rounds = leader.rounds.clone();
                rounds.confirmed(round.id, 0);
                let answers = rounds.answers(0, |_, session, at| {
                    leader.touch(session_of(session), at, setting)
                });
                leader.rounds = rounds;
                for (to, counted) in answers {
                    let frame = Frame::Counted(counted.batch, counted.refused);
                    self.send(id, usize::try_from(to).unwrap(), frame, setting);
                }
            }
            Move::Elect(id, voter) => {
                let newest = |server: &Server| {
                    let last = server.log.last().map_or(0, |entry| entry.term);
                    (last, server.log.len())
                };
                may(!self.servers[id].leads)?;
                may(newest(&self.servers[id]) >= newest(&self.servers[voter]))?;
                let term = u8::try_from(self.leaders.len()).unwrap();
                self.leaders.push(id);
                self.hear_of_term(voter, term, setting);
                self.hear_of_term(id, term, setting);
                self.servers[id].leads = true;
                let what = Input::First;
                self.servers[id].log.push(Entry { term, what });
            }
            Move::Copy(id, other, is_acknowledged) => {
                let term = self.servers[id].term;
                may(self.servers[other].term <= term)?;
                self.hear_of_term(other, term, setting);
                self.servers[other].log = self.servers[id].log.clone();
                let known = self.servers[id].committed;
                let other = &mut self.servers[other];
                other.committed = other.committed.max(known);
                if is_acknowledged {
                    // The leader and one other are a majority of two and of three.
                    self.commit(id, setting);
                }
            }
            Move::End(id, session) => {
                let leader = &mut self.servers[id];
                may(leader.acts() && leader.knows(session))?;
                let clock = &mut leader.clocks[session];
                may(clock.age >= setting.timeout && !clock.is_ending)?;
                clock.is_ending = true;
                leader.log.push(Entry {
                    term: leader.term,
                    what: Input::End(session),
                });
            }
            Move::EndForOther(id, session) => {
                let leader = &mut self.servers[id];
                may(std::mem::take(&mut self.sessions[session].is_given_up))?;
                leader.log.push(Entry {
                    term: leader.term,
                    what: Input::End(session),
                });
            }
        }
        Some(())
    }

    /// Returns the server that this one takes for the leader.
    fn leader_of(&self, server: usize) -> usize {
        self.leaders[usize::from(self.servers[server].term)]
    }

    fn send(&mut self, from: usize, to: usize, frame: Frame, setting: &Setting) {
        if from == to {
            self.receive(from, to, frame, setting);
        } else {
            self.frames.push((from, to, frame));
        }
    }

    fn receive(&mut self, from: usize, to: usize, frame: Frame, setting: &Setting) {
        let server = &mut self.servers[to];
        match frame {
            Frame::Touch(batch, sessions) if server.leads => {
                let mut rounds = server.rounds.clone();
                let touch = Touch { batch, sessions };
                rounds.received(id_of(from), touch, NOW, |_, session, at| {
                    server.touch(session_of(session), at, setting)
                });
                if setting.has(SeededBug::B06EarlierRound)
                    && let Some(round) = server.asked.last()
                {
                    rounds.asked(round.id);
                }
                server.rounds = rounds;
            }
            Frame::Counted(mut batch, refused) => {
                if setting.has(SeededBug::AnyBatch)
                    && let Some(sent) = &server.rounds.outstanding
                {
                    batch = sent.batch;
                }
                let counted = Counted { batch, refused };
                let answered = server.rounds.counted(id_of(from), &counted);
                for pings in answered.pings {
                    self.answer_pings(session_of(pings.session), pings.count, setting);
                }
                for session in answered.refused {
                    // Its connection is closed.
                    self.sessions[session_of(session)].pings.clear();
                    let waiting = &mut self.servers[to].rounds.pings;
                    waiting.retain(|(of, _), _| *of != session);
                }
            }
            Frame::Write(session) if server.leads => {
                if !setting.has(SeededBug::WriteNotCounted) {
                    server.touch(session, NOW, setting);
                }
                server.log.push(Entry {
                    term: server.term,
                    what: Input::Write(session),
                });
            }
            Frame::Touch(..) | Frame::Write(_) => {}
        }
    }

    fn answer_pings(&mut self, session: usize, count: u32, setting: &Setting) {
        for _ in 0..count {
            // Where a server answers by itself, the leader answers the same ping again.
            if let Some(age) = self.sessions[session].pings.pop_front() {
                self.prove(session, age, setting);
            }
        }
    }

    /// The client has the answer to a request that it sent before `age` quanta.
    fn prove(&mut self, session: usize, age: u8, setting: &Setting) {
        let session = &mut self.sessions[session];
        if age < setting.timeout {
            self.is_broken |= session.has_ended;
            session.proved = Some(session.proved.map_or(age, |newest| newest.min(age)));
        }
    }

    /// A leader knows that a majority has its whole log.
    fn commit(&mut self, id: usize, setting: &Setting) {
        let was_acting = self.servers[id].acts();
        let before = self.servers[id].committed;
        let entries = self.servers[id].log.split_off(before);
        self.servers[id].committed += entries.len();
        self.servers[id].log.extend(entries.iter().copied());
        if !was_acting && !setting.has(SeededBug::B10OldClocks) {
            // Full timeouts from its own first entry on.
            for clock in &mut self.servers[id].clocks {
                clock.age = 0;
            }
        }
        for entry in entries {
            match entry.what {
                Input::First => {}
                Input::End(session) => {
                    let session = &mut self.sessions[session];
                    self.is_broken |= !session.has_ended && session.proved.is_some();
                    session.has_ended = true;
                }
                Input::Write(session) => {
                    let asked = &mut self.sessions[session];
                    if !asked.has_ended
                        && let Some(age) = asked.write.take()
                    {
                        self.prove(session, age, setting);
                    }
                }
            }
        }
    }

    fn hear_of_term(&mut self, id: usize, term: u8, setting: &Setting) {
        let server = &mut self.servers[id];
        if server.term >= term {
            return;
        }
        server.term = term;
        server.leads = false;
        server.asked.clear();
        server.rounds.role_changed();
        for (clock, session) in server.clocks.iter_mut().zip(&mut self.sessions) {
            let was_ending = std::mem::take(&mut clock.is_ending);
            session.is_given_up |= was_ending && setting.has(SeededBug::B11ForwardedEnd);
        }
    }

    fn quantum(&mut self, setting: &Setting) {
        let timeout = setting.timeout;
        let older = |age: &mut u8| *age = (*age + 1).min(timeout);
        for session in &mut self.sessions {
            session.pings.iter_mut().for_each(older);
            session.write.iter_mut().for_each(older);
            session.proved.iter_mut().for_each(older);
            session.proved = session.proved.filter(|age| *age < timeout);
        }
        for server in &mut self.servers {
            for clock in &mut server.clocks {
                older(&mut clock.age);
            }
            for received in server.rounds.received.values_mut() {
                received.at_ms = (received.at_ms - 1).max(NOW - u64::from(timeout));
            }
        }
    }

    /// Drops what nobody awaits any more.
    fn drop_stale(&mut self, setting: &Setting) {
        let awaited: Vec<Option<u64>> = self
            .servers
            .iter()
            .map(|server| server.rounds.outstanding.as_ref().map(|sent| sent.batch))
            .collect();
        self.frames.retain(|(from, to, frame)| match frame {
            Frame::Touch(batch, _) => awaited[*from] == Some(*batch),
            Frame::Counted(batch, _) => awaited[*to] == Some(*batch),
            Frame::Write(session) => self.sessions[*session].write.is_some(),
        });
        for server in &mut self.servers {
            let received = &mut server.rounds.received;
            received.retain(|from, batch| {
                awaited[usize::try_from(*from).unwrap()] == Some(batch.batch)
            });
            let awaits = |round: &Round| {
                let mut batches = received.values();
                batches.any(|batch| batch.stage == Stage::Asked(round.id))
            };
            if !setting.has(SeededBug::B06EarlierRound) {
                server.asked.retain(awaits);
            }
        }
    }

    /// Gives one form to states that behave alike.
    fn normalise(&mut self, setting: &Setting) {
        if !setting.keeps_stale {
            self.drop_stale(setting);
        }
        for id in 0..self.servers.len() {
            self.renumber_batches(id);
            let server = &mut self.servers[id];
            if let Some(sent) = &mut server.rounds.outstanding {
                sent.sent_ms = NOW;
            }
            if !server.acts() {
                // A server that acts reads again what is committed.
                server.committed = 0;
            }
            if !server.acts() && !setting.has(SeededBug::B10OldClocks) {
                for clock in &mut server.clocks {
                    clock.age = setting.timeout;
                }
            }
        }
        self.frames.sort_unstable();
        for session in &mut self.sessions {
            // What is answered now proves nothing any more.
            if session.write.is_some_and(|age| age >= setting.timeout) {
                session.write = None;
            }
        }
    }

    /// Counts the batches of one server from 0: only which of them are the same matters.
    fn renumber_batches(&mut self, id: usize) {
        let origin = id_of(id);
        let mut numbers = BTreeSet::new();
        let Model {
            servers, frames, ..
        } = self;
        let mut all: Vec<&mut u64> = Vec::new();
        for (place, server) in servers.iter_mut().enumerate() {
            let received = server.rounds.received.get_mut(&origin);
            all.extend(received.map(|received| &mut received.batch));
            if place == id {
                let sent = server.rounds.outstanding.as_mut();
                all.extend(sent.map(|sent| &mut sent.batch));
            }
        }
        for (from, to, frame) in frames {
            match frame {
                Frame::Touch(batch, _) if *from == id => all.push(batch),
                Frame::Counted(batch, _) if *to == id => all.push(batch),
                _ => {}
            }
        }
        numbers.extend(all.iter().map(|batch| **batch));
        let numbers: Vec<u64> = numbers.into_iter().collect();
        for batch in all {
            *batch = u64::try_from(numbers.binary_search(batch).unwrap()).unwrap();
        }
        servers[id].rounds.next_batch = u64::try_from(numbers.len()).unwrap();
    }

    fn key(&self) -> u128 {
        let digest = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, self).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        digest(1) << 64 | digest(2)
    }
}

fn story(mut trail: Option<&Rc<Trail>>) -> String {
    let mut moves = Vec::new();
    while let Some(step) = trail {
        moves.push(format!("{:?}", step.0));
        trail = step.1.as_ref();
    }
    moves.reverse();
    moves.join(" ")
}

/// Explores every schedule, the shortest first; returns how many states there are, or the story of
/// the first that is broken.
fn explore(setting: &Setting) -> Result<usize, String> {
    let mut seen = HashSet::new();
    let mut level = VecDeque::from([(Model::new(setting), None)]);
    while let Some((world, trail)) = level.pop_front() {
        for what in world.moves(setting) {
            let Some(after) = world.after(what, setting) else {
                continue;
            };
            if after.is_broken {
                return Err(story(Some(&Rc::new(Trail(what, trail)))));
            }
            if seen.insert(after.key()) {
                let trail = Rc::new(Trail(what, trail.clone()));
                level.push_back((after, Some(trail)));
            }
        }
    }
    Ok(seen.len())
}

/// One session on a follower of three servers.
fn small() -> Setting {
    Setting {
        servers: 3,
        origins: vec![1],
        timeout: 2,
        elections: 1,
        frames: 1,
        pings: 1,
        writes: 0,
        keeps_stale: false,
        mistake: None,
    }
}

fn is_whole() -> bool {
    std::env::var("BATON_TOUCH_MODEL").is_ok_and(|value| value == "whole")
}

fn sound(setting: &Setting) {
    match explore(setting) {
        Ok(states) => eprintln!("{setting:?}: {states} states, all sound"),
        Err(story) => panic!("the session ends before the lease, {setting:?}: {story}"),
    }
}

fn wrong(mistake: SeededBug, setting: Setting) {
    let setting = Setting {
        mistake: Some(mistake),
        ..setting
    };
    let found = explore(&setting);
    let story = found.expect_err(&format!(
        "the model does not find that {mistake:?} is wrong"
    ));
    eprintln!("{mistake:?} is wrong: {story}");
}

#[test]
fn r33_an_answered_ping_keeps_the_session_for_its_timeout_on_a_follower() {
    sound(&small());
}

#[test]
fn r33_an_answered_ping_keeps_the_session_for_its_timeout_on_the_leader() {
    let setting = Setting {
        origins: vec![0],
        ..small()
    };
    sound(&setting);
}

#[test]
fn r33_an_answered_ping_keeps_the_session_for_its_timeout_among_two_servers() {
    for origin in [0, 1] {
        let setting = Setting {
            servers: 2,
            origins: vec![origin],
            pings: 2,
            ..small()
        };
        sound(&setting);
    }
}

#[test]
fn r35_r36_an_answered_write_keeps_the_session_for_its_timeout() {
    let setting = Setting {
        servers: 2,
        writes: 1,
        ..small()
    };
    sound(&setting);
}

#[test]
fn r33_the_whole_model_is_sound() {
    if !is_whole() {
        return;
    }
    for origins in [vec![0], vec![1], vec![0, 1], vec![1, 2]] {
        let is_one = origins.len() == 1;
        let one = |more: u8| if is_one { more } else { 1 };
        let setting = Setting {
            origins,
            elections: one(2),
            frames: one(2).into(),
            pings: one(2).into(),
            ..small()
        };
        sound(&setting);
        if is_one {
            let writes = 1;
            sound(&Setting {
                writes,
                pings: 1,
                ..setting.clone()
            });
            let keeps_stale = true;
            sound(&Setting {
                keeps_stale,
                elections: 1,
                pings: 1,
                ..setting
            });
        }
    }
}

#[test]
fn r33_the_model_finds_b06_b07_and_b08_wrong() {
    wrong(SeededBug::B07FollowerAnswers, small());
    // On the leader: the server of its client has not elected the next one.
    let setting = Setting {
        origins: vec![0],
        ..small()
    };
    wrong(SeededBug::B08NoRound, setting.clone());
    wrong(SeededBug::B06EarlierRound, setting);
    let setting = Setting {
        servers: 2,
        elections: 0,
        frames: 2,
        keeps_stale: true,
        ..small()
    };
    wrong(SeededBug::AnyBatch, setting);
}

#[test]
fn r35_the_model_finds_b05_and_b10_wrong() {
    wrong(SeededBug::B10OldClocks, small());
    wrong(SeededBug::B05CountsBeforeOwnEntry, small());
}

#[test]
fn r36_the_model_finds_b11_wrong_and_a_touch_behind_the_decision() {
    wrong(SeededBug::B11ForwardedEnd, small());
    wrong(SeededBug::CountsEnding, small());
}

#[test]
fn r37_the_model_finds_a_write_that_is_no_touch_wrong() {
    let setting = Setting {
        servers: 2,
        writes: 1,
        elections: 0,
        ..small()
    };
    wrong(SeededBug::WriteNotCounted, setting);
}
