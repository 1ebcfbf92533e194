//! `baton top`: who holds, who waits and why, in a terminal.
//!
//! The survey is `baton_console`'s, as for the page; here are its tables and the keys.
//!
//! | module | owns |
//! |---|---|
//! | `terminal` | the terminal: taken, given back however this process ends, its keys |
//! | `draw` | what is where on the screen, and what is said where it is too small |
//! | `view` | what the user looks at: table, order, search, line; what each key does |
//! | `details` | what is shown of one line when it is unfolded |
//! | `tables` | the tables, from the survey to cells |
//! | `cell` | a cell: its text, its place in the order; ages, rates, names that others chose |
//! | `follow` | the survey, kept current |

mod cell;
mod details;
mod draw;
mod follow;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_current_process_group};
use tokio::sync::watch;

use self::draw::{Head, Palette};
use self::follow::{Servers, Tree};
use self::terminal::{Input, Screen};
use self::view::{Outcome, View};
use crate::connection::{Connection, LASTING};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::output::is_dumb;
use crate::servers::words::ServerWords;
use crate::signals::{self, Signals};

/// Show who holds, who waits and why, live in this terminal.
///
/// Locks, elections, queues, semaphores, barriers, members, sessions, servers and deadlocks: sorted
/// tables, each line unfolded by Enter. It changes nothing. Works with Baton and with Apache
/// ZooKeeper.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton top
  baton top --servers zk1:2181,zk2:2181 --interval 5s
  baton top --context prod

Keys: 1 to 7 or Tab another table   s S another order   r reverse   / search
      Enter unfold a line   ? all keys   q quit
Without a terminal, use baton lock ls --json or baton deadlocks --json; for a
page in the browser, baton console.
Exit codes: 0 left by q   130 by Ctrl-C   125 baton failed   2 usage")]
pub(crate) struct Args {
    /// The shortest time between two reads of the tree.
    #[arg(long, value_name = "DUR", value_parser = duration::parse_some, default_value = "1s")]
    interval: Duration,
}

/// A shorter interval would be work without a use.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Between two drawings while nothing happens: ages grow.
const TICK: Duration = Duration::from_secs(1);
/// A connection that is lost for less is not mentioned.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if context.globals.json {
        return Err(Failure::usage(
            "baton top draws on a terminal and has no --json; use baton lock ls --json or baton deadlocks --json",
        ));
    }
    for (stream, is_terminal) in [
        ("standard input", std::io::stdin().is_terminal()),
        ("standard output", std::io::stdout().is_terminal()),
    ] {
        if !is_terminal {
            return Err(Failure::usage(format!(
                "{stream} is not a terminal; baton top needs one: use baton lock ls or baton deadlocks in a script, baton console for a \
                 page in the browser"
            )));
        }
    }
    if is_dumb() {
        return Err(Failure::usage(
            "the terminal knows no control sequences (TERM); set TERM to what it is, or use baton lock ls or baton console",
        ));
    }
    context.block_on(async {
        let mut signals = Signals::new()?;
        Connection::during(context, LASTING, async |connection: &Connection| {
            show(args, context, connection, &mut signals).await
        })
        .await
    })?
}

async fn show(
    args: &Args,
    context: &Context,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let interval = args.interval.max(SHORTEST_INTERVAL);
    let (trees, mut tree) = watch::channel(Tree::default());
    let (all_servers, mut servers) = watch::channel(Servers::default());
    let words = ServerWords::new(&connection.client, &connection.servers, connection.tls());
    let client = connection.client.clone();
    // They end with the runtime.
    tokio::spawn(async move { follow::tree(&client, interval, &trees).await });
    tokio::spawn(async move { follow::servers(&words, interval, &all_servers).await });

    let palette = Palette::new(context.output.uses_color());
    let mut view = View::default();
    let mut cut_off = CutOff::default();
    let mut continued = signals::continued()?;
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let _kept = context.output.take_screen();
    let mut screen = Screen::take()?;
    let mut input = Input::start();
    loop {
        let head = Head {
            servers: &connection.servers,
            cut_off: cut_off.since(connection),
        };
        {
            let (tree, servers) = (tree.borrow_and_update(), servers.borrow_and_update());
            view.fill(&tree, &servers);
            screen.draw(|buffer| draw::all(buffer, &mut view, &tree, &servers, &head, palette))?;
        }
        let outcome = tokio::select! {
            number = signals.next() => match number {
                number if signals::is_stop(number) => return Ok(signals::ended_by(number)),
                _ => Outcome::Redraw,
            },
            failure = connection.failed() => return Err(failure),
            key = input.next() => view.key(key?),
            Ok(()) = tree.changed() => Outcome::Redraw,
            Ok(()) = servers.changed() => Outcome::Redraw,
            Some(()) = continued.recv() => Outcome::Retake,
            _ = tick.tick() => Outcome::Redraw,
        };
        match outcome {
            Outcome::Redraw => {}
            Outcome::Retake => screen.take_again()?,
            Outcome::Suspend => {
                screen.give_back();
                terminal::stop_process();
                screen.take_again()?;
            }
            Outcome::Leave => return Ok(exit::OK),
            Outcome::Interrupt => {
                // Another terminal mode would have sent it to the whole job.
                let _ = kill_current_process_group(Signal::INT);
                return Ok(signals::ended_by(signals::INTERRUPT));
            }
        }
    }
}

/// Since when no server answers.
#[derive(Default)]
struct CutOff(Option<Instant>);

impl CutOff {
    /// For how long no server answers, if that is worth mentioning.
    fn since(&mut self, connection: &Connection) -> Option<Duration> {
        let session = connection.client.newest();
        let silent = match session {
            Some(session) if session.state().is_connected() => {
                self.0 = None;
                session.unanswered_for()
            }
            _ => self.0.get_or_insert_with(Instant::now).elapsed(),
        };
        (silent >= PATIENCE).then_some(silent)
    }
}
