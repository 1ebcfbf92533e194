//! Slices of long reads: what each costs, and that all together are the answer.

use baton_proto::{
    Acl, Create, CreateMode, Decoder, Limits, OpCode, Perms, Response, WatcherEvent, xid,
};
use baton_tree::{AuthId, Command};
use bytes::Bytes;

use super::*;
use crate::connections::conn::Attached;
use crate::connections::conn::tests::conn;
use crate::connections::touch::Touch;
use crate::options::Options;
use crate::state::tests::state;

const SESSION: i64 = 7;
/// Names of a client, and entries of an ACL: the most of both.
const NAMES: usize = 64;
const ENTRIES: usize = 4096;

struct Stage {
    state: Arc<ServerState>,
    conn: Arc<Conn>,
    tree: Tree,
    identity: Identity,
}

impl Stage {
    fn new() -> Self {
        let ids = (0..NAMES).map(|n| AuthId {
            scheme: "digest".to_owned(),
            id: format!("user{n}:x"),
        });
        let mut stage = Self {
            state: state(Options::default()),
            conn: conn(1),
            tree: Tree::new(),
            identity: ids.collect(),
        };
        stage.conn.attach(Attached {
            session: SESSION,
            timeout_ms: 4000,
            touch: Touch::new(0),
            nonce: None,
            last_sequence: 0.into(),
            is_read_only: false,
            stored_identity: Default::default(),
        });
        stage.apply(Command::OpenSession {
            session_id: SESSION,
            password: [0; 16],
            timeout_ms: 4000,
        });
        stage
    }

    fn apply(&mut self, command: Command<'_>) {
        let applied = self
            .tree
            .apply(0, SESSION, &Identity::anonymous(), command, &mut ());
        applied.result.unwrap();
    }

    fn create(&mut self, path: &str, data: &[u8], mode: CreateMode, acl: Vec<Acl<'static>>) {
        let create = Create::new(path, Some(data), acl, mode);
        let mut body = Vec::new();
        Request::Create(create).encode(&mut body);
        self.apply(Command::Write {
            op: OpCode::Create2,
            body: &body,
        });
    }

    fn plain(&mut self, path: &str, mode: CreateMode) {
        self.create(path, b"data", mode, vec![Acl::open_unsafe()]);
    }

    /// All slices: their output, the most steps of one, how many there were, and how it ended.
    fn run(&self, request: &Request<'_>) -> (Vec<u8>, usize, usize, SliceOutcome) {
        let mut read = SlicedRead::new(9, request);
        let source = SliceSource {
            tree: &self.tree,
            state: &self.state,
            conn: &self.conn,
            identity: &self.identity,
        };
        let mut watches = WatchAccess::Lock(&self.state.watches);
        let (mut out, mut most, mut slices) = (Vec::new(), 0, 0);
        loop {
            let (steps, progress) = read.slice(&source, &mut watches, &mut out);
            most = most.max(steps);
            slices += 1;
            if progress != SliceOutcome::More {
                return (out, most, slices, progress);
            }
        }
    }
}

/// The frames in the output.
fn frames(out: &[u8]) -> Vec<(ReplyHeader, Bytes)> {
    let mut rest = out;
    let mut frames = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk() {
        let (frame, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        let header = ReplyHeader::decode(&mut Decoder::new(frame, &Limits::default())).unwrap();
        let body = Bytes::copy_from_slice(&frame[ReplyHeader::BYTES..]);
        frames.push((header, body));
        rest = after;
    }
    frames
}

fn reply(op: OpCode, out: &[u8]) -> Response {
    let frames = frames(out);
    let (header, body) = frames.last().unwrap();
    assert_eq!((header.xid, header.err), (9, 0));
    // No answer is too long for this client.
    Response::decode(op, body, &Limits::with_max_frame_bytes(1 << 30)).unwrap()
}

fn data(path: &str) -> MultiOp<'_> {
    MultiOp::GetData { path, watch: false }
}

