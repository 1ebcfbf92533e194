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

mod differences;
mod endings;
mod frames;
mod generate;
mod normal;
mod oracle;
mod places;
mod program;
mod quotas;
mod random;
mod run;
mod side;
mod transcript;
mod writes;

pub use differences::{Differences, UnknownDifference};
pub use generate::Generator;
pub use oracle::{Difference, Oracle, OracleError, Recorder};
pub use program::Program;
pub use random::Random;
