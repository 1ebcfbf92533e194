//! The signals that `baton` receives on behalf of the command it runs, or of itself while it waits.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// A stream of signal numbers: INT, TERM, HUP, QUIT, USR1, USR2 and WINCH.
///
/// A signal that was ignored when `baton` started (as under `nohup`) stays ignored.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(i32, Signal)>,
    asked_to_end: Option<i32>,
}

impl Signals {
    /// Takes the signals over from their default actions, for the rest of the process's life.
    pub(crate) fn new() -> Result<Self, Failure> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::window_change(),
        ];
        let ignored = ignored();
        let mut streams = Vec::new();
        for kind in kinds {
            let number = kind.as_raw_value();
            if ignored & (1 << (number - 1)) == 0 {
                let stream = signal(kind).map_err(|error| {
                    Failure::baton(format!(
                        "cannot handle signal {number}: {error}; report this"
                    ))
                })?;
                streams.push((number, stream));
            }
        }
        Ok(Self {
            streams,
            asked_to_end: None,
        })
    }

    /// The next signal's number. Safe to cancel.
    pub(crate) async fn next(&mut self) -> i32 {
        let number = std::future::poll_fn(|context| {
            for (number, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await;
        if is_stop(number) {
            self.asked_to_end = Some(number);
        }
        number
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
}

/// Whether a signal asks a program to end.
pub(crate) fn is_stop(number: i32) -> bool {
    [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ]
    .iter()
    .any(|kind| kind.as_raw_value() == number)
}

/// The signals that ask a program to end, without those that were ignored when `baton` started.
pub(crate) fn heeded_stops() -> impl Iterator<Item = nix::sys::signal::Signal> {
    use nix::sys::signal::Signal;

    let ignored = ignored();
    [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ]
    .into_iter()
    .filter(move |signal| ignored & (1 << (*signal as i32 - 1)) == 0)
}

/// Resolves each time this process goes on after it was stopped.
pub(crate) fn continued() -> Result<Signal, Failure> {
    signal(SignalKind::from_raw(
        nix::sys::signal::Signal::SIGCONT as i32,
    ))
    .map_err(|error| Failure::baton(format!("cannot handle SIGCONT: {error}; report this")))
}

/// The number of the signal that Ctrl-C sends.
pub(crate) const INTERRUPT: i32 = nix::sys::signal::Signal::SIGINT as i32;

/// The exit code of a program that a signal has ended, as a shell reports it.
pub(crate) fn exit_code(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// A signal's name, for people.
pub(crate) fn name(number: i32) -> String {
    nix::sys::signal::Signal::try_from(number)
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
