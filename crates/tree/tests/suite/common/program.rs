//! Random programs: commands over few paths, sessions and identities, so that they meet.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use baton_proto::{Acl, Create, CreateOp, MultiOp, Perms, Request};
use baton_tree::{BatchItem, CloseReason, Command, FormatLevel, Identity, Stamp, Tree, digest_id};
use proptest::collection::vec;
use proptest::prelude::*;

use super::model::{Model, Principal};
use super::{Collect, RecordedChange, add_digest, password};

#[derive(Debug, Clone)]
pub enum Write {
    Create {
        op: u8,
        path: String,
        data: Option<Vec<u8>>,
        acl: Option<Vec<Acl<'static>>>,
        flags: i32,
    },
    Delete(String, i32),
    Set(String, Option<Vec<u8>>, i32),
    Check(String, i32),
}

#[derive(Debug, Clone)]
pub enum Step {
    Open(i64),
    Reattach(i64, bool),
    Close(i64),
    Write(Write),
    SetAcl(String, Option<Vec<Acl<'static>>>, i32),
    Multi(Vec<Write>),
    Reap(String, bool),
}

/// A step with its session and time.
#[derive(Debug, Clone)]
pub struct ProgramLine {
    pub session: i64,
    pub identity: u8,
    pub pause_ms: i64,
    pub step: Step,
}

pub fn identity(number: u8) -> Identity {
    let mut identity = Identity::from_ip("10.0.0.1".parse().unwrap());
    match number {
        0 => {}
        1 => drop(add_digest(&mut identity, b"ann:a")),
        2 => drop(add_digest(&mut identity, b"bob:b")),
        _ => identity.add("super", ""),
    }
    identity
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        20 => prop::sample::select(vec![
            "/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a", "/a/-", "/b/a0000000000", "/b/a0000000001", "/a/0000000001",
        ]),
        2 => prop::sample::select(vec!["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/zookeeper/x"]),
        3 => prop::sample::select(vec!["", "a", "a/b", "/a/", "//a", "/a//b", "/a/.", "/a/../b", "/\u{1}"]),
    ]
    .prop_map(str::to_owned)
}

fn data() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![1 => Just(None), 6 => vec(any::<u8>(), 0..20).prop_map(Some)]
}

fn entry() -> impl Strategy<Value = Acl<'static>> {
    let who = prop_oneof![
        4 => Just(("world", "anyone".to_owned())),
        2 => Just(("auth", String::new())),
        2 => Just(("digest", digest_id(b"ann:a"))),
        1 => Just(("digest", digest_id(b"bob:b"))),
        1 => Just(("nonsense", String::new())),
    ];
    let perms = prop_oneof![3 => Just(31), 2 => 0..32];
    (perms, who).prop_map(|(perms, (scheme, id))| Acl::new(Perms(perms), scheme, id))
}

fn acl() -> impl Strategy<Value = Option<Vec<Acl<'static>>>> {
    prop_oneof![
        12 => Just(Some(vec![Acl::open_unsafe()])),
        4 => vec(entry(), 0..3).prop_map(Some),
        1 => Just(None),
    ]
}

fn version() -> impl Strategy<Value = i32> {
    prop_oneof![3 => Just(-1), 2 => 0..3]
}

fn write() -> impl Strategy<Value = Write> {
    let create =
        (0..8_u8, path(), data(), acl(), 0..8_i32).prop_map(|(op, path, data, acl, flags)| {
            Write::Create {
                op,
                path,
                data,
                acl,
                flags,
            }
        });
    prop_oneof![
        6 => create,
        4 => (path(), version()).prop_map(|(path, version)| Write::Delete(path, version)),
        3 => (path(), data(), version()).prop_map(|(path, data, version)| Write::Set(path, data, version)),
        1 => (path(), version()).prop_map(|(path, version)| Write::Check(path, version)),
    ]
}

