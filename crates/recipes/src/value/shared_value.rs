//! A value that several processes share.
//!
//! Owns the handle and the stream of values. A listener must never receive an older value after a
//! newer one.

use baton_client::{Client, Stat};
use bytes::Bytes;

use super::cell::{Cell, ExpectedNode};
use super::error::ValueError;
use crate::cache::{CacheEvents, TreeCache};
use crate::options::acl_option;

/// A value as it was at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionedValue {
    /// The bytes.
    pub data: Bytes,
    /// Number of times that the node has been written; wraps after 2³².
    pub version: i32,
    /// The change that wrote it. Grows with every write, over deletions too.
    pub mzxid: i64,
}

impl VersionedValue {
    pub(super) fn new(data: Bytes, stat: &Stat) -> Self {
        Self {
            data,
            version: stat.version,
            mzxid: stat.mzxid,
        }
    }
}

/// A value at a path of the tree: the node's data, as it is.
///
/// The layout is that of Curator's `SharedValue`. Cheap to clone. So that the outcome of a write
/// whose answer was lost can be found out, `<path>-__receipts__` beside it holds a small ephemeral
/// node per concurrent write.
///
/// ```no_run
/// # async fn example(client: baton::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let limit = baton::SharedValue::new(&client, "/settings/limit")?;
/// limit.set(b"10").await?;
/// let seen = limit.get().await?;
/// if limit.compare_and_set(seen.as_ref(), b"20").await? {
///     println!("raised");
/// }
/// let mut values = limit.values()?;
/// println!("now {:?}", values.next().await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedValue {
    cell: Cell,
}

impl SharedValue {
    /// A value at `path`. Nothing is sent.
    ///
    /// # Errors
    /// [`ValueError::BadPath`].
    pub fn new(client: &Client, path: &str) -> Result<Self, ValueError> {
        Ok(Self {
            cell: Cell::new(client, path)?,
        })
    }

    acl_option!(cell.client);

    /// The value's path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.cell.path
    }

    /// The value, or `None` where there is no node.
    ///
    /// # Errors
    /// [`ValueError::Connect`], [`ValueError::Client`].
    pub async fn get(&self) -> Result<Option<VersionedValue>, ValueError> {
        let read = self.cell.read().await?;
        Ok(read.map(|read| VersionedValue::new(read.data, &read.stat)))
    }

    /// Writes the value, whatever it was, and creates the node if there is none. When the future is
    /// dropped, the write goes on in the background.
    ///
    /// # Errors
    /// [`ValueError::Unknown`] where the session ended before the outcome was known; else nothing
    /// was written.
    pub async fn set(&self, data: &[u8]) -> Result<(), ValueError> {
        let data = Bytes::copy_from_slice(data);
        self.cell
            .write(ExpectedNode::Anything, &data)
            .await
            .map(|_| ())
    }

    /// Writes the value if it is still the one that was `seen` (`None`: if there is still no node).
    /// `false` if it is not; then nothing was written. A write whose answer was lost is recognised.
    /// Dropped half-way, it goes on in the background.
    ///
    /// A node that was deleted and has since been written as often counts as the same.
    ///
    /// # Errors
    /// [`ValueError::Unknown`] where the session ended before the outcome was known,
    /// [`ValueError::VersionUnusable`]; else nothing was written.
    pub async fn compare_and_set(
        &self,
        seen: Option<&VersionedValue>,
        data: &[u8],
    ) -> Result<bool, ValueError> {
        let expected = seen.map_or(ExpectedNode::Absent, |seen| {
            ExpectedNode::Version(seen.version)
        });
        self.cell
            .write(expected, &Bytes::copy_from_slice(data))
            .await
    }

    /// Returns a stream of the value's changes.
    ///
    /// # Errors
    /// [`ValueError::View`] outside a tokio runtime.
    pub fn values(&self) -> Result<Values, ValueError> {
        let cache = TreeCache::builder(&self.cell.client, self.path())?
            .max_depth(0)
            .start()?;
        Ok(Values {
            events: cache.events(),
            cache,
            reported: None,
        })
    }
}

/// Stream of a value's changes, in order. Dropping it removes its watch.
#[derive(Debug)]
pub struct Values {
    cache: TreeCache,
    events: CacheEvents,
    reported: Option<Option<i64>>,
}

impl Values {
    /// At first the present value; later each change, `None` where the node is gone. Of values that
    /// follow each other faster than this is called, the newest is returned; an older one never
    /// comes after a newer one, over reconnects and new sessions too. Without a connection, nothing
    /// is returned. Cancel-safe.
    ///
    /// # Errors
    /// [`ValueError::View`] once the client is closed.
    pub async fn next(&mut self) -> Result<Option<VersionedValue>, ValueError> {
        if self.reported.is_none() {
            self.cache.ready().await?;
        }
        loop {
            let node = self.cache.get(self.cache.path());
            let seen = node.as_ref().map(|node| node.stat.mzxid);
            if self.reported != Some(seen) {
                self.reported = Some(seen);
                return Ok(node.map(|node| VersionedValue::new(node.data, &node.stat)));
            }
            if self.events.next().await.is_none() {
                self.cache.ready().await?;
            }
        }
    }
}
