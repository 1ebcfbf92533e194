//! One node acts on what its consensus hands out: messages leave, batches wait for the log task,
//! committed entries are applied. After each step the node is held against the truth.

use std::collections::VecDeque;

use baton_consensus::{
    Effects, Entry, EntryKind, Member, Membership, MembershipChange, MessageKind, PeerMessage,
    Role, SnapshotPoint,
};
use baton_tree::Batch as Commands;
use baton_wal::{SnapshotMeta, WalError};

use super::bug::SeededBug;
use super::image::{Written, content_of};
use super::life::End;
use super::mark::Mark;
use super::members;
use super::node::{Batch, OwnSnapshot, Process};
use super::timeline::{MS_US, SECOND_US};
use super::world::{Event, World};

/// What the operator adds to a change that every node must refuse when it is applied.
pub(crate) const REFUSED: &[u8] = b"refuse";

impl World {
    /// Takes everything that a node has to do now.
    pub(crate) fn settle(&mut self, id: u64) {
        while self.violation.is_none() {
            self.observe(id, false);
            let Some(effects) = self.process(id).and_then(|p| p.consensus.drain()) else {
                break;
            };
            self.take(id, effects);
        }
        if self.violation.is_some() {
            return;
        }
        self.apply_early(id);
        self.begin_snapshot(id);
        self.begin_sync(id);
        self.check_order(id);
        self.take_over(id);
    }

    fn take(&mut self, id: u64, effects: Effects) {
        self.note_votes(id, &effects.send_after_sync);
        let Some(mut process) = self.node(id).process.take() else {
            return;
        };
        let mut send = effects.send_now;
        let mut after_sync = effects.send_after_sync;
        self.extend_log(id, &mut process, effects.snapshot.as_ref(), &effects.append);
        if let Some(state) = effects.hard_state {
            process.log.write(&Written::HardState {
                term: state.term,
                vote: state.vote,
            });
        }
        if let Some(role) = effects.role {
            self.note(|_| {
                format!(
                    "{id}: {:?} in term {}, leader {:?}",
                    role.role, role.term, role.leader
                )
            });
        }
        for read in &effects.reads {
            self.mark(Mark::ReadIndex);
            if let Some(least) = process.reads.remove(&read.id)
                && read.index < least
            {
                self.broken(format!(
                    "node {id} reads at {} what was committed up to {least} before",
                    read.index
                ));
            }
        }
        let mut hard_state = effects.hard_state;
        let mut too_early = |wanted: &[MessageKind]| {
            let (early, late): (Vec<_>, Vec<_>) = std::mem::take(&mut after_sync)
                .into_iter()
                .partition(|message| wanted.contains(&message.kind));
            after_sync = late;
            send.extend(early);
        };
        if self.has_bug(SeededBug::B01) {
            too_early(&[MessageKind::AppendResponse]);
        }
        if self.has_bug(SeededBug::B02) {
            hard_state = None;
            too_early(&[MessageKind::Vote, MessageKind::VoteResponse]);
        }
        let install = effects.snapshot.as_ref().and_then(|point| {
            let received = process.received.take()?;
            (received.info.meta.index == point.index).then_some(received)
        });
        if effects.snapshot.is_some() && install.is_none() {
            self.broken(format!(
                "node {id} is to install a snapshot that it never received"
            ));
        }
        let is_idle = process.queue.is_empty() && process.in_flight.is_empty();
        if effects.must_sync || !is_idle {
            let hint = process.commit_hint.take();
            process.queue.push_back(Batch {
                token: Some(effects.token),
                append: effects.append,
                hard_state,
                commit: effects.commit.or(hint),
                install,
                send: after_sync,
                is_appended: false,
            });
            if self.has_bug(SeededBug::B04) && process.consensus.status().role == Role::Leader {
                process.consensus.persisted(effects.token);
            }
        } else {
            process.commit_hint = effects.commit.or(process.commit_hint);
            process.consensus.persisted(effects.token);
            send.extend(after_sync);
        }
        process.wants_snapshot |= !effects.wants_snapshot.is_empty();
        self.node(id).process = Some(process);
        self.observe(id, true);
        self.send_all(id, send);
        self.apply(id, effects.committed);
    }