/// Quotas as ZooKeeper's command line sets, changes and deletes them; none is above another.
fn quota() -> impl Strategy<Value = Step> {
    let text = (
        any::<bool>(),
        prop_oneof![1 => Just(-1), 3 => 1..6_i64],
        prop_oneof![1 => Just(-1), 3 => 0..60_i64],
    )
        .prop_map(|(is_hard, count, bytes)| {
            if is_hard {
                format!("count=-1,bytes=-1=;byteHardLimit={bytes};countHardLimit={count}")
            } else {
                format!("count={count},bytes={bytes}")
            }
        });
    let of = prop::sample::select(vec!["/a", "/b"]);
    (of, text, 0..6_u8).prop_map(|(of, text, what)| {
        let folder = format!("/zookeeper/quota{of}");
        let (limits, stats) = (
            format!("{folder}/zookeeper_limits"),
            format!("{folder}/zookeeper_stats"),
        );
        let create = |path: String, data: &str| Write::Create {
            op: 0,
            path,
            data: Some(data.as_bytes().to_vec()),
            acl: Some(vec![Acl::open_unsafe()]),
            flags: 0,
        };
        match what {
            0..4 => Step::Multi(vec![
                create(folder, ""),
                create(limits, &text),
                create(stats, "count=0,bytes=0"),
            ]),
            4 => Step::Write(Write::Set(limits, Some(text.into_bytes()), -1)),
            _ => Step::Multi(
                [stats, limits, folder]
                    .map(|path| Write::Delete(path, -1))
                    .to_vec(),
            ),
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => quota(),
        3 => (1..4_i64).prop_map(Step::Open),
        1 => (1..4_i64, any::<bool>()).prop_map(|(id, right)| Step::Reattach(id, right)),
        1 => (1..4_i64).prop_map(Step::Close),
        14 => write().prop_map(Step::Write),
        1 => (path(), acl(), version()).prop_map(|(path, acl, version)| Step::SetAcl(path, acl, version)),
        5 => vec(write(), 0..7).prop_map(Step::Multi),
        1 => (path(), any::<bool>()).prop_map(|(path, right)| Step::Reap(path, right)),
    ]
}

pub fn program(len: usize) -> impl Strategy<Value = Vec<ProgramLine>> {
    let line =
        (1..4_i64, 0..4_u8, 0..40_i64, step()).prop_map(|(session, identity, pause_ms, step)| {
            ProgramLine {
                session,
                identity,
                pause_ms,
                step,
            }
        });
    vec(line, 0..len).prop_map(|mut lines| {
        let opening = (1..3).map(|session| ProgramLine {
            session,
            identity: 0,
            pause_ms: 0,
            step: Step::Open(session),
        });
        lines.splice(0..0, opening);
        lines
    })
}

impl Write {
    fn as_op(&self) -> MultiOp<'_> {
        match self {
            Self::Create {
                op,
                path,
                data,
                acl,
                flags,
            } => {
                let op = match op {
                    0..3 => CreateOp::Create,
                    3..6 => CreateOp::Create2,
                    6 => CreateOp::Container,
                    _ => CreateOp::Ttl,
                };
                MultiOp::Create(Create {
                    op,
                    path,
                    data: data.as_deref(),
                    acl: acl.clone(),
                    flags: *flags,
                    ttl_ms: if op == CreateOp::Ttl { 30 } else { -1 },
                })
            }
            Self::Delete(path, version) => MultiOp::Delete {
                path,
                version: *version,
            },
            Self::Set(path, data, version) => MultiOp::SetData {
                path,
                data: data.as_deref(),
                version: *version,
            },
            Self::Check(path, version) => MultiOp::Check {
                path,
                version: *version,
            },
        }
    }

    fn as_request(&self) -> Request<'_> {
        match self.as_op() {
            MultiOp::Create(create) => Request::Create(create),
            MultiOp::Delete { path, version } => Request::Delete { path, version },
            MultiOp::SetData {
                path,
                data,
                version,
            } => Request::SetData {
                path,
                data,
                version,
            },
            MultiOp::Check { path, version } => Request::Check { path, version },
            other => unreachable!("{other:?}"),
        }
    }
}

impl Step {
    fn request(&self) -> Option<Request<'_>> {
        match self {
            Self::Write(write) => Some(write.as_request()),
            Self::SetAcl(path, acl, version) => Some(Request::SetAcl {
                path,
                acl: acl.clone(),
                version: *version,
            }),
            Self::Multi(writes) => Some(Request::Multi(writes.iter().map(Write::as_op).collect())),
            _ => None,
        }
    }
}

pub fn level() -> impl Strategy<Value = FormatLevel> {
    prop::sample::select(vec![
        FormatLevel::Initial,
        FormatLevel::Attachments,
        FormatLevel::Members,
        FormatLevel::BoundSessions,
        FormatLevel::BoundedCommands,
        FormatLevel::SessionIdentities,
        FormatLevel::BoundedMultis,
        FormatLevel::UniqueSessionIds,
    ])
}

/// Runs programs on the tree. Every write has the stamp that its session's connection would give.
pub struct Machine {
    pub tree: Tree,
    pub time_ms: i64,
    /// The present attachment of each session: nonce and last sequence.
    attached: BTreeMap<i64, (u64, u64)>,
    last_nonce: u64,
    /// The identity that each session stores for its present attachment.
    stored: BTreeMap<i64, u8>,
}

