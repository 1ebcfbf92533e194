//! `baton`'s end: starts the guardian, sends it orders, receives its reports.
//!
//! Dropping a [`SupervisedCommand`] ends the connection, and with it the command.

use std::ffi::OsString;
use std::fs::File;
use std::io::{IoSlice, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process_group, set_child_subreaper};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::session_ticket::SessionTicket;
use super::wire::{CommandEnd, OnLost, Order, Report};
use super::{GUARDIAN, processes, tty};
use crate::exit::{Failure, start_remedy};
use crate::signals::{self, ReceivedSignal, UnsuspendedGuard};
use crate::traces;

/// A command to run, and how it is stopped.
#[derive(Debug)]
pub(crate) struct Command {
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
    /// Added to the environment.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// The action when the lease runs out.
    pub(crate) on_lost: OnLost,
    /// Between notice and KILL when `baton` itself is killed.
    pub(crate) kill_after: Duration,
    /// Whether complaints about the command are JSON.
    pub(crate) json: bool,
    /// Its standard input; `None` for `baton`'s own.
    pub(crate) input: Option<Vec<u8>>,
    /// The session to end if `baton` is killed, once the command is gone; `None` where others need
    /// it too.
    pub(crate) session: Option<Box<SessionTicket>>,
}

/// A report of the guardian while the command runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It runs, with this process id.
    Started(i32),
    /// It was suspended from the keyboard, and set running again.
    Resumed,
    /// The time for notice has passed; the command is being stopped.
    Notice,
    /// It has ended and was reaped.
    Ended(CommandEnd),
}

/// A command that runs under a guardian.
#[derive(Debug)]
pub(crate) struct SupervisedCommand {
    reports: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    guardian: std::process::Child,
    /// The command's process.
    command: Option<Pid>,
    placement: Placement,
    _unsuspended: Option<UnsuspendedGuard>,
}

/// The process group that a command runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    /// One of its own.
    Own,
    /// The group of `baton`, which a shell moves about as one job: the command can use the terminal
    /// whenever `baton` could, gets the signals of its keys, and stops and goes on with the job.
    Job {
        /// Whether Ctrl-Z suspends it: others are part of the job.
        is_suspended: bool,
    },
}

impl Placement {
    fn of(command: &Command) -> Self {
        // Several commands with inputs of their own may run at a time: none has the terminal.
        if command.input.is_some() || !tty::has_terminal() {
            return Self::Own;
        }
        let is_suspended = processes::is_part_of_a_job();
        Self::Job { is_suspended }
    }
}

impl SupervisedCommand {
    /// Starts the guardian, which starts the command, with its first deadlines: instants of
    /// CLOCK_BOOTTIME. To be called on the main thread, within a runtime.
    pub(crate) fn start(
        command: &Command,
        notice_at: Duration,
        kill_at: Duration,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::baton(format!(
                "cannot start a process to guard the command: {error}; {}",
                start_remedy(&error)
            ))
        };
        let placement = Placement::of(command);
        let unsuspended = placement
            == Placement::Job {
                is_suspended: false,
            };
        let (own, theirs) = StdUnixStream::pair().map_err(failed)?;
        if placement != Placement::Own {
            // What a killed guardian leaves is this process's to end.
            let _ = set_child_subreaper(Some(getpid()));
        }
        let guardian = std::process::Command::new("/proc/self/exe")
            .arg0("baton")
            .arg(GUARDIAN)
            .args(&command.words)
            .envs(
                command
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .envs(traces::variable())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let order = Order::Start {
            group: (placement != Placement::Own).then(|| getpgrp().as_raw_nonzero().get()),
            unsuspended,
            on_lost: command.on_lost,
            kill_after_ms: u64::try_from(command.kill_after.as_millis()).unwrap_or(u64::MAX),
            json: command.json,
            session: command.session.clone(),
            notice_at_ns: nanos(notice_at),
            kill_at_ns: nanos(kill_at),
        };
        match &command.input {
            Some(bytes) => {
                let input = filled(bytes).map_err(failed)?;
                send_with_input(&own, input.as_fd(), &order_line(&order)).map_err(failed)?;
            }
            None => {
                let input = std::io::stdin();
                send_with_input(&own, input.as_fd(), &order_line(&order)).map_err(failed)?;
            }
        }
        own.set_nonblocking(true).map_err(failed)?;
        let (reading, orders) = UnixStream::from_std(own).map_err(failed)?.into_split();
        Ok(Self {
            reports: BufReader::new(reading).lines(),
            orders,
            guardian,
            command: None,
            placement,
            _unsuspended: unsuspended.then(signals::stay_unsuspended),
        })
    }

