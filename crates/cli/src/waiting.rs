//! The display of a wait: who holds, since when, at which position this process
//! waits, and whether a server answers.
//!
//! On a terminal it is one line that is rewritten in place. Elsewhere it is a line, or with
//! `--json` an object, after two seconds and when something has changed, ever more rarely. It asks
//! the servers little: two or three requests at a time, the more seldom the longer the queue is, so
//! that all who wait in it together ask no more than ten times a second.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use baton::inspect::{Inspector, LockNode};
use baton::lock::WaitProgress;
use baton::{Client, DoubleBarrier};
use serde::Serialize;
use tokio::time::Instant;

use crate::duration;
use crate::output::Output;

/// Between two checks of the clock and the connection.
const TICK: Duration = Duration::from_millis(500);
/// A wait shorter than this is not shown on a terminal.
const SHORT: Duration = Duration::from_millis(400);
/// A wait shorter than this is not mentioned elsewhere; and a connection that is lost for less is
/// not mentioned anywhere.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two reads of the tree, for a short queue: on a terminal, and elsewhere.
const READ_EVERY: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];
/// Each waiter makes the time between two reads longer by this.
const READ_EVERY_PER_WAITER: Duration = Duration::from_millis(100);
/// A read that takes longer is given up: the display must go on.
const READ_LIMIT: Duration = Duration::from_secs(1);
/// Between the first two lines; doubled with each line, up to the other.
const LINE_EVERY: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(640)];

/// The thing that a verb waits for.
pub(crate) enum AwaitedEvent<'a> {
    /// A lock, a permit, or leadership.
    Turn {
        path: &'a str,
        role: Role,
        progress: WaitProgress,
    },
    /// The arrival of all participants at a barrier.
    Meeting {
        path: &'a str,
        count: u32,
        barrier: &'a DoubleBarrier,
    },
    /// The end of the other participants' work.
    Others { path: &'a str },
    /// The opening of a gate.
    Gate { path: &'a str },
    /// An item of a queue.
    Item { path: &'a str },
    /// An item of a queue, by a worker that works on this number of others.
    NextItem {
        path: &'a str,
        in_hand: &'a Cell<u32>,
    },
    /// Any next event. Such a wait is not shown; that no server answers is.
    News { path: &'a str },
    /// A connection, before there is any.
    Connection,
}

/// The role of the process that holds what this one waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// It holds a lock.
    Holder,
    /// It holds permits.
    PermitHolder,
    /// It leads an election.
    Leader,
}

/// Does `work`, and shows meanwhile what it waits for. Nothing with `--quiet`.
pub(crate) async fn shown<T>(
    output: &Output,
    (client, servers): (&Client, &str),
    awaited: &AwaitedEvent<'_>,
    work: impl Future<Output = T>,
) -> T {
    if output.quiet() {
        return work.await;
    }
    let _cleared = StatusClearer(output);
    let display = Display {
        output,
        client,
        servers,
        awaited,
        begun: Instant::now(),
        cut_off: None,
        seen: None,
        read_at: None,
        lines: Lines::default(),
    };
    tokio::select! {
        biased;
        done = work => done,
        never = display.run() => match never {},
    }
}

/// Clears the status line when the wait is over, however it ends.
struct StatusClearer<'a>(&'a Output);

impl Drop for StatusClearer<'_> {
    fn drop(&mut self) {
        self.0.clear_status();
    }
}

/// The newest reading of the thing that is waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
struct WaitState {
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
    /// This process's position among those who wait, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<usize>,
    /// Number of waiters.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<usize>,
    /// Number that have come to a meeting.
    #[serde(skip_serializing_if = "Option::is_none")]
    come: Option<u32>,
    /// Number that are to come.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
}

/// The holder of the thing that is waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Holder {
    node: String,
    session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    since_ms: i64,
    /// For people.
    #[serde(skip)]
    who: String,
}

/// When lines were written, and about what.
#[derive(Default)]
struct Lines {
    /// The topic of the last line; `None` before the first.
    last: Option<Topic>,
    at: Option<Instant>,
    gap: Duration,
}

/// The topic of a line. Two lines in a row never have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Topic {
    CutOff,
    Connected(Option<WaitState>),
}

struct Display<'a> {
    output: &'a Output,
    client: &'a Client,
    servers: &'a str,
    awaited: &'a AwaitedEvent<'a>,
    begun: Instant,
    /// Since when this session has no connection.
    cut_off: Option<Instant>,
    seen: Option<WaitState>,
    /// When the tree was read, and this process's node at that time.
    read_at: Option<(Instant, Option<String>)>,
    lines: Lines,
}

