//! Entries that this server has proposed and that are not applied yet. Owns whom each is to answer:
//! the requests it was made of, and their order. An entry that is not here came from another
//! server, or from before the start; it is applied all the same, and answers nobody. Allocates
//! nothing once its buffers have grown.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use baton_consensus::Position;

use crate::connections::inbox::Work;
use crate::traces::{WriteOnItsWay, WriteStep};

/// Buffers of steps that are kept for the next entries.
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
    /// Whether this connection has asked for any of it.
    pub(crate) fn concerns(&self, conn: u32) -> bool {
        let steps = self.steps.iter();
        let mut groups = steps.filter_map(|step| self.work.groups.get(step.group?));
        groups.any(|group| group.conn.id == conn)
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

/// The proposed entries that are not applied yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    entries: VecDeque<(Position, Requested)>,
    /// The work of entries that nobody asked for.
    nothing: Arc<Work>,
    /// A work that no entry has, for the next requests.
    spare_work: Option<Arc<Work>>,
    spare_steps: Vec<Vec<Step>>,
}

impl InFlight {
    /// Takes the requests out of `work`, so that several entries can own them.
    pub(crate) fn share(&mut self, work: &mut Work) -> Arc<Work> {
        let mut shared = self.spare_work.take().unwrap_or_default();
        match Arc::get_mut(&mut shared) {
            Some(place) => std::mem::swap(place, work),
            None => shared = Arc::new(std::mem::take(work)),
        }
        shared
    }

    /// Puts the requests back into `work`, once all their entries are applied.
    pub(crate) fn give_back(&mut self, mut shared: Arc<Work>, work: &mut Work) {
        if let Some(requests) = Arc::get_mut(&mut shared) {
            std::mem::swap(requests, work);
            self.spare_work = Some(shared);
        }
    }

    /// A work without requests, for entries that the server makes by itself.
    pub(crate) fn nothing(&self) -> Arc<Work> {
        Arc::clone(&self.nothing)
    }

    /// An empty buffer for steps.
    pub(crate) fn steps(&mut self) -> Vec<Step> {
        self.spare_steps.pop().unwrap_or_default()
    }

    /// An entry has been proposed.
    pub(crate) fn push(&mut self, position: Position, requested: Requested) {
        self.entries.push_back((position, requested));
    }

    /// Takes out what the committed entry at `position` answers, which has `commands` commands.
    pub(crate) fn take(&mut self, position: Position, commands: usize) -> Requested {
        let is_ours = self
            .entries
            .front()
            .is_some_and(|(ours, _)| *ours == position);
        if is_ours && let Some((_, requested)) = self.entries.pop_front() {
            return requested;
        }
        self.unasked(commands)
    }

    /// What an entry of `commands` commands answers that nobody here asked for.
    pub(crate) fn unasked(&mut self, commands: usize) -> Requested {
        let mut steps = self.steps();
        steps.resize(commands, Step::UNASKED);
        let work = self.nothing();
        Requested { work, steps }
    }

    /// Keeps the buffers of an entry that has been applied.
    pub(crate) fn recycle(&mut self, requested: Requested) {
        self.recycle_steps(requested.steps);
    }

    /// Keeps a buffer of steps.
    pub(crate) fn recycle_steps(&mut self, mut steps: Vec<Step>) {
        steps.clear();
        if self.spare_steps.len() < KEEP {
            self.spare_steps.push(steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::conn::tests::conn;

    fn at(index: u64, term: u64) -> Position {
        Position { index, term }
    }

    #[test]
    fn an_entry_of_another_server_answers_nobody() {
        let mut in_flight = InFlight::default();
        let mut work = Work::default();
        let conn = conn(1);
        work.begin(&conn, &conn.identity(), std::time::Instant::now());
        let shared = in_flight.share(&mut work);
        assert!(work.is_empty());
        let step = Step {
            group: Some(0),
            request: 0,
            is_command: true,
        };
        let requested = Requested {
            work: Arc::clone(&shared),
            steps: vec![step],
        };
        in_flight.push(at(7, 2), requested);
        for other in [at(6, 2), at(7, 1)] {
            let requested = in_flight.take(other, 3);
            assert!(requested.work.is_empty());
            assert_eq!(requested.steps.len(), 3);
            assert!(requested.steps.iter().all(|step| step.group.is_none()));
            in_flight.recycle(requested);
        }
        let ours = in_flight.take(at(7, 2), 1);
        assert_eq!(ours.work.groups.len(), 1);
        assert_eq!(ours.steps.len(), 1);
        // Its requests go back to where they came from once no entry has them.
        drop(ours);
        in_flight.give_back(shared, &mut work);
        assert_eq!(work.groups.len(), 1);
    }
}
