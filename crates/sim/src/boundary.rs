//! Moments at which a promise is at stake: the marks of a scenario, and plans that lead to them.
//!
//! Plans that are thinned out evenly rarely come to such a place. These are played each time,
//! before all others, and each must come to its mark: where a change to a recipe moves the frames,
//! `baton-sim --scenario NAME --find "MARK"` prints other plans.

/// One such place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Name of the mark.
    pub mark: &'static str,
    /// A plan that comes to the mark, as a word.
    pub plan: &'static str,
}

/// The guard's own clock, or the server's answer, has ended what is held.
pub(crate) const GUARD_ENDS: &str = "a guard ends while it is held";
/// Its owner was stopped between the server's grant and the news of it.
pub(crate) const GRANT_OVER: &str = "a grant is over when it is heard of";
pub(crate) const TIMED_OUT: &str = "an acquire times out";
pub(crate) const UPGRADED: &str = "a reader becomes the writer";
pub(crate) const UPGRADE_REFUSED: &str = "a reader asks to write behind another writer";
pub(crate) const UPGRADE_OF_ENDED: &str =
    "a reader whose lease has ended, and whose session lives, asks to write";
pub(crate) const FEWER_PERMITS: &str = "more permits are asked for than there are by then";
pub(crate) const TAKE_UNKNOWN: &str = "the outcome of a take is unknown";
pub(crate) const CLAIM_LATE: &str = "an answer takes longer than a claim lives";
pub(crate) const ACK_LATE: &str = "a claim is acknowledged when its time is over";
pub(crate) const ACK_UNKNOWN: &str = "the outcome of an acknowledgement is unknown";
pub(crate) const CHANGE_UNKNOWN: &str = "the outcome of a guarded change is unknown";
pub(crate) const CHANGE_REFUSED: &str = "a guarded change is refused";
pub(crate) const ROUND_ABORTED: &str = "a round is aborted by another member";

const BOUNDARIES: &[Boundary] = &[
    at("mutex", GUARD_ENDS, "0,c0.down.9.after.pause-10000ms"),
    at("mutex", GUARD_ENDS, "0,c0.down.9.after.pause-3950ms"),
    at("mutex-stay", GUARD_ENDS, "0,c0.up.9.before.exile"),
    at("mutex-stay", GUARD_ENDS, "0,c0.up.12.after.exile"),
    at("mutex-requeue", GUARD_ENDS, "0,c0.up.9.after.pause-3950ms"),
    at("mutex-timeout", TIMED_OUT, "0,call0.poll3.after"),
    at(
        "simple-mutex",
        GUARD_ENDS,
        "0,c0.down.8.after.pause-10000ms",
    ),
    at(
        "reentrant-mutex",
        GUARD_ENDS,
        "0,c0.up.9.after.pause-3950ms",
    ),
    at("multi-lock", GUARD_ENDS, "0,c1.up.35.after.pause-3950ms"),
    at("election", GUARD_ENDS, "0,c0.up.11.after.pause-3950ms"),
    at("election", GRANT_OVER, "0,c0.down.11.after.pause-10000ms"),
    at("rw-lock", GUARD_ENDS, "0,c0.down.12.after.pause-10000ms"),
    at(
        "rw-lock-downgrade",
        GRANT_OVER,
        "0,c0.down.14.after.pause-3950ms",
    ),
    at("rw-lock-changes", UPGRADED, "0,c1.up.3.before.reset"),
    at("rw-lock-changes", UPGRADE_REFUSED, "0"),
    at(
        "rw-lock-changes",
        UPGRADE_OF_ENDED,
        "0,c1.down.16.after.pause-3950ms",
    ),
    at(
        "rw-lock-changes",
        UPGRADE_OF_ENDED,
        "0,c1.down.31.after.pause-3950ms",
    ),
    at("semaphore", GUARD_ENDS, "0,c0.up.41.after.pause-10000ms"),
    at("semaphore-resize", FEWER_PERMITS, "0"),
    at("queue", TAKE_UNKNOWN, "0,c1.up.7.after.exile"),
    at("queue-take", TAKE_UNKNOWN, "0,c1.down.13.before.exile"),
    at("priority-queue", TAKE_UNKNOWN, "0,c1.up.21.after.exile"),
    at("work-queue", ACK_UNKNOWN, "0,c1.down.15.before.exile"),
    at(
        "work-queue-visibility",
        CLAIM_LATE,
        "0,c1.down.10.before.delay-400ms",
    ),
    at("work-queue-visibility", ACK_LATE, "0"),
    at(
        "work-queue-visibility",
        ACK_UNKNOWN,
        "0,c2.up.12.after.exile",
    ),
    at("mutex-txn", CHANGE_UNKNOWN, "0,c0.up.13.after.exile"),
    at("mutex-txn", CHANGE_REFUSED, "0,c0.down.12.after.exile"),
    at("double-barrier-abort", ROUND_ABORTED, "0"),
];

const fn at(scenario: &'static str, mark: &'static str, plan: &'static str) -> Boundary {
    Boundary {
        scenario,
        mark,
        plan,
    }
}

/// Those of one scenario.
pub(crate) fn of(scenario: &str) -> impl Iterator<Item = &'static Boundary> {
    let scenario = scenario.to_owned();
    let all = BOUNDARIES.iter();
    all.filter(move |boundary| boundary.scenario == scenario)
}
