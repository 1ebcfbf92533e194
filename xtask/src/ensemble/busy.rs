//! Elections that no fault called for: on a machine that has more to do than it can, and beside a
//! client that writes values of the largest size without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use baton_client::{CreateMode, Session};
use baton_testkit::inspect;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::load::{Client, PATIENCE};
use super::stage::{Report, Settings, Stage};
use crate::{Result, table};

/// Default length of a run.
pub(super) const LENGTH: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(200);
/// A value that a request of the largest size has room for.
const LARGE_BYTES: usize = 1_000_000;
/// Requests of the client with large values that wait for their answers.
const LARGE_IN_FLIGHT: usize = 8;

/// Threads that compute without a pause.
struct Load {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(threads: usize) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let compute = |_| {
            let ends = Arc::clone(&ends);
            thread::spawn(move || {
                while !ends.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..threads).map(compute).collect();
        Self { ends, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // It cannot panic.
            let _ = thread.join();
        }
    }
}

/// Counts the elections of servers on a busy machine.
pub(super) async fn busy_machine(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::without_clients(settings, false).await?;
    let outcome = stay(&mut stage).await;
    stage.finish(outcome).await
}

async fn stay(stage: &mut Stage) -> Result<()> {
    while stage.has_next_run() {
        stage.ensemble.wait_leader().await?;
        let before = term(stage).await?;
        let load = Load::start(stage.settings.busy_threads);
        sleep(stage.settings.limit.unwrap_or(LENGTH)).await;
        drop(load);
        stage.ensemble.wait_leader().await?;
        stage.report.elections += term(stage).await? - before;
    }
    Ok(())
}

/// Counts the elections of servers beside a client that writes large values without a pause, and
/// prints how long the small writes of another one take meanwhile.
pub(super) async fn large_writes(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::without_clients(settings, false).await?;
    let outcome = write_large(&mut stage).await;
    stage.finish(outcome).await
}

async fn write_large(stage: &mut Stage) -> Result<()> {
    while stage.has_next_run() {
        let leader = stage.ensemble.wait_leader().await?;
        let before = term(stage).await?;
        let server = &stage.ensemble.servers()[leader];
        let bulk = Client::connect(0, &server.connect_string()).await?.session;
        let bystander = Client::connect(1, &server.connect_string()).await?.session;
        for path in ["/large", "/small"] {
            // Left by the run before.
            let _ = bulk.create(path, b"", CreateMode::Persistent).await;
        }
        let end = Instant::now() + stage.settings.limit.unwrap_or(LENGTH);
        let mut writers = JoinSet::new();
        for _ in 0..LARGE_IN_FLIGHT {
            writers.spawn(write_until(
                bulk.clone(),
                "/large",
                vec![b'x'; LARGE_BYTES],
                end,
            ));
        }
        let small = write_until(bystander.clone(), "/small", b"x".to_vec(), end).await?;
        let mut large = Vec::new();
        while let Some(written) = writers.join_next().await {
            large.extend(written??);
        }
        for (what, took) in [("1 MB", large), ("1 byte, beside them", small)] {
            println!("set of {what}: {}", table::latencies(took));
        }
        for session in [bulk, bystander] {
            timeout(PATIENCE, session.close_timeout(PATIENCE)).await??;
        }
        stage.report.elections += term(stage).await? - before;
    }
    Ok(())
}

/// Writes one after the other; returns how long each took.
pub(super) async fn write_until(
    session: Session,
    path: &str,
    value: Vec<u8>,
    end: Instant,
) -> std::result::Result<Vec<Duration>, baton_client::Error> {
    let mut took = Vec::new();
    while Instant::now() < end {
        let begin = Instant::now();
        session.set_data(path, &value, None).await?;
        took.push(begin.elapsed());
    }
    Ok(took)
}

/// The highest term of any server.
pub(super) async fn term(stage: &Stage) -> Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut terms = Vec::new();
        for server in stage.ensemble.servers() {
            let shown = inspect::four_letter_word(server.addr(), "mntr").await;
            let shown = shown.unwrap_or_default();
            let line = shown.lines().find(|line| line.contains("baton_term"));
            terms.extend(line.and_then(|line| line.split('\t').nth(1)?.parse::<u64>().ok()));
        }
        if terms.len() == stage.ensemble.servers().len() {
            return Ok(terms.into_iter().max().unwrap_or_default());
        }
        if Instant::now() > deadline {
            return Err("a server does not say its term".into());
        }
        sleep(POLL).await;
    }
}
