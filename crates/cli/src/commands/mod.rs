//! The verbs: each file or folder has a verb's options (`Args`) and what it does (`run`).
//!
//! | module | owns |
//! |---|---|
//! | `lock/`, `sem` | a command under a lock or a permit; who holds and who waits |
//! | `elect/` | a command while this process leads; who leads |
//! | `barrier` | a command that starts when all have come; the gate that is opened and closed |
//! | `queue/` | queues; below it, `work/`: work queues |
//! | `member`, `counter` | groups; shared numbers |
//! | `ls`, `get`, `set`, `create`, `rm`, `stat`, `watch`, `acl` | znodes |
//! | `serve`, `wal` | a server; its data folder, printed and checked |
//! | `backup`, `restore` | a running server's state in a file, and a data folder from one |
//! | `server/` | the members of an ensemble |
//! | `doctor/` | what is wrong with the servers, or soon will be |
//! | `dev/` | servers on this machine to try things out |
//! | `context` | the contexts of `config.toml` |
//! | `cert` | a private authority and its certificates |
//! | `agent` | locks for programs in any language |
//! | `console`, `top/`, `deadlocks` | who holds, who waits and why; who waits for each other |
//! | `export`, `import` | ZooKeeper's data, to and from a data folder |
//! | `completions/`, `man` | completion of the command line by shells; texts for `man` |
//! | `listing` | recipes of a kind over a whole tree |
//! | `version` | what this command was built from |

pub(crate) mod acl;
pub(crate) mod agent;
pub(crate) mod backup;
pub(crate) mod barrier;
pub(crate) mod cert;
pub(crate) mod completions;
pub(crate) mod console;
pub(crate) mod context;
pub(crate) mod counter;
pub(crate) mod create;
pub(crate) mod deadlocks;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod elect;
pub(crate) mod export;
pub(crate) mod get;
pub(crate) mod import;
pub(crate) mod listing;
pub(crate) mod lock;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod member;
pub(crate) mod queue;
pub(crate) mod restore;
pub(crate) mod rm;
pub(crate) mod sem;
pub(crate) mod serve;
pub(crate) mod server;
pub(crate) mod set;
pub(crate) mod stat;
pub(crate) mod top;
pub(crate) mod version;
pub(crate) mod wal;
pub(crate) mod watch;