    /// Entries go into the log that the node will have once it has synced them.
    fn extend_log(
        &mut self,
        id: u64,
        process: &mut Process,
        snapshot: Option<&SnapshotPoint>,
        append: &[Entry],
    ) {
        if let Some(point) = snapshot {
            process.log.write(&Written::Installed {
                index: point.index,
                term: point.term,
            });
            let node = self.node(id);
            node.entries.clear();
            // Its tail contradicted the snapshot: no leader counts on it any more.
            node.acknowledged.split_off(&(point.index + 1));
        }
        for entry in append {
            let position = (entry.index, entry.term);
            if let Some((term, _)) = process.log.entry(entry.index) {
                if term < entry.term {
                    self.mark(Mark::OlderTermReplaced);
                }
                let node = self.node(id);
                node.acknowledged.split_off(&entry.index);
                node.replaced = node.entries.split_off(&entry.index);
            }
            if process.log.term_at(entry.index - 1).is_none() {
                self.broken(format!("node {id} appends entry {position:?} behind a gap"));
                return;
            }
            let content = content_of(entry);
            process.log.write(&Written::Entry {
                index: entry.index,
                term: entry.term,
                content,
            });
            self.node(id).entries.insert(entry.index, entry.clone());
        }
    }

    /// Log matching, of what is durable somewhere or has left its node: what a node makes and loses
    /// before that has never been.
    fn log_matches(&mut self, id: u64, entry: &Entry, before: u64) {
        let position = (entry.index, entry.term);
        let outcome = self.truth.appended(id, position, content_of(entry), before);
        self.hold(outcome);
    }

    /// Messages leave. What they promise is kept in mind, whatever becomes of the process.
    fn send_all(&mut self, id: u64, messages: Vec<PeerMessage>) {
        for message in messages {
            let mut before = message.log_term;
            for entry in &message.entries {
                self.log_matches(id, entry, before);
                before = entry.term;
            }
            let node = self.node(id);
            let log = node.process.as_ref().map(|process| &process.log);
            match message.kind {
                MessageKind::VoteResponse if !message.reject => {
                    node.promised = (message.term, message.to);
                }
                MessageKind::AppendResponse if !message.reject => {
                    let known = node.acknowledged.last_key_value();
                    let known = known.map_or(0, |(index, _)| *index);
                    for index in known + 1..=message.index {
                        // What a newer leader has replaced since, only an older one counts on.
                        if let Some((term, _)) = log.and_then(|log| log.entry(index))
                            && term <= message.term
                        {
                            node.acknowledged.insert(index, term);
                        }
                    }
                }
                MessageKind::PreVote | MessageKind::PreVoteResponse => {}
                _ if message.term > node.promised.0 => node.promised = (message.term, 0),
                _ => {}
            }
            self.send(message);
        }
    }

    /// Committed entries are applied, in order.
    fn apply(&mut self, id: u64, committed: Vec<Entry>) {
        if committed.is_empty() || self.violation.is_some() {
            return;
        }
        let Some(mut process) = self.node(id).process.take() else {
            return;
        };
        for entry in committed {
            if entry.index != process.applied + 1 {
                let applied = process.applied;
                self.broken(format!(
                    "node {id} is to apply entry {} after {applied}",
                    entry.index
                ));
                break;
            }
            process.applied = entry.index;
            self.apply_one(id, &mut process, &entry);
            if let Err(error) = process.consensus.applied(entry.index) {
                self.broken(format!("node {id}: {error}"));
            }
            if self.violation.is_some() {
                break;
            }
        }
        self.node(id).process = Some(process);
    }

    fn apply_one(&mut self, id: u64, process: &mut Process, entry: &Entry) {
        match entry.kind {
            EntryKind::Noop => {}
            EntryKind::Command if entry.index <= process.early => {}
            EntryKind::Command => self.apply_command(id, process, entry),
            EntryKind::Configuration => self.apply_change(id, process, entry),
        }
        if process.early <= entry.index {
            let outcome = self.truth.digest(id, entry.index, process.tree.digest());
            self.hold(outcome);
        }
    }

