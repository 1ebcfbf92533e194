//! The handshake over a stream, on both sides. What it refuses it also tries to say to the other
//! side, unless that one speaks another protocol.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::codec::{
    Confirmation, ForeignProtocol, Frame, FrameError, FrameType, Hello, Lane, PREFACE, Pieces,
    Preface, Refusal, Stage, Welcome, check_preface, take_frame,
};
use crate::net::events::EndCause;
use crate::net::shared::TransportState;

/// Bytes that are read at once.
const READ_BYTES: usize = 4 << 10;

/// A stream whose handshake is complete.
pub(crate) struct OpenedStream<S> {
    pub(crate) stream: S,
    /// Bytes that arrived behind the handshake.
    pub(crate) buffer: BytesMut,
    /// Hello of the other side.
    pub(crate) hello: Hello,
    /// Its wall clock minus this server's, in milliseconds.
    pub(crate) clock_offset_ms: i64,
}

/// Reason why a handshake was not completed.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// This server refuses.
    ByUs(Refusal, Option<Hello>),
    /// The other one does.
    ByThem(Refusal),
    /// The connection has ended.
    Ended(EndCause),
}

impl From<std::io::Error> for HandshakeError {
    fn from(error: std::io::Error) -> HandshakeError {
        HandshakeError::Ended(error.into())
    }
}

/// One side of a handshake that is going on.
struct Exchange<'a, S> {
    shared: &'a TransportState,
    stream: S,
    buffer: BytesMut,
    has_sent_preface: bool,
    has_read_preface: bool,
}

/// The connecting side.
pub(crate) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    shared: &TransportState,
    stream: S,
    peer: u64,
    lane: Lane,
) -> Result<OpenedStream<S>, HandshakeError> {
    let mut exchange = Exchange::new(shared, stream);
    let nonce = shared.draw();
    let wall_ms = shared.options.wall_clock.now_ms();
    let hello = shared.local.lock().hello(peer, lane, nonce, wall_ms);
    exchange.send(&Frame::Hello(hello)).await?;
    let welcome = exchange.welcome().await?;
    let hello = &welcome.hello;
    let mut outcome = shared.check(hello);
    if outcome.is_ok() && hello.from != peer {
        outcome = Err(Refusal::WrongServer {
            expected: peer,
            found: hello.from,
        });
    }
    if outcome.is_ok() && (welcome.echo != nonce || hello.lane != lane) {
        outcome = Err(Refusal::NotConfirmed);
    }
    if let Err(refusal) = outcome {
        return exchange.refuse(refusal, Some(welcome.hello)).await;
    }
    let confirm = Confirmation {
        echo: welcome.hello.nonce,
    };
    exchange.send(&Frame::Confirm(confirm)).await?;
    Ok(exchange.opened(welcome.hello))
}

