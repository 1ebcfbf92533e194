//! `cargo xtask scale`: what many sessions and watches cost one server, how long one change takes
//! to reach all who watch it, and how they come back after the server was killed. The clients are
//! sockets with plain frames, so that they cost little beside the server. `faults` has what befalls
//! a server that has them.

mod faults;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use baton_proto::{
    Acl, ConnectRequest, ConnectResponse, Create, CreateMode, Limits, Request, frame, xid,
};
use baton_testkit::Target;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

use crate::process::{Server, build_baton, cpu_seconds, memory_bytes, work_dir};
use crate::table::{markdown, quantile, show};
use crate::{Result, machine};

/// Connections of one address: below the server's bound and the range of ports.
const PER_ADDRESS: usize = 4_000;
/// Addresses that the connections come from, after which the first is used again.
const ADDRESSES: usize = 250;
/// Requests that are on their way at once.
const AT_ONCE: usize = 256;
const SESSION: Duration = Duration::from_secs(30);
/// Clients that ping while a change reaches the watchers.
const BYSTANDERS: usize = 10;
const WATCHED: &str = "/scale";
/// Connections that have many watches.
pub(crate) const WATCHERS: usize = 100;
/// Threads of the churn.
const CHURNING: usize = 16;

/// Measure many sessions and watches on one server.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of sessions, each with a connection. Both ends need a file: raise `ulimit -n`.
    #[arg(long, value_name = "N", default_value_t = 9_000)]
    sessions: usize,
    /// The number of watches for the cost of one: those of 100 connections on the same paths.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    watches: usize,
    /// Seconds for which all sessions are idle, and for which sessions are opened and closed.
    #[arg(long, value_name = "N", default_value_t = 20)]
    seconds: u64,
    /// Instead of all costs, measure faults beside the sessions: a snapshot, clients that never
    /// read, `kill -9`, a full disk (which needs leave to mount). Fails if a session is lost.
    #[arg(long)]
    faults: bool,
    /// The number of znodes, with --faults.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    nodes: usize,
    /// Folder for the server's data [default: the build's folder].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// A session with its connection.
pub(crate) struct Client {
    stream: TcpStream,
    session: i64,
    password: [u8; 16],
}

impl Client {
    fn send(&mut self, xid: i32, request: &Request<'_>) -> Result<()> {
        let mut out = Vec::new();
        frame::write_request(&mut out, xid, request);
        Ok(self.stream.write_all(&out)?)
    }

    /// The xid of the next frame, and its error code.
    fn receive(&mut self) -> Result<(i32, i32)> {
        let frame = receive(&mut self.stream)?;
        let number = |at: usize| {
            let bytes = frame
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok());
            bytes.map(i32::from_be_bytes).ok_or("a reply is too short")
        };
        Ok((number(0)?, number(12)?))
    }

    fn call(&mut self, request: &Request<'_>) -> Result<i32> {
        self.send(1, request)?;
        Ok(self.receive()?.1)
    }
}

fn receive(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length))?];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

/// The servers and the runtime of all clients.
pub(crate) struct Clients {
    runtime: Runtime,
    to: Vec<SocketAddr>,
    connections: AtomicUsize,
}

impl Clients {
    /// Clients of these servers in turn, as `host:port,…`.
    pub(crate) fn of(servers: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let to = servers.split(',').map(str::parse);
        let to = to.collect::<std::result::Result<_, _>>()?;
        let connections = AtomicUsize::new(0);
        Ok(Self {
            runtime,
            to,
            connections,
        })
    }

