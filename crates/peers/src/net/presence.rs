//! When a server is certainly gone: all its connections were ended as they are when a process ends,
//! and a new one is refused. A connection that ends in silence proves nothing: the server may be
//! paused or cut off.

use crate::net::events::EndCause;

/// Presence of one peer's process. Sans-I/O.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    live: usize,
    /// Whether each connection since the peer was last without any ended with its process.
    ended_with_process: bool,
    /// Whether an attempt was refused since the newest connection was established.
    refused: bool,
    /// Whether there was a connection since it was last reported.
    is_open: bool,
}

impl Presence {
    pub(crate) fn connected(&mut self) {
        if self.live == 0 {
            self.ended_with_process = true;
        }
        self.live += 1;
        self.refused = false;
        self.is_open = true;
    }

    /// Returns whether the peer is certainly gone by that.
    pub(crate) fn ended(&mut self, cause: &EndCause) -> bool {
        self.live = self.live.saturating_sub(1);
        self.ended_with_process &= cause.is_end_of_process() || *cause == EndCause::Superseded;
        self.is_gone()
    }

    /// An attempt was refused. Whether the peer is certainly gone by that.
    pub(crate) fn refused(&mut self) -> bool {
        self.refused = true;
        self.is_gone()
    }

    fn is_gone(&mut self) -> bool {
        let gone = self.is_open && self.live == 0 && self.ended_with_process && self.refused;
        if gone {
            self.is_open = false;
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::CloseReason;

    #[test]
    fn all_connections_must_end_and_one_must_be_refused() {
        let mut presence = Presence::default();
        assert!(!presence.refused(), "it was never there");
        for _ in 0..3 {
            presence.connected();
        }
        assert!(!presence.ended(&EndCause::Closed));
        assert!(!presence.ended(&EndCause::Reset));
        assert!(!presence.refused(), "one is left");
        assert!(presence.ended(&EndCause::Bye(CloseReason::Stopping)));
        assert!(!presence.refused(), "reported once");
        presence.connected();
        assert!(!presence.ended(&EndCause::Closed), "refused before that");
        assert!(presence.refused());
    }

    #[test]
    fn silence_proves_nothing() {
        for cause in [
            EndCause::Silent,
            EndCause::Bye(CloseReason::Silent),
            EndCause::Ended(CloseReason::Silent),
        ] {
            let mut presence = Presence::default();
            presence.connected();
            presence.connected();
            assert!(!presence.ended(&cause));
            assert!(!presence.ended(&EndCause::Closed));
            assert!(!presence.refused());
            presence.connected();
            assert!(!presence.ended(&EndCause::Closed));
            assert!(presence.refused(), "the next time it does");
        }
    }
}
