//! A program on one server: sends what it says and writes down all that each session hears, in the
//! order in which it hears it. Compares nothing.
//!
//! On an ensemble the sessions are spread over the servers, and a session that is re-attached
//! without requests under way goes on at the next server. Whenever another session has its turn, a
//! `sync` comes first, and again until the server is as far as the newest answer of any session.
//! The answers are those of one server then. (One `sync` does not suffice: ZooKeeper's leader
//! answers that of its own clients without a look at what it has committed and not yet applied.)

use std::time::Duration;

use baton_proto::{
    Acl, ConnectRequest, ConnectResponse, Create, CreateMode, ErrorCode, Limits, OpCode, Request,
    Response, frame, xid,
};
use tokio::time::{sleep, timeout};

use super::differences::Differences;
use super::frames;
use super::generator::Generator;
use super::normal::Normalizer;
use super::places::PathTable;
use super::program::{Act, Claim, Handshake, Program, ProgramLine};
use super::reach::ServerAccess;
use crate::raw::{RawClient, RawError, RawReply};

/// Longer than any answer takes; a server that takes longer hangs.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

const PROBE: Request<'static> = Request::Exists {
    path: "/zookeeper",
    watch: false,
};
const SYNC: Request<'static> = Request::Sync { path: "/" };
/// Between two reads of the zxid.
pub(super) const PAUSE: Duration = Duration::from_millis(5);

/// Unlike that of any request of a program.
pub(super) const PROBE_XID: i32 = xid::PING - 1;

/// Above the usage and limits of all programs.
const QUOTAS: &str = "/zookeeper/quota";

/// One session of the program, and its connection while it has one.
#[derive(Debug)]
struct ProgramSession {
    /// The number of its server.
    server: usize,
    client: Option<RawClient>,
    session: ConnectResponse,
    next_xid: i32,
}

/// A run of one program on one server.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) reach: &'a ServerAccess,
    /// The session whose server shows everything that was answered so far; `None`: perhaps none.
    turn: Option<usize>,
    /// The highest zxid of all answers.
    newest: i64,
    places: PathTable,
    differences: &'a Differences,
    normal: Normalizer,
    seats: Vec<ProgramSession>,
}

impl<'a> Run<'a> {
    /// Makes the program's folder, and one above it that is the program's own too, and opens its
    /// sessions; for a program with quotas also the folder of these.
    pub(super) async fn begin(
        reach: &'a ServerAccess,
        folder: &str,
        program: &Program,
        differences: &'a Differences,
    ) -> Result<Self, RawError> {
        let parent = folder.rsplit_once('/').map_or(folder, |(parent, _)| parent);
        let mut seats = Vec::new();
        for session in 0..program.sessions {
            seats.push(ProgramSession::open(reach, session, session, Handshake::USUAL).await?);
        }
        let mut run = Self {
            reach,
            turn: None,
            newest: 0,
            places: PathTable::new(folder, Generator::paths()),
            differences,
            normal: Normalizer {
                base: 0,
                sessions: seats.iter().map(|seat| seat.session.session_id).collect(),
            },
            seats,
        };
        let Some(client) = run.seats.first_mut().and_then(|seat| seat.client.as_mut()) else {
            return Err(RawError::Closed);
        };
        let mut paths = vec![parent.to_owned(), folder.to_owned()];
        if program.quotas {
            paths.extend([format!("{QUOTAS}{parent}"), format!("{QUOTAS}{folder}")]);
        }
        for path in &paths {
            let open = vec![Acl::open_unsafe()];
            let create = Create::new(path, None, open, CreateMode::Persistent);
            client.send(&Request::Create(create)).await?;
            run.normal.base = client.receive().await?.header.zxid;
        }
        run.newest = run.normal.base;
        Ok(run)
    }

