//! Election timeouts: drawn from a generator with a seed, so that a simulated run can be repeated.
//!
//! The engine draws one by itself at each change of role or term. The node puts the one that was
//! drawn here in its place after each call, so the engine's own choice never counts. A failed
//! campaign draws again: two candidates in phase would otherwise meet for ever.
//!
//! The first campaign since a leader was known lasts a shorter time, from a third to two thirds of
//! the shortest timeout: if two nodes ask at once, or one asks while another still trusts the
//! leader, nobody wins, and there is no leader for whom to wait that long. A further campaign
//! lasts a whole timeout, because answers may take that long where disks are slow.

/// Factor by which a node waits longer whose own ticks are late.
pub(crate) const STRETCH: usize = 2;

/// The timeouts of one node, in ticks.
#[derive(Debug)]
pub(crate) struct ElectionTimeouts {
    state: u64,
    low: u32,
    high: u32,
    current: usize,
    is_stretched: bool,
    /// Campaigns since a leader was known.
    campaigns: u32,
    /// In how many ticks the first campaign is given up.
    second_in: Option<usize>,
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
            campaigns: 0,
            second_in: None,
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

    /// Returns whether the one in force and all that follow are [`STRETCH`] times as long as drawn.
    pub(crate) fn set_stretched(&mut self, is_stretched: bool) {
        self.is_stretched = is_stretched;
    }

    /// A campaign begins.
    pub(crate) fn campaign_begins(&mut self) {
        self.campaigns = self.campaigns.saturating_add(1);
        self.second_in = None;
        if self.campaigns == 1 {
            let shortest = self.low / 3;
            let ticks = self.drawn(shortest.max(1), (2 * shortest).max(1));
            let stretch = if self.is_stretched { STRETCH } else { 1 };
            self.second_in = Some(ticks * stretch);
        }
    }

    /// A leader is known: what campaigns came before does not count any more.
    pub(crate) fn leader_is_known(&mut self) {
        self.campaigns = 0;
        self.second_in = None;
    }

    /// A candidate has made one tick. Returns whether its first campaign is over and the second
    /// one due.
    pub(crate) fn is_second_campaign_due(&mut self) -> bool {
        self.second_in = self.second_in.map(|ticks| ticks.saturating_sub(1));
        self.second_in == Some(0)
    }

    /// Draws the next one.
    pub(crate) fn draw(&mut self) {
        self.current = self.drawn(self.low, self.high);
    }

    /// A number from `low` to `high`, both included (SplitMix64: a few lines, where a crate of
    /// random numbers could also draw from the operating system, which this crate must never do).
    fn drawn(&mut self, low: u32, high: u32) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let width = u64::from(high - low) + 1;
        low as usize + usize::try_from(mixed % width).unwrap_or(0)
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

    #[test]
    fn the_first_campaign_since_a_leader_was_known_lasts_for_a_third_to_two_thirds() {
        let mut timeouts = ElectionTimeouts::new(7, 1, 18, 28);
        let lasts = |timeouts: &mut ElectionTimeouts| {
            timeouts.campaign_begins();
            (1..=100).find(|_| timeouts.is_second_campaign_due())
        };
        let mut seen = Vec::new();
        for _ in 0..200 {
            timeouts.leader_is_known();
            seen.push(lasts(&mut timeouts).unwrap());
            assert_eq!(lasts(&mut timeouts), None, "the second one");
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [6, 7, 8, 9, 10, 11, 12]);
        // A node whose ticks are late waits twice as long here as well.
        timeouts.set_stretched(true);
        timeouts.leader_is_known();
        assert!(lasts(&mut timeouts).unwrap() >= 12);
        // A leader ends it.
        timeouts.leader_is_known();
        timeouts.campaign_begins();
        timeouts.leader_is_known();
        assert!(!(1..=100).any(|_| timeouts.is_second_campaign_due()));
    }

    #[test]
    fn the_shortest_timeouts_have_a_second_campaign_too() {
        let mut timeouts = ElectionTimeouts::new(7, 1, 2, 2);
        timeouts.campaign_begins();
        assert!(timeouts.is_second_campaign_due());
    }
}
