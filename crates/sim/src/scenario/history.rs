//! Plain operations of many clients, as a history that must make sense: appends to a journal, sets
//! and reads of registers, watches, ephemerals. For the servers of an ensemble, under
//! sessions that move between them. What must hold of it is in `records`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_client::{CreateMode, CreatedNode, Data, Error, Session, Stat, Watch};
use baton_testkit::history::{Act, CreatedZnode, Outcome};

use super::Scenario;
use super::records::{EPHEMERALS, JOURNAL, REGISTERS, Records, register, version};
use crate::stage::Stage;

/// Number of clients, and the most operations of each.
const CLIENTS: usize = 4;
const ROUNDS: usize = 150;
/// Short sessions end while a leader is alone; long ones outlive most faults.
const TIMEOUTS_MS: &[u64] = &[1_000, 1_000, 1_500, 2_500, 4_000];
/// The most operations that a client sends at once.
const BURST: u64 = 6;
/// The most writes of a stream, nearly: it goes on while leadership moves away and back.
const STREAM: u64 = 24;
/// After everything is whole again, until everything must have come to rest.
const REST_MS: u64 = 14_000;

/// The scenario.
#[must_use]
pub fn history() -> Scenario {
    let keeps = |path: &str| path == "/h" || path.starts_with("/h/");
    let watches = |path: &str| path.starts_with("/h/");
    Scenario {
        watches,
        timeouts_ms: TIMEOUTS_MS,
        ..Scenario::new("history", CLIENTS, |stage| Box::pin(play(stage))).keeps(keeps)
    }
}

/// Prevalent operations of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientProfile {
    /// A bit of everything, without long pauses.
    Works,
    /// Reads, which servers answer alone.
    Reads,
    /// Writes that do not wait for each other, some time apart: batches of one session follow each
    /// other.
    Streams,
    /// Does nothing for a long time, so that its session lives on pings.
    Rests,
}

impl ClientProfile {
    fn draw(stage: &Stage) -> Self {
        match stage.below(8) {
            0..4 => Self::Works,
            4 => Self::Reads,
            5 | 6 => Self::Streams,
            _ => Self::Rests,
        }
    }
}

/// Memory of one client.
struct Actor {
    stage: Stage,
    number: usize,
    records: Arc<Mutex<Records>>,
    tags: usize,
    /// The session that it had last.
    session: i64,
    habit: ClientProfile,
    /// The most milliseconds between two writes of a stream.
    apart_ms: u64,
    watches: Vec<ArmedWatch>,
    /// The session and the birth of the ephemeral node that this client has.
    ephemeral: Option<(i64, i64)>,
}

/// A watch on a register, and the version that it was set at.
struct ArmedWatch {
    session: i64,
    register: usize,
    version: i32,
    watch: Watch,
}

async fn play(stage: Stage) {
    for path in ["/h", JOURNAL, EPHEMERALS] {
        stage.ensure(0, path).await;
    }
    for number in 0..REGISTERS {
        stage.ensure(0, &register(number)).await;
    }
    let records = Arc::new(Mutex::new(Records::new()));
    let usual = match stage.below(6) {
        0 => Some(ClientProfile::Works),
        1 => Some(ClientProfile::Streams),
        _ => None,
    };
    let act = |stage: Stage, number: usize| {
        let actor = Actor {
            number,
            records: Arc::clone(&records),
            tags: 0,
            session: 0,
            habit: usual.unwrap_or_else(|| ClientProfile::draw(&stage)),
            apart_ms: [5, 30, 90, 250, 700]
                .get(below(&stage, 5))
                .copied()
                .unwrap_or(30),
            stage,
            watches: Vec::new(),
            ephemeral: None,
        };
        actor.act()
    };
    stage.crew(CLIENTS, act).await;
    stage.calm();
    stage.pause(REST_MS).await;
    let Some(state) = stage.final_state().await else {
        return;
    };
    let records = records.lock().unwrap_or_else(PoisonError::into_inner);
    records.judge(&stage, &state);
}

/// Returns the outcome of an operation.
fn outcome<T, U>(result: &Result<T, Error>, done: impl FnOnce(&T) -> U) -> Outcome<U> {
    match result {
        Ok(value) => Outcome::Done(done(value)),
        Err(Error::Rejected { .. } | Error::NotSent { .. }) => Outcome::NotDone,
        Err(_) => Outcome::Unknown,
    }
}

fn created(result: &Result<CreatedNode, Error>) -> Act {
    Act::Create(outcome(result, |created| CreatedZnode {
        name: created.path.clone(),
        zxid: created.stat.czxid,
    }))
}

fn set(register: usize, result: &Result<Stat, Error>) -> Act {
    let outcome = outcome(result, version);
    Act::Set { register, outcome }
}

