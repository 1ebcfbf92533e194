//! The requests of a batch, and the steps that they become when it is applied. Keeps the buffers of
//! those that are answered, so that nothing is allocated once they have grown.

use std::sync::Arc;
use std::time::Instant;

use crate::connections::inbox::Work;
use crate::observers::traces::{WriteOnItsWay, WriteStep};

/// Buffers of each kind that are kept for the next batches.
const KEEP: usize = 4;

/// One thing to do at apply, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Its group in the work; `None` where no connection of this server waits for it.
    pub(crate) group: Option<usize>,
    /// Its request in the work.
    pub(crate) request: usize,
    /// Whether it takes the next command of the entry.
    pub(crate) is_command: bool,
}

impl Step {
    /// A command that nobody here waits for.
    pub(crate) const UNASKED: Self = Self {
        group: None,
        request: 0,
        is_command: true,
    };
}

/// The requests of an entry, and the steps that they become.
#[derive(Debug)]
pub(crate) struct Requested {
    pub(crate) work: Arc<Work>,
    pub(crate) steps: Vec<Step>,
}

impl Requested {
    /// The connections that have asked for it.
    pub(crate) fn connections(&self) -> impl Iterator<Item = u32> {
        let steps = self.steps.iter();
        let groups = steps.filter_map(|step| self.work.groups.get(step.group?));
        groups.map(|group| group.conn.id)
    }

    /// Those of its writes that their clients trace have reached this step.
    pub(crate) fn mark(&self, step: WriteStep, now: Instant) {
        for write in self.traced() {
            write.mark(step, now);
        }
    }

    /// Those of its writes that their clients trace.
    fn traced(&self) -> impl Iterator<Item = &Arc<WriteOnItsWay>> {
        let steps = match self.work.is_traced() {
            true => self.steps.as_slice(),
            false => &[],
        };
        let asked = steps.iter().filter(|step| step.group.is_some());
        asked.filter_map(|step| self.work.traced(step.request))
    }
}

/// Buffers of requests and steps, for the next batches.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// The work of entries that nobody here asked for.
    nothing: Arc<Work>,
    works: Vec<Work>,
    steps: Vec<Vec<Step>>,
}

impl InFlight {
    /// An empty buffer for requests.
    pub(crate) fn work(&mut self) -> Work {
        self.works.pop().unwrap_or_default()
    }

    /// An empty buffer for steps.
    pub(crate) fn steps(&mut self) -> Vec<Step> {
        self.steps.pop().unwrap_or_default()
    }

    /// Returns the placeholder for the answers to an entry of `commands` commands that no client
    /// here sent.
    pub(crate) fn unasked(&mut self, commands: usize) -> Requested {
        let mut steps = self.steps();
        steps.resize(commands, Step::UNASKED);
        let work = Arc::clone(&self.nothing);
        Requested { work, steps }
    }

    /// Keeps a buffer of requests, which is empty.
    pub(crate) fn recycle_work(&mut self, work: Work) {
        if self.works.len() < KEEP {
            self.works.push(work);
        }
    }

    /// Keeps a buffer of steps.
    pub(crate) fn recycle_steps(&mut self, mut steps: Vec<Step>) {
        steps.clear();
        if self.steps.len() < KEEP {
            self.steps.push(steps);
        }
    }
}
