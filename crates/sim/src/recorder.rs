//! Record of a run so far: its transcript, its failures, the rare situations that it came to.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::transcript::Transcript;

#[derive(Debug)]
struct State {
    start: Instant,
    transcript: Transcript,
    failures: Vec<String>,
    marks: BTreeSet<&'static str>,
    /// Whether what must not happen counts.
    judges: bool,
}

/// Cheap to clone. See the module's page.
#[derive(Clone, Debug)]
pub(crate) struct Recorder(Arc<Mutex<State>>);

impl Recorder {
    /// Begins now. Lines are only kept if `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            start: Instant::now(),
            transcript: Transcript::new(wanted),
            failures: Vec::new(),
            marks: BTreeSet::new(),
            judges: true,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the run began.
    pub(crate) fn start(&self) -> Instant {
        self.state().start
    }

    /// Whether lines are kept.
    pub(crate) fn wanted(&self) -> bool {
        self.state().transcript.wanted()
    }

    /// A line of the transcript; `text` is only made if it is wanted.
    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        let mut state = self.state();
        if state.transcript.wanted() {
            state.say(&text());
        }
    }

    /// Something that must not happen has happened.
    pub(crate) fn fail(&self, what: &str) {
        if self.state().judges {
            self.fail_at_last(what);
        }
    }

    /// From here on nothing is wrong, but what [`Recorder::fail_at_last`] says.
    pub(crate) fn stop_judging(&self) {
        self.state().judges = false;
    }

    /// Records a failure like [`Recorder::fail`], also of a run that is not judged any more.
    pub(crate) fn fail_at_last(&self, what: &str) {
        let mut state = self.state();
        let what = state.transcript.without_chance(what);
        state.say(&format!("FAILED: {what}"));
        state.failures.push(what);
    }

    /// Something has come about that some run has to come to.
    pub(crate) fn mark(&self, mark: &'static str) {
        let mut state = self.state();
        if state.marks.insert(mark) {
            state.say(&format!("MARK {mark}"));
        }
    }

    pub(crate) fn marks(&self) -> BTreeSet<&'static str> {
        self.state().marks.clone()
    }

    pub(crate) fn failures(&self) -> Vec<String> {
        self.state().failures.clone()
    }

    pub(crate) fn transcript(&self) -> Vec<String> {
        self.state().transcript.lines()
    }
}

impl State {
    fn say(&mut self, text: &str) {
        let at = self.start.elapsed();
        self.transcript.line(at, text);
    }
}
