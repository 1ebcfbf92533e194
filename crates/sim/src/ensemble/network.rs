//! Connections, their generations, cuts. Says whether a message can get through; never what is in
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use baton_consensus::{MessageKind, PeerMessage, Position};
use baton_wal::SnapshotMeta;
use bytes::Bytes;

/// What a node says of itself when a connection begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hello {
    pub(crate) id: u64,
    pub(crate) incarnation: u128,
    /// Whoever has applied more knows the newer membership.
    pub(crate) applied: u64,
    /// Whether it is a member in its own membership.
    pub(crate) is_member: bool,
    /// Names its process.
    pub(crate) run: u64,
    /// Its durable term.
    pub(crate) term: u64,
    /// Its last durable entry.
    pub(crate) last: u64,
    /// The newest entry that it knows to be committed.
    pub(crate) commit: Position,
    /// The newest entry that it knows to have acknowledged and lost; 0 for none.
    pub(crate) lost: u64,
}

/// A snapshot as it travels.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) meta: SnapshotMeta,
    pub(crate) chunks: Vec<(u8, Bytes)>,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Envelope {
    pub(crate) message: PeerMessage,
    pub(crate) content: Option<Arc<Content>>,
    pub(crate) generation: u64,
    /// The lives in which it was sent, and for which it is.
    pub(crate) from_life: u64,
    pub(crate) to_life: u64,
    /// What the sender said when the connection began.
    pub(crate) hello: Hello,
}

impl Envelope {
    pub(crate) fn way(&self) -> (u64, u64) {
        (self.message.from, self.message.to)
    }
}

/// The connection of two nodes.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    pub(crate) generation: u64,
    /// What both have said, by id; empty while there is no connection.
    pub(crate) hellos: BTreeMap<u64, Hello>,
    /// Whether the next attempt to connect is planned.
    pub(crate) is_dialing: bool,
}

/// Everything between the nodes.
#[derive(Debug, Default)]
pub(crate) struct Network {
    connections: BTreeMap<(u64, u64), Connection>,
    generations: u64,
    cuts: BTreeMap<u64, BTreeSet<(u64, u64)>>,
    cuts_made: u64,
    /// When the newest message of a lane arrives.
    lanes: BTreeMap<(u64, u64, u64, u8), u64>,
    /// Connections that have ended, and deliver nothing any more.
    silent: BTreeSet<u64>,
    /// What waits for the end of a cut.
    pub(crate) held: Vec<Envelope>,
}

fn pair(one: u64, other: u64) -> (u64, u64) {
    (one.min(other), one.max(other))
}

/// Small messages do not wait behind large ones.
fn lane(kind: MessageKind) -> u8 {
    match kind {
        MessageKind::Append | MessageKind::AppendResponse => 1,
        MessageKind::Snapshot => 2,
        _ => 0,
    }
}

impl Network {
    pub(crate) fn connection(&mut self, one: u64, other: u64) -> &mut Connection {
        self.connections.entry(pair(one, other)).or_default()
    }

    /// The generation of the connection of two nodes, while there is one.
    pub(crate) fn generation(&self, one: u64, other: u64) -> Option<u64> {
        let connection = self.connections.get(&pair(one, other))?;
        (!connection.hellos.is_empty()).then_some(connection.generation)
    }

    pub(crate) fn connect(&mut self, one: Hello, other: Hello) {
        self.generations += 1;
        let generation = self.generations;
        let connection = self.connection(one.id, other.id);
        connection.generation = generation;
        connection.hellos = BTreeMap::from([(one.id, one), (other.id, other)]);
    }

    /// Ends the connection of two nodes; its generation, if there was one.
    pub(crate) fn disconnect(&mut self, one: u64, other: u64) -> Option<u64> {
        let generation = self.generation(one, other)?;
        self.connection(one, other).hellos.clear();
        self.lanes.retain(|(_, _, of, _), _| *of != generation);
        Some(generation)
    }

    /// What this connection has not delivered is lost.
    pub(crate) fn drop_generation(&mut self, generation: u64) {
        self.silent.insert(generation);
        self.held
            .retain(|envelope| envelope.generation != generation);
    }

    pub(crate) fn is_silent(&self, generation: u64) -> bool {
        self.silent.contains(&generation)
    }

    pub(crate) fn cut(&mut self, ways: BTreeSet<(u64, u64)>) -> u64 {
        self.cuts_made += 1;
        self.cuts.insert(self.cuts_made, ways);
        self.cuts_made
    }

    pub(crate) fn heal(&mut self, cut: u64) {
        self.cuts.remove(&cut);
    }

    pub(crate) fn heal_all(&mut self) {
        self.cuts.clear();
    }

    /// The ways that a cut covers, while it lasts.
    pub(crate) fn ways_of(&self, cut: u64) -> Vec<(u64, u64)> {
        let ways = self.cuts.get(&cut).into_iter().flatten();
        ways.copied().collect()
    }

    pub(crate) fn is_cut(&self, from: u64, to: u64) -> bool {
        self.cuts.values().any(|ways| ways.contains(&(from, to)))
    }

    /// What was held and can go on now.
    pub(crate) fn release(&mut self) -> Vec<Envelope> {
        let held = std::mem::take(&mut self.held);
        let (held, free) = held.into_iter().partition(|envelope| {
            let (from, to) = envelope.way();
            self.is_cut(from, to)
        });
        self.held = held;
        free
    }

    /// When a message that would arrive at `at_us` does: after what was sent before it in its lane.
    pub(crate) fn arrival(&mut self, message: &PeerMessage, generation: u64, at_us: u64) -> u64 {
        let key = (message.from, message.to, generation, lane(message.kind));
        let newest = self.lanes.entry(key).or_insert(0);
        *newest = at_us.max(*newest + 1);
        *newest
    }
}
