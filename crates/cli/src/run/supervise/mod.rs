//! Runs a command so that it can never outlive what it runs under, whatever happens to `baton`
//! itself.
//!
//! Three processes: `baton` holds the session; the **guardian** (this program again, [`guardian`])
//! is the command's parent and enforces the deadlines that `baton` sends it; the **stub**
//! ([`stub`]) prepares the command's process and then becomes the command. The guardian needs
//! nothing of `baton` to act: when the deadline comes or the connection ends, it stops the command
//! and all its descendants (`hazards.md` H85, H87). So a `baton` that is killed, stopped or hung
//! cannot leave a command running past its lease.
//!
//! | module | owns |
//! |---|---|
//! | `handle` | `baton`'s end: starts the guardian, sends orders, receives reports |
//! | `guardian` | the command's parent process, which enforces the deadlines |
//! | `stub` | prepares the command's process, then becomes the command |
//! | `processes`, `tty` | the command's process tree; the terminal |
//! | `wire` | the messages between `baton` and the guardian |
//! | `session_ticket` | how the guardian ends the session of a `baton` that was killed |
//!
//! Nothing here knows what a lock is: callers pass instants of CLOCK_BOOTTIME, and a ticket of the
//! session that the command runs under.

mod guardian;
mod handle;
mod processes;
mod session_ticket;
mod stub;
mod tty;
mod wire;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) use handle::{Command, Event, SupervisedCommand};
pub(crate) use session_ticket::SessionTicket;
pub(crate) use wire::{CommandEnd, OnLost};

/// First argument of the guardian process.
const GUARDIAN: &str = "__guardian";
/// First argument of the stub process.
const STUB: &str = "__stub";

/// If this process was started as a guardian or a stub, plays that part to its end.
pub(crate) fn divert(mut arguments: std::env::ArgsOs) -> Option<ExitCode> {
    let _program = arguments.next();
    let part = arguments.next()?;
    if part == GUARDIAN {
        Some(guardian::main(arguments.collect::<Vec<OsString>>()))
    } else if part == STUB {
        Some(stub::main(arguments.collect::<Vec<OsString>>()))
    } else {
        None
    }
}

/// The time on CLOCK_BOOTTIME, the clock of leases: it runs on while the machine sleeps.
pub(crate) fn boottime() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}
