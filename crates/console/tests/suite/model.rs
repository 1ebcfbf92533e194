//! A tree in memory that may change after each read, and remembers when each node was there.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use baton_client::path::parent;
use baton_client::{Children, Data, Stat};
use baton_console::{Ask, Reply, SurveyError, TreeReader};
use bytes::Bytes;

/// A node's whole life: from which moment, and until which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeLifetime {
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// A waiter node as the model knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) path: String,
    pub(crate) session: i64,
    pub(crate) czxid: i64,
    pub(crate) reads: bool,
}

#[derive(Debug)]
pub(crate) struct State {
    nodes: BTreeMap<String, Stat>,
    zxid: i64,
    /// The newest change that an answer has shown.
    shown: i64,
    lives: BTreeMap<(String, i64), NodeLifetime>,
    pub(crate) rng: fastrand::Rng,
    /// One read of this number is followed by a change; 0: none is.
    pub(crate) calm: usize,
    pub(crate) reads: usize,
}

pub(crate) const LOCKS: usize = 4;
pub(crate) const SESSIONS: i64 = 5;

impl State {
    fn create(&mut self, path: &str, owner: i64) -> i64 {
        self.zxid += 1;
        let zxid = self.zxid;
        let stat = Stat {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ephemeral_owner: owner,
            ..Stat::default()
        };
        self.nodes.insert(path.to_owned(), stat);
        self.lives.insert(
            (path.to_owned(), zxid),
            NodeLifetime {
                from: zxid,
                until: i64::MAX,
            },
        );
        if let Some(above) = self.nodes.get_mut(parent(path)) {
            above.pzxid = zxid;
            above.cversion += 1;
            above.num_children += 1;
        }
        zxid
    }

    fn delete(&mut self, path: &str) {
        self.zxid += 1;
        let zxid = self.zxid;
        let Some(gone) = self.nodes.remove(path) else {
            return;
        };
        let life = self.lives.get_mut(&(path.to_owned(), gone.czxid)).unwrap();
        life.until = zxid;
        if let Some(above) = self.nodes.get_mut(parent(path)) {
            above.pzxid = zxid;
            above.cversion += 1;
            above.num_children -= 1;
        }
    }

    /// A new waiter of this session at this lock. Every other lock has readers and writers.
    pub(crate) fn enqueue(&mut self, session: i64, lock: usize, reads: bool) -> String {
        let dir = format!("/l{lock}");
        if !self.nodes.contains_key(&dir) {
            self.create(&dir, 0);
        }
        let token = match (lock % 2, reads) {
            (0, _) => "lock-",
            (_, true) => "__READ__",
            (_, false) => "__WRIT__",
        };
        let number = self.nodes[&dir].cversion;
        let path = format!("{dir}/_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-{token}{number:010}");
        self.create(&path, session);
        path
    }

    pub(crate) fn queued(&self) -> Vec<Queued> {
        let nodes = self.nodes.iter();
        let owned = nodes.filter(|(_, stat)| stat.ephemeral_owner != 0);
        owned
            .map(|(path, stat)| Queued {
                path: path.clone(),
                session: stat.ephemeral_owner,
                czxid: stat.czxid,
                reads: path.contains("__READ__"),
            })
            .collect()
    }

    pub(crate) fn leave(&mut self, path: &str) {
        self.delete(path);
        let dir = parent(path).to_owned();
        // A folder that comes again counts from zero: its nodes get names that were there before.
        if self.nodes[&dir].num_children == 0 && self.rng.bool() {
            self.delete(&dir);
        }
    }

    /// One change that somebody makes.
    pub(crate) fn change(&mut self) {
        let all = self.queued();
        let crowded = all.len() > 9;
        if !all.is_empty() && (crowded || self.rng.usize(..5) < 2) {
            let chosen = all[self.rng.usize(..all.len())].clone();
            if self.rng.usize(..6) == 0 {
                // The whole session goes, one node after the other in one change or several.
                for node in all.iter().filter(|node| node.session == chosen.session) {
                    self.leave(&node.path);
                }
            } else {
                self.leave(&chosen.path);
            }
        } else {
            let (session, lock) = (self.rng.i64(1..=SESSIONS), self.rng.usize(..LOCKS));
            let reads = self.rng.bool();
            self.enqueue(session, lock, reads);
        }
    }

    /// When this node was there.
    pub(crate) fn life(&self, path: &str, czxid: i64) -> Option<NodeLifetime> {
        self.lives.get(&(path.to_owned(), czxid)).copied()
    }

    pub(crate) fn clear(&mut self) {
        for node in self.queued() {
            self.delete(&node.path);
        }
    }
}

/// The tree, as a reader.
#[derive(Debug)]
pub(crate) struct Model(Mutex<State>);

impl Model {
    pub(crate) fn new(seed: u64, calm: usize) -> Self {
        let mut state = State {
            nodes: BTreeMap::new(),
            zxid: 0,
            shown: 0,
            lives: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            calm,
            reads: 0,
        };
        state.create("/", 0);
        Self(Mutex::new(state))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn answer(&self, ask: &Ask) -> Reply {
        let mut state = self.state();
        state.reads += 1;
        let (Ask::Stat(path) | Ask::Children(path) | Ask::Data(path)) = ask;
        let reply = match (ask, state.nodes.get(path).copied()) {
            (_, None) => Reply::Gone,
            (Ask::Stat(_), Some(stat)) => Reply::Stat(stat),
            (Ask::Data(_), Some(stat)) => Reply::Data(Data {
                data: Bytes::new(),
                stat,
            }),
            (Ask::Children(_), Some(stat)) => {
                let below = state.nodes.keys().filter(|node| *node != "/");
                let below = below.filter(|node| parent(node) == path);
                let names = below.map(|node| node.rsplit_once('/').unwrap().1.to_owned());
                Reply::Children(Children {
                    names: names.collect(),
                    stat,
                })
            }
        };
        state.shown = state.zxid;
        let calm = state.calm;
        if calm > 0 && state.rng.usize(..calm) == 0 {
            state.change();
        }
        reply
    }
}

impl TreeReader for Model {
    async fn read(&self, asks: &[Ask]) -> Result<Vec<Reply>, SurveyError> {
        Ok(asks.iter().map(|ask| self.answer(ask)).collect())
    }

    async fn sync(&self) -> Result<(), SurveyError> {
        Ok(())
    }

    fn last_zxid(&self) -> i64 {
        self.state().shown
    }
}
