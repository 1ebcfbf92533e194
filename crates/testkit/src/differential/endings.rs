//! Bad ends of connections and sessions in a program: a connection is lost with requests under way,
//! a session falls silent until the server ends it. Owns the rules by which that can be compared at
//! all; what is heard is in `run`.
//!
//! How much of what is under way a server carries out is not determined: of one session's requests
//! it is the first few, or all. So the answers are not compared. What counts is the state: when
//! nothing more happens, which another session sees by the zxid, the session is taken up again, and
//! sends once more those writes that no zxid was taken for. Then both servers must have carried out
//! all of them, each once and in order, and everything that follows is compared as ever. That a
//! server which saw all requests before the end of the stream carries out all of them is compared,
//! too.

use std::time::Duration;

use baton_proto::{Request, frame};
use tokio::time::{Instant, sleep, timeout};

use super::program::{Act, End, Handshake, Loss, ProgramLine, Silence};
use super::run::{PATIENCE, PAUSE, PROBE_XID, Run, probe_frame, refusal};

/// For this long no zxid is taken before the session is taken up again, which sees what was carried
/// out in the end.
const STANDSTILL: Duration = Duration::from_millis(50);

/// A follower of ZooKeeper reports to the leader, every half of a tick, which sessions it has heard
/// and with which timeout each. A report of before the session has asked for a shorter timeout
/// gives it the long one once more, so that it outlives every patience.
const REPORT: Duration = Duration::from_millis(1_000);

/// Asked for by a session that is to expire: less is not granted.
const SHORTEST: Handshake = Handshake {
    timeout_ms: 0,
    ..Handshake::USUAL
};

