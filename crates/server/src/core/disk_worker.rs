//! Work that waits for the disk, on a thread of its own. The core hands in short jobs and polls
//! their outcomes; a simulation runs them where it wants.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TryRecvError};

/// One piece of work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs, one after another, in the order in which they came.
pub(crate) trait DiskWorker: fmt::Debug + Send {
    /// Takes a job, without blocking. A job that can never run is dropped.
    fn run(&mut self, job: Job);
}

/// The outcome of one job.
#[derive(Debug)]
pub(crate) struct Task<T>(Receiver<T>);

/// Progress of a job.
#[derive(Debug)]
pub(crate) enum Progress<T> {
    /// It waits or runs.
    Pending,
    /// It has this outcome, which is handed out once.
    Done(T),
    /// It will never have an outcome.
    Lost,
}

impl<T: Send + 'static> Task<T> {
    /// Gives `work` to the worker. Where nobody waits for the outcome any more, the worker drops
    /// it.
    pub(crate) fn start(
        worker: &mut dyn DiskWorker,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        let (answer, outcome) = crossbeam_channel::bounded(1);
        worker.run(Box::new(move || {
            let _ = answer.send(work());
        }));
        Self(outcome)
    }

    /// A job that has no outcome.
    pub(crate) fn lost() -> Self {
        Self(crossbeam_channel::bounded(1).1)
    }

    /// The outcome, if there is one.
    pub(crate) fn poll(&self) -> Progress<T> {
        match self.0.try_recv() {
            Ok(outcome) => Progress::Done(outcome),
            Err(TryRecvError::Empty) => Progress::Pending,
            Err(TryRecvError::Disconnected) => Progress::Lost,
        }
    }
}

/// A thread, which begins with the first job. Dropping the worker waits for the jobs that it has.
pub(crate) struct ThreadWorker {
    name: &'static str,
    wake: Arc<dyn Fn() + Send + Sync>,
    thread: Option<(Sender<Job>, JoinHandle<()>)>,
}

impl ThreadWorker {
    /// A worker whose thread has this name, and calls `wake` after each job.
    pub(crate) fn new(name: &'static str, wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self {
            name,
            wake,
            thread: None,
        }
    }
}

impl fmt::Debug for ThreadWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadWorker")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl DiskWorker for ThreadWorker {
    fn run(&mut self, job: Job) {
        let mut unsent = job;
        if let Some((jobs, _)) = &self.thread {
            match jobs.send(unsent) {
                Ok(()) => return,
                // The thread has ended by a panic: another one takes its place.
                Err(error) => unsent = error.into_inner(),
            }
        }
        let (jobs, waiting) = crossbeam_channel::unbounded::<Job>();
        let wake = Arc::clone(&self.wake);
        let work = move || {
            for job in waiting {
                job();
                wake();
            }
        };
        match std::thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(work)
        {
            Ok(thread) => {
                let _ = jobs.send(unsent);
                self.thread = Some((jobs, thread));
            }
            Err(error) => {
                tracing::warn!(%error, name = self.name, "the system gave no thread for work on files");
            }
        }
    }
}

impl Drop for ThreadWorker {
    fn drop(&mut self) {
        if let Some((jobs, thread)) = self.thread.take() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

/// Runs each job at once, in the caller's thread.
#[cfg(any(test, feature = "simulation"))]
#[derive(Debug, Default)]
pub(crate) struct InlineWorker;

#[cfg(any(test, feature = "simulation"))]
impl DiskWorker for InlineWorker {
    fn run(&mut self, job: Job) {
        job();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker, and its calls of `wake`.
    fn worker() -> (ThreadWorker, Receiver<()>) {
        let (woken, wakes) = crossbeam_channel::unbounded();
        let wake = Arc::new(move || {
            let _ = woken.send(());
        });
        (ThreadWorker::new("test", wake), wakes)
    }

    #[test]
    fn a_thread_runs_jobs_in_order_wakes_after_each_and_ends_with_its_worker() {
        let (mut worker, wakes) = worker();
        let (begun, order) = crossbeam_channel::unbounded();
        let tasks: Vec<Task<u32>> = (0..3)
            .map(|number| {
                let begun = begun.clone();
                Task::start(&mut worker, move || {
                    begun.send(number).unwrap();
                    number
                })
            })
            .collect();
        for (number, task) in tasks.iter().enumerate() {
            wakes.recv().unwrap();
            assert!(matches!(task.poll(), Progress::Done(done) if done as usize == number));
        }
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
        drop(worker);
        assert_eq!(wakes.recv(), Err(crossbeam_channel::RecvError), "no thread");
    }

    #[test]
    fn a_job_that_panics_is_lost_and_a_later_one_runs() {
        let (mut worker, wakes) = worker();
        let lost: Task<()> = Task::start(&mut worker, || std::panic::resume_unwind(Box::new(())));
        if let Some((_, thread)) = &worker.thread {
            while !thread.is_finished() {
                std::thread::yield_now();
            }
        }
        assert!(matches!(lost.poll(), Progress::Lost));
        let next = Task::start(&mut worker, || 5);
        wakes.recv().unwrap();
        assert!(matches!(next.poll(), Progress::Done(5)));
    }
}