impl Display<'_> {
    async fn run(mut self) -> Infallible {
        loop {
            tokio::time::sleep(TICK).await;
            if self.is_busy() {
                self.output.clear_status();
                self.begun = Instant::now();
                continue;
            }
            let session = self.client.newest();
            let is_connected = session
                .as_ref()
                .is_some_and(|session| session.state().is_connected());
            if is_connected {
                self.cut_off = None;
            } else {
                self.cut_off.get_or_insert_with(Instant::now);
            }
            let on_terminal = self.output.has_status();
            let waited = self.begun.elapsed();
            if waited < if on_terminal { SHORT } else { PATIENCE } {
                continue;
            }
            if is_connected && self.is_read_due(on_terminal) {
                let node = self.own_node();
                let reading = tokio::time::timeout(READ_LIMIT, self.read());
                // Without an answer the last reading stays, until the connection counts as lost.
                if let Ok(seen) = reading.await {
                    self.seen = seen;
                }
                self.read_at = Some((Instant::now(), node));
            }
            if on_terminal {
                match self.text() {
                    Some(text) => {
                        let path = match self.awaited.path() {
                            "" => String::new(),
                            path => format!("{path}: "),
                        };
                        let waited = duration::show_age(waited);
                        self.output
                            .status(&format!("baton: {path}{text}; waiting {waited}"));
                    }
                    None => self.output.clear_status(),
                }
            } else {
                self.output.clear_status();
                self.line(waited);
            }
        }
    }

    /// Whether the worker works on an item, so that nothing waits.
    fn is_busy(&self) -> bool {
        matches!(self.awaited, AwaitedEvent::NextItem { in_hand, .. } if in_hand.get() > 0)
    }

    fn own_node(&self) -> Option<String> {
        match self.awaited {
            AwaitedEvent::Turn { progress, .. } => {
                progress.position().map(|position| position.node)
            }
            _ => None,
        }
    }

    fn is_read_due(&self, on_terminal: bool) -> bool {
        let [often, seldom] = READ_EVERY;
        let Some((at, node)) = &self.read_at else {
            return true;
        };
        let waiting = self.seen.as_ref().and_then(|seen| seen.waiting);
        let waiting = u32::try_from(waiting.unwrap_or(0)).unwrap_or(u32::MAX);
        let every = if on_terminal { often } else { seldom };
        let every = every + READ_EVERY_PER_WAITER.saturating_mul(waiting);
        // With another waiter node, what was read before is out of date.
        let is_new = *node != self.own_node() && at.elapsed() >= often;
        is_new || at.elapsed() >= every
    }

    async fn read(&self) -> Option<WaitState> {
        match self.awaited {
            AwaitedEvent::Turn { path, .. } => {
                let node = self.own_node()?;
                let inspector = Inspector::new(self.client);
                let ahead = inspector.ahead(path, &node).await.ok()??;
                Some(WaitState {
                    holder: ahead.holder.map(|holder| {
                        let who = who(&holder);
                        let info = holder.info;
                        Holder {
                            who,
                            since_ms: info.since_ms,
                            host: info.record.as_ref().map(|record| record.host.clone()),
                            pid: info.record.as_ref().map(|record| record.pid),
                            name: info.record.and_then(|record| record.name),
                            node: info.path,
                            session: format!("0x{:x}", info.session_id),
                        }
                    }),
                    place: Some(ahead.position),
                    waiting: Some(ahead.waiting),
                    ..WaitState::default()
                })
            }
            AwaitedEvent::Meeting { count, barrier, .. } => Some(WaitState {
                come: barrier.gathered().await,
                count: Some(*count),
                ..WaitState::default()
            }),
            _ => None,
        }
    }

    /// For how long no server has answered, if that is worth a mention.
    fn cut_off(&self) -> Option<Duration> {
        let cut_off = self.cut_off?.elapsed();
        (cut_off >= PATIENCE).then_some(cut_off)
    }

    /// The text to show; `None` where there is none.
    fn text(&self) -> Option<String> {
        if let Some(cut_off) = self.cut_off() {
            let cut_off = duration::show_age(cut_off);
            return Some(format!("no server for {cut_off} ({})", self.servers));
        }
        Some(match self.awaited {
            AwaitedEvent::Turn { role, .. } => turn(*role, self.seen.as_ref()),
            AwaitedEvent::Meeting { count, .. } => {
                let come = self.seen.as_ref().and_then(|seen| seen.come);
                match come {
                    Some(come) => format!("{come} of {count} have come"),
                    None => format!("{count} are to come"),
                }
            }
            AwaitedEvent::Others { .. } => "not all of the others are done".to_owned(),
            AwaitedEvent::Gate { .. } => "the gate is closed".to_owned(),
            AwaitedEvent::Item { .. } | AwaitedEvent::NextItem { .. } => "no item".to_owned(),
            AwaitedEvent::News { .. } | AwaitedEvent::Connection => return None,
        })
    }

    /// Writes a line where there is something new.
    fn line(&mut self, waited: Duration) {
        let topic = match (self.cut_off(), self.awaited) {
            // The error that follows says it, and within seconds.
            (_, AwaitedEvent::Connection) => return,
            (Some(_), _) => Topic::CutOff,
            // For these it is usual to wait: nobody wants to read it in a log.
            (None, AwaitedEvent::News { .. } | AwaitedEvent::NextItem { .. }) => {
                Topic::Connected(None)
            }
            (None, _) => Topic::Connected(Some(self.seen.clone().unwrap_or_default())),
        };
        if self.lines.last.is_none() && topic == Topic::Connected(None) {
            return;
        }
        if !self.lines.are_due(&topic) {
            return;
        }
        let text = match (&topic, self.text()) {
            (Topic::Connected(None), _) => "a server answers again".to_owned(),
            (_, Some(text)) => text,
            (_, None) => return,
        };
        let event = Event {
            event: "waiting",
            path: self.awaited.path(),
            connected: topic != Topic::CutOff,
            disconnected_ms: self.cut_off().map(millis),
            waited_ms: millis(waited),
            seen: match &topic {
                Topic::Connected(seen) => seen.as_ref(),
                Topic::CutOff => None,
            },
        };
        self.output
            .event(&event, format!("{}: waiting: {text}", event.path));
        self.lines.written(topic);
    }
}

