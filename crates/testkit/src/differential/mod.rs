//! The differential oracle: random programs of client operations run on Baton and on Apache ZooKeeper by raw frames.
//! Every reply, error, Stat and watch event, and their order on each connection, must be the same; what may differ on
//! purpose is listed in `differences.txt`. A difference is cut down to a program of a few lines.
//!
//! `cargo xtask diff` runs it for long, the test `differential` for a moment. Owns the programs and the two servers;
//! says nothing about what is right.

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
mod writes;

pub use differences::{Differences, UnknownDifference};
pub use generate::Generator;
pub use oracle::{Difference, Oracle, OracleError};
pub use program::Program;
pub use random::Random;
