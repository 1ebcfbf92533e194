//! The virtual znode `/zookeeper/baton`, by which a client recognises Baton. It is in no
//! listing and in no log; only reading it by its path finds it. A client needs it to know that the
//! answer to a ping comes from the leader itself, so that a lease may rest on it (hazards.md H91).

use baton_proto::Stat;

/// Path of the znode.
pub(crate) const PATH: &str = "/zookeeper/baton";

/// Data of the znode.
pub(crate) const DATA: &str = concat!(
    "{\"version\":\"",
    env!("CARGO_PKG_VERSION"),
    "\",\"ping_lease\":true}"
);

/// Its stat: that of a znode that was never written.
pub(crate) fn stat() -> Stat {
    Stat {
        data_length: i32::try_from(DATA.len()).unwrap_or(i32::MAX),
        ..Stat::default()
    }
}
