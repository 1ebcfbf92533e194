//! Lives of sessions: promises that servers have made by their answers, and expirations (R33, R35,
//! R36).
//!
//! Owns the rule that the answer to a ping, a sync or a write means that the session does not
//! expire before its timeout has passed since the client *sent* the request, by the fastest clock
//! of any server. Re-attachments promise nothing: the leader may have decided the session's end
//! just before it counted one. A client that still has a lease when its session is over is the same
//! mistake seen from the other end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::frames::Proof;

/// Server time is counted in whole milliseconds, the answer's and the clock's.
const ROUNDING: Duration = Duration::from_millis(2);

/// Whether a client has a lease on a session at this instant.
type LeaseCheck = Box<dyn Fn() -> bool + Send>;

#[derive(Default)]
struct SessionRecord {
    timeout: Duration,
    /// The newest request that was answered.
    proof: Option<Proof>,
    expired: Option<Instant>,
    believers: Vec<(String, LeaseCheck)>,
}

/// All sessions of a run.
#[derive(Default)]
pub(super) struct SessionRecords {
    sessions: BTreeMap<i64, SessionRecord>,
    /// Largest drift of a server's clock, in parts per million.
    drift_ppm: u32,
    /// Number of expired sessions.
    expired: u64,
}

impl fmt::Debug for SessionRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lives").finish_non_exhaustive()
    }
}

impl SessionRecords {
    pub(super) fn new(drift_ppm: u32) -> Self {
        Self {
            drift_ppm,
            ..Self::default()
        }
    }

    /// A server has granted a session this timeout.
    pub(super) fn granted(&mut self, session: i64, timeout: Duration) {
        self.sessions.entry(session).or_default().timeout = timeout;
    }

    /// A request of the session was answered.
    ///
    /// # Errors
    /// The session had expired too early for that.
    pub(super) fn answered(&mut self, session: i64, proof: Proof) -> Result<(), String> {
        let drift_ppm = self.drift_ppm;
        let life = self.sessions.entry(session).or_default();
        if life.proof.is_none_or(|before| before.sent < proof.sent) {
            life.proof = Some(proof);
        }
        life.judge(session, drift_ppm)
    }

    /// `believes` says whether `who` has a lease on the session.
    pub(super) fn is_believed(&mut self, session: i64, who: String, believes: LeaseCheck) {
        let life = self.sessions.entry(session).or_default();
        life.believers.push((who, believes));
    }

    /// A server has applied that the session has expired.
    ///
    /// # Errors
    /// It was promised a longer life, or a client believes in it.
    pub(super) fn expired(&mut self, session: i64) -> Result<(), String> {
        let drift_ppm = self.drift_ppm;
        let life = self.sessions.entry(session).or_default();
        if life.expired.is_some() {
            // Every server applies it.
            return Ok(());
        }
        self.expired += 1;
        life.expired = Some(Instant::now());
        let believer = life.believers.iter().find(|(_, believes)| believes());
        if let Some((who, _)) = believer {
            return Err(format!(
                "session 0x{session:x} expires while {who} has a lease on it"
            ));
        }
        life.judge(session, drift_ppm)
    }

    /// Whether the session lives, and its client has sent something within its timeout that was
    /// answered.
    pub(super) fn is_answered(&self, session: i64) -> bool {
        let life = self.sessions.get(&session);
        let lives = life.filter(|life| life.expired.is_none());
        lives.is_some_and(|life| {
            let proof = life.proof;
            proof.is_some_and(|proof| Instant::now() < proof.sent + life.timeout)
        })
    }

    /// Returns the number of expired sessions.
    pub(super) fn expirations(&self) -> u64 {
        self.expired
    }

    /// The run is over: what belongs to clients is dropped.
    pub(super) fn clear(&mut self) {
        self.sessions.clear();
    }
}

impl SessionRecord {
    fn judge(&self, session: i64, drift_ppm: u32) -> Result<(), String> {
        let (Some(proof), Some(expired)) = (self.proof, self.expired) else {
            return Ok(());
        };
        let fastest = 1.0 + f64::from(drift_ppm) / 1_000_000.0;
        let promised = self.timeout.div_f64(fastest).saturating_sub(ROUNDING);
        if expired >= proof.sent + promised {
            return Ok(());
        }
        let lived = match expired.checked_duration_since(proof.sent) {
            Some(lived) => format!("{lived:?} after"),
            None => "before".to_owned(),
        };
        Err(format!(
            "session 0x{session:x} of {:?} expires {lived} its client sent a {} that was answered",
            self.timeout, proof.what
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(4);

    fn ping(sent: Instant) -> Proof {
        Proof { sent, what: "ping" }
    }

    #[tokio::test(start_paused = true)]
    async fn r33_a_session_that_expires_before_its_timeout_is_noticed_in_either_order() {
        for answered_first in [true, false] {
            let mut lives = SessionRecords::new(0);
            lives.granted(7, T);
            let sent = Instant::now();
            tokio::time::advance(T - Duration::from_millis(3)).await;
            let (early, late) = if answered_first {
                (lives.answered(7, ping(sent)), lives.expired(7))
            } else {
                (lives.expired(7), lives.answered(7, ping(sent)))
            };
            assert_eq!(early, Ok(()));
            assert!(late.is_err_and(|what| what.contains("3.997s after its client sent a ping")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_may_expire_after_its_timeout_by_the_fastest_clock() {
        let mut lives = SessionRecords::new(20_000);
        lives.granted(7, T);
        let sent = Instant::now();
        assert_eq!(lives.answered(7, ping(sent)), Ok(()));
        tokio::time::advance(T.mul_f64(0.981)).await;
        assert_eq!(lives.expired(7), Ok(()));
        assert_eq!(lives.expired(7), Ok(()), "at another server");
        assert_eq!(lives.expirations(), 1);
        let old = ping(sent - Duration::from_secs(1));
        assert_eq!(lives.answered(7, old), Ok(()), "an older request");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_has_a_lease_on_an_expired_session_is_noticed() {
        for has_lease in [true, false] {
            let mut lives = SessionRecords::new(0);
            lives.is_believed(7, "a client".to_owned(), Box::new(move || has_lease));
            assert_eq!(lives.expired(7).is_err(), has_lease);
        }
    }
}