fn read(register: usize, is_synced: bool, result: &Result<Data, Error>) -> Act {
    Act::Read {
        register,
        is_synced,
        outcome: outcome(result, |data| (version(&data.stat), text(&data.data))),
    }
}

/// An operation of which nothing is known yet.
const fn unknown_set(register: usize) -> Act {
    Act::Set {
        register,
        outcome: Outcome::Unknown,
    }
}

const fn unknown_read(register: usize, is_synced: bool) -> Act {
    Act::Read {
        register,
        is_synced,
        outcome: Outcome::Unknown,
    }
}

impl Actor {
    fn begin(&self, session: &Session, value: &str, act: Act) -> usize {
        self.records().begin(session.id(), value.to_owned(), act)
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn act(mut self) {
        for _ in 0..ROUNDS {
            if self.stage.is_calm() {
                break;
            }
            let Ok(session) = self.stage.client(self.number).session().await else {
                self.stage.pause(100).await;
                continue;
            };
            if std::mem::replace(&mut self.session, session.id()) != session.id() {
                self.stage.expects_lease_to_hold(self.number, &session);
            }
            match self.habit {
                ClientProfile::Works => self.work(&session).await,
                ClientProfile::Streams if self.stage.below(5) > 0 => self.stream(&session).await,
                ClientProfile::Reads if self.stage.below(10) > 0 => {
                    let number = below(&self.stage, REGISTERS);
                    self.read(&session, number).await;
                    self.stage.pause(20 + self.stage.below(200)).await;
                }
                ClientProfile::Rests if self.stage.below(4) > 0 => {
                    let timeout_ms = session.timeout().as_millis().try_into().unwrap_or(4_000);
                    self.stage.pause(self.stage.below(2 * timeout_ms)).await;
                }
                _ => self.work(&session).await,
            }
        }
        while !self.stage.is_calm() {
            self.stage.pause(100).await;
        }
        self.stage.pause(REST_MS).await;
        self.judge_watches().await;
    }

    /// A bit of everything.
    async fn work(&mut self, session: &Session) {
        match self.stage.below(100) {
            0..55 => self.burst(session).await,
            55..70 => self.compare_and_set(session).await,
            70..80 => self.synced_read(session).await,
            80..88 => self.watch(session).await,
            _ => self.touch_ephemeral(session).await,
        }
        self.stage.pause(self.stage.below(80)).await;
        if self.stage.below(4) == 0 {
            self.stage.pause(self.stage.below(400)).await;
        }
    }

    fn tag(&mut self) -> String {
        self.tags += 1;
        format!("c{}.{}", self.number, self.tags)
    }

    /// Operations that are on their way at once.
    async fn burst(&mut self, session: &Session) {
        let mut appends = Vec::new();
        let mut sets = Vec::new();
        let mut reads = Vec::new();
        for _ in 0..=self.stage.below(BURST) {
            let tag = self.tag();
            let number = below(&self.stage, REGISTERS);
            match self.stage.below(10) {
                0..6 => {
                    let record = self.begin(session, &tag, Act::Create(Outcome::Unknown));
                    let path = format!("{JOURNAL}/e-");
                    let mode = CreateMode::PersistentSequential;
                    appends.push((record, session.create(&path, tag.as_bytes(), mode)));
                }
                6..8 => {
                    let record = self.begin(session, &tag, unknown_set(number));
                    let pending = session.set_data(&register(number), tag.as_bytes(), None);
                    sets.push((record, number, pending));
                }
                _ => {
                    let record = self.begin(session, &tag, unknown_read(number, false));
                    reads.push((record, number, session.get_data(&register(number))));
                }
            }
        }
        for (record, pending) in appends {
            let result = pending.await;
            self.records().end(record, created(&result));
        }
        for (record, number, pending) in sets {
            let result = pending.await;
            self.records().end(record, set(number, &result));
        }
        for (record, number, pending) in reads {
            let result = pending.await;
            self.records().end(record, read(number, false, &result));
            self.has_read(session, number, &result).await;
        }
    }

    /// Appends that do not wait for each other, some time apart.
    async fn stream(&mut self, session: &Session) {
        let mut appends = Vec::new();
        for _ in 0..2 + self.stage.below(STREAM) {
            let tag = self.tag();
            let record = self.begin(session, &tag, Act::Create(Outcome::Unknown));
            let path = format!("{JOURNAL}/e-");
            let mode = CreateMode::PersistentSequential;
            appends.push((record, session.create(&path, tag.as_bytes(), mode)));
            self.stage.pause(self.stage.below(self.apart_ms)).await;
        }
        for (record, pending) in appends {
            let result = pending.await;
            self.records().end(record, created(&result));
        }
    }

    async fn compare_and_set(&mut self, session: &Session) {
        let number = below(&self.stage, REGISTERS);
        let Some(before) = self.read(session, number).await else {
            return;
        };
        let tag = self.tag();
        let record = self.begin(session, &tag, unknown_set(number));
        let pending = session.set_data(&register(number), tag.as_bytes(), Some(before));
        let result = pending.await;
        if let Ok(stat) = &result
            && stat.version != before + 1
        {
            self.stage.fail(&format!(
                "a set of version {before} made version {}",
                stat.version
            ));
        }
        self.records().end(record, set(number, &result));
    }

    async fn synced_read(&mut self, session: &Session) {
        let number = below(&self.stage, REGISTERS);
        let path = register(number);
        let tag = self.tag();
        let record = self.begin(session, &tag, unknown_read(number, true));
        let (sync, pending) = (session.sync(&path), session.get_data(&path));
        let synced = sync.await.is_ok();
        let result = pending.await;
        if synced {
            self.records().end(record, read(number, true, &result));
            self.has_read(session, number, &result).await;
        }
    }

    /// Reads a register; its version.
    async fn read(&mut self, session: &Session, number: usize) -> Option<i32> {
        let tag = self.tag();
        let record = self.begin(session, &tag, unknown_read(number, false));
        let result = session.get_data(&register(number)).await;
        self.records().end(record, read(number, false, &result));
        self.has_read(session, number, &result).await;
        result.ok().map(|data| data.stat.version)
    }

    async fn watch(&mut self, session: &Session) {
        let number = below(&self.stage, REGISTERS);
        if let Ok((data, watch)) = session.get_data_watch(&register(number)).await {
            let version = data.stat.version;
            self.has_read(session, number, &Ok(data)).await;
            self.watches.push(ArmedWatch {
                session: session.id(),
                register: number,
                version,
                watch,
            });
        }
    }

    /// A read has shown this version: of each watch that was set at an older one, the event has
    /// come before.
    async fn has_read(&mut self, session: &Session, number: usize, result: &Result<Data, Error>) {
        let Ok(data) = result else {
            return;
        };
        let version = data.stat.version;
        let mut kept = Vec::new();
        for mut watched in std::mem::take(&mut self.watches) {
            if (watched.session, watched.register) != (session.id(), number) {
                kept.push(watched);
                continue;
            }
            let event = watched.watch.try_event();
            let before = watched.version;
            match event {
                None if version > before => self.stage.fail(&format!(
                    "client {} sees version {version} of register {number}, and no event of its watch at version \
                     {before}",
                    self.number
                )),
                None => kept.push(watched),
                // It may have come after the read's answer.
                Some(Ok(_)) => {
                    let read = session.get_data(&register(number)).await;
                    let now = read.map(|data| data.stat.version);
                    self.stage.expect(!now.is_ok_and(|now| now <= before), || {
                        format!(
                            "client {} has an event of register {number}, which is at version {before} still",
                            self.number
                        )
                    });
                }
                Some(Err(_)) => {}
            }
        }
        self.watches = kept;
    }

    /// At rest: a watch has fired if and only if its register has changed.
    async fn judge_watches(&mut self) {
        let Ok(session) = self.stage.client(self.number).session().await else {
            return;
        };
        for number in 0..REGISTERS {
            let path = register(number);
            let (sync, read) = (session.sync(&path), session.get_data(&path));
            if sync.await.is_ok() {
                let result = read.await;
                self.has_read(&session, number, &result).await;
            }
        }
    }

    /// Makes, looks at or deletes this client's ephemeral node.
    async fn touch_ephemeral(&mut self, session: &Session) {
        let path = format!("{EPHEMERALS}/c{}", self.number);
        let Some((owner, czxid)) = self.ephemeral.filter(|(owner, _)| *owner == session.id())
        else {
            let made = session.create(&path, b"", CreateMode::Ephemeral).await;
            self.ephemeral = made.ok().map(|made| (session.id(), made.stat.czxid));
            return;
        };
        if self.stage.below(3) == 0 {
            self.ephemeral = None;
            // One that may be there still goes with its session.
            let _ = session.delete(&path, None).await;
            return;
        }
        match session.exists(&path).await {
            Ok(Some(stat)) if (stat.ephemeral_owner, stat.czxid) == (owner, czxid) => {}
            Ok(seen) => {
                self.ephemeral = None;
                self.stage.fail(&format!(
                    "client {} misses its ephemeral node of zxid {czxid}: {seen:?}",
                    self.number
                ));
            }
            Err(_) => {}
        }
    }
}

fn below(stage: &Stage, bound: usize) -> usize {
    usize::try_from(stage.below(bound as u64)).unwrap_or(0)
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}
