//! The measured window: warm-up, the time or number of operations that counts, and the readings of
//! processes at its two ends. One thread runs everything, so counters are plain cells.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use hdrhistogram::Histogram;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::process::Usage;
use super::report::{Latency, Report, ServerCost, per_op_us, round};
use super::{Args, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    WarmUp,
    Measure,
    Stop,
}

/// The state that load-making tasks share with the task that conducts them.
#[derive(Debug)]
pub(crate) struct Window {
    phase: Cell<Phase>,
    ops: Cell<u64>,
    ops_wanted: u64,
    latency_nanos: RefCell<Histogram<u64>>,
    finished: Notify,
}

impl Window {
    /// A window that has not begun.
    pub(crate) fn new(args: &Args) -> Rc<Self> {
        #[allow(
            clippy::expect_used,
            reason = "one microsecond to one minute at three digits is what the crate accepts"
        )]
        let histogram =
            Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("constant bounds");
        // Of a number of operations that are there once each, none may end before it counts.
        let first = match args.warm_up.is_zero() {
            true => Phase::Measure,
            false => Phase::WarmUp,
        };
        Rc::new(Self {
            phase: Cell::new(first),
            ops: Cell::new(0),
            ops_wanted: args.ops.unwrap_or(u64::MAX),
            latency_nanos: RefCell::new(histogram),
            finished: Notify::new(),
        })
    }

    /// Whether tasks are to end.
    pub(crate) fn stopping(&self) -> bool {
        self.phase.get() == Phase::Stop
    }

    /// Counts operations that have ended, until it is dropped.
    pub(crate) fn count(&self) -> Count<'_> {
        Count {
            window: self,
            measuring: self.phase.get() == Phase::Measure,
            ended: 0,
            latency_nanos: self.latency_nanos.borrow_mut(),
        }
    }

    /// Runs a task on this thread; its failure ends the run.
    pub(crate) fn spawn<T: 'static>(
        self: &Rc<Self>,
        task: impl Future<Output = Result<T>> + 'static,
    ) -> JoinHandle<Result<T>> {
        let this = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let result = task.await;
            if result.is_err() {
                this.stop();
            }
            result
        })
    }

    fn stop(&self) {
        self.phase.set(Phase::Stop);
        self.finished.notify_one();
    }

    /// Warms up, measures, stops the tasks and waits for them; returns the measurements and what
    /// the tasks returned.
    pub(crate) async fn conduct<T>(
        &self,
        args: &Args,
        in_flight: usize,
        tasks: Vec<JoinHandle<Result<T>>>,
    ) -> Result<(Report, Vec<T>)> {
        self.wait(args.warm_up).await;
        let (server_before, own_before) = (Usage::of(&args.pid)?, Usage::own()?);
        let begin = Instant::now();
        if !self.stopping() {
            self.phase.set(Phase::Measure);
            let limit = if args.ops.is_some() {
                Duration::MAX
            } else {
                args.seconds
            };
            self.wait(limit).await;
        }
        let length = begin.elapsed();
        let ops = self.ops.get();
        self.phase.set(Phase::Stop);
        let (server_after, own_after) = (Usage::of(&args.pid)?, Usage::own()?);

        let mut ended = Vec::new();
        for task in tasks {
            ended.push(task.await??);
        }
        let own_cpu = own_after.cpu.saturating_sub(own_before.cpu);
        let report = Report {
            workload: args
                .workload
                .to_possible_value()
                .map_or_else(String::new, |name| name.get_name().to_owned()),
            servers: args.servers.clone(),
            connections: args.connections(),
            in_flight,
            value_bytes: args.value_bytes,
            seconds: round(length.as_secs_f64(), 3),
            ops,
            ops_per_second: round(ops as f64 / length.as_secs_f64(), 1),
            latency_us: Latency::from_nanos(&self.latency_nanos.borrow()),
            generator_cpu_us_per_op: per_op_us(own_cpu, ops),
            server: (!args.pid.is_empty())
                .then(|| ServerCost::between(server_before, server_after, ops, length)),
        };
        Ok((report, ended))
    }

    /// Waits for `time`, the wanted number of operations or a failed task; the user's interrupt
    /// ends the run early.
    async fn wait(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.finished.notified() => {}
            _ = tokio::signal::ctrl_c() => self.stop(),
        }
    }
}

/// A count of operations that ended together.
#[derive(Debug)]
pub(crate) struct Count<'w> {
    window: &'w Window,
    measuring: bool,
    ended: u64,
    latency_nanos: RefMut<'w, Histogram<u64>>,
}

impl Count<'_> {
    /// One operation that took this long.
    pub(crate) fn one(&mut self, took: Duration) {
        if self.measuring {
            self.ended += 1;
            self.latency_nanos.saturating_record(took.as_nanos() as u64);
        }
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let ops = self.window.ops.get() + self.ended;
        self.window.ops.set(ops);
        if self.measuring && ops >= self.window.ops_wanted {
            self.window.stop();
        }
    }
}
