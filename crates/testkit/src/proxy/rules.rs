//! The script of a proxy: which frame sets off what. Owns matching and counting; moves no bytes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baton_proto::{EventKind, OpCode};
use tokio::sync::watch;

use super::frames::{Direction, Frame, FrameKind};

/// End of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Both sides get a reset.
    Rst,
    /// Both sides get an orderly close.
    Fin,
    /// Only the client gets a reset; the server believes the connection alive, until
    /// [`super::Proxy::heal`].
    RstClientOnly,
    /// Only the server gets a reset; the client believes the connection alive, until
    /// [`super::Proxy::heal`].
    RstServerOnly,
    /// Neither side is notified and nothing moves, until [`super::Proxy::heal`].
    BlackHole,
    /// [`Variant::BlackHole`] from client to server only.
    BlackHoleToServer,
    /// [`Variant::BlackHole`] from server to client only.
    BlackHoleToClient,
}

/// Action of a rule at its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the frame passes and is counted.
    Pass,
    /// Cut the connection before the frame is forwarded: the other side never sees it. (A black
    /// hole delivers it after [`super::Proxy::heal`].)
    Cut(Variant),
    /// Forward the frame, then cut: the other side has it, and whatever follows is lost.
    ForwardThenCut(Variant),
    /// Forward the frame after this delay; what comes behind it in its direction waits too.
    Delay(Duration),
    /// Keep the frame, and what comes behind it in its direction, until [`Fault::release`].
    Hold,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FrameShape {
    Any,
    ConnectResponse,
    Request(Option<OpCode>),
    Reply(Option<OpCode>),
    Event(Option<EventKind>),
}

/// A description of frames.
#[derive(Debug, Clone)]
pub struct Match {
    shape: FrameShape,
    direction: Option<Direction>,
    path: Option<String>,
    connection: Option<u64>,
    error: Option<i32>,
    nth: u64,
    every: bool,
}

impl Match {
    const fn shape(shape: FrameShape) -> Self {
        Self {
            shape,
            direction: None,
            path: None,
            connection: None,
            error: None,
            nth: 1,
            every: false,
        }
    }

    /// Any frame, either way.
    #[must_use]
    pub const fn any() -> Self {
        Self::shape(FrameShape::Any)
    }

    /// The server's first frame.
    #[must_use]
    pub const fn connect_response() -> Self {
        Self::shape(FrameShape::ConnectResponse)
    }

    /// A request of this operation. Mind that creates with stat are [`OpCode::Create2`].
    #[must_use]
    pub const fn request(op: OpCode) -> Self {
        Self::shape(FrameShape::Request(Some(op)))
    }

    /// Any request.
    #[must_use]
    pub const fn any_request() -> Self {
        Self::shape(FrameShape::Request(None))
    }

    /// A reply to this operation.
    #[must_use]
    pub const fn reply(op: OpCode) -> Self {
        Self::shape(FrameShape::Reply(Some(op)))
    }

    /// Any reply; watch events are none.
    #[must_use]
    pub const fn any_reply() -> Self {
        Self::shape(FrameShape::Reply(None))
    }

    /// A watch event of this kind.
    #[must_use]
    pub const fn event(kind: EventKind) -> Self {
        Self::shape(FrameShape::Event(Some(kind)))
    }

    /// Any watch event.
    #[must_use]
    pub const fn any_event() -> Self {
        Self::shape(FrameShape::Event(None))
    }

    /// Only frames that go this way.
    #[must_use]
    pub const fn direction(mut self, direction: Direction) -> Self {
        self.direction = Some(direction);
        self
    }

    /// Only frames about a path that contains `part`. Of a multi, the first operation's path
    /// counts.
    #[must_use]
    pub fn path_contains(mut self, part: impl Into<String>) -> Self {
        self.path = Some(part.into());
        self
    }

    /// Only frames of the connection with this number, counted from 1.
    #[must_use]
    pub const fn connection(mut self, number: u64) -> Self {
        self.connection = Some(number);
        self
    }

    /// Only replies whose header has this error; 0 is success.
    #[must_use]
    pub const fn error(mut self, code: i32) -> Self {
        self.error = Some(code);
        self
    }

    /// Only the `nth` such frame since the rule was made, counted from 1. Without this, the first.
    #[must_use]
    pub const fn nth(mut self, nth: u64) -> Self {
        self.nth = nth;
        self
    }

    /// The `nth` such frame and every one after it.
    #[must_use]
    pub const fn every(mut self) -> Self {
        self.every = true;
        self
    }

