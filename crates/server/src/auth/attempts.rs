//! Slows guesses of passwords and tokens down, and refuses none. The first attempts of an address
//! at one account are judged at once; further ones take turns, whether they are right or not, until
//! one is right or nobody has tried for a minute. Memory is fixed, and nothing is evicted from it.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::connections::peer::{Peer, PeerGroup};

/// Attempts that are judged at once.
const AT_ONCE: u32 = 5;
/// Shortest delay of a further one, and so of each guess of one that tries serially.
const DELAY_MS: u64 = 1_000;
/// Time between two turns: the pace of one that guesses in parallel.
const SPACING_MS: u64 = 100;
/// The longest that a turn lies ahead. A client that comes when more wait tries again for one then,
/// so that clients that have gone away keep nobody waiting.
const LONGEST_WAIT_MS: u64 = 5_000;
/// Time without an attempt after which it is as if there had been none.
const FORGOTTEN_MS: u64 = 60_000;
/// Wrong ones of everybody in a minute, beyond which each first attempt is delayed, too.
const WRONG_IN_A_MINUTE: u64 = 100;
/// Counts that are kept. Claims whose counts fall together share one.
const COUNTS: u64 = 2_048;

/// When an attempt is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Now,
    After(Duration),
    /// Too many wait: the attempt is to ask again for a turn.
    AskAfter(Duration),
}

/// Account that a client claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Account<'a> {
    Digest(&'a [u8]),
    Sasl(&'a str),
    /// One of the tokens for HTTP.
    Token,
}

/// Key under which attempts are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    key: u64,
    is_owner: bool,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    key: u64,
    /// Whether claims of other keys are counted here as well.
    is_shared: bool,
    /// Attempts that were not right.
    attempts: u32,
    last_ms: u64,
    /// The first turn that is free.
    free_ms: u64,
}

#[derive(Debug, Default)]
struct Counts {
    by_place: HashMap<u64, Count>,
    /// When the wrong attempts of everybody are forgotten.
    wrong_until_ms: u64,
}

/// Attempts of all clients. Times are milliseconds since the start.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    counts: Mutex<Counts>,
    /// Keyed at random, so that nobody knows whose counts fall together.
    hasher: RandomState,
}

impl Attempts {
    /// Claim of a peer to be the user of an account.
    pub(crate) fn of_user(&self, peer: &Peer, account: Account<'_>) -> Claim {
        Claim {
            key: self.hasher.hash_one((PeerGroup::of(Some(peer)), account)),
            is_owner: false,
        }
    }

    /// Claim of a client with a session's password to be the user to whom the session is bound.
    /// The wrong attempts of others do not delay it.
    pub(crate) fn of_owner(&self, session: i64) -> Claim {
        Claim {
            key: self.hasher.hash_one(session),
            is_owner: true,
        }
    }

    /// Takes a turn for an attempt.
    pub(crate) fn turn(&self, claim: Claim, now_ms: u64) -> Judgement {
        let mut counts = self.counts.lock();
        let is_slowed = !claim.is_owner && counts.is_everybody_slowed(now_ms);
        let fresh = Count {
            key: claim.key,
            is_shared: false,
            attempts: 0,
            last_ms: now_ms,
            free_ms: 0,
        };
        let place = claim.key % COUNTS;
        let count = counts.by_place.entry(place).or_insert(fresh);
        if now_ms.saturating_sub(count.last_ms) >= FORGOTTEN_MS {
            *count = fresh;
        }
        count.is_shared |= count.key != claim.key;
        count.last_ms = now_ms;
        if count.attempts < AT_ONCE {
            count.attempts += 1;
            return match is_slowed {
                false => Judgement::Now,
                true => Judgement::After(Duration::from_millis(DELAY_MS)),
            };
        }
        let turn_ms = count.free_ms.max(now_ms.saturating_add(DELAY_MS));
        let wait_ms = turn_ms.saturating_sub(now_ms);
        if wait_ms > LONGEST_WAIT_MS {
            return Judgement::AskAfter(Duration::from_millis(LONGEST_WAIT_MS));
        }
        count.free_ms = turn_ms.saturating_add(SPACING_MS);
        count.attempts = count.attempts.saturating_add(1);
        Judgement::After(Duration::from_millis(wait_ms))
    }

    /// An attempt was right: this claim's attempts are forgotten, and no other's.
    pub(crate) fn succeeded(&self, claim: Claim) {
        let mut counts = self.counts.lock();
        let place = claim.key % COUNTS;
        let Some(count) = counts.by_place.get_mut(&place) else {
            return;
        };
        if count.is_shared {
            count.attempts = count.attempts.saturating_sub(1);
        } else if count.key == claim.key {
            counts.by_place.remove(&place);
        }
    }

