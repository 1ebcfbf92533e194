//! Election timeouts: drawn from a generator with a seed, so that a simulated run can be repeated.
//!
//! The engine draws one by itself at each change of role or term. The node puts the one that was
//! drawn here in its place after each call, so the engine's own choice never counts. A failed
//! campaign draws anew: two candidates in phase would otherwise meet for ever.

/// How many times as long a node waits whose own ticks are late.
pub(crate) const STRETCH: usize = 2;

/// The timeouts of one node, in ticks.
#[derive(Debug)]
pub(crate) struct ElectionTimeouts {
    state: u64,
    low: u32,
    high: u32,
    current: usize,
    is_stretched: bool,
}

impl ElectionTimeouts {
    /// Timeouts from `low` to `high`, both included. Nodes of one seed draw different ones.
    pub(crate) fn new(seed: u64, node_id: u64, low: u32, high: u32) -> ElectionTimeouts {
        let mut timeouts = ElectionTimeouts {
            state: seed ^ node_id.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            low,
            high,
            current: low as usize,
            is_stretched: false,
        };
        timeouts.draw();
        timeouts
    }

    /// The one in force.
    pub(crate) fn current(&self) -> usize {
        match self.is_stretched {
            true => self.current * STRETCH,
            false => self.current,
        }
    }

    /// Whether the one in force and all that follow are [`STRETCH`] times as long as drawn.
    pub(crate) fn set_stretched(&mut self, is_stretched: bool) {
        self.is_stretched = is_stretched;
    }

    /// Draws the next one (SplitMix64: a few lines, where a crate of random numbers could also
    /// draw from the operating system, which this crate must never do).
    pub(crate) fn draw(&mut self) {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let width = u64::from(self.high - self.low) + 1;
        self.current = self.low as usize + usize::try_from(mixed % width).unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_of_the_range_is_drawn_and_no_other_and_a_seed_gives_the_same_again() {
        let draws = |seed, node| {
            let mut timeouts = ElectionTimeouts::new(seed, node, 18, 28);
            let mut drawn = Vec::new();
            for _ in 0..500 {
                drawn.push(timeouts.current());
                timeouts.draw();
            }
            drawn
        };
        let drawn = draws(7, 1);
        assert!((18..=28).all(|value| drawn.contains(&value)));
        assert!(drawn.iter().all(|value| (18..=28).contains(value)));
        assert_eq!(drawn, draws(7, 1));
        assert_ne!(drawn, draws(7, 2));
        assert_ne!(drawn, draws(8, 1));
    }
}
