//! Log lines about other servers: connected, or not and why. The number of lines is limited, so
//! that a peer that sends garbage to the port does not fill the disk with them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use baton_peers::codec::Lane;
use baton_peers::net::{Direction, Link, PeerEvent, RefusedBy};

/// Length of a rate-limit window.
const WINDOW: Duration = Duration::from_secs(60);
/// Equal lines in a window.
const LINES_EACH: u32 = 3;
/// Different lines in a window.
const LINES_IN_ALL: usize = 60;

/// Writes rate-limited lines about other servers into the log.
#[derive(Debug, Default)]
pub(crate) struct PeerLog {
    window_ends: Option<Instant>,
    lines: BTreeMap<String, u32>,
    left_out: u64,
}

impl PeerLog {
    /// Writes a line about an event that operators should see, unless there were too many.
    pub(crate) fn event(&mut self, event: &PeerEvent, now: Instant) {
        if line_of(event).is_some_and(|line| self.permits(line, now)) {
            write(event);
        }
    }

    /// Whether the line may be written. A summary of those that were left out ends each window.
    fn permits(&mut self, line: String, now: Instant) -> bool {
        if self.window_ends.is_none_or(|ends| ends <= now) {
            if self.left_out > 0 {
                let lines = self.left_out;
                tracing::info!(lines, "lines about other servers were left out");
            }
            *self = PeerLog {
                window_ends: Some(now + WINDOW),
                ..PeerLog::default()
            };
        }
        let known = self.lines.len();
        let is_permitted = match self.lines.get_mut(&line) {
            Some(count) => {
                *count += 1;
                *count <= LINES_EACH
            }
            None if known < LINES_IN_ALL => {
                self.lines.insert(line, 1);
                true
            }
            None => false,
        };
        self.left_out += u64::from(!is_permitted);
        is_permitted
    }
}

/// Returns the text that distinguishes an event's line from others; `None` without a line.
fn line_of(event: &PeerEvent) -> Option<String> {
    match event {
        PeerEvent::Connected { link, .. } => {
            stands_for_server(link).then(|| format!("{} connected", link.peer))
        }
        PeerEvent::Disconnected { link, cause, .. } => {
            stands_for_server(link).then(|| format!("{} {cause}", link.peer))
        }
        PeerEvent::DialFailed {
            peer,
            lane,
            address,
            failure,
        } => (*lane == Lane::Urgent).then(|| format!("{peer} {address} {failure}")),
        PeerEvent::Refused {
            peer, by, refusal, ..
        } => Some(format!("{peer:?} {by:?} {refusal}")),
        PeerEvent::TlsFailed { failure, .. } => Some(format!("tls {failure}")),
        PeerEvent::Gone { peer } => Some(format!("{peer} gone")),
        PeerEvent::AcceptFailed { error } => Some(error.clone()),
        _ => None,
    }
}

fn write(event: &PeerEvent) {
    match event {
        PeerEvent::Connected { link, .. } => {
            tracing::info!(server = link.peer, "connected to a server of the ensemble");
        }
        PeerEvent::Disconnected { link, cause, .. } => {
            let server = link.peer;
            tracing::info!(server, %cause, "the connection to a server of the ensemble ended");
        }
        PeerEvent::DialFailed {
            peer,
            address,
            failure,
            ..
        } => {
            tracing::info!(server = peer, %address, %failure, "cannot connect to a server of the ensemble");
        }
        PeerEvent::Refused {
            peer,
            remote,
            by,
            refusal,
            ..
        } => {
            let by = match by {
                RefusedBy::Us => "this server",
                RefusedBy::Them => "the other server",
            };
            tracing::warn!(server = peer, %remote, by, reason = %refusal, "a connection between servers was refused");
        }
        PeerEvent::TlsFailed { remote, failure } => {
            tracing::warn!(%remote, reason = %failure, "a connection to the port for other servers could not be encrypted");
        }
        PeerEvent::Gone { peer } => {
            tracing::info!(
                server = peer,
                "the process of a server of the ensemble has ended"
            );
        }
        PeerEvent::AcceptFailed { error } => {
            tracing::warn!(%error, "cannot accept a connection of another server");
        }
        _ => {}
    }
}

/// Whether the state of this connection stands for that of all connections to the server.
fn stands_for_server(link: &Link) -> bool {
    link.lane == Lane::Urgent && link.direction == Direction::Outbound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lines_and_different_ones_are_limited_and_a_new_window_begins() {
        let mut log = PeerLog::default();
        let start = Instant::now();
        for at in 0..10 {
            assert_eq!(log.permits("same".to_owned(), start), at < LINES_EACH);
        }
        for at in 1..100 {
            let is_permitted = log.permits(format!("line {at}"), start);
            assert_eq!(is_permitted, at < LINES_IN_ALL);
        }
        assert_eq!(log.left_out, 7 + 40);
        assert!(!log.permits("same".to_owned(), start + WINDOW - Duration::from_millis(1)));
        assert!(log.permits("same".to_owned(), start + WINDOW));
        assert_eq!(log.left_out, 0);
    }
}
