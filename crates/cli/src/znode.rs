//! Common part of the verbs on znodes: a session, a znode's record as a result, and what an error
//! of the server means for the exit code.

use baton_client::{Error, Reason, Session, Stat};
use serde::Serialize;

use crate::connection::{BRIEF, Connection};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};

/// A path as a result.
#[derive(Serialize)]
pub(crate) struct PathLine<'a> {
    pub(crate) path: &'a str,
}

/// A znode's record as a result.
#[derive(Serialize)]
pub(crate) struct StatLine<'a> {
    path: &'a str,
    czxid: i64,
    mzxid: i64,
    ctime: i64,
    mtime: i64,
    version: i32,
    cversion: i32,
    aversion: i32,
    ephemeral_owner: String,
    data_length: i32,
    num_children: i32,
    pzxid: i64,
}

impl<'a> StatLine<'a> {
    /// The record of the znode at `path`.
    pub(crate) fn new(path: &'a str, stat: &Stat) -> Self {
        Self {
            path,
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            ctime: stat.ctime,
            mtime: stat.mtime,
            version: stat.version,
            cversion: stat.cversion,
            aversion: stat.aversion,
            ephemeral_owner: format!("0x{:x}", stat.ephemeral_owner),
            data_length: stat.data_length,
            num_children: stat.num_children,
            pzxid: stat.pzxid,
        }
    }

    /// The record for people, a line for each fact.
    pub(crate) fn text(&self) -> String {
        let at = |zxid: i64, ms: i64| format!("by change {zxid}, {} ago", duration::show_since(ms));
        let owner = match self.ephemeral_owner.as_str() {
            "0x0" => "-",
            session => session,
        };
        let lines = [
            ("created", at(self.czxid, self.ctime)),
            ("data set", at(self.mzxid, self.mtime)),
            ("children set", format!("by change {}", self.pzxid)),
            ("session", owner.to_owned()),
            (
                "data",
                format!("{} bytes, version {}", self.data_length, self.version),
            ),
            (
                "children",
                format!("{}, version {}", self.num_children, self.cversion),
            ),
            ("acl", format!("version {}", self.aversion)),
        ];
        let lines = lines.map(|(name, value)| format!("{name:<14}{value}"));
        lines.join("\n")
    }
}

/// Runs `work` on a session of its own, which ends with it.
pub(crate) fn with_session(
    context: &Context,
    work: impl AsyncFnOnce(&Session) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    context.block_on(Connection::during(
        context,
        BRIEF,
        async |connection: &Connection| work(&connection.session().await?).await,
    ))?
}

/// A refusal of the server is an answer (exit code 1); anything else is a failure of baton (125).
pub(crate) fn failure(error: Error) -> Failure {
    let (exit_code, kind) = match &error {
        Error::Rejected { .. } | Error::MultiRejected { .. } => (exit::NOTHING, "rejected"),
        _ if matches!(error.reason(), Some(Reason::BadPath(_))) => (exit::USAGE, "usage"),
        _ => (exit::BATON, "baton"),
    };
    Failure::new(exit_code, kind, error.to_string())
}
