//! Scenes on a server: many locks, queues, and a deadlock of three.

use baton::embedded::Embedded;
use baton_client::{Client, CreateMode, Session};
use baton_console::{Limits, SessionReader, Surveyor};

/// Another client of the same server, with a session of its own.
pub(crate) async fn client(server: &Embedded) -> Client {
    server.connect().await.unwrap()
}

/// A surveyor with its reader.
pub(crate) async fn surveyor(server: &Embedded) -> (Surveyor, SessionReader) {
    let reader = SessionReader::of(server.client()).await.unwrap();
    (Surveyor::new(Limits::default()), reader)
}

/// Folders at these paths, made at once.
pub(crate) async fn folders(session: &Session, paths: impl Iterator<Item = String>) {
    let made: Vec<_> = paths
        .map(|path| session.create(&path, b"", CreateMode::Persistent))
        .collect();
    for made in made {
        made.await.unwrap();
    }
}

/// A node of a lock's wait queue, as Curator names it.
pub(crate) fn waiter(dir: &str) -> String {
    format!("{dir}/_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-lock-")
}