    /// Returns what was heard at each line, and, at the end, while the sessions were closed.
    pub(super) async fn play(mut self, program: &Program) -> Vec<Vec<String>> {
        let mut heard = Vec::with_capacity(program.lines.len() + 1);
        while heard.len() < program.lines.len() {
            let start = heard.len();
            let end = program.burst_end(start);
            let lines = program.lines.get(start..end).unwrap_or_default();
            match lines {
                [.., last] if last.act.ends_a_burst() => heard.extend(self.lose(lines).await),
                [line] if !line.act.is_sent() => heard.push(self.apart(line).await),
                lines => heard.extend(self.burst(lines).await),
            }
        }
        heard.push(self.end().await);
        heard
    }

    /// Sends some requests in one write and hears the answers.
    async fn burst(&mut self, lines: &[ProgramLine]) -> Vec<Vec<String>> {
        let Some(number) = lines.first().map(|line| line.session) else {
            return Vec::new();
        };
        let mut heard = vec![Vec::new(); lines.len()];
        if let Some(first) = heard.first_mut() {
            first.extend(self.seated(number).await);
        }
        self.take_turn(number).await;
        let Some(seat) = self.seats.get_mut(number) else {
            return heard;
        };
        let mut bytes = Vec::new();
        let mut expected = Vec::with_capacity(lines.len());
        for line in lines {
            expected.push(seat.write(&line.act, &self.places, self.normal.base, &mut bytes));
        }
        if let Some(client) = &mut seat.client {
            // A server that has closed the connection is heard below.
            let _ = client.send_bytes(&bytes).await;
        }
        for (op, heard) in expected.into_iter().zip(&mut heard) {
            let zxid = seat.hear(op, &self.normal, self.differences, heard).await;
            self.newest = self.newest.max(zxid);
        }
        heard
    }

    /// Has the session's server show what was answered to other sessions.
    pub(super) async fn take_turn(&mut self, number: usize) {
        if !self.reach.has_several() || self.turn == Some(number) {
            return;
        }
        let newest = self.newest;
        let Some(client) = self.client(number) else {
            return;
        };
        let synced = async {
            loop {
                client.send_bytes(&internal_frame(&SYNC)).await?;
                let zxid = client.receive().await?.header.zxid;
                if zxid >= newest {
                    return Ok::<_, RawError>(());
                }
                sleep(PAUSE).await;
            }
        };
        // A connection that has ended is noticed by what is sent next.
        let _ = timeout(PATIENCE, synced).await;
        self.turn = Some(number);
    }

    /// An answer with this zxid was received.
    pub(super) fn received(&mut self, zxid: i64) {
        self.newest = self.newest.max(zxid);
    }

    /// Gives the session a connection if it has lost it, and a successor if it is gone.
    pub(super) async fn seated(&mut self, number: usize) -> Vec<String> {
        let lost = self
            .seats
            .get(number)
            .is_some_and(|seat| seat.client.is_none());
        if lost {
            self.reattach(number).await
        } else {
            Vec::new()
        }
    }

    async fn apart(&mut self, line: &ProgramLine) -> Vec<String> {
        match line.act {
            Act::Reattach => {
                let mut heard = self.probe(line.session).await;
                if let Some(seat) = self.seats.get_mut(line.session) {
                    seat.server += 1;
                }
                heard.extend(self.reattach(line.session).await);
                heard
            }
            Act::Claim(claim) => self.claim(line.session, claim).await,
            Act::Reopen(how) => self.reopen(line.session, how).await,
            Act::Expire(how) => self.expire(line.session, how).await,
            Act::Frame(length) => self.frame(line.session, length).await,
            _ => Vec::new(),
        }
    }

    /// The first four bytes of a frame, and no more.
    async fn frame(&mut self, number: usize, length: i32) -> Vec<String> {
        let mut heard = self.seated(number).await;
        heard.extend(self.probe(number).await);
        if let Some(seat) = self.seats.get_mut(number)
            && let Some(client) = &mut seat.client
        {
            let _ = client.send_bytes(&length.to_be_bytes()).await;
            let (normal, differences) = (&self.normal, self.differences);
            let zxid = seat
                .hear(OpCode::Ping, normal, differences, &mut heard)
                .await;
            self.received(zxid);
        }
        heard
    }

