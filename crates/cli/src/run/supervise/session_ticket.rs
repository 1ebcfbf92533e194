//! The end of the session of a `baton` that was killed, so that the next waiter need not wait for
//! the session to expire.
//!
//! The guardian takes the session up by its id and password, and closes it. It does not delete the
//! lock's node: the close is bound to the session that was lost, so it can take nothing from anyone
//! else. It needs no rights on any node, any server of the list can do it, and after the session's
//! expiry it does nothing. It leaves no release marker, so a lock delay applies as after an expiry.
//! Where no server answers in time, the session's timeout decides.

use std::time::Duration;

use baton_client::{Session, SessionExport};
use serde::{Deserialize, Serialize};

use crate::access::PassedAccess;
use crate::connection::Connection;

/// A session, and the servers that know it. It holds secrets: it travels over a private socket
/// only.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SessionTicket {
    servers: String,
    access: PassedAccess,
    id: i64,
    password: [u8; 16],
    last_zxid: i64,
    timeout: Duration,
}

impl SessionTicket {
    /// The ticket of a session of this connection, under which nothing else runs than one command;
    /// `None` where the access to the servers cannot be passed on.
    pub(crate) fn of(connection: &Connection, session: &Session) -> Option<Box<Self>> {
        let export = session.export();
        Some(Box::new(Self {
            servers: connection.servers.clone(),
            access: connection.passed_access()?,
            id: export.id,
            password: export.password,
            last_zxid: export.last_zxid,
            timeout: session.timeout(),
        }))
    }

    /// Ends the session, for as long as it takes the servers to end it by themselves. Blocks.
    pub(super) fn end_session(self) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        else {
            return;
        };
        // Nobody is left to read of a failure: the one who ran `baton` has killed it.
        let _ = runtime.block_on(self.end());
    }

    async fn end(self) -> Option<()> {
        let config = self.access.read().ok()?;
        let config = config.config(&self.servers, "the process that was killed");
        let config = config
            .ok()?
            .session_timeout(self.timeout)
            .connect_within(self.timeout);
        let export = SessionExport {
            id: self.id,
            password: self.password,
            last_zxid: self.last_zxid,
        };
        let session = Session::resume(config, &export).await.ok()?;
        session.close_timeout(self.timeout).await.ok()
    }
}

impl std::fmt::Debug for SessionTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionTicket(0x{:x})", self.id)
    }
}
