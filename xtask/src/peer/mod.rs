//! One process of one library that takes part in a recipe: started, sent its commands line by line,
//! and listened to.
//!
//! Baton, Curator, kazoo and zookeeper-recipes all speak the same lines, so that a group may be of
//! any mixture:
//!
//! | command | answers, each with the instant of CLOCK_MONOTONIC in ns |
//! |---|---|
//! | | `ready`; `notified WHAT`: its session is disturbed; `error WHAT`; `refused WHY` |
//! | `acquire`, `release` | `enter LANE`; `leave LANE` before the release, then `released LANE` |
//! | `held` | `held true`: what the library itself says |
//! | `act notified MS`, `act held MS` | `act LANE` while undisturbed, or while "held"; `done act` |
//! | `loop HOLD_MS THINK_MS` | turns until `stop` |
//! | `crowd N HOLD_MS THINK_MS` | the same by several lanes of the process at once |
//! | `put ITEM`; `drain`, until `stop` | `put ITEM` once it is in the tree; `item ITEM` for each |
//! | any other | `done COMMAND RESULT` |
//!
//! Only Baton says `refused`. In a `loop` Baton says `act` all the time, and `lost LANE` in place
//! of `leave`. A recipe whose name ends in `-retried` says `stuck WHY` when its library has hung or
//! failed, and acquires again.
//!
//! What it complains about goes to `xtask-peers.log` in the build's folder. It never touches a
//! process that it did not start; each ends with its owner, and when its standard input does.

mod launch;
pub(crate) mod member;
mod timeline;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::command::target_dir;
use crate::process::OwnedChild;

pub(crate) use launch::{python, require};
pub(crate) use timeline::{Rule, Tally};

/// Time that a peer may take to connect and say so: a JVM on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// CLOCK_MONOTONIC, which all peers read too.
pub(crate) fn nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or_default() * 1_000_000_000
        + u64::try_from(now.tv_nsec).unwrap_or_default()
}

/// One line from a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// Number of the peer in the log.
    pub(crate) peer: usize,
    /// The first word.
    pub(crate) what: String,
    /// Time at which it was true.
    pub(crate) nanos: u64,
    /// Rest of the line.
    pub(crate) rest: String,
}

impl Event {
    fn parse(peer: usize, line: &str) -> Option<Self> {
        let mut words = line.splitn(3, ' ');
        Some(Self {
            peer,
            what: words.next()?.to_owned(),
            nanos: words.next()?.parse().ok()?,
            rest: words.next().unwrap_or_default().trim().to_owned(),
        })
    }
}

/// Lines of all peers of a run, in the order of arrival.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<(Mutex<PeerEvents>, Condvar)>);

#[derive(Debug, Default)]
struct PeerEvents {
    /// The recipe of each peer.
    recipes: Vec<String>,
    events: Vec<Event>,
}

impl Log {
    fn add_peer(&self, recipe: &str) -> usize {
        let mut book = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.recipes.push(recipe.to_owned());
        book.recipes.len() - 1
    }

    fn add(&self, event: Event) {
        let (book, news) = &*self.0;
        book.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .events
            .push(event);
        news.notify_all();
    }

    /// Number of lines.
    pub(crate) fn len(&self) -> usize {
        let book = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.events.len()
    }

    /// Counts the lines that say this at or after this place in the log.
    pub(crate) fn count(&self, from: usize, what: &str) -> usize {
        let book = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let events = book.events.iter().skip(from);
        events.filter(|event| event.what == what).count()
    }

    /// All of it up to now.
    pub(crate) fn events(&self) -> Vec<Event> {
        let book = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.events.clone()
    }

    /// The recipe of each peer, by its number.
    pub(crate) fn recipes(&self) -> Vec<String> {
        let book = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        book.recipes.clone()
    }

