//! The audit record of a running server: opened with it, added to from every thread, ended with it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use baton_tree::Identity;

use super::file::AuditFile;
use super::line::{Ending, Fields, Operation, Stamp, write_line};
use super::queue::{MOST_BYTES, Page, Queue, RESERVE_BYTES};
use super::writer::{Log, Sink, Writer};
use crate::connections::conn::Conn;
use crate::connections::peer::Peer;
use crate::error::StartError;
use crate::options::audit::{AuditFormat, AuditOptions, AuditTo};

/// Actor of an operation.
#[derive(Debug, Default, Clone)]
pub(crate) struct Principal {
    session: Option<i64>,
    identity: Option<Arc<Identity>>,
    /// `Some(None)`: over a unix socket.
    address: Option<Option<IpAddr>>,
}

impl Principal {
    /// The server itself.
    pub(crate) fn server() -> Self {
        Self::default()
    }

    /// The client of a connection.
    pub(crate) fn of(conn: &Conn) -> Self {
        Self {
            session: Some(conn.session()).filter(|session| *session != 0),
            identity: Some(conn.identity()),
            address: Some(conn.peer.ip()),
        }
    }

    /// Somebody without a connection to the core.
    pub(crate) fn at(peer: &Peer, identity: Option<Identity>) -> Self {
        Self {
            session: None,
            identity: identity.map(Arc::new),
            address: Some(peer.ip()),
        }
    }

    /// With this session.
    pub(crate) fn in_session(mut self, session: i64) -> Self {
        self.session = Some(session);
        self
    }

    /// Changes the identity from now on.
    pub(crate) fn known_as(mut self, identity: &Arc<Identity>) -> Self {
        self.identity = Some(Arc::clone(identity));
        self
    }

    /// The fields that say who it is.
    pub(super) fn write(&self, fields: &mut Fields<'_>) {
        if let Some(session) = self.session {
            fields.hex("session", session);
        }
        match (&self.identity, self.address) {
            (Some(identity), _) => fields.users(identity),
            (None, None) => fields.word("user", "server"),
            (None, Some(_)) => {}
        }
        if let Some(address) = self.address {
            fields.address("ip", address);
        }
    }
}

/// The record of one server. Adding to it never waits for the disk.
pub(crate) struct Audit {
    format: AuditFormat,
    queue: Arc<Queue>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

impl Audit {
    /// Opens the record that the settings ask for, if they ask for one.
    ///
    /// # Errors
    /// The file cannot be used, or the system gives no thread.
    pub(crate) fn open(options: &AuditOptions) -> Result<Option<Arc<Self>>, StartError> {
        match &options.to {
            AuditTo::Off => Ok(None),
            AuditTo::Log => Self::start(Log, options.format).map(Some),
            AuditTo::File(path) => {
                let file = AuditFile::open(path, options).map_err(|why| StartError::Audit {
                    path: path.clone(),
                    why,
                })?;
                Self::start(file, options.format).map(Some)
            }
        }
    }

    fn start(sink: impl Sink + 'static, format: AuditFormat) -> Result<Arc<Self>, StartError> {
        let queue = Arc::new(Queue::default());
        let writer = Writer::new(Arc::clone(&queue), sink, format);
        std::thread::Builder::new()
            .name("baton-audit".to_owned())
            .spawn(move || writer.run())?;
        Ok(Arc::new(Self { format, queue }))
    }

    pub(super) fn format(&self) -> AuditFormat {
        self.format
    }

    /// Adds one line. `more` writes the fields between the operation and how it ended.
    pub(crate) fn add(
        &self,
        unix_ms: i64,
        who: &Principal,
        operation: Operation,
        ending: Ending,
        more: impl FnOnce(&mut Fields<'_>),
    ) {
        let mut page = Page {
            bytes: Vec::with_capacity(256),
            lines: 1,
        };
        write_line(
            &mut page.bytes,
            self.format,
            &Stamp::at(unix_ms),
            |fields| {
                who.write(fields);
                fields.operation(operation);
                more(fields);
                fields.ending(ending);
            },
        );
        self.queue.put(&mut page, MOST_BYTES + RESERVE_BYTES);
    }

    /// Adds the lines of changes, and empties the page.
    pub(super) fn add_changes(&self, page: &mut Page) {
        self.queue.put(page, MOST_BYTES);
    }

    /// Lines that are recorded, and lines that are lost.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.queue.counts()
    }

    /// Ends the record: what has been added is written, for `patience` at most.
    pub(crate) fn end(&self, patience: Duration) {
        self.queue.end();
        self.queue.wait_for_end(patience);
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        // The writer ends by itself.
        self.queue.end();
    }
}
