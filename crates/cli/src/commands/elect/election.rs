//! The election that a command line names, and what its errors come to.

use baton::LeaderElection;
use baton::election::ElectionError;
use baton::naming::Dialect;

use crate::connection::Connection;
use crate::exit::Failure;
use crate::paths;
use crate::run::lease;

/// Selection of an election.
#[derive(Debug, clap::Args)]
pub(super) struct ElectionSelector {
    /// The election's path.
    #[arg(value_parser = paths::recipe)]
    pub(super) path: String,
    /// Library whose names are used there.
    #[arg(long, value_name = "LIBRARY", default_value_t = Dialect::CuratorLatch)]
    pub(super) dialect: Dialect,
}

/// The election at `path`. Nothing is sent.
pub(super) fn election(
    connection: &Connection,
    path: &str,
    dialect: Dialect,
) -> Result<LeaderElection, Failure> {
    let election = LeaderElection::new(&connection.client, path);
    let election = election.map_err(|error| Failure::usage(error.to_string()))?;
    Ok(election.dialect(dialect))
}

/// The failure for an error of the library.
pub(super) fn failure(error: &ElectionError) -> Failure {
    match error {
        ElectionError::Lock(error) => lease::not_acquired(error),
        error => Failure::baton(error.to_string()),
    }
}
