//! Bytes that come in on a connection, and the consequences of its loss.
//!
//! Owns the strict matching of replies to operations, in order, and the bookkeeping of evidence
//! that they bring. It must never take a watch event or a reply out of its order (`hazards.md` G6),
//! nor count anything but an answer as a sign of life (`H27`).

use std::sync::Arc;

use baton_proto::{
    AuthPacket, ConnectResponse, Decoder, ErrorCode, Limits, OpCode, ReplyHeader, Request,
    Response, WatcherEvent, WatcherKind, path, xid,
};
use bytes::{Buf, Bytes};

use crate::clock::BootInstant;
use crate::error::Reason;
use crate::lease::{AnswerKind, CountedAnswers};
use crate::session::core::{Core, Phase, SessionState};
use crate::session::entry::{AnswerReceiver, Entry, QueuedOperation};
use crate::session::outcome::{Effects, Reply, UnansweredOutcome};
use crate::session::watches::Class;
use crate::state::{EndReason, State};

/// The node that only Baton's server has.
pub(crate) const BATON_NODE: &str = "/zookeeper/baton";

/// Path text in one request that re-arms watches: a stock server takes 1 MiB in a frame.
const REARM_BATCH_BYTES: usize = 128 * 1024;

/// Reason why a connection is over.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// Try to get another.
    Lost(String),
    /// The session is over.
    Ended,
}

impl Core {
    /// A server has taken the session: everything that must precede users' operations goes out
    /// first.
    pub(crate) fn attach(
        &self,
        response: &ConnectResponse,
        sent: BootInstant,
        created: bool,
    ) -> bool {
        let mut effects = Effects::default();
        let attached = {
            let now = self.now();
            let mut guard = self.inner.lock();
            let inner = &mut *guard;
            if let Phase::Ended(_) = inner.phase {
                return false;
            }
            inner.identity.id = response.session_id;
            inner.identity.password = response.password;
            inner.timeout =
                std::time::Duration::from_millis(u64::try_from(response.timeout_ms).unwrap_or(0));
            inner.epoch += 1;
            inner.phase = Phase::Attached;
            inner.out.clear();
            inner.enqueued = 0;
            inner.last_acked = inner.last_acked.max(sent);
            inner.last_proof = BootInstant::ZERO;
            inner.last_heartbeat = BootInstant::ZERO;
            inner.probe_answered = false;
            inner.takes_traces = false;
            inner.lease.connected(sent, inner.timeout, created);
            self.publish_lease(inner);
            let state = State::Connected { epoch: inner.epoch };
            self.states.publish(state);
            effects.state = Some((inner.identity.id, state, None));
            inner.send_credentials(now);
            inner.rearm_watches(now, inner.epoch > 1, &mut effects);
            let probe = Request::GetData {
                path: BATON_NODE,
                watch: false,
            };
            inner.send_internal(&self.config, &probe, AnswerReceiver::Probe, now);
            inner.flush_waiting(now, &mut effects);
            effects.changed = true;
            true
        };
        effects.deliver(&self.changed);
        attached
    }

    /// The connection is lost. `written` bytes of its stream reached the socket; `unsent` is the
    /// rest, beginning at `base`.
    pub(crate) fn detach(&self, written: u64, base: u64, mut unsent: Vec<u8>) {
        let mut effects = Effects::default();
        {
            let mut guard = self.inner.lock();
            let inner = &mut *guard;
            if let Phase::Ended(_) = inner.phase {
                return;
            }
            inner.phase = Phase::Detached;
            self.states.publish(State::Suspended);
            effects.state = Some((inner.identity.id, State::Suspended, None));
            unsent.append(&mut inner.out);
            inner.pings.clear();
            inner.credentials_in_flight.clear();
            for entry in std::mem::take(&mut inner.in_flight) {
                inner.carry_over(entry, written, base, &unsent, &mut effects);
            }
        }
        effects.deliver(&self.changed);
    }