fn children(path: &str) -> MultiOp<'_> {
    MultiOp::GetChildren { path, watch: false }
}

#[test]
fn a_multi_read_of_costly_parts_is_answered_in_slices_of_bounded_steps() {
    let mut stage = Stage::new();
    let entry = |n| Acl::new(Perms::READ, "digest", format!("other{n}:x"));
    let acl = (0..ENTRIES).map(entry).collect();
    stage.create("/closed", b"x", CreateMode::Persistent, acl);
    stage.plain("/open", CreateMode::Persistent);
    let (parts, each) = (2000, NAMES * 14);
    let mut reads = vec![data("/closed"); parts];
    reads.extend([data("/open"), children("/"), data("/missing")]);
    let (out, most, slices, progress) = stage.run(&Request::MultiRead(reads));
    assert_eq!(progress, SliceOutcome::Whole);
    assert!(most <= STEPS + each + 2, "{most} steps in one slice");
    assert!(slices >= parts * NAMES / STEPS, "{slices} slices");
    let Response::Multi(results) = reply(OpCode::MultiRead, &out) else {
        panic!("a multiRead answers for each part");
    };
    assert_eq!(results.len(), parts + 3);
    let refused = MultiResult::Error(ErrorCode::NoAuth);
    assert!(results[..parts].iter().all(|result| *result == refused));
    assert!(
        matches!(&results[parts], MultiResult::Data { data: Some(data), .. } if data == "data")
    );
    let names = ["zookeeper", "closed", "open"].map(str::to_owned);
    assert_eq!(results[parts + 1], MultiResult::Children(names.to_vec()));
    assert_eq!(results[parts + 2], MultiResult::Error(ErrorCode::NoNode));
}

#[test]
fn the_names_of_many_children_are_spread_over_slices() {
    const MANY: usize = 9000;
    let mut stage = Stage::new();
    for n in 0..MANY {
        stage.plain(&format!("/{n}"), CreateMode::Persistent);
    }
    let reads = vec![children("/"), data("/7"), children("/")];
    let (out, most, slices, _) = stage.run(&Request::MultiRead(reads));
    assert!(most <= STEPS + 10, "{most} steps in one slice");
    assert!(slices >= 2 * MANY / STEPS, "{slices} slices");
    let Response::Multi(results) = reply(OpCode::MultiRead, &out) else {
        panic!("a multiRead answers for each part");
    };
    for part in [0, 2] {
        let MultiResult::Children(names) = &results[part] else {
            panic!("{part} is a listing");
        };
        assert_eq!((names.len(), names[MANY].as_str()), (MANY + 1, "8999"));
    }
}

#[test]
fn an_answer_over_the_bound_is_refused_wherever_that_shows() {
    let mut stage = Stage::new();
    let max = stage.state.outbound.too_slow_bytes();
    let open = || vec![Acl::open_unsafe()];
    stage.create("/a", &vec![1; max / 4], CreateMode::Persistent, open());
    let within = stage.run(&Request::MultiRead(vec![data("/a"); 4]));
    assert!(matches!(
        reply(OpCode::MultiRead, &within.0),
        Response::Multi(_)
    ));
    let (out, ..) = stage.run(&Request::MultiRead(vec![data("/a"); 5]));
    let [(header, body)] = &frames(&out)[..] else {
        panic!("one reply");
    };
    assert_eq!((header.xid, header.error()), (9, ErrorCode::BadArguments));
    assert!(body.is_empty());
    // Paths are as long as all names above make them.
    let deep = format!("/{}", "n".repeat(200_000));
    stage.plain(&deep, CreateMode::Persistent);
    for n in 0..max / 200_000 + 1 {
        stage.plain(&format!("{deep}/{n}"), CreateMode::Ephemeral);
    }
    let all = Request::GetEphemerals { prefix: "/" };
    let (out, most, ..) = stage.run(&all);
    assert_eq!(frames(&out)[0].0.error(), ErrorCode::BadArguments);
    assert!(most <= STEPS + 200_000 / BYTES_PER_STEP + 1, "{most}");
    let refused = stage.state.stats.large_answers_refused.load(Relaxed);
    assert_eq!(refused, 2);
}

