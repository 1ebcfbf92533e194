//! The raw workloads: keeps every connection full, counts what ends in the measured window, and removes what it made. One thread
//! runs all connections, so counters are plain cells.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use baton_proto::{CreateMode, ErrorCode, Request};
use hdrhistogram::Histogram;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::conn::Connection;
use super::process::Usage;
use super::report::{Latency, Report, ServerCost, per_op_us, round};
use super::script::{Names, Script, create};
use super::{Args, BenchError, Workload};

/// Requests sent together when nodes are made or removed.
const BATCH: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Measure,
    Stop,
}

/// What the connections and the conductor share.
#[derive(Debug)]
struct Shared {
    phase: Cell<Phase>,
    ops: Cell<u64>,
    ops_wanted: u64,
    latency_nanos: RefCell<Histogram<u64>>,
    finished: Notify,
}

/// A run's histogram: from 1 µs to one minute at three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    #[allow(
        clippy::expect_used,
        reason = "the bounds are constants that the crate accepts"
    )]
    Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("constant bounds")
}

/// Splits `a:1,b:2/chroot` into addresses and the chroot.
fn split_servers(servers: &str) -> Result<(Vec<String>, &str), BenchError> {
    if servers.starts_with("unix:") {
        return Ok((vec![servers.to_owned()], ""));
    }
    let (hosts, chroot) = servers
        .find('/')
        .map_or((servers, ""), |at| servers.split_at(at));
    let addrs: Vec<String> = hosts
        .split(',')
        .map(str::trim)
        .filter(|host| !host.is_empty())
        .map(|host| {
            if host.contains(':') {
                host.to_owned()
            } else {
                format!("{host}:2181")
            }
        })
        .collect();
    if addrs.is_empty() {
        Err(BenchError::NoServer(servers.to_owned()))
    } else {
        Ok((addrs, chroot.trim_end_matches('/')))
    }
}

/// Runs a raw workload.
pub(crate) async fn run(args: &Args, servers: &str) -> Result<Report, BenchError> {
    let (addrs, chroot) = split_servers(servers)?;
    let first = addrs.first().map_or("", String::as_str);
    let names = Names::below(format!("{chroot}{}/{}", args.path, std::process::id()));

    let mut control = Connection::open(first, args.session_timeout).await?;
    prepare(&mut control, args, &names).await?;
    control.close().await?;

    let measured = measure(args, &addrs, &names, servers).await;

    if args.keep {
        return measured.map(|(report, _)| report);
    }
    let mut control = Connection::open(first, args.session_timeout).await?;
    let issued = measured
        .as_ref()
        .map_or(&[][..], |(_, issued)| issued.as_slice());
    let cleaned = clean(&mut control, args, &names, issued).await;
    control.close().await?;
    let (report, _) = measured?;
    cleaned.map(|()| report)
}

async fn measure(
    args: &Args,
    addrs: &[String],
    names: &Names,
    servers: &str,
) -> Result<(Report, Vec<u64>), BenchError> {
    let shared = Rc::new(Shared {
        phase: Cell::new(Phase::WarmUp),
        ops: Cell::new(0),
        ops_wanted: args.ops.unwrap_or(u64::MAX),
        latency_nanos: RefCell::new(histogram()),
        finished: Notify::new(),
    });
    let mut tasks: Vec<JoinHandle<Result<u64, BenchError>>> = Vec::new();
    for (n, addr) in addrs
        .iter()
        .cycle()
        .take(args.connections.max(1))
        .enumerate()
    {
        let connection = Connection::open(addr, args.session_timeout).await?;
        let script = Script::new(args.workload, names, n, args.nodes.max(1), args.value_bytes);
        let (shared, in_flight) = (Rc::clone(&shared), args.in_flight.max(1));
        tasks.push(tokio::task::spawn_local(async move {
            let result = drive(connection, script, in_flight, &shared).await;
            if result.is_err() {
                shared.phase.set(Phase::Stop);
                shared.finished.notify_one();
            }
            result
        }));
    }

    wait(&shared, args.warm_up).await;
    let (server_before, own_before) = (Usage::of(&args.pid)?, Usage::own()?);
    let begin = Instant::now();
    if shared.phase.get() == Phase::WarmUp {
        shared.phase.set(Phase::Measure);
        wait(
            &shared,
            if args.ops.is_some() {
                Duration::MAX
            } else {
                args.duration
            },
        )
        .await;
    }
    let window = begin.elapsed();
    let ops = shared.ops.get();
    shared.phase.set(Phase::Stop);
    let (server_after, own_after) = (Usage::of(&args.pid)?, Usage::own()?);

    let mut issued = Vec::new();
    for task in tasks {
        match task.await {
            Ok(result) => issued.push(result?),
            Err(join) => return Err(BenchError::Runtime(join.into())),
        }
    }
    let report = Report {
        workload: args.workload.name().to_owned(),
        servers: servers.to_owned(),
        connections: args.connections.max(1),
        in_flight: args.in_flight.max(1),
        value_bytes: args.value_bytes,
        seconds: round(window.as_secs_f64(), 3),
        ops,
        ops_per_second: round(ops as f64 / window.as_secs_f64(), 1),
        latency_us: Latency::from_nanos(&shared.latency_nanos.borrow()),
        generator_cpu_us_per_op: Some(per_op_us(own_after.cpu.saturating_sub(own_before.cpu), ops)),
        server: (!args.pid.is_empty())
            .then(|| ServerCost::between(server_before, server_after, ops, window)),
    };
    Ok((report, issued))
}

