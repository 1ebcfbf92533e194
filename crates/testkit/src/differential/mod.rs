//! The differential oracle: random programs of client operations run on Baton and on Apache
//! ZooKeeper by raw frames. Every reply, error, Stat and watch event, and their order on each
//! connection, must be the same; what may differ on purpose is listed in `differences.txt`. A
//! difference is cut down to a program of a few lines.
//!
//! Everything is compared but two things. Of requests that were under way when a connection was
//! lost the answers are not: what a server then carries out is not determined, so the lost ones are
//! sent again, see `endings`, and the state is compared. And of events that notify others that a
//! session's ephemerals went the order is not: ZooKeeper deletes them in the order of a hash set.
//!
//! `cargo xtask diff` runs it for long, the test `differential` for a moment; where there is no
//! ZooKeeper, that test compares Baton with ZooKeeper's recorded answers. Owns the programs and the
//! two servers; says nothing about what is right.
//!
//! | module | owns |
//! |---|---|
//! | `oracle` | runs a program on both servers, finds the difference and cuts the program down |
//! | `side` | one of the two servers |
//! | `endings` | how connections and sessions end badly |
//! | `run` | a program on one server |
//! | `frames` | acts as frames |
//! | `reach` | how sessions reach the servers, with TLS or without |
//! | `generate`, `writes`, `quotas` | random programs |
//! | `transcript`, `normal` | a difference as text; what may differ, made equal |
//! | `generator` | the seed, and the paths and data of programs |
//! | `program`, `places`, `random` | a program as data; its paths; random numbers |
//! | `differences`, `error` | the differences that are meant; the oracle's error |

mod differences;
mod endings;
mod error;
mod frames;
mod generate;
mod generator;
mod normal;
mod oracle;
mod places;
mod program;
mod quotas;
mod random;
mod reach;
mod run;
mod side;
mod transcript;
mod writes;

pub use differences::{Differences, UnknownDifference};
pub use error::OracleError;
pub use generator::Generator;
pub use oracle::{Difference, Oracle, Recorder};
pub use program::Program;
pub use random::Random;
