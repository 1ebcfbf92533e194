//! Tests that need what may not be installed: whether they run here, and how they say that they do
//! not.

use std::io::Write as _;

use crate::launch::zookeeper_classpath;

/// The peers whose tests fail where they would be skipped: names with commas between, or `1` for
/// all.
const REQUIRE: &str = "BATON_REQUIRE_PEERS";

/// Returns whether a test that needs Apache ZooKeeper runs here. Where it does not, [`skip`] says
/// so.
///
/// # Panics
/// As [`skip`], for the peer `zookeeper`.
#[must_use]
pub fn zookeeper_or_skip() -> bool {
    if crate::zookeeper_is_installed() {
        return true;
    }
    let missing = zookeeper_classpath().err().map_or_else(
        || "Java is missing; on Debian: apt-get install default-jre-headless".to_owned(),
        |error| error.to_string(),
    );
    skip("zookeeper", &missing);
    false
}

/// Says on standard error that the calling test is skipped because of a peer, and why. The test
/// harness does not capture the line, so it is seen even though the test passes.
///
/// # Panics
/// Where the environment variable `BATON_REQUIRE_PEERS` names the peer, or is `1`.
pub fn skip(peer: &str, why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let required = std::env::var(REQUIRE).is_ok_and(|peers| names(&peers, peer));
    assert!(
        !required,
        "{test} cannot run: {why} ({REQUIRE} does not let it be skipped)"
    );
    let _ = std::io::stderr().write_all(format!("skipped: {test}: {why}\n").as_bytes());
}

fn names(peers: &str, peer: &str) -> bool {
    peers == "1" || peers.split(',').any(|name| name.trim() == peer)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn peers_are_required_by_name_or_all_at_once() {
        assert!(names("1", "kazoo"));
        assert!(names("zookeeper, kazoo", "kazoo"));
        assert!(!names("zookeeper", "kazoo"));
        assert!(!names("", "kazoo"));
    }
}
