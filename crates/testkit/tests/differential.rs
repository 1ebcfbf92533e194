//! The same requests to Baton and to Apache ZooKeeper: every reply, every error and every watch event must agree.
//!
//! Random operations from fixed seeds, alone and pipelined, on few paths so that they meet, by two sessions. What may differ is made
//! equal first: session ids, times, the order of unordered lists. zxids may not differ: both servers count
//! every write, failed or not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use std::time::Duration;

use baton_proto::{
    Acl, AddWatchMode, AuthPacket, Create, CreateOp, Limits, MultiOp, MultiResult, OpCode, Perms,
    Request, Response, Stat,
};
use baton_testkit::{RawClient, Target, TestServer, zookeeper_is_installed};

const SESSION: Duration = Duration::from_secs(30);
const STEPS: usize = 800;

/// xorshift64*.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}

const PATHS: [&str; 12] = [
    "/a",
    "/b",
    "/a/x",
    "/a/y",
    "/b/x",
    "/a/x/deep",
    "/a/s-",
    "/b/s-",
    "/",
    "/nobody",
    "/nobody/child",
    "/a/x/deep/er",
];
const ILLEGAL: [&str; 8] = [
    "",
    "a",
    "//",
    "/a/",
    "/a//b",
    "/a/./b",
    "/a/\u{1}",
    "/\u{1f512}",
];

/// Paths that get persistent watches, of one mode each, and no others: a connection of 3.8.0 keeps only the last
/// watch it set on a path, later versions keep each, as Baton does.
const PERSISTENT: [(&str, AddWatchMode); 2] = [
    ("/b", AddWatchMode::PersistentRecursive),
    ("/a/x", AddWatchMode::Persistent),
];

fn has_no_persistent(path: &str) -> bool {
    !PERSISTENT.iter().any(|(watched, _)| *watched == path)
}

