//! The raw workloads: makes the nodes that they need, keeps every connection full, and removes what
//! was made. It never retries: a refused operation ends the run.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

use baton_proto::{CreateMode, ErrorCode, Request};
use baton_tls::ClientTls;

use super::conn::Connection;
use super::report::Report;
use super::script::{Names, Script};
use super::window::Window;
use super::{Args, Result, Workload};

/// Stands before servers that are reached with TLS.
const TLS_MARK: &str = "tls://";
/// Requests sent together when nodes are made or removed.
const BATCH: usize = 256;

fn addresses(servers: &str) -> Vec<&str> {
    let hosts = servers.split(',').map(str::trim);
    hosts
        .map(|host| host.strip_prefix(TLS_MARK).unwrap_or(host))
        .collect()
}

/// Runs a raw workload.
pub(crate) async fn run_raw(args: &Args) -> Result<Report> {
    let addrs = addresses(&args.servers);
    let first = addrs.first().copied().unwrap_or_default();
    let tls = args.tls()?;
    let names = Names::below(args.run_path());

    let mut control = Connection::open(first, tls.as_ref()).await?;
    prepare(&mut control, args, &names).await?;
    control.close().await?;

    let measured = measure(args, &addrs, &names, tls.as_ref()).await;

    if args.keep {
        return measured.map(|(report, _)| report);
    }
    let mut control = Connection::open(first, tls.as_ref()).await?;
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
    addrs: &[&str],
    names: &Names,
    tls: Option<&ClientTls>,
) -> Result<(Report, Vec<u64>)> {
    let window = Window::new(args);
    let mut tasks = Vec::new();
    let shared = names.all_shared(match args.creates_own_nodes() {
        true => 0,
        false => args.nodes.max(1),
    });
    for (n, addr) in addrs.iter().cycle().take(args.connections()).enumerate() {
        let connection = Connection::open(addr, tls).await?;
        let script = Script::new(args, names, &shared, n)?;
        let (of_task, in_flight) = (Rc::clone(&window), args.in_flight.max(1));
        tasks.push(
            window.spawn(async move { drive(connection, script, in_flight, &of_task).await }),
        );
    }
    window.conduct(args, args.in_flight.max(1), tasks).await
}

/// Keeps one connection full until the run stops, then waits for what is still under way. Returns
/// the requests issued.
async fn drive(
    mut conn: Connection,
    mut script: Script,
    in_flight: usize,
    window: &Window,
) -> Result<u64> {
    let mut under_way: VecDeque<(Instant, bool)> = VecDeque::with_capacity(in_flight);
    let now = Instant::now();
    for _ in 0..in_flight {
        let Some((request, delete_after)) = script.next() else {
            break;
        };
        conn.outbox.push(&request);
        under_way.push_back((now, delete_after));
    }
    conn.flush().await?;
    while !under_way.is_empty() {
        if in_flight > 1 {
            // The other connections go first: meanwhile more arrives here, and one read and one
            // write serve it all.
            conn.readable().await?;
            tokio::task::yield_now().await;
        }
        conn.fill().await?;
        take_replies(&mut conn, &mut script, &mut under_way, window)?;
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
    window: &Window,
) -> Result<()> {
    let now = Instant::now();
    let stopping = window.stopping();
    let mut count = window.count();
    loop {
        let reply = match conn.inbox.reply() {
            Ok(Some(reply)) if reply.xid < 0 => continue,
            Ok(Some(reply)) => reply,
            Ok(None) => break,
            Err(length) => return Err(conn.short_frame(length)),
        };
        if reply.err != 0 {
            let (addr, code) = (&conn.addr, ErrorCode::from_code(reply.err));
            return Err(format!("{addr} refused to run the workload: {code}").into());
        }
        let Some((sent, delete_after)) = under_way.pop_front() else {
            return Err(conn.protocol("a reply to nothing"));
        };
        count.one(now.duration_since(sent));
        if delete_after {
            let Some(path) = path_in(reply.body) else {
                return Err(conn.protocol("a create reply without a path"));
            };
            conn.outbox.push(&Request::Delete { path, version: -1 });
            under_way.push_back((now, false));
        } else if !stopping && let Some((request, delete_after)) = script.next() {
            conn.outbox.push(&request);
            under_way.push_back((now, delete_after));
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
async fn prepare(control: &mut Connection, args: &Args, names: &Names) -> Result<()> {
    let root = names.root().to_owned();
    let levels = root
        .match_indices('/')
        .skip(1)
        .map(|(at, _)| at)
        .chain([root.len()]);
    for path in levels.filter_map(|end| root.get(..end)) {
        let made = control
            .call(&names.create(path, &[], CreateMode::Persistent))
            .await?;
        accept(
            control,
            made,
            ErrorCode::NodeExists,
            "create the run's node",
        )?;
    }
    let value = vec![b'v'; args.value_bytes];
    let (paths, data): (Vec<String>, &[u8]) = if args.creates_own_nodes() {
        let parents = (0..args.connections()).map(|n| names.parent(n));
        (parents.collect(), &[])
    } else {
        // What another run has left is there to the last.
        let last = names.shared(args.nodes.max(1) - 1);
        let read = Request::GetData {
            path: &last,
            watch: false,
        };
        if args.workload == Workload::Load || control.call(&read).await?.is_ok() {
            return Ok(());
        }
        (
            (0..args.nodes.max(1)).map(|n| names.shared(n)).collect(),
            &value,
        )
    };
    for some in paths.chunks(BATCH) {
        pipeline(
            control,
            some.iter()
                .map(|path| names.create(path, data, CreateMode::Persistent)),
            "create a node",
        )
        .await?;
    }
    Ok(())
}

/// Removes all that [`prepare`] and the load made.
async fn clean(control: &mut Connection, args: &Args, names: &Names, issued: &[u64]) -> Result<()> {
    let mut paths: Box<dyn Iterator<Item = String>> = match args.workload {
        Workload::Create | Workload::Latest => {
            Box::new(issued.iter().enumerate().flat_map(|(connection, &count)| {
                (0..Script::created(args.workload, count))
                    .map(move |n| names.created(connection, n))
                    .chain([names.parent(connection)])
            }))
        }
        Workload::Churn => Box::new((0..args.connections()).map(|n| names.parent(n))),
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
) -> Result<()> {
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
    answer: std::result::Result<(), ErrorCode>,
    tolerated: ErrorCode,
    what: &'static str,
) -> Result<()> {
    match answer {
        Ok(()) => Ok(()),
        Err(code) if code == tolerated => Ok(()),
        Err(code) => Err(format!("{} refused to {what}: {code}", conn.addr).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_split_into_addresses() {
        assert_eq!(addresses("a:1, tls://b:2"), ["a:1", "b:2"]);
    }

    #[test]
    fn a_create_reply_begins_with_its_path() {
        assert_eq!(path_in(&[0, 0, 0, 2, b'/', b'a', 9]), Some("/a"));
        assert_eq!(path_in(&[0, 0, 0, 9, b'/']), None);
    }
}
