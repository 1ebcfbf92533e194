//! Several nodes, each with a disk that keeps what was synced, and the messages between them. A
//! test decides what is drained, synced, delivered, cut and crashed, and when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use baton_consensus::{
    Config, Consensus, Effects, Entry, EntryKind, HardState, Member, Membership, MembershipChange,
    MessageKind, PeerMessage, PersistToken, Recovered, Role, SnapshotPoint, StepError,
};
use bytes::Bytes;

/// Durable state of one node.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    pub entries: Vec<Entry>,
    pub hard_state: HardState,
    pub commit: u64,
    pub snapshot: Option<SnapshotPoint>,
}

impl Disk {
    fn base(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |point| point.index)
    }

    fn write(&mut self, batch: &Batch) {
        if let Some(point) = &batch.snapshot {
            self.entries.clear();
            self.snapshot = Some(point.clone());
            self.commit = self.commit.max(point.index);
        }
        if let Some(first) = batch.append.first() {
            let keep = usize::try_from(first.index - self.base() - 1).unwrap();
            self.entries.truncate(keep);
            self.entries.extend(batch.append.iter().cloned());
        }
        if let Some(hard_state) = batch.hard_state {
            self.hard_state = hard_state;
        }
        self.commit = self.commit.max(batch.commit);
    }
}

/// Output of one drain: what is to be stored, and what may be sent once it is.
#[derive(Debug)]
struct Batch {
    token: PersistToken,
    append: Vec<Entry>,
    hard_state: Option<HardState>,
    commit: u64,
    snapshot: Option<SnapshotPoint>,
    send: Vec<PeerMessage>,
}

pub struct Node {
    pub consensus: Consensus,
    pub disk: Disk,
    batches: VecDeque<Batch>,
    /// Commands, in the order in which they were applied; `+` before what a snapshot has brought.
    pub applied: Vec<String>,
    pub applied_index: u64,
    pub reads: Vec<u64>,
    pub wants_snapshot: BTreeSet<u64>,
    pub refused: Vec<StepError>,
    /// Kept so that a snapshot can carry the state.
    config: Config,
}

#[derive(Default)]
pub struct Cluster {
    pub nodes: BTreeMap<u64, Node>,
    down: BTreeMap<u64, (Disk, Config)>,
    pub network: VecDeque<PeerMessage>,
    cuts: BTreeSet<(u64, u64)>,
    /// The commands that a snapshot of this index stands for.
    states: BTreeMap<u64, Vec<String>>,
}

pub fn member(id: u64) -> Member {
    Member {
        id,
        incarnation: u128::from(id) << 64,
        address: format!("server.{id}"),
    }
}

impl Cluster {
    /// Nodes 1 to `voters`, born with a snapshot of index 1 that names them as voters.
    pub fn new(voters: u64, seed: u64) -> Cluster {
        Cluster::with_window(voters, seed, Config::member(1, seed).window_bytes)
    }

    /// [`Cluster::new`] with this limit for applied entries in memory.
    pub fn with_window(voters: u64, seed: u64, window_bytes: u64) -> Cluster {
        let mut cluster = Cluster::default();
        let membership = Membership {
            voters: (1..=voters).collect(),
            members: (1..=voters).map(member).collect(),
            ..Membership::default()
        };
        for id in 1..=voters {
            let config = Config {
                window_bytes,
                ..Config::member(id, seed)
            };
            cluster.start(config, born(membership.clone()));
        }
        cluster
    }

    /// A node that belongs to nobody yet.
    pub fn add(&mut self, id: u64, seed: u64) {
        self.start(Config::member(id, seed), Disk::default());
    }

    fn start(&mut self, config: Config, disk: Disk) {
        let recovered = Recovered {
            snapshot: disk.snapshot.clone(),
            hard_state: disk.hard_state,
            commit: disk.commit,
            entries: disk.entries.clone(),
        };
        let base = disk.base();
        let node = Node {
            consensus: Consensus::new(&config, recovered).unwrap(),
            disk,
            batches: VecDeque::new(),
            applied: self.states.get(&base).cloned().unwrap_or_default(),
            applied_index: base,
            reads: Vec::new(),
            wants_snapshot: BTreeSet::new(),
            refused: Vec::new(),
            config,
        };
        self.nodes.insert(node.config.node_id, node);
    }

