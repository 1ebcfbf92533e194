//! Several writes, all or none (protocol.md §1.9). Owns the way back: every operation is applied as
//! it comes, so that the next one sees it, and is taken back in reverse order if a later one fails.
//! Watchers receive nothing until all have succeeded. Owns the bound on the number of operations,
//! which the server of the client applies before a request goes into the log, and the tree from
//! level 7 on.

use std::ops::Range;

use baton_proto::{ErrorCode, MultiOp, MultiResult, OpCode};

use crate::acl_table::{AclId, AclTable};
use crate::effects::{Change, ChangeKind, Effects, OverQuota};
use crate::identity::Identity;
use crate::kind::Kind;
use crate::recorder::{Context, PendingChange, Recorder, Undo};
use crate::tree::Tree;

/// Bounds of one multi, whose operations happen in one step.
#[derive(Debug)]
pub struct MultiBounds;

impl MultiBounds {
    /// Most operations.
    pub const OPERATIONS: usize = 10_000;
    /// Most operations times identities of the client, each of which an ACL may be asked for.
    pub const CHECKS: usize = 65_536;
    /// The fewest bytes that an operation takes in a request.
    const MIN_BYTES: usize = 17;

    /// Returns whether a multi of this length could be over the bounds. Looks at nothing but the
    /// length and the number of identities.
    #[must_use]
    pub fn could_be_exceeded(request_bytes: usize, identity: &Identity) -> bool {
        !Self::admit(request_bytes / Self::MIN_BYTES, identity)
    }

    /// Returns whether a multi of that number of operations, of a client of this identity, is
    /// within the bounds.
    #[must_use]
    pub fn admit(operations: usize, identity: &Identity) -> bool {
        let checks = operations.saturating_mul(identity.names().len());
        operations <= Self::OPERATIONS && checks <= Self::CHECKS
    }
}

/// Effects of the operations so far.
#[derive(Debug, Default)]
struct MultiEffects {
    undo: Vec<Undo>,
    changes: Vec<(ChangeKind, Range<usize>, i64, AclId)>,
    paths: String,
    /// Quotas that were gone over, each with its path.
    over: Vec<(String, OverQuota<'static>)>,
}

impl MultiEffects {
    fn report_quotas(&self, effects: &mut impl Effects) {
        for (path, over) in &self.over {
            effects.over_quota(OverQuota { path, ..*over });
        }
    }
}

impl Recorder for MultiEffects {
    fn change(&mut self, change: PendingChange<'_>, _: &AclTable) {
        let start = self.paths.len();
        self.paths.push_str(change.path);
        let path = start..self.paths.len();
        self.changes
            .push((change.kind, path, change.session, change.acl));
    }

    fn over_quota(&mut self, over: OverQuota<'_>) {
        self.over
            .push((over.path.to_owned(), OverQuota { path: "", ..over }));
    }

