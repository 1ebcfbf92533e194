//! The virtual znode `/zookeeper/baton`, by which a client recognises Baton. It is in no
//! listing and in no log; only reading it by its path finds it. A client needs it to know which
//! answers mean that the leader has counted the request, so that a lease may rest on them
//! (hazards.md H91): all of a server that stands alone; in an ensemble those to pings, writes and
//! syncs, while a read is answered by the server alone; none on a session of read-only mode.

use baton_proto::Stat;

/// Path of the znode.
pub(crate) const PATH: &str = "/zookeeper/baton";

/// The beginning of the znode's data.
macro_rules! data {
    ($rest:literal) => {
        concat!("{\"version\":\"", env!("CARGO_PKG_VERSION"), "\",", $rest)
    };
}

/// Data of the znode, on a server that stands alone.
const DATA_ALONE: &str = data!("\"ping_lease\":true}");
const TRACED_ALONE: &str = data!("\"ping_lease\":true,\"traces\":true}");

/// On a server of an ensemble. A client that does not know `lease` keeps its lease by writes.
const DATA_IN_ENSEMBLE: &str = data!("\"ping_lease\":false,\"lease\":\"ping\"}");
const TRACED_IN_ENSEMBLE: &str = data!("\"ping_lease\":false,\"lease\":\"ping\",\"traces\":true}");

/// In read-only mode: no answer counts, since no leader knows of the request.
const DATA_WITHOUT_LEADER: &str = data!("\"ping_lease\":false}");

/// Answers that mean that the leader has counted the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// All: the server stands alone.
    All,
    /// Those to pings, writes and syncs: the server is one of an ensemble.
    Some,
    /// None: the session is one of read-only mode.
    Nothing,
}

/// Data of the znode. `is_traced`: the server has a tracer, so that a client may say which trace a
/// write belongs to.
pub(crate) const fn data(counted: Counted, is_traced: bool) -> &'static str {
    match (counted, is_traced) {
        (Counted::All, false) => DATA_ALONE,
        (Counted::All, true) => TRACED_ALONE,
        (Counted::Some, false) => DATA_IN_ENSEMBLE,
        (Counted::Some, true) => TRACED_IN_ENSEMBLE,
        (Counted::Nothing, _) => DATA_WITHOUT_LEADER,
    }
}

/// Its stat: that of a znode that was never written.
pub(crate) fn stat(counted: Counted, is_traced: bool) -> Stat {
    Stat {
        data_length: i32::try_from(data(counted, is_traced).len()).unwrap_or(i32::MAX),
        ..Stat::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r33_only_a_server_that_stands_alone_says_that_every_answer_counts() {
        let endings = [
            (Counted::All, "\",\"ping_lease\":true}"),
            (Counted::Some, "\",\"ping_lease\":false,\"lease\":\"ping\"}"),
            (Counted::Nothing, "\",\"ping_lease\":false}"),
        ];
        for (counted, ending) in endings {
            assert!(data(counted, false).ends_with(ending));
            for is_traced in [false, true] {
                let length = i32::try_from(data(counted, is_traced).len()).unwrap();
                assert_eq!(stat(counted, is_traced).data_length, length);
            }
        }
    }

    #[test]
    fn only_a_server_with_a_tracer_and_a_leader_asks_for_traces() {
        for counted in [Counted::All, Counted::Some] {
            let (plain, traced) = (data(counted, false), data(counted, true));
            let plain = plain.strip_suffix('}').unwrap();
            assert_eq!(traced, format!("{plain},\"traces\":true}}"));
        }
        let (plain, traced) = (data(Counted::Nothing, false), data(Counted::Nothing, true));
        assert_eq!(plain, traced);
    }
}
