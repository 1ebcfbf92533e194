//! Knowledge of the proxy about a frame, and the reading of both directions of one connection.
//! Decodes only; a frame that it cannot decode is still a frame and passes.

use std::collections::VecDeque;

use baton_proto::{
    Decoder, EventKind, Limits, OpCode, ReplyHeader, Request, RequestHeader, WatcherEvent, xid,
};
use bytes::Bytes;

/// Direction of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client.
    ToServer,
    /// From the server.
    ToClient,
}

/// Kind of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameKind {
    /// The client's first frame.
    ConnectRequest,
    /// The server's first frame.
    ConnectResponse,
    /// A request.
    Request {
        /// Its xid.
        xid: i32,
        /// Its op code as sent.
        op: i32,
    },
    /// A reply.
    Reply {
        /// Its xid.
        xid: i32,
        /// The op code of the request that it answers; `None` if no such request was seen.
        op: Option<i32>,
        /// The zxid in its header.
        zxid: i64,
        /// The error in its header.
        err: i32,
    },
    /// A watch event.
    Event {
        /// Kind of the event.
        kind: EventKind,
    },
    /// Bytes that are not the protocol: four-letter words and their answers.
    Raw,
}

/// One frame, as it arrived at the proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Number of the connection, from 1 in the order of accepting.
    pub connection: u64,
    /// Its direction.
    pub direction: Direction,
    /// Its kind.
    pub kind: FrameKind,
    /// The path of a request or an event, where it has one; a reply has its request's.
    pub path: Option<String>,
    /// Its length in bytes, without the four of the length itself.
    pub length_bytes: usize,
    /// Its bytes, without the length; empty unless the proxy records.
    pub body: Bytes,
}

impl Frame {
    /// The op code of a request, or of the request that a reply answers, if it is a known one.
    #[must_use]
    pub fn op(&self) -> Option<OpCode> {
        match self.kind {
            FrameKind::Request { op, .. } | FrameKind::Reply { op: Some(op), .. } => {
                OpCode::try_from(op).ok()
            }
            _ => None,
        }
    }
}

/// Reads one connection's frames in both directions, so that replies can be matched to their
/// requests.
#[derive(Debug, Default)]
pub(super) struct Reader {
    connection: u64,
    request_seen: bool,
    response_seen: bool,
    waiting: VecDeque<(i32, i32, Option<String>)>,
    record_bodies: bool,
}

impl Reader {
    pub(super) fn new(connection: u64, record_bodies: bool) -> Self {
        Self {
            connection,
            record_bodies,
            ..Self::default()
        }
    }

    pub(super) fn read(&mut self, direction: Direction, body: &Bytes) -> Frame {
        let (kind, path) = match direction {
            Direction::ToServer => self.read_request(body),
            Direction::ToClient => self.read_reply(body),
        };
        self.frame(direction, kind, path, body)
    }

    pub(super) fn raw(&self, direction: Direction, body: &Bytes) -> Frame {
        self.frame(direction, FrameKind::Raw, None, body)
    }

    fn frame(
        &self,
        direction: Direction,
        kind: FrameKind,
        path: Option<String>,
        body: &Bytes,
    ) -> Frame {
        Frame {
            connection: self.connection,
            direction,
            kind,
            path,
            length_bytes: body.len(),
            body: if self.record_bodies {
                body.clone()
            } else {
                Bytes::new()
            },
        }
    }

    fn read_request(&mut self, body: &Bytes) -> (FrameKind, Option<String>) {
        if !self.request_seen {
            self.request_seen = true;
            return (FrameKind::ConnectRequest, None);
        }
        let limits = limits();
        let mut from = Decoder::new(body, &limits);
        let Ok(header) = RequestHeader::decode(&mut from) else {
            return (FrameKind::Raw, None);
        };
        let path = OpCode::try_from(header.op)
            .ok()
            .and_then(|op| Request::decode(op, from.rest(), &limits).ok())
            .and_then(|request| match &request {
                Request::Multi(ops) | Request::MultiRead(ops) => {
                    ops.first().map(|op| op.path().to_owned())
                }
                single => single.path().map(str::to_owned),
            });
        self.waiting
            .push_back((header.xid, header.op, path.clone()));
        (
            FrameKind::Request {
                xid: header.xid,
                op: header.op,
            },
            path,
        )
    }

    fn read_reply(&mut self, body: &Bytes) -> (FrameKind, Option<String>) {
        if !self.response_seen {
            self.response_seen = true;
            return (FrameKind::ConnectResponse, None);
        }
        let mut from = Decoder::new(body, &limits());
        let Ok(header) = ReplyHeader::decode(&mut from) else {
            return (FrameKind::Raw, None);
        };
        if header.xid == xid::NOTIFICATION {
            return match WatcherEvent::decode(&mut from) {
                Ok(event) => (FrameKind::Event { kind: event.kind }, Some(event.path)),
                Err(_) => (FrameKind::Raw, None),
            };
        }
        let request = self
            .waiting
            .iter()
            .position(|(xid, _, _)| *xid == header.xid)
            .and_then(|index| self.waiting.remove(index));
        let (op, path) = request.map_or((None, None), |(_, op, path)| (Some(op), path));
        (
            FrameKind::Reply {
                xid: header.xid,
                op,
                zxid: header.zxid,
                err: header.err,
            },
            path,
        )
    }
}

/// Larger than any server's, so that the proxy is never the one that refuses.
pub(super) fn limits() -> Limits {
    Limits::with_max_frame_bytes(256 << 20)
}