    /// Connects, as the next of all connections, from an address that has room.
    fn connect(&self) -> Result<TcpStream> {
        let number = self.connections.fetch_add(1, Relaxed);
        let host = u8::try_from(number / PER_ADDRESS % ADDRESSES + 2)?;
        let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0));
        let to = *self.to.get(number % self.to.len()).ok_or("no server")?;
        let stream = self.runtime.block_on(async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(from)?;
            socket.connect(to).await?.into_std()
        });
        let stream =
            stream.map_err(|error| format!("connection {number}: {error}; raise ulimit -n"))?;
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(4 * SESSION))?;
        Ok(stream)
    }

    fn one(&self) -> Result<Client> {
        Ok(self.open(1, &[])?.pop().ok_or("no session")?)
    }

    /// Opens `count` sessions, or takes `past` ones up again.
    pub(crate) fn open(&self, count: usize, past: &[(i64, [u8; 16])]) -> Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        while clients.len() < count {
            let first = clients.len();
            let numbers = first..count.min(first + AT_ONCE);
            let mut streams = Vec::with_capacity(AT_ONCE);
            for number in numbers {
                let mut stream = self.connect()?;
                let (session_id, password) = past.get(number).copied().unwrap_or_default();
                let request = ConnectRequest {
                    protocol_version: 0,
                    last_zxid_seen: 0,
                    timeout_ms: i32::try_from(SESSION.as_millis())?,
                    session_id,
                    password: &password,
                    read_only: Some(false),
                };
                let mut out = Vec::new();
                frame::write_connect_request(&mut out, &request);
                stream.write_all(&out)?;
                streams.push(stream);
            }
            for mut stream in streams {
                let answer = ConnectResponse::decode(&receive(&mut stream)?, &Limits::default())?;
                clients.push(Client {
                    stream,
                    session: answer.session_id,
                    password: answer.password,
                });
            }
        }
        Ok(clients)
    }
}

/// Has every client ask this, some at a time.
fn ask_all(clients: &mut [Client], xid: i32, request: &Request<'_>) -> Result<()> {
    for some in clients.chunks_mut(AT_ONCE) {
        some.iter_mut()
            .try_for_each(|client| client.send(xid, request))?;
        some.iter_mut()
            .try_for_each(|client| client.receive().map(drop))?;
    }
    Ok(())
}

/// The memory of a process that is not a file's, in bytes.
pub(crate) fn memory(server: &Server) -> Result<f64> {
    memory_bytes(server.pid()?, "RssAnon")
}

/// The quantile in milliseconds.
fn ms(times: &mut [Duration], of_thousand: usize) -> String {
    show(quantile(times, of_thousand).as_secs_f64() * 1e3)
}

fn set<'a>(path: &'a str, data: &'a [u8]) -> Request<'a> {
    Request::SetData {
        path,
        data: Some(data),
        version: -1,
    }
}

/// Times of requests of one client, one write in `one_write_in`, until it has done enough.
fn foreground(
    client: &mut Client,
    one_write_in: usize,
    is_enough: impl Fn(usize) -> bool,
) -> Result<Vec<Duration>> {
    let set = set("/foreground", &[7; 100]);
    let get = Request::GetData {
        path: "/foreground",
        watch: false,
    };
    let mut times = Vec::new();
    while !is_enough(times.len()) {
        let is_write = times.len() % one_write_in == one_write_in - 1;
        let begun = Instant::now();
        match client.call(if is_write { &set } else { &get })? {
            0 => times.push(begun.elapsed()),
            code => return Err(format!("/foreground: error {code}").into()),
        }
    }
    Ok(times)
}

fn new_node(path: &str, mode: CreateMode) -> Request<'_> {
    let acl = vec![Acl::open_unsafe()];
    Request::Create(Create::new(path, Some(&[7; 100]), acl, mode))
}

fn create(client: &mut Client, path: &str, mode: CreateMode) -> Result<()> {
    match client.call(&new_node(path, mode))? {
        0 => Ok(()),
        code => Err(format!("create {path}: error {code}").into()),
    }
}

/// Has every client watch the nodes of these numbers, which there are none of.
pub(crate) fn watch_paths(watchers: &mut [Client], numbers: Range<usize>) -> Result<()> {
    for number in numbers {
        let path = format!("{WATCHED}/watched-{number:07}");
        let watch = Request::Exists {
            path: &path,
            watch: true,
        };
        ask_all(watchers, 1, &watch)?;
    }
    Ok(())
}

