//! Shared parts of the tree's tests: a driver that sends requests as bytes, as the server does, and
//! keeps the changes that are reported to it.
#![allow(dead_code)]

pub mod model;
pub mod program;

use baton_proto::{Acl, Create, CreateMode, CreateOp, ErrorCode, Request, Response, Stat};
use baton_tree::{
    AssembleError, Assembly, Change, ChangeKind, CloseReason, Command, Effects, Executor,
    FormatLevel, Identity, Outcome, Piece, ReapCursor, Restore, RestoreError, Tree, Znode,
    digest_id,
};
use proptest::prelude::ProptestConfig;

/// This many cases; a failure is reported with its program, and becomes a test with a name.
pub fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A change as kept by the tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedChange {
    pub kind: ChangeKind,
    pub path: String,
    pub zxid: i64,
    pub acl: Vec<Acl<'static>>,
}

#[derive(Debug, Default)]
pub struct Collect(pub Vec<RecordedChange>);

impl Effects for Collect {
    fn event(&mut self, change: Change<'_>) {
        self.0.push(RecordedChange {
            kind: change.kind,
            path: change.path.to_owned(),
            zxid: change.zxid,
            acl: change.acl.entries().to_vec(),
        });
    }
}

pub const SESSION: i64 = 0x0100_0000_0000_0001;

pub fn password(session: i64) -> [u8; 16] {
    (u128::from(session as u64) * 3).to_le_bytes()
}

/// An empty tree of this level.
pub fn tree_at(level: FormatLevel) -> Tree {
    let mut tree = Tree::new();
    let raise = Command::SetLevel(level);
    let raised = tree.apply(0, 0, &Identity::anonymous(), raise, &mut ());
    assert_eq!(raised.result, Ok(Response::Empty));
    tree
}

/// A tree with one open session, unless made otherwise.
pub struct Driver {
    pub tree: Tree,
    pub time_ms: i64,
    pub identity: Identity,
    pub seen: Vec<RecordedChange>,
}

impl Driver {
    pub fn new() -> Self {
        Self::over(Tree::new())
    }

    pub fn over(tree: Tree) -> Self {
        let mut driver = Self {
            tree,
            time_ms: 1_000,
            identity: Identity::from_ip("127.0.0.1".parse().unwrap()),
            seen: Vec::new(),
        };
        driver.open(SESSION);
        driver
    }

    pub fn apply(&mut self, session: i64, command: Command<'_>) -> Outcome {
        let mut collect = Collect::default();
        let outcome = self
            .tree
            .apply(self.time_ms, session, &self.identity, command, &mut collect);
        self.seen = collect.0;
        outcome
    }

    pub fn open(&mut self, session_id: i64) {
        let command = Command::OpenSession {
            session_id,
            password: password(session_id),
            timeout_ms: 10_000,
        };
        self.apply(session_id, command).result.unwrap();
    }

    pub fn close(&mut self, session_id: i64, reason: CloseReason) -> Result<Response, ErrorCode> {
        let command = Command::CloseSession { session_id, reason };
        self.apply(session_id, command).result
    }

    pub fn send_as(&mut self, session: i64, request: &Request<'_>) -> Outcome {
        let mut body = Vec::new();
        request.encode(&mut body);
        let op = request.op();
        self.apply(session, Command::Write { op, body: &body })
    }

    pub fn send(&mut self, request: &Request<'_>) -> Result<Response, ErrorCode> {
        self.send_as(SESSION, request).result
    }

    pub fn create(&mut self, path: &str, mode: CreateMode) -> Result<(String, Stat), ErrorCode> {
        self.create_with(path, Some(b"x"), vec![Acl::open_unsafe()], mode)
    }

    pub fn create_with(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        acl: Vec<Acl<'_>>,
        mode: CreateMode,
    ) -> Result<(String, Stat), ErrorCode> {
        let create = Create::new(path, data, acl, mode);
        match self.send(&Request::Create(create))? {
            Response::PathStat(path, stat) => Ok((path, stat)),
            other => panic!("a create answered {other:?}"),
        }
    }

    pub fn set(&mut self, path: &str, data: &[u8], version: i32) -> Result<Stat, ErrorCode> {
        let data = Some(data);
        match self.send(&Request::SetData {
            path,
            data,
            version,
        })? {
            Response::Stat(stat) => Ok(stat),
            other => panic!("a set answered {other:?}"),
        }
    }

    pub fn delete(&mut self, path: &str, version: i32) -> Result<(), ErrorCode> {
        self.send(&Request::Delete { path, version }).map(|_| ())
    }

