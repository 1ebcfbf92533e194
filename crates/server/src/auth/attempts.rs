//! Limits attempts at passwords: the superuser's, and those of users by SASL. The first attempts of
//! an address are judged at once. Further ones wait for their turn, one a second, whether they are
//! right or not; where too many wait, they are refused unjudged. Counts for a bounded number of
//! addresses, and forgets those that have stopped.

use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::connections::peer::Peer;
use crate::connections::peer::PeerGroup;

/// Attempts in a row that are judged at once.
const AT_ONCE: u32 = 5;
/// The time between two further attempts of an address.
const SPACING_MS: u64 = 1_000;
/// The longest that an attempt waits for its turn.
const LONGEST_WAIT_MS: u64 = 4_000;
/// Time without an attempt after which an address is forgotten.
const FORGOTTEN_MS: u64 = 60_000;
/// Addresses counted separately; all others count as one.
const MOST_KEPT: usize = 1000;

/// When an attempt is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Now,
    After(Duration),
    /// Too many of its address wait already.
    Never,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    /// Attempts since the last right one.
    count: u32,
    last_ms: u64,
    /// The first turn that is free.
    free_ms: u64,
}

/// Attempts of each address. Times are milliseconds since the start.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    by_address: Mutex<HashMap<PeerGroup, Count, RandomState>>,
}

impl Attempts {
    /// Takes a turn for an attempt of `peer`.
    pub(crate) fn turn(&self, peer: &Peer, now_ms: u64) -> Judgement {
        let mut by_address = self.by_address.lock();
        let source = Self::source(&mut by_address, peer, now_ms);
        let count = by_address.entry(source).or_default();
        if now_ms.saturating_sub(count.last_ms) >= FORGOTTEN_MS {
            *count = Count::default();
        }
        count.last_ms = now_ms;
        if count.count < AT_ONCE {
            count.count += 1;
            return Judgement::Now;
        }
        let wait_ms = count.free_ms.saturating_sub(now_ms);
        if wait_ms > LONGEST_WAIT_MS {
            return Judgement::Never;
        }
        count.free_ms = now_ms.saturating_add(wait_ms).saturating_add(SPACING_MS);
        match wait_ms {
            0 => Judgement::Now,
            wait_ms => Judgement::After(Duration::from_millis(wait_ms)),
        }
    }

    /// An attempt of `peer` was right: its address is forgotten.
    pub(crate) fn succeeded(&self, peer: &Peer) {
        self.by_address.lock().remove(&PeerGroup::of(Some(peer)));
    }

    fn source(
        by_address: &mut HashMap<PeerGroup, Count, RandomState>,
        peer: &Peer,
        now_ms: u64,
    ) -> PeerGroup {
        let source = PeerGroup::of(Some(peer));
        if by_address.len() >= MOST_KEPT && !by_address.contains_key(&source) {
            by_address.retain(|_, count| now_ms.saturating_sub(count.last_ms) < FORGOTTEN_MS);
            if by_address.len() >= MOST_KEPT {
                return PeerGroup::Others;
            }
        }
        source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u32) -> Peer {
        Peer::Tcp((std::net::Ipv4Addr::from_bits(n), 7).into())
    }

    #[test]
    fn a_thousand_tries_of_one_address_get_one_a_second_and_the_rest_is_not_judged() {
        let attempts = Attempts::default();
        let turns: Vec<Judgement> = (0..1000).map(|_| attempts.turn(&peer(1), 10)).collect();
        let at_once = turns.iter().filter(|turn| **turn == Judgement::Now).count();
        let later = turns
            .iter()
            .filter(|turn| matches!(turn, Judgement::After(_)));
        assert_eq!((at_once, later.count()), (6, 4), "{:?}", &turns[..12]);
        assert_eq!(turns[6], Judgement::After(Duration::from_secs(1)));
        assert_eq!(turns[999], Judgement::Never);
        assert_eq!(
            attempts.turn(&peer(2), 10),
            Judgement::Now,
            "other addresses are not delayed"
        );
        assert_eq!(
            attempts.turn(&peer(1), 1_010),
            Judgement::After(Duration::from_secs(4))
        );
        assert_eq!(attempts.turn(&peer(1), 70_000), Judgement::Now, "forgotten");
    }

    #[test]
    fn who_is_right_is_not_slowed_however_often() {
        let attempts = Attempts::default();
        for _ in 0..100 {
            assert_eq!(attempts.turn(&peer(1), 10), Judgement::Now);
            attempts.succeeded(&peer(1));
        }
    }

    #[test]
    fn addresses_without_number_take_no_memory_without_bound() {
        let attempts = Attempts::default();
        for n in 0..100_000 {
            attempts.turn(&peer(n), 10);
        }
        assert_eq!(attempts.by_address.lock().len(), MOST_KEPT + 1);
        assert_eq!(attempts.turn(&peer(200_000), 10), Judgement::Never);
        assert_eq!(
            attempts.turn(&peer(0), 10),
            Judgement::Now,
            "whose count are counted apart"
        );
        assert_eq!(attempts.turn(&peer(200_000), 70_000), Judgement::Now);
    }
}
