//! The requests of each connection, one after the other, for the raw workloads. It knows the
//! nodes' names, so that set-up, load and cleaning agree; it never touches a socket.

use baton_proto::{Acl, Create, CreateMode, CreateOp, Request};

use super::Workload;

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
    value: Vec<u8>,
    shared: Vec<String>,
    issued: u64,
    scratch: String,
}

impl Script {
    /// The script of connection number `connection` over `nodes` shared nodes.
    pub(crate) fn new(
        workload: Workload,
        names: &Names,
        connection: usize,
        nodes: usize,
        value_bytes: usize,
    ) -> Self {
        let shared = match workload {
            Workload::Set | Workload::Get | Workload::Mixed => {
                (0..nodes).map(|n| names.shared(n)).collect()
            }
            _ => vec![format!("{}/e-", names.parent(connection))],
        };
        Self {
            workload,
            names: names.clone(),
            connection,
            value: vec![b'v'; value_bytes],
            shared,
            issued: 0,
            scratch: String::new(),
        }
    }

    /// Requests given out so far.
    pub(crate) fn issued(&self) -> u64 {
        self.issued
    }

    /// The next request, and whether the path in its reply is to be deleted.
    pub(crate) fn next(&mut self) -> (Request<'_>, bool) {
        let turn = self.issued;
        self.issued += 1;
        // Connections start at different nodes and step by a prime, so that they do not move in
        // line.
        let index = (self.connection as u64 * 7919 + turn * 31) % self.shared.len().max(1) as u64;
        let path = self.shared.get(index as usize).map_or("", String::as_str);
        let get = || Request::GetData { path, watch: false };
        let set = || Request::SetData {
            path,
            data: Some(&self.value),
            version: -1,
        };
        match self.workload {
            Workload::Get => (get(), false),
            Workload::Mixed if !turn.is_multiple_of(5) => (get(), false),
            Workload::Create => {
                self.scratch = self.names.created(self.connection, turn);
                (
                    self.names
                        .create(&self.scratch, &self.value, CreateMode::Persistent),
                    false,
                )
            }
            Workload::Churn => (
                self.names
                    .create(path, &self.value, CreateMode::EphemeralSequential),
                true,
            ),
            _ => (set(), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_proto::OpCode;

    use super::*;

    fn ops(workload: Workload, count: usize) -> Vec<OpCode> {
        let mut script = Script::new(workload, &Names::below("/b".to_owned()), 3, 10, 100);
        (0..count).map(|_| script.next().0.op()).collect()
    }

    #[test]
    fn mixed_is_four_reads_to_one_overwrite() {
        let ops = ops(Workload::Mixed, 100);
        assert_eq!(ops.iter().filter(|op| **op == OpCode::SetData).count(), 20);
        assert_eq!(ops.iter().filter(|op| **op == OpCode::GetData).count(), 80);
    }

    #[test]
    fn every_created_node_has_its_own_name() {
        let names = Names::below("/b".to_owned());
        let mut script = Script::new(Workload::Create, &names, 3, 10, 100);
        for n in 0..3 {
            let (Request::Create(create), false) = script.next() else {
                panic!("not a create")
            };
            assert_eq!(create.path, names.created(3, n));
        }
    }
}
