//! Elections that no fault called for: on a machine that has more to do than it can, and beside a
//! client that writes values of the largest size without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use baton_client::CreateMode;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::load::{Client, PATIENCE, timed_until};
use super::stage::{Report, Settings, Stage};
use crate::{Result, table};

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
        let before = stage.term().await?;
        let load = Load::start(stage.settings.busy_threads);
        sleep(stage.settings.length()).await;
        drop(load);
        stage.ensemble.wait_leader().await?;
        stage.report.elections += stage.term().await? - before;
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
        let before = stage.term().await?;
        let server = &stage.ensemble.servers()[leader];
        let bulk = Client::connect(0, &server.connect_string()).await?.session;
        let bystander = Client::connect(1, &server.connect_string()).await?.session;
        for path in ["/large", "/small"] {
            // Left by the run before.
            let _ = bulk.create(path, b"", CreateMode::Persistent).await;
        }
        let end = Instant::now() + stage.settings.length();
        let mut writers = JoinSet::new();
        for _ in 0..LARGE_IN_FLIGHT {
            let session = bulk.clone();
            writers.spawn(async move {
                let value = vec![b'x'; LARGE_BYTES];
                timed_until(end, None, || session.set_data("/large", &value, None)).await
            });
        }
        let small = timed_until(end, None, || bystander.set_data("/small", b"x", None)).await?;
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
        stage.report.elections += stage.term().await? - before;
    }
    Ok(())
}
