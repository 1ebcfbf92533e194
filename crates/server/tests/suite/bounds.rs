//! The table of docs/operate/limits.md of what a peer can use up, walked row by row by a hostile
//! client: the bound holds, others go on, and the metrics of the row show what happened.

use std::any::Any;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use baton_proto::{
    Acl, AuthPacket, ConnectRequest, Create, CreateOp, ErrorCode, MultiOp, MultiResult, Perms,
    Request, Response, frame,
};
use baton_server::{Options, Server};
use baton_wal::testing::FaultStorage;

use crate::support::gate::{Gate, GatedStorage};
use crate::support::http;
use crate::support::{PATIENCE, Wire, create, get, in_memory, no_session, set, watched};

const DOCS: &str = include_str!("../../../../docs/operate/limits.md");
const SETTINGS: &str = include_str!("../../../cli/src/settings/table.rs");

/// State after an attack: the hostile clients' connections, and the server. Dropped in this order:
/// a server that is dropped waits for its disk, which an attack may have shut.
struct Attacked {
    _held: Box<dyn Any + Send>,
    server: Server,
}

type Probe = fn() -> Pin<Box<dyn Future<Output = Attacked> + Send>>;

/// The attack on each row, by the name of its resource.
fn probes() -> BTreeMap<&'static str, Probe> {
    fn probe<F>(attack: fn() -> F) -> fn() -> F {
        attack
    }
    macro_rules! rows {
        ($($resource:literal => $attack:ident,)*) => {
            BTreeMap::from([$(($resource, (|| Box::pin(probe($attack)())) as Probe),)*])
        };
    }
    rows! {
        "connections from one address" => connections_from_one_address,
        "connections in all" => connections_in_all,
        "time without a session" => time_without_a_session,
        "first frame" => first_frame,
        "sessions" => sessions,
        "sessions from one address" => sessions_of_an_address,
        "time of a silent session" => time_of_a_silent_session,
        "bytes of one request" => bytes_of_one_request,
        "requests that are not whole, or wait to be taken on, of all connections" => unfinished_requests,
        "requests of one connection on their way" => requests_in_flight,
        "requests that wait for the log, of all connections" => queued_requests,
        "requests in one log entry" => requests_in_one_entry,
        "answers and events that one client does not read" => one_who_does_not_read,
        "answers and events that all clients do not read" => many_who_do_not_read,
        "bytes of the answer to one multiRead or getEphemerals" => bytes_of_one_answer,
        "operations of one multi" => operations_of_one_multi,
        "events of one change" => events_of_one_change,
        "time of the threads that serve sockets" => time_of_threads,
        "watches of one connection" => watches_of_one_connection,
        "watches of all connections" => watches_of_all_connections,
        "credentials of one connection" => credentials,
        "ACLs of one request" => acls_of_one_request,
        "lines of the log" => lines_of_the_log,
        "znodes, their data and ACLs" => znodes,
        "ephemeral znodes" => ephemerals,
        "room on the disk" => room_on_the_disk,
    }
}

/// A row of the table: the resource, the text of its bound, and its metrics.
struct Row {
    resource: &'static str,
    bound: &'static str,
    metrics: Vec<&'static str>,
}

