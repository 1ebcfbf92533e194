//! Whether the servers have the same state (R39): each follower says once a second what its state
//! is after the newest entry that it has applied, less often while that is the same, and the
//! leader compares that with its own after that entry. Owns the judgement; never sends anything,
//! and never stops a server.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use baton_peers::codec::StateDigest;

/// Entries after which the state is remembered. A server that lags by more is compared once it has
/// caught up.
const MOST_KEPT: usize = 4096;

/// Interval at which a server says to the leader what its state is; the longer one where it is the
/// same as the last time: a message may have been lost.
const INTERVAL: Duration = Duration::from_secs(1);
const REPEAT_INTERVAL: Duration = Duration::from_secs(10);

/// A leader's knowledge of the others' states.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nobody has another state.
    Same,
    /// A majority has the leader's state. These servers have not: what to send to each.
    OthersDiffer(Vec<(u64, StateDigest)>),
    /// No majority has the leader's state, whatever those say that have not been heard.
    LeaderDiffers,
    /// These servers have another state than the leader. Whose is right, the others have to say.
    Undecided(Vec<u64>),
}

/// The states of this server, and, while it leads, what the others have said of theirs.
#[derive(Debug)]
pub(crate) struct Digests {
    /// When this server says next what its state is.
    next: Instant,
    /// The newest state that was sent, and until when it is not sent again.
    said: Option<(StateDigest, Instant)>,
    own: VecDeque<StateDigest>,
    /// The leader's state by server where it differs; `None` where it is the same.
    compared: BTreeMap<u64, Option<StateDigest>>,
}

