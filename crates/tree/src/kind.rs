//! Kind of a znode, in the one number that a znode stores as its owner (protocol.md §1.11; the
//! encoding is ZooKeeper's own, so that its snapshots can be imported).

use baton_proto::{CreateMode, MAX_TTL_MS};

const CONTAINER: i64 = i64::MIN;
const TTL: i64 = 0xff << 56;

/// Lifetime of a znode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Stays until it is deleted.
    Persistent,
    /// Lives as long as this session.
    Ephemeral(i64),
    /// Stays until the server finds it without children.
    Container,
    /// Stays until it has had no children and no write for this many milliseconds.
    Ttl(i64),
}

impl Kind {
    /// The kind of a znode that `session` creates in this mode.
    pub(crate) fn of_mode(mode: CreateMode, session: i64) -> Self {
        if mode.is_ephemeral() {
            Self::Ephemeral(session)
        } else if mode.is_container() {
            Self::Container
        } else {
            mode.ttl_ms().map_or(Self::Persistent, Self::Ttl)
        }
    }

    /// The number to store.
    pub(crate) const fn owner(self) -> i64 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral(session) => session,
            Self::Container => CONTAINER,
            Self::Ttl(ttl_ms) => TTL | ttl_ms,
        }
    }

    /// Decodes a stored owner.
    pub(crate) const fn of_owner(owner: i64) -> Self {
        match owner {
            0 => Self::Persistent,
            CONTAINER => Self::Container,
            _ if owner & TTL == TTL => Self::Ttl(owner & MAX_TTL_MS),
            session => Self::Ephemeral(session),
        }
    }

    /// The owner that clients see: sessions only (protocol.md §1.6).
    pub(crate) const fn ephemeral_owner(self) -> i64 {
        match self {
            Self::Ephemeral(session) => session,
            _ => 0,
        }
    }
}

/// Returns whether a session may have this id: it must not read as another kind of owner.
pub(crate) const fn is_session_id(id: i64) -> bool {
    matches!(Kind::of_owner(id), Kind::Ephemeral(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_round_trip() {
        for kind in [
            Kind::Persistent,
            Kind::Ephemeral(1),
            Kind::Ephemeral(0x7f00_0000_0000_0001),
            Kind::Ephemeral(-0x0200_0000_0000_0000),
            Kind::Container,
            Kind::Ttl(1),
            Kind::Ttl(MAX_TTL_MS),
        ] {
            assert_eq!(Kind::of_owner(kind.owner()), kind);
        }
        for id in [0, i64::MIN, -1] {
            assert!(!is_session_id(id));
        }
    }
}
