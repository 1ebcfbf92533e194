//! The first bytes of a connection: a four-letter word, or the frame that asks for a session.

use std::sync::atomic::Ordering::Relaxed;

use baton_proto::{ConnectResponse, frame};
use bytes::Buf;

use super::exchange::{Exchange, Phase, WaitReason};
use crate::connections::conn::CloseReason;
use crate::net::end::End;
use crate::net::frames::whole_frame;
use crate::net::handshake::{self, Opening};
use crate::operator::words;
use crate::report::notice::Notice;
use crate::time::micros;

/// The longest first frame: a ConnectRequest has 45 bytes.
const FIRST_FRAME_BYTES: usize = 4 << 10;
/// The first bytes of a TLS handshake. As the length of a frame this would be over every limit.
const TLS_RECORD: [u8; 2] = [0x16, 0x03];

impl Exchange {
    /// The connection's first bytes.
    pub(super) fn start(&mut self) -> Result<WaitReason, End> {
        let Some(first) = self.input.first_chunk::<4>() else {
            return Ok(WaitReason::Input);
        };
        if let Some(word) = words::recognise(*first) {
            let Some(argument) = word.argument(&self.input) else {
                return Ok(WaitReason::Input);
            };
            self.phase = Phase::Word(word, argument);
            return Ok(WaitReason::Room);
        }
        if first.starts_with(&TLS_RECORD) {
            let what = "it wants to speak TLS to a port without TLS; let it connect without TLS, or give this port TLS (secure_listen, port_unification)";
            return Err(End::Refused(Notice::BadFrame, what.to_owned()));
        }
        let input = std::mem::take(&mut self.input);
        let max_bytes = self.state.limits.max_frame_bytes.min(FIRST_FRAME_BYTES);
        let outcome = match whole_frame(&input, max_bytes) {
            Ok(Some((frame, after))) => {
                let used = input.len() - after.len();
                handshake::request(&self.state, &self.conn, frame, &mut self.work, self.read_at)
                    .map(|opening| Some((used, opening)))
                    .map_err(|what| (Notice::BadFrame, what))
            }
            Ok(None) => Ok(None),
            Err(error) => Err((self.no_frame(&error), error.to_string())),
        };
        self.input = input;
        match outcome {
            Ok(Some((used, opening))) => {
                self.input.advance(used);
                self.state.stats.received.fetch_add(1, Relaxed);
                self.conn.stats.received.fetch_add(1, Relaxed);
                match opening {
                    Opening::Asked => {
                        self.phase = Phase::Attaching;
                        self.submit();
                    }
                    Opening::Answered(answer) => self.open_read_only(&answer),
                }
                Ok(WaitReason::Room)
            }
            Ok(None) => Ok(WaitReason::Input),
            Err((notice, what)) => Err(End::Refused(notice, what)),
        }
    }

    /// Answers the client whose session is one of read-only mode, or is refused there.
    fn open_read_only(&mut self, answer: &ConnectResponse) {
        frame::write_connect_response(self.replies.out(), answer);
        self.phase = Phase::ReadOnly;
        self.learn_binding();
        if !self.conn.is_read_only() {
            self.close_after = Some(CloseReason::SessionRefused);
        }
        let state = &self.state;
        state.stats.sent.fetch_add(1, Relaxed);
        let now = state.time.now();
        let micros = micros(now.saturating_duration_since(self.read_at));
        let now_ms = state.time.at_ms(now);
        self.conn.stats.answered(1, micros, state.zxid(), now_ms);
    }
}
