//! The other servers, as this one has heard of them. Owns who is connected, who is silent, as which
//! process each was last heard and what it can read. Never sends, and judges nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use baton_peers::codec::{Clock, Hello};
use baton_tree::FormatLevel;

/// After this many ticks without a message of another server it counts as out of reach.
const SILENT_TICKS: u32 = 28;

/// The states of the other servers.
#[derive(Debug)]
pub(crate) struct PeerStates {
    tick: Duration,
    connected: BTreeSet<u64>,
    /// When each one last sent a message of the consensus.
    heard_at: BTreeMap<u64, Instant>,
    /// The process as which each one was last heard.
    runs: BTreeMap<u64, u64>,
    /// The format level that each one has said that it can read.
    levels: BTreeMap<u64, u32>,
    /// Those that can read a frame with this server's wall clock.
    clock_readers: BTreeSet<u64>,
}

impl PeerStates {
    /// Nobody has been heard of; ticks are `tick` apart.
    pub(crate) fn new(tick: Duration) -> Self {
        Self {
            tick,
            connected: BTreeSet::new(),
            heard_at: BTreeMap::new(),
            runs: BTreeMap::new(),
            levels: BTreeMap::new(),
            clock_readers: BTreeSet::new(),
        }
    }

    /// These servers are connected, and were heard of at `now`.
    #[cfg(test)]
    pub(crate) fn connected_to(ids: impl IntoIterator<Item = u64>, now: Instant) -> Self {
        let mut peers = Self::new(Duration::from_millis(25));
        peers.connected.extend(ids);
        peers.lead(now);
        peers
    }

    /// This server is connected to another one, which has said this of itself.
    pub(crate) fn connected(&mut self, id: u64, hello: &Hello) {
        self.connected.insert(id);
        self.levels.insert(id, hello.level);
        if hello.protocol.newest >= Clock::SINCE {
            self.clock_readers.insert(id);
        } else {
            self.clock_readers.remove(&id);
        }
    }

    pub(crate) fn disconnected(&mut self, id: u64) {
        self.connected.remove(&id);
    }

    pub(crate) fn is_connected(&self, id: u64) -> bool {
        self.connected.contains(&id)
    }

    pub(crate) fn all_connected(&self) -> &BTreeSet<u64> {
        &self.connected
    }

    /// A message of the consensus has come, or has to come from here on.
    pub(crate) fn heard(&mut self, id: u64, now: Instant) {
        self.heard_at.insert(id, now);
    }

    /// This server leads: until now, only the leader before has heard of the others.
    pub(crate) fn lead(&mut self, now: Instant) {
        let heard = self.connected.iter().map(|id| (*id, now));
        self.heard_at.extend(heard);
    }

    pub(crate) fn heard_at(&self, id: u64) -> Option<Instant> {
        self.heard_at.get(&id).copied()
    }

    /// Whether this server is connected, and has sent something lately: a leader hears of each
    /// other server every 4 or 8 ticks.
    pub(crate) fn hears(&self, id: u64, now: Instant) -> bool {
        let limit = self.tick * SILENT_TICKS;
        let is_recent = |at| now.saturating_duration_since(at) <= limit;
        self.is_connected(id) && self.heard_at(id).is_some_and(is_recent)
    }

    /// Another server has shown the number of its process; whether it has restarted since it was
    /// last heard.
    pub(crate) fn has_restarted(&mut self, id: u64, run: u64) -> bool {
        self.runs
            .insert(id, run)
            .is_some_and(|before| before != run)
    }

    /// Whether this server has said anything of itself.
    pub(crate) fn is_known(&self, id: u64) -> bool {
        self.runs.contains_key(&id)
    }

    pub(crate) fn levels(&self) -> &BTreeMap<u64, u32> {
        &self.levels
    }

    /// The newest level that this server and these others can read. Every server that can be one of
    /// several reads [`FormatLevel::Attachments`].
    pub(crate) fn level_of_all(&self, others: impl Iterator<Item = u64>) -> FormatLevel {
        let (least, newest) = (FormatLevel::Attachments, FormatLevel::NEWEST);
        let readable = |id| match self.levels.get(&id).copied().map(u64::from) {
            Some(level) if level >= newest.number() => newest,
            Some(level) => FormatLevel::from_number(level).map_or(least, |level| level.max(least)),
            None => least,
        };
        others.map(readable).fold(newest, FormatLevel::min)
    }

