//! The core between two turns, and the thread that takes the next one. The core's own thread takes
//! those for which clients wait or the time has come. A thread that has brought something else, the
//! reader of another server's frames or the log's, takes the turn itself while the core rests: to
//! wake a thread would take longer than most turns. One thread at a time has the core, and only
//! that one takes requests out of the inbox, so their order stays.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::connections::inbox::{Woken, Work};
use crate::core::driver::CoreDriver;
use crate::error::ServerError;
use crate::state::ServerState;
use crate::time::ForgivenBefore;

/// The turns of a core. [`CoreTurns::run`] is its thread.
#[derive(Debug)]
pub(crate) struct CoreTurns {
    state: Arc<ServerState>,
    /// `None` while a thread has it.
    resting: Mutex<Option<Box<RestingCore>>>,
    put_back: Condvar,
}

/// A core, and what its next turn needs.
#[derive(Debug)]
struct RestingCore {
    core: CoreDriver,
    /// Empty; keeps its memory.
    work: Work,
    /// When the next turn is due though nothing comes in, and what was forgiven before it rested.
    deadline: Option<Instant>,
    mark: ForgivenBefore,
}

impl RestingCore {
    fn turn(&mut self, state: &ServerState) -> Result<(), ServerError> {
        let now = state.time.now();
        state.progress.step(state.time.uptime_ms_at(now));
        state
            .time
            .forgive_late(self.mark, self.deadline, state.options.tick);
        self.core.wait_for_reactions(&mut self.work, now);
        self.core.turn(&mut self.work, now)?;
        state.inbox.done(&mut self.work);
        self.rest(state);
        Ok(())
    }

    fn rest(&mut self, state: &ServerState) {
        state.progress.idle();
        self.core.spin_for_reaction();
        self.mark = state.time.mark();
        self.deadline = self.core.deadline();
        state.inbox.rest_until(self.deadline);
    }
}

impl CoreTurns {
    /// A core that rests. From here on a full disk makes its writes wait.
    pub(crate) fn new(state: &Arc<ServerState>, mut core: CoreDriver) -> Arc<Self> {
        core.wait_for_room();
        let mut resting = Box::new(RestingCore {
            core,
            work: Work::default(),
            deadline: None,
            mark: state.time.mark(),
        });
        resting.rest(state);
        let turns = Arc::new(Self {
            state: Arc::clone(state),
            resting: Mutex::new(Some(resting)),
            put_back: Condvar::new(),
        });
        // Without a reference of its own: the state would keep the core, and the core the state.
        let turn_here = Arc::downgrade(&turns);
        state.inbox.set_turn_here(Box::new(move || {
            turn_here.upgrade().is_some_and(|turns| turns.turn_here())
        }));
        turns
    }

    /// Works until the core is asked to stop, or until the log fails. Then no other thread has a
    /// turn any more, and [`CoreTurns::end`] is to follow.
    ///
    /// # Errors
    /// [`ServerError`]; nothing that was not acknowledged before will be.
    pub(crate) fn run(&self) -> Result<(), ServerError> {
        let inbox = &self.state.inbox;
        loop {
            let woken = inbox.wait();
            let mut resting = self.take();
            let ended = self.turn(&mut resting, woken);
            self.put_back(resting);
            if let Some(outcome) = ended {
                return outcome;
            }
        }
    }

    /// Takes a turn on the core's thread, if it is still to be taken. Returns how the core has
    /// ended, if it has.
    fn turn(&self, resting: &mut RestingCore, woken: Woken) -> Option<Result<(), ServerError>> {
        let inbox = &self.state.inbox;
        if inbox.is_aborted() {
            return Some(Ok(()));
        }
        if let Some(error) = inbox.take_failure() {
            return Some(Err(error));
        }
        let stops = woken == Woken::Stop;
        let is_due = |deadline: Instant| deadline <= self.state.time.now();
        // Another thread may have taken this turn meanwhile.
        if (inbox.collect(&mut resting.work) || stops || resting.deadline.is_some_and(is_due))
            && let Err(error) = resting.turn(&self.state)
        {
            return Some(Err(error));
        }
        stops.then(|| resting.core.stop())
    }

    /// Ends the core, with what it has begun, on this thread: the log's could not wait for itself.
    pub(crate) fn end(&self) {
        drop(self.take());
    }

    /// Takes a turn on the calling thread, if no other thread has the core.
    fn turn_here(&self) -> bool {
        let Some(mut resting) = self.resting.lock().take() else {
            return false;
        };
        let inbox = &self.state.inbox;
        let takes = !inbox.is_closed();
        if takes {
            inbox.collect(&mut resting.work);
            // The core's own thread ends the server: this one belongs to somebody else.
            match catch_unwind(AssertUnwindSafe(|| resting.turn(&self.state))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => inbox.fail(error),
                Err(_) => inbox.fail(ServerError::Defect),
            }
        }
        self.put_back(resting);
        takes
    }

    fn take(&self) -> Box<RestingCore> {
        let mut slot = self.resting.lock();
        loop {
            if let Some(resting) = slot.take() {
                return resting;
            }
            self.put_back.wait(&mut slot);
        }
    }

