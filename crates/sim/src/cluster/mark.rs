//! Rare situations of an ensemble.

/// Two servers lead at once, in different terms.
pub(crate) const TWO_LEADERS: &str = "two servers lead at once, in different terms";
/// A leader was followed by another one.
pub(crate) const LEADER_CHANGED: &str = "another server leads than before";
/// A server sends a batch of its clients a second time.
pub(crate) const BATCH_RESENT: &str = "a batch is sent to the leader again";
pub(crate) const DUPLICATE_DROPPED: &str = "a command that was applied before is not applied again";
pub(crate) const GAP_REFUSED: &str = "a command is refused because one before it is missing";
pub(crate) const OLD_ATTACHMENT: &str =
    "a command of a connection that has lost its session is refused";
/// A leader steps down with sessions that it had decided to end (R36).
pub(crate) const VOID_EXPIRY: &str = "a leader steps down before it has ended a session";
/// A ping outlives the leader that it was sent to (R33).
pub(crate) const PING_MOVED: &str = "a ping waits for another leader than at first";
/// A server hears no other, while its clients reach no other server.
pub(crate) const ALONE_WITH_CLIENTS: &str = "a server is alone with its clients";
/// A session's time is over.
pub(crate) const EXPIRED: &str = "a session expires";
/// The process that leads ends.
pub(crate) const LEADER_CRASHED: &str = "the leader ends";
/// The process that leads ends while entries that it has sent are not on its own disk.
pub(crate) const CRASH_IN_WRITE: &str = "a server ends in the middle of a write of its log";
pub(crate) const DISK_FULL: &str = "the log finds no room, and goes on later";
pub(crate) const CRASH_IN_START: &str = "a server ends in its start";
pub(crate) const GONE: &str = "a server is certainly gone, and another one knows it";
pub(crate) const SILENT: &str = "a connection between servers ends because nothing arrives";
pub(crate) const TOO_MUCH_WAITS: &str = "too much waits for a server";
/// A paused server leads when it goes on.
pub(crate) const LEADER_PAUSED: &str = "a server leads when it is paused";
/// A connection of a member was refused by its own cluster, for some time.
pub(crate) const REFUSED: &str = "a connection between servers is refused";
/// A session has answers of another leader than the one that had decided its end (R36).
pub(crate) const ENDING_OUTLIVED: &str =
    "a session lives on whose end a deposed leader had decided";
/// Leadership came back to a server before a follower noticed that it was away (R28).
pub(crate) const LEADER_RETURNED: &str = "a server leads again, and a follower has not noticed";
pub(crate) const SNAPSHOT_INSTALLED: &str = "a server installs a snapshot of another one";
pub(crate) const READ_ONLY_MODE: &str = "a server goes into read-only mode";
/// A client that asks for it reads there (R31).
pub(crate) const READ_ONLY_READ: &str = "a client reads in read-only mode";
/// R41.
pub(crate) const CALLED_BACK: &str = "a server calls back one that it does not know yet";
/// A process with an empty folder becomes one of a member (R17).
pub(crate) const ADMITTED: &str = "a server with an empty folder is admitted";
pub(crate) const MEMBER_ADDED: &str = "a server is added while the others run";
pub(crate) const MEMBER_PROMOTED: &str = "a server that did not vote votes";
pub(crate) const MEMBER_REMOVED: &str = "a server is removed while the others run";
pub(crate) const MEMBER_MOVED: &str = "a voter changes its address";
/// R15.
pub(crate) const SEVERAL_CHANGED: &str = "several voters come, or go, with one change";
/// R16.
pub(crate) const LEADER_REMOVED: &str = "the leader is removed";
/// R19.
pub(crate) const ROLLED_BACK: &str = "a folder is replaced by an older copy";
pub(crate) const SEVERAL_OLD_COPIES: &str = "several folders are replaced by older copies at once";
pub(crate) const OLD_COPY_REFUSED: &str = "an older copy is refused";
pub(crate) const OLD_COPY_HARMLESS: &str = "an older copy lacks nothing";
pub(crate) const OLD_COPY_FILLED: &str = "an older copy receives what it had lost";
/// Nobody there could know.
pub(crate) const OLD_COPY_LET_IN: &str = "older copies elect a leader without a committed entry";
pub(crate) const UNDECIDABLE: &str = "too few folders have what they had acknowledged";
pub(crate) const CLOCK_STEPPED: &str = "a wall clock jumps";
pub(crate) const OLDER_TERM_REPLACED: &str = "an entry of an older term is replaced";
/// R03.
pub(crate) const OLDER_TERM_COMMITTED: &str = "a newer leader commits an entry of an older term";
pub(crate) const FIGURE_EIGHT: &str =
    "a majority has an entry of an older term, and its leader has committed none of its own";
pub(crate) const HANDED_OVER: &str = "a leader is asked to hand over";