    /// The connected servers that can read a frame with this one's wall clock.
    pub(crate) fn clock_readers(&self) -> impl Iterator<Item = u64> {
        self.connected.intersection(&self.clock_readers).copied()
    }
}

#[cfg(test)]
mod tests {
    use baton_peers::codec::{Lane, LogProof, ProtocolRange};

    use super::*;

    const TICK: Duration = Duration::from_millis(25);

    fn with_levels(levels: &[(u64, u32)]) -> PeerStates {
        let mut peers = PeerStates::new(TICK);
        peers.levels.extend(levels.iter().copied());
        peers
    }

    #[test]
    fn r39_no_level_that_a_member_cannot_read() {
        let newest = u32::try_from(FormatLevel::NEWEST.number()).unwrap();
        let of = |levels: &[(u64, u32)], others: &[u64]| {
            with_levels(levels).level_of_all(others.iter().copied())
        };
        assert_eq!(of(&[], &[]), FormatLevel::NEWEST);
        // A server of a later version reads what this one does.
        let both = of(&[(2, newest), (3, newest + 1)], &[2, 3]);
        assert_eq!(both, FormatLevel::NEWEST);
        let least = FormatLevel::Attachments;
        assert_eq!(of(&[(2, newest), (3, 2)], &[2, 3]), least);
        assert_eq!(of(&[(3, newest)], &[2, 3]), least);
        assert_eq!(of(&[(2, 1), (3, newest)], &[2, 3]), least);
    }

    #[test]
    fn a_server_is_heard_while_it_is_connected_and_not_silent() {
        let now = Instant::now();
        let limit = TICK * SILENT_TICKS;
        let mut peers = PeerStates::new(TICK);
        peers.heard(2, now);
        assert!(!peers.hears(2, now), "not connected");
        peers.connected.extend([2, 3]);
        assert!(peers.hears(2, now + limit) && !peers.hears(2, now + limit + TICK));
        assert!(!peers.hears(3, now), "never heard");
        peers.lead(now + limit);
        assert!(peers.hears(2, now + limit * 2) && peers.hears(3, now + limit * 2));
        peers.disconnected(2);
        assert!(!peers.hears(2, now + limit) && peers.heard_at(2).is_some());
        assert!(peers.all_connected().iter().eq(&[3]));
    }

    fn hello(level: u32, newest: u16) -> Hello {
        Hello {
            protocol: ProtocolRange { oldest: 1, newest },
            lane: Lane::Urgent,
            nonce: 1,
            run: 1,
            cluster: 1,
            from: 2,
            to: 1,
            incarnation: 1,
            to_incarnation: 1,
            term: 1,
            membership_index: 1,
            last_index: 1,
            wall_ms: 0,
            level,
            address: String::new(),
            proof: LogProof::default(),
        }
    }

    /// Another version of it may have been started.
    #[test]
    fn what_a_server_can_read_is_what_its_newest_connection_says() {
        let mut peers = PeerStates::new(TICK);
        let newest = u32::try_from(FormatLevel::NEWEST.number()).unwrap();
        for (level, protocol, expected) in [
            (newest, Clock::SINCE, FormatLevel::NEWEST),
            (2, Clock::SINCE - 1, FormatLevel::Attachments),
            (newest, Clock::SINCE, FormatLevel::NEWEST),
        ] {
            peers.connected(2, &hello(level, protocol));
            assert_eq!(peers.level_of_all([2].into_iter()), expected);
            let reads_clocks = peers.clock_readers().next().is_some();
            assert_eq!(reads_clocks, protocol == Clock::SINCE);
            peers.disconnected(2);
        }
    }

    #[test]
    fn another_process_of_a_server_is_one_that_has_restarted() {
        let mut peers = PeerStates::new(TICK);
        assert!(!peers.is_known(2));
        assert!(!peers.has_restarted(2, 7) && !peers.has_restarted(2, 7));
        assert!(peers.has_restarted(2, 8) && peers.is_known(2));
    }
}
