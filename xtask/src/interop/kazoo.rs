//! kazoo's own test suite against `baton serve`, by the conformance pack, with TLS and SASL as
//! kazoo asks for them. A miss fails the run.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::PartEnd;
use crate::command::{output, target_dir};
use crate::process::build_baton;
use crate::{Result, root};

/// Default folder of the pack: beside the repository.
const BESIDE: &str = "../shared/conformance/kazoo";
const SCRIPT: &str = "run.sh";
/// Version that Baton's server reports in `envi`; one test of kazoo compares it with the setting of
/// the pack.
const REPORTED_VERSION: &str = "3.9.5";

/// kazoo's certificates that are of X.509 version 1, as kazoo's test harness makes them. Neither
/// rustls nor a server of today takes these; kazoo's later versions make some of version 3 itself.
const OF_VERSION_1: [&str; 2] = ["server_cert", "client_cert"];
/// The sizes of clusters for which the pack has a list of tests that must pass.
const SIZES: [u8; 2] = [1, 3];

/// Runs the suite, if there is a pack, and prints what missed.
pub(super) fn run(named: Option<&Path>) -> Result<PartEnd> {
    let folder = named.map_or_else(|| root().join(BESIDE), Path::to_owned);
    let script = folder.join(SCRIPT);
    if !script.is_file() {
        let missing = if named.is_some() {
            format!("no {}", script.display())
        } else {
            format!("no {BESIDE}/{SCRIPT}; name the pack's folder by --kazoo DIR")
        };
        return Ok(PartEnd::Skipped(missing));
    }
    let baton = std::path::absolute(build_baton()?)?;
    let cache = target_dir()?.join("xtask-kazoo");
    with_certificates_of_version_3(&script, &cache)?;
    let mut missed = Vec::new();
    for size in SIZES {
        let result = SuiteResult::of(&suite(&script, &cache, &baton, size)?)?;
        let servers = if size == 1 {
            "One server"
        } else {
            "Three servers"
        };
        println!("{servers}: {}", result.text());
        missed.extend(result.missed);
    }
    match missed.as_slice() {
        [] => Ok(PartEnd::Passed),
        some => Err(format!("kazoo's tests missed: {}", some.join(", ")).into()),
    }
}

/// Has the pack make its Python environment, and kazoo's harness in there make certificates of
/// version 3.
fn with_certificates_of_version_3(script: &Path, cache: &Path) -> Result<()> {
    output(
        Command::new("bash")
            .arg(script)
            .arg("--help")
            .env("KAZOO_CACHE", cache),
    )?;
    let mut edited = 0;
    for venv in folders(cache, "venv-")? {
        for python in folders(&venv.join("lib"), "python")? {
            let file = python.join("site-packages/kazoo/testing/common.py");
            let text = std::fs::read_to_string(&file)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            std::fs::write(&file, made_version_3(&text))?;
            edited += 1;
        }
    }
    match edited {
        0 => Err(format!("{} has no Python environment of the pack", cache.display()).into()),
        _ => Ok(()),
    }
}

/// The harness's source with a version for each certificate that has none.
fn made_version_3(text: &str) -> String {
    let mut text = text.to_owned();
    for name in OF_VERSION_1 {
        let made = format!("        {name} = OpenSSL.crypto.X509()\n");
        let versioned = format!("{made}        {name}.set_version(2)\n");
        if !text.contains(&versioned) {
            text = text.replace(&made, &versioned);
        }
    }
    text
}

/// The folders in `parent` whose names begin so.
fn folders(parent: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(parent)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && name.starts_with(prefix) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Returns the output of the pack; all of it goes to a log too.
fn suite(script: &Path, cache: &Path, baton: &Path, size: u8) -> Result<String> {
    let log = target_dir()?.join(format!("xtask-kazoo-{size}.log"));
    // kazoo names the provider of SASL for each server, also for those without users; and its file
    // of users is open to all, which Baton refuses.
    let server = target_dir()?.join("xtask-kazoo-server.sh");
    let script_text = format!(
        "sed -i -E '/^(java\\.security\\.auth\\.login\\.config|authProvider\\.1)=/d' \"$1\"\n\
         [ -z \"$ZK_JAAS_CONFIG\" ] || chmod 600 \"$ZK_JAAS_CONFIG\"\n\
         exec {} serve --config \"$1\" ${{ZK_JAAS_CONFIG:+--sasl-users=\"$ZK_JAAS_CONFIG\"}}\n",
        baton.display()
    );
    std::fs::write(&server, script_text)?;
    let mut command = Command::new("bash");
    // Misses end it with a failure, of which the result judges.
    let status = command
        .arg(script)
        // Its tests wait for five seconds here and there, which a busy machine may not keep.
        .args(["--size", &size.to_string(), "--check", "--retry", "1"])
        .env("SERVER_CMD", format!("sh {} {{cfg}}", server.display()))
        .env("ZOOKEEPER_VERSION", REPORTED_VERSION)
        .env("KAZOO_CACHE", cache)
        .stdin(Stdio::null())
        .stdout(File::create(&log)?)
        .status()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    match status.code() {
        Some(0 | 1) => Ok(std::fs::read_to_string(log)?),
        _ => Err(format!("kazoo's suite ended with {status}; see {}", log.display()).into()),
    }
}

/// Result in the pack's last lines.
#[derive(Debug)]
struct SuiteResult {
    /// Number that must pass, and number that passed at all.
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
        let missed: Vec<String> = self
            .missed
            .iter()
            .map(|test| format!("\n- missed, a bug: {test}"))
            .collect();
        self.summary.clone() + &missed.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_a_bug_by_its_name() {
        let said = "MISS kazoo/tests/test_lock.py::TestLock::test_lock: failed\n\
                    RETRY kazoo/tests/test_client.py::TestClient::test_late: passed on retry 1\n\
                    run.sh: 484 tests must pass: 1 missed, 0 not selected; 0 others passed\n\
                    483 passed, 8 failed, 2 skipped\n";
        let result = SuiteResult::of(said).unwrap();
        assert_eq!(
            result.missed,
            ["kazoo/tests/test_lock.py::TestLock::test_lock: failed"]
        );
        assert!(result.text().contains("a bug: kazoo/tests/test_lock.py"));
        assert!(result.summary.starts_with("484 tests must pass: 1 missed"));
        assert!(result.summary.ends_with("1 passed only when run again."));
        assert!(SuiteResult::of("out of time").is_err());
    }

    #[test]
    fn certificates_of_version_1_become_version_3_once() {
        let text = "        server_cert = OpenSSL.crypto.X509()\n        server_cert.sign()\n";
        let once = made_version_3(text);
        assert!(once.contains("X509()\n        server_cert.set_version(2)\n"));
        assert_eq!(made_version_3(&once), once);
    }
}
