//! A client that is content with reading: it asks for read-only mode, reads, and goes on to another
//! server. Whatever it is given, it never sees an older state than before, and a session of
//! read-only mode takes no write (R31).

use std::io;
use std::time::Duration;

use baton_client::{BoxStream, Endpoint};
use baton_proto::{
    ConnectRequest, ConnectResponse, Create, CreateOp, Decoder, ErrorCode, Limits, PASSWORD_BYTES,
    ReplyHeader, Request, frame,
};
use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cluster::mark;
use crate::network::Network;

/// Its session timeout.
const TIMEOUT_MS: i32 = 2_000;
/// Limit of a visit: a server that is cut off answers nothing.
const VISIT_LIMIT: Duration = Duration::from_secs(3);
/// Reads of one visit.
const READS: i32 = 6;
const LONGEST_FRAME: usize = 1 << 20;

struct Reader {
    network: Network,
    client: usize,
    rng: Rng,
    /// The newest zxid that it has seen.
    newest: i64,
}

/// Visits servers until everything is whole again.
pub(super) async fn read(network: Network, client: usize, seed: u64) {
    let mut reader = Reader {
        network,
        client,
        rng: Rng::with_seed(seed ^ 0x4ead),
        newest: 0,
    };
    while reader.network.is_open() {
        let pause_ms = reader.rng.u64(20..500);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        // However it ends.
        let _ = tokio::time::timeout(VISIT_LIMIT, reader.visit()).await;
    }
}

impl Reader {
    async fn visit(&mut self) -> io::Result<()> {
        let ids = self.network.ids();
        let server = self.rng.choice(ids).unwrap_or(1);
        let endpoint = Endpoint::Unix(format!("s{server}:1").into());
        let transport = self.network.transport(self.client);
        let mut stream = transport.connect(&endpoint).await?;
        let mut incoming = BytesMut::new();
        let mut hello = Vec::new();
        frame::write_connect_request(
            &mut hello,
            &ConnectRequest {
                protocol_version: 0,
                last_zxid_seen: self.newest,
                timeout_ms: TIMEOUT_MS,
                session_id: 0,
                password: &[0; PASSWORD_BYTES],
                read_only: Some(true),
            },
        );
        stream.write_all(&hello).await?;
        let answer = next_frame(&mut stream, &mut incoming).await?;
        let answer = ConnectResponse::decode(&answer, &Limits::default());
        let answer = answer.map_err(|error| io::Error::other(error.to_string()))?;
        if answer.is_refused() {
            return Ok(());
        }
        let is_read_only = answer.read_only == Some(true);
        for xid in 1..=READS {
            let read = Request::GetData {
                path: "/",
                watch: false,
            };
            self.ask(&mut stream, &mut incoming, xid, &read).await?;
            if is_read_only {
                self.network.recorder().mark(mark::READ_ONLY_READ);
            }
            let pause_ms = self.rng.u64(..150);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
        if is_read_only {
            let write = Request::Create(Create {
                op: CreateOp::Create,
                path: "/written-in-read-only-mode",
                data: None,
                acl: None,
                flags: 1,
                ttl_ms: -1,
            });
            let outcome = self.ask(&mut stream, &mut incoming, READS + 1, &write);
            let outcome = outcome.await?;
            if outcome != ErrorCode::NotReadOnly.code() {
                self.network.recorder().fail(&format!(
                    "a write in read-only mode is answered with {outcome}"
                ));
            }
        }
        self.ask(
            &mut stream,
            &mut incoming,
            READS + 2,
            &Request::CloseSession,
        )
        .await?;
        Ok(())
    }

    /// The error code of the answer to a request.
    async fn ask(
        &mut self,
        stream: &mut BoxStream,
        incoming: &mut BytesMut,
        xid: i32,
        request: &Request<'_>,
    ) -> io::Result<i32> {
        let mut bytes = Vec::new();
        frame::write_request(&mut bytes, xid, request);
        stream.write_all(&bytes).await?;
        loop {
            let answer = next_frame(stream, incoming).await?;
            let limits = Limits::default();
            let header = ReplyHeader::decode(&mut Decoder::new(&answer, &limits));
            let header = header.map_err(|error| io::Error::other(error.to_string()))?;
            if header.xid != xid {
                continue;
            }
            if header.zxid > 0 && header.zxid < self.newest {
                let (now, before) = (header.zxid, self.newest);
                self.network.recorder().fail(&format!(
                    "a client that only reads goes back in time: an answer has zxid {now} after {before}"
                ));
            }
            self.newest = self.newest.max(header.zxid);
            return Ok(header.err);
        }
    }
}

async fn next_frame(stream: &mut BoxStream, incoming: &mut BytesMut) -> io::Result<Bytes> {
    loop {
        let frame = frame::split_frame(incoming, LONGEST_FRAME);
        if let Some(frame) = frame.map_err(|error| io::Error::other(error.to_string()))? {
            return Ok(frame);
        }
        if stream.read_buf(incoming).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