    fn put_back(&self, resting: Box<RestingCore>) {
        *self.resting.lock() = Some(resting);
        self.put_back.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use baton_proto::PASSWORD_BYTES;
    use baton_wal::testing::{Fault, FaultStorage};

    use super::*;
    use crate::connections::conn::Conn;
    use crate::connections::inbox::Kind;
    use crate::connections::peer::Peer;
    use crate::core::driver::tests::create;
    use crate::core::start::starting::Starting;
    use crate::observers::changes::{ChangeObserver, ObservedChange, ObservedTree};
    use crate::options::Options;
    use crate::server::prepare;
    use crate::time::ServerTime;

    /// The turns of a core on this disk. Its own thread does not run.
    fn turns_on(disk: &FaultStorage, options: Options) -> Arc<CoreTurns> {
        let (storage, time) = (Arc::new(disk.clone()), ServerTime::new());
        let begun = prepare(options, None, storage, time, &Starting::default());
        let (state, core) = begun.unwrap();
        CoreTurns::new(&state, core)
    }

    fn turns() -> Arc<CoreTurns> {
        turns_on(&FaultStorage::new(), Options::default())
    }

    /// Asks for a session, without waking anybody but the core's own thread.
    fn ask_for_session(turns: &CoreTurns) -> Arc<Conn> {
        let conn = turns.state.open(Peer::Local).unwrap();
        let open = Kind::OpenSession {
            timeout_ms: 10_000,
            mirror_read_only: false,
        };
        submit(turns, &conn, open, &[7; PASSWORD_BYTES]);
        conn
    }

    fn submit(turns: &CoreTurns, conn: &Arc<Conn>, kind: Kind, body: &[u8]) {
        let mut work = Work::default();
        work.begin(conn, &conn.identity(), Instant::now());
        work.push(1, kind, body);
        assert!(turns.state.inbox.submit(&mut work));
    }

    fn is_answered(conn: &Conn) -> bool {
        conn.waiting_bytes() > 0
    }

    #[test]
    fn a_thread_that_brings_something_takes_the_turn_of_a_core_that_rests() {
        let turns = turns();
        let conn = ask_for_session(&turns);
        turns.state.inbox.turn_or_nudge();
        assert!(is_answered(&conn) && !turns.state.inbox.is_nudged());
        turns.end();
    }

    #[test]
    fn while_one_thread_has_the_core_another_only_asks_for_its_next_turn() {
        let turns = turns();
        let resting = turns.take();
        let conn = ask_for_session(&turns);
        turns.state.inbox.turn_or_nudge();
        assert!(!is_answered(&conn) && turns.state.inbox.is_nudged());
        turns.put_back(resting);
        turns.state.inbox.turn_or_nudge();
        assert!(is_answered(&conn));
        turns.end();
    }

    #[test]
    fn a_core_that_is_to_stop_has_its_last_turn_on_its_own_thread() {
        let turns = turns();
        let conn = ask_for_session(&turns);
        turns.state.inbox.stop();
        turns.state.inbox.turn_or_nudge();
        assert!(!is_answered(&conn));
        turns.run().unwrap();
        assert!(is_answered(&conn), "what was there is done");
        turns.end();
    }

    #[test]
    fn a_log_that_fails_in_the_turn_of_another_thread_ends_the_core_s_own() {
        let disk = FaultStorage::new();
        let turns = turns_on(&disk, Options::default());
        let conn = ask_for_session(&turns);
        disk.fail_at(disk.operations(), Fault::Error);
        turns.state.inbox.turn_or_nudge();
        let operations = disk.operations();
        turns.state.inbox.turn_or_nudge();
        assert!(matches!(turns.run(), Err(ServerError::Log(_))));
        assert_eq!(disk.operations(), operations, "nothing is tried again");
        assert!(!is_answered(&conn));
        turns.end();
    }

    /// Fails at the first change that it is shown.
    struct Defective;

    impl fmt::Debug for Defective {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Defective")
        }
    }

    impl ChangeObserver for Defective {
        fn restored(&self, _: &ObservedTree<'_>) {}

        fn changed(&self, _: &ObservedChange<'_>) {
            panic!("an observer with a defect")
        }

        fn sample(&self, _: &ObservedTree<'_>, _: i64) -> Box<dyn fmt::Display> {
            Box::new("")
        }
    }

    #[test]
    fn a_defect_in_the_turn_of_another_thread_ends_the_core_and_not_that_thread() {
        let options = Options {
            observer: Some(Arc::new(Defective)),
            ..Options::default()
        };
        let turns = turns_on(&FaultStorage::new(), options);
        let conn = ask_for_session(&turns);
        turns.state.inbox.turn_or_nudge();
        let (kind, body) = create("/a", 0);
        submit(&turns, &conn, kind, &body);
        turns.state.inbox.turn_or_nudge();
        assert!(matches!(turns.run(), Err(ServerError::Defect)));
        turns.end();
    }

    #[test]
    fn threads_that_bring_requests_at_once_have_them_all_answered() {
        const THREADS: usize = 4;
        const REQUESTS: usize = 100;
        let turns = turns();
        let answered = AtomicUsize::new(0);
        let bring = || {
            for request in 0..REQUESTS {
                let conn = ask_for_session(&turns);
                if request % 2 == 0 {
                    turns.state.inbox.turn_or_nudge();
                }
                while !is_answered(&conn) {
                    std::thread::yield_now();
                }
                answered.fetch_add(1, Relaxed);
            }
        };
        std::thread::scope(|scope| {
            let own = scope.spawn(|| turns.run());
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(bring)).collect();
            for thread in threads {
                thread.join().unwrap();
            }
            turns.state.inbox.stop();
            own.join().unwrap().unwrap();
        });
        assert_eq!(answered.load(Relaxed), THREADS * REQUESTS);
        assert_eq!(
            turns.state.tree.read().sessions().count(),
            THREADS * REQUESTS
        );
        turns.end();
    }
}