    pub(super) async fn reattach(&mut self, number: usize) -> Vec<String> {
        let Some(seat) = self.seats.get(number) else {
            return Vec::new();
        };
        let old = seat.session;
        match self.take_up(number, old.timeout_ms).await {
            Ok(granted) => vec![format!("re-attached, as it was: {}", granted == old)],
            Err(error) => {
                let mut heard = vec![format!("not re-attached: {}", refusal(&error))];
                heard.push(self.open(number, Handshake::USUAL).await);
                heard
            }
        }
    }

    /// Gives the session a new connection.
    pub(super) async fn take_up(
        &mut self,
        number: usize,
        timeout_ms: i32,
    ) -> Result<ConnectResponse, RawError> {
        let seat = self.seats.get_mut(number).ok_or(RawError::Closed)?;
        let request = ConnectRequest {
            last_zxid_seen: self.normal.base,
            session_id: seat.session.session_id,
            password: &seat.session.password,
            timeout_ms,
            ..connect(Handshake::USUAL)
        };
        self.turn = None;
        let client = handshake(self.reach, seat.server, number, &request).await?;
        seat.session = *client.session();
        seat.client = Some(client);
        Ok(seat.session)
    }

    async fn open(&mut self, number: usize, how: Handshake) -> String {
        let at = self.seats.get(number).map_or(number, |seat| seat.server);
        self.turn = None;
        match ProgramSession::open(self.reach, at, number, how).await {
            Ok(fresh) => {
                let granted = fresh.session;
                self.normal.sessions.push(granted.session_id);
                if let Some(seat) = self.seats.get_mut(number) {
                    *seat = fresh;
                }
                self.see_opening(number).await;
                format!(
                    "a session of {} ms, readOnly {:?}",
                    granted.timeout_ms, granted.read_only
                )
            }
            Err(error) => format!("no session: {}", refusal(&error)),
        }
    }

    /// Notes the zxid that the opening of the session has taken, in an ensemble.
    async fn see_opening(&mut self, number: usize) {
        if !self.reach.has_several() {
            return;
        }
        if let Some(client) = self.client(number)
            && client.send_bytes(&probe_frame()).await.is_ok()
            && let Ok(Ok(reply)) = timeout(PATIENCE, client.receive()).await
        {
            self.received(reply.header.zxid);
        }
    }

    async fn claim(&mut self, number: usize, claim: Claim) -> Vec<String> {
        let Some(seat) = self.seats.get(number) else {
            return Vec::new();
        };
        let at = seat.server;
        let (mut id, mut password, mut seen) = (
            seat.session.session_id,
            seat.session.password,
            self.normal.base,
        );
        match claim {
            Claim::WrongPassword => password = [7; 16],
            Claim::UnknownSession => id ^= 0x7777,
            Claim::AheadOfTheServer => seen += 1 << 40,
        }
        let request = ConnectRequest {
            last_zxid_seen: seen,
            session_id: id,
            password: &password,
            ..connect(Handshake::USUAL)
        };
        let mut heard = self.probe(number).await;
        heard.push(match handshake(self.reach, at, number, &request).await {
            Ok(_) => "granted".to_owned(),
            Err(error) => refusal(&error),
        });
        if self.differences.has("claim-harms-nobody") {
            heard.extend(self.reattach(number).await);
        }
        heard
    }

    /// Closes a session and opens another. Its ephemerals go in no particular order, so what the
    /// others hear of it is sorted, apart from what they heard before.
    async fn reopen(&mut self, number: usize, how: Handshake) -> Vec<String> {
        let mut heard = self.close(number).await;
        heard.push(self.open(number, how).await);
        let shortest = self
            .seats
            .get(number)
            .map_or(0, |seat| seat.session.timeout_ms);
        if shortest < Handshake::USUAL.timeout_ms {
            // It might end while the others are busy.
            heard.push(self.reattach_for(number, Handshake::USUAL.timeout_ms).await);
        }
        heard
    }