    /// An attempt was wrong.
    pub(crate) fn failed(&self, now_ms: u64) {
        let mut counts = self.counts.lock();
        let until_ms = counts.wrong_until_ms.max(now_ms);
        counts.wrong_until_ms = until_ms.saturating_add(FORGOTTEN_MS / WRONG_IN_A_MINUTE);
    }
}

impl Counts {
    fn is_everybody_slowed(&self, now_ms: u64) -> bool {
        self.wrong_until_ms.saturating_sub(now_ms) > FORGOTTEN_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u32) -> Peer {
        Peer::Tcp((std::net::Ipv4Addr::from_bits(n), 7).into())
    }

    fn bob_at(attempts: &Attempts, n: u32) -> Claim {
        attempts.of_user(&peer(n), Account::Sasl("bob"))
    }

    /// Another claim whose count is the same one, or not.
    fn other(attempts: &Attempts, claim: Claim, shares: bool) -> Claim {
        let all = (0..).map(|n| bob_at(attempts, n));
        let mut others = all.filter(|other| other.key != claim.key);
        let same = |other: &Claim| (other.key % COUNTS == claim.key % COUNTS) == shares;
        others.find(same).unwrap()
    }

    fn ms(ms: u64) -> Judgement {
        Judgement::After(Duration::from_millis(ms))
    }

    #[test]
    fn a_thousand_tries_get_turns_and_those_for_whom_there_is_none_ask_again() {
        let attempts = Attempts::default();
        let claim = bob_at(&attempts, 1);
        let turns: Vec<Judgement> = (0..1000).map(|_| attempts.turn(claim, 10)).collect();
        assert_eq!(turns[..5], [Judgement::Now; 5]);
        assert_eq!(turns[5..8], [ms(1_000), ms(1_100), ms(1_200)]);
        assert_eq!(turns[45], ms(5_000));
        let again = Judgement::AskAfter(Duration::from_secs(5));
        assert!(turns[46..].iter().all(|turn| *turn == again));
        assert_eq!(attempts.turn(claim, 5_010), ms(1_000), "none has gone on");
        assert_eq!(attempts.turn(claim, 65_010), Judgement::Now, "forgotten");
    }

    #[test]
    fn other_accounts_and_addresses_and_owners_of_sessions_are_not_delayed() {
        let attempts = Attempts::default();
        let claim = bob_at(&attempts, 1);
        for _ in 0..1000 {
            attempts.turn(claim, 10);
        }
        for claim in [
            other(&attempts, claim, false),
            attempts.of_user(&peer(1), Account::Sasl("eve")),
            attempts.of_user(&peer(1), Account::Digest(b"bob")),
            attempts.of_user(&peer(1), Account::Token),
            attempts.of_owner(7),
        ] {
            if claim.key % COUNTS != bob_at(&attempts, 1).key % COUNTS {
                assert_eq!(attempts.turn(claim, 10), Judgement::Now);
            }
        }
    }

    #[test]
    fn a_right_one_forgets_its_own_claim_alone_also_where_counts_fall_together() {
        let attempts = Attempts::default();
        let guessed = bob_at(&attempts, 1);
        for shares in [false, true] {
            let own = other(&attempts, guessed, shares);
            for _ in 0..5 {
                attempts.turn(guessed, 10);
            }
            for _ in 0..30 {
                attempts.turn(own, 10);
                attempts.succeeded(own);
            }
            assert_ne!(attempts.turn(guessed, 10), Judgement::Now, "{shares}");
            attempts.succeeded(guessed);
        }
    }

    #[test]
    fn who_is_right_is_not_slowed_however_often_and_also_where_counts_fall_together() {
        let attempts = Attempts::default();
        let claim = bob_at(&attempts, 1);
        for claim in [claim, other(&attempts, claim, true)].repeat(100) {
            assert_eq!(attempts.turn(claim, 10), Judgement::Now);
            attempts.succeeded(claim);
        }
    }

    #[test]
    fn a65_guesses_from_everywhere_delay_first_attempts_but_no_owner_and_take_no_further_memory() {
        let attempts = Attempts::default();
        for n in 0..100_000 {
            attempts.turn(bob_at(&attempts, n), 10);
            attempts.failed(10);
        }
        assert_eq!(attempts.counts.lock().by_place.len() as u64, COUNTS);
        let attempts = Attempts::default();
        for _ in 0..=WRONG_IN_A_MINUTE {
            attempts.failed(10);
        }
        assert_eq!(attempts.turn(bob_at(&attempts, 1), 10), ms(1_000));
        assert_eq!(attempts.turn(attempts.of_owner(7), 10), Judgement::Now);
        let late = bob_at(&attempts, 2);
        assert_eq!(attempts.turn(late, 70_000), Judgement::Now);
    }
}
