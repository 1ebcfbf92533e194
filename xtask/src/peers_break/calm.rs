//! The experiments in which nothing is wrong with the servers: one ZooKeeper, and three Batons.

use std::thread::sleep;
use std::time::{Duration, Instant};

use baton::tree::CreateMode;
use baton::{Client, Config};
use baton_testkit::{
    Action, Ensemble, Match, Proxy, ServerOptions, Target, TestServer, Variant, inspect,
};
use tokio::runtime::Runtime;

use super::measurements::{Measurements, Row};
use super::pair::{PATIENCE, Pair};
use super::{SESSION_TIMEOUT, SUBJECTS, Subject, TICK};
use crate::peer::{Log, Peer, Rule, Spec};
use crate::{Result, command, java};

/// Time that a holder that was woken is watched.
const AFTER_WAKING: Duration = Duration::from_secs(2);
const CROWD_TIME: Duration = Duration::from_secs(30);
/// A crowd that has had no grant for this long, while all want one, hangs: two sessions could have
/// expired.
const SILENCE: Duration = Duration::from_secs(10);

fn options() -> ServerOptions {
    ServerOptions {
        tick: TICK,
        min_session_timeout: SESSION_TIMEOUT,
        java_args: vec!["-Dzookeeper.digest.enabled=false".to_owned()],
        ..ServerOptions::default()
    }
}

fn zookeeper(runtime: &Runtime) -> Result<TestServer> {
    Ok(runtime.block_on(TestServer::start_with(Target::ZooKeeper, options()))?)
}

/// Servers that the locks run on.
struct Servers {
    zookeeper: TestServer,
    batons: Ensemble,
}

impl Servers {
    fn start(runtime: &Runtime) -> Result<Self> {
        Ok(Self {
            zookeeper: zookeeper(runtime)?,
            batons: runtime.block_on(Ensemble::start_with(Target::Baton, 3, options()))?,
        })
    }

    /// The server of the holder, and that of the waiter.
    fn of(&self, subject: &Subject) -> Result<[&TestServer; 2]> {
        match (subject.servers, self.batons.servers()) {
            (Target::ZooKeeper, _) => Ok([&self.zookeeper, &self.zookeeper]),
            (Target::Baton, [one, other, ..]) => Ok([one, other]),
            (Target::Baton, _) => Err("fewer than two Batons".into()),
        }
    }
}

fn none() -> Vec<Measurements> {
    vec![Measurements::default(); SUBJECTS.len()]
}

/// The holder is stopped for twice its timeout while it acts every 5 ms, and goes on when another
/// holds.
pub(super) fn pause(runtime: &Runtime, runs: usize) -> Result<Vec<Row>> {
    let servers = Servers::start(runtime)?;
    let mut rows = Vec::new();
    for (belief, what) in [
        (
            "notified",
            "H25: the holder is paused for twice its timeout: what it does every 5 ms after that, under the other's lock, before its library notifies it",
        ),
        (
            "held",
            "the same, where it asks its library's own flag before each",
        ),
    ] {
        let mut measurements = none();
        for run in 0..runs {
            let mut pairs = Vec::new();
            for subject in &SUBJECTS {
                let path = format!("/pause-{belief}-{run}-{}", subject.folder);
                let [holds, waits] = servers.of(subject)?.map(TestServer::connect_string);
                let mut pair = Pair::start(subject, &path, &holds, &waits, SESSION_TIMEOUT)?;
                pair.holder.send(&format!("act {belief} 5"))?;
                pairs.push(pair);
            }
            sleep(Duration::from_secs(1));
            for pair in &pairs {
                pair.holder.pause()?;
            }
            let paused = Instant::now();
            let mut granted = Vec::new();
            for pair in &pairs {
                let event = pair.granted(PATIENCE)?;
                granted.push(
                    event
                        .ok_or("a waiter was not granted a paused holder's lock")?
                        .nanos,
                );
            }
            sleep((2 * SESSION_TIMEOUT).saturating_sub(paused.elapsed()));
            for pair in &pairs {
                pair.holder.resume()?;
            }
            sleep(AFTER_WAKING);
            for ((pair, granted), measurements) in pairs.iter().zip(granted).zip(&mut measurements)
            {
                let acts = u32::try_from(pair.acts_after(granted).len())?;
                measurements.push(f64::from(acts));
            }
        }
        rows.push(Row::new(what, &measurements, |measurements| {
            measurements.range(0, "")
        }));
    }
    Ok(rows)
}