impl Machine {
    pub fn new(level: FormatLevel) -> Self {
        Self {
            tree: super::tree_at(level),
            time_ms: 0,
            attached: BTreeMap::new(),
            last_nonce: 0,
            stored: BTreeMap::new(),
        }
    }

    fn stamp(&mut self, line: &ProgramLine) -> Option<Stamp> {
        let (nonce, sequence) = match line.step {
            Step::Open(_) | Step::Reattach(..) => {
                self.last_nonce += 1;
                (self.last_nonce, 0)
            }
            Step::Close(_) | Step::Reap(..) => return None,
            _ => {
                let attached = self.attached.get_mut(&line.session)?;
                attached.1 += 1;
                *attached
            }
        };
        let nonce = NonZeroU64::new(nonce).unwrap();
        Some(Stamp { nonce, sequence })
    }

    pub fn take(&mut self, line: &ProgramLine) -> (baton_tree::Outcome, Vec<RecordedChange>) {
        self.time_ms += line.pause_ms;
        let stamp = self.stamp(line);
        let mut body = Vec::new();
        let command = match &line.step {
            Step::Open(id) => Command::OpenSession {
                session_id: *id,
                password: password(*id),
                timeout_ms: 1000,
            },
            Step::Reattach(id, right) => Command::ReattachSession {
                session_id: *id,
                password: password(if *right { *id } else { 77 }),
                timeout_ms: 2000,
            },
            Step::Close(id) => Command::CloseSession {
                session_id: *id,
                reason: CloseReason::Expired,
            },
            Step::Reap(path, right) => Command::DeleteContainer {
                path,
                czxid: self.czxid(path) - i64::from(!*right),
            },
            step => {
                let request = step.request().unwrap();
                request.encode(&mut body);
                Command::Write {
                    op: request.op(),
                    body: &body,
                }
            }
        };
        let mut collect = Collect::default();
        let who = identity(line.identity);
        // From that level on, each write refers to what its session stores.
        let may_store = self.tree.level() >= FormatLevel::SessionIdentities;
        let is_write = matches!(command, Command::Write { .. }) && stamp.is_some();
        let refers = may_store && is_write;
        let is_stored = refers && self.stored.get(&line.session) == Some(&line.identity);
        if refers {
            self.stored.insert(line.session, line.identity);
        }
        let item = BatchItem {
            session: line.session,
            cxid: 0,
            identity: (!is_stored).then_some(0),
            stores_identity: refers && !is_stored,
            stamp,
            command,
        };
        let listed = match is_stored {
            true => Identity::anonymous(),
            false => who,
        };
        let outcome = self
            .tree
            .apply_item(self.time_ms, &item, &listed, &mut collect)
            .unwrap();
        if let (Step::Open(id) | Step::Reattach(id, _), true) = (&line.step, outcome.result.is_ok())
        {
            self.attached.insert(*id, (self.last_nonce, 0));
            self.stored.remove(id);
        }
        (outcome, collect.0)
    }

    fn czxid(&self, path: &str) -> i64 {
        self.tree.peek(path).map_or(0, |(stat, _)| stat.czxid)
    }
}

/// Runs programs on the model.
pub struct Reference {
    pub model: Model,
    pub time_ms: i64,
}

impl Reference {
    pub fn new(level: FormatLevel) -> Self {
        Self {
            model: Model::new(level >= FormatLevel::UniqueSessionIds),
            time_ms: 0,
        }
    }

    pub fn take(&mut self, line: &ProgramLine) -> (baton_tree::Outcome, Vec<RecordedChange>) {
        self.time_ms += line.pause_ms;
        let identity = identity(line.identity);
        let who = Principal {
            time_ms: self.time_ms,
            session: line.session,
            identity: &identity,
        };
        let model = &mut self.model;
        let result = match &line.step {
            Step::Open(id) => model.open(*id, password(*id), 1000),
            Step::Reattach(id, right) => {
                model.reattach(*id, password(if *right { *id } else { 77 }), 2000)
            }
            Step::Close(id) => model.close(*id),
            Step::Reap(path, right) => {
                let czxid = model.czxid(path) - i64::from(!*right);
                model.reap(&who, path, czxid)
            }
            step => model.write(&who, &step.request().unwrap()),
        };
        let seen = std::mem::take(&mut model.seen);
        let zxid = model.zxid;
        (baton_tree::Outcome { zxid, result }, seen)
    }
}