    pub(crate) fn apply_command(&mut self, id: u64, process: &mut Process, entry: &Entry) {
        if let Some(membership) = super::early::simple_change(&entry.payload) {
            self.apply_simple_change(id, process, entry.index, membership);
            return;
        }
        match Commands::decode(&entry.payload) {
            Ok(batch) => process.tree.apply_batch(&batch, &mut (), |_, _| {}),
            Err(error) => self.broken(format!("node {id}, entry {}: {error}", entry.index)),
        }
    }

    fn apply_change(&mut self, id: u64, process: &mut Process, entry: &Entry) {
        let index = entry.index;
        let Ok(change) = MembershipChange::decode(&entry.payload) else {
            self.broken(format!(
                "node {id}: the change of entry {index} cannot be read"
            ));
            return;
        };
        let before = process.consensus.membership().clone();
        let believed = self
            .node(id)
            .belief
            .as_ref()
            .is_some_and(|belief| index <= belief.up_to);
        let accepts = change.context != REFUSED && !believed;
        let expected = if accepts {
            members::after(&before, &change)
        } else {
            before.clone()
        };
        let now = match process.consensus.apply_change(index, &change, accepts) {
            Ok(now) => now.clone(),
            Err(error) => {
                self.broken(format!("node {id}: {error}"));
                return;
            }
        };
        if now != expected {
            self.broken(format!(
                "node {id} comes to the members {now:?} and not {expected:?}"
            ));
        }
        if !believed {
            let outcome = self.truth.membership(id, index, &now);
            self.hold(outcome);
        }
        self.note(|_| format!("{id}: applies change {index}: {}", in_words(&now)));
        self.mark_change(id, process, (&before, &now), entry, accepts);
        let life = self.node(id).life;
        self.timeline
            .after(1_500 * MS_US, Event::Prune { node: id, life });
    }

    fn mark_change(
        &mut self,
        id: u64,
        process: &mut Process,
        (before, now): (&Membership, &Membership),
        entry: &Entry,
        accepted: bool,
    ) {
        if !accepted {
            self.mark(Mark::ChangeRefusedAtApply);
        }
        if now.is_joint() && !before.is_joint() {
            process.joint_term = entry.term;
            self.mark(Mark::JointEntered);
            let lacks = |of: &[u64], others: &[u64]| {
                of.iter().filter(|id| !others.contains(id)).count() > 1
            };
            if lacks(&now.voters, &before.voters) || lacks(&before.voters, &now.voters) {
                self.mark(Mark::SeveralVotersChanged);
            }
            let moved = now.members.iter().any(|member| {
                let same = |known: &&Member| known.id == member.id;
                let known = before.members.iter().find(same);
                let is_elsewhere = known.is_some_and(|known| known.address != member.address);
                is_elsewhere
                    && before.voters.contains(&member.id)
                    && now.voters.contains(&member.id)
            });
            if moved {
                self.mark(Mark::VoterMoved);
            }
        }
        if before.is_joint() && !now.is_joint() {
            self.mark(Mark::JointLeft);
            if process.joint_term != 0 && process.joint_term != entry.term {
                self.mark(Mark::JointLeftByAnother);
            }
        }
        if before.voters.len() == 1 && now.voters.len() > 1 {
            self.mark(Mark::SoleVoterGrew);
        }
        if process.consensus.status().role == Role::Leader && before.votes(id) && !now.votes(id) {
            self.mark(Mark::LeaderRemoved);
        }
        let first = self.nodes.len() as u128;
        let replaced = |member: &&baton_consensus::Member| {
            now.voters.contains(&member.id)
                && !before.voters.contains(&member.id)
                && member.incarnation >> 64 > first
        };
        if now.members.iter().any(|member| replaced(&member)) {
            self.mark(Mark::FolderReplaced);
        }
    }