/// Waits for `time`, the wanted number of operations, a failed connection, or the user's interrupt.
async fn wait(shared: &Shared, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = shared.finished.notified() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Keeps one connection full until the run stops, then waits for what is still under way. Returns the requests issued.
async fn drive(
    mut conn: Connection,
    mut script: Script,
    in_flight: usize,
    shared: &Shared,
) -> Result<u64, BenchError> {
    let mut under_way: VecDeque<(Instant, bool)> = VecDeque::with_capacity(in_flight);
    let now = Instant::now();
    for _ in 0..in_flight {
        let (request, delete_after) = script.next();
        conn.outbox.push(&request);
        under_way.push_back((now, delete_after));
    }
    conn.flush().await?;
    while !under_way.is_empty() {
        if in_flight > 1 {
            // The other connections go first: meanwhile more arrives here, and one read and one write serve it all.
            conn.readable().await?;
            tokio::task::yield_now().await;
        }
        conn.fill().await?;
        take_replies(&mut conn, &mut script, &mut under_way, shared)?;
        conn.flush().await?;
    }
    conn.close().await?;
    Ok(script.issued())
}

/// Takes every whole reply that has arrived and pushes a successor for each.
fn take_replies(
    conn: &mut Connection,
    script: &mut Script,
    under_way: &mut VecDeque<(Instant, bool)>,
    shared: &Shared,
) -> Result<(), BenchError> {
    let now = Instant::now();
    let phase = shared.phase.get();
    let mut latency = shared.latency_nanos.borrow_mut();
    let mut ended = 0;
    loop {
        let reply = match conn.inbox.reply() {
            Ok(Some(reply)) if reply.xid < 0 => continue,
            Ok(Some(reply)) => reply,
            Ok(None) => break,
            Err(length) => return Err(conn.short_frame(length)),
        };
        if reply.err != 0 {
            let code = ErrorCode::from_code(reply.err);
            let (addr, what) = (conn.addr.clone(), "run the workload");
            return Err(BenchError::Refused { addr, what, code });
        }
        let Some((sent, delete_after)) = under_way.pop_front() else {
            return Err(conn.protocol("a reply to nothing".to_owned()));
        };
        ended += 1;
        if phase == Phase::Measure {
            latency.saturating_record(now.duration_since(sent).as_nanos() as u64);
        }
        if delete_after {
            let Some(path) = path_in(reply.body) else {
                return Err(conn.protocol("a create reply without a path".to_owned()));
            };
            conn.outbox.push(&Request::Delete { path, version: -1 });
            under_way.push_back((now, false));
        } else if phase != Phase::Stop {
            let (request, delete_after) = script.next();
            conn.outbox.push(&request);
            under_way.push_back((now, delete_after));
        }
    }
    if phase == Phase::Measure {
        shared.ops.set(shared.ops.get() + ended);
        if shared.ops.get() >= shared.ops_wanted {
            shared.phase.set(Phase::Stop);
            shared.finished.notify_one();
        }
    }
    Ok(())
}

/// The path that begins a create reply's body.
fn path_in(body: &[u8]) -> Option<&str> {
    let (length, rest) = body.split_first_chunk::<4>()?;
    let bytes = rest.get(..u32::from_be_bytes(*length) as usize)?;
    std::str::from_utf8(bytes).ok()
}

/// Makes the nodes that the workload needs.
async fn prepare(control: &mut Connection, args: &Args, names: &Names) -> Result<(), BenchError> {
    let root = names.root().to_owned();
    let levels = root
        .match_indices('/')
        .skip(1)
        .map(|(at, _)| at)
        .chain([root.len()]);
    for path in levels.filter_map(|end| root.get(..end)) {
        let made = control
            .call(&create(path, &[], CreateMode::Persistent))
            .await?;
        accept(
            control,
            made,
            ErrorCode::NodeExists,
            "create the run's node",
        )?;
    }
    let value = vec![b'v'; args.value_bytes];
    let paths: Vec<String> = match args.workload {
        Workload::Create | Workload::Churn => (0..args.connections.max(1))
            .map(|n| names.parent(n))
            .collect(),
        _ => (0..args.nodes.max(1)).map(|n| names.shared(n)).collect(),
    };
    let data: &[u8] = if matches!(args.workload, Workload::Create | Workload::Churn) {
        &[]
    } else {
        &value
    };
    for some in paths.chunks(BATCH) {
        pipeline(
            control,
            some.iter()
                .map(|path| create(path, data, CreateMode::Persistent)),
            "create a node",
        )
        .await?;
    }
    Ok(())
}

/// Removes all that [`prepare`] and the load made.
async fn clean(
    control: &mut Connection,
    args: &Args,
    names: &Names,
    issued: &[u64],
) -> Result<(), BenchError> {
    let mut paths: Box<dyn Iterator<Item = String>> = match args.workload {
        Workload::Create => Box::new(issued.iter().enumerate().flat_map(|(connection, &count)| {
            (0..count)
                .map(move |n| names.created(connection, n))
                .chain([names.parent(connection)])
        })),
        Workload::Churn => Box::new((0..args.connections.max(1)).map(|n| names.parent(n))),
        _ => Box::new((0..args.nodes.max(1)).map(|n| names.shared(n))),
    };
    loop {
        let some: Vec<String> = paths.by_ref().take(BATCH).collect();
        if some.is_empty() {
            break;
        }
        let deletes = some
            .iter()
            .map(|path| Request::Delete { path, version: -1 });
        pipeline(control, deletes, "delete a node").await?;
    }
    // The common parents stay when another run uses them.
    let common = names
        .root()
        .rsplit_once('/')
        .map_or("", |(parent, _)| parent);
    for path in [names.root(), common] {
        let _ = control.call(&Request::Delete { path, version: -1 }).await?;
    }
    Ok(())
}

/// Sends requests together and waits for all their answers.
async fn pipeline<'a>(
    control: &mut Connection,
    requests: impl Iterator<Item = Request<'a>>,
    what: &'static str,
) -> Result<(), BenchError> {
    let mut waiting = 0usize;
    for request in requests {
        control.outbox.push(&request);
        waiting += 1;
    }
    control.flush().await?;
    while waiting > 0 {
        match control.inbox.reply() {
            Ok(Some(reply)) => {
                let answer = if reply.err == 0 {
                    Ok(())
                } else {
                    Err(ErrorCode::from_code(reply.err))
                };
                accept(control, answer, ErrorCode::NoNode, what)?;
                waiting -= 1;
            }
            Ok(None) => control.fill().await?,
            Err(length) => return Err(control.short_frame(length)),
        }
    }
    Ok(())
}

/// Turns a refusal into an error, unless it is the tolerated one.
fn accept(
    conn: &Connection,
    answer: Result<(), ErrorCode>,
    tolerated: ErrorCode,
    what: &'static str,
) -> Result<(), BenchError> {
    match answer {
        Ok(()) => Ok(()),
        Err(code) if code == tolerated => Ok(()),
        Err(code) => Err(BenchError::Refused {
            addr: conn.addr.clone(),
            what,
            code,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_split_into_addresses_and_chroot() {
        let (addrs, chroot) = split_servers("a:1, b/x/y").unwrap();
        assert_eq!(
            (addrs, chroot),
            (vec!["a:1".to_owned(), "b:2181".to_owned()], "/x/y")
        );
        assert_eq!(
            split_servers("unix:/run/x.sock").unwrap(),
            (vec!["unix:/run/x.sock".to_owned()], "")
        );
        assert!(split_servers(" , ").is_err());
    }

    #[test]
    fn a_create_reply_begins_with_its_path() {
        assert_eq!(path_in(&[0, 0, 0, 2, b'/', b'a', 9]), Some("/a"));
        assert_eq!(path_in(&[0, 0, 0, 9, b'/']), None);
    }
}
