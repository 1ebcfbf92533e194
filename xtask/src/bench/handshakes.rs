//! Cost of a TLS handshake to the server: whole ones, with a client's certificate and without, and
//! resumed ones. Counted in the server's processor time, which the load of the machine disturbs
//! least: its inverse is what one core can do.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use baton_tls::ClientTls;
use baton_tls::rustls::HandshakeKind;
use baton_tls::rustls::client::Resumption;
use baton_tls::rustls::pki_types::ServerName;
use baton_tls::tokio_rustls::TlsConnector;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::TARGETS;
use crate::Result;
use crate::process::{Server, cpu_seconds};
use crate::secure::{CLIENTS, Credentials};
use crate::table::{markdown, show};

/// Handshakes that are measured, and those before them.
const MEASURED: usize = 2_000;
const WARM_UP: usize = 200;
/// Connections under way at a time.
const AT_ONCE: usize = 8;

/// A kind of handshake.
struct Sort {
    label: &'static str,
    client_auth: &'static str,
    has_certificate: bool,
    is_resumed: bool,
}

const SORTS: [Sort; 3] = [
    Sort {
        label: "whole",
        client_auth: "none",
        has_certificate: false,
        is_resumed: false,
    },
    Sort {
        label: "whole, with a client's certificate",
        client_auth: "need",
        has_certificate: true,
        is_resumed: false,
    },
    Sort {
        label: "resumed",
        client_auth: "none",
        has_certificate: false,
        is_resumed: true,
    },
];

/// Measures every sort on both servers; the table.
pub(super) fn run(baton: &Path, dir: &Path, credentials: &Credentials) -> Result<String> {
    // One thread, which leaves the server the other cores.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut rows = Vec::new();
    for sort in &SORTS {
        let mut cells = vec![sort.label.to_owned()];
        for target in TARGETS {
            eprintln!("handshakes, {}, on {target:?}", sort.label);
            let dir = dir.join(format!("handshakes-{}-{target:?}", sort.client_auth));
            let server = credentials.start(target, baton, &dir, sort.client_auth)?;
            let connector = connector(sort, credentials)?;
            let (cpu_us, rate, resumed) = runtime.block_on(measure(&server, &connector))?;
            let is_as_meant = if sort.is_resumed {
                resumed > MEASURED / 2
            } else {
                resumed == 0
            };
            if !is_as_meant {
                return Err(format!("{resumed} of {MEASURED} handshakes were resumed").into());
            }
            cells.extend([show(cpu_us), show(1e6 / cpu_us), show(rate)]);
        }
        rows.push(cells);
    }
    let head = [
        "TLS handshake",
        "ZooKeeper µs CPU",
        "one core of it, a second",
        "ZooKeeper a second, measured",
        "Baton µs CPU",
        "one core of it, a second",
        "Baton a second, measured",
    ];
    Ok(markdown(&head, &rows) + "\n")
}

fn connector(sort: &Sort, credentials: &Credentials) -> Result<TlsConnector> {
    let mut tls = ClientTls::new(credentials.authority(true))?;
    if sort.has_certificate {
        let (certificate, key) = credentials.client(CLIENTS[0]);
        tls = tls.with_identity(certificate, key)?;
    }
    let mut config = (*tls.config()).clone();
    if !sort.is_resumed {
        config.resumption = Resumption::disabled();
    }
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Microseconds of the server's processor for one handshake, handshakes a second, and how many were
/// resumed.
async fn measure(server: &Server, connector: &TlsConnector) -> Result<(f64, f64, usize)> {
    let addr = server.secure_addr().ok_or("no port with TLS")?;
    shake(addr, connector, WARM_UP).await?;
    let pid = server.pid()?;
    let cpu = || cpu_seconds(pid).ok_or("the server has ended");
    let (begin, cpu_before) = (Instant::now(), cpu()?);
    let resumed = shake(addr, connector, MEASURED).await?;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu()? - cpu_before);
    let count = f64::from(u32::try_from(MEASURED)?);
    Ok((1e6 * cpu / count, count / seconds, resumed))
}

/// Does this number of them; returns how many were resumed.
async fn shake(addr: SocketAddr, connector: &TlsConnector, count: usize) -> Result<usize> {
    let mut running = JoinSet::new();
    let mut resumed = 0;
    for _ in 0..count {
        if running.len() >= AT_ONCE
            && let Some(done) = running.join_next().await
        {
            resumed += usize::from(done?? == HandshakeKind::Resumed);
        }
        running.spawn(one(addr, connector.clone()));
    }
    while let Some(done) = running.join_next().await {
        resumed += usize::from(done?? == HandshakeKind::Resumed);
    }
    Ok(resumed)
}

/// One handshake, proved to be whole by an answer behind it.
async fn one(addr: SocketAddr, connector: TlsConnector) -> std::io::Result<HandshakeKind> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let mut stream = connector
        .connect(ServerName::from(addr.ip()), stream)
        .await?;
    stream.write_all(b"ruok").await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    // The end may come without TLS's own.
    let _ = stream.read_to_end(&mut answer).await;
    match answer.as_slice() {
        b"imok" => Ok(stream
            .get_ref()
            .1
            .handshake_kind()
            .unwrap_or(HandshakeKind::Full)),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}