/// Every request of a run is derived from these numbers, so both servers get the same.
fn with_request(random: &mut Random, base: i64, run: &mut dyn FnMut(&Request<'_>)) {
    // Where ZooKeeper does not check whether a path is legal, that is not compared.
    let op = random.below(27);
    let checked = matches!(op, 0..4 | 6 | 7);
    let path = if checked && random.one_in(25) {
        random.pick(&ILLEGAL)
    } else {
        random.pick(&PATHS)
    };
    let watch = random.one_in(3) && has_no_persistent(path);
    let version = random.pick(&[-1, -1, -1, 0, 1, 2]);
    let data = random.pick(&[None, Some(&b""[..]), Some(b"one"), Some(b"a longer one")]);
    let request = match op {
        0..4 => Request::Create(create(random, path, data)),
        4 | 5 => Request::Delete { path, version },
        6 | 7 => Request::SetData {
            path,
            data,
            version,
        },
        8 | 9 => {
            let path = random.pick(&PATHS[..9]);
            Request::Exists {
                path,
                watch: random.one_in(3) && has_no_persistent(path),
            }
        }
        10 | 11 => Request::GetData { path, watch },
        12 => Request::GetChildren { path, watch },
        13 => Request::GetChildren2 { path, watch },
        14 => Request::GetAcl { path },
        15 => Request::SetAcl {
            path,
            acl: acl(random, path),
            version: random.pick(&[-1, 0, 1]),
        },
        16 => {
            let count = random.below(5);
            Request::Multi((0..count).map(|_| write(random)).collect())
        }
        17 => {
            let count = random.below(4);
            Request::MultiRead((0..count).map(|_| read(random)).collect())
        }
        18 => Request::Sync { path: "/" },
        19 => Request::GetEphemerals {
            prefix: random.pick(&["/", "/a", "/nobody"]),
        },
        20 => {
            let (path, mode) = random.pick(&PERSISTENT);
            Request::AddWatch {
                path,
                mode: mode.code(),
            }
        }
        // 3.8.0 takes another connection's watch, and a persistent one, for the one that is asked after.
        21 => Request::CheckWatches { path, kind: 9 },
        22 => Request::RemoveWatches {
            path: random.pick(&PATHS[3..8]),
            kind: random.pick(&[1, 2, 3, 9]),
        },
        23 => Request::WhoAmI,
        24 => {
            let scheme = random.pick(&["digest", "ip"]);
            Request::Auth(AuthPacket {
                kind: 0,
                scheme,
                auth: b"someone:secret",
            })
        }
        25 => {
            let relative_zxid = base + random.below(400) as i64;
            let data = vec![random.pick(&PATHS[3..5])];
            let exist = vec![random.pick(&PATHS[5..8])];
            let child = vec![random.pick(&PATHS[5..8])];
            if random.one_in(2) {
                Request::SetWatches {
                    relative_zxid,
                    data,
                    exist,
                    child,
                }
            } else {
                let (persistent, persistent_recursive) = (vec!["/a/x"], vec!["/b"]);
                Request::SetWatches2 {
                    relative_zxid,
                    data,
                    exist,
                    child,
                    persistent,
                    persistent_recursive,
                }
            }
        }
        _ => Request::GetAllChildrenNumber { path },
    };
    run(&request);
}

fn create<'a>(random: &mut Random, path: &'a str, data: Option<&'a [u8]>) -> Create<'a> {
    let op = random.pick(&[
        CreateOp::Create,
        CreateOp::Create2,
        CreateOp::Create2,
        CreateOp::Create2,
        CreateOp::Container,
        CreateOp::Ttl,
    ]);
    let flags = match op {
        CreateOp::Container => 4,
        CreateOp::Ttl => random.pick(&[5, 6]),
        _ => random.pick(&[0, 0, 0, 1, 2, 3, 4]),
    };
    let ttl_ms = if op == CreateOp::Ttl { 3_600_000 } else { -1 };
    Create {
        op,
        path,
        data,
        acl: acl(random, path),
        flags,
        ttl_ms,
    }
}

fn acl(random: &mut Random, path: &str) -> Option<Vec<Acl<'static>>> {
    match random.below(30) {
        0 => None,
        1 => Some(Vec::new()),
        2 => Some(vec![Acl::new(Perms::ALL, "unheard-of", "x")]),
        // Only here, where no exists and no setWatches look: Baton shows by those what may be read, and no more;
        // 3.8.0 shows all.
        3 if path.starts_with("/nobody") => Some(vec![Acl::creator_all()]),
        4 => Some(vec![Acl::new(Perms::ALL, "digest", "no-colon")]),
        5 => Some(vec![Acl::open_unsafe(), Acl::open_unsafe()]),
        6 => Some(vec![
            Acl::read_unsafe(),
            Acl::new(Perms::WRITE, "world", "anyone"),
        ]),
        7 => Some(vec![Acl::new(Perms::ALL, "ip", "127.0.0.1")]),
        _ => Some(vec![Acl::open_unsafe()]),
    }
}

fn write(random: &mut Random) -> MultiOp<'static> {
    let path = random.pick(&PATHS);
    let version = random.pick(&[-1, -1, -1, -1, 0]);
    match random.below(5) {
        0 | 1 => {
            let mut create = create(random, path, Some(b"m"));
            // In a multi ZooKeeper takes the kind of create from the flags, and the op for granted.
            if create.op == CreateOp::Create2 {
                create.op = CreateOp::Create;
            }
            if create.op == CreateOp::Create && create.flags == 4 {
                create.flags = 0;
            }
            MultiOp::Create(create)
        }
        2 => MultiOp::Delete { path, version },
        3 => MultiOp::SetData {
            path,
            data: Some(b"set"),
            version,
        },
        _ => MultiOp::Check { path, version },
    }
}

fn read(random: &mut Random) -> MultiOp<'static> {
    let path = random.pick(&PATHS);
    if random.one_in(2) {
        MultiOp::GetData { path, watch: false }
    } else {
        MultiOp::GetChildren { path, watch: false }
    }
}