    /// Takes one frame apart. Call it with the lock held.
    pub(crate) fn receive(
        &self,
        inner: &mut SessionState,
        mut frame: Bytes,
        now: BootInstant,
        effects: &mut Effects,
    ) -> Result<(), ConnectionEnd> {
        let garbled =
            |what: &dyn std::fmt::Display| ConnectionEnd::Lost(format!("unreadable reply: {what}"));
        let limits = Limits::with_max_frame_bytes(self.config.max_reply_bytes);
        let header =
            ReplyHeader::decode(&mut Decoder::new(&frame, &limits)).map_err(|e| garbled(&e))?;
        frame.advance(ReplyHeader::BYTES);
        match header.xid {
            xid::NOTIFICATION => {
                let event = WatcherEvent::decode(&mut Decoder::new(&frame, &limits))
                    .map_err(|e| garbled(&e))?;
                if let Some(local) = path::strip_chroot(&self.config.chroot, &event.path) {
                    let zxid = (header.zxid > 0).then_some(header.zxid);
                    let capacity = self.config.watch_capacity;
                    inner.watches.fire(
                        event.kind,
                        &event.path,
                        local,
                        zxid,
                        capacity,
                        &mut effects.fired,
                    );
                }
                Ok(())
            }
            xid::PING => {
                let sent = inner
                    .pings
                    .pop_front()
                    .ok_or_else(|| garbled(&"a pong without a ping"))?;
                self.acknowledged(inner, now, sent, AnswerKind::Ping);
                Ok(())
            }
            xid::AUTH => self.receive_auth(inner, header, effects),
            xid::SET_WATCHES => {
                if header.err == 0 {
                    Ok(())
                } else {
                    Err(garbled(&header.error()))
                }
            }
            _ => self.receive_reply(inner, header, frame, now, effects),
        }
    }

    fn acknowledged(
        &self,
        inner: &mut SessionState,
        now: BootInstant,
        sent: BootInstant,
        answered: AnswerKind,
    ) {
        if inner.lease.is_sign_of_life(answered) {
            inner.last_acked = inner.last_acked.max(sent);
        }
        inner.lease.acknowledged(now, sent, answered);
        self.publish_lease(inner);
    }

    fn receive_auth(
        &self,
        inner: &mut SessionState,
        header: ReplyHeader,
        effects: &mut Effects,
    ) -> Result<(), ConnectionEnd> {
        let waiter = inner
            .credentials_in_flight
            .pop_front()
            .and_then(|index| inner.credentials.get_mut(index))
            .and_then(|credential| credential.waiter.take());
        let refused = header.err != 0;
        effects.changed = true;
        if refused {
            self.end_locked(inner, EndReason::AuthFailed, effects);
        }
        if let Some(waiter) = waiter {
            let reply = Reply {
                err: header.error(),
                zxid: header.zxid,
                body: Bytes::new(),
            };
            effects.finished.push((waiter, Ok(reply)));
        }
        if refused {
            Err(ConnectionEnd::Ended)
        } else {
            Ok(())
        }
    }

    fn receive_reply(
        &self,
        inner: &mut SessionState,
        header: ReplyHeader,
        body: Bytes,
        now: BootInstant,
        effects: &mut Effects,
    ) -> Result<(), ConnectionEnd> {
        let Some(mut entry) = inner.in_flight.pop_front() else {
            return Err(ConnectionEnd::Lost(format!(
                "a reply with xid {} that belongs to no request",
                header.xid
            )));
        };
        if entry.xid != header.xid {
            let text = format!("reply with xid {} where {} was due", header.xid, entry.xid);
            inner.in_flight.push_front(entry);
            return Err(ConnectionEnd::Lost(text));
        }
        inner.last_zxid = inner.last_zxid.max(header.zxid);
        let err = header.error();
        match err {
            ErrorCode::SessionExpired => {
                self.end_locked(inner, EndReason::ExpiredByServer, effects);
                let reason = Reason::SessionEnded(EndReason::ExpiredByServer);
                inner.abandon(entry, UnansweredOutcome::NotSent, reason, effects);
                return Err(ConnectionEnd::Ended);
            }
            // The next connection would be closed for the same: the credentials came before this.
            ErrorCode::SessionClosedRequireSaslAuth => {
                self.end_locked(inner, EndReason::AuthRequired, effects);
                let reason = Reason::SessionEnded(EndReason::AuthRequired);
                inner.abandon(entry, UnansweredOutcome::NotSent, reason, effects);
                return Err(ConnectionEnd::Ended);
            }
            // The server that answers so has been left behind; the operation was not applied.
            ErrorCode::SessionMoved => {
                inner.abandon(
                    entry,
                    UnansweredOutcome::NotSent,
                    Reason::Disconnected,
                    effects,
                );
                return Err(ConnectionEnd::Lost(
                    "the session has moved to another server".to_owned(),
                ));
            }
            _ => {}
        }
        inner.forget_bytes(entry.len);
        // Only success counts as evidence: a refusal may come from a follower on its own.
        let proof = entry.proof.filter(|_| err == ErrorCode::Ok);
        if proof.is_some() {
            inner.last_proof = inner.last_proof.max(entry.sent);
        }
        let answered = match proof {
            Some(proof) => AnswerKind::Write(proof),
            None if entry.op == OpCode::Sync && err == ErrorCode::Ok => AnswerKind::Sync,
            None => AnswerKind::Read,
        };
        self.acknowledged(inner, now, entry.sent, answered);
        if let Some(ticket) = entry.watch.take() {
            let (path, exists) = (Arc::clone(&entry.path), err == ErrorCode::Ok);
            let armed = exists || (entry.op == OpCode::Exists && err == ErrorCode::NoNode);
            let remove = if armed {
                inner.watches.arm(ticket, exists)
            } else {
                inner.watches.withdraw(&ticket)
            };
            if let Some(kind) = remove {
                self.remove_watch(inner, &path, kind, now);
            }
        }
        let reply = Reply {
            err,
            zxid: header.zxid,
            body,
        };
        match entry.done {
            AnswerReceiver::User(to) => effects.finished.push((to, Ok(reply))),
            AnswerReceiver::Nobody => {}
            AnswerReceiver::RemoveWatches => {
                inner.watches.cannot_remove |= err == ErrorCode::Unimplemented
            }
            AnswerReceiver::Probe => {
                inner.probe_answered = true;
                let says = SelfDescription::of(&reply);
                inner.takes_traces = says.takes_traces();
                inner.lease.set_counted_answers(says.counted_answers());
                effects.changed = true;
            }
            AnswerReceiver::Close => {
                self.end_locked(inner, EndReason::Closed, effects);
                return Err(ConnectionEnd::Ended);
            }
        }
        Ok(())
    }