/// Has one client change what all others watch. The time until the last of them has been notified,
/// and the pings of bystanders meanwhile.
fn fan_out(clients: &mut [Client], bystanders: &mut [Client]) -> Result<(Duration, Vec<Duration>)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pinging = scope.spawn(|| {
            let mut times = Vec::new();
            while !is_over.load(Relaxed) {
                for client in bystanders.iter_mut() {
                    let begun = Instant::now();
                    client.send(xid::PING, &Request::Ping).ok()?;
                    client.receive().ok()?;
                    times.push(begun.elapsed());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            Some(times)
        });
        let notified = (|| {
            let (writer, watchers) = clients.split_first_mut().ok_or("no clients")?;
            let begun = Instant::now();
            writer.send(1, &set(WATCHED, &[]))?;
            for client in watchers {
                match client.receive()? {
                    (xid::NOTIFICATION, _) => {}
                    (other, _) => return Err(format!("reply {other} in place of an event").into()),
                }
            }
            let took = begun.elapsed();
            writer.receive()?;
            Ok(took)
        })();
        is_over.store(true, Relaxed);
        let times = pinging
            .join()
            .ok()
            .flatten()
            .ok_or("a bystander was disconnected")?;
        notified.map(|took| (took, times))
    })
}

/// Opens and closes sessions with an ephemeral each, on several threads: their rate and p99.
pub(crate) fn churn(clients: &Clients, seconds: u64) -> Result<String> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let each = |thread: usize| -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        while Instant::now() < until {
            let begun = Instant::now();
            let client = &mut clients.one()?;
            let path = format!("/churn-{thread}-{}", times.len());
            create(client, &path, CreateMode::Ephemeral)?;
            match client.call(&Request::CloseSession)? {
                0 => times.push(begun.elapsed()),
                code => return Err(format!("close: error {code}").into()),
            }
        }
        Ok(times)
    };
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CHURNING)
            .map(|thread| scope.spawn(move || each(thread).map_err(|error| error.to_string())))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            let times = thread.join();
            all.extend(times.map_err(|_| "a thread of the churn has panicked")??);
        }
        Ok::<_, Box<dyn std::error::Error>>(all)
    })?;
    let rate = all.len() as f64 / seconds as f64;
    Ok(format!("{}, {} ms", show(rate), ms(&mut all, 990)))
}