    async fn close(&mut self, number: usize) -> Vec<String> {
        // Left without a connection it would expire, and take a zxid, while another program runs.
        let mut heard = self.seated(number).await;
        for session in 0..self.seats.len() {
            heard.extend(self.probe(session).await);
        }
        let Some(seat) = self.seats.get_mut(number) else {
            return heard;
        };
        if let Some(client) = &mut seat.client {
            let _ = client.send(&Request::CloseSession).await;
            seat.next_xid += 1;
        }
        let mut closing = Vec::new();
        let zxid = seat
            .hear(
                OpCode::CloseSession,
                &self.normal,
                self.differences,
                &mut closing,
            )
            .await;
        seat.client = None;
        self.received(zxid);
        self.turn = None;
        closing.sort();
        heard.extend(closing);
        for session in 0..self.seats.len() {
            if session != number {
                let mut events = self.probe(session).await;
                events.sort();
                heard.extend(events);
            }
        }
        heard
    }

    /// The events of a session since it was last read: events are in front of the reply to
    /// whatever it asks next.
    pub(super) async fn probe(&mut self, number: usize) -> Vec<String> {
        let mut heard = Vec::new();
        self.take_turn(number).await;
        let Some(seat) = self.seats.get_mut(number) else {
            return heard;
        };
        if let Some(client) = &mut seat.client {
            let _ = client.send_bytes(&probe_frame()).await;
            let zxid = seat
                .hear(OpCode::Exists, &self.normal, self.differences, &mut heard)
                .await;
            self.newest = self.newest.max(zxid);
            // The reply says nothing new.
            if let Some(last) = heard.pop()
                && !last.starts_with("xid")
            {
                heard.push(last);
            }
        }
        for line in &mut heard {
            *line = format!("session {number} {line}");
        }
        heard
    }

    pub(super) fn sessions(&self) -> usize {
        self.seats.len()
    }

    /// Another session of the program.
    pub(super) fn other_than(&self, number: usize) -> Option<usize> {
        (0..self.seats.len()).find(|other| *other != number)
    }

    pub(super) fn client(&mut self, number: usize) -> Option<&mut RawClient> {
        self.seats.get_mut(number)?.client.as_mut()
    }

    pub(super) fn take_client(&mut self, number: usize) -> Option<RawClient> {
        self.seats.get_mut(number)?.client.take()
    }

    /// Returns the session's last grant, and its next xid.
    pub(super) fn recall(&self, number: usize) -> Option<(ConnectResponse, i32)> {
        let seat = self.seats.get(number)?;
        Some((seat.session, seat.next_xid))
    }

    pub(super) fn remember(&mut self, number: usize, what: Option<(ConnectResponse, i32)>) {
        if let (Some(seat), Some((session, next_xid))) = (self.seats.get_mut(number), what) {
            (seat.session, seat.next_xid) = (session, next_xid);
        }
    }

    /// The frames of those acts that are one, from the session's next xid on.
    pub(super) fn frames(&mut self, number: usize, acts: &[&Act]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(seat) = self.seats.get_mut(number) {
            for act in acts.iter().filter(|act| act.is_sent()) {
                seat.write(act, &self.places, self.normal.base, &mut bytes);
            }
        }
        bytes
    }

    async fn end(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        for number in 0..self.seats.len() {
            heard.extend(self.close(number).await);
        }
        heard
    }
}

impl ProgramSession {
    async fn open(
        reach: &ServerAccess,
        server: usize,
        session: usize,
        how: Handshake,
    ) -> Result<Self, RawError> {
        let client = handshake(reach, server, session, &connect(how)).await?;
        Ok(Self {
            server,
            session: *client.session(),
            client: Some(client),
            next_xid: 1,
        })
    }

