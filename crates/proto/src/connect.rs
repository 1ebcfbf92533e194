//! The handshake (protocol.md §1.2): the first frame in each direction, without headers.

use bytes::BufMut;

use crate::wire::{put_bool, put_buffer};
use crate::{DecodeError, DecodeErrorKind, Decoder, Limits};

/// Size of a session's password.
pub const PASSWORD_BYTES: usize = 16;

/// A client's first frame: asks for a new session (`session_id` 0) or for its old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectRequest<'a> {
    /// 0; servers ignore it.
    pub protocol_version: i32,
    /// The highest zxid the client has seen; a server that is behind it must not serve this client.
    pub last_zxid_seen: i64,
    /// The session timeout asked for, in milliseconds.
    pub timeout_ms: i32,
    /// The session to take up again, or 0 for a new one.
    pub session_id: i64,
    /// The password of that session; sixteen zeros for a new one. Null reads as empty.
    pub password: &'a [u8],
    /// Whether a server cut off from its ensemble will do; `None` for clients before 3.4, which
    /// omit the byte.
    pub read_only: Option<bool>,
}

impl<'a> ConnectRequest<'a> {
    /// Writes the record.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_i32(self.protocol_version);
        out.put_i64(self.last_zxid_seen);
        out.put_i32(self.timeout_ms);
        out.put_i64(self.session_id);
        put_buffer(out, Some(self.password));
        if let Some(read_only) = self.read_only {
            put_bool(out, read_only);
        }
    }

    /// Reads the record from a whole frame.
    ///
    /// # Errors
    /// The frame is not a handshake: it ends too early, or the password's length is not possible.
    pub fn decode(frame: &'a [u8], limits: &Limits) -> Result<Self, DecodeError> {
        let mut from = Decoder::new(frame, limits);
        Ok(Self {
            protocol_version: from.i32("ConnectRequest.protocolVersion")?,
            last_zxid_seen: from.i64("ConnectRequest.lastZxidSeen")?,
            timeout_ms: from.i32("ConnectRequest.timeOut")?,
            session_id: from.i64("ConnectRequest.sessionId")?,
            password: from.buffer("ConnectRequest.passwd")?.unwrap_or_default(),
            read_only: decode_read_only(&mut from, "ConnectRequest.readOnly")?,
        })
    }
}

/// The server's answer to the first frame. `timeout_ms` 0 means that the session is gone or the
/// password is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectResponse {
    /// 0.
    pub protocol_version: i32,
    /// The session timeout granted, in milliseconds; 0 refuses the session.
    pub timeout_ms: i32,
    /// The session's id; 0 with a refusal.
    pub session_id: i64,
    /// The session's password; zeros with a refusal.
    pub password: [u8; PASSWORD_BYTES],
    /// Whether the server is cut off and serves reads only; `None` mirrors a client that omitted
    /// the byte.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// The refusal of a session that is expired, unknown, or claimed with a wrong password.
    /// `read_only` mirrors the request's form.
    #[must_use]
    pub fn refused(read_only: Option<bool>) -> Self {
        Self {
            protocol_version: 0,
            timeout_ms: 0,
            session_id: 0,
            password: [0; PASSWORD_BYTES],
            read_only: read_only.map(|_| false),
        }
    }

    /// Returns whether the server refused the session.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.timeout_ms <= 0
    }

    /// Writes the record.
    pub fn encode(&self, out: &mut impl BufMut) {
        out.put_i32(self.protocol_version);
        out.put_i32(self.timeout_ms);
        out.put_i64(self.session_id);
        put_buffer(out, Some(&self.password));
        if let Some(read_only) = self.read_only {
            put_bool(out, read_only);
        }
    }

    /// Reads the record from a whole frame.
    ///
    /// # Errors
    /// The frame ends too early, or the password is not [`PASSWORD_BYTES`] long.
    pub fn decode(frame: &[u8], limits: &Limits) -> Result<Self, DecodeError> {
        let mut from = Decoder::new(frame, limits);
        Ok(Self {
            protocol_version: from.i32("ConnectResponse.protocolVersion")?,
            timeout_ms: from.i32("ConnectResponse.timeOut")?,
            session_id: from.i64("ConnectResponse.sessionId")?,
            password: {
                let field = "ConnectResponse.passwd";
                let bytes = from.buffer(field)?.unwrap_or_default();
                let wrong_size = DecodeErrorKind::WrongSize {
                    expected: PASSWORD_BYTES,
                    actual: bytes.len(),
                };
                bytes
                    .try_into()
                    .map_err(|_| from.error(field, wrong_size))?
            },
            read_only: decode_read_only(&mut from, "ConnectResponse.readOnly")?,
        })
    }
}

/// The byte that peers before 3.4 do not send.
fn decode_read_only(
    from: &mut Decoder<'_>,
    field: &'static str,
) -> Result<Option<bool>, DecodeError> {
    if from.is_empty() {
        Ok(None)
    } else {
        from.bool(field).map(Some)
    }
}
