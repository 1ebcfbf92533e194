//! The rate limit of log lines about clients. Every client has its own number of lines of every
//! kind, so that one noisy client hides no other. All clients together have a limit as well; past
//! it, a client without a line in this window still gets its first. Counts for one window and for a
//! bounded number of clients, then starts again with a summary of the lines that were suppressed.

use std::fmt;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::connections::peer::PeerGroup;
use crate::report::notice::Notice;

/// Lines of one kind about one client in a window.
pub(crate) const LINES_EACH: u32 = 20;
/// Lines of one kind in a window about all clients, not counting the first about each client.
const LINES_IN_ALL: u32 = 200;
/// Pairs of client and kind counted separately in a window; all others count as one client.
const MOST_KEPT: usize = 1000;
/// Length of a rate-limit window.
const WINDOW_MS: u64 = 10_000;
/// Clients that a summary names.
const NAMED: usize = 3;

/// Summary of the suppressed lines of one kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Suppressed {
    pub(crate) notice: Notice,
    /// Lines suppressed for each client, the largest number first.
    by: Vec<(PeerGroup, u64)>,
}

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: u64 = self.by.iter().map(|(_, lines)| lines).sum();
        write!(f, "{lines} lines about {} were left out", self.notice)?;
        for (place, (source, lines)) in self.by.iter().take(NAMED).enumerate() {
            let before = if place == 0 { ": " } else { ", " };
            write!(f, "{before}{lines} of {source}")?;
        }
        match self.by.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, ", and of {more} more"),
        }
    }
}

/// Lines of one kind about one client in the present window.
#[derive(Debug, Default, Clone, Copy)]
struct Lines {
    written: u32,
    suppressed: u64,
}

/// Counts the lines of the present window and decides which are written.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    by_peer: HashMap<(PeerGroup, Notice), Lines, RandomState>,
    in_all: HashMap<Notice, u32, RandomState>,
    ends_ms: u64,
}

impl RateLimit {
    /// When the window ends.
    pub(crate) fn ends_ms(&self) -> u64 {
        self.ends_ms
    }

    /// If the window is over: the summaries of its suppressed lines, in order of kind. The next
    /// window begins with the next line.
    pub(crate) fn end_window(&mut self, now_ms: u64) -> Vec<Suppressed> {
        if now_ms < self.ends_ms || self.by_peer.is_empty() {
            return Vec::new();
        }
        self.in_all.clear();
        let mut summaries: Vec<Suppressed> = Vec::new();
        let mut suppressed: Vec<_> = std::mem::take(&mut self.by_peer)
            .into_iter()
            .filter(|(_, lines)| lines.suppressed > 0)
            .map(|((source, notice), lines)| (notice, source, lines.suppressed))
            .collect();
        suppressed
            .sort_by_key(|(notice, source, lines)| (*notice, std::cmp::Reverse(*lines), *source));
        for (notice, source, lines) in suppressed {
            match summaries.last_mut() {
                Some(last) if last.notice == notice => last.by.push((source, lines)),
                _ => summaries.push(Suppressed {
                    notice,
                    by: vec![(source, lines)],
                }),
            }
        }
        summaries
    }

    /// Whether the line may be written; counts it either way.
    pub(crate) fn permit(&mut self, source: PeerGroup, notice: Notice, now_ms: u64) -> bool {
        if self.by_peer.is_empty() {
            self.ends_ms = now_ms.saturating_add(WINDOW_MS);
        }
        let full = self.by_peer.len() >= MOST_KEPT;
        let source = if full && !self.by_peer.contains_key(&(source, notice)) {
            PeerGroup::Others
        } else {
            source
        };
        let own = self.by_peer.entry((source, notice)).or_default();
        let all = self.in_all.entry(notice).or_default();
        if own.written >= LINES_EACH || (own.written > 0 && *all >= LINES_IN_ALL) {
            own.suppressed = own.suppressed.saturating_add(1);
            return false;
        }
        own.written += 1;
        *all = all.saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn address(n: u32) -> PeerGroup {
        PeerGroup::Address(IpAddr::V4(Ipv4Addr::from_bits(n)))
    }

    fn written(limit: &mut RateLimit, source: PeerGroup, times: usize) -> usize {
        (0..times)
            .filter(|_| limit.permit(source, Notice::BadFrame, 5))
            .count()
    }

    #[test]
    fn one_noisy_peer_hides_no_other_and_its_suppressed_lines_are_summarised_once() {
        let mut limit = RateLimit::default();
        assert_eq!(written(&mut limit, address(1), 1_000_000), 20);
        assert_eq!(written(&mut limit, address(2), 3), 3, "it has its own");
        assert!(limit.permit(address(1), Notice::Denied, 5), "as each kind");
        assert_eq!(written(&mut limit, address(2), 20), 17);
        assert_eq!(limit.end_window(5 + WINDOW_MS - 1), []);
        let summaries = limit.end_window(5 + WINDOW_MS);
        let text: Vec<String> = summaries.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            ["999983 lines about bad frames were left out: 999980 of 0.0.0.1, 3 of 0.0.0.2"]
        );
        assert_eq!(limit.end_window(u64::MAX), [], "summarised once");
        assert_eq!(written(&mut limit, address(1), 30), 20, "a new window");
    }

    #[test]
    fn many_noisy_peers_have_a_bound_together_and_a_new_one_its_first_line() {
        let mut limit = RateLimit::default();
        let noise: usize = (1..=50).map(|n| written(&mut limit, address(n), 100)).sum();
        assert_eq!(noise, 200 + 40);
        assert_eq!(written(&mut limit, address(77), 100), 1);
        let summaries = limit.end_window(u64::MAX);
        assert_eq!(summaries.len(), 1);
        let text = summaries[0].to_string();
        assert!(text.ends_with(", and of 48 more"), "{text}");
    }

    #[test]
    fn peers_without_number_take_no_memory_without_bound() {
        let mut limit = RateLimit::default();
        let written: usize = (0..1_000_000)
            .map(|n| written(&mut limit, address(n), 1))
            .sum();
        assert_eq!(limit.by_peer.len(), MOST_KEPT + 1);
        assert_eq!(written, MOST_KEPT + 1);
        assert!(
            limit
                .by_peer
                .contains_key(&(PeerGroup::Others, Notice::BadFrame))
        );
        assert!(!limit.end_window(u64::MAX).is_empty());
        assert_eq!(limit.by_peer.capacity(), 0, "given back");
    }
}