/// One line of `--json`.
#[derive(Serialize)]
struct Event<'a> {
    event: &'static str,
    path: &'a str,
    connected: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    disconnected_ms: Option<u64>,
    waited_ms: u64,
    #[serde(flatten)]
    seen: Option<&'a WaitState>,
}

impl AwaitedEvent<'_> {
    fn path(&self) -> &str {
        match self {
            Self::Turn { path, .. }
            | Self::Meeting { path, .. }
            | Self::Others { path }
            | Self::Gate { path }
            | Self::Item { path }
            | Self::NextItem { path, .. }
            | Self::News { path } => path,
            Self::Connection => "",
        }
    }
}

impl Lines {
    fn are_due(&self, topic: &Topic) -> bool {
        let (Some(last), Some(at)) = (&self.last, self.at) else {
            return true;
        };
        let [shortest, _] = LINE_EVERY;
        // A connection that is lost or found is news sooner than a queue that moves.
        let is_link = (*topic == Topic::CutOff) != (*last == Topic::CutOff);
        let gap = if is_link { shortest } else { self.gap };
        topic != last && at.elapsed() >= gap
    }

    fn written(&mut self, topic: Topic) {
        let [shortest, longest] = LINE_EVERY;
        self.gap = (self.gap * 2).clamp(shortest, longest);
        self.at = Some(Instant::now());
        self.last = Some(topic);
    }
}

/// The holder, for people.
fn who(node: &LockNode) -> String {
    let Some(record) = &node.info.record else {
        return node.to_string();
    };
    let name = record.name.as_deref();
    let name = name.map_or(String::new(), |name| format!(" ({name})"));
    format!("{} pid {}{name}", record.host, record.pid)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The holder, and this process's position, for people.
fn turn(role: Role, seen: Option<&WaitState>) -> String {
    let Some(seen) = seen else {
        return "not in the wait queue yet".to_owned();
    };
    let (position, waiting) = (seen.place.unwrap_or(0), seen.waiting.unwrap_or(0));
    if position == 0 {
        return "first in the wait queue; a lock delay of the last holder may run".to_owned();
    }
    let verb = match role {
        Role::Leader => "led by",
        Role::Holder | Role::PermitHolder => "held by",
    };
    let holder = match &seen.holder {
        Some(holder) => {
            let since = duration::show_since(holder.since_ms);
            format!("{verb} {} for {since}", holder.who)
        }
        None => format!("{verb} another"),
    };
    format!("{holder}; place {position} of {waiting}")
}