/// The holder's session expires behind a silent network; when that heals, the holder reads its
/// flag and asks for the lock again.
pub(super) fn again(runtime: &Runtime, runs: usize) -> Result<Vec<Row>> {
    let servers = Servers::start(runtime)?;
    let mut flags = none();
    let mut grants = none();
    for run in 0..runs {
        let mut pairs = Vec::new();
        for subject in &SUBJECTS {
            let [holds, waits] = servers.of(subject)?;
            let proxy = runtime.block_on(Proxy::start(holds.addr()))?;
            let path = format!("/again-{run}-{}", subject.folder);
            let pair = Pair::start(
                subject,
                &path,
                &proxy.connect_string(),
                &waits.connect_string(),
                SESSION_TIMEOUT,
            )?;
            pairs.push((pair, proxy));
        }
        sleep(Duration::from_secs(1));
        for (_, proxy) in &pairs {
            proxy.partition();
        }
        for (pair, _) in &pairs {
            let event = pair.granted(PATIENCE)?;
            event.ok_or("a waiter was not granted a lost holder's lock")?;
        }
        for (_, proxy) in &pairs {
            proxy.heal();
        }
        // Time to connect and to be notified that the session is over.
        sleep(SESSION_TIMEOUT);
        for ((pair, _), measurements) in pairs.iter_mut().zip(&mut flags) {
            let flag = pair.holder.ask("held", "held", PATIENCE)?;
            measurements.push(f64::from(u8::from(flag.rest == "true")));
        }
        for (pair, _) in &mut pairs {
            pair.holder.send("acquire")?;
        }
        sleep(SESSION_TIMEOUT);
        for ((pair, _), measurements) in pairs.iter().zip(&mut grants) {
            // An error is no grant.
            let granted = pair.holder.hear("enter", Duration::ZERO).unwrap_or(None);
            measurements.push(f64::from(u8::from(granted.is_some())));
        }
    }
    Ok(vec![
        Row::new(
            "H34: the flag still says \"held\" after the session has expired and another holds",
            &flags,
            Measurements::broken_runs,
        ),
        Row::new(
            "H33: asking again then succeeds while the other holds",
            &grants,
            Measurements::broken_runs,
        ),
    ])
}

/// The connection is reset in place of the reply to the create of the lock node. Nobody else wants
/// the lock.
pub(super) fn lost_reply(runtime: &Runtime, runs: usize) -> Result<Vec<Row>> {
    lost(
        runtime,
        runs,
        false,
        "H01, H15: the reply to the create of the lock node is lost, nobody else wants the lock: never granted",
    )
}

/// The same, after a reset in place of the request: what looks for a node of the first attempt
/// finds none, and the second attempt's outcome is unknown again.
pub(super) fn lost_twice(runtime: &Runtime, runs: usize) -> Result<Vec<Row>> {
    lost(
        runtime,
        runs,
        true,
        "H01, H15: the create is lost on its way, then the reply to its repetition: never granted",
    )
}

fn lost(
    runtime: &Runtime,
    runs: usize,
    loses_the_request_first: bool,
    what: &str,
) -> Result<Vec<Row>> {
    let servers = Servers::start(runtime)?;
    let mut stuck = none();
    let mut left = none();
    for run in 0..runs {
        let mut waiting = Vec::new();
        for subject in &SUBJECTS {
            let [server, _] = servers.of(subject)?;
            let proxy = runtime.block_on(Proxy::start(server.addr()))?;
            if loses_the_request_first {
                let asked = Match::any_request().path_contains(subject.token);
                proxy.on(asked).then(Action::Cut(Variant::Rst));
            }
            let created = Match::any_reply().path_contains(subject.token).error(0);
            let cut = proxy.on(created).then(Action::Cut(Variant::Rst));
            let path = format!("/reply-{run}-{}", subject.folder);
            let log = Log::default();
            let mut peer = Peer::start(
                &log,
                &Spec {
                    servers: &proxy.connect_string(),
                    recipe: subject.recipe,
                    path: &path,
                    name: "alone",
                    timeout: SESSION_TIMEOUT,
                },
            )?;
            peer.send("acquire")?;
            runtime.block_on(async { tokio::time::timeout(PATIENCE, cut.fired()).await })?;
            waiting.push((peer, path, proxy, server));
        }
        let end = Instant::now() + 5 * SESSION_TIMEOUT;
        for ((peer, path, _proxy, server), (stuck, left)) in
            waiting.iter_mut().zip(stuck.iter_mut().zip(&mut left))
        {
            let patience = end.saturating_duration_since(Instant::now());
            let granted = peer.hear("enter", patience).unwrap_or(None);
            stuck.push(f64::from(u8::from(granted.is_none())));
            if granted.is_some() {
                peer.ask("release", "released", PATIENCE)?;
            }
            let nodes = runtime.block_on(inspect::children(server.addr(), path))?;
            left.push(f64::from(u32::try_from(nodes.len())?));
        }
    }
    Ok(vec![
        Row::new(what, &stuck, Measurements::broken_runs),
        Row::new("and a node stays behind", &left, Measurements::broken_runs),
    ])
}