impl Run<'_> {
    /// The zxid that a session sees; its events of that time wait for the next read.
    async fn zxid(&mut self, number: usize) -> i64 {
        self.take_turn(number).await;
        let Some(client) = self.client(number) else {
            return 0;
        };
        if client.send_bytes(&probe_frame()).await.is_err() {
            return 0;
        }
        match timeout(PATIENCE, client.receive()).await {
            Ok(Ok(reply)) if reply.header.xid == PROBE_XID => {
                self.received(reply.header.zxid);
                reply.header.zxid
            }
            _ => 0,
        }
    }

    /// The events of all sessions up to now, so that it is apart from what comes; every session has
    /// a connection then.
    async fn all_received(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        for session in 0..self.sessions() {
            heard.extend(self.seated(session).await);
            heard.extend(self.probe(session).await);
        }
        heard
    }

    /// The events of the others about the end of a session, or of the writes before it.
    async fn others_received(&mut self, number: usize, in_no_order: bool) -> Vec<String> {
        let mut heard = Vec::new();
        for session in (0..self.sessions()).filter(|session| *session != number) {
            let mut events = self.probe(session).await;
            if in_no_order {
                events.sort();
            }
            heard.extend(events);
        }
        heard
    }

    /// Sends requests in one write and ends the connection before anything is heard.
    pub(super) async fn lose(&mut self, lines: &[ProgramLine]) -> Vec<Vec<String>> {
        let mut all = vec![Vec::new(); lines.len()];
        let (Some(ProgramLine { session, act, .. }), Some(last)) = (lines.last(), all.last_mut())
        else {
            return all;
        };
        let Act::Lose(loss) = *act else {
            return all;
        };
        let requests: Vec<_> = lines.iter().map(|line| &line.act).collect();
        let writes: Vec<_> = requests
            .iter()
            .filter(|act| act.is_write())
            .copied()
            .collect();
        *last = self.lose_with(*session, &requests, &writes, loss).await;
        all
    }

    async fn lose_with(
        &mut self,
        number: usize,
        requests: &[&Act],
        writes: &[&Act],
        loss: Loss,
    ) -> Vec<String> {
        let mut heard = self.all_received().await;
        let Some(observer) = self.other_than(number) else {
            return heard;
        };
        let begin = self.zxid(observer).await;
        let mut bytes = self.frames(number, requests);
        if loss.closing {
            frame::write_request(&mut bytes, PROBE_XID, &Request::CloseSession);
        }
        let ended = self.end_connection(number, &bytes, loss.end).await;
        let due = writes.len() + usize::from(loss.closing);
        let patience = match loss.end {
            End::HalfClosed => PATIENCE,
            End::Closed | End::Reset => STANDSTILL,
        };
        let done = self.settled(observer, begin, due, patience).await;
        if matches!(loss.end, End::HalfClosed) {
            heard.push(format!("{ended}; all was carried out: {}", done == due));
        }
        if done < due {
            let before = self.recall(number);
            self.catch_up(number, begin, writes, loss.closing).await;
            // Only one of the servers may have had to be asked again.
            self.remember(number, before);
        }
        heard.extend(self.reattach(number).await);
        heard.extend(self.others_received(number, loss.closing).await);
        heard
    }

    async fn end_connection(&mut self, number: usize, bytes: &[u8], how: End) -> String {
        let Some(mut client) = self.take_client(number) else {
            return String::new();
        };
        // A server that has ended the connection itself is seen by what comes.
        let _ = client.send_bytes(bytes).await;
        match how {
            End::HalfClosed => {
                let _ = client.finish().await;
                let drained = async {
                    loop {
                        if let Err(error) = client.receive().await {
                            break refusal(&error);
                        }
                    }
                };
                timeout(PATIENCE, drained)
                    .await
                    .unwrap_or_else(|_| "the connection stays".to_owned())
            }
            End::Closed => String::new(),
            End::Reset => {
                client.reset();
                String::new()
            }
        }
    }

    /// Waits until this number of writes was carried out, or none for a while; returns how many
    /// were.
    async fn settled(
        &mut self,
        observer: usize,
        begin: i64,
        due: usize,
        patience: Duration,
    ) -> usize {
        let (mut done, mut since) = (0, Instant::now());
        loop {
            let now = usize::try_from(self.zxid(observer).await - begin).unwrap_or(0);
            if now != done {
                (done, since) = (now, Instant::now());
            }
            if done >= due || since.elapsed() > patience {
                return done;
            }
            sleep(PAUSE).await;
        }
    }

    /// Sends again what was lost. The new connection's first reply comes after all that was carried
    /// out for the old one.
    async fn catch_up(&mut self, number: usize, begin: i64, writes: &[&Act], closing: bool) {
        let Some(before) = self.recall(number) else {
            return;
        };
        if self.take_up(number, before.0.timeout_ms).await.is_err() {
            // It was closed after all, but late.
            return;
        }
        let done = usize::try_from(self.zxid(number).await - begin).unwrap_or(0);
        for write in writes.iter().skip(done) {
            let bytes = self.frames(number, &[write]);
            if let Some(client) = self.client(number) {
                let _ = client.send_bytes(&bytes).await;
                self.await_reply(number).await;
            }
        }
        if closing && let Some(client) = self.client(number) {
            let _ = client.send(&Request::CloseSession).await;
            self.await_reply(number).await;
        }
    }

    /// Waits for the next reply, whatever it says.
    async fn await_reply(&mut self, number: usize) {
        if let Some(client) = self.client(number)
            && let Ok(Ok(reply)) = timeout(PATIENCE, client.receive()).await
        {
            self.received(reply.header.zxid);
        }
    }

    /// A session says nothing more, and the server ends it. Its ephemerals go in no particular
    /// order.
    pub(super) async fn expire(&mut self, number: usize, how: Silence) -> Vec<String> {
        let mut heard = self.all_received().await;
        let Some(observer) = self.other_than(number) else {
            return heard;
        };
        let begin = self.zxid(observer).await;
        if self.reach.has_several() {
            sleep(REPORT).await;
        }
        heard.push(self.reattach_for(number, SHORTEST.timeout_ms).await);
        if matches!(how, Silence::Disconnected) {
            drop(self.take_client(number));
        }
        let patience = Instant::now() + PATIENCE;
        while self.zxid(observer).await == begin && Instant::now() < patience {
            sleep(PAUSE).await;
        }
        if let Some(mut client) = self.take_client(number) {
            let end = match timeout(PATIENCE, client.receive()).await {
                Ok(Err(error)) => refusal(&error),
                Ok(Ok(reply)) => format!("{:?}", reply.header),
                Err(_) => "the connection stays".to_owned(),
            };
            heard.push(end);
        }
        heard.extend(self.reattach(number).await);
        heard.extend(self.others_received(number, true).await);
        heard
    }

    /// [`Run::reattach`] with another timeout.
    pub(super) async fn reattach_for(&mut self, number: usize, timeout_ms: i32) -> String {
        match self.take_up(number, timeout_ms).await {
            Ok(granted) => format!("re-attached for {} ms", granted.timeout_ms),
            Err(error) => format!("not re-attached: {}", refusal(&error)),
        }
    }
}
