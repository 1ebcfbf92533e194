//! Text of a frame for the transcript, and the counts that the simulator takes of it. Never changes
//! a byte.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use baton_proto::{
    ConnectRequest, ConnectResponse, Decoder, EventKind, Limits, MultiOp, OpCode, ReplyHeader,
    Request, RequestHeader, xid,
};
use tokio::time::Instant;

/// Messages of the two ends of one connection so far, as far as they explain the next frame.
#[derive(Debug, Default)]
pub(crate) struct Dialogue {
    greeted_up: bool,
    greeted_down: bool,
    asked: BTreeMap<i32, OpCode>,
    /// When requests were sent that have no answer yet. Pings share one id, and are answered in
    /// order.
    sent: BTreeMap<i32, VecDeque<Instant>>,
}

/// A request that was answered: when its client sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) sent: Instant,
    pub(crate) what: &'static str,
}

/// A request, as far as the simulator cares.
#[derive(Debug, Default)]
pub(crate) struct FrameText {
    /// For the transcript.
    pub text: String,
    /// Creates in it.
    pub creates: usize,
    /// The data of the node that it creates, if that is what it does.
    pub created: Option<String>,
}

/// An answer, as far as the simulator cares.
#[derive(Debug, Default)]
pub(crate) struct AnswerText {
    /// For the transcript.
    pub text: String,
    /// The session that the connection is attached to from here on.
    pub session: Option<i64>,
    /// The session timeout that was granted.
    pub timeout: Duration,
    /// The zxid that it carries.
    pub zxid: Option<i64>,
    /// The request that it answers, if that answer says that the leader has counted it.
    pub proof: Option<Proof>,
}

impl Dialogue {
    /// A frame's body that the client has sent at `sent`. `words` says whether text is wanted.
    pub(crate) fn up(&mut self, body: &[u8], sent: Instant, words: bool) -> FrameText {
        let limits = Limits::default();
        if !std::mem::replace(&mut self.greeted_up, true) {
            let text = match ConnectRequest::decode(body, &limits) {
                Ok(hello) if hello.session_id == 0 => "connect".to_owned(),
                Ok(hello) => format!("connect again, session 0x{:x}", hello.session_id),
                Err(error) => format!("connect? {error}"),
            };
            return FrameText {
                text,
                ..FrameText::default()
            };
        }
        let mut decoder = Decoder::new(body, &limits);
        let Ok(header) = RequestHeader::decode(&mut decoder) else {
            return FrameText::default();
        };
        let Ok(op) = OpCode::try_from(header.op) else {
            return FrameText::default();
        };
        self.asked.insert(header.xid, op);
        self.sent.entry(header.xid).or_default().push_back(sent);
        let request = Request::decode(op, decoder.rest(), &limits);
        let creates = match &request {
            Ok(Request::Create(_)) => 1,
            Ok(Request::Multi(ops)) => ops
                .iter()
                .filter(|op| matches!(op, MultiOp::Create(_)))
                .count(),
            _ => 0,
        };
        let text = if words {
            let what = match &request {
                Ok(Request::Multi(ops)) => ops
                    .iter()
                    .map(|op| format!("{} {}", op.op().name(), op.path()))
                    .collect::<Vec<_>>()
                    .join(", "),
                Ok(Request::GetData { path, watch: true })
                | Ok(Request::Exists { path, watch: true })
                | Ok(Request::GetChildren { path, watch: true })
                | Ok(Request::GetChildren2 { path, watch: true }) => format!("{path} +watch"),
                Ok(Request::SetWatches {
                    data, exist, child, ..
                }) => format!("data {data:?} exist {exist:?} child {child:?}"),
                Ok(request) => request.path().unwrap_or_default().to_owned(),
                Err(error) => error.to_string(),
            };
            format!("{} {what} (xid {})", op.name(), header.xid)
        } else {
            String::new()
        };
        let created = match &request {
            Ok(Request::Create(create)) => create.data.map(String::from_utf8_lossy),
            _ => None,
        };
        FrameText {
            text,
            creates,
            created: created.map(std::borrow::Cow::into_owned),
        }
    }

    /// A frame's body that the server has sent.
    pub(crate) fn down(&mut self, body: &[u8], words: bool) -> AnswerText {
        let limits = Limits::default();
        if !std::mem::replace(&mut self.greeted_down, true) {
            let mut timeout = Duration::ZERO;
            let (text, session) = match ConnectResponse::decode(body, &limits) {
                Ok(answer) if answer.is_refused() => ("refused".to_owned(), None),
                // Its id is drawn by a chance that no seed reaches, and no other server knows it.
                Ok(answer) if answer.read_only == Some(true) => {
                    ("session in read-only mode".to_owned(), None)
                }
                Ok(answer) => {
                    let session = answer.session_id;
                    timeout = Duration::from_millis(answer.timeout_ms.try_into().unwrap_or(0));
                    (format!("session 0x{session:x}"), Some(session))
                }
                Err(error) => (format!("session? {error}"), None),
            };
            return AnswerText {
                text,
                session,
                timeout,
                ..AnswerText::default()
            };
        }
        let mut decoder = Decoder::new(body, &limits);
        let Ok(header) = ReplyHeader::decode(&mut decoder) else {
            return AnswerText {
                text: "?".to_owned(),
                ..AnswerText::default()
            };
        };
        AnswerText {
            text: match words {
                true => self.words_of(&header, &mut decoder),
                false => String::new(),
            },
            zxid: Some(header.zxid),
            proof: self.proof(&header),
            ..AnswerText::default()
        }
    }

    /// Returns what the answer with this header proves. Answers to reads and refusals prove
    /// nothing.
    fn proof(&mut self, header: &ReplyHeader) -> Option<Proof> {
        let waiting = self.sent.get_mut(&header.xid)?;
        let sent = waiting.pop_front()?;
        if waiting.is_empty() {
            self.sent.remove(&header.xid);
        }
        let op = self.asked.get(&header.xid)?;
        let counts = matches!(
            op,
            OpCode::Ping
                | OpCode::Sync
                | OpCode::Create
                | OpCode::Create2
                | OpCode::CreateContainer
                | OpCode::CreateTtl
                | OpCode::Delete
                | OpCode::SetData
                | OpCode::SetAcl
                | OpCode::Multi
        );
        (counts && header.err == 0).then(|| Proof {
            sent,
            what: op.name(),
        })
    }

    fn words_of(&self, header: &ReplyHeader, decoder: &mut Decoder<'_>) -> String {
        if header.xid == xid::NOTIFICATION {
            let kind = decoder.i32("type").map(EventKind::try_from);
            let _state = decoder.i32("state");
            let path = decoder.string("path").unwrap_or_default();
            return match kind {
                Ok(Ok(kind)) => format!("event {kind:?} {path}"),
                _ => "event ?".to_owned(),
            };
        }
        let op = self.asked.get(&header.xid).map_or("?", |op| op.name());
        format!(
            "{op} (xid {}) zxid {} {}",
            header.xid,
            header.zxid,
            header.error()
        )
    }
}
