//! Log lines of a start that waits for other servers: one at each change, again now and then, and
//! never many.

use std::time::{Duration, Instant};

use baton_peers::bootstrap::Decision;

use crate::core::start::starting::Starting;

/// Time for which a wait has to stay the same before its line is written: changes come in steps
/// that follow each other at once.
const SETTLE: Duration = Duration::from_millis(300);
/// The shortest time between two lines.
const SPACING: Duration = Duration::from_secs(1);
/// When a line is repeated.
const REPEAT: Duration = Duration::from_secs(60);

/// Writes lines about what a start waits for.
pub(super) struct WaitLog<'a> {
    server: u64,
    starting: &'a Starting,
    text: String,
    /// Since when the text is the same.
    since: Option<Instant>,
    /// Whether its line was written.
    is_written: bool,
    last_line: Option<Instant>,
}

impl<'a> WaitLog<'a> {
    pub(super) fn new(server: u64, starting: &'a Starting) -> WaitLog<'a> {
        WaitLog {
            server,
            starting,
            text: String::new(),
            since: None,
            is_written: false,
            last_line: None,
        }
    }

    /// To be called often, with what the start waits for now.
    pub(super) fn waits(&mut self, decision: &Decision, now: Instant) {
        let text = text_of(decision, self.server);
        if text != self.text {
            self.starting.wait(&text);
            self.text = text;
            self.since = Some(now);
            self.is_written = false;
        }
        if !self.is_due(now) {
            return;
        }
        self.is_written = true;
        self.last_line = Some(now);
        let (server, reason) = (self.server, &self.text);
        match decision {
            Decision::Join { .. } | Decision::Refuse(_) => {
                tracing::warn!(server, %reason, "this server cannot join its ensemble yet");
            }
            _ => tracing::info!(server, %reason, "this server waits for its ensemble"),
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let passed = |since: Option<Instant>, least| {
            since.is_none_or(|since| now.saturating_duration_since(since) >= least)
        };
        let least = if self.is_written { REPEAT } else { SPACING };
        passed(self.since, SETTLE) && passed(self.last_line, least)
    }
}

/// Returns the text of what is waited for, and of the operator's remedy.
fn text_of(decision: &Decision, server: u64) -> String {
    match decision {
        Decision::Wait(wait) => wait.to_string(),
        Decision::Refuse(refuse) => refuse.to_string(),
        Decision::Join { cluster } => format!(
            "the data folder is empty, but the other servers are cluster {cluster:016x} already, so this server \
             neither votes nor serves: start it with its own data folder, or admit it with `baton server replace {server}`, \
             or with `baton server add` if it is new"
        ),
        // They are handled at once.
        Decision::Promise { .. } | Decision::Store(_) | Decision::Member { .. } => {
            "joining the ensemble".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use baton_peers::bootstrap::WaitReason;

    use super::*;

    #[test]
    fn a_line_comes_when_its_text_has_settled_and_again_after_a_while() {
        let starting = Starting::default();
        let mut log = WaitLog::new(1, &starting);
        let start = Instant::now();
        let wait = |ids: &[u64]| Decision::Wait(WaitReason::Unreached(ids.to_vec()));
        let mut written = |decision: &Decision, at_ms: u64| {
            let now = start + Duration::from_millis(at_ms);
            log.waits(decision, now);
            log.last_line == Some(now)
        };
        assert!(!written(&wait(&[2, 3]), 0));
        assert!(!written(&wait(&[3]), 200), "it changes still");
        assert!(!written(&wait(&[3]), 499));
        assert!(written(&wait(&[3]), 500));
        assert!(!written(&wait(&[3]), 2_000), "it was said");
        assert!(!written(&wait(&[2]), 2_100));
        assert!(written(&wait(&[2]), 2_400));
        assert!(!written(&wait(&[3]), 2_500));
        assert!(!written(&wait(&[3]), 3_399), "too soon after the last line");
        assert!(written(&wait(&[3]), 3_400));
        assert!(!written(&wait(&[3]), 63_399));
        assert!(written(&wait(&[3]), 63_400));
        let text = "the server starts: waiting for servers [3]: the first start of a cluster needs every server of the list";
        assert_eq!(starting.to_string(), text);
    }

    #[test]
    fn a_server_that_is_not_a_member_says_what_to_do() {
        let text = text_of(&Decision::Join { cluster: 0xc1 }, 3);
        assert!(text.contains("cluster 00000000000000c1"), "{text}");
        assert!(text.contains("`baton server replace 3`"), "{text}");
    }
}
