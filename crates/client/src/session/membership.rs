//! Changes of the ensemble's members while it runs.
//!
//! Owns how the unknown outcome of a change is resolved: by reading the members (`hazards.md` G3).
//! It must never send a change twice.

use baton_proto::{EnsembleConfig, ErrorCode};

use crate::error::{Error, ReconfigError};
use crate::session::Session;
use crate::values::MembershipChange;

impl Session {
    /// Changes the members of the ensemble, and returns the new ones; with `Some(version)` only if
    /// the members have this version. After a lost answer it reads the members, and does not repeat
    /// the request.
    ///
    /// Servers take one change at a time. A server that is to vote has to run, and to have caught
    /// up, before the leader takes it on; an observer need not.
    ///
    /// ```no_run
    /// # async fn example(
    /// #     session: baton_client::Session,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use baton_client::{MembershipChange, ReconfigError};
    ///
    /// let before = session.ensemble_config().await?;
    /// let fourth = "server.4=zk4:2888:3888:observer;2181".parse()?;
    /// match session.change_members(&MembershipChange::add(fourth), Some(before.version)).await {
    ///     Ok(after) => println!("{} members", after.members.len()),
    ///     Err(ReconfigError::BadVersion) => println!("somebody else has changed the members"),
    ///     Err(error) => return Err(error.into()),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReconfigError`] names why the members have not changed. With [`ReconfigError::Unknown`]
    /// they may have.
    pub async fn change_members(
        &self,
        change: &MembershipChange,
        version: Option<i64>,
    ) -> Result<EnsembleConfig, ReconfigError> {
        match self.reconfig(change, version).await {
            Ok(config) => Ok(config),
            Err(error) if error.is_maybe_applied() => self.resolve_change(change, error).await,
            Err(error) => Err(reconfig_error(error)),
        }
    }

    /// Returns whether a change without an answer was applied. The read is behind it in the order
    /// of all changes: the servers take nothing more from the session's earlier connection.
    async fn resolve_change(
        &self,
        change: &MembershipChange,
        lost: Error,
    ) -> Result<EnsembleConfig, ReconfigError> {
        let found = self.read_latest("/", Self::ensemble_config).await;
        match found {
            Ok(config) if change.is_met_by(&config) => Ok(config),
            Ok(config) => Err(ReconfigError::NotApplied(config)),
            Err(_) => Err(ReconfigError::Unknown(lost)),
        }
    }
}

/// The refusal of a change of members.
fn reconfig_error(error: Error) -> ReconfigError {
    match error.code() {
        Some(ErrorCode::ReconfigDisabled) => ReconfigError::Disabled,
        Some(ErrorCode::ReconfigInProgress) => ReconfigError::InProgress,
        Some(ErrorCode::NewConfigNoQuorum) => ReconfigError::NoQuorum,
        Some(ErrorCode::BadVersion) => ReconfigError::BadVersion,
        Some(ErrorCode::BadArguments) => ReconfigError::BadArguments,
        Some(ErrorCode::NoAuth) => ReconfigError::NotAllowed,
        Some(ErrorCode::Unimplemented) => ReconfigError::StandsAlone,
        _ => ReconfigError::Other(error),
    }
}