    fn remove_watch(
        &self,
        inner: &mut SessionState,
        path: &Arc<str>,
        kind: WatcherKind,
        now: BootInstant,
    ) {
        if inner.phase == Phase::Attached {
            let request = Request::RemoveWatches {
                path,
                kind: kind.code(),
            };
            inner.send_internal(&self.config, &request, AnswerReceiver::RemoveWatches, now);
        }
    }

    /// A local watch was dropped: the last one takes the server's watch with it (`H53`).
    pub(crate) fn unwatch(&self, path: &Arc<str>, class: Class, id: u64) {
        let waker = {
            let mut inner = self.inner.lock();
            match inner.watches.drop_interest(path, class, id) {
                Some(kind) => {
                    let now = self.now();
                    self.remove_watch(&mut inner, path, kind, now);
                    inner.waker.take()
                }
                None => None,
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn end_reason(&self) -> EndReason {
        match self.inner.lock().phase {
            Phase::Ended(reason) => reason,
            _ => EndReason::DriverGone,
        }
    }
}

impl SessionState {
    fn send_credentials(&mut self, now: BootInstant) {
        let infos: Vec<_> = self.credentials.iter().map(|c| c.info.clone()).collect();
        for (index, info) in infos.iter().enumerate() {
            let packet = AuthPacket {
                kind: 0,
                scheme: &info.scheme,
                auth: Some(&info.data),
            };
            self.send_control(xid::AUTH, &Request::Auth(packet), now);
            self.credentials_in_flight.push_back(index);
        }
    }

    fn rearm_watches(&mut self, now: BootInstant, again: bool, effects: &mut Effects) {
        let mut watches = std::mem::take(&mut self.watches);
        let zxid = self.last_zxid;
        watches.rearm(zxid, REARM_BATCH_BYTES, |request| {
            self.send_control(xid::SET_WATCHES, &request, now);
        });
        if again {
            watches.resync(&mut effects.fired);
        }
        self.watches = watches;
    }

    /// The answer that is due is too large to be read. Its operation ends with that: asked again on
    /// the next connection, it would bring the same answer, for ever (`H75`).
    pub(crate) fn refuse_answer(&mut self, bytes: usize, limit: usize, effects: &mut Effects) {
        let Some(entry) = self.in_flight.pop_front() else {
            return;
        };
        let fate = entry.fate_when_lost();
        self.abandon(entry, fate, Reason::ReplyTooLarge { bytes, limit }, effects);
    }

    /// Decides what becomes of an operation whose connection is lost: reads, and what never left,
    /// wait for the next one; of writes that left, nothing is known.
    fn carry_over(
        &mut self,
        mut entry: Entry,
        written: u64,
        base: u64,
        unsent: &[u8],
        effects: &mut Effects,
    ) {
        let left = entry.end <= written;
        let unwanted = match &entry.done {
            AnswerReceiver::User(to) => left && to.is_closed(),
            AnswerReceiver::Close => false,
            _ => true,
        };
        let frame = if unwanted || entry.fail_fast {
            None
        } else if left {
            entry.resend.map(|resend| {
                let request = resend.request(&entry.path);
                let mut frame = Vec::with_capacity(entry.len);
                baton_proto::frame::write_request(&mut frame, 0, &request);
                frame
            })
        } else {
            let end = usize::try_from(entry.end - base).unwrap_or(usize::MAX);
            unsent
                .get(end.saturating_sub(entry.len)..end)
                .map(<[u8]>::to_vec)
        };
        if let Some(frame) = frame {
            entry.proof = None;
            self.waiting.push_back(QueuedOperation { entry, frame });
            return;
        }
        let (fate, reason) = if left {
            (entry.fate_when_lost(), Reason::ConnectionLost)
        } else {
            (UnansweredOutcome::NotSent, Reason::Disconnected)
        };
        self.abandon(entry, fate, reason, effects);
    }
}

/// Description that Baton gives of itself. A search for the text is enough: the server writes it
/// without blanks, and what is not understood only means the stricter lease.
struct SelfDescription(Vec<u8>);

impl SelfDescription {
    /// Reads the answer to the probe. Only Baton answers with a znode that no change has made: one
    /// that somebody has created there on another server says nothing (`H91`).
    fn of(reply: &Reply) -> Self {
        let answer = match reply.err {
            ErrorCode::Ok => {
                Response::decode(OpCode::GetData, &reply.body, &Limits::default()).ok()
            }
            _ => None,
        };
        let Some(Response::Data { data, stat }) = answer else {
            return Self(Vec::new());
        };
        let is_virtual = (stat.czxid, stat.mzxid) == (0, 0);
        let bytes = data.filter(|_| is_virtual).unwrap_or_default();
        let bytes = bytes.iter().copied();
        Self(bytes.filter(|b| !b.is_ascii_whitespace()).collect())
    }

    fn says(&self, wanted: &[u8]) -> bool {
        self.0.windows(wanted.len()).any(|part| part == wanted)
    }

    fn counted_answers(&self) -> CountedAnswers {
        // What an ensemble says comes first: there, fewer answers count.
        if self.says(b"\"lease\":\"ping\"") {
            CountedAnswers::Confirmed
        } else if self.says(b"\"ping_lease\":true") {
            CountedAnswers::All
        } else {
            CountedAnswers::Unstated
        }
    }

    fn takes_traces(&self) -> bool {
        self.says(b"\"traces\":true")
    }
}

#[cfg(test)]
mod tests {
    use baton_proto::Stat;

    use super::*;

    /// Returns the description in an answer with this data, of a znode that this change has made.
    fn says(data: &str, czxid: i64) -> SelfDescription {
        let data = Some(Bytes::copy_from_slice(data.as_bytes()));
        let stat = Stat {
            czxid,
            ..Stat::default()
        };
        let mut body = Vec::new();
        Response::Data { data, stat }.encode(&mut body);
        SelfDescription::of(&Reply {
            err: ErrorCode::Ok,
            zxid: 1,
            body: body.into(),
        })
    }

    #[test]
    fn h91_a_znode_that_somebody_has_made_is_no_description_of_a_server() {
        let said = "{\"version\":\"1\",\"ping_lease\":true,\"lease\":\"ping\",\"traces\":true}";
        assert!(says(said, 0).takes_traces());
        let forged = says(said, 7);
        assert_eq!(forged.counted_answers(), CountedAnswers::Unstated);
        assert!(!forged.takes_traces());
        // Nor does an answer that is not a read's.
        let garbled = SelfDescription::of(&Reply {
            err: ErrorCode::Ok,
            zxid: 1,
            body: Bytes::copy_from_slice(said.as_bytes()),
        });
        assert_eq!(garbled.counted_answers(), CountedAnswers::Unstated);
    }

    #[test]
    fn r33_what_a_server_says_of_its_answers_is_read_with_or_without_blanks() {
        for (said, counted) in [
            (
                "{\"version\":\"1\",\"ping_lease\":true}",
                CountedAnswers::All,
            ),
            ("{ \"ping_lease\" : true }", CountedAnswers::All),
            (
                "{\"version\":\"1\",\"ping_lease\":false,\"lease\":\"ping\"}",
                CountedAnswers::Confirmed,
            ),
            (
                "{\"ping_lease\":true,\"lease\" : \"ping\"}",
                CountedAnswers::Confirmed,
            ),
            ("{\"ping_lease\":false}", CountedAnswers::Unstated),
            ("{\"lease\":\"other\"}", CountedAnswers::Unstated),
            ("", CountedAnswers::Unstated),
        ] {
            let says = says(said, 0);
            assert_eq!(says.counted_answers(), counted, "{said}");
            assert!(!says.takes_traces(), "{said}");
        }
    }

    #[test]
    fn a_server_that_records_traces_says_so() {
        for (said, counted) in [
            ("{\"ping_lease\":true,\"traces\":true}", CountedAnswers::All),
            (
                "{\"ping_lease\":false,\"lease\":\"ping\",\"traces\" : true}",
                CountedAnswers::Confirmed,
            ),
        ] {
            let says = says(said, 0);
            assert!(says.takes_traces(), "{said}");
            assert_eq!(says.counted_answers(), counted, "{said}");
        }
    }
}
