//! How many lines of the log each peer may cause. Every peer has lines of its own for every kind of
//! mischief, so that one that makes noise hides nobody else; all peers together have a bound as
//! well, past which who has had no line yet still gets its first. Keeps books for a while and for a
//! bounded number of peers, then starts anew and tells what was left out.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::connections::conn::Peer;
use crate::report::notices::Notice;

/// Lines of one kind about one peer in a while.
pub(crate) const LINES_EACH: u32 = 20;
/// Lines of one kind in a while, but for the first about a peer.
const LINES_IN_ALL: u32 = 200;
/// Peers and kinds that are kept apart in a while; the others are taken for one peer.
const MOST_KEPT: usize = 1000;
/// How long a while is.
const WHILE_MS: u64 = 10_000;
/// Peers that a summary names.
const NAMED: usize = 3;

/// Who is counted as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Source {
    Address(IpAddr),
    /// A network of IPv6: whoever has one address of it has them all.
    Network(Ipv6Addr),
    /// Processes on this machine, over unix sockets.
    Local,
    /// The server itself, or a client that has gone.
    Nobody,
    /// All that the books have no room for.
    Others,
}

impl Source {
    pub(crate) fn of(peer: Option<&Peer>) -> Self {
        match peer {
            None => Source::Nobody,
            Some(peer) => match peer.ip() {
                None => Source::Local,
                Some(IpAddr::V6(ip)) if !ip.is_loopback() => {
                    let [a, b, c, d, ..] = ip.segments();
                    Source::Network(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
                }
                Some(ip) => Source::Address(ip),
            },
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Address(ip) => write!(f, "{ip}"),
            Source::Network(ip) => write!(f, "{ip}/64"),
            Source::Local => f.write_str("unix"),
            Source::Nobody => f.write_str("none"),
            Source::Others => f.write_str("other peers"),
        }
    }
}

/// What was left out of one kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) notice: Notice,
    /// By whom, most first.
    by: Vec<(Source, u64)>,
}

impl fmt::Display for LeftOut {
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

#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    lines: u32,
    left_out: u64,
}

/// See the module's page.
#[derive(Debug, Default)]
pub(crate) struct LineBudget {
    by_peer: HashMap<(Source, Notice), Spent, RandomState>,
    in_all: HashMap<Notice, u32, RandomState>,
    ends_ms: u64,
}

impl LineBudget {
    /// When what was left out is to be told: the while's end, if anything was.
    pub(crate) fn ends_ms(&self) -> u64 {
        self.ends_ms
    }

    /// If the while is over: what was left out in it, in order of kind. The next one begins with
    /// the next line.
    pub(crate) fn settle(&mut self, now_ms: u64) -> Vec<LeftOut> {
        if now_ms < self.ends_ms || self.by_peer.is_empty() {
            return Vec::new();
        }
        self.in_all.clear();
        let mut told: Vec<LeftOut> = Vec::new();
        let mut left_out: Vec<_> = std::mem::take(&mut self.by_peer)
            .into_iter()
            .filter(|(_, spent)| spent.left_out > 0)
            .map(|((source, notice), spent)| (notice, source, spent.left_out))
            .collect();
        left_out
            .sort_by_key(|(notice, source, lines)| (*notice, std::cmp::Reverse(*lines), *source));
        for (notice, source, lines) in left_out {
            match told.last_mut() {
                Some(last) if last.notice == notice => last.by.push((source, lines)),
                _ => told.push(LeftOut {
                    notice,
                    by: vec![(source, lines)],
                }),
            }
        }
        told
    }

    /// Whether there may be a line about this.
    pub(crate) fn permit(&mut self, source: Source, notice: Notice, now_ms: u64) -> bool {
        if self.by_peer.is_empty() {
            self.ends_ms = now_ms.saturating_add(WHILE_MS);
        }
        let full = self.by_peer.len() >= MOST_KEPT;
        let source = if full && !self.by_peer.contains_key(&(source, notice)) {
            Source::Others
        } else {
            source
        };
        let own = self.by_peer.entry((source, notice)).or_default();
        let all = self.in_all.entry(notice).or_default();
        if own.lines >= LINES_EACH || (own.lines > 0 && *all >= LINES_IN_ALL) {
            own.left_out = own.left_out.saturating_add(1);
            return false;
        }
        own.lines += 1;
        *all = all.saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(n: u32) -> Source {
        Source::Address(IpAddr::V4(Ipv4Addr::from_bits(n)))
    }

    fn lines(budget: &mut LineBudget, source: Source, times: usize) -> usize {
        (0..times)
            .filter(|_| budget.permit(source, Notice::BadFrame, 5))
            .count()
    }

    #[test]
    fn one_noisy_peer_hides_no_other_and_what_it_was_denied_is_told_once() {
        let mut budget = LineBudget::default();
        assert_eq!(lines(&mut budget, address(1), 1_000_000), 20);
        assert_eq!(lines(&mut budget, address(2), 3), 3, "it has its own");
        assert!(budget.permit(address(1), Notice::Denied, 5), "as each kind");
        assert_eq!(lines(&mut budget, address(2), 20), 17);
        assert_eq!(budget.settle(5 + WHILE_MS - 1), []);
        let told = budget.settle(5 + WHILE_MS);
        let text: Vec<String> = told.iter().map(ToString::to_string).collect();
        assert_eq!(
            text,
            ["999983 lines about bad frames were left out: 999980 of 0.0.0.1, 3 of 0.0.0.2"]
        );
        assert_eq!(budget.settle(u64::MAX), [], "told once");
        assert_eq!(lines(&mut budget, address(1), 30), 20, "a new while");
    }

    #[test]
    fn many_noisy_peers_have_a_bound_together_and_a_new_one_its_first_line() {
        let mut budget = LineBudget::default();
        let noise: usize = (1..=50).map(|n| lines(&mut budget, address(n), 100)).sum();
        assert_eq!(noise, 200 + 40);
        assert_eq!(lines(&mut budget, address(77), 100), 1);
        let told = budget.settle(u64::MAX);
        assert_eq!(told.len(), 1);
        let text = told[0].to_string();
        assert!(text.ends_with(", and of 48 more"), "{text}");
    }

    #[test]
    fn peers_without_number_take_no_memory_without_bound() {
        let mut budget = LineBudget::default();
        let written: usize = (0..1_000_000)
            .map(|n| lines(&mut budget, address(n), 1))
            .sum();
        assert_eq!(budget.by_peer.len(), MOST_KEPT + 1);
        assert_eq!(written, MOST_KEPT + 1);
        assert!(
            budget
                .by_peer
                .contains_key(&(Source::Others, Notice::BadFrame))
        );
        assert!(!budget.settle(u64::MAX).is_empty());
        assert_eq!(budget.by_peer.capacity(), 0, "given back");
    }

    #[test]
    fn who_has_a_network_of_addresses_is_one_peer() {
        let of = |address: &str| Source::of(Some(&Peer::Tcp(address.parse().unwrap())));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:9"));
        assert_ne!(of("[2001:db8:0:1::1]:1"), of("[2001:db8::1]:1"));
        assert_eq!(of("[2001:db8:0:1::1]:1").to_string(), "2001:db8:0:1::/64");
        assert_eq!(of("[::ffff:10.0.0.1]:1"), of("10.0.0.1:2"));
        assert_eq!(of("[::1]:7").to_string(), "::1");
    }
}
