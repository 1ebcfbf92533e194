//! Faults of a run, as values that print to and parse from one word, so that a failure names what
//! reproduces it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From a client to the server: requests.
    Up,
    /// From the server to a client: replies and events.
    Down,
}

/// On which side of a frame the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Edge {
    /// The frame is not delivered.
    Before,
    /// The frame is delivered, and nothing after it.
    After,
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FaultKind {
    /// The connection breaks for both ends at once.
    Reset,
    /// Both ends read an end of stream.
    Finish,
    /// The connection stays open and delivers nothing any more, either way.
    Hole,
    /// Like `Hole`, for the frames that the client sends.
    HoleUp,
    /// Like `Hole`, for the frames that the server sends.
    HoleDown,
    /// The frame and what follows it in its direction comes this much later.
    Delay(Duration),
    /// The connection breaks for the client; what it had sent from this frame on reaches the server
    /// only after the client's next connection has had its first answer (or two seconds later
    /// without one).
    Late,
    /// Like `Hole`, and new connections of this client get nowhere either, for two and a half
    /// session timeouts.
    Partition,
    /// Like `Reset`, and new connections of this client are refused for two and a half session
    /// timeouts.
    Exile,
    /// The client's process is paused for this long: it does nothing, and its clock runs on. A
    /// pause that is a little shorter than the session timeout ends its leases, and not its
    /// session.
    Pause(Duration),
    /// The server crashes and comes back at once with what it had acknowledged; every connection
    /// breaks.
    Crash,
}

impl FaultKind {
    /// Every kind, with the two delays that matter: well within the session timeout, and beyond it;
    /// and two such pauses.
    #[must_use]
    pub fn all(session_timeout: Duration) -> Vec<Self> {
        vec![
            Self::Reset,
            Self::Late,
            Self::Exile,
            Self::Hole,
            Self::Crash,
            Self::Finish,
            Self::HoleUp,
            Self::HoleDown,
            Self::Partition,
            Self::Pause(session_timeout * 5 / 2),
            Self::Pause(session_timeout * 79 / 80),
            Self::Delay(session_timeout / 10),
            Self::Delay(session_timeout * 3 / 2),
        ]
    }

    /// Whether striking after a frame differs from striking before the next one, and whether it
    /// makes sense there.
    #[must_use]
    pub const fn strikes(self, direction: Direction, edge: Edge) -> bool {
        match self {
            Self::Delay(_) => matches!(edge, Edge::Before),
            Self::Late => matches!((direction, edge), (Direction::Up, Edge::Before)),
            // Between a request and its sending lies nothing; the one that was sent is on its way.
            Self::Pause(_) => !matches!((direction, edge), (Direction::Up, Edge::Before)),
            Self::HoleUp => matches!(direction, Direction::Up),
            Self::HoleDown => matches!(direction, Direction::Down),
            _ => true,
        }
    }
}

/// One fault: where it strikes, and what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fault {
    /// Client whose connection is struck.
    pub client: usize,
    /// Direction of the frame.
    pub direction: Direction,
    /// The how-manieth frame of that client in that direction, from 0, over all its connections;
    /// handshakes count.
    pub frame: usize,
    /// On which side of it.
    pub edge: Edge,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// A run's seed and everything that goes wrong in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Jitter of the network, pauses between connection attempts, and the scenario's own choices.
    pub seed: u64,
    /// Faults of the network.
    pub faults: Vec<Fault>,
    /// Futures that are dropped.
    pub cancels: Vec<CancelAt>,
}

impl Plan {
    /// Nothing goes wrong.
    #[must_use]
    pub fn calm(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }
}