/// The accepting side. `verify` decides whether the stream may be that of the server which says
/// this.
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    shared: &TransportState,
    stream: S,
    verify: impl Fn(&S, &Hello) -> Result<(), Refusal>,
) -> Result<OpenedStream<S>, HandshakeError> {
    let mut exchange = Exchange::new(shared, stream);
    let (kind, body) = exchange.frame().await?;
    let hello = match exchange.read(kind, body) {
        Ok(Frame::Hello(hello)) => hello,
        Ok(_) => {
            let stage = Stage::Handshake;
            let refusal = Refusal::bad_frame(&FrameError::Unexpected { kind, stage });
            return exchange.refuse(refusal, None).await;
        }
        Err(refusal) => return exchange.refuse(refusal, None).await,
    };
    // What a server knows of the members is not for strangers: their certificate comes first.
    let outcome = verify(&exchange.stream, &hello).and_then(|()| shared.check(&hello));
    if let Err(refusal) = outcome {
        return exchange.refuse(refusal, Some(hello)).await;
    }
    let nonce = shared.draw();
    let wall_ms = shared.options.wall_clock.now_ms();
    let ours = shared
        .local
        .lock()
        .hello(hello.from, hello.lane, nonce, wall_ms);
    let welcome = Welcome {
        hello: ours,
        echo: hello.nonce,
    };
    exchange.send(&Frame::Welcome(welcome)).await?;
    let (kind, body) = exchange.frame().await?;
    match exchange.read(kind, body) {
        Ok(Frame::Confirm(confirm)) if confirm.echo == nonce => Ok(exchange.opened(hello)),
        Ok(Frame::Refused(refusal)) => Err(HandshakeError::ByThem(refusal)),
        Ok(_) => exchange.refuse(Refusal::NotConfirmed, Some(hello)).await,
        Err(refusal) => exchange.refuse(refusal, Some(hello)).await,
    }
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Exchange<'a, S> {
    fn new(shared: &'a TransportState, stream: S) -> Exchange<'a, S> {
        Exchange {
            shared,
            stream,
            buffer: BytesMut::new(),
            has_sent_preface: false,
            has_read_preface: false,
        }
    }

    fn opened(self, hello: Hello) -> OpenedStream<S> {
        let now = self.shared.options.wall_clock.now_ms();
        OpenedStream {
            clock_offset_ms: hello.wall_ms.saturating_sub(now),
            stream: self.stream,
            buffer: self.buffer,
            hello,
        }
    }

    async fn send(&mut self, frame: &Frame) -> Result<(), HandshakeError> {
        let mut pieces = Pieces::new();
        if !self.has_sent_preface {
            self.has_sent_preface = true;
            pieces.put_raw(&PREFACE);
        }
        frame
            .encode(&mut pieces)
            .map_err(|error| HandshakeError::ByUs(Refusal::bad_frame(&error), None))?;
        for piece in pieces.take() {
            self.stream.write_all(&piece).await?;
        }
        self.stream.flush().await?;
        Ok(())
    }

    /// Says the reason to the other side. That it arrives is not certain.
    async fn refuse<T>(
        &mut self,
        refusal: Refusal,
        hello: Option<Hello>,
    ) -> Result<T, HandshakeError> {
        let _ = self.send(&Frame::Refused(refusal.clone())).await;
        let _ = self.stream.shutdown().await;
        Err(HandshakeError::ByUs(refusal, hello))
    }

    async fn welcome(&mut self) -> Result<Welcome, HandshakeError> {
        let (kind, body) = self.frame().await?;
        match self.read(kind, body) {
            Ok(Frame::Welcome(welcome)) => Ok(welcome),
            Ok(Frame::Refused(refusal)) => Err(HandshakeError::ByThem(refusal)),
            Ok(_) => {
                let stage = Stage::Handshake;
                let refusal = Refusal::bad_frame(&FrameError::Unexpected { kind, stage });
                self.refuse(refusal, None).await
            }
            Err(refusal) => self.refuse(refusal, None).await,
        }
    }

    /// Reads a body. A hello of a version that this server does not speak is not read further than
    /// its version.
    fn read(&self, kind: FrameType, body: Bytes) -> Result<Frame, Refusal> {
        if let Some(protocol) = Frame::peek_protocol(kind, &body) {
            self.shared.local.lock().check_protocol(protocol)?;
        }
        Frame::decode(kind, body).map_err(|error| Refusal::bad_frame(&error))
    }

    /// Takes the preface, then a frame, out of what has arrived.
    fn next_frame(&mut self) -> Result<Option<(FrameType, Bytes)>, Refusal> {
        if !self.has_read_preface {
            match check_preface(&self.buffer) {
                Preface::Baton => {
                    self.buffer.advance(PREFACE.len());
                    self.has_read_preface = true;
                }
                Preface::Incomplete => return Ok(None),
                // A few bytes more may show what it is.
                Preface::Foreign(ForeignProtocol::Unknown) if self.buffer.len() < PREFACE.len() => {
                    return Ok(None);
                }
                Preface::Foreign(foreign) => return Err(Refusal::Foreign(foreign)),
            }
        }
        take_frame(&mut self.buffer, Stage::Handshake).map_err(|error| Refusal::bad_frame(&error))
    }

    /// The next frame; before the first one, the preface.
    async fn frame(&mut self) -> Result<(FrameType, Bytes), HandshakeError> {
        loop {
            match self.next_frame() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(Refusal::Foreign(foreign)) => {
                    return Err(HandshakeError::ByUs(Refusal::Foreign(foreign), None));
                }
                Err(refusal) => return self.refuse(refusal, None).await,
            }
            self.buffer.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(HandshakeError::Ended(EndCause::Closed));
            }
        }
    }
}
