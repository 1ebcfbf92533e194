//! Baton's side of a mixed group: a process that takes part with this library. Run as `xtask member` by the group's driver.
//!
//! It acts only under a guard that has just said yes, and reports the instant *before* it asked: whatever it claims, the guard
//! vouches for. It must never claim anything else.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton::{
    Client, Config, Dialect, DistributedQueue, ElectionError, Guard, LeaderElection, Leadership,
    LockError, LostReason, Mutex, ReleaseError,
};
use tokio::sync::mpsc;

use super::nanos;
use crate::Result;

/// Take part in a recipe, as the standard input says.
#[derive(Debug, clap::Args)]
pub(crate) struct Member {
    servers: String,
    recipe: String,
    path: String,
    name: String,
    timeout_ms: u64,
}

fn say(what: &str, nanos: u64, rest: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    // The driver has gone: so will this process.
    let _ = writeln!(out, "{what} {nanos} {rest}").and_then(|()| out.flush());
}

/// Takes part until the standard input ends.
pub(crate) fn take_part(member: Member) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(Part::open(Arc::new(member))?.obey_all())
}

/// Something that is held by a limited number at a time.
enum Turns {
    Lock(Mutex),
    Election(LeaderElection),
}

/// The proof of holding it.
enum Held {
    Guard(Guard),
    Term(Leadership),
}

impl Held {
    fn check(&self) -> std::result::Result<(), LostReason> {
        match self {
            Self::Guard(guard) => guard.check(),
            Self::Term(term) => term.check(),
        }
    }

    async fn release(self) -> std::result::Result<(), ReleaseError> {
        match self {
            Self::Guard(guard) => guard.release().await,
            Self::Term(term) => term.resign().await,
        }
    }
}

/// Why nothing is held.
enum Failed {
    Refused(String),
    Other(String),
}