    /// Returns whether it describes this frame; `nth` does not count here.
    #[must_use]
    pub fn describes(&self, frame: &Frame) -> bool {
        let shape = match (&self.shape, &frame.kind) {
            (FrameShape::Any, _)
            | (FrameShape::ConnectResponse, FrameKind::ConnectResponse)
            | (FrameShape::Request(None), FrameKind::Request { .. })
            | (FrameShape::Reply(None), FrameKind::Reply { .. })
            | (FrameShape::Event(None), FrameKind::Event { .. }) => true,
            (FrameShape::Request(Some(_)), FrameKind::Request { .. })
            | (FrameShape::Reply(Some(_)), FrameKind::Reply { .. }) => {
                matches!(&self.shape, FrameShape::Request(op) | FrameShape::Reply(op) if *op == frame.op())
            }
            (FrameShape::Event(Some(wanted)), FrameKind::Event { kind }) => wanted == kind,
            _ => false,
        };
        let path = self.path.as_ref().is_none_or(|part| {
            frame
                .path
                .as_ref()
                .is_some_and(|path| path.contains(part.as_str()))
        });
        let error = self.error.is_none_or(
            |wanted| matches!(frame.kind, FrameKind::Reply { err, .. } if err == wanted),
        );
        shape
            && path
            && error
            && self
                .direction
                .is_none_or(|direction| direction == frame.direction)
            && self
                .connection
                .is_none_or(|connection| connection == frame.connection)
    }
}

/// An installed rule.
#[derive(Debug)]
pub struct Rule {
    what: Match,
    action: Action,
    seen: AtomicU64,
    removed: AtomicBool,
    fired: watch::Sender<(u64, Option<Frame>)>,
    released: watch::Sender<bool>,
}

impl Rule {
    pub(super) fn action(&self) -> Action {
        self.action
    }

    pub(super) async fn wait_released(&self) {
        let mut released = self.released.subscribe();
        // The sender lives in `self`, so waiting ends only by a release.
        let _ = released.wait_for(|released| *released).await;
    }

    fn sets_off(&self, frame: &Frame) -> bool {
        if self.removed.load(Ordering::Acquire) || !self.what.describes(frame) {
            return false;
        }
        let seen = self.seen.fetch_add(1, Ordering::AcqRel) + 1;
        let now = if self.what.every {
            seen >= self.what.nth
        } else {
            seen == self.what.nth
        };
        if now {
            self.fired.send_modify(|(count, last)| {
                *count += 1;
                *last = Some(frame.clone());
            });
        }
        now
    }
}

/// A rule's handle: says whether it has acted, and releases what it holds.
///
/// The rule lives on in the proxy when the handle is dropped.
#[derive(Debug, Clone)]
pub struct Fault {
    rule: Arc<Rule>,
}

impl Fault {
    /// Waits until the rule has acted, and returns the frame at which it did (the last, if more
    /// than one). The frame has then arrived at the proxy; a cut follows at once. Returns at once
    /// if it has acted already.
    pub async fn fired(&self) -> Frame {
        self.fired_times(1).await
    }

    /// [`Fault::fired`] for a rule that is to act at least this number of times.
    pub async fn fired_times(&self, at_least: u64) -> Frame {
        let mut fired = self.rule.fired.subscribe();
        loop {
            let state = fired.borrow_and_update().clone();
            if let (count, Some(frame)) = state
                && count >= at_least
            {
                return frame;
            }
            if fired.changed().await.is_err() {
                // The sender lives in `self.rule`.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Number of times that the rule has acted.
    #[must_use]
    pub fn times(&self) -> u64 {
        self.rule.fired.borrow().0
    }

    /// Releases what [`Action::Hold`] holds, now and later.
    pub fn release(&self) {
        self.rule.released.send_replace(true);
    }

    /// Takes the rule out of force and releases what it holds.
    pub fn remove(&self) {
        self.rule.removed.store(true, Ordering::Release);
        self.release();
    }
}

#[derive(Debug, Default)]
pub(super) struct RuleSet {
    rules: Mutex<Vec<Arc<Rule>>>,
}

impl RuleSet {
    fn rules(&self) -> MutexGuard<'_, Vec<Arc<Rule>>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn install(&self, what: Match, action: Action) -> Fault {
        let rule = Arc::new(Rule {
            what,
            action,
            seen: AtomicU64::new(0),
            removed: AtomicBool::new(false),
            fired: watch::Sender::new((0, None)),
            released: watch::Sender::new(false),
        });
        self.rules().push(Arc::clone(&rule));
        Fault { rule }
    }

    /// The rules that this frame sets off, in the order of their making.
    pub(super) fn fire(&self, frame: &Frame) -> Vec<Arc<Rule>> {
        self.rules()
            .iter()
            .filter(|rule| rule.sets_off(frame))
            .cloned()
            .collect()
    }

    pub(super) fn clear(&self) {
        for rule in self.rules().drain(..) {
            rule.removed.store(true, Ordering::Release);
            rule.released.send_replace(true);
        }
    }
}
