//! A holder that slept through the end of its lock wakes up and writes: the receiver refuses it, by
//! the token.
//!
//! Shown with a store of one's own (`Fence`) and with an object store that knows compare-and-set by
//! entity tag.
//!
//! `cargo run -p baton-locks --features embedded --example fencing`

use std::collections::HashMap;

use baton::{Fence, Mutex, embedded::Embedded};

/// Interface of an object store: the object with its tag, and a write on the condition that the tag
/// has not changed.
#[derive(Default)]
struct ObjectStore {
    objects: HashMap<String, (u64, Object)>,
}

/// The token travels in the object, or in its metadata.
#[derive(Clone)]
struct Object {
    token: u64,
    body: String,
}

impl ObjectStore {
    fn get(&self, key: &str) -> Option<(u64, Object)> {
        self.objects.get(key).cloned()
    }

    /// `If-Match: tag`, or `If-None-Match: *` for a tag of `None`.
    fn put(&mut self, key: &str, tag: Option<u64>, object: Object) -> Result<(), &'static str> {
        let present = self.objects.get(key).map(|(tag, _)| *tag);
        if present != tag {
            return Err("412 precondition failed");
        }
        let next = present.map_or(1, |tag| tag + 1);
        self.objects.insert(key.to_owned(), (next, object));
        Ok(())
    }
}

/// Writes `body` unless a later holder has been there: read, refuse a smaller token, write on the
/// tag that was read.
fn write_fenced(store: &mut ObjectStore, key: &str, token: u64, body: &str) -> Result<(), String> {
    let body = body.to_owned();
    let read = store.get(key);
    let tag = match &read {
        Some((_, there)) if there.token > token => {
            return Err(format!("token {} has been here since", there.token));
        }
        Some((tag, _)) => Some(*tag),
        None => None,
    };
    // Two at once: only one finds the tag that it read. The other looks again, and refuses if it is
    // the older one.
    store
        .put(key, tag, Object { token, body })
        .map_err(str::to_owned)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let mutex = Mutex::new(server.client(), "/report")?;
    let (fence, mut store) = (Fence::new(), ObjectStore::default());
    let mut log = Vec::new();

    let first = mutex.acquire().await?;
    let sleeper = first.token();
    fence.pass(sleeper, || log.push("first"))?;
    write_fenced(&mut store, "report", sleeper, "first")?;
    // The first process is paused here for longer than its session lives. Another gets the lock and
    // goes on.
    drop(first);
    let next = mutex.acquire().await?;
    fence.pass(next.token(), || log.push("next"))?;
    write_fenced(&mut store, "report", next.token(), "next")?;

    // It wakes up in the middle of its work, with a token that was good.
    if let Err(refused) = fence.pass(sleeper, || log.push("late")) {
        println!("own store: {refused}");
    }
    if let Err(refused) = write_fenced(&mut store, "report", sleeper, "late") {
        println!("object store: {refused}");
    }
    assert_eq!(log, ["first", "next"]);
    assert_eq!(
        store
            .get("report")
            .map(|(_, object)| object.body)
            .as_deref(),
        Some("next")
    );
    next.release().await?;
    server.shutdown().await?;
    Ok(())
}