fn quoted(cell: &'static str) -> impl Iterator<Item = &'static str> {
    cell.split('`').skip(1).step_by(2)
}

fn rows() -> Vec<Row> {
    let (_, section) = DOCS.split_once("## What a peer can use up").unwrap();
    let section = section.split("\n#").next().unwrap();
    let table = section.lines().filter(|line| line.starts_with("| "));
    let cells = table.map(|line| line.trim_matches('|').split(" | ").collect::<Vec<_>>());
    // The first is the head.
    cells
        .skip(1)
        .map(|cells| Row {
            resource: cells[0].trim(),
            bound: cells[1],
            metrics: quoted(cells[3]).collect(),
        })
        .collect()
}

#[test]
fn every_row_has_a_bound_that_is_a_setting_or_a_number_a_metric_and_an_attack() {
    let probes = probes();
    let rows = rows();
    assert_eq!(
        rows.iter()
            .map(|row| row.resource)
            .collect::<std::collections::BTreeSet<_>>(),
        probes.keys().copied().collect(),
        "the table of docs/operate/limits.md and the attacks of this test"
    );
    for row in rows {
        assert!(!row.metrics.is_empty(), "{} has no metric", row.resource);
        for setting in quoted(row.bound) {
            let configured = format!("\"{setting}\": ");
            assert!(
                SETTINGS.contains(&configured),
                "{}: {setting}",
                row.resource
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_row_is_attacked_its_bound_holds_and_its_metrics_show_it() {
    let probes = probes();
    for row in rows() {
        eprintln!("attacking: {}", row.resource);
        let probe = probes[row.resource];
        let attacked = tokio::time::timeout(3 * PATIENCE, probe())
            .await
            .unwrap_or_else(|_| panic!("the attack on {} hangs", row.resource));
        for metric in row.metrics {
            shows(&attacked.server, metric, row.resource).await;
        }
    }
}

/// Waits until the metric is above zero.
async fn shows(server: &Server, name: &str, resource: &str) {
    let shown = async {
        while metric(server, name).await <= 0.0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, shown)
        .await
        .unwrap_or_else(|_| panic!("{name} does not show the attack on {resource}"));
}

/// A metric, over HTTP, which no attack on the client port can keep from answering.
async fn metric(server: &Server, name: &str) -> f64 {
    let (_, page) = http::get(server.http_addr().unwrap(), "/metrics").await;
    let value = |name: &str| {
        page.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    };
    let value = value(name).or_else(|| value(&format!("{name}_count")));
    value
        .unwrap_or_else(|| panic!("no metric {name}"))
        .parse()
        .unwrap()
}

async fn serve(change: impl FnOnce(&mut Options)) -> (Server, String) {
    let builder = in_memory().http("127.0.0.1:0").with(change);
    let server = builder.start().await.unwrap();
    let to = server.connect_string();
    (server, to)
}

fn attacked(server: Server, held: impl Any + Send) -> Attacked {
    Attacked {
        _held: Box::new(held),
        server,
    }
}

async fn connections_from_one_address() -> Attacked {
    let (server, to) = serve(|options| options.max_connections_per_address = 3).await;
    let mut good = Wire::open(&to).await;
    let others = [Wire::silent(&to).await, Wire::silent(&to).await];
    assert!(Wire::silent(&to).await.is_closed().await);
    assert!(good.exists("/").await);
    attacked(server, others)
}

async fn connections_in_all() -> Attacked {
    let (server, to) = serve(|options| options.max_connections = 3).await;
    let mut good = Wire::open(&to).await;
    let others = [Wire::silent(&to).await, Wire::silent(&to).await];
    assert!(Wire::silent(&to).await.is_closed().await);
    assert!(good.exists("/").await);
    assert_eq!(server.active_connections(), 3);
    attacked(server, others)
}

async fn time_without_a_session() -> Attacked {
    let soon = Duration::from_millis(50);
    let (server, to) = serve(|options| options.handshake_timeout = soon).await;
    let mut half = Wire::silent(&to).await;
    half.send_bytes(&[0, 0, 0, 45, 0]).await;
    assert!(half.is_closed().await);
    assert!(Wire::silent(&to).await.is_closed().await);
    attacked(server, ())
}

async fn first_frame() -> Attacked {
    let (server, to) = serve(|_| {}).await;
    // The length alone is enough: nothing of the frame is waited for.
    for length in [4097_i32, 1 << 20, i32::MAX] {
        let mut wire = Wire::silent(&to).await;
        wire.send_bytes(&length.to_be_bytes()).await;
        assert!(wire.is_closed().await, "{length}");
    }
    let long_password = ConnectRequest {
        password: &[0; 3000],
        ..no_session()
    };
    assert!(Wire::open_with(&to, &long_password).await.is_some());
    attacked(server, ())
}

async fn sessions() -> Attacked {
    three_sessions(|options| options.max_sessions = 3).await
}

async fn sessions_of_an_address() -> Attacked {
    three_sessions(|options| options.max_sessions_per_address = 3).await
}

/// Attacks a limit of three sessions.
async fn three_sessions(limit: impl FnOnce(&mut Options)) -> Attacked {
    let (server, to) = serve(limit).await;
    let mut good = Wire::open(&to).await;
    // A session outlives its connection.
    for _ in 0..2 {
        drop(Wire::open(&to).await);
    }
    for _ in 0..5 {
        assert!(Wire::open_with(&to, &no_session()).await.is_none());
    }
    assert_eq!(server.active_sessions(), 3);
    let again = Wire::resume(&to, &good.session, 0).await;
    assert!(again.is_some(), "a session that is open goes on");
    good = again.unwrap();
    good.call(Request::CloseSession).await.unwrap();
    let next = Wire::open_with(&to, &no_session()).await;
    assert!(next.is_some(), "there is room for another");
    attacked(server, next)
}

async fn time_of_a_silent_session() -> Attacked {
    let (server, to) = serve(|options| {
        options.tick = Duration::from_millis(20);
        options.min_session_timeout = Duration::from_millis(200);
        options.max_session_timeout = Duration::from_millis(300);
    })
    .await;
    let forever = ConnectRequest {
        timeout_ms: i32::MAX,
        ..no_session()
    };
    let mut silent = Wire::open_with(&to, &forever).await.unwrap();
    assert_eq!(silent.session.timeout_ms, 300);
    // The beginning of a request holds nothing.
    silent.send_bytes(&[0, 0, 0, 8, 0xff]).await;
    assert!(silent.is_closed().await);
    attacked(server, ())
}

async fn bytes_of_one_request() -> Attacked {
    let (server, to) = serve(|options| options.max_frame_bytes = 10_000).await;
    let mut wire = Wire::open(&to).await;
    let large = wire.call(set("/", &[7; 12_000])).await;
    assert_eq!(large, Err(ErrorCode::BadArguments));
    let paths: Vec<String> = (0..500).map(|n| format!("/{n:010}")).collect();
    let many = paths.iter().map(|path| MultiOp::Check { path, version: 0 });
    let many = wire.call(Request::Multi(many.collect())).await;
    assert_eq!(many, Err(ErrorCode::BadArguments));
    wire.send(&[set("/", &[7; 30_000])]).await;
    assert!(wire.is_closed().await);
    attacked(server, ())
}

async fn unfinished_requests() -> Attacked {
    const FRAME: usize = 100_000;
    const BOUND: usize = 5 * FRAME;
    let (server, to) = serve(|options| {
        options.max_frame_bytes = FRAME;
        options.max_unfinished_bytes = BOUND;
    })
    .await;
    let mut good = Wire::open(&to).await;
    good.create("/a", b"", 0).await.unwrap();
    let mut whole = Vec::new();
    frame::write_request(&mut whole, 1, &set("/a", &[7; FRAME - 100]));
    let mut hostile = Vec::new();
    for _ in 0..20 {
        let mut wire = Wire::open(&to).await;
        wire.send_bytes(&whole[..whole.len() - 1]).await;
        hostile.push(wire);
        // What a client sends whole goes through meanwhile.
        good.call(set("/a", &[1; FRAME - 100])).await.unwrap();
        let held = metric(&server, "baton_unfinished_bytes").await;
        // Of a frame that is just arriving at each of two threads the server has not decided yet.
        assert!(held <= (BOUND + 2 * FRAME) as f64, "{held}");
    }
    shows(&server, "baton_unfinished_closed", "unfinished requests").await;
    // A connection that was closed keeps its session.
    let again = Wire::resume(&to, &hostile[0].session, 0).await.unwrap();
    assert!(!again.session.is_refused());
    // The newest may finish what it began.
    let mut last = hostile.pop().unwrap();
    last.send_bytes(&whole[whole.len() - 1..]).await;
    assert_eq!(last.reply().await.0.error(), ErrorCode::Ok);
    attacked(server, (hostile, again))
}

/// A server whose disk hangs from now on until `Gate`'s part is dropped.
async fn hanging(change: impl FnOnce(&mut Options)) -> (Server, String, Gate) {
    let builder = in_memory().http("127.0.0.1:0").with(change);
    let gate = Gate::default();
    let storage = Arc::new(GatedStorage::new(&gate));
    let server = Server::start_with(builder.options().clone(), storage)
        .await
        .unwrap();
    let to = server.connect_string();
    (server, to, gate)
}

async fn requests_in_flight() -> Attacked {
    const MOST: usize = 10;
    let (server, to, gate) = hanging(|options| options.max_requests_in_flight = MOST).await;
    let mut good = Wire::open(&to).await;
    let mut hostile = Wire::open(&to).await;
    hostile.create("/a", b"", 0).await.unwrap();
    let shut = gate.shut();
    hostile.send(&vec![set("/a", b"x"); 500]).await;
    while metric(&server, "outstanding_requests").await < MOST as f64 {}
    for _ in 0..5 {
        assert!(good.exists("/a").await, "who reads goes on");
        assert!(metric(&server, "outstanding_requests").await <= MOST as f64);
    }
    attacked(server, (shut, hostile))
}

async fn queued_requests() -> Attacked {
    const BOUND: usize = 100_000;
    const CLIENTS: usize = 20;
    let (server, to, gate) = hanging(|options| options.max_queued_bytes = BOUND).await;
    let mut good = Wire::open(&to).await;
    good.create("/a", b"", 0).await.unwrap();
    let mut hostile = Vec::new();
    for _ in 0..CLIENTS {
        hostile.push(Wire::open(&to).await);
    }
    let shut = gate.shut();
    let data = vec![7; 50_000];
    for wire in &mut hostile {
        wire.send(&[set("/a", &data), set("/a", &data)]).await;
    }
    while metric(&server, "baton_queue_bytes").await < BOUND as f64 {}
    for _ in 0..10 {
        assert!(good.exists("/a").await, "who reads goes on");
        let queued = metric(&server, "baton_queue_bytes").await;
        // Two threads may each take one on before they see that there are enough.
        assert!(queued <= (BOUND + 4 * data.len()) as f64, "{queued}");
    }
    drop(shut);
    // Those that waited for room are woken, and nothing was lost.
    for wire in &mut hostile {
        for _ in 0..2 {
            assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
        }
    }
    let shut = gate.shut();
    hostile[0].send(&[set("/a", &data)]).await;
    attacked(server, (shut, hostile))
}

async fn requests_in_one_entry() -> Attacked {
    const WRITES: usize = 30;
    let (server, to, gate) = hanging(|_| ()).await;
    let (mut good, mut hostile) = (Wire::open(&to).await, Wire::open(&to).await);
    good.create("/a", b"", 0).await.unwrap();
    let data = vec![7; 500_000];
    let shut = gate.shut();
    hostile.send(&[set("/a", b"")]).await;
    gate.until_reached();
    let sending = tokio::spawn(async move {
        hostile.send(&vec![set("/a", &data); WRITES]).await;
        hostile
    });
    // The one that hangs, and all of these.
    let large = WRITES as f64 + 1.0;
    while metric(&server, "outstanding_requests").await < large {}
    let first = good.send(&[set("/a", b"mine")]).await;
    while metric(&server, "outstanding_requests").await < large + 1.0 {}
    drop(shut);
    let (header, _) = good.reply().await;
    assert_eq!((header.xid, header.error()), (first, ErrorCode::Ok));
    let mut hostile = sending.await.unwrap();
    hostile.reply().await;
    let mut before = 0;
    for _ in 0..WRITES {
        before += usize::from(hostile.reply().await.0.zxid < header.zxid);
    }
    assert!(before <= 2, "a small write is in the next entry: {before}");
    attacked(server, hostile)
}

async fn one_who_does_not_read() -> Attacked {
    const BOUND: usize = 50_000;
    let (server, to) = serve(|options| options.max_outbound_bytes = BOUND).await;
    let mut closed = Wire::open(&to).await;
    closed.create("/big", &vec![1; 900_000], 0).await.unwrap();
    closed
        .call(Request::AddWatch { path: "/", mode: 1 })
        .await
        .unwrap();
    closed.send(&vec![get("/big"); 30]).await;
    while metric(&server, "baton_outbound_bytes_max").await < BOUND as f64 {}
    let mut writer = Wire::open(&to).await;
    let path = format!("/{}", "n".repeat(400));
    writer.create(&path, b"", 0).await.unwrap();
    let limit = (17 * BOUND + 2 * 900_100) as f64;
    while metric(&server, "baton_slow_readers_closed").await < 1.0 {
        writer.send(&vec![set(&path, b"x"); 100]).await;
        for _ in 0..100 {
            assert_eq!(writer.reply().await.0.error(), ErrorCode::Ok);
        }
        assert!(metric(&server, "baton_outbound_bytes_max").await <= limit);
    }
    let mut slow = Wire::open(&to).await;
    slow.send(&vec![get("/big"); 30]).await;
    attacked(server, (closed, slow))
}

async fn many_who_do_not_read() -> Attacked {
    const IN_ALL: usize = 1 << 20;
    const ANSWER: usize = 500_000;
    let (server, to) = serve(|options| {
        options.max_outbound_bytes = IN_ALL / 16;
        options.max_outbound_bytes_in_all = IN_ALL;
    })
    .await;
    let mut good = Wire::open(&to).await;
    good.create("/big", &vec![7; ANSWER], 0).await.unwrap();
    let mut slow = Vec::new();
    while metric(&server, "baton_slow_readers_closed_in_all").await < 1.0 {
        let mut wire = Wire::open(&to).await;
        wire.send(&vec![get("/big"); 20]).await;
        slow.push(wire);
        assert_eq!(good.get("/big").await.unwrap().len(), ANSWER);
        let waits = metric(&server, "baton_outbound_bytes").await;
        assert!(waits <= (IN_ALL + 4 * ANSWER) as f64, "{waits}");
    }
    attacked(server, slow)
}

async fn bytes_of_one_answer() -> Attacked {
    let (server, to) = serve(|options| options.max_outbound_bytes = 10_000).await;
    let mut wire = Wire::open(&to).await;
    wire.create("/a", &[7; 1000], 0).await.unwrap();
    let read = MultiOp::GetData {
        path: "/a",
        watch: false,
    };
    let refused = wire.call(Request::MultiRead(vec![read; 200])).await;
    assert_eq!(refused, Err(ErrorCode::BadArguments));
    assert!(wire.exists("/a").await);
    attacked(server, ())
}

async fn operations_of_one_multi() -> Attacked {
    let (server, to) = serve(|_| {}).await;
    let mut wire = Wire::open(&to).await;
    let check = MultiOp::Check {
        path: "/",
        version: -1,
    };
    let refused = wire.call(Request::Multi(vec![check.clone(); 10_001])).await;
    assert_eq!(refused, Err(ErrorCode::BadArguments));
    let taken = wire.call(Request::Multi(vec![check; 10_000])).await;
    assert!(taken.is_ok(), "{taken:?}");
    attacked(server, wire)
}

async fn events_of_one_change() -> Attacked {
    const WATCHERS: usize = 25;
    let (server, to) = serve(|_| {}).await;
    let mut writer = Wire::open(&to).await;
    let paths = ["/a", "/b"];
    for path in paths {
        writer.create(path, b"", 0).await.unwrap();
    }
    let mut watchers = Vec::new();
    for path in paths.repeat(WATCHERS) {
        let mut watcher = Wire::open(&to).await;
        let watch = Request::AddWatch { path, mode: 0 };
        watcher.call(watch).await.unwrap();
        watchers.push(watcher);
    }
    let set = |path| MultiOp::SetData {
        path,
        data: None,
        version: -1,
    };
    let parts: Vec<_> = (0..10_000).map(|n| set(paths[n % 2])).collect();
    writer.call(Request::Multi(parts)).await.unwrap();
    for mut watcher in watchers {
        assert!(!watcher.rest().await.is_empty(), "events, and then the end");
    }
    attacked(server, writer)
}

async fn time_of_threads() -> Attacked {
    const LISTINGS: usize = 200;
    let (server, to) = serve(|_| {}).await;
    let mut good = Wire::open(&to).await;
    let paths: Vec<String> = (0..3000).map(|n| format!("/{n:050}")).collect();
    let parts = paths.iter().map(|path| match create(path, b"", 0) {
        Request::Create(create) => MultiOp::Create(create),
        _ => unreachable!(),
    });
    good.call(Request::Multi(parts.collect())).await.unwrap();
    let list = Request::GetChildren {
        path: "/",
        watch: false,
    };
    let mut hostile = Vec::new();
    for _ in 0..4 {
        let mut wire = Wire::open(&to).await;
        wire.send(&vec![list.clone(); LISTINGS]).await;
        hostile.push(tokio::spawn(async move {
            for _ in 0..LISTINGS {
                assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
            }
        }));
    }
    let mut pings = 0;
    while hostile.iter().any(|task| !task.is_finished()) {
        good.send(&[Request::Ping]).await;
        good.reply().await;
        pings += 1;
    }
    assert!(
        pings >= 10,
        "only {pings} pings between {LISTINGS} listings"
    );
    attacked(server, good)
}

async fn watches_of_one_connection() -> Attacked {
    const MOST: usize = 10;
    let (server, to) = serve(|options| {
        options.max_watches = MOST;
        options.max_watch_bytes = 5000;
    })
    .await;
    let mut good = Wire::open(&to).await;
    good.create("/a", b"", 0).await.unwrap();
    let mut wire = Wire::open(&to).await;
    let long = format!("/{}", "x".repeat(5000));
    let watch_missing = |path| Request::Exists { path, watch: true };
    assert_eq!(
        wire.call(watch_missing(&long)).await,
        Err(ErrorCode::BadArguments)
    );
    let paths: Vec<String> = (0..MOST).map(|n| format!("/{n}")).collect();
    for path in &paths {
        assert_eq!(wire.call(watch_missing(path)).await, Err(ErrorCode::NoNode));
    }
    let children = Request::GetChildren {
        path: "/a",
        watch: true,
    };
    let lasting = Request::AddWatch { path: "/", mode: 0 };
    for more in [watch_missing("/more"), watched("/a"), children, lasting] {
        assert_eq!(wire.call(more).await, Err(ErrorCode::BadArguments));
    }
    // One that is there already costs nothing, and what needs none is answered.
    assert_eq!(wire.call(watch_missing("/0")).await, Err(ErrorCode::NoNode));
    assert!(wire.exists("/a").await);
    good.call(watched("/a")).await.unwrap();
    good.send(&[set("/a", b"x")]).await;
    assert_eq!(good.event().await.path, "/a");
    assert_eq!(good.reply().await.0.error(), ErrorCode::Ok);
    wire.send(&[Request::SetWatches {
        relative_zxid: i64::MAX,
        data: vec![],
        exist: vec!["/more"],
        child: vec![],
    }])
    .await;
    assert_eq!(wire.reply().await.0.error(), ErrorCode::BadArguments);
    assert!(wire.is_closed().await, "it would wait for what never comes");
    attacked(server, good)
}

async fn watches_of_all_connections() -> Attacked {
    const MOST: usize = 12;
    let (server, to) = serve(|options| {
        options.max_watches = 5;
        options.max_watches_in_all = MOST;
    })
    .await;
    let mut hostile = Vec::new();
    let mut set_in_all = 0;
    for connection in 0..5 {
        let mut wire = Wire::open(&to).await;
        for n in 0..5 {
            let path = format!("/{connection}-{n}");
            let watch = Request::Exists {
                path: &path,
                watch: true,
            };
            set_in_all += usize::from(wire.call(watch).await == Err(ErrorCode::NoNode));
        }
        hostile.push(wire);
    }
    assert_eq!(set_in_all, MOST);
    assert!((metric(&server, "watch_count").await - MOST as f64).abs() < 0.1);
    // What goes with a connection is there for another.
    hostile.remove(0);
    let mut good = Wire::open(&to).await;
    let free = async {
        let watch = Request::Exists {
            path: "/good",
            watch: true,
        };
        while good.call(watch.clone()).await != Err(ErrorCode::NoNode) {}
    };
    tokio::time::timeout(PATIENCE, free).await.unwrap();
    attacked(server, (hostile, good))
}

async fn credentials() -> Attacked {
    let (server, to) = serve(|_| {}).await;
    let mut wire = Wire::open(&to).await;
    let mut proved = 0;
    let refused = loop {
        let auth = format!("{proved}-{}:password", "n".repeat(500));
        wire.send(&[Request::Auth(AuthPacket {
            kind: 0,
            scheme: "digest",
            auth: Some(auth.as_bytes()),
        })])
        .await;
        match wire.reply().await.0.error() {
            ErrorCode::Ok => proved += 1,
            code => break code,
        }
        assert!(proved < 10, "over 4 KiB");
    };
    assert_eq!(refused, ErrorCode::AuthFailed);
    assert!(wire.is_closed().await);
    attacked(server, ())
}

async fn acls_of_one_request() -> Attacked {
    let (server, to) = serve(|_| {}).await;
    let mut wire = Wire::open(&to).await;
    for n in 0..60 {
        wire.send(&[Request::Auth(AuthPacket {
            kind: 0,
            scheme: "digest",
            auth: Some(format!("user{n}:password").as_bytes()),
        })])
        .await;
        assert_eq!(wire.reply().await.0.error(), ErrorCode::Ok);
    }
    let auths = |entries| {
        let entry = |n: i32| Acl::new(Perms(n % 32), "auth", "");
        (0..entries).map(entry).collect::<Vec<_>>()
    };
    let create = |path: &'static str, acl| Create {
        op: CreateOp::Create,
        path,
        data: None,
        acl: Some(acl),
        flags: 0,
        ttl_ms: -1,
    };
    let refused = wire
        .call(Request::Create(create("/a", auths(20_000))))
        .await;
    assert_eq!(refused, Err(ErrorCode::InvalidAcl));
    let parts = ["/a", "/b", "/c", "/d", "/e"].map(|path| MultiOp::Create(create(path, auths(60))));
    let refused = wire.call(Request::Multi(parts.to_vec())).await.unwrap();
    let Response::Multi(results) = refused else {
        panic!("a multi answered {refused:?}");
    };
    assert_eq!(results, MultiResult::failure(5, 4, ErrorCode::InvalidAcl));
    // What is within the bounds goes on.
    let taken = wire.call(Request::Create(create("/a", auths(60)))).await;
    assert!(taken.is_ok(), "{taken:?}");
    attacked(server, wire)
}

async fn lines_of_the_log() -> Attacked {
    let (server, to) = serve(|_| {}).await;
    for _ in 0..30 {
        let mut wire = Wire::silent(&to).await;
        wire.send_bytes(&[0x7f; 8]).await;
        assert!(wire.is_closed().await);
    }
    let left_out = metric(&server, "baton_log_lines_left_out").await;
    assert!(left_out >= 10.0, "{left_out}");
    attacked(server, ())
}

/// A quota of this many znodes and bytes on `/a`, which exists.
async fn limit(wire: &mut Wire, znodes: usize, bytes: usize) {
    wire.create("/a", b"", 0).await.unwrap();
    let folder = "/zookeeper/quota/a";
    wire.create(folder, b"", 0).await.unwrap();
    let limits = format!("count=-1,bytes=-1=;countHardLimit={znodes};byteHardLimit={bytes}");
    let of = |name: &str| format!("{folder}/zookeeper_{name}");
    wire.create(&of("limits"), limits.as_bytes(), 0)
        .await
        .unwrap();
    wire.create(&of("stats"), b"count=1,bytes=0", 0)
        .await
        .unwrap();
}

async fn znodes() -> Attacked {
    let (server, to) = serve(|_| {}).await;
    let mut wire = Wire::open(&to).await;
    limit(&mut wire, 10, 1000).await;
    let acls = metric(&server, "acl_count").await;
    let mut made = 0;
    for n in 0..20 {
        let path = format!("/a/{n}");
        let own = Acl {
            perms: Perms::ALL,
            scheme: "ip".into(),
            id: format!("127.0.0.{n}").into(),
        };
        let create = Request::Create(Create {
            op: CreateOp::Create,
            path: &path,
            data: Some(&[7; 20]),
            acl: Some(vec![Acl::open_unsafe(), own]),
            flags: 0,
            ttl_ms: 0,
        });
        match wire.call(create).await {
            Ok(_) => made += 1,
            Err(code) => assert_eq!(code, ErrorCode::QuotaExceeded),
        }
    }
    assert_eq!(made, 9);
    let large = wire.call(set("/a/0", &[7; 1001])).await;
    assert_eq!(large, Err(ErrorCode::QuotaExceeded));
    // Of a create that was refused no ACL stays.
    assert!(metric(&server, "acl_count").await <= acls + f64::from(made));
    attacked(server, ())
}

async fn ephemerals() -> Attacked {
    let (server, to) = serve(|_| {}).await;
    let mut wire = Wire::open(&to).await;
    limit(&mut wire, 5, 1000).await;
    let mut last = Ok(());
    for n in 0..20 {
        let made = wire.create(&format!("/a/{n}"), b"", 1).await;
        last = made.map(|_| ());
    }
    assert_eq!(last, Err(ErrorCode::QuotaExceeded));
    assert!(metric(&server, "ephemerals_count").await <= 4.0);
    attacked(server, wire)
}

async fn room_on_the_disk() -> Attacked {
    let disk = FaultStorage::new();
    let builder = in_memory().http("127.0.0.1:0").with(|options| {
        options.snapshot_every_entries = 5;
    });
    let server = Server::start_with(builder.options().clone(), Arc::new(disk.clone()))
        .await
        .unwrap();
    let to = server.connect_string();
    let mut good = Wire::open(&to).await;
    good.create("/a", b"", 0).await.unwrap();
    while metric(&server, "snap_count").await < 1.0 {
        good.call(set("/a", b"x")).await.unwrap();
    }
    disk.set_capacity(Some(8 << 20));
    let mut hostile = Wire::open(&to).await;
    let mut bytes = Vec::new();
    for n in 0..40 {
        frame::write_request(&mut bytes, n, &create(&format!("/{n}"), &[7; 500_000], 0));
    }
    let fill = tokio::spawn(async move {
        // What the server does not read any more waits until the connection ends.
        let _ = hostile.try_send_bytes(&bytes).await;
        hostile
    });
    while metric(&server, "baton_disk_full").await < 1.0 {}
    assert!(good.exists("/a").await, "who reads goes on");
    attacked(server, fill)
}