    /// Waits for an event at or after this place in the log.
    pub(crate) fn wait(
        &self,
        from: usize,
        limit: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> Option<Event> {
        let end = Instant::now() + limit;
        let (book, news) = &*self.0;
        let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
        let mut looked_at = from;
        loop {
            if let Some(event) = book
                .events
                .iter()
                .skip(looked_at)
                .find(|event| wanted(event))
            {
                return Some(event.clone());
            }
            looked_at = book.events.len().max(from);
            let left = end.checked_duration_since(Instant::now())?;
            book = news
                .wait_timeout(book, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Returns who held when, and whether that is what the rule allows.
    pub(crate) fn tally(&self, rule: Rule) -> Tally {
        timeline::tally(&self.events(), &self.recipes(), rule)
    }
}

/// Peer to start.
#[derive(Debug, Clone)]
pub(crate) struct Spec<'a> {
    /// Servers, as a client names them.
    pub(crate) servers: &'a str,
    /// Its library and recipe, as `kazoo-lock` or `baton-lock:kazoo`.
    pub(crate) recipe: &'a str,
    pub(crate) path: &'a str,
    pub(crate) name: &'a str,
    /// The session's.
    pub(crate) timeout: Duration,
}

/// A running peer; it is killed when dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    id: usize,
    recipe: String,
    process: OwnedChild,
    commands: ChildStdin,
    log: Log,
    /// Answers are searched for behind the end that the log had when the command was sent.
    sent_at: usize,
}

impl Peer {
    /// Starts one and waits until its session is open.
    pub(crate) fn start(log: &Log, spec: &Spec<'_>) -> Result<Self> {
        let peer = Self::launch(log, spec)?;
        peer.await_ready()?;
        Ok(peer)
    }

    /// Starts one; its session opens meanwhile.
    pub(crate) fn launch(log: &Log, spec: &Spec<'_>) -> Result<Self> {
        let mut command = launch::command(spec)?;
        let complaints = File::options()
            .create(true)
            .append(true)
            .open(target_dir()?.join("xtask-peers.log"))?;
        let mut process = OwnedChild::start(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(complaints),
        )?;
        let (commands, lines) = (process.0.stdin.take(), process.0.stdout.take());
        let (Some(commands), Some(lines)) = (commands, lines) else {
            return Err("a peer has no pipes".into());
        };
        let id = log.add_peer(spec.recipe);
        let heard = log.clone();
        thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(std::io::Result::ok) {
                if let Some(event) = Event::parse(id, &line) {
                    heard.add(event);
                }
            }
            heard.add(Event {
                peer: id,
                what: "ended".to_owned(),
                nanos: nanos(),
                rest: String::new(),
            });
        });
        Ok(Self {
            id,
            recipe: spec.recipe.to_owned(),
            process,
            commands,
            log: log.clone(),
            sent_at: 0,
        })
    }

    /// Waits until its session is open.
    pub(crate) fn await_ready(&self) -> Result<()> {
        self.answer("ready", START_LIMIT).map(|_| ())
    }

    /// Its number in the log.
    pub(crate) fn id(&self) -> usize {
        self.id
    }

    /// Its library and recipe.
    pub(crate) fn recipe(&self) -> &str {
        &self.recipe
    }

    /// Sends it a command.
    pub(crate) fn send(&mut self, command: &str) -> Result<()> {
        self.sent_at = self.log.len();
        writeln!(self.commands, "{command}")
            .map_err(|error| format!("{} does not listen: {error}", self.recipe).into())
    }

    /// Returns the line that begins with `what` after the last command; a refusal or an error said
    /// instead is the error.
    pub(crate) fn answer(&self, what: &str, limit: Duration) -> Result<Event> {
        self.hear(what, limit)?
            .ok_or_else(|| format!("{} did not say '{what}' within {limit:?}", self.recipe).into())
    }

    /// `answer` with nothing if no line comes within the time.
    pub(crate) fn hear(&self, what: &str, limit: Duration) -> Result<Option<Event>> {
        const BAD: [&str; 3] = ["error", "refused", "ended"];
        let heard = self.log.wait(self.sent_at, limit, |event| {
            event.peer == self.id && (event.what == what || BAD.contains(&event.what.as_str()))
        });
        match heard {
            Some(bad) if bad.what != what => {
                Err(format!("{}: {} {}", self.recipe, bad.what, bad.rest).into())
            }
            heard => Ok(heard),
        }
    }

    /// Sends it a command and waits for the answer.
    pub(crate) fn ask(&mut self, command: &str, what: &str, limit: Duration) -> Result<Event> {
        self.send(command)?;
        self.answer(what, limit)
    }

    /// Ends it as a crash would; what it held ends now.
    pub(crate) fn kill(&mut self) {
        self.log.add(Event {
            peer: self.id,
            what: "killed".to_owned(),
            nanos: nanos(),
            rest: String::new(),
        });
        self.process.kill();
    }

    /// Stops it in its tracks until `resume`.
    pub(crate) fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.process.pid())?;
        let pid = Pid::from_raw(pid).ok_or("a process has no id")?;
        Ok(kill_process(pid, signal)?)
    }
}
