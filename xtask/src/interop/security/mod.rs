//! TLS and identities between real clients and both servers: the same trials for each. Both servers
//! are started from one zoo.cfg, with certificates of `baton cert`.
//!
//! A trial that a client cannot take part in is named with its reason, and so is a client that is
//! not installed.
//!
//! | module | owns |
//! |---|---|
//! | `client` | how each client connects, and what it does |
//! | `trials` | who connects how, does what, and what has to come of it |

mod client;
mod trials;

use std::collections::{BTreeMap, BTreeSet};

use baton_testkit::Target;
use tokio::runtime::Runtime;

use self::client::{Client, Setting};
use self::trials::{Feature, Port, Trial};
use super::{Args, PartEnd};
use crate::process::{Server, build_baton, server_name, work_dir};
use crate::secure::Credentials;
use crate::{Result, java, table};

/// Both ports of a server that asks for certificates, and of one that requires them.
struct Servers {
    asking: Server,
    requiring: Server,
}

/// Results of one client on one server.
#[derive(Default)]
struct Tally {
    passed: usize,
    /// Reason why it had no part in how many trials.
    left_out: BTreeMap<&'static str, usize>,
}

/// Runs every trial with every client on every server, and prints the table.
pub(super) fn run(args: &Args) -> Result<PartEnd> {
    java::require()?;
    java::zookeeper_with_tls()?;
    java::compile()?;
    let (baton, dir) = (build_baton()?, work_dir(args.dir.as_deref())?);
    let credentials = Credentials::make(&baton, dir.path())?;
    let runtime = Runtime::new()?;
    let trials = trials::all();
    let mut rows = Vec::new();
    let mut wrong = Vec::new();
    let mut missing = BTreeSet::new();
    for target in [Target::Baton, Target::ZooKeeper] {
        let start = |auth| {
            let dir = dir.path().join(format!("{target:?}-{auth}"));
            credentials.start(target, &baton, &dir, auth)
        };
        let servers = Servers {
            asking: start("want")?,
            requiring: start("need")?,
        };
        for (number, client) in Client::ALL.into_iter().enumerate() {
            if !client.name().contains(&args.group) {
                continue;
            }
            if let Some(what) = client.missing() {
                missing.insert(format!("{}: {what}", client.name()));
                continue;
            }
            let mut tally = Tally::default();
            for (place, trial) in trials.iter().enumerate() {
                if let Some(why) = hindrance(client, target, trial)? {
                    *tally.left_out.entry(why).or_default() += 1;
                    continue;
                }
                let setting = Setting {
                    server: match trial.port {
                        Port::Required => &servers.requiring,
                        Port::Plain | Port::Secure => &servers.asking,
                    },
                    port: trial.port,
                    credentials: &credentials,
                    baton: &baton,
                    runtime: &runtime,
                    path: &format!("/trial-{number}-{place}"),
                };
                let what = format!(
                    "{} on {}: {}",
                    client.name(),
                    server_name(target),
                    trial.name
                );
                match take(client, trial, &setting)? {
                    None => {
                        tally.passed += 1;
                        println!("{what}: as expected");
                    }
                    Some(complaint) => {
                        println!("{what}: {complaint}");
                        wrong.push(format!("{what}: {complaint}"));
                    }
                }
            }
            rows.push(row(client, target, &tally));
        }
    }
    let text = table::markdown(
        &["client", "server", "trials passed", "left out, and why"],
        &rows,
    );
    println!("{text}");
    match (wrong.as_slice(), missing.is_empty()) {
        ([], true) => Ok(PartEnd::Passed),
        ([], false) => {
            let missing: Vec<String> = missing.into_iter().collect();
            Ok(PartEnd::Skipped(format!(
                "passed without {}",
                missing.join("; ")
            )))
        }
        (some, _) => Err(some.join("; ").into()),
    }
}

/// Returns why the client, or the server, cannot take part in the trial.
fn hindrance(client: Client, target: Target, trial: &Trial) -> Result<Option<&'static str>> {
    for feature in trial.needs {
        if *feature == Feature::Tls13 && target == Target::ZooKeeper {
            return Ok(Some("with TLS 1.3: this ZooKeeper speaks TLS 1.2 alone"));
        }
        if let Some(why) = client.lacks(*feature)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// Takes the steps of a trial; what was not as expected, if anything.
fn take(client: Client, trial: &Trial, setting: &Setting<'_>) -> Result<Option<String>> {
    for (number, step) in (1..).zip(&trial.steps) {
        let found = client
            .attempt(setting, &step.access, step.act, step.expected)
            .map_err(|error| format!("{}, {}: {error}", client.name(), trial.name))?;
        if found != step.expected {
            return Ok(Some(format!(
                "step {number}, {:?}, came to {found:?}, not {:?}",
                step.act, step.expected
            )));
        }
    }
    Ok(None)
}

fn row(client: Client, target: Target, tally: &Tally) -> Vec<String> {
    let left_out: Vec<String> = tally
        .left_out
        .iter()
        .filter(|(why, _)| !why.is_empty())
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    vec![
        client.name(),
        server_name(target),
        tally.passed.to_string(),
        left_out.join("; "),
    ]
}
