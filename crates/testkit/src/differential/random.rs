//! Random numbers for generators: the same from the same seed, on every machine. Not for secrets.
//!
//! Not `fastrand`: its sequence may change with a release. The programs of fixed seeds are kept
//! with ZooKeeper's answers in `tests/golden`, and a seed in a report must lead to the same program
//! years later.

/// xorshift64*.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // The generator never leaves zero, and seeds that differ in one bit should not begin alike.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from((self.next_u64() >> 16) % bound).unwrap_or(0)
    }

    /// One of these.
    pub fn pick<T: Copy, const N: usize>(&mut self, of: &[T; N]) -> T {
        const { assert!(N > 0, "nothing to pick from") };
        #[allow(clippy::indexing_slicing, reason = "below the length, which is not 0")]
        of[self.below(N)]
    }

    /// True once in `bound` times.
    pub fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }
}
