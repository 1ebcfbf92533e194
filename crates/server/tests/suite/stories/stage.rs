//! Stage of a story: a server, the sessions by name, and the words for what they receive.

use std::collections::BTreeMap;
use std::time::Duration;

use baton_proto::{
    ConnectRequest, ConnectResponse, ErrorCode, MultiResult, OpCode, ReplyHeader, Request,
    Response, Stat,
};
use baton_server::Server;
use bytes::Bytes;

use super::script;
use crate::support::{Frame, Wire, decode, in_memory, no_session};

const PROBE: Request<'static> = Request::Exists {
    path: "/zookeeper",
    watch: false,
};

/// Sessions by name, and their connections: `a` and, once it has moved, `a's old connection`.
pub(crate) struct Stage {
    server: Server,
    wires: BTreeMap<String, Wire>,
    sessions: BTreeMap<String, ConnectResponse>,
}

impl Stage {
    pub(crate) async fn set_up() -> Self {
        let server = in_memory()
            .tick(Duration::from_millis(100))
            .min_session_timeout(Duration::from_millis(1500))
            .max_session_timeout(Duration::from_secs(60))
            .start()
            .await
            .unwrap();
        Self {
            server,
            wires: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// Does what the line says; returns what is received.
    pub(crate) async fn act(&mut self, line: &str) -> Vec<String> {
        if let Some((name, requests)) = line.split_once(": ") {
            let mut received = self.ask(name, &script::requests(requests)).await;
            received.extend(self.listen(Some(name)).await);
            return received;
        }
        let (name, does) = line.split_once(' ').unwrap_or((line, ""));
        let mut received = match does {
            "opens a session" => self.open(name, 30_000).await,
            "opens a short session" => self.open(name, 1).await,
            "loses its connection" => {
                self.wires.remove(name);
                Vec::new()
            }
            "takes its session up" => self.take_up(name, name, 0, false).await,
            "takes its session up with a wrong password" => self.take_up(name, name, 0, true).await,
            "takes its session up, having seen zxid 1000" => {
                self.take_up(name, name, 1000, false).await
            }
            "moves to another connection" => {
                let old = self.wires.remove(name).unwrap();
                let old_name = format!("{name}-before");
                self.sessions.insert(old_name.clone(), old.session);
                self.wires.insert(old_name, old);
                self.take_up(name, name, 0, false).await
            }
            "waits until its connection is closed" => {
                let closed = self.wires.get_mut(name).unwrap().is_closed().await;
                self.wires.remove(name);
                vec![format!("{name}: closed: {closed}")]
            }
            "waits for an event" => {
                let frame = self.wires.get_mut(name).unwrap().next().await;
                vec![self.words(name, OpCode::Exists, frame)]
            }
            other => panic!("a story knows no {other:?}"),
        };
        received.extend(self.listen(None).await);
        received
    }

    async fn open(&mut self, name: &str, timeout_ms: i32) -> Vec<String> {
        let request = ConnectRequest {
            timeout_ms,
            ..no_session()
        };
        let wire = self.connect(&request).await.unwrap();
        let granted = wire.session.timeout_ms;
        self.sessions.insert(name.to_owned(), wire.session);
        self.wires.insert(name.to_owned(), wire);
        vec![format!("{name}: granted, {granted} ms")]
    }

    async fn take_up(&mut self, name: &str, session: &str, seen: i64, wrong: bool) -> Vec<String> {
        let session = self.sessions[session];
        let password = if wrong { [1; 16] } else { session.password };
        let request = ConnectRequest {
            last_zxid_seen: seen,
            session_id: session.session_id,
            password: &password,
            timeout_ms: session.timeout_ms,
            ..no_session()
        };
        let Some(wire) = self.connect(&request).await else {
            return vec![format!("{name}: closed without an answer")];
        };
        if wire.session.is_refused() {
            return vec![format!(
                "{name}: refused, timeout {}",
                wire.session.timeout_ms
            )];
        }
        let same = wire.session.session_id == session.session_id;
        let granted = wire.session.timeout_ms;
        self.wires.insert(name.to_owned(), wire);
        vec![format!(
            "{name}: granted, {granted} ms, the same session: {same}"
        )]
    }

    async fn connect(&self, request: &ConnectRequest<'_>) -> Option<Wire> {
        Wire::open_with(&self.server.connect_string(), request).await
    }

    async fn ask(&mut self, name: &str, requests: &[Request<'_>]) -> Vec<String> {
        let mut received = Vec::new();
        self.wires.get_mut(name).unwrap().send(requests).await;
        for request in requests {
            loop {
                let frame = self.wires.get_mut(name).unwrap().next().await;
                let (event, gone) = (matches!(frame, Some(Frame::Event(..))), frame.is_none());
                received.push(self.words(name, request.op(), frame));
                if gone {
                    self.wires.remove(name);
                    return received;
                }
                if !event {
                    break;
                }
            }
        }
        if matches!(requests.last(), Some(Request::CloseSession)) {
            self.wires.remove(name);
        }
        received
    }

    /// Returns the events of the others: events are in front of the reply to whatever they ask
    /// next.
    async fn listen(&mut self, but: Option<&str>) -> Vec<String> {
        let mut received = Vec::new();
        let names: Vec<String> = self.wires.keys().cloned().collect();
        for name in names {
            // A connection that is to be closed is not asked: it would receive that instead.
            if Some(name.as_str()) == but || name.ends_with("-before") {
                continue;
            }
            self.wires.get_mut(&name).unwrap().send(&[PROBE]).await;
            loop {
                let frame = self.wires.get_mut(&name).unwrap().next().await;
                match frame {
                    Some(Frame::Reply(..)) => break,
                    None => {
                        received.push(format!("{name}: the connection is closed"));
                        self.wires.remove(&name);
                        break;
                    }
                    event => received.push(self.words(&name, OpCode::Exists, event)),
                }
            }
        }
        received
    }

    fn words(&self, name: &str, op: OpCode, frame: Option<Frame>) -> String {
        match frame {
            None => format!("{name}: the connection is closed"),
            Some(Frame::Event(zxid, event)) => {
                format!(
                    "{name}: event {:?} {} (zxid {zxid})",
                    event.kind, event.path
                )
            }
            Some(Frame::Reply(header, body)) => {
                format!(
                    "{name}: {} (zxid {})",
                    self.reply(op, header, &body),
                    header.zxid
                )
            }
        }
    }

    fn reply(&self, op: OpCode, header: ReplyHeader, body: &Bytes) -> String {
        match decode(op, header, body) {
            Err(code) => format!("refused, {code:?}"),
            Ok(Response::PathStat(path, stat)) => format!("created {path}{}", self.owner(&stat)),
            Ok(Response::Stat(stat)) => {
                format!(
                    "version {}, children {}{}",
                    stat.version,
                    stat.num_children,
                    self.owner(&stat)
                )
            }
            Ok(Response::Data { data, stat }) => {
                format!("{}, version {}", text(data.as_deref()), stat.version)
            }
            Ok(Response::Children(mut names) | Response::Strings(mut names)) => {
                names.sort();
                format!("[{}]", names.join(", "))
            }
            Ok(Response::Multi(results)) => {
                let parts: Vec<_> = results.iter().map(part).collect();
                parts.join(" | ")
            }
            Ok(Response::WhoAmI(who)) => {
                let who: Vec<_> = who
                    .iter()
                    .map(|w| format!("{}:{}", w.scheme, w.user))
                    .collect();
                who.join(", ")
            }
            Ok(Response::Empty | Response::WatchAdded) => "done".to_owned(),
            Ok(other) => format!("{other:?}"),
        }
    }

    fn owner(&self, stat: &Stat) -> String {
        let owner = self
            .sessions
            .iter()
            .find(|(_, session)| stat.ephemeral_owner == session.session_id);
        owner.map_or(String::new(), |(name, _)| format!(", ephemeral of {name}"))
    }
}

fn part(result: &MultiResult) -> String {
    match result {
        MultiResult::Create { path } | MultiResult::Create2 { path, .. } => {
            format!("created {path}")
        }
        MultiResult::Delete => "deleted".to_owned(),
        MultiResult::SetData(stat) => format!("version {}", stat.version),
        MultiResult::Check => "as expected".to_owned(),
        MultiResult::Error(ErrorCode::Ok) => "undone".to_owned(),
        MultiResult::Error(ErrorCode::RuntimeInconsistency) => "not tried".to_owned(),
        MultiResult::Error(code) => format!("refused, {code:?}"),
        other => format!("{other:?}"),
    }
}

fn text(data: Option<&[u8]>) -> String {
    data.map_or("null".to_owned(), |data| {
        format!("{:?}", String::from_utf8_lossy(data))
    })
}