#[test]
fn the_ephemerals_of_a_session_are_listed_in_slices_in_the_order_of_their_creation() {
    const ALL: usize = 10_000;
    let mut stage = Stage::new();
    for n in 0..ALL {
        let place = if n % 3 == 0 { "own" } else { "other" };
        stage.plain(&format!("/{place}-{n}"), CreateMode::Ephemeral);
    }
    let (out, most, slices, _) = stage.run(&Request::GetEphemerals { prefix: "/own" });
    assert!(most <= STEPS + 1, "{most} steps in one slice");
    assert!(slices > ALL / STEPS, "{slices} slices");
    let paths: Vec<String> = (0..ALL)
        .filter(|n| n % 3 == 0)
        .map(|n| format!("/own-{n}"))
        .collect();
    assert_eq!(reply(OpCode::GetEphemerals, &out), Response::Strings(paths));
    let (out, ..) = stage.run(&Request::GetEphemerals { prefix: "/none" });
    let nothing = Response::Strings(Vec::new());
    assert_eq!(reply(OpCode::GetEphemerals, &out), nothing);
}

#[test]
fn watches_are_set_again_in_slices_with_the_events_that_are_due() {
    const ALL: usize = 3 * STEPS;
    let mut stage = Stage::new();
    stage.plain("/there", CreateMode::Persistent);
    let paths: Vec<String> = (0..ALL).map(|n| format!("/missing-{n}")).collect();
    let mut exist: Vec<&str> = paths.iter().map(String::as_str).collect();
    exist.push("/there");
    let request = Request::SetWatches2 {
        relative_zxid: 0,
        data: vec!["/there", "/gone"],
        exist,
        child: vec!["/"],
        persistent: vec!["/there"],
        persistent_recursive: vec!["/"],
    };
    let (out, most, slices, progress) = stage.run(&request);
    assert_eq!(progress, SliceOutcome::Whole);
    assert!(most <= STEPS + 2, "{most} steps in one slice");
    assert!(slices > ALL / STEPS, "{slices} slices");
    let frames = frames(&out);
    let (header, _) = frames.last().unwrap();
    assert_eq!((header.xid, header.err), (9, 0));
    let events = frames[..frames.len() - 1].iter().map(|(header, body)| {
        assert_eq!(header.xid, xid::NOTIFICATION);
        let event = WatcherEvent::decode(&mut Decoder::new(body, &Limits::default())).unwrap();
        (event.kind, event.path)
    });
    let expected = [
        (EventKind::NodeDataChanged, "/there"),
        (EventKind::NodeDeleted, "/gone"),
        (EventKind::NodeCreated, "/there"),
        (EventKind::NodeChildrenChanged, "/"),
    ];
    let expected: Vec<_> = expected.map(|(kind, path)| (kind, path.to_owned())).into();
    assert_eq!(events.collect::<Vec<_>>(), expected);
    let watches = stage.state.watches.lock();
    assert_eq!(watches.counts().watches, ALL + 2);
    assert!(watches.has(stage.conn.id, "/missing-0", Kinds::DATA));
    assert!(watches.has(stage.conn.id, "/", Kinds::RECURSIVE));
}

#[test]
fn a_connection_with_too_many_watches_to_set_again_is_closed() {
    let options = Options {
        max_watches: 5,
        ..Options::default()
    };
    let stage = Stage {
        state: state(options),
        ..Stage::new()
    };
    let request = Request::SetWatches {
        relative_zxid: 0,
        data: vec![],
        exist: vec!["/a", "/b", "/c", "/d", "/e", "/f"],
        child: vec![],
    };
    let (out, _, _, progress) = stage.run(&request);
    assert_eq!(progress, SliceOutcome::Close);
    assert_eq!(frames(&out)[0].0.error(), ErrorCode::BadArguments);
}
