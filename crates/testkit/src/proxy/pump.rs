//! Moves one connection's bytes, frame by frame, through the rules. Owns the two sockets and how
//! they end; decides nothing itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baton_proto::frame::{LENGTH_BYTES, peek_length};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::ProxyState;
use super::frames::{Direction, Reader, limits};
use super::rules::{Action, Variant};

/// Time that an orderly close waits for the peer's own.
const DRAIN: Duration = Duration::from_secs(10);

/// The state of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct LinkCuts {
    /// Nothing moves to the server.
    dark_to_server: bool,
    /// Nothing moves to the client.
    dark_to_client: bool,
    /// The client's socket is to end.
    client: Option<SocketEnd>,
    /// The server's socket is to end.
    server: Option<SocketEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketEnd {
    Rst,
    Fin,
}

impl LinkCuts {
    fn is_dark(&self, direction: Direction) -> bool {
        match direction {
            Direction::ToServer => self.dark_to_server,
            Direction::ToClient => self.dark_to_client,
        }
    }

    fn is_ended(&self) -> bool {
        self.client.is_some() || self.server.is_some()
    }
}

/// One connection, as the proxy commands it.
#[derive(Debug)]
pub(super) struct Link {
    number: u64,
    cut: watch::Sender<LinkCuts>,
}

impl Link {
    pub(super) fn new(number: u64) -> Arc<Self> {
        Arc::new(Self {
            number,
            cut: watch::Sender::new(LinkCuts::default()),
        })
    }

    pub(super) fn cut(&self, variant: Variant) {
        self.cut.send_modify(|cut| match variant {
            Variant::Rst => {
                cut.client = Some(SocketEnd::Rst);
                cut.server = Some(SocketEnd::Rst);
            }
            Variant::Fin => {
                cut.client = Some(SocketEnd::Fin);
                cut.server = Some(SocketEnd::Fin);
            }
            Variant::RstClientOnly => cut.client = Some(SocketEnd::Rst),
            Variant::RstServerOnly => cut.server = Some(SocketEnd::Rst),
            Variant::BlackHole => {
                cut.dark_to_server = true;
                cut.dark_to_client = true;
            }
            Variant::BlackHoleToServer => cut.dark_to_server = true,
            Variant::BlackHoleToClient => cut.dark_to_client = true,
        });
    }

    pub(super) fn heal(&self) {
        self.cut.send_modify(|cut| {
            cut.dark_to_server = false;
            cut.dark_to_client = false;
            // A side whose other half is gone is notified now.
            match (cut.client, cut.server) {
                (Some(_), None) => cut.server = Some(SocketEnd::Rst),
                (None, Some(_)) => cut.client = Some(SocketEnd::Rst),
                _ => {}
            }
        });
    }

    /// Waits until the link is not dark at all; at once if it is to end.
    pub(super) async fn wait_light(&self) {
        let mut cut = self.cut.subscribe();
        let _ = cut
            .wait_for(|cut| cut.is_ended() || !(cut.dark_to_server || cut.dark_to_client))
            .await;
    }
}

/// Reason why a pump has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PumpStop {
    /// Its source has closed in an orderly way, and that was passed on.
    Closed,
    /// A socket failed: a peer has reset.
    Failed,
    /// The link was asked to end.
    Requested,
}

/// Moves bytes both ways until the connection ends, and ends it as it was asked to.
pub(super) async fn run(
    client: TcpStream,
    server: TcpStream,
    link: Arc<Link>,
    shared: &Arc<ProxyState>,
) {
    let reader = Arc::new(Mutex::new(Reader::new(link.number, shared.record_bodies)));
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let pump = |direction, from, to| Pump {
        direction,
        from,
        to,
        link: Arc::clone(&link),
        shared: Arc::clone(shared),
        reader: Arc::clone(&reader),
        raw: false,
    };
    let mut up = pump(Direction::ToServer, client_read, server_write);
    let mut down = pump(Direction::ToClient, server_read, client_write);

    let stop = {
        let up_run = up.run();
        let down_run = down.run();
        tokio::pin!(up_run, down_run);
        // An orderly close of one side is passed on, and the other direction may still finish.
        tokio::select! {
            stop = &mut up_run => if stop == PumpStop::Closed { down_run.await } else { stop },
            stop = &mut down_run => if stop == PumpStop::Closed { up_run.await } else { stop },
        }
    };
    if stop == PumpStop::Closed {
        return;
    }
    let (Ok(client), Ok(server)) = (up.from.reunite(down.to), down.from.reunite(up.to)) else {
        return;
    };
    if stop == PumpStop::Failed {
        // One side has reset. The other hears of it, but not through a black hole.
        link.wait_light().await;
        link.cut(Variant::Rst);
    }
    tokio::join!(
        end_side(client, &link, |cut| cut.client),
        end_side(server, &link, |cut| cut.server)
    );
}

