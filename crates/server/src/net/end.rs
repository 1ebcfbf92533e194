//! End of a connection's task.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::connections::conn::{CloseReason, Conn};
use crate::report::notice::Notice;

/// Time for the client to fetch a closed connection's last bytes.
pub(crate) const LINGER: Duration = Duration::from_millis(250);

/// Reasons for which a connection ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The client closed it, or it broke.
    Gone,
    /// The server closes it; what waits has been written.
    Closed(CloseReason),
    /// The client broke the protocol: what it did.
    Refused(Notice, String),
}

/// Ready when the server wants the connection closed.
pub(crate) async fn closed(conn: &Conn) -> CloseReason {
    poll_fn(|cx| {
        let reason = || conn.take(&mut Vec::new(), 0).closing;
        match reason() {
            Some(reason) => Poll::Ready(reason),
            None if conn.wait(cx.waker(), true, None) => Poll::Pending,
            None => Poll::Ready(reason().unwrap_or(CloseReason::ServerStops)),
        }
    })
    .await
}