/// Has each session ping three times in its timeout, until it is over.
fn ping_until(clients: &mut [Client], is_over: impl Fn() -> bool) -> Result<()> {
    let step = Duration::from_millis(100);
    let steps_of_a_round = usize::try_from(SESSION.as_millis() / 3 / step.as_millis())?;
    let each = clients.len().div_ceil(steps_of_a_round).max(1);
    let begun = Instant::now();
    let mut chunks = 0;
    while !is_over() {
        let from = chunks % steps_of_a_round * each;
        let some = clients.iter_mut().skip(from).take(each);
        for client in some {
            client.send(xid::PING, &Request::Ping)?;
            client.receive()?;
        }
        chunks += 1;
        let due = begun + step * u32::try_from(chunks)?;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// The share of a core that the server needs for the pings of all sessions.
fn idle(server: &Server, clients: &mut [Client], seconds: u64) -> Result<f64> {
    let before = cpu_seconds(server.pid()?).ok_or("the server has ended")?;
    let begun = Instant::now();
    ping_until(clients, || begun.elapsed().as_secs() >= seconds)?;
    let after = cpu_seconds(server.pid()?).ok_or("the server has ended")?;
    Ok((after - before) / begun.elapsed().as_secs_f64() * 100.0)
}

/// Kills the server and starts it again. The sessions that are back, each with 10 watches, how
/// many are lost, and the times.
fn come_back(
    server: &mut Server,
    clients: &Clients,
    sessions: Vec<Client>,
) -> Result<(Vec<Client>, usize, String)> {
    let past = sessions.iter().map(|it| (it.session, it.password));
    let past: Vec<_> = past.collect();
    server.kill();
    drop(sessions);
    let restart = server.restart()?;
    let begun = Instant::now();
    let mut back = clients.open(past.len(), &past)?;
    for number in 0..10 {
        let path = format!("{WATCHED}/back-{number}");
        let watch = Request::Exists {
            path: &path,
            watch: true,
        };
        ask_all(&mut back, 1, &watch)?;
    }
    let lost = back.iter().filter(|client| client.session == 0).count();
    let took = begun.elapsed().as_secs_f64();
    let text = format!("serves after {restart:.1?}, all back in {took:.1} s more, {lost} lost");
    Ok((back, lost, text))
}

/// Runs the task.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.faults {
        return faults::run(args);
    }
    let dir = work_dir(args.dir.as_deref())?;
    let mut server = Server::start(Target::Baton, &build_baton()?, dir.path())?;
    let clients = Clients::of(&server.addr())?;
    let mut rows = Vec::new();
    let mut row = |what: &str, value: String| {
        eprintln!("{what}: {value}");
        rows.push(vec![what.to_owned(), value]);
    };
    let count = args.sessions;
    let mut others = clients.open(BYSTANDERS, &[])?;
    let first = others.first_mut().ok_or("no session")?;
    create(first, WATCHED, CreateMode::Persistent)?;
    create(first, "/foreground", CreateMode::Persistent)?;
    let at_rest = memory(&server)?;
    let mut alone = foreground(first, 10, |done| done == 2_000)?;
    row(
        "gets and sets of one client, nine to one, beside no other session: p50, p99",
        format!("{} ms, {} ms", ms(&mut alone, 500), ms(&mut alone, 990)),
    );

    let begun = Instant::now();
    let mut sessions = clients.open(count, &[])?;
    let took = begun.elapsed().as_secs_f64();
    row("sessions opened in a second", show(count as f64 / took));
    let with_sessions = memory(&server)?;
    row(
        "bytes of an idle session, connection included",
        show((with_sessions - at_rest) / count as f64),
    );
    let percent = idle(&server, &mut sessions, args.seconds)?;
    row(
        &format!("{count} sessions that ping each 10 s: share of a core"),
        format!("{percent:.1} %"),
    );
    let first = others.first_mut().ok_or("no session")?;
    let mut beside = foreground(first, 10, |done| done == 2_000)?;
    row(
        &format!("the same gets and sets beside {count} sessions"),
        format!("{} ms, {} ms", ms(&mut beside, 500), ms(&mut beside, 990)),
    );

    let watch = Request::Exists {
        path: WATCHED,
        watch: true,
    };
    let before = memory(&server)?;
    ask_all(sessions.get_mut(1..).unwrap_or_default(), 1, &watch)?;
    row(
        "bytes of a watch, one a connection, all of one znode",
        show((memory(&server)? - before) / count as f64),
    );
    let (took, mut pings) = fan_out(&mut sessions, &mut others)?;
    row(
        &format!("one change to {count} watchers: last event"),
        format!("{} ms", show(took.as_secs_f64() * 1e3)),
    );
    row(
        "pings of others meanwhile: p99",
        format!("{} ms", ms(&mut pings, 990)),
    );

    let before = memory(&server)?;
    let watchers = sessions.get_mut(..WATCHERS);
    let watchers = watchers.ok_or("--sessions is below 100")?;
    let paths = args.watches / WATCHERS;
    watch_paths(watchers, 0..paths)?;
    row(
        &format!(
            "bytes of a watch, {} of 100 connections on the same paths",
            paths * 100
        ),
        show((memory(&server)? - before) / (paths * 100) as f64),
    );

    // They have said nothing for a while, and have to outlive what follows.
    ask_all(&mut sessions, xid::PING, &Request::Ping)?;
    row(
        "sessions opened, with an ephemeral, and closed in a second; p99",
        churn(&clients, args.seconds)?,
    );

    row(
        &format!("the server killed and started again: {count} sessions, with 10 watches each"),
        come_back(&mut server, &clients, sessions)?.2,
    );
    println!("{}", markdown(&["quantity", "measured"], &rows));
    println!("{}", machine::describe());
    Ok(())
}