impl From<LockError> for Failed {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Foreign { .. } => Self::Refused(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

impl From<ElectionError> for Failed {
    fn from(error: ElectionError) -> Self {
        match error {
            ElectionError::Line(error) => error.into(),
            _ => Self::Other(error.to_string()),
        }
    }
}

impl Turns {
    async fn acquire(&self) -> std::result::Result<Held, Failed> {
        Ok(match self {
            Self::Lock(mutex) => Held::Guard(mutex.acquire().await?),
            Self::Election(election) => Held::Term(election.campaign().await?),
        })
    }
}

enum Recipe {
    Turns(Turns),
    Queue(DistributedQueue),
}

/// One participant and what it holds.
struct Part {
    member: Arc<Member>,
    recipe: Recipe,
    held: Arc<tokio::sync::Mutex<Option<Held>>>,
    stopped: Arc<AtomicBool>,
}

impl Part {
    fn open(member: Arc<Member>) -> Result<Self> {
        let config = Config::new(&member.servers)?
            .session_timeout(Duration::from_millis(member.timeout_ms))
            .connect_within(Duration::from_secs(30));
        let client = Client::lazy(config);
        Ok(Self {
            recipe: recipe(&client, &member)?,
            member,
            held: Arc::default(),
            stopped: Arc::default(),
        })
    }

    async fn obey_all(self) -> Result<()> {
        let (sender, mut commands) = mpsc::unbounded_channel::<String>();
        let stopped = Arc::clone(&self.stopped);
        std::thread::spawn(move || {
            for line in std::io::stdin()
                .lock()
                .lines()
                .map_while(std::io::Result::ok)
            {
                if line == "stop" {
                    stopped.store(true, Ordering::Release);
                } else if sender.send(line).is_err() {
                    break;
                }
            }
            std::process::exit(0);
        });
        say("ready", nanos(), "");
        while let Some(command) = commands.recv().await {
            let words: Vec<&str> = command.split_whitespace().collect();
            match self.obey(&words).await {
                Ok(()) => {}
                Err(Failed::Refused(why)) => say("refused", nanos(), why),
                Err(Failed::Other(why)) => say("error", nanos(), format!("{command}: {why}")),
            }
        }
        Ok(())
    }

    async fn obey(&self, words: &[&str]) -> std::result::Result<(), Failed> {
        match (words, &self.recipe) {
            (["acquire"], Recipe::Turns(turns)) => {
                let held = turns.acquire().await?;
                let now = nanos();
                if held.check().is_ok() {
                    say("enter", now, 0);
                }
                *self.held.lock().await = Some(held);
            }
            (["release"], Recipe::Turns(_)) => {
                if let Some(held) = self.held.lock().await.take() {
                    let now = nanos();
                    let what = if held.check().is_ok() {
                        "leave"
                    } else {
                        "lost"
                    };
                    say(what, now, 0);
                    let _ = held.release().await;
                }
                say("released", nanos(), 0);
            }
            (["held"], Recipe::Turns(_)) => {
                let held = self.held.lock().await;
                let yes = held.as_ref().is_some_and(|held| held.check().is_ok());
                say("held", nanos(), yes);
            }
            (["act", _, millis], Recipe::Turns(_)) => {
                let interval = Duration::from_millis(number(millis)?);
                tokio::spawn(act(
                    Arc::clone(&self.held),
                    Arc::clone(&self.stopped),
                    interval,
                ));
            }
            (["loop", hold, think], Recipe::Turns(turns)) => {
                self.stopped.store(false, Ordering::Release);
                let times = (number(hold)?, number(think)?);
                rounds(turns, 0, times, &self.stopped).await?;
                say("done", nanos(), "loop");
            }
            (["crowd", size, hold, think], Recipe::Turns(_)) => {
                let times = (number(hold)?, number(think)?);
                for lane in 0..number(size)? {
                    let stopped = Arc::clone(&self.stopped);
                    let part = Self::open(Arc::clone(&self.member))
                        .map_err(|error| Failed::Other(error.to_string()))?;
                    tokio::spawn(async move {
                        if let Recipe::Turns(turns) = &part.recipe
                            && let Err(Failed::Refused(why) | Failed::Other(why)) =
                                rounds(turns, lane, times, &stopped).await
                        {
                            say("error", nanos(), format!("lane {lane}: {why}"));
                        }
                    });
                }
            }
            (["put", item], Recipe::Queue(queue)) => {
                queue.offer(item.as_bytes()).await.map_err(other)?;
                say("put", nanos(), item);
            }
            (["take", millis], Recipe::Queue(queue)) => {
                let limit = Duration::from_millis(number(millis)?);
                match tokio::time::timeout(limit, queue.take()).await {
                    Ok(item) => {
                        let item = item.map_err(other)?;
                        say("item", nanos(), String::from_utf8_lossy(&item));
                    }
                    Err(_) => say("empty", nanos(), ""),
                }
            }
            (["drain"], Recipe::Queue(queue)) => {
                self.stopped.store(false, Ordering::Release);
                while !self.stopped.load(Ordering::Acquire) {
                    match queue.poll().await.map_err(other)? {
                        Some(item) => say("item", nanos(), String::from_utf8_lossy(&item)),
                        None => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                }
                say("done", nanos(), "drain");
            }
            _ => return Err(Failed::Other("no such command for this recipe".to_owned())),
        }
        Ok(())
    }
}

fn other(error: impl std::fmt::Display) -> Failed {
    Failed::Other(error.to_string())
}

fn number(text: &str) -> std::result::Result<u64, Failed> {
    text.parse().map_err(other)
}

/// `baton-lock:kazoo` and the like: the recipe, and whose names.
fn recipe(client: &Client, member: &Member) -> Result<Recipe> {
    let (recipe, dialect) = member
        .recipe
        .split_once(':')
        .unwrap_or((&member.recipe, ""));
    let path = &member.path;
    Ok(match recipe {
        "baton-lock" => {
            let mutex = Mutex::new(client, path)?.name(&member.name);
            Recipe::Turns(Turns::Lock(mutex.dialect(dialect.parse::<Dialect>()?)))
        }
        "baton-election" => {
            let election = LeaderElection::new(client, path)?.name(&member.name);
            Recipe::Turns(Turns::Election(
                election.dialect(dialect.parse::<Dialect>()?),
            ))
        }
        "baton-queue" => Recipe::Queue(DistributedQueue::new(client, path)?),
        _ => return Err(format!("no recipe {recipe}").into()),
    })
}

/// Acts every so often for as long as the guard says yes.
async fn act(
    held: Arc<tokio::sync::Mutex<Option<Held>>>,
    stopped: Arc<AtomicBool>,
    interval: Duration,
) {
    stopped.store(false, Ordering::Release);
    while !stopped.load(Ordering::Acquire) {
        let held = held.lock().await;
        let now = nanos();
        if held.as_ref().is_none_or(|held| held.check().is_err()) {
            break;
        }
        say("act", now, 0);
        drop(held);
        tokio::time::sleep(interval).await;
    }
    say("done", nanos(), "act");
}

/// Turns until stopped. A guard that was lost is no error: the next turn begins at the end of the line.
async fn rounds(
    turns: &Turns,
    lane: u64,
    (hold_ms, think_ms): (u64, u64),
    stopped: &AtomicBool,
) -> std::result::Result<(), Failed> {
    let mut seed = nanos() ^ (lane << 40);
    while !stopped.load(Ordering::Acquire) {
        let held = turns.acquire().await?;
        let begun = nanos();
        if held.check().is_err() {
            continue;
        }
        say("enter", begun, lane);
        let until = begun + random(&mut seed, hold_ms * 1_000_000);
        loop {
            let now = nanos();
            if held.check().is_err() {
                say("lost", now, lane);
                break;
            }
            if now >= until {
                say("leave", now, lane);
                break;
            }
            say("act", now, lane);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Whether the release was confirmed is nothing to the register: the turn has ended before.
        let _ = held.release().await;
        let pause = Duration::from_nanos(random(&mut seed, think_ms * 1_000_000));
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

/// Up to `most`, xorshift.
pub(crate) fn random(seed: &mut u64, most: u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed % (most + 1)
}
