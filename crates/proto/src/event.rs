//! Watch events and the numbers around watches (protocol.md §1.4, §1.7). Which watch fires when is
//! the server's decision.

use bytes::BufMut;

use crate::wire::put_string;
use crate::{DecodeError, DecodeErrorKind, Decoder};

/// A number that names nothing the protocol knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{value} is not a known {what}")]
pub struct UnknownValue {
    /// Thing that the number should have named.
    pub what: &'static str,
    /// The number.
    pub value: i32,
}

macro_rules! wire_enum {
    ($(#[$meta:meta])* $name:ident, $what:literal { $($(#[$doc:meta])* $variant:ident = $code:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant),+
        }

        impl $name {
            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> i32 {
                match self { $(Self::$variant => $code),+ }
            }
        }

        impl TryFrom<i32> for $name {
            type Error = UnknownValue;

            fn try_from(code: i32) -> Result<Self, UnknownValue> {
                match code {
                    $($code => Ok(Self::$variant),)+
                    value => Err(UnknownValue { what: $what, value }),
                }
            }
        }
    };
}

wire_enum! {
    /// Change of the watched znode.
    EventKind, "event type" {
        /// Nothing happened to a znode: the connection's state changed.
        None = -1,
        /// It was created.
        NodeCreated = 1,
        /// It was deleted.
        NodeDeleted = 2,
        /// Its data was written.
        NodeDataChanged = 3,
        /// A child was added or removed.
        NodeChildrenChanged = 4,
        /// A data watch was removed; made by clients, for their own listeners.
        DataWatchRemoved = 5,
        /// A child watch was removed; made by clients.
        ChildWatchRemoved = 6,
        /// A persistent watch was removed; made by clients.
        PersistentWatchRemoved = 7,
    }
}

wire_enum! {
    /// The state of the connection that an event reports. Servers always send
    /// [`KeeperState::SyncConnected`].
    KeeperState, "connection state" {
        /// No connection.
        Disconnected = 0,
        /// Connected.
        SyncConnected = 3,
        /// The credentials were refused; final.
        AuthFailed = 4,
        /// Connected to a server that is cut off from its ensemble.
        ConnectedReadOnly = 5,
        /// Connected, and SASL has succeeded.
        SaslAuthenticated = 6,
        /// Closed by the client; final.
        Closed = 7,
        /// The session has expired; final.
        Expired = -112,
    }
}

wire_enum! {
    /// Watches that `checkWatches` and `removeWatches` are about.
    WatcherKind, "watcher type" {
        /// Child watches.
        Children = 1,
        /// Data and exists watches.
        Data = 2,
        /// Every kind.
        Any = 3,
        /// Persistent watches.
        Persistent = 4,
        /// Persistent recursive watches.
        PersistentRecursive = 5,
    }
}

wire_enum! {
    /// Kind of watch that `addWatch` adds.
    AddWatchMode, "watch mode" {
        /// Stays until removed; reports the znode and its direct children.
        Persistent = 0,
        /// Stays until removed; reports the whole subtree, without children-changed events.
        PersistentRecursive = 1,
    }
}

pub(crate) fn put_event(out: &mut impl BufMut, kind: EventKind, state: KeeperState, path: &str) {
    out.put_i32(kind.code());
    out.put_i32(state.code());
    put_string(out, path);
}

/// A watch event; it follows a reply header with [`crate::xid::NOTIFICATION`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WatcherEvent {
    /// Kind of the event.
    pub kind: EventKind,
    /// The connection's state as the sender sees it.
    pub state: KeeperState,
    /// To which znode.
    pub path: String,
}

impl WatcherEvent {
    /// Writes the record.
    pub fn encode(&self, out: &mut impl BufMut) {
        put_event(out, self.kind, self.state, &self.path);
    }

    /// Reads the record.
    ///
    /// # Errors
    /// The bytes end too early, or a number is unknown.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let kind = from.i32("WatcherEvent.type")?;
        let kind = EventKind::try_from(kind).map_err(|error| {
            from.error(
                "WatcherEvent.type",
                DecodeErrorKind::UnknownValue(error.value),
            )
        })?;
        let state = from.i32("WatcherEvent.state")?;
        let state = KeeperState::try_from(state).map_err(|error| {
            from.error(
                "WatcherEvent.state",
                DecodeErrorKind::UnknownValue(error.value),
            )
        })?;
        Ok(Self {
            kind,
            state,
            path: from.string("WatcherEvent.path")?.to_owned(),
        })
    }
}
