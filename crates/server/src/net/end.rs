//! How the task of a connection ends.

use std::time::Duration;

use crate::connections::conn::CloseReason;
use crate::report::notice::Notice;

/// How long a closed connection's last bytes may take to be fetched.
pub(crate) const LINGER: Duration = Duration::from_millis(250);

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client closed it, or it broke.
    Gone,
    /// The server closes it; what waits has been written.
    Closed(CloseReason),
    /// The client broke the protocol: what it did.
    Refused(Notice, String),
}