    /// Waits for the next event. After [`Event::Ended`] there is none. Safe to cancel.
    pub(crate) async fn next(&mut self) -> Result<Event, Failure> {
        let Ok(Some(line)) = self.reports.next_line().await else {
            self.clear_away().await;
            return Err(Failure::baton(
                "the process that guards the command was killed, so the command was killed too; run it again",
            ));
        };
        match serde_json::from_str(&line) {
            Ok(Report::Started { pid }) => {
                self.command = Pid::from_raw(pid);
                Ok(Event::Started(pid))
            }
            Ok(Report::Resumed) => Ok(Event::Resumed),
            Ok(Report::Notice) => Ok(Event::Notice),
            Ok(Report::Ended(ended)) => {
                // The guardian has nothing left to do, and would end the session if this process
                // ended first. A stop must not keep it from ending.
                let _ = self.guardian.kill();
                let _ = self.guardian.wait();
                Ok(Event::Ended(ended))
            }
            Ok(Report::Failed { text }) => {
                self.clear_away().await;
                Err(Failure::baton(format!("cannot guard the command: {text}")))
            }
            Err(error) => {
                let _ = self.guardian.kill();
                self.clear_away().await;
                Err(Failure::baton(format!(
                    "the guarding process sent an unknown answer, so the command was killed: {error}"
                )))
            }
        }
    }

    /// Sets the deadlines, as instants of CLOCK_BOOTTIME. The newest counts, until notice was
    /// given.
    pub(crate) async fn lease(&mut self, notice_at: Duration, kill_at: Duration) {
        self.order(&Order::Lease {
            notice_at_ns: nanos(notice_at),
            kill_at_ns: nanos(kill_at),
        })
        .await;
    }

    /// Passes a signal on to the command and its process group, unless they have it already; says
    /// whether it was passed on.
    pub(crate) async fn signal(&mut self, received: ReceivedSignal) -> bool {
        if received.by_kernel && self.placement != Placement::Own {
            return false;
        }
        let number = received.number;
        self.order(&Order::Signal { number }).await;
        true
    }

    async fn order(&mut self, order: &Order) {
        // A guardian that has gone is noticed where its reports are awaited.
        let _ = self.orders.write_all(order_line(order).as_bytes()).await;
    }

    /// The guardian has died or is about to, which kills the command itself (the stub asked for
    /// that). What is left of its group is killed here, and waited for: the lock must not pass on
    /// before. In `baton`'s own group that is what this process has inherited from the guardian.
    async fn clear_away(&mut self) {
        let _ = self.guardian.wait();
        let is_left = || match (self.placement, self.command) {
            (Placement::Own, Some(group)) => {
                let _ = kill_process_group(group, Signal::KILL);
                processes::runs(group)
            }
            (Placement::Own, None) => false,
            (Placement::Job { .. }, _) => {
                processes::kill_children();
                processes::reap_children()
            }
        };
        while is_left() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

/// An order as it travels.
fn order_line(order: &Order) -> String {
    let mut line = serde_json::to_string(order).unwrap_or_default();
    line.push('\n');
    line
}

/// A file without a name that holds these bytes, to be read from the beginning: unlike a pipe,
/// nobody has to keep filling it.
fn filled(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("baton-item", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Sends the first order with standard input attached; a byte to carry it comes before the line.
fn send_with_input(
    socket: &StdUnixStream,
    input: BorrowedFd<'_>,
    line: &str,
) -> std::io::Result<()> {
    let descriptors = [input];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let message = format!(" {line}");
    sendmsg(
        socket,
        &[IoSlice::new(message.as_bytes())],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}