    pub fn stat(&self, path: &str) -> Stat {
        self.tree.exists(path, &self.identity).unwrap()
    }

    pub fn children(&self, path: &str) -> Vec<String> {
        let (names, _) = self.tree.get_children(path, &self.identity).unwrap();
        names.map(str::to_owned).collect()
    }
}

pub fn plain(op: CreateOp, path: &str, flags: i32, ttl_ms: i64) -> Create<'_> {
    Create {
        op,
        path,
        data: Some(b""),
        acl: Some(vec![Acl::open_unsafe()]),
        flags,
        ttl_ms,
    }
}

/// A persistent znode without data, open to anyone, created before the first write.
pub const fn znode(path: &str) -> Znode<'_> {
    Znode {
        path,
        data: None,
        acl: &[],
        czxid: 0,
        mzxid: 0,
        pzxid: 0,
        ctime: 0,
        mtime: 0,
        version: 0,
        aversion: 0,
        creates: 0,
        owner: 0,
    }
}

/// A tree before its first write that has these znodes.
pub fn assembled(znodes: &[Znode<'_>]) -> Result<Tree, AssembleError> {
    let mut assembly = Assembly::new();
    for znode in znodes {
        assembly.znode(znode)?;
    }
    assembly.finish(0)
}

/// Adds what the credentials `user:password` prove, and returns their id.
pub fn add_digest(identity: &mut Identity, user_and_password: &[u8]) -> String {
    let id = digest_id(user_and_password);
    identity.add("digest", id.clone());
    id
}

/// The rest of a snapshot that has begun.
pub fn drain(tree: &mut Tree, max_bytes: usize) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| tree.snapshot_slice(max_bytes)).collect()
}

/// Splits work in three, and does the last piece first.
#[derive(Debug)]
struct Backwards;

impl Executor for Backwards {
    fn width(&self) -> usize {
        3
    }

    fn run(&self, pieces: Vec<Piece<'_>>) {
        assert!(pieces.len() <= 3);
        pieces.into_iter().rev().for_each(|piece| piece());
    }
}

/// The tree of a snapshot. It does not depend on who does the work.
pub fn restore(chunks: &[Vec<u8>]) -> Result<Tree, RestoreError> {
    let read = || -> Result<Restore, RestoreError> {
        let mut restore = Restore::new();
        chunks.iter().try_for_each(|chunk| restore.chunk(chunk))?;
        Ok(restore)
    };
    let split = read()?.finish_on(&Backwards);
    let alone = read()?.finish();
    match (&split, &alone) {
        (Ok(split), Ok(alone)) => assert_eq!(dump(split), dump(alone)),
        (split, alone) => assert_eq!(split.as_ref().err(), alone.as_ref().err()),
    }
    split
}

/// Everything that a client could ever see of a tree, and the order of children.
pub fn dump(tree: &Tree) -> Vec<String> {
    let mut all = Identity::anonymous();
    all.add("super", "");
    let mut lines = vec![format!("zxid {} digest {:x}", tree.zxid(), tree.digest())];
    for session in tree.sessions() {
        let paths = tree.ephemerals(session.id, "");
        assert_eq!(paths.len(), session.ephemerals);
        lines.push(format!("{session:?} {paths:?}"));
    }
    let mut pending = vec!["/".to_owned()];
    while let Some(path) = pending.pop() {
        let (data, stat) = tree.get_data(&path, &all).unwrap();
        let (acl, _) = tree.get_acl(&path, &all).unwrap();
        let (names, _) = tree.get_children(&path, &all).unwrap();
        let names: Vec<&str> = names.collect();
        assert_eq!(names.len(), stat.num_children as usize, "{path}");
        let below = tree.count_descendants(&path, &all);
        lines.push(format!(
            "{path} {data:?} {stat:?} {acl:?} {names:?} {below:?}"
        ));
        pending.extend(
            names
                .iter()
                .map(|name| baton_proto::path::join(&path, name)),
        );
    }
    // Their order is each replica's own: only the leader asks.
    let mut due = tree.reap_candidates(i64::MAX, 1, &mut ReapCursor::default(), usize::MAX);
    due.sort_by(|one, other| one.path.cmp(&other.path));
    lines.push(format!("{due:?}"));
    lines.push(format!(
        "{} znodes, {} ephemerals, {} bytes",
        tree.node_count(),
        tree.ephemeral_count(),
        tree.approximate_bytes()
    ));
    lines
}
