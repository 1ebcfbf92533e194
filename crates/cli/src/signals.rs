//! Signals: the state in which this process begins, those that it receives on behalf of itself or
//! of the command it runs, and its death by one of them.
//!
//! Handlers are used and no signal is blocked: a child begins with the default action for a signal
//! that has a handler, and would inherit a block.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Resource, Rlimit, getpid, setrlimit};
use signal_hook::SigId;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::exit::{self, Failure};

/// The signals that are taken over from their default actions.
const TAKEN_OVER: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
];
/// The signals that ask a program to end.
const STOPS: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];
/// The number of the signal that Ctrl-C sends.
pub(crate) const INTERRUPT: i32 = Signal::SIGINT as i32;
/// The code of a signal that the kernel sends by itself, as for a key of the terminal (SI_KERNEL).
const FROM_KERNEL: i32 = 0x80;
/// Signals that wait for one reader, at most. More of them say nothing new.
const MOST_WAITING: usize = 64;

/// Those who read signals, once signals are taken over.
static READERS: Mutex<Option<Vec<mpsc::Sender<ReceivedSignal>>>> = Mutex::new(None);
/// The signal by which this process ends, once a verb has said so.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);

/// Puts right what a parent may have left that would keep this process from ending, or from seeing
/// the end of a child. To be called before any other thread is started.
///
/// Signals that a parent has blocked are let through. SIGCHLD gets a handler: where it is ignored,
/// the system reaps children by itself and reports no end of one. Other signals that are ignored
/// stay so, as `nohup` wants it.
pub(crate) fn begin_clean() {
    let _ = SigSet::empty().thread_set_mask();
    let _ = signal_hook::flag::register(Signal::SIGCHLD as i32, Arc::default());
}

/// A signal that has arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceivedSignal {
    /// Its number.
    pub(crate) number: i32,
    /// Whether the kernel has sent it, as for a key of the terminal: the whole process group has
    /// it then.
    pub(crate) by_kernel: bool,
}

/// The signals of this process: INT, TERM, HUP, QUIT, USR1, USR2 and WINCH.
///
/// A signal that was ignored when `baton` started (as under `nohup`) stays ignored.
#[derive(Debug)]
pub(crate) struct Signals {
    received: mpsc::Receiver<ReceivedSignal>,
    asked_to_end: Option<i32>,
}

impl Signals {
    /// Takes the signals over from their default actions, for the rest of the process's life.
    pub(crate) fn new() -> Result<Self, Failure> {
        let ignored = ignored();
        let heeded = |signal: &Signal| ignored & (1 << (*signal as i32 - 1)) == 0;
        Self::of(&mut TAKEN_OVER.into_iter().filter(heeded))
    }

    /// The same for a process that the first command that needed it has started, and that outlives
    /// that command: nothing stays ignored.
    pub(crate) fn of_detached() -> Result<Self, Failure> {
        Self::of(&mut TAKEN_OVER.into_iter())
    }

    fn of(taken_over: &mut dyn Iterator<Item = Signal>) -> Result<Self, Failure> {
        let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.is_none() {
            let cannot = |error: std::io::Error| {
                Failure::baton(format!("cannot handle signals: {error}; report this"))
            };
            let numbers = taken_over.map(|signal| signal as i32);
            let signals = SignalsInfo::<WithRawSiginfo>::new(numbers).map_err(cannot)?;
            std::thread::Builder::new()
                .name("baton-signals".to_owned())
                .spawn(move || pass_on(signals))
                .map_err(cannot)?;
        }
        let (sender, received) = mpsc::channel(MOST_WAITING);
        readers.get_or_insert_default().push(sender);
        Ok(Self {
            received,
            asked_to_end: None,
        })
    }

    /// The next signal. Safe to cancel.
    pub(crate) async fn received(&mut self) -> ReceivedSignal {
        let Some(received) = self.received.recv().await else {
            // Its sender is kept for ever.
            return std::future::pending().await;
        };
        self.note(received);
        received
    }

    /// The next signal's number. Safe to cancel.
    pub(crate) async fn next(&mut self) -> i32 {
        self.received().await.number
    }

    fn note(&mut self, received: ReceivedSignal) {
        if is_stop(received.number) {
            self.asked_to_end = Some(received.number);
        }
    }