/// A server with two sessions on it.
struct Side {
    clients: Vec<RawClient>,
    /// The zxid when the sessions were there; all others are told from it.
    base: i64,
    server: TestServer,
}

impl Side {
    async fn start(target: Target) -> Self {
        let server = TestServer::start(target).await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..2 {
            clients.push(RawClient::connect(server.addr(), SESSION).await.unwrap());
        }
        let mut side = Self {
            clients,
            base: 0,
            server,
        };
        side.clients[0]
            .send(&Request::Sync { path: "/" })
            .await
            .unwrap();
        side.base = side.clients[0].receive().await.unwrap().header.zxid;
        side
    }

    /// What one client is answered, all requests being sent before the first reply is read, and what both are told:
    /// as text that the other server's must equal.
    async fn step(&mut self, actor: usize, requests: &[Request<'_>]) -> Vec<String> {
        for request in requests {
            self.clients[actor].send(request).await.unwrap();
        }
        let mut said = Vec::new();
        for request in requests {
            let client = &mut self.clients[actor];
            let reply = client.receive().await.unwrap();
            for (_, event) in client.take_events() {
                said.push(format!("actor is told {:?} {}", event.kind, event.path));
            }
            let body = if reply.header.err == 0 {
                let response =
                    Response::decode(request.op(), &reply.body, &Limits::default()).unwrap();
                format!("{:?}", self.normal(response))
            } else {
                assert!(reply.body.is_empty(), "an error with a body");
                format!("{:?}", reply.header.error())
            };
            said.push(format!("at {}: {body}", reply.header.zxid - self.base));
        }
        said.extend(self.told(1 - actor).await);
        said
    }

    /// What a session was told. An event for it is in front of the reply to whatever it asks next.
    async fn told(&mut self, listener: usize) -> Vec<String> {
        let client = &mut self.clients[listener];
        client
            .send(&Request::Exists {
                path: "/zookeeper",
                watch: false,
            })
            .await
            .unwrap();
        client.receive().await.unwrap();
        let events = client.take_events();
        events
            .iter()
            .map(|(_, event)| format!("other is told {:?} {}", event.kind, event.path))
            .collect()
    }

    /// Closes a session and opens another in its place; its ephemerals go in no particular order.
    async fn reopen(&mut self, actor: usize) -> Vec<String> {
        let fresh = RawClient::connect(self.server.addr(), SESSION)
            .await
            .unwrap();
        std::mem::replace(&mut self.clients[actor], fresh)
            .close()
            .await
            .unwrap();
        let mut said = self.told(1 - actor).await;
        said.sort();
        said
    }

    /// Loses a session's connection and takes the session up on another; its watches are gone.
    async fn reconnect(&mut self, actor: usize) -> Vec<String> {
        let session = *self.clients[actor].session();
        let (id, password) = (session.session_id, session.password);
        let again = RawClient::resume(self.server.addr(), SESSION, id, &password, self.base)
            .await
            .unwrap();
        assert_eq!(again.session(), &session);
        self.clients[actor] = again;
        self.told(1 - actor).await
    }

    fn normal(&self, response: Response) -> Response {
        let stat = |stat| self.normal_stat(stat);
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        match response {
            Response::PathStat(path, s) => Response::PathStat(path, stat(s)),
            Response::Stat(s) => Response::Stat(stat(s)),
            Response::Data { data, stat: s } => Response::Data {
                data,
                stat: stat(s),
            },
            Response::Acl { acl, stat: s } => Response::Acl { acl, stat: stat(s) },
            Response::Children(names) => Response::Children(sorted(names)),
            Response::Children2 { children, stat: s } => Response::Children2 {
                children: sorted(children),
                stat: stat(s),
            },
            Response::Strings(names) => Response::Strings(sorted(names)),
            Response::Multi(results) => Response::Multi(
                results
                    .into_iter()
                    .map(|result| match result {
                        MultiResult::Create2 { path, stat: s } => MultiResult::Create2 {
                            path,
                            stat: stat(s),
                        },
                        MultiResult::SetData(s) => MultiResult::SetData(stat(s)),
                        MultiResult::Data { data, stat: s } => MultiResult::Data {
                            data,
                            stat: stat(s),
                        },
                        MultiResult::Children(names) => MultiResult::Children(sorted(names)),
                        other => other,
                    })
                    .collect(),
            ),
            Response::WhoAmI(mut infos) => {
                infos.sort_by(|a, b| (&a.scheme, &a.user).cmp(&(&b.scheme, &b.user)));
                Response::WhoAmI(infos)
            }
            other => other,
        }
    }

    fn normal_stat(&self, stat: Stat) -> Stat {
        let zxid = |zxid: i64| if zxid == 0 { 0 } else { zxid - self.base };
        let owner = self
            .clients
            .iter()
            .position(|client| client.session().session_id == stat.ephemeral_owner)
            .map_or(stat.ephemeral_owner, |index| index as i64 + 1);
        Stat {
            czxid: zxid(stat.czxid),
            mzxid: zxid(stat.mzxid),
            pzxid: zxid(stat.pzxid),
            ctime: i64::from(stat.ctime != 0),
            mtime: i64::from(stat.mtime != 0),
            ephemeral_owner: owner,
            ..stat
        }
    }
}

async fn agree(seed: u64) {
    if !zookeeper_is_installed() {
        eprintln!("skipped: Apache ZooKeeper is not installed");
        return;
    }
    let mut ours = Side::start(Target::Baton).await;
    let mut theirs = Side::start(Target::ZooKeeper).await;
    let mut random = Random(seed);
    let mut past = Vec::new();
    for number in 0..STEPS {
        let actor = random.below(2);
        let (what, our_answer, their_answer) = match random.below(80) {
            0 => (
                "a new session".to_owned(),
                ours.reopen(actor).await,
                theirs.reopen(actor).await,
            ),
            1 => (
                "a new connection".to_owned(),
                ours.reconnect(actor).await,
                theirs.reconnect(actor).await,
            ),
            _ => {
                let count = if random.one_in(5) {
                    2 + random.below(20)
                } else {
                    1
                };
                let (what, our_answer) = ask(&mut ours, actor, count, &mut random.clone()).await;
                let (_, their_answer) = ask(&mut theirs, actor, count, &mut random).await;
                (what, our_answer, their_answer)
            }
        };
        past.push(format!("session {actor}: {what}"));
        if our_answer != their_answer {
            let recent = past[past.len().saturating_sub(12)..].join("\n  ");
            panic!(
                "seed {seed:#x}, step {number}: after\n  {recent}\n\
                 Baton:     {our_answer:#?}\nZooKeeper: {their_answer:#?}"
            );
        }
    }
}

/// Asks one server so many requests, which the numbers make, at once.
async fn ask(
    side: &mut Side,
    actor: usize,
    count: usize,
    random: &mut Random,
) -> (String, Vec<String>) {
    let mut bodies = Vec::new();
    while bodies.len() < count {
        with_request(random, side.base, &mut |request| {
            // ZooKeeper adds credentials at once, before it does what was asked earlier.
            if count == 1 || request.op() != OpCode::Auth {
                let mut body = Vec::new();
                request.encode(&mut body);
                bodies.push((request.op(), body));
            }
        });
    }
    let requests: Vec<_> = bodies
        .iter()
        .map(|(op, body)| Request::decode(*op, body, &Limits::default()).unwrap())
        .collect();
    let what: Vec<_> = requests
        .iter()
        .map(|request| format!("{request:?}"))
        .collect();
    (what.join("\n    "), side.step(actor, &requests).await)
}

#[tokio::test]
async fn baton_and_zookeeper_agree() {
    let seeds = std::env::var("BATON_DIFFERENTIAL_SEEDS").map_or(2, |seeds| seeds.parse().unwrap());
    for seed in 1..=seeds {
        agree(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)).await;
    }
}
