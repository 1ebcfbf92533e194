//! The guardian: the command's parent process, which stops it in time.
//!
//! One thread, one loop over three sources: orders from `baton`, its children's changes, and a
//! timer on CLOCK_BOOTTIME. It trusts no event to arrive: without a newer lease order the deadlines
//! of the last one apply, and the end of the connection is an order to stop. It must never exit
//! while the command runs. A `baton` that lives kills it when it has read of the command's end; if
//! `baton` has ended instead, the guardian ends the session that the command ran under.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, WaitStatus, getpid, set_child_subreaper};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::processes::CommandTree;
use super::session_ticket::SessionTicket;
use super::tty::Terminal;
use super::wire::{CommandEnd, OnLost, Order, Report};
use super::{STUB, boottime, processes};
use crate::access::AUTH_VARIABLE;

/// Runs the command given as arguments under the orders that come over standard input, a socket.
pub(super) fn main(command: Vec<OsString>) -> ExitCode {
    match Guardian::start(&command).and_then(Guardian::run) {
        Ok(guardian) => {
            guardian.outlive_baton();
            ExitCode::SUCCESS
        }
        Err(error) => {
            // If the socket is what failed, nobody reads this; `baton` then sees the connection
            // end.
            if let Ok(mut control) = control() {
                report(
                    &mut control,
                    &Report::Failed {
                        text: error.to_string(),
                    },
                );
            }
            ExitCode::FAILURE
        }
    }
}

/// The socket to `baton`, which is this process's standard input.
fn control() -> std::io::Result<UnixStream> {
    Ok(UnixStream::from(
        std::io::stdin().as_fd().try_clone_to_owned()?,
    ))
}

/// Stage of stopping the command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It runs, and may run until notice is due.
    Running,
    /// Notice was given; only KILL is left.
    Noticed,
}

struct Guardian {
    control: BufReader<UnixStream>,
    connected: bool,
    children: SignalFd,
    timer: OwnedFd,
    terminal: Option<Terminal>,
    unsuspended: bool,
    command: CommandTree,
    session: Option<Box<SessionTicket>>,
    on_lost: OnLost,
    kill_after: Duration,
    stage: Stage,
    notice_at: Duration,
    kill_at: Duration,
}