    /// The newest signal from this stream that asked `baton` to end, if there was one.
    pub(crate) fn asked_to_end(&self) -> Option<i32> {
        self.asked_to_end
    }

    /// The next signal that asks `baton` to end. Safe to cancel.
    pub(crate) async fn stop(&mut self) -> i32 {
        loop {
            let number = self.next().await;
            if is_stop(number) {
                return number;
            }
        }
    }

    /// The same for a thread that is not one of a runtime's.
    pub(crate) fn wait_for_stop(&mut self) -> Option<i32> {
        loop {
            let number = self.received.blocking_recv()?.number;
            if is_stop(number) {
                return Some(number);
            }
        }
    }
}

/// Passes each signal on to all who read signals.
fn pass_on(mut signals: SignalsInfo<WithRawSiginfo>) {
    for info in signals.forever() {
        let received = ReceivedSignal {
            number: info.si_signo,
            by_kernel: is_by_kernel(info.si_code),
        };
        let mut readers = READERS.lock().unwrap_or_else(PoisonError::into_inner);
        readers.iter_mut().for_each(|readers| {
            readers.retain(|reader| {
                !matches!(reader.try_send(received), Err(TrySendError::Closed(_)))
            });
        });
    }
}

/// Whether the kernel has sent a signal with this code by itself.
pub(crate) fn is_by_kernel(code: i32) -> bool {
    code == FROM_KERNEL
}

/// Keeps Ctrl-Z from suspending this process while it lives.
#[derive(Debug)]
pub(crate) struct UnsuspendedGuard(Option<SigId>);

/// Has this process go on when Ctrl-Z is pressed.
pub(crate) fn stay_unsuspended() -> UnsuspendedGuard {
    let heard = Arc::new(AtomicBool::new(false));
    UnsuspendedGuard(signal_hook::flag::register(Signal::SIGTSTP as i32, heard).ok())
}

impl Drop for UnsuspendedGuard {
    fn drop(&mut self) {
        self.0.take().map(signal_hook::low_level::unregister);
    }
}

/// Whether a signal asks a program to end.
pub(crate) fn is_stop(number: i32) -> bool {
    STOPS.iter().any(|signal| *signal as i32 == number)
}

/// Resolves each time this process goes on after it was stopped.
pub(crate) fn continued() -> Result<tokio::signal::unix::Signal, Failure> {
    use tokio::signal::unix::{SignalKind, signal};

    signal(SignalKind::from_raw(Signal::SIGCONT as i32))
        .map_err(|error| Failure::baton(format!("cannot handle SIGCONT: {error}; report this")))
}

/// The exit code of a program that a signal has ended, as a shell reports it. If the verb returns
/// it, and the signal asks programs to end, this process dies by that signal: a shell or a loop
/// around it ends only then.
pub(crate) fn ended_by(number: i32) -> u8 {
    ENDED_BY.store(number, Ordering::Relaxed);
    code_of(number)
}

/// The outcome of a verb that lasts until a signal comes. TERM is the usual way to have it end, and
/// no failure; any other stop is an interruption, as for every verb.
pub(crate) fn lasted_until(number: i32) -> u8 {
    if number == Signal::SIGTERM as i32 {
        return exit::OK;
    }
    ended_by(number)
}

/// Dies by the signal that has ended the verb, if one has, and `code` is its outcome. To be called
/// when all is done and written.
pub(crate) fn die_if_ended(code: u8) {
    let number = ENDED_BY.load(Ordering::Relaxed);
    if is_stop(number) && code == code_of(number) {
        die_by(number);
    }
}

/// Dies by a signal that asks programs to end. Returns where that cannot be: the first process of a
/// container cannot be killed from inside.
pub(crate) fn die_by(number: i32) {
    if getpid().is_init() {
        return;
    }
    // A user who has stopped this process is not interested in a dump of its memory.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    let _ = signal_hook::low_level::emulate_default_handler(number);
}

fn code_of(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// A signal's name, for people.
pub(crate) fn name(number: i32) -> String {
    Signal::try_from(number)
        .map_or_else(|_| format!("signal {number}"), |signal| signal.to_string())
}

/// The set of signals this process ignores, as a bit mask; none if the kernel does not say.
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let mask = status
                .lines()
                .find_map(|line| line.strip_prefix("SigIgn:"))?
                .trim();
            u64::from_str_radix(mask, 16).ok()
        })
        .unwrap_or(0)
}