/// Ends one socket when, and as, the link says.
async fn end_side(
    mut socket: TcpStream,
    link: &Link,
    side: impl Fn(&LinkCuts) -> Option<SocketEnd>,
) {
    let mut cut = link.cut.subscribe();
    let end = match cut.wait_for(|cut| side(cut).is_some()).await {
        Ok(cut) => side(&cut),
        Err(_) => None,
    };
    match end {
        Some(SocketEnd::Fin) => {
            // Closing a socket with unread bytes would send a reset, so they are read away first.
            let _ = socket.shutdown().await;
            let mut sink = [0; 4096];
            let drained = async { while matches!(socket.read(&mut sink).await, Ok(1..)) {} };
            let _ = tokio::time::timeout(DRAIN, drained).await;
        }
        Some(SocketEnd::Rst) | None => {
            let _ = socket.set_zero_linger();
        }
    }
}

/// One direction of a connection.
struct Pump {
    direction: Direction,
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    link: Arc<Link>,
    shared: Arc<ProxyState>,
    reader: Arc<Mutex<Reader>>,
    /// The bytes turned out not to be frames; they are passed on as they come.
    raw: bool,
}

impl Pump {
    async fn run(&mut self) -> PumpStop {
        let mut cut = self.link.cut.subscribe();
        let mut buffer = BytesMut::with_capacity(64 << 10);
        loop {
            if !light(&mut cut, self.direction).await {
                return PumpStop::Requested;
            }
            let read = tokio::select! {
                biased;
                _ = cut.changed() => continue,
                read = self.from.read_buf(&mut buffer) => read,
            };
            let ended = match read {
                Ok(0) => true,
                Ok(_) => false,
                Err(_) => return PumpStop::Failed,
            };
            while let Some((bytes, body)) = self.split(&mut buffer, ended) {
                if let Err(stop) = self.forward(&bytes, &body, &mut cut).await {
                    return stop;
                }
            }
            if ended {
                let _ = self.to.shutdown().await;
                return PumpStop::Closed;
            }
        }
    }

    /// The next frame, with and without its length; what is not a frame comes as it is.
    fn split(&mut self, buffer: &mut BytesMut, ended: bool) -> Option<(Bytes, Bytes)> {
        if !self.raw {
            match peek_length(buffer, limits().max_frame_bytes) {
                Ok(Some(length)) if buffer.len() >= LENGTH_BYTES + length => {
                    let bytes = buffer.split_to(LENGTH_BYTES + length).freeze();
                    let body = bytes.slice(LENGTH_BYTES..);
                    return Some((bytes, body));
                }
                Ok(_) if !ended => return None,
                _ => self.raw = true,
            }
        }
        if buffer.is_empty() {
            return None;
        }
        let bytes = buffer.split().freeze();
        Some((bytes.clone(), bytes))
    }

    async fn forward(
        &mut self,
        bytes: &Bytes,
        body: &Bytes,
        cut: &mut watch::Receiver<LinkCuts>,
    ) -> Result<(), PumpStop> {
        let frame = {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            if self.raw {
                reader.raw(self.direction, body)
            } else {
                reader.read(self.direction, body)
            }
        };
        let mut after = Vec::new();
        for rule in self.shared.observe(&frame) {
            match rule.action() {
                Action::Pass => {}
                Action::Cut(variant) => self.link.cut(variant),
                Action::ForwardThenCut(variant) => after.push(variant),
                Action::Delay(duration) => tokio::select! {
                    () = tokio::time::sleep(duration) => {}
                    () = ended(cut) => return Err(PumpStop::Requested),
                },
                Action::Hold => tokio::select! {
                    () = rule.wait_released() => {}
                    () = ended(cut) => return Err(PumpStop::Requested),
                },
            }
        }
        if !light(cut, self.direction).await {
            return Err(PumpStop::Requested);
        }
        tokio::select! {
            biased;
            written = self.to.write_all(bytes) => written.map_err(|_| PumpStop::Failed)?,
            () = ended(cut) => return Err(PumpStop::Requested),
        }
        for variant in after {
            self.link.cut(variant);
        }
        Ok(())
    }
}

/// Waits until this direction is not dark; false if the link is to end.
async fn light(cut: &mut watch::Receiver<LinkCuts>, direction: Direction) -> bool {
    match cut
        .wait_for(|cut| cut.is_ended() || !cut.is_dark(direction))
        .await
    {
        Ok(cut) => !cut.is_ended(),
        Err(_) => false,
    }
}

/// Waits until the link is to end.
async fn ended(cut: &mut watch::Receiver<LinkCuts>) {
    let _ = cut.wait_for(LinkCuts::is_ended).await;
}