impl Guardian {
    /// Takes the first order and starts the command.
    fn start(command: &[OsString]) -> std::io::Result<Self> {
        // Blocked, not ignored: the stub can clear the mask, but not what is ignored. A blocked
        // SIGTTOU also lets this background process put the terminal right.
        SigSet::all().thread_block()?;
        let children =
            SignalFd::with_flags(&signals(), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        set_child_subreaper(Some(getpid()))?;
        let timer = timerfd_create(
            TimerfdClockId::Boottime,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let mut control = BufReader::new(control()?);
        let (order, input) = first_order(&mut control)?;
        let Order::Start {
            group,
            unsuspended,
            on_lost,
            kill_after_ms,
            json,
            session,
            notice_at_ns,
            kill_at_ns,
        } = order
        else {
            return Err(std::io::Error::other("the first order was not to start"));
        };
        let group = group.and_then(Pid::from_raw);
        let terminal = group.and_then(|group| Terminal::of(group, unsuspended));
        let stub = std::process::Command::new("/proc/self/exe")
            .arg0("baton")
            .arg(STUB)
            .arg(getpid().as_raw_nonzero().to_string())
            .arg(if json { "json" } else { "text" })
            .args(command)
            .env_remove(AUTH_VARIABLE)
            .stdin(Stdio::from(input))
            .process_group(group.map_or(0, |group| group.as_raw_nonzero().get()))
            .spawn()?;
        let pid = i32::try_from(stub.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| std::io::Error::other("the command has no pid"))?;
        let mut guardian = Self {
            control,
            connected: true,
            children,
            timer,
            terminal,
            unsuspended,
            command: CommandTree { pid, group },
            session,
            on_lost,
            kill_after: Duration::from_millis(kill_after_ms),
            stage: Stage::Running,
            notice_at: Duration::from_nanos(notice_at_ns),
            kill_at: Duration::from_nanos(kill_at_ns),
        };
        guardian.report(&Report::Started {
            pid: pid.as_raw_nonzero().get(),
        });
        Ok(guardian)
    }

    /// Serves until the command has ended.
    fn run(mut self) -> std::io::Result<Self> {
        // Orders that came right behind the first one are in the buffer already, where poll cannot
        // see them.
        if !self.control.buffer().is_empty() {
            self.take_orders()?;
        }
        loop {
            self.arm_timer()?;
            let mut sources = [
                PollFd::new(&self.children, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
                PollFd::new(self.control.get_ref(), PollFlags::IN),
            ];
            let watched = if self.connected {
                &mut sources[..]
            } else {
                sources.split_at_mut(2).0
            };
            match poll(watched, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let orders = sources
                .last()
                .is_some_and(|source| !source.revents().is_empty());
            while let Ok(Some(_)) = self.children.read_signal() {}
            while let Some(change) = self.command.next_change() {
                match change {
                    processes::Change::Ended(status) => {
                        let rest = (self.stage == Stage::Noticed).then(|| self.command.kill_all());
                        self.finish(rest.flatten().or(Some(status)));
                        return Ok(self);
                    }
                    processes::Change::Stopped(signal) => self.stopped(signal),
                }
            }
            if self.connected && orders {
                self.take_orders()?;
            }
            if self.deadlines_passed() {
                let status = self.command.kill_all();
                self.finish(status);
                return Ok(self);
            }
        }
    }

    /// Reads the orders that have arrived; the end of the connection is one.
    fn take_orders(&mut self) -> std::io::Result<()> {
        loop {
            let mut line = String::new();
            // Orders are written in one piece and are short, so a line that has begun to arrive is
            // there whole.
            if self.control.read_line(&mut line).unwrap_or(0) == 0 {
                self.connected = false;
                let now = boottime();
                self.notice_at = now;
                self.kill_at = self.kill_at.min(now + self.kill_after);
                return Ok(());
            }
            match serde_json::from_str::<Order>(&line).map_err(std::io::Error::other)? {
                Order::Lease {
                    notice_at_ns,
                    kill_at_ns,
                } if self.stage == Stage::Running => {
                    self.notice_at = Duration::from_nanos(notice_at_ns);
                    self.kill_at = Duration::from_nanos(kill_at_ns);
                }
                // After notice the end may come sooner, never later.
                Order::Lease { kill_at_ns, .. } => {
                    self.kill_at = self.kill_at.min(Duration::from_nanos(kill_at_ns));
                }
                Order::Signal { number } => {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        self.command.signal(signal);
                    }
                }
                Order::Start { .. } => {}
            }
            if self.control.buffer().is_empty() {
                return Ok(());
            }
        }
    }

    /// Gives notice if it is due; says whether the time to kill has come.
    fn deadlines_passed(&mut self) -> bool {
        // "Ignore" is about the lease; a command whose `baton` has gone has nobody left who ignores
        // on its behalf.
        if self.on_lost == OnLost::Ignore && self.connected {
            return false;
        }
        let now = boottime();
        if self.stage == Stage::Running && self.notice_at <= now {
            self.stage = Stage::Noticed;
            match self.on_lost {
                OnLost::Term | OnLost::Ignore => self.command.signal(Signal::TERM),
                OnLost::Usr1 => self.command.signal(Signal::USR1),
                OnLost::Kill => {}
            }
            self.report(&Report::Notice);
        }
        self.stage == Stage::Noticed && self.kill_at <= now
    }

    /// The command stopped. From the keyboard, where `baton` itself goes on, that would leave a
    /// lock held by nothing that moves: it is set running again. A stop of the whole job, or by
    /// anyone else, is theirs to end.
    fn stopped(&mut self, signal: i32) {
        if self.unsuspended && signal == Signal::TSTP.as_raw() {
            self.command.resume();
            self.report(&Report::Resumed);
        }
    }

    /// Puts the terminal right and reports how the command ended.
    fn finish(&mut self, status: Option<WaitStatus>) {
        let ended = CommandEnd {
            code: status.and_then(WaitStatus::exit_status),
            signal: status.and_then(WaitStatus::terminating_signal),
            stopped: self.stage == Stage::Noticed,
        };
        if let Some(terminal) = &self.terminal {
            terminal.restore(ended.signal.is_some() || ended.stopped);
        }
        self.report(&Report::Ended(ended));
    }

    /// Waits for `baton` to end this process, as it does once it has read of the command's end. If
    /// `baton` ends first, ends its session, once all that the command has left behind is gone.
    fn outlive_baton(mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        let mut line = String::new();
        while self.control.read_line(&mut line).unwrap_or(0) != 0 {
            line.clear();
        }
        processes::kill_and_reap();
        session.end_session();
    }

    fn report(&mut self, what: &Report) {
        report(self.control.get_mut(), what);
    }

    /// Sets the timer to the next thing due.
    fn arm_timer(&self) -> std::io::Result<()> {
        let due = match self.stage {
            Stage::Running => self.notice_at,
            Stage::Noticed => self.kill_at,
        };
        // An instant of zero disarms the timer; one nanosecond after boot is as surely past.
        let at = if self.on_lost == OnLost::Ignore && self.connected {
            Duration::ZERO
        } else {
            due.max(Duration::from_nanos(1))
        };
        let it_value = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at.subsec_nanos().into(),
        };
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        timerfd_settime(
            &self.timer,
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec {
                it_interval: zero,
                it_value,
            },
        )?;
        Ok(())
    }
}

fn report(control: &mut UnixStream, what: &Report) {
    // A `baton` that has gone reads nothing; the end of its connection is handled where orders are
    // read.
    if let Ok(mut line) = serde_json::to_string(what) {
        line.push('\n');
        let _ = control.write_all(line.as_bytes());
    }
}

fn signals() -> SigSet {
    let mut set = SigSet::empty();
    set.add(nix::sys::signal::Signal::SIGCHLD);
    set
}

/// The first order and the command's standard input, which comes attached to it.
fn first_order(control: &mut BufReader<UnixStream>) -> std::io::Result<(Order, OwnedFd)> {
    let mut bytes = [0_u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        control.get_ref(),
        &mut [std::io::IoSliceMut::new(&mut bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let input = ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .ok_or_else(|| std::io::Error::other("no standard input came with the first order"))?;
    let mut line = String::new();
    control.read_line(&mut line)?;
    Ok((
        serde_json::from_str(&line).map_err(std::io::Error::other)?,
        input,
    ))
}
