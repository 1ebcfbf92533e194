//! A machine that has more to do than it can, and servers that nobody asks for anything: each
//! election there is one that no fault called for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use baton_testkit::inspect;
use tokio::time::{Instant, sleep};

use super::load::PATIENCE;
use super::stage::{Report, Settings, Stage};
use crate::Result;

/// Default length of a run.
const LENGTH: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(200);

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

/// The highest term of any server.
async fn term(stage: &Stage) -> Result<u64> {
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
