//! kazoo's own test suite against `baton serve`, by the conformance pack. Owns which tests may
//! miss, and why; every other miss fails the run.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Done, PAGE};
use crate::command::target_dir;
use crate::process::build_baton;
use crate::{Result, page, root, table};

/// Where the pack lies if nobody says: beside the repository.
const BESIDE: &str = "../shared/conformance/kazoo";
const SCRIPT: &str = "run.sh";
/// What Baton's server says in `envi`; one test of kazoo compares it with the setting of the pack.
const REPORTED_VERSION: &str = "3.9.5";

/// Parts of a test's name by which it may miss, and why.
const MAY_MISS: [(&str, &str); 2] = [
    (
        "::TestSSLClient::",
        "no TLS yet: the run leaves the lines of `zoo.cfg` out that ask for it, with which the server refuses to start",
    ),
    (
        "SASLDigestAuthentication::",
        "no SASL yet: the request is answered with AuthFailed",
    ),
];

/// Runs the suite, if there is a pack, and writes what missed into the page.
pub(super) fn run(named: Option<&Path>, dry: bool) -> Result<Done> {
    let folder = named.map_or_else(|| root().join(BESIDE), Path::to_owned);
    let script = folder.join(SCRIPT);
    if !script.is_file() {
        let missing = if named.is_some() {
            format!("no {}", script.display())
        } else {
            format!("no {BESIDE}/{SCRIPT}; name the pack's folder by --kazoo DIR")
        };
        return Ok(Done::Skipped(missing));
    }
    let said = suite(&script, &std::path::absolute(build_baton()?)?)?;
    let result = SuiteResult::of(&said)?;
    println!("{}", result.summary);
    if !dry {
        page::replace(PAGE, "kazoo's own tests", &result.text())?;
    }
    match result.unexplained().as_slice() {
        [] => Ok(Done::Passed),
        some => Err(format!("kazoo's tests missed: {}", some.join(", ")).into()),
    }
}

/// What the pack prints; all of it goes to a log too.
fn suite(script: &Path, baton: &Path) -> Result<String> {
    let log = target_dir()?.join("xtask-kazoo.log");
    // The pack writes a zoo.cfg for TLS and SASL too, which `baton serve` refuses to ignore.
    let server = target_dir()?.join("xtask-kazoo-server.sh");
    let script_text = format!(
        "sed -i -E '/^(secureClientPort|ssl\\.|authProvider)/d' \"$1\" && exec {} serve --config \"$1\"\n",
        baton.display()
    );
    std::fs::write(&server, script_text)?;
    let mut command = Command::new("bash");
    // Misses end it with a failure, of which the result judges.
    let status = command
        .arg(script)
        // Its tests wait for five seconds here and there, which a busy machine may not keep.
        .args(["--size", "1", "--check", "--retry", "1"])
        .env("SERVER_CMD", format!("sh {} {{cfg}}", server.display()))
        .env("ZOOKEEPER_VERSION", REPORTED_VERSION)
        .env("KAZOO_CACHE", target_dir()?.join("xtask-kazoo"))
        .stdin(Stdio::null())
        .stdout(File::create(&log)?)
        .status()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    match status.code() {
        Some(0 | 1) => Ok(std::fs::read_to_string(log)?),
        _ => Err(format!("kazoo's suite ended with {status}; see {}", log.display()).into()),
    }
}

/// What the pack's last lines say.
#[derive(Debug)]
struct SuiteResult {
    /// How many must pass, and how many passed at all.
    summary: String,
    missed: Vec<String>,
}

impl SuiteResult {
    fn of(said: &str) -> Result<Self> {
        let again = said
            .lines()
            .filter(|line| line.starts_with("RETRY "))
            .count();
        let judged = said.lines().find(|line| line.contains(" must pass: "));
        let totals = said.lines().rfind(|line| line.contains(" passed, "));
        let (Some(judged), Some(totals)) = (judged, totals) else {
            return Err("kazoo's suite ended without a result".into());
        };
        let judged = judged.trim_start_matches("run.sh: ");
        Ok(Self {
            summary: format!("{judged}. In all {totals}; {again} passed only when run again."),
            missed: said
                .lines()
                .filter_map(|line| line.strip_prefix("MISS "))
                .map(str::to_owned)
                .collect(),
        })
    }

    fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .missed
            .iter()
            .map(|test| {
                let name = test
                    .split_once("::")
                    .map_or(test.as_str(), |(_, name)| name);
                vec![
                    name.to_owned(),
                    reason(test).unwrap_or("**a bug**").to_owned(),
                ]
            })
            .collect();
        format!(
            "{}\n\n{}",
            self.summary,
            table::markdown(&["missed", "why"], &rows)
        )
    }

    fn unexplained(&self) -> Vec<&str> {
        self.missed
            .iter()
            .map(String::as_str)
            .filter(|test| reason(test).is_none())
            .collect()
    }
}

fn reason(test: &str) -> Option<&'static str> {
    MAY_MISS
        .into_iter()
        .find_map(|(part, why)| test.contains(part).then_some(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_without_a_reason_is_a_bug() {
        let said = "MISS kazoo/tests/test_client.py::TestSSLClient::test_create: failed\n\
                    MISS kazoo/tests/test_lock.py::TestLock::test_lock: failed\n\
                    RETRY kazoo/tests/test_client.py::TestClient::test_late: passed on retry 1\n\
                    run.sh: 484 tests must pass: 2 missed, 0 not selected; 0 others passed\n\
                    482 passed, 9 failed, 2 skipped\n";
        let result = SuiteResult::of(said).unwrap();
        assert_eq!(
            result.unexplained(),
            ["kazoo/tests/test_lock.py::TestLock::test_lock: failed"]
        );
        assert!(result.text().contains("**a bug**"));
        assert!(result.summary.starts_with("484 tests must pass: 2 missed"));
        assert!(result.summary.ends_with("1 passed only when run again."));
        assert!(SuiteResult::of("out of time").is_err());
    }
}