    /// What a node shows of itself, held against what is known of all.
    pub(crate) fn observe(&mut self, id: u64, is_drained: bool) {
        if self.violation.is_some() {
            return;
        }
        let Some(process) = self.nodes.get(&id).and_then(|node| node.process.as_ref()) else {
            return;
        };
        let status = process.consensus.status();
        let now = (
            status.term,
            process.consensus.commit_index(),
            process.applied,
        );
        let before = process.observed;
        if now.0 < before.0 || now.1 < before.1 || now.2 < before.2 {
            self.broken(format!(
                "node {id} goes back: term, commit index and applied index were {before:?} and are {now:?}"
            ));
            return;
        }
        // What a follower has just been sent is in its log once it is handed out.
        let commit = match is_drained || status.role == Role::Leader {
            true => now.1.min(process.log.last()),
            false => process.compared,
        };
        let (compared, base) = (process.compared, process.log.base);
        let entries: Vec<_> = (compared + 1..=commit)
            .map(|index| (index, process.log.entry(index)))
            .collect();
        let membership = match entries.is_empty() {
            true => Membership::default(),
            false => process.consensus.membership().clone(),
        };
        if let Some(process) = self.process(id) {
            process.observed = now;
            process.compared = compared.max(commit);
        }
        if status.role == Role::Leader {
            self.check_leader(id, status.term);
        }
        for (index, entry) in entries {
            match entry {
                Some(entry) => self.check_committed(id, index, entry, status.term, &membership),
                None if index <= base && index <= self.truth.commit() => {}
                None => self.broken(format!(
                    "node {id} counts entry {index} as committed and has none"
                )),
            }
        }
        self.end_rollback_when_filled(id);
    }

    fn check_leader(&mut self, id: u64, term: u64) {
        let Some(node) = self.nodes.get(&id) else {
            return;
        };
        let is_stored = |process: &Process| {
            let mut batches = process.queue.iter().chain(&process.in_flight);
            process.log.term == term && batches.all(|batch| batch.hard_state.is_none())
        };
        if !node.process.as_deref().is_some_and(is_stored) {
            // A sole voter leads by its own vote before that is durable, and nobody hears of it
            // until then (R02): a crash makes it as if it had not led.
            return;
        }
        let life = node.life;
        match self.truth.leads(term, id, life) {
            Err(what) => self.elected_wrongly(id, term, 0, what),
            Ok(false) => {}
            Ok(true) => {
                if self.handing_to.take() == Some(id) {
                    self.mark(Mark::HandedOver);
                }
                let lacking = self.nodes.get(&id).and_then(|node| {
                    let log = &node.process.as_ref()?.log;
                    let mut committed = log.base + 1..=self.truth.commit();
                    committed.find(|index| {
                        let owed = self.truth.owed_to(*index, term);
                        owed.is_some_and(|of| !log.has(*index, of))
                    })
                });
                if let Some(index) = lacking {
                    let what =
                        format!("node {id} leads term {term} without committed entry {index}");
                    self.elected_wrongly(id, term, index, what);
                }
                let leads = |node: &&super::node::Node| {
                    let status = node.process.as_ref().map(|p| p.consensus.status());
                    status.is_some_and(|status| status.role == Role::Leader)
                };
                if self.nodes.values().filter(leads).count() > 1 {
                    self.mark(Mark::TwoLeaders);
                }
            }
        }
    }

    /// An entry that a node counts as committed: the same as everywhere; when it is news, on the
    /// disks of a majority, and in the log of every newer leader.
    pub(crate) fn check_committed(
        &mut self,
        id: u64,
        index: u64,
        entry: (u64, u32),
        term: u64,
        membership: &Membership,
    ) {
        if let Err(what) = self.truth.agrees(id, index, entry) {
            self.elected_wrongly(id, term, index, what);
        }
        if index <= self.truth.commit() || !self.is_judged() {
            return;
        }
        if !members::is_quorum(membership, |node| self.is_durable_at(node, index, entry.0)) {
            self.broken(format!(
                "node {id} counts entry {index} of term {} as committed, which is not on the disks of a majority of {}",
                entry.0,
                in_words(membership)
            ));
        }
        if entry.0 < term {
            self.mark(Mark::OlderTermCommitted);
        }
        let lacks = |node: &&super::node::Node| {
            node.process.as_ref().is_some_and(|process| {
                let status = process.consensus.status();
                status.role == Role::Leader
                    && status.term > term
                    && !process.log.has(index, entry.0)
            })
        };
        if let Some(node) = self.nodes.values().find(lacks) {
            let leader = node.id;
            let newer = node.process.as_ref().map(|it| it.consensus.status().term);
            let what = format!(
                "node {id} counts entry {index} as committed, which node {leader}, a newer leader, lacks"
            );
            self.elected_wrongly(leader, newer.unwrap_or(0), index, what);
        }
        self.truth.commit_next(entry, term);
    }

