//! Seeded bugs that go around the engine, which has no switch for them: the node takes as
//! committed, or as its membership, what the engine has not given it.

use std::collections::VecDeque;

use baton_consensus::{EntryKind, Membership, MembershipChange, Role};
use bytes::{BufMut, Bytes, BytesMut};

use super::bug::SeededBug;
use super::life::End;
use super::members;
use super::node::{Belief, Process};
use super::world::World;

/// The first byte of a command that changes voters at once (B18). No batch of the tree begins so.
const SIMPLE_CHANGE: u8 = 0xb8;

/// The payload of a command that changes voters at once.
pub(crate) fn simple_change_to(membership: &Membership) -> Bytes {
    let mut payload = BytesMut::new();
    payload.put_u8(SIMPLE_CHANGE);
    payload.put(membership.encode());
    payload.freeze()
}

/// The membership that such a command brings.
pub(crate) fn simple_change(payload: &[u8]) -> Option<Membership> {
    let (kind, membership) = payload.split_first()?;
    (*kind == SIMPLE_CHANGE).then(|| Membership::decode(membership).ok())?
}

impl World {
    /// B03: a leader takes what a majority has as committed, whatever term it is of.
    pub(crate) fn apply_early(&mut self, id: u64) {
        if !self.has_bug(SeededBug::B03) {
            return;
        }
        let image_last = self.node(id).image.last();
        let Some(mut process) = self.node(id).process.take() else {
            return;
        };
        if process.consensus.status().role == Role::Leader && !process.is_installing() {
            let progress = process.consensus.progress();
            let membership = process.consensus.membership().clone();
            let matched = |node: u64| {
                let found = progress.iter().find(|peer| peer.id == node);
                if node == id {
                    image_last
                } else {
                    found.map_or(0, |peer| peer.matched)
                }
            };
            let term = process.consensus.status().term;
            let mut index = process.early.max(process.applied) + 1;
            while index <= process.log.last()
                && members::is_quorum(&membership, |node| matched(node) >= index)
                && self.violation.is_none()
            {
                let entry = self.node(id).entries.get(&index).cloned();
                let Some(entry) = entry.filter(|entry| entry.kind != EntryKind::Configuration)
                else {
                    break;
                };
                let content = super::image::content_of(&entry);
                self.check_committed(id, index, (entry.term, content), term, &membership);
                if entry.kind == EntryKind::Command {
                    self.apply_command(id, &mut process, &entry);
                }
                process.early = index;
                index += 1;
            }
        }
        self.node(id).process = Some(process);
    }

    /// B17: a node that has stored a configuration which is not committed restarts, and takes it as
    /// its own.
    pub(crate) fn believe_in_appended(&mut self, id: u64) {
        if !self.has_bug(SeededBug::B17) || self.is_calm {
            return;
        }
        let node = self.node(id);
        let Some(process) = node.process.as_ref() else {
            return;
        };
        let commit = process.consensus.commit_index();
        let mut now = process.consensus.membership().clone();
        let mut up_to = 0;
        for (index, entry) in node.entries.range(process.applied + 1..) {
            if entry.kind == EntryKind::Configuration
                && let Ok(change) = MembershipChange::decode(&entry.payload)
            {
                now = members::after(&now, &change);
                up_to = *index;
            }
        }
        let is_known = node
            .belief
            .as_ref()
            .is_some_and(|belief| belief.up_to >= up_to);
        if up_to <= commit || is_known {
            return;
        }
        self.restart_with(
            id,
            Belief {
                membership: now,
                up_to,
            },
        );
    }

    /// B18: the membership changes at once, by a restart of the engine once this event is over.
    pub(crate) fn apply_simple_change(
        &mut self,
        id: u64,
        process: &mut Process,
        index: u64,
        membership: Membership,
    ) {
        let outcome = self.truth.membership(id, index, &membership);
        self.hold(outcome);
        if self
            .node(id)
            .belief
            .as_ref()
            .is_none_or(|belief| belief.up_to < index)
        {
            process.take_over = Some(Belief {
                membership,
                up_to: index,
            });
        }
    }

    /// Carries out what `apply_simple_change` has planned.
    pub(crate) fn take_over(&mut self, id: u64) {
        if let Some(belief) = self
            .process(id)
            .and_then(|process| process.take_over.take())
        {
            self.restart_with(id, belief);
        }
    }

    fn restart_with(&mut self, id: u64, belief: Belief) {
        if let Some(process) = self.process(id) {
            let waiting: VecDeque<_> = std::mem::take(&mut process.queue);
            process.in_flight.extend(waiting);
            if process.write_in_flight().is_err() {
                return;
            }
        }
        self.note(|_| format!("{id}: believes in {:?}", belief.membership.voters));
        let node = self.node(id);
        let in_flight = node
            .process
            .as_mut()
            .map(|p| std::mem::take(&mut p.in_flight));
        for batch in in_flight.into_iter().flatten() {
            for written in batch.written(&node.image) {
                node.image.write(&written);
            }
        }
        self.stop(id, End::Killed);
        self.node(id).belief = Some(belief);
        self.start(id);
    }
}
