//! A command that runs for as long as something is held: a lock, a permit, leadership, a claim.
//!
//! | module | owns |
//! |---|---|
//! | `guard` | from options to a guard, and from the guard to the exit code |
//! | `options` | the options of every verb that runs a command while it holds something |
//! | `tenure` | the rule of loss: the command has ended before what it runs under can pass on |
//! | `health` | the health check: another command that says whether this one works |
//! | `stop` | why a command is stopped: the messages and the failures |
//! | `supervise/` | the processes: the guardian enforces deadlines even if `baton` is killed |
//! | `lease` | the options of the lease; why a lease is refused |
//! | `nested` | refuses a lock that an outer `baton` holds for this command already |

pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod lease;
pub(crate) mod nested;
pub(crate) mod options;
pub(crate) mod stop;
pub(crate) mod supervise;
pub(crate) mod tenure;
