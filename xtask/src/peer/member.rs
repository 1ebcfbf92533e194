//! Baton's side of a mixed group: a process that takes part with this library. Run as
//! `xtask member` by the group's driver.
//!
//! It acts only under a guard that has just said yes, and reports the instant *before* it asked:
//! whatever it claims, the guard vouches for. It must never claim anything else.

mod items;
mod turns;
mod values;

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton::{Client, Config};
use tokio::sync::mpsc;

use super::nanos;
use crate::Result;
use items::Items;
use turns::{HeldTurn, TurnKind};
use values::Values;

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
    runtime.block_on(Participation::open(Arc::new(member))?.obey_all())
}

/// Reason why nothing is held.
enum MemberFailure {
    Refused(String),
    Other(String),
}

enum Recipe {
    Turns(TurnKind),
    Items(Items),
    Values(Values),
}

/// One participant and what it holds.
struct Participation {
    member: Arc<Member>,
    recipe: Recipe,
    held: Arc<tokio::sync::Mutex<Option<HeldTurn>>>,
    stopped: Arc<AtomicBool>,
}

impl Participation {
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
                Err(MemberFailure::Refused(why)) => say("refused", nanos(), why),
                Err(MemberFailure::Other(why)) => {
                    say("error", nanos(), format!("{command}: {why}"))
                }
            }
        }
        Ok(())
    }

    async fn obey(&self, words: &[&str]) -> std::result::Result<(), MemberFailure> {
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
                    held.release().await;
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
                        .map_err(|error| MemberFailure::Other(error.to_string()))?;
                    tokio::spawn(async move {
                        if let Recipe::Turns(turns) = &part.recipe
                            && let Err(MemberFailure::Refused(why) | MemberFailure::Other(why)) =
                                rounds(turns, lane, times, &stopped).await
                        {
                            say("error", nanos(), format!("lane {lane}: {why}"));
                        }
                    });
                }
            }
            (["put", item], Recipe::Items(items)) => {
                items.put(item.as_bytes()).await.map_err(other)?;
                say("put", nanos(), item);
            }
            (["drain"], Recipe::Items(items)) => {
                self.stopped.store(false, Ordering::Release);
                while !self.stopped.load(Ordering::Acquire) {
                    match items.poll().await.map_err(other)? {
                        Some(item) => say("item", nanos(), item),
                        None => tokio::time::sleep(Duration::from_millis(5)).await,
                    }
                }
                say("done", nanos(), "drain");
            }
            ([command, rest @ ..], Recipe::Values(values)) => {
                let result = values.run(command, rest.first()).await?;
                say("done", nanos(), format!("{command} {result}"));
            }
            _ => {
                return Err(MemberFailure::Other(
                    "no such command for this recipe".to_owned(),
                ));
            }
        }
        Ok(())
    }
}

fn other(error: impl std::fmt::Display) -> MemberFailure {
    MemberFailure::Other(error.to_string())
}

fn number(text: &str) -> std::result::Result<u64, MemberFailure> {
    text.parse().map_err(other)
}

/// `baton-lock:kazoo` and the like: the recipe, and whose names.
fn recipe(client: &Client, member: &Member) -> Result<Recipe> {
    let (recipe, names) = member
        .recipe
        .split_once(':')
        .unwrap_or((&member.recipe, ""));
    let (path, name) = (member.path.as_str(), member.name.as_str());
    if let Some(turns) = TurnKind::open(client, recipe, names, path, name)? {
        return Ok(Recipe::Turns(turns));
    }
    if let Some(items) = Items::open(client, recipe, names, path)? {
        return Ok(Recipe::Items(items));
    }
    Ok(Recipe::Values(Values::open(
        client, recipe, names, path, name,
    )?))
}

/// Acts every so often for as long as the guard says yes.
async fn act(
    held: Arc<tokio::sync::Mutex<Option<HeldTurn>>>,
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

/// Turns until stopped. A guard that was lost is not an error: the next turn begins at the end of
/// the line.
async fn rounds(
    turns: &TurnKind,
    lane: u64,
    (hold_ms, think_ms): (u64, u64),
    stopped: &AtomicBool,
) -> std::result::Result<(), MemberFailure> {
    let mut rng = fastrand::Rng::with_seed(nanos() ^ (lane << 40));
    while !stopped.load(Ordering::Acquire) {
        let held = turns.acquire().await?;
        let begun = nanos();
        if held.check().is_err() {
            continue;
        }
        say("enter", begun, lane);
        let until = begun + rng.u64(..=hold_ms * 1_000_000);
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
        held.release().await;
        let pause = Duration::from_nanos(rng.u64(..=think_ms * 1_000_000));
        tokio::time::sleep(pause).await;
    }
    Ok(())
}
