//! The ids of new sessions: the server's number in the first byte, then the time of its start, then
//! a count (protocol.md §2). The tree refuses an id that a session has or had. Also the ids of
//! sessions of read-only mode, and the nonces under which connections attach to sessions.

use std::num::NonZeroU64;

use baton_tree::Tree;

/// Gives ids to new sessions.
#[derive(Debug)]
pub(crate) struct SessionIds {
    last: i64,
}

impl SessionIds {
    /// `wall_ms` is milliseconds since 1970.
    pub(crate) const fn new(server_id: u8, wall_ms: i64) -> Self {
        let from_time = (((wall_ms << 24) as u64) >> 8) as i64;
        let mine = (server_id as i64) << 56;
        Self {
            last: mine | from_time,
        }
    }

    /// An id above all that `tree` knows of this server, since the clock may have been set back.
    pub(crate) fn next(&mut self, tree: &Tree) -> i64 {
        let newest = tree.newest_session_id_like(self.last);
        self.last = newest.map_or(self.last, |newest| self.last.max(newest)) + 1;
        self.last
    }
}

/// The id of a session of read-only mode, of these random bits. Its first byte is one that the tree
/// refuses, so no session of the log ever has it.
pub(crate) const fn read_only_id(random: [u8; 7]) -> i64 {
    let [a, b, c, d, e, f, g] = random;
    i64::from_be_bytes([0xff, a, b, c, d, e, f, g])
}

/// Gives nonces to attachments. No two attachments of a session may have the same, whichever server
/// the client was connected to, so each start begins at a place of its own.
#[derive(Debug)]
pub(crate) struct Nonces {
    last: u64,
}

impl Nonces {
    /// Nonces that begin behind `drawn`, a random number of this start.
    pub(crate) const fn after(drawn: u64) -> Self {
        Self { last: drawn }
    }

    pub(crate) fn draw(&mut self) -> NonZeroU64 {
        // Odd, so that every other number comes before one comes again.
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        self.last = self.last.wrapping_add(STEP);
        NonZeroU64::new(self.last).unwrap_or_else(|| {
            self.last = STEP;
            NonZeroU64::MIN.saturating_add(STEP - 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher as _, RandomState};

    use baton_proto::PASSWORD_BYTES;
    use baton_tree::{CloseReason, Command, FormatLevel, Identity};

    use super::*;

    const BEGUN_MS: i64 = 1_800_000_000_000;

    #[test]
    fn ids_are_positive_and_carry_the_server() {
        let (mut ids, tree) = (SessionIds::new(3, BEGUN_MS), Tree::new());
        let (first, second) = (ids.next(&tree), ids.next(&tree));
        assert_eq!(first >> 56, 3);
        assert_eq!(second, first + 1);
    }

    #[test]
    fn nonces_do_not_repeat_nor_begin_alike() {
        let mut drawn = Vec::new();
        for start in 0..100 {
            let mut nonces = Nonces::after(RandomState::new().hash_one(start % 2));
            drawn.extend((0..100).map(|_| nonces.draw()));
        }
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 10_000);
        let mut wrapping = Nonces {
            last: 0_u64.wrapping_sub(0x9e37_79b9_7f4a_7c15),
        };
        assert_ne!(wrapping.draw(), wrapping.draw());
    }

    #[test]
    fn no_id_is_given_twice_though_the_clock_was_set_back() {
        let mut tree = Tree::new();
        let mut of_one_start = SessionIds::new(3, BEGUN_MS);
        let given = [of_one_start.next(&tree), of_one_start.next(&tree)];
        let of_another_server = SessionIds::new(4, BEGUN_MS).next(&tree);
        let nobody = Identity::anonymous();
        let apply = |tree: &mut Tree, command| {
            let applied = tree.apply(0, 0, &nobody, command, &mut ());
            assert!(applied.result.is_ok());
        };
        apply(&mut tree, Command::SetLevel(FormatLevel::NEWEST));
        for session_id in given.into_iter().chain([of_another_server]) {
            let open = Command::OpenSession {
                session_id,
                password: [7; PASSWORD_BYTES],
                timeout_ms: 1000,
            };
            apply(&mut tree, open);
        }
        // The newest has ended: no open session shows its id.
        let end = Command::CloseSession {
            session_id: given[1],
            reason: CloseReason::Expired,
        };
        apply(&mut tree, end);
        let mut ids = SessionIds::new(3, BEGUN_MS - 1000);
        assert_eq!(ids.next(&tree), given[1] + 1);
        assert_eq!(ids.next(&tree), given[1] + 2, "not applied yet");
        let later = SessionIds::new(3, BEGUN_MS + 1000).next(&tree);
        assert!(later > given[1] + 2 && later >> 56 == 3);
    }
}
