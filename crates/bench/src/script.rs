//! The requests of each connection, one after the other, for the raw workloads. It knows the
//! nodes' names, so that set-up, load and cleaning agree; it never touches a socket.

use std::rc::Rc;

use baton_proto::{Acl, Create, CreateMode, CreateOp, Request};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use super::{Args, Result, Workload};

/// Reads of `latest` to each new node.
const READS_TO_CREATE: u64 = 19;

/// The names of one run's nodes.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    root: String,
}

impl Names {
    /// Names below `root`.
    pub(crate) fn below(root: String) -> Self {
        Self { root }
    }

    /// A create request of the plainest form, answered with the path alone.
    pub(crate) fn create<'a>(
        &'a self,
        path: &'a str,
        data: &'a [u8],
        mode: CreateMode,
    ) -> Request<'a> {
        Request::Create(Create {
            op: CreateOp::Create,
            ..Create::new(path, Some(data), vec![Acl::open_unsafe()], mode)
        })
    }

    /// The run's own node.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The `n`th of the nodes that are read and overwritten.
    pub(crate) fn shared(&self, n: usize) -> String {
        format!("{}/n{n:06}", self.root)
    }

    /// All of them.
    pub(crate) fn all_shared(&self, nodes: usize) -> Rc<[String]> {
        (0..nodes).map(|n| self.shared(n)).collect()
    }

    /// The parent of what one connection creates.
    pub(crate) fn parent(&self, connection: usize) -> String {
        format!("{}/c{connection:04}", self.root)
    }

    /// The `n`th node created by a connection.
    pub(crate) fn created(&self, connection: usize, n: u64) -> String {
        format!("{}/c{connection:04}/n{n:010}", self.root)
    }
}

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct Script {
    workload: Workload,
    names: Names,
    connection: usize,
    connections: usize,
    value: Vec<u8>,
    paths: Rc<[String]>,
    reads: u64,
    /// Draws how far down a list of nodes, by how often they are used, the next one stands.
    ranks: Option<(Zipf<f64>, SmallRng)>,
    issued: u64,
    scratch: String,
}

/// Exponent of the law by which some nodes are used more than others, as in YCSB.
const ZIPF: f64 = 0.99;
/// Nodes that a connection of `latest` has made last, and reads.
const LATEST: u64 = 100_000;

impl Script {
    /// The script of connection number `connection`; `shared` are the nodes that all connections
    /// work on.
    pub(crate) fn new(
        args: &Args,
        names: &Names,
        shared: &Rc<[String]>,
        connection: usize,
    ) -> Result<Self> {
        let nodes = args.nodes.max(1);
        let paths = match args.creates_own_nodes() {
            true => Rc::from([format!("{}/e-", names.parent(connection))]),
            false => Rc::clone(shared),
        };
        let ranks = match args.workload {
            Workload::Latest => Some(Zipf::new(LATEST as f64, ZIPF)?),
            _ if args.zipf => Some(Zipf::new(nodes as f64, ZIPF)?),
            _ => None,
        };
        let ranks = ranks.map(|law| (law, SmallRng::seed_from_u64(connection as u64)));
        Ok(Self {
            workload: args.workload,
            names: names.clone(),
            connection,
            connections: args.connections(),
            value: vec![b'v'; args.value_bytes],
            paths,
            reads: args.reads,
            ranks,
            issued: 0,
            scratch: String::new(),
        })
    }

    /// Requests given out so far.
    pub(crate) fn issued(&self) -> u64 {
        self.issued
    }

    /// Nodes of its own that this many requests create.
    pub(crate) fn created(workload: Workload, issued: u64) -> u64 {
        match workload {
            Workload::Latest => issued.div_ceil(READS_TO_CREATE + 1),
            _ => issued,
        }
    }

    /// The next request, and whether the path in its reply is to be deleted; none where all have
    /// been made.
    pub(crate) fn next(&mut self) -> Option<(Request<'_>, bool)> {
        let turn = self.issued;
        let place = self.place(turn);
        if place >= self.paths.len() && self.workload == Workload::Load {
            return None;
        }
        self.issued += 1;
        let made = Self::created(self.workload, turn);
        let path = self.paths.get(place).map_or("", String::as_str);
        let get = |path| Request::GetData { path, watch: false };
        let create = |path| self.names.create(path, &self.value, CreateMode::Persistent);
        let request = match self.workload {
            Workload::Get => get(path),
            Workload::Mixed if turn * self.reads % 100 < self.reads => get(path),
            Workload::Latest if !turn.is_multiple_of(READS_TO_CREATE + 1) => {
                let newest = made - 1 - place as u64 % made;
                self.scratch = self.names.created(self.connection, newest);
                get(&self.scratch)
            }
            Workload::Create | Workload::Latest => {
                self.scratch = self.names.created(self.connection, made);
                create(&self.scratch)
            }
            Workload::Load => create(path),
            Workload::Churn => {
                self.names
                    .create(path, &self.value, CreateMode::EphemeralSequential)
            }
            _ => Request::SetData {
                path,
                data: Some(&self.value),
                version: -1,
            },
        };
        Some((request, self.workload == Workload::Churn))
    }

