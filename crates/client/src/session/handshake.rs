//! The first frames of a connection: TLS, the request for a session, SASL.
//!
//! Owns what goes to a server before the session is attached to the connection, and so before
//! anything else of the session. It must never count an answer of SASL as evidence that the session
//! lives: the lease rests on the request for the session.

use std::fmt;
use std::io;

use baton_proto::frame::{self, FrameError};
use baton_proto::{ConnectRequest, ConnectResponse, Limits};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::clock::BootInstant;
#[cfg(feature = "sasl")]
use crate::error::SaslFailure;
use crate::session::core::Core;
use crate::tls::{self, ReloadOutcome, TlsFailure};
use crate::transport::{BoxStream, Host};

/// A handshake that a server accepted.
pub(crate) struct AcceptedHandshake {
    pub(crate) stream: BoxStream,
    /// Bytes that were read behind the handshake.
    pub(crate) incoming: BytesMut,
    /// Whether the stream has TLS.
    pub(crate) encrypted: bool,
    pub(crate) response: ConnectResponse,
    /// Time at which the session was asked for.
    pub(crate) sent: BootInstant,
}

/// Result of a connection to a server that answered.
pub(crate) enum Attempt {
    Attached(Box<AcceptedHandshake>),
    /// The server knows the session no more.
    Gone,
    /// The session is open, and SASL failed on this server.
    #[cfg(feature = "sasl")]
    Refused {
        server: String,
        failure: SaslFailure,
    },
}