    /// Purged ≤ snapshot ≤ applied ≤ committed ≤ last.
    fn check_order(&mut self, id: u64) {
        let Some(process) = self.process(id) else {
            return;
        };
        if process.is_installing() || process.early > process.applied {
            return;
        }
        let order = [
            process.wal.first_index().saturating_sub(1),
            process.snapshot_index,
            process.applied,
            process.consensus.commit_index(),
            process.consensus.last_index(),
        ];
        if !order.is_sorted() {
            self.broken(format!(
                "node {id}: purged, snapshot, applied, committed, last are {order:?}"
            ));
        }
    }

    /// The log task takes all that waits into one sync.
    pub(crate) fn begin_sync(&mut self, id: u64) {
        let now_us = self.timeline.now_us();
        let sync_us = self.swarm.sync_us;
        let is_waiting =
            |process: &&mut Process| process.in_flight.is_empty() && !process.queue.is_empty();
        if self
            .process(id)
            .as_ref()
            .is_none_or(|process| !is_waiting(process))
        {
            return;
        }
        let latency_us = if self.is_calm {
            500
        } else {
            self.between(sync_us)
        };
        let node = self.node(id);
        let (life, stalled_until_us) = (node.life, node.stalled_until_us);
        let Some(process) = node.process.as_mut() else {
            return;
        };
        process.in_flight = std::mem::take(&mut process.queue).into();
        let done_us = (now_us + latency_us).max(stalled_until_us);
        if done_us > now_us + SECOND_US {
            self.mark(Mark::SyncStalled);
        }
        self.timeline.at(done_us, Event::Synced { node: id, life });
    }

    /// The sync is complete, or has failed.
    pub(crate) fn synced(&mut self, id: u64) {
        let Some(mut process) = self.node(id).process.take() else {
            return;
        };
        let outcome = process.write_in_flight();
        let in_flight = match &outcome {
            Ok(()) => std::mem::take(&mut process.in_flight),
            Err(_) => Vec::new(),
        };
        self.node(id).process = Some(process);
        match outcome {
            Ok(()) => {}
            Err(WalError::NoSpace {
                retryable: true, ..
            }) => {
                self.mark(Mark::DiskFull);
                let life = self.node(id).life;
                self.timeline
                    .after(100 * MS_US, Event::Synced { node: id, life });
                return;
            }
            Err(error) => {
                self.disk_failed(id, &error);
                return;
            }
        }
        for batch in in_flight {
            let node = self.node(id);
            for written in batch.written(&node.image) {
                node.image.write(&written);
            }
            for entry in &batch.append {
                let before = self.node(id).image.term_at(entry.index - 1);
                self.log_matches(id, entry, before.unwrap_or(0));
            }
            let Some(process) = self.process(id) else {
                return;
            };
            if let Some(token) = batch.token {
                process.consensus.persisted(token);
            }
            if let Some(received) = batch.install {
                self.install(id, *received);
            }
            self.send_all(id, batch.send);
            if self.violation.is_some() {
                return;
            }
        }
        self.settle(id);
        self.believe_in_appended(id);
    }

    /// A disk reported an error: the process ends, and finds out at its next start what is there.
    pub(crate) fn disk_failed(&mut self, id: u64, error: &WalError) {
        let is_injected = matches!(
            error,
            WalError::Io { .. } | WalError::Poisoned { .. } | WalError::NoSpace { .. }
        );
        if !self.node(id).disk_breaks || !is_injected {
            self.broken(format!("node {id}: {error}"));
            return;
        }
        self.mark(Mark::DiskFailed);
        self.note(|_| format!("{id}: its disk fails: {error}"));
        self.stop(id, End::Killed);
        self.start_later(id, 300 * MS_US);
    }

