//! The virtual znode `/zookeeper/baton`, by which a client recognises Baton. It is in no
//! listing and in no log; only reading it by its path finds it. A client needs it to know which
//! answers mean that the leader has counted the request, so that a lease may rest on them
//! (hazards.md H91): all of a server that stands alone; in an ensemble those to pings, writes and
//! syncs, while a read is answered by the server alone.

use baton_proto::Stat;

/// Path of the znode.
pub(crate) const PATH: &str = "/zookeeper/baton";

/// Data of the znode, on a server that stands alone.
const DATA_ALONE: &str = concat!(
    "{\"version\":\"",
    env!("CARGO_PKG_VERSION"),
    "\",\"ping_lease\":true}"
);

/// On a server of an ensemble. A client that does not know `lease` keeps its lease by writes.
const DATA_IN_ENSEMBLE: &str = concat!(
    "{\"version\":\"",
    env!("CARGO_PKG_VERSION"),
    "\",\"ping_lease\":false,\"lease\":\"ping\"}"
);

/// Data of the znode. `is_member`: the server is one of an ensemble.
pub(crate) const fn data(is_member: bool) -> &'static str {
    if is_member {
        DATA_IN_ENSEMBLE
    } else {
        DATA_ALONE
    }
}

/// Its stat: that of a znode that was never written.
pub(crate) fn stat(is_member: bool) -> Stat {
    Stat {
        data_length: i32::try_from(data(is_member).len()).unwrap_or(i32::MAX),
        ..Stat::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r33_only_a_server_that_stands_alone_says_that_every_answer_counts() {
        assert!(data(false).ends_with("\",\"ping_lease\":true}"));
        assert!(data(true).ends_with("\",\"ping_lease\":false,\"lease\":\"ping\"}"));
        for is_member in [false, true] {
            let length = i32::try_from(data(is_member).len()).unwrap();
            assert_eq!(stat(is_member).data_length, length);
        }
    }
}