    /// Place of the node of this turn among those that it may be. Connections start at different
    /// ones and step by a prime, so that they do not move in line.
    fn place(&mut self, turn: u64) -> usize {
        let count = self.paths.len().max(1) as u64;
        let place = match (&mut self.ranks, self.workload) {
            (Some((law, random)), Workload::Latest) => law.sample(random) as u64 - 1,
            // The most used are not neighbours.
            (Some((law, random)), _) => (law.sample(random) as u64 - 1) * 7919 % count,
            (None, Workload::Load) => self.connection as u64 + turn * self.connections as u64,
            (None, _) => (self.connection as u64 * 7919 + turn * 31) % count,
        };
        place as usize
    }
}

#[cfg(test)]
mod tests {
    use baton_proto::OpCode;
    use clap::Parser;

    use super::*;

    fn new(args: &Args, connection: usize) -> Script {
        let names = script_names();
        Script::new(args, &names, &names.all_shared(args.nodes), connection).unwrap()
    }

    fn script(workload: &str, more: &[&str]) -> Script {
        let args = ["baton-bench", workload, "--servers", "a:1", "--nodes", "10"];
        let args = Args::parse_from(args.iter().chain(more));
        new(&args, 3)
    }

    fn ops(script: &mut Script, count: usize) -> Vec<OpCode> {
        (0..count).map(|_| script.next().unwrap().0.op()).collect()
    }

    #[test]
    fn mixed_reads_as_often_as_it_is_told_to() {
        for (more, reads) in [
            (&[][..], 80),
            (&["--reads", "95"], 95),
            (&["--reads=50"], 50),
        ] {
            let ops = ops(&mut script("mixed", more), 100);
            assert_eq!(
                ops.iter().filter(|op| **op == OpCode::GetData).count(),
                reads
            );
            assert!(ops.contains(&OpCode::SetData));
        }
    }

    #[test]
    fn every_created_node_has_its_own_name() {
        let mut script = script("create", &[]);
        for n in 0..3 {
            let Some((Request::Create(create), false)) = script.next() else {
                panic!("not a create")
            };
            assert_eq!(create.path, script_names().created(3, n));
        }
    }

    #[test]
    fn load_creates_each_of_the_nodes_once() {
        let args = [
            "baton-bench",
            "load",
            "--servers=a:1",
            "--nodes=10",
            "--connections=4",
        ];
        let args = Args::parse_from(args);
        let mut made = Vec::new();
        for connection in 0..4 {
            let mut script = new(&args, connection);
            while let Some((Request::Create(create), false)) = script.next() {
                made.push(create.path.to_owned());
            }
        }
        made.sort();
        assert_eq!(made, *script_names().all_shared(10));
    }

    #[test]
    fn latest_reads_only_what_it_has_created_and_the_newest_most() {
        let mut script = script("latest", &[]);
        let (mut made, mut newest_read) = (0, 0);
        for _ in 0..20_000 {
            let newest = script_names().created(3, if made == 0 { 0 } else { made - 1 });
            match script.next().unwrap().0 {
                Request::Create(create) => {
                    assert_eq!(create.path, script_names().created(3, made));
                    made += 1;
                }
                Request::GetData { path, .. } => {
                    assert!(path <= &*newest, "{path} is not there yet");
                    newest_read += usize::from(path == newest);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(made, 1_000);
        assert_eq!(Script::created(Workload::Latest, 20_000), made);
        assert!(newest_read > 1_000, "{newest_read}");
    }

    #[test]
    fn by_zipf_some_nodes_are_used_more_than_others() {
        let count = |more: &[&str]| {
            let mut script = script("get", more);
            let mut used = std::collections::HashMap::<String, usize>::new();
            for _ in 0..10_000 {
                let Some((Request::GetData { path, .. }, false)) = script.next() else {
                    panic!("not a read")
                };
                *used.entry(path.to_owned()).or_default() += 1;
            }
            (used.len(), used.into_values().max().unwrap())
        };
        assert_eq!(count(&[]), (10, 1_000));
        let (nodes, most) = count(&["--zipf"]);
        assert!(nodes == 10 && most > 2_000, "{nodes}, {most}");
    }

    fn script_names() -> Names {
        Names::below("/b".to_owned())
    }
}