    /// A received snapshot is durable and marked: its tree takes the place of ours.
    fn install(&mut self, id: u64, received: super::node::Received) {
        let index = received.info.meta.index;
        let Some(process) = self.process(id) else {
            return;
        };
        process.tree = received.tree;
        process.applied = index;
        process.snapshot_index = index;
        process.own_snapshot = None;
        process.early = process.early.max(index);
        let outcome = process.consensus.applied(index);
        let digest = process.tree.digest();
        let membership = process.consensus.membership().clone();
        if let Err(error) = outcome {
            self.broken(format!("node {id}: {error}"));
        }
        self.mark(Mark::SnapshotInstalled);
        self.note(|_| format!("{id}: installs a snapshot of entry {index}"));
        let outcome = self.truth.digest(id, index, digest);
        self.hold(outcome);
        let outcome = self.truth.membership_at(id, index, &membership);
        self.hold(outcome);
    }

    /// A snapshot is due: the tree's slices are taken now, and written later.
    fn begin_snapshot(&mut self, id: u64) {
        let every = self.swarm.snapshot_every;
        let node = self.node(id);
        let life = node.life;
        let Some(process) = node.process.as_mut() else {
            return;
        };
        let since = process.applied - process.snapshot_index;
        let is_due = since >= every || (process.wants_snapshot && since > 0);
        // B03 has applied more than the log says.
        let is_due = is_due && process.early <= process.applied;
        if !is_due
            || process.own_snapshot.is_some()
            || process.is_installing()
            || process.applied == 0
        {
            return;
        }
        process.wants_snapshot = false;
        let mut chunks = Vec::new();
        if process.tree.begin_snapshot().is_ok() {
            while let Some(chunk) = process.tree.snapshot_slice(1 << 12) {
                chunks.push(chunk);
            }
        }
        let point = process.consensus.snapshot_point();
        process.own_snapshot = Some(OwnSnapshot {
            point,
            zxid: process.tree.zxid(),
            chunks,
        });
        let delay_us = self.rng.u64(1..40) * MS_US;
        self.timeline
            .after(delay_us, Event::SnapshotWritten { node: id, life });
    }

    /// The snapshot is written, synced, and known to log and consensus.
    pub(crate) fn write_snapshot(&mut self, id: u64) {
        let Some(process) = self.process(id) else {
            return;
        };
        let Some(own) = process.own_snapshot.take() else {
            return;
        };
        if process.is_installing() {
            return;
        }
        let index = own.point.index;
        let written = (|| {
            let mut writer = process.wal.snapshots().writer(SnapshotMeta {
                index,
                term: own.point.term,
                zxid: own.zxid,
                time_ms: 0,
                membership: own.point.membership.encode(),
            })?;
            for chunk in &own.chunks {
                writer.chunk(0, chunk)?;
            }
            writer.finish()
        })();
        let saved = match written {
            Ok(info) => process.wal.snapshot_saved(&info),
            // The log is usable whatever becomes of a snapshot.
            Err(_) => return,
        };
        process.snapshot_index = index;
        process.consensus.snapshot_saved(own.point.clone());
        let outcome = self.truth.membership_at(id, index, &own.point.membership);
        self.hold(outcome);
        match saved {
            Ok(()) | Err(WalError::NoSpace { .. } | WalError::Io { .. }) => self.settle(id),
            Err(error) => self.disk_failed(id, &error),
        }
    }
}

/// A membership in few words.
pub(crate) fn in_words(membership: &Membership) -> String {
    let mut text = format!("voters {:?}", membership.voters);
    let parts: VecDeque<(&str, &Vec<u64>)> = VecDeque::from([
        ("outgoing", &membership.outgoing),
        ("learners", &membership.learners),
        ("next learners", &membership.learners_next),
    ]);
    for (name, ids) in parts {
        if !ids.is_empty() {
            text.push_str(&format!(", {name} {ids:?}"));
        }
    }
    text
}
