//! The time of a tree that was ahead of the clock, and is set back.

use super::*;

/// The server's clock was ten years ahead when it wrote, and is right again.
#[test]
fn an_operator_sets_a_time_that_was_ahead_back_to_the_clock() {
    const NOW_MS: i64 = 1_795_478_400_000;
    const AHEAD_MS: i64 = NOW_MS + 10 * 365 * 24 * 3_600_000;
    let disk = FaultStorage::new();
    let made = |stage: &Stage, path: &str| {
        let conn = stage.open(LONG);
        stage.submit(&conn, &[create(path, 1)]);
        answer(&conn);
        let stat = stage.state.tree.read().exists(path, &conn.identity());
        stat.unwrap().mtime
    };
    let patient = Duration::from_secs(3600);
    let stage = Stage::at(Arc::new(disk.clone()), patient, AHEAD_MS);
    assert_eq!(made(&stage, "/then"), AHEAD_MS);
    stage.stop();
    let stage = Stage::at(Arc::new(disk.clone()), patient, NOW_MS);
    assert_eq!(made(&stage, "/now"), AHEAD_MS, "time stands");
    stage.state.inbox.reset_time();
    until("time is back", || {
        stage.state.tree.read().time_ms() == NOW_MS
    });
    assert_eq!(made(&stage, "/behind"), NOW_MS);
    stage.stop();
    // The reset is in the log: the next start has the right time.
    let stage = Stage::at(Arc::new(disk), patient, NOW_MS + 1);
    assert_eq!(made(&stage, "/later"), NOW_MS + 1);
    stage.stop();
}