    /// Appends the frame; returns the operation that the answer is to be read as.
    fn write(&mut self, act: &Act, places: &PathTable, base: i64, out: &mut Vec<u8>) -> OpCode {
        frames::write(act, &mut self.next_xid, places, base, out)
    }

    /// Hears the next reply, and the events before it; returns the reply's zxid, 0 without one.
    async fn hear(
        &mut self,
        op: OpCode,
        normal: &Normalizer,
        differences: &Differences,
        heard: &mut Vec<String>,
    ) -> i64 {
        let Some(client) = &mut self.client else {
            heard.push("nothing: there is no connection".to_owned());
            return 0;
        };
        let reply = timeout(PATIENCE, client.receive()).await;
        for (zxid, event) in client.take_events() {
            let mut line = format!("receives {:?} {}", event.kind, event.path);
            if !differences.has("event-zxid") {
                line.push_str(&format!(" by {}", normal.zxid(zxid)));
            }
            heard.push(line);
        }
        let zxid = match &reply {
            Ok(Ok(reply)) => reply.header.zxid,
            _ => 0,
        };
        match reply {
            Ok(Ok(reply)) => {
                heard.push(reply_text(op, &reply, normal));
                if ends_the_connection(&reply) {
                    // What is sent before it has ended may be carried out, or not.
                    let more = timeout(PATIENCE, client.receive()).await;
                    heard.push(more.map_or("the connection goes on".to_owned(), |more| {
                        more.map_or_else(
                            |error| refusal(&error),
                            |more| reply_text(op, &more, normal),
                        )
                    }));
                    self.client = None;
                }
            }
            Ok(Err(error)) => {
                heard.push(refusal(&error));
                self.client = None;
            }
            Err(_) => {
                heard.push(format!("no answer in {} s", PATIENCE.as_secs()));
                self.client = None;
            }
        }
        zxid
    }
}

pub(super) fn probe_frame() -> Vec<u8> {
    internal_frame(&PROBE)
}

/// A request that no program has: its xid counts for nobody.
fn internal_frame(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_request(&mut bytes, PROBE_XID, request);
    bytes
}

fn ends_the_connection(reply: &RawReply) -> bool {
    match reply.header.error() {
        ErrorCode::AuthFailed => true,
        // The other refusals as unimplemented have the zxid of a write.
        ErrorCode::Unimplemented => reply.header.zxid == -1,
        _ => false,
    }
}

fn reply_text(op: OpCode, reply: &RawReply, normal: &Normalizer) -> String {
    let header = &reply.header;
    let body = match header.error() {
        ErrorCode::Ok => match Response::decode(op, &reply.body, &Limits::default()) {
            Ok(response) => format!("{:?}", normal.response(response)),
            Err(error) => format!("{error} in {:02x?}", &reply.body[..]),
        },
        error if reply.body.is_empty() => format!("{error:?}"),
        error => format!("{error:?} and {:02x?}", &reply.body[..]),
    };
    format!(
        "xid {}, zxid {}: {body}",
        header.xid,
        normal.zxid(header.zxid)
    )
}

/// Text of a connection's end. Which one the system reports depends on the moment: only that it
/// ended is compared.
pub(super) fn refusal(error: &RawError) -> String {
    match error {
        RawError::Io(_) | RawError::Closed => "the connection is closed".to_owned(),
        RawError::SessionRefused { .. } => "refused".to_owned(),
        other => other.to_string(),
    }
}

/// Connects. A server that does not answer for long counts as one that has closed the connection.
async fn handshake(
    reach: &ServerAccess,
    server: usize,
    session: usize,
    request: &ConnectRequest<'_>,
) -> Result<RawClient, RawError> {
    let connected = timeout(PATIENCE, reach.handshake(server, session, request)).await;
    connected.unwrap_or(Err(RawError::Closed))
}

fn connect(how: Handshake) -> ConnectRequest<'static> {
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 0,
        timeout_ms: how.timeout_ms,
        session_id: 0,
        password: &[0; 16],
        read_only: how.read_only,
    }
}