    pub fn node(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    /// Everything that was not synced is lost.
    pub fn crash(&mut self, id: u64) {
        let node = self.nodes.remove(&id).unwrap();
        self.network.retain(|message| message.to != id);
        self.down.insert(id, (node.disk, node.config));
    }

    pub fn restart(&mut self, id: u64) {
        let (disk, config) = self.down.remove(&id).unwrap();
        self.start(config, disk);
    }

    /// [`Cluster::restart`] with another content of the disk.
    pub fn restart_with(&mut self, id: u64, disk: Disk) {
        let (_, config) = self.down.remove(&id).unwrap();
        self.start(config, disk);
    }

    /// No message goes from one to the other from now on, and those on the way are lost.
    pub fn cut(&mut self, from: u64, to: u64) {
        self.cuts.insert((from, to));
        self.network
            .retain(|message| (message.from, message.to) != (from, to));
    }

    pub fn isolate(&mut self, id: u64) {
        for other in 1..=9 {
            self.cut(id, other);
            self.cut(other, id);
        }
    }

    pub fn heal(&mut self) {
        self.cuts.clear();
    }

    fn send(&mut self, messages: Vec<PeerMessage>) {
        for message in messages {
            let (from, to) = (message.from, message.to);
            if !self.cuts.contains(&(from, to)) && self.nodes.contains_key(&to) {
                self.network.push_back(message);
            }
        }
    }

    /// Takes what the node has to do now: committed entries are applied, what it may send at once
    /// is sent, and what is to be stored waits for [`Cluster::sync`].
    pub fn drain(&mut self, id: u64) -> bool {
        let mut any = false;
        while let Some(effects) = self.node(id).consensus.drain() {
            any = true;
            let Effects {
                token,
                append,
                hard_state,
                commit,
                committed,
                reads,
                send_now,
                send_after_sync,
                snapshot,
                wants_snapshot,
                must_sync,
                ..
            } = effects;
            assert_eq!(
                must_sync,
                !append.is_empty() || hard_state.is_some() || snapshot.is_some()
            );
            let node = self.nodes.get_mut(&id).unwrap();
            node.reads.extend(reads.iter().map(|read| read.index));
            node.wants_snapshot.extend(wants_snapshot);
            node.batches.push_back(Batch {
                token,
                append,
                hard_state,
                commit: commit.unwrap_or(0),
                snapshot,
                send: send_after_sync,
            });
            node.apply(committed);
            self.send(send_now);
        }
        any
    }

    /// The oldest batch of the node reaches its disk.
    pub fn sync_one(&mut self, id: u64) -> bool {
        let node = self.nodes.get_mut(&id).unwrap();
        let Some(batch) = node.batches.pop_front() else {
            return false;
        };
        node.disk.write(&batch);
        node.consensus.persisted(batch.token);
        if let Some(point) = batch.snapshot {
            node.applied = self.states.get(&point.index).cloned().unwrap_or_default();
            node.applied_index = point.index;
            node.consensus.applied(point.index).unwrap();
        }
        self.send(batch.send);
        true
    }

    /// The last entry of the batch that is synced next; 0 where it has none.
    pub fn next_to_sync(&self, id: u64) -> Option<u64> {
        let batch = self.nodes[&id].batches.front()?;
        Some(batch.append.last().map_or(0, |entry| entry.index))
    }

    /// Returns whether the batch that is synced next brings a snapshot.
    pub fn is_snapshot_next(&self, id: u64) -> bool {
        let batch = self.nodes[&id].batches.front();
        batch.is_some_and(|batch| batch.snapshot.is_some())
    }

    pub fn sync(&mut self, id: u64) {
        while self.sync_one(id) {}
    }

    /// Delivers the oldest message; a snapshot's arrival is reported to its sender.
    pub fn deliver_one(&mut self) -> Option<PeerMessage> {
        let message = self.network.pop_front()?;
        let snapshot = message.snapshot.is_some();
        let node = self.nodes.get_mut(&message.to)?;
        if let Err(refused) = node.consensus.step(message.clone()) {
            node.refused.push(refused);
        }
        if snapshot && let Some(sender) = self.nodes.get_mut(&message.from) {
            sender.consensus.report_snapshot(message.to, true);
        }
        Some(message)
    }

    /// Drains, syncs and delivers until nothing is left to do; what was delivered, in order.
    pub fn settle(&mut self) -> Vec<PeerMessage> {
        let mut delivered = Vec::new();
        loop {
            let mut any = false;
            for id in self.nodes.keys().copied().collect::<Vec<_>>() {
                any |= self.drain(id);
                any |= self.sync_one(id);
            }
            while let Some(message) = self.deliver_one() {
                delivered.push(message);
                any = true;
            }
            assert!(delivered.len() < 100_000, "the nodes never come to rest");
            if !any {
                return delivered;
            }
        }
    }

    /// One tick of every node, and what comes of it.
    pub fn tick(&mut self) -> Vec<PeerMessage> {
        for node in self.nodes.values_mut() {
            node.consensus.tick();
        }
        self.settle()
    }

    /// The ticks between two heartbeats of a leader that has nothing to say, and what comes of
    /// them.
    pub fn heartbeat(&mut self) {
        for _ in 0..2 * Config::member(1, 1).heartbeat_ticks {
            self.tick();
        }
    }

    /// Ticks until one node leads and all that can hear of it follow; how many ticks that took.
    pub fn until_leader(&mut self, at_most: u32) -> Option<(u64, u32)> {
        for ticks in 0..=at_most {
            let leaders = self.leaders();
            if let [leader] = leaders[..] {
                return Some((leader, ticks));
            }
            self.tick();
        }
        None
    }

    pub fn leaders(&self) -> Vec<u64> {
        let newest = self
            .nodes
            .values()
            .map(|node| node.consensus.status().term)
            .max();
        let leads = |node: &&Node| {
            let status = node.consensus.status();
            status.role == Role::Leader && Some(status.term) == newest
        };
        self.nodes
            .values()
            .filter(leads)
            .map(|node| node.config.node_id)
            .collect()
    }

    pub fn campaign(&mut self, id: u64) {
        self.node(id).consensus.campaign().unwrap();
        self.settle();
    }

    pub fn propose(&mut self, id: u64, text: &str) {
        let payload = bytes::Bytes::copy_from_slice(text.as_bytes());
        self.node(id).consensus.propose(payload).unwrap();
    }

    /// A snapshot of what the node has applied, which it can send from now on.
    pub fn save_snapshot(&mut self, id: u64) {
        let node = self.nodes.get_mut(&id).unwrap();
        let point = node.consensus.snapshot_point();
        self.states.insert(point.index, node.applied.clone());
        let kept = point.index - node.disk.base();
        node.disk.entries.drain(..usize::try_from(kept).unwrap());
        node.disk.snapshot = Some(point.clone());
        node.consensus.snapshot_saved(point);
    }
}

fn born(membership: Membership) -> Disk {
    Disk {
        hard_state: HardState { term: 1, vote: 0 },
        commit: 1,
        snapshot: Some(SnapshotPoint {
            index: 1,
            term: 1,
            membership,
        }),
        ..Disk::default()
    }
}

impl Node {
    fn apply(&mut self, committed: Vec<Entry>) {
        for entry in committed {
            assert_eq!(entry.index, self.applied_index + 1, "applied in order");
            self.applied_index = entry.index;
            match entry.kind {
                EntryKind::Noop => {}
                EntryKind::Command => {
                    let text = String::from_utf8(entry.payload.to_vec()).unwrap();
                    self.applied.push(text);
                }
                EntryKind::Configuration => {
                    let change = MembershipChange::decode(&entry.payload).unwrap();
                    let accept = change.context != "refuse me";
                    self.consensus
                        .apply_change(entry.index, &change, accept)
                        .unwrap();
                }
            }
        }
        self.consensus.applied(self.applied_index).unwrap();
    }
}

/// A message whose other fields have no meaning.
pub fn message(kind: MessageKind, from: u64, to: u64, term: u64) -> PeerMessage {
    PeerMessage {
        kind,
        from,
        to,
        term,
        log_term: 0,
        index: 0,
        commit: 0,
        commit_term: 0,
        request_snapshot: 0,
        reject: false,
        reject_hint: 0,
        context: Bytes::new(),
        entries: Vec::new(),
        snapshot: None,
    }
}
