//! Effects of transactions on the state. A snapshot was taken while writes went on, so a
//! transaction may find its work done, or half of it: each is made so that doing it again changes
//! nothing (protocol.md §4). Owns those rules.

use baton_proto::{Acl, path};

use crate::database::{Database, Node, PersistedStat};
use crate::txn::{CreateTxn, Header, NodeLifetime, Txn};

const CONTAINER: i64 = i64::MIN;
const TTL: i64 = 0xff << 56;

impl Database {
    pub(crate) fn apply(&mut self, header: &Header, txn: Txn<'_>) {
        match txn {
            Txn::CreateSession { timeout_ms } => {
                self.sessions.insert(header.session, timeout_ms);
            }
            Txn::CloseSession { paths } => {
                self.sessions.remove(&header.session);
                let known = self.ephemerals.remove(&header.session).unwrap_or_default();
                for path in paths
                    .iter()
                    .copied()
                    .chain(known.iter().map(String::as_str))
                {
                    self.delete(header, path);
                }
            }
            Txn::Create(create) => self.create(header, create),
            Txn::Delete { path } => self.delete(header, path),
            Txn::SetData {
                path,
                data,
                version,
            } => {
                if let Some(node) = self.nodes.get_mut(path) {
                    node.data = data.map(Box::from);
                    node.stat.mzxid = header.zxid;
                    node.stat.mtime = header.time_ms;
                    node.stat.version = version;
                }
            }
            Txn::SetAcl { path, acl, version } => {
                let acl = self.acl_number(owned(acl));
                if let Some(node) = self.nodes.get_mut(path) {
                    node.acl = acl;
                    node.stat.aversion = version;
                }
            }
            Txn::Nothing => {}
            Txn::Multi(txns) => {
                for txn in txns {
                    self.apply(header, txn);
                }
            }
        }
    }

    fn create(&mut self, header: &Header, create: CreateTxn<'_>) {
        let acl = self.acl_number(owned(create.acl));
        let Some(parent) = self.nodes.get_mut(path::parent(create.path)) else {
            return;
        };
        let count = parent.stat.cversion;
        let count = create.parent_cversion.unwrap_or(count.wrapping_add(1));
        // Later creates and deletes may be in the snapshot already.
        if count > parent.stat.cversion {
            parent.stat.cversion = count;
            parent.stat.pzxid = header.zxid;
        }
        if let Some(there) = self.nodes.get_mut(create.path) {
            // The snapshot's list of ACLs is older than its znodes: the number may mean nothing
            // yet.
            there.acl = acl;
            return;
        }
        let owner = match create.life {
            NodeLifetime::Persistent => 0,
            NodeLifetime::Ephemeral => header.session,
            NodeLifetime::Container => CONTAINER,
            NodeLifetime::Ttl(ttl_ms) => TTL | ttl_ms,
        };
        let node = Node {
            data: create.data.map(Box::from),
            acl,
            stat: PersistedStat {
                czxid: header.zxid,
                mzxid: header.zxid,
                pzxid: header.zxid,
                ctime: header.time_ms,
                mtime: header.time_ms,
                owner,
                ..PersistedStat::default()
            },
        };
        self.insert(create.path.to_owned(), node);
    }

    fn delete(&mut self, header: &Header, path: &str) {
        // Also when the znode is gone: the snapshot may have its parent from before.
        if let Some(parent) = self.nodes.get_mut(path::parent(path)) {
            parent.stat.pzxid = parent.stat.pzxid.max(header.zxid);
        }
        if path != "/" {
            self.remove(path);
        }
    }
}

fn owned(acl: Vec<Acl<'_>>) -> Vec<Acl<'static>> {
    acl.into_iter().map(Acl::into_owned).collect()
}
