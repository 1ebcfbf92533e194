//! A program: what several sessions ask of a server, one after another. Data only, so that it can
//! be cut down and run again; running it is in `run`.

use std::fmt;

use baton_proto::{Request, frame};

/// One thing that one session does.
#[derive(Debug, Clone)]
pub(super) enum Act {
    /// A request. Its paths begin below the program's own folder, see `places`; a `relative_zxid`
    /// counts from the program's begin.
    Ask(Request<'static>),
    /// A request of which only this percentage of the body is sent, in a frame of that length.
    Cut(Request<'static>, usize),
    /// A request with another number in place of a length: of its first string, list or buffer, or
    /// of the one after. In a multi the first such place is the operation's type.
    Length {
        request: Request<'static>,
        place: usize,
        value: i32,
    },
    /// Fills a frame with data, and this number of bytes more.
    Full { path: &'static str, over: usize },
    /// A header with this op code and no body.
    Op(i32),
    /// A frame of this length, of which nothing comes.
    Frame(i32),
    /// Its connection is lost, and the session taken up on another.
    Reattach,
    /// Somebody tries to take a session up, and may not.
    Claim(Claim),
    /// The session is closed and another opened in its place.
    Reopen(Handshake),
    /// Its connection is lost with the requests under way that were joined to this line, and taken
    /// up again.
    Lose(Loss),
    /// It falls silent until the server ends it.
    Expire(Silence),
}

/// Loss of a connection with requests under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub(super) end: End,
    /// Whether the last of the requests closes the session.
    pub(super) closing: bool,
}

/// End of a connection in the server's eyes.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// No more requests, but somebody who still listens.
    HalfClosed,
    /// The socket is closed with answers in it.
    Closed,
    /// It is reset.
    Reset,
}

/// Kind of a session's silence.
#[derive(Debug, Clone, Copy)]
pub(super) enum Silence {
    /// Its connection stays.
    Connected,
    Disconnected,
}

/// A wrong way to take up a session.
#[derive(Debug, Clone, Copy)]
pub(super) enum Claim {
    WrongPassword,
    UnknownSession,
    /// From a client that has seen more than the server.
    AheadOfTheServer,
}

/// Opening of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handshake {
    pub(super) timeout_ms: i32,
    pub(super) read_only: Option<bool>,
}

impl Handshake {
    pub(super) const USUAL: Self = Self {
        timeout_ms: 30_000,
        read_only: Some(false),
    };
}

/// One act and whose it is.
#[derive(Debug, Clone)]
pub(super) struct ProgramLine {
    pub(super) session: usize,
    /// Sent together with the line before, if that is the same session's.
    pub(super) joined: bool,
    /// Neither sent with the line before nor with the one after.
    pub(super) alone: bool,
    pub(super) act: Act,
}

/// Acts of some sessions, in order: nobody begins before the one before has been answered.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) sessions: usize,
    /// Whether it writes quotas.
    pub(super) quotas: bool,
    pub(super) lines: Vec<ProgramLine>,
}

impl Program {
    /// Number of acts: requests, re-attachments and new sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Returns whether nobody does anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The frames of its requests, with paths as they are written: something to start from for who
    /// sends broken ones.
    #[must_use]
    pub fn frames(&self) -> Vec<Vec<u8>> {
        let requests = self.lines.iter().filter_map(|line| match &line.act {
            Act::Ask(request) => Some(request),
            _ => None,
        });
        (1..)
            .zip(requests)
            .map(|(xid, request)| {
                let mut bytes = Vec::new();
                frame::write_request(&mut bytes, xid, request);
                bytes
            })
            .collect()
    }

    /// The end of the burst that begins at `start`: acts that are sent in one write.
    pub(super) fn burst_end(&self, start: usize) -> usize {
        let Some(first) = self.lines.get(start) else {
            return start;
        };
        if first.alone || first.act.ends_a_burst() {
            return start + 1;
        }
        let mut end = start + 1;
        let joined =
            |line: &&ProgramLine| line.joined && !line.alone && line.session == first.session;
        while let Some(line) = self.lines.get(end).filter(joined) {
            end += 1;
            if line.act.ends_a_burst() {
                break;
            }
        }
        end
    }
}

impl Act {
    /// Returns whether it is one frame on the session's connection.
    pub(super) fn is_sent(&self) -> bool {
        matches!(
            self,
            Self::Ask(_) | Self::Cut(..) | Self::Length { .. } | Self::Full { .. } | Self::Op(_)
        )
    }

    pub(super) fn ends_a_burst(&self) -> bool {
        matches!(self, Self::Lose(_))
    }

    /// Returns whether it is a request that takes a zxid.
    pub(super) fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Ask(
                Request::Create(_)
                    | Request::Delete { .. }
                    | Request::SetData { .. }
                    | Request::SetAcl { .. }
                    | Request::Multi(_)
            )
        )
    }
}

impl fmt::Display for ProgramLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = if self.joined { " +" } else { "" };
        write!(f, "session {}{with}: ", self.session)?;
        match &self.act {
            Act::Ask(request) => write!(f, "{request:?}"),
            Act::Cut(request, percent) => write!(f, "the first {percent} % of {request:?}"),
            Act::Length {
                request,
                place,
                value,
            } => write!(f, "with {value} for length {place}: {request:?}"),
            Act::Full { path, over } => write!(f, "a full frame and {over}: set {path}"),
            Act::Frame(length) => write!(f, "a frame of {length}"),
            Act::Op(op) => write!(f, "a request with op code {op}"),
            Act::Reattach => write!(f, "a new connection"),
            Act::Claim(claim) => write!(f, "a claim to the session: {claim:?}"),
            Act::Reopen(how) => write!(f, "a new session: {how:?}"),
            Act::Lose(loss) => write!(f, "the connection is lost: {loss:?}"),
            Act::Expire(how) => write!(f, "silent until it expires: {how:?}"),
        }
    }
}