    fn journal(&mut self) -> Option<&mut Vec<Undo>> {
        Some(&mut self.undo)
    }
}

impl Tree {
    pub(crate) fn multi(
        &mut self,
        context: &Context<'_>,
        ops: &[MultiOp<'_>],
        effects: &mut impl Effects,
    ) -> Vec<MultiResult> {
        let mut journal = MultiEffects::default();
        let digest = self.digest;
        let mut results = Vec::with_capacity(ops.len());
        for (place, op) in ops.iter().enumerate() {
            let context = Context {
                birth: place as u32,
                ..*context
            };
            match self.multi_op(&context, op, &mut journal) {
                Ok(result) => results.push(result),
                Err(code) => {
                    journal.report_quotas(effects);
                    self.roll_back(journal.undo);
                    self.digest = digest;
                    return MultiResult::failure(ops.len(), place, code);
                }
            }
        }
        journal.report_quotas(effects);
        for (kind, range, session, acl) in &journal.changes {
            let path = journal.paths.get(range.clone()).unwrap_or_default();
            let is_created = *kind == ChangeKind::Created;
            effects.event(Change {
                kind: *kind,
                path,
                zxid: context.zxid,
                session: *session,
                acl: self.acls.get(*acl),
                data: is_created.then(|| self.peek_data(path)).flatten(),
            });
        }
        for undo in journal.undo {
            match undo {
                Undo::Created { .. } => {}
                Undo::Deleted { node, .. } => {
                    self.arena.free_removed(&node);
                    self.acls.release(node.acl());
                }
                Undo::Set { old, .. } => self.arena.free_payload(&old),
            }
        }
        results
    }

    fn multi_op(
        &mut self,
        context: &Context<'_>,
        op: &MultiOp<'_>,
        journal: &mut MultiEffects,
    ) -> Result<MultiResult, ErrorCode> {
        match op {
            MultiOp::Create(create) => {
                let (path, stat) = self.create(context, create, journal)?;
                Ok(if create.op.op() == OpCode::Create {
                    MultiResult::Create { path }
                } else {
                    MultiResult::Create2 { path, stat }
                })
            }
            MultiOp::Delete { path, version } => {
                self.delete(context, path, *version, journal)?;
                Ok(MultiResult::Delete)
            }
            MultiOp::SetData {
                path,
                data,
                version,
            } => self
                .set_data(context, path, *data, *version, journal)
                .map(MultiResult::SetData),
            MultiOp::Check { path, version } => {
                self.check(context, path, *version)?;
                Ok(MultiResult::Check)
            }
            MultiOp::GetData { .. } | MultiOp::GetChildren { .. } => Err(ErrorCode::Unimplemented),
        }
    }

    /// Takes back all but the digest, which the caller has kept.
    fn roll_back(&mut self, undo: Vec<Undo>) {
        for step in undo.into_iter().rev() {
            match step {
                Undo::Created { id, parent_pzxid } => {
                    let kind = Kind::of_owner(self.arena.node(id).details().owner);
                    self.forget_kind(kind, id);
                    let node = self.arena.take_out(id);
                    let family = self.arena.family_mut(node.parent());
                    family.creates = family.creates.wrapping_sub(1);
                    family.pzxid = parent_pzxid;
                    self.arena.free_removed(&node);
                    self.acls.release(node.acl());
                }
                Undo::Deleted { node, parent_pzxid } => {
                    self.arena.family_mut(node.parent()).pzxid = parent_pzxid;
                    let id = self.arena.put_back(node);
                    let kind = Kind::of_owner(self.arena.node(id).details().owner);
                    self.note_kind(kind, id);
                }
                Undo::Set { id, old, before } => {
                    self.arena.restore_data(id, old);
                    self.arena.note_write(id, before);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_proto::{Acl, Create, CreateMode, Request};

    use super::*;
    use crate::batch::Command;

    fn run(tree: &mut Tree, ops: Vec<MultiOp<'_>>) -> bool {
        let mut body = Vec::new();
        Request::Multi(ops).encode(&mut body);
        let (op, body) = (OpCode::Multi, body.as_slice());
        let identity = Identity::anonymous();
        let outcome = tree.apply(1, 7, &identity, Command::Write { op, body }, &mut ());
        let Ok(baton_proto::Response::Multi(results)) = outcome.result else {
            panic!("{outcome:?}");
        };
        !results.iter().any(|it| matches!(it, MultiResult::Error(_)))
    }

    fn create(path: &str, mode: CreateMode) -> MultiOp<'_> {
        let acl = vec![Acl::open_unsafe()];
        MultiOp::Create(Create::new(path, Some(b"data"), acl, mode))
    }

    fn set<'a>(path: &'a str, data: &'a [u8]) -> MultiOp<'a> {
        let (data, version) = (Some(data), -1);
        MultiOp::SetData {
            path,
            data,
            version,
        }
    }

    fn delete(path: &str) -> MultiOp<'_> {
        MultiOp::Delete { path, version: -1 }
    }

    #[test]
    fn a_multi_leaves_no_memory_behind_whether_it_succeeds_or_not() {
        let mut tree = Tree::new();
        let open = Command::OpenSession {
            session_id: 7,
            password: [0; 16],
            timeout_ms: 9,
        };
        tree.apply(1, 0, &Identity::anonymous(), open, &mut ());
        let large = [1; 5_000];
        let ops = || {
            vec![
                create("/a", CreateMode::Persistent),
                create("/a/b", CreateMode::Ephemeral),
                set("/a", b"of another size, and of another class of sizes"),
                set("/zookeeper", b"more"),
                set("/zookeeper", &large),
                delete("/a/b"),
            ]
        };
        for round in 0..3 {
            let mut failing = ops();
            failing.push(delete("/none"));
            assert!(!run(&mut tree, failing), "{round}");
            assert!(tree.arena.is_tight(), "{round}");
            assert_eq!(tree.peek_data("/zookeeper"), Some(b"".as_slice()));
        }
        assert!(run(&mut tree, ops()));
        assert!(tree.arena.is_tight());
        assert_eq!(tree.peek_data("/zookeeper"), Some(large.as_slice()));
        assert!(run(&mut tree, vec![delete("/a"), set("/zookeeper", b"")]));
        assert!(tree.arena.is_tight());
        assert_eq!(tree.node_count(), 4);
    }
}