/// Writes all of it, through the buffers that a stream with TLS has.
pub(crate) async fn write_whole(stream: &mut BoxStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The next frame; `None` if the server has closed the connection.
async fn next_frame(stream: &mut BoxStream, incoming: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let limits = Limits::default();
    loop {
        let frame = frame::split_frame(incoming, limits.max_frame_bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if frame.is_some() {
            return Ok(frame);
        }
        match stream.read_buf(incoming).await {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// The first bytes of a server that answers a plain handshake by TLS: the head of an alert or of a
/// handshake, as no answer begins.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 0x03, ..])
}

/// The longest beginning of another protocol's answer that a message repeats.
const SHOWN_ANSWER_CHARS: usize = 60;

/// Says of what kind a server is whose answer begins with these bytes, where that is not a frame of
/// this protocol: other protocols begin with text, which read as a length is far over any limit.
fn describe_foreign(answer: &[u8]) -> String {
    let is_text = answer.len() >= frame::LENGTH_BYTES
        && answer
            .iter()
            .take(frame::LENGTH_BYTES)
            .all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if !is_text {
        return "its answer is not in ZooKeeper's protocol; correct the port".to_owned();
    }
    let kind = match answer {
        [b'H', b'T', b'T', b'P', ..] => "an HTTP server",
        [b'S', b'S', b'H', b'-', ..] => "an SSH server",
        _ => "a server of another protocol",
    };
    let line = answer.split(|byte| byte.is_ascii_control()).next();
    let line = String::from_utf8_lossy(line.unwrap_or_default());
    let line: String = line.chars().take(SHOWN_ANSWER_CHARS).collect();
    format!("it is {kind} (it answers {line:?}); correct the port")
}

fn invalid(why: &dyn fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

fn closed_unanswered() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the server closed the connection instead of answering the handshake; it may be starting, have no leader, be full or accept only TLS (tls://): see its log",
    )
}

/// Returns why the server has closed a stream with TLS, if it has said so: one that refuses this
/// client's certificate does, after the handshake.
async fn refusal_of_tls(stream: &mut BoxStream) -> Option<io::Error> {
    let error = stream.read(&mut [0]).await.err()?;
    TlsFailure::of(&error).is_some().then_some(error)
}

/// Asks a server for the session, or for one, on a stream that has just been opened.
pub(crate) async fn handshake(
    core: &Core,
    host: &Host,
    mut stream: BoxStream,
) -> io::Result<Attempt> {
    let secured = core.config.tls_of(host);
    if let Some((tls, name)) = secured {
        if let ReloadOutcome::Kept(error) = tls.reload() {
            tracing::warn!(%error, "changed files of TLS are not used");
        }
        stream = Box::new(tls.connect(name, stream).await?);
    }
    let (identity, last_zxid) = {
        let inner = core.inner.lock();
        (inner.identity, inner.last_zxid)
    };
    let mut hello = Vec::with_capacity(64);
    let request = ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: last_zxid,
        timeout_ms: i32::try_from(core.config.session_timeout.as_millis()).unwrap_or(i32::MAX),
        session_id: identity.id,
        password: &identity.password,
        read_only: Some(false),
    };
    frame::write_connect_request(&mut hello, &request);
    let sent = core.now();
    if let Err(error) = write_whole(&mut stream, &hello).await {
        let said = match secured {
            Some(_) => refusal_of_tls(&mut stream).await,
            None => None,
        };
        return Err(said.unwrap_or_else(|| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => closed_unanswered(),
            _ => error,
        }));
    }
    let mut incoming = BytesMut::with_capacity(4096);
    let answer = next_frame(&mut stream, &mut incoming).await;
    if secured.is_none() && is_tls(&incoming) {
        return Err(tls::tls_only());
    }
    let answer = match answer {
        Err(error)
            if error
                .get_ref()
                .is_some_and(|inner| inner.is::<FrameError>()) =>
        {
            return Err(invalid(&describe_foreign(&incoming)));
        }
        answer => answer?.ok_or_else(closed_unanswered)?,
    };
    let response = ConnectResponse::decode(&answer, &Limits::default()).map_err(|e| invalid(&e))?;
    let reattach = identity.id != 0;
    if reattach && (response.is_refused() || response.session_id != identity.id) {
        return Ok(Attempt::Gone);
    }
    if response.is_refused() || response.session_id == 0 {
        return Err(invalid(&"the server refused to open a session"));
    }
    #[cfg(feature = "sasl")]
    if let Some(user) = &core.config.sasl
        && let Err(failure) = sasl::authenticate(&mut stream, &mut incoming, user).await?
    {
        let server = core.config.shown(host);
        return Ok(Attempt::Refused { server, failure });
    }
    Ok(Attempt::Attached(Box::new(AcceptedHandshake {
        stream,
        incoming,
        encrypted: secured.is_some(),
        response,
        sent,
    })))
}

/// SASL, by which both sides prove that they know the password.
#[cfg(feature = "sasl")]
mod sasl {
    use std::io;

    use baton_proto::{Decoder, ErrorCode, Limits, OpCode, ReplyHeader, Request, Response, frame};
    use bytes::{Buf, Bytes, BytesMut};

    use super::{invalid, next_frame, write_whole};
    use crate::error::SaslFailure;
    use crate::transport::BoxStream;

    /// Random bytes of a client's nonce, which is hexadecimal.
    const NONCE_BYTES: usize = 16;

    /// Proves who the user is, and has the server prove that it knows the password too. A
    /// connection that is lost says nothing of the credentials.
    pub(super) async fn authenticate(
        stream: &mut BoxStream,
        incoming: &mut BytesMut,
        user: &baton_sasl::Client,
    ) -> io::Result<Result<(), SaslFailure>> {
        let mut random = [0; NONCE_BYTES];
        getrandom::fill(&mut random).map_err(|error| invalid(&error))?;
        let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let challenge = match step(stream, incoming, 1, &[]).await? {
            Ok(token) if !token.is_empty() => token,
            // A ZooKeeper without SASL answers with no token.
            Ok(_) | Err(ErrorCode::AuthFailed | ErrorCode::Unimplemented) => {
                return Ok(Err(SaslFailure::NotOffered));
            }
            Err(code) => return Ok(Err(SaslFailure::Refused(code))),
        };
        let (response, proof) = match user.respond(&challenge, &nonce) {
            Ok(both) => both,
            Err(error) => return Ok(Err(SaslFailure::BadChallenge(error.to_string()))),
        };
        Ok(match step(stream, incoming, 2, &response).await? {
            Ok(token) => proof
                .verify(&token)
                .map_err(|_| SaslFailure::ServerUnproven),
            Err(ErrorCode::AuthFailed) => Err(SaslFailure::WrongPassword),
            Err(code) => Err(SaslFailure::Refused(code)),
        })
    }

    /// Sends a token and returns what the server answers.
    async fn step(
        stream: &mut BoxStream,
        incoming: &mut BytesMut,
        xid: i32,
        token: &[u8],
    ) -> io::Result<Result<Bytes, ErrorCode>> {
        let mut out = Vec::with_capacity(64 + token.len());
        frame::write_request(&mut out, xid, &Request::Sasl { token: Some(token) });
        write_whole(stream, &out).await?;
        let Some(mut frame) = next_frame(stream, incoming).await? else {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection during SASL",
            ));
        };
        let limits = Limits::default();
        let header =
            ReplyHeader::decode(&mut Decoder::new(&frame, &limits)).map_err(|e| invalid(&e))?;
        if header.xid != xid {
            let (due, got) = (xid, header.xid);
            return Err(invalid(&format_args!(
                "reply with xid {got} where {due} of SASL was due"
            )));
        }
        if header.err != 0 {
            return Ok(Err(header.error()));
        }
        frame.advance(ReplyHeader::BYTES);
        match Response::decode(OpCode::Sasl, &frame, &limits).map_err(|e| invalid(&e))? {
            Response::Sasl(token) => Ok(Ok(token.unwrap_or_default())),
            _ => Err(invalid(&"no answer of SASL")),
        }
    }
}