/// A word that is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a plan: write SEED[,FAULT…][,CANCEL…], such as 7,c0.up.5.before.reset,call2.poll3.after"
)]
pub struct PlanError(String);

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
        })
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset => f.write_str("reset"),
            Self::Finish => f.write_str("finish"),
            Self::Hole => f.write_str("hole"),
            Self::HoleUp => f.write_str("hole-up"),
            Self::HoleDown => f.write_str("hole-down"),
            Self::Delay(by) => write!(f, "delay-{}ms", by.as_millis()),
            Self::Pause(by) => write!(f, "pause-{}ms", by.as_millis()),
            Self::Late => f.write_str("late"),
            Self::Partition => f.write_str("partition"),
            Self::Exile => f.write_str("exile"),
            Self::Crash => f.write_str("crash"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            direction,
            frame,
            edge,
            kind,
        } = self;
        write!(f, "c{client}.{direction}.{frame}.{edge}.{kind}")
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        for fault in &self.faults {
            write!(f, ",{fault}")?;
        }
        for cancel in &self.cancels {
            write!(f, ",{cancel}")?;
        }
        Ok(())
    }
}

fn kind(word: &str) -> Option<FaultKind> {
    Some(match word {
        "reset" => FaultKind::Reset,
        "finish" => FaultKind::Finish,
        "hole" => FaultKind::Hole,
        "hole-up" => FaultKind::HoleUp,
        "hole-down" => FaultKind::HoleDown,
        "late" => FaultKind::Late,
        "partition" => FaultKind::Partition,
        "exile" => FaultKind::Exile,
        "crash" => FaultKind::Crash,
        _ => {
            let (kind, length) = word.strip_suffix("ms")?.split_once('-')?;
            let length = Duration::from_millis(length.parse().ok()?);
            match kind {
                "delay" => FaultKind::Delay(length),
                "pause" => FaultKind::Pause(length),
                _ => return None,
            }
        }
    })
}

fn fault(word: &str) -> Option<Fault> {
    let mut parts = word.split('.');
    let fault = Fault {
        client: parts.next()?.strip_prefix('c')?.parse().ok()?,
        direction: match parts.next()? {
            "up" => Direction::Up,
            "down" => Direction::Down,
            _ => return None,
        },
        frame: parts.next()?.parse().ok()?,
        edge: match parts.next()? {
            "before" => Edge::Before,
            "after" => Edge::After,
            _ => return None,
        },
        kind: kind(parts.next()?)?,
    };
    parts.next().is_none().then_some(fault)
}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let bad = |word: &str| PlanError(word.to_owned());
        let mut words = text.split(',');
        let seed = words.next().unwrap_or_default();
        let mut plan = Self::calm(seed.parse().map_err(|_| bad(seed))?);
        for word in words {
            if word.starts_with("call") {
                plan.cancels.push(word.parse().map_err(|_| bad(word))?);
            } else {
                plan.faults.push(fault(word).ok_or_else(|| bad(word))?);
            }
        }
        Ok(plan)
    }
}

/// Poll at which a future is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CancelAt {
    /// Number of the scenario's cancellable call, in the order in which they were made, from 0.
    pub call: usize,
    /// Number of its poll, from 0.
    pub poll: usize,
    /// In place of that poll, or right after it if it left the future pending.
    pub edge: Edge,
}

impl fmt::Display for CancelAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call{}.poll{}.{}", self.call, self.poll, self.edge)
    }
}

impl FromStr for CancelAt {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        let mut parts = word.split('.');
        let mut number = |prefix: &str| {
            let part = parts.next().ok_or(())?;
            part.strip_prefix(prefix).ok_or(())?.parse().map_err(|_| ())
        };
        let (call, poll) = (number("call")?, number("poll")?);
        let edge = match (parts.next(), parts.next()) {
            (Some("before"), None) => Edge::Before,
            (Some("after"), None) => Edge::After,
            _ => return Err(()),
        };
        Ok(Self { call, poll, edge })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_reads_as_it_prints() {
        for text in [
            "7",
            "0,c0.up.5.before.reset,c1.down.2.after.delay-400ms,call2.poll3.after",
            "12,c2.up.0.before.late,call0.poll0.before",
            "3,c0.down.4.before.pause-10000ms",
        ] {
            assert_eq!(text.parse::<Plan>().unwrap().to_string(), text);
        }
        for text in ["", "x", "1,c0", "1,c0.up.1.before.nothing", "1,call1.poll1"] {
            assert!(text.parse::<Plan>().is_err(), "{text}");
        }
    }
}