impl Digests {
    /// Those of a server that starts at `now`.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            next: now + INTERVAL,
            said: None,
            own: VecDeque::new(),
            compared: BTreeMap::new(),
        }
    }

    /// This server has applied an entry.
    pub(crate) fn applied(&mut self, state: StateDigest) {
        if self.own.len() == MOST_KEPT {
            self.own.pop_front();
        }
        self.own.push_back(state);
    }

    /// A snapshot has taken the place of this server's state.
    pub(crate) fn replaced(&mut self) {
        self.own.clear();
    }

    /// Another server leads, or this one does again.
    pub(crate) fn role_changed(&mut self) {
        self.compared.clear();
        self.said = None;
    }

    /// This server's state after the newest entry, where the leader is to be sent it now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<StateDigest> {
        if now < self.next {
            return None;
        }
        self.next = now + INTERVAL;
        let newest = self.own.back().copied()?;
        if (self.said).is_some_and(|(said, until)| said == newest && now < until) {
            return None;
        }
        self.said = Some((newest, now + REPEAT_INTERVAL));
        Some(newest)
    }

    /// Whether this server had another state after that entry; `false` where it does not remember.
    pub(crate) fn contradict(&self, other: StateDigest) -> bool {
        self.at(other.index)
            .is_some_and(|own| own.digest != other.digest)
    }

    /// On the leader: takes the state of another server.
    pub(crate) fn reported(&mut self, from: u64, state: StateDigest) {
        if let Some(own) = self.at(state.index) {
            let differs = own.digest != state.digest;
            self.compared.insert(from, differs.then_some(own));
        }
    }

    fn at(&self, index: u64) -> Option<StateDigest> {
        let place = self
            .own
            .binary_search_by_key(&index, |state| state.index)
            .ok()?;
        self.own.get(place).copied()
    }

    /// On the leader `id` of these voters: returns which servers have another state.
    pub(crate) fn judge(&self, id: u64, voters: &[u64]) -> Judgement {
        let differ: Vec<(u64, StateDigest)> = self
            .compared
            .iter()
            .filter_map(|(server, own)| Some((*server, (*own)?)))
            .collect();
        if differ.is_empty() {
            return Judgement::Same;
        }
        let majority = voters.len() / 2 + 1;
        let is_same = |server: &&u64| **server == id || self.compared.get(server) == Some(&None);
        let may_be_same = |server: &&u64| is_same(server) || !self.compared.contains_key(server);
        if voters.iter().filter(is_same).count() >= majority {
            Judgement::OthersDiffer(differ)
        } else if voters.iter().filter(may_be_same).count() < majority {
            Judgement::LeaderDiffers
        } else {
            Judgement::Undecided(differ.into_iter().map(|(server, _)| server).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(index: u64, digest: u64) -> StateDigest {
        StateDigest { index, digest }
    }

    /// Server 1 leads, and its state after each entry is ten times the entry's index.
    fn leader() -> Digests {
        let mut digests = Digests::new(Instant::now());
        for index in 5..=9 {
            digests.applied(state(index, index * 10));
        }
        digests
    }

    #[test]
    fn servers_of_one_state_are_the_same() {
        let mut digests = leader();
        assert_eq!(digests.judge(1, &[1, 2, 3]), Judgement::Same);
        digests.reported(2, state(9, 90));
        digests.reported(3, state(5, 50));
        assert_eq!(digests.judge(1, &[1, 2, 3]), Judgement::Same);
    }

    #[test]
    fn a_new_state_is_sent_each_second_and_the_same_one_now_and_then_and_to_each_leader() {
        let mut digests = leader();
        let start = digests.next;
        assert_eq!(digests.due(start - INTERVAL / 2), None);
        assert_eq!(digests.due(start), Some(state(9, 90)));
        digests.applied(state(10, 100));
        assert_eq!(digests.due(start), None);
        assert_eq!(digests.due(start + INTERVAL), Some(state(10, 100)));
        assert_eq!(digests.due(start + 2 * INTERVAL), None);
        let repeated = start + INTERVAL + REPEAT_INTERVAL;
        assert_eq!(digests.due(repeated), Some(state(10, 100)));
        assert_eq!(digests.due(repeated + INTERVAL), None);
        digests.role_changed();
        assert_eq!(digests.due(repeated + 2 * INTERVAL), Some(state(10, 100)));
    }

    #[test]
    fn r39_a_follower_that_differs_is_named_once_a_majority_has_the_leaders_state() {
        let mut digests = leader();
        digests.reported(3, state(7, 71));
        assert_eq!(digests.judge(1, &[1, 2, 3]), Judgement::Undecided(vec![3]));
        digests.reported(2, state(9, 90));
        let named = Judgement::OthersDiffer(vec![(3, state(7, 70))]);
        assert_eq!(digests.judge(1, &[1, 2, 3]), named);
        // Two of five are no majority yet.
        let judged = digests.judge(1, &[1, 2, 3, 4, 5]);
        assert_eq!(judged, Judgement::Undecided(vec![3]));
        digests.reported(4, state(8, 80));
        assert_eq!(digests.judge(1, &[1, 2, 3, 4, 5]), named);
    }

    #[test]
    fn r39_a_leader_whose_state_no_majority_can_have_is_named() {
        let mut digests = leader();
        digests.reported(2, state(9, 91));
        assert_eq!(digests.judge(1, &[1, 2, 3]), Judgement::Undecided(vec![2]));
        digests.reported(3, state(8, 81));
        assert_eq!(digests.judge(1, &[1, 2, 3]), Judgement::LeaderDiffers);
        assert_eq!(digests.judge(1, &[1, 2]), Judgement::LeaderDiffers);
    }

    #[test]
    fn an_observer_is_compared_and_has_no_say() {
        let mut digests = leader();
        digests.reported(4, state(9, 91));
        assert_eq!(digests.judge(1, &[1, 2, 3]), Judgement::Undecided(vec![4]));
        digests.reported(2, state(9, 90));
        let named = Judgement::OthersDiffer(vec![(4, state(9, 90))]);
        assert_eq!(digests.judge(1, &[1, 2, 3]), named);
    }

    #[test]
    fn what_is_not_remembered_contradicts_nobody() {
        let mut digests = leader();
        for other in [state(4, 1), state(10, 1)] {
            assert!(!digests.contradict(other));
            digests.reported(2, other);
            digests.reported(3, other);
        }
        assert_eq!(digests.judge(1, &[1, 2, 3]), Judgement::Same);
        assert!(digests.contradict(state(5, 51)));
        assert!(!digests.contradict(state(5, 50)));
        digests.reported(2, state(5, 51));
        digests.role_changed();
        assert_eq!(digests.judge(1, &[1, 2, 3]), Judgement::Same);
        digests.replaced();
        assert!(!digests.contradict(state(5, 51)));
        for index in 0..5000 {
            digests.applied(state(index, index));
        }
        assert!(!digests.contradict(state(903, 1)));
        assert!(digests.contradict(state(904, 1)));
    }
}
