//! Rare situations that runs must come to: a simulator that never reaches them proves nothing about
//! them.

use crate::cluster::mark;
use crate::network;

/// Every such situation.
pub const MARKS: [&str; 31] = [
    mark::TWO_LEADERS,
    mark::LEADER_CHANGED,
    mark::LEADER_CRASHED,
    mark::LEADER_PAUSED,
    mark::CRASH_IN_WRITE,
    mark::BATCH_RESENT,
    mark::DUPLICATE_DROPPED,
    mark::GAP_REFUSED,
    mark::OLD_ATTACHMENT,
    mark::EXPIRED,
    mark::VOID_EXPIRY,
    mark::PING_MOVED,
    mark::ALONE_WITH_CLIENTS,
    mark::GONE,
    mark::SILENT,
    mark::REFUSED,
    mark::TOO_MUCH_WAITS,
    network::SESSION_MOVED,
    mark::ENDING_OUTLIVED,
    mark::LEADER_RETURNED,
    mark::SNAPSHOT_INSTALLED,
    mark::READ_ONLY_MODE,
    mark::READ_ONLY_READ,
    mark::ADMITTED,
    mark::CALLED_BACK,
    mark::MEMBER_ADDED,
    mark::MEMBER_PROMOTED,
    mark::MEMBER_REMOVED,
    mark::MEMBER_MOVED,
    mark::SEVERAL_CHANGED,
    mark::LEADER_REMOVED,
];
