//! A server's side of a connection, byte by byte, for tests that say what a server never says.

use std::time::Duration;

use baton_peers::codec::{
    Confirmation, Frame, Hello, Lane, PREFACE, Pieces, Stage, Welcome, check_preface, take_frame,
};
use baton_peers::handshake::LocalServer;
use baton_peers::net::Acceptor as _;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::memory::{MemoryAcceptor, Network, Wire, incarnation, name};

pub struct RawConnection {
    pub wire: Wire,
    buffer: BytesMut,
    stage: Stage,
    has_preface: bool,
}

pub fn encoded(frame: &Frame) -> Vec<u8> {
    let mut pieces = Pieces::new();
    frame.encode(&mut pieces).unwrap();
    pieces.take().concat()
}

/// The hello of a server with an empty data folder, always of the same process.
pub fn hello(from: u64, to: u64, lane: Lane) -> Hello {
    LocalServer::new(from, incarnation(from), 5000 + from).hello(to, lane, 77, 0)
}

impl RawConnection {
    pub fn open(network: &Network, to: u64) -> RawConnection {
        RawConnection::on(network.open(&name(to)))
    }

    /// Either side of a stream.
    pub fn on(wire: Wire) -> RawConnection {
        RawConnection {
            wire,
            buffer: BytesMut::new(),
            stage: Stage::Handshake,
            has_preface: false,
        }
    }

    /// A connection of server `from` to server `to` after its handshake.
    pub async fn connect(network: &Network, from: u64, to: u64, lane: Lane) -> RawConnection {
        RawConnection::connect_as(network, &hello(from, to, lane)).await
    }

    /// A connection after its handshake, with this hello.
    pub async fn connect_as(network: &Network, hello: &Hello) -> RawConnection {
        let mut raw = RawConnection::open(network, hello.to);
        let welcome = raw.greet(hello).await;
        let echo = welcome.hello.nonce;
        raw.send(&Frame::Confirm(Confirmation { echo })).await;
        raw.stage = Stage::Lane(hello.lane);
        raw
    }

    /// The connection that a server opens next, after its handshake.
    pub async fn accept(acceptor: &MemoryAcceptor, id: u64) -> RawConnection {
        let (wire, _) = acceptor.accept().await.unwrap();
        let mut raw = RawConnection::on(wire);
        let Some(Frame::Hello(theirs)) = raw.frame().await else {
            panic!("no hello");
        };
        raw.write(&PREFACE).await;
        raw.send(&Frame::Welcome(Welcome {
            hello: hello(id, theirs.from, theirs.lane),
            echo: theirs.nonce,
        }))
        .await;
        assert!(matches!(raw.frame().await, Some(Frame::Confirm(_))));
        raw.stage = Stage::Lane(theirs.lane);
        raw
    }

    /// Sends a hello and receives the welcome.
    pub async fn greet(&mut self, hello: &Hello) -> Welcome {
        self.write(&PREFACE).await;
        self.send(&Frame::Hello(hello.clone())).await;
        match self.frame().await {
            Some(Frame::Welcome(welcome)) => welcome,
            other => panic!("{other:?}"),
        }
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        self.wire.write_all(bytes).await.unwrap();
    }

    pub async fn send(&mut self, frame: &Frame) {
        self.write(&encoded(frame)).await;
    }

    /// The next frame, once the handshake is complete.
    pub async fn lane_frame(&mut self, lane: Lane) -> Option<Frame> {
        self.stage = Stage::Lane(lane);
        self.frame().await
    }

    /// The next frame but signs of life; `None`: the connection has ended.
    pub async fn frame(&mut self) -> Option<Frame> {
        loop {
            match self.any_frame().await {
                Some(Frame::Alive(_)) => {}
                frame => return frame,
            }
        }
    }

    /// The next frame; `None`: the connection has ended.
    pub async fn any_frame(&mut self) -> Option<Frame> {
        loop {
            if !self.has_preface && self.buffer.len() >= PREFACE.len() {
                assert_eq!(
                    check_preface(&self.buffer),
                    baton_peers::codec::Preface::Baton
                );
                let _ = self.buffer.split_to(PREFACE.len());
                self.has_preface = true;
            }
            if self.has_preface
                && let Some((kind, body)) = take_frame(&mut self.buffer, self.stage).unwrap()
            {
                return Some(Frame::decode(kind, body).unwrap());
            }
            let limit = Duration::from_secs(600);
            let read = timeout(limit, self.wire.read_buf(&mut self.buffer));
            match read.await.unwrap() {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}