/// Eight waiters hold for up to 5 ms and pause for up to 50.
pub(super) fn hang(runtime: &Runtime, runs: usize) -> Result<Vec<Row>> {
    let mut measurements = none();
    for run in 0..runs {
        let servers = Servers::start(runtime)?;
        for (subject, measurements) in SUBJECTS.iter().zip(&mut measurements) {
            let [server, _] = servers.of(subject)?;
            let log = Log::default();
            let path = format!("/hang-{run}-{}", subject.folder);
            let mut peer = Peer::start(
                &log,
                &Spec {
                    servers: &server.connect_string(),
                    recipe: subject.recipe,
                    path: &path,
                    name: "crowd",
                    timeout: SESSION_TIMEOUT,
                },
            )?;
            peer.send("crowd 8 5 50")?;
            measurements.push(f64::from(u8::from(hangs(&log))));
        }
    }
    Ok(vec![Row::new(
        "H31: eight waiters that pause between acquisitions stop for good within 30 s: runs",
        &measurements,
        Measurements::broken_runs,
    )])
}

/// Returns whether grants cease for good within the time.
fn hangs(log: &Log) -> bool {
    let end = Instant::now() + CROWD_TIME;
    let mut seen = 0;
    while Instant::now() < end {
        if log
            .wait(seen, SILENCE, |event| event.what == "enter")
            .is_none()
        {
            return true;
        }
        seen = log.len();
        sleep(Duration::from_millis(100));
    }
    false
}

/// Four waiters whose numbers pass the end of the server's counter. The counter is set in the files
/// of a ZooKeeper; those of three Batons have nothing that would set theirs.
pub(super) fn last_number(runtime: &Runtime, runs: usize) -> Result<Vec<Row>> {
    let mut server = zookeeper(runtime)?;
    let path = |run: usize, folder: &str| format!("/number-{run}-{folder}");
    let on_zookeeper = |subject: &&Subject| subject.servers == Target::ZooKeeper;
    let subjects: Vec<&Subject> = SUBJECTS.iter().filter(on_zookeeper).collect();
    let paths: Vec<String> = (0..runs)
        .flat_map(|run| {
            subjects
                .iter()
                .map(move |subject| path(run, subject.folder))
        })
        .collect();
    runtime.block_on(make(&server.connect_string(), &paths))?;
    server.kill();
    command::output(
        java::peer("AtTheEnd")?
            .arg(server.data_dir())
            .arg((i32::MAX - 4).to_string())
            .args(&paths),
    )?;
    runtime.block_on(server.restart())?;
    let mut measurements = none();
    for run in 0..runs {
        for (subject, measurements) in subjects.iter().zip(&mut measurements) {
            let log = Log::default();
            let mut peer = Peer::start(
                &log,
                &Spec {
                    servers: &server.connect_string(),
                    recipe: subject.recipe,
                    path: &path(run, subject.folder),
                    name: "crowd",
                    timeout: SESSION_TIMEOUT,
                },
            )?;
            peer.send("crowd 4 20 5")?;
            log.wait(0, PATIENCE, |event| event.what == "enter");
            sleep(Duration::from_secs(5));
            peer.kill();
            let overlaps = log.tally(Rule::AtMost(1)).overlaps;
            measurements.push(f64::from(u32::try_from(overlaps)?));
        }
    }
    Ok(vec![Row::new(
        "H19–H21: the lock's number passes 2147483647: runs in which more than one held at once",
        &measurements,
        Measurements::broken_runs,
    )])
}

async fn make(servers: &str, paths: &[String]) -> Result<()> {
    let client = Client::connect(Config::new(servers)?).await?;
    let session = client.session().await?;
    for path in paths {
        session.create(path, b"", CreateMode::Persistent).await?;
    }
    Ok(client.close_timeout(PATIENCE).await?)
}
