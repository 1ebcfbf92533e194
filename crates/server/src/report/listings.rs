//! Answers to operators that take long: connections, sessions and watches one by one, files. Each
//! listing is made once for all who ask for it before it begins, one at a time, by a thread of its
//! own that is there while there is something to make. It takes the locks of the tree and the
//! watches for a slice at a time and rests between slices, so that requests and session clocks go
//! on. How much a listing may hold, how many may wait and for how long, and how much of earlier
//! ones may still be unread are bounded; past a bound the request is refused, with the reason.

use std::collections::VecDeque;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::options::Options;

/// Time that a request waits for a listing.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that may wait for one listing.
const MOST_WAITING: usize = 2000;
/// The longest rest after a slice, or between two listings.
const LONGEST_REST: Duration = Duration::from_millis(20);

/// Bound on the number of things in a slice, and on the bytes after which it ends.
pub(crate) const SLICE_ITEMS: usize = 1000;
pub(crate) const SLICE_BYTES: usize = 256 << 10;

/// Source of a listing: one that hangs with the disk must not keep the others waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// A buffer in memory.
    Memory,
    /// The files of the data folder.
    Folder,
}

/// Name of a listing: requests of one name share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListingName {
    /// The answer to a four-letter word.
    Word(&'static str),
    /// The answer to a command over HTTP.
    Command(&'static str),
    /// The metrics for Prometheus.
    Metrics,
}

/// Reasons for which there is no listing. Follows "… is not executed because".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "its answer would have over {0} bytes; ask for a summary, or raise max_outbound_bytes_in_all"
    )]
    TooLong(usize),
    #[error(
        "{0} bytes of earlier answers have not been read; read them or close their connections"
    )]
    Unread(usize),
    #[error("{MOST_WAITING} others wait for it; ask again later")]
    TooMany,
    #[error(
        "it was not ready in time: others are before it, or the disk does not answer; ask again later"
    )]
    Late,
    #[error("the server failed at it; report this")]
    Failed,
    #[error("the server has no thread left for it; ask again later")]
    NoThread,
}

/// A finished listing. Its bytes are counted until its last owner drops it.
#[derive(Debug, Clone)]
pub(crate) struct Listing(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    text: String,
    held: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.held.fetch_sub(self.text.len(), Relaxed);
    }
}

impl Deref for Listing {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl AsRef<[u8]> for Listing {
    fn as_ref(&self) -> &[u8] {
        self.0.text.as_bytes()
    }
}

/// The outcome that a request waits for.
pub(crate) type Listed = Result<Listing, Refusal>;

type Make = Box<dyn FnOnce() -> Result<String, Refusal> + Send>;

/// A listing that has not begun.
struct WaitingListing {
    name: ListingName,
    make: Make,
    askers: Vec<oneshot::Sender<Listed>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<WaitingListing>,
    /// Whether a thread makes listings of this source.
    busy: bool,
}

/// The queues of listings to make, and the bound on what they hold.
#[derive(Default)]
pub(crate) struct Listings {
    /// Most bytes of one listing.
    max_bytes: usize,
    memory: Mutex<Queue>,
    folder: Mutex<Queue>,
    /// Bytes of finished listings that are not dropped yet.
    held: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Listings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listings")
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl Listings {
    pub(crate) fn new(options: &Options) -> Arc<Self> {
        Arc::new(Self {
            max_bytes: options.max_outbound_bytes_in_all / 4,
            ..Self::default()
        })
    }

    fn source(&self, source: Source) -> &Mutex<Queue> {
        match source {
            Source::Memory => &self.memory,
            Source::Folder => &self.folder,
        }
    }

    /// Adds a request for the listing of this name. Returns also whether a thread has to be
    /// started.
    fn ask(
        &self,
        name: ListingName,
        source: Source,
        make: impl FnOnce() -> Make,
    ) -> Result<(oneshot::Receiver<Listed>, bool), Refusal> {
        let (asker, listed) = oneshot::channel();
        let mut queue = self.source(source).lock();
        match queue
            .waiting
            .iter_mut()
            .find(|waiting| waiting.name == name)
        {
            Some(waiting) => {
                if waiting.askers.len() >= MOST_WAITING {
                    waiting.askers.retain(|asker| !asker.is_closed());
                }
                if waiting.askers.len() >= MOST_WAITING {
                    return Err(Refusal::TooMany);
                }
                waiting.askers.push(asker);
            }
            None => queue.waiting.push_back(WaitingListing {
                name,
                make: make(),
                askers: vec![asker],
            }),
        }
        Ok((listed, !std::mem::replace(&mut queue.busy, true)))
    }

    /// The listing of this name, made for this asker and all others who wait for it. Cancelling has
    /// no effect on them.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(crate) async fn list(
        self: &Arc<Self>,
        name: ListingName,
        source: Source,
        make: impl FnOnce() -> Result<String, Refusal> + Send + 'static,
    ) -> Listed {
        let (listed, start) = self.ask(name, source, || Box::new(make))?;
        if start {
            let worker = Worker {
                listings: Arc::clone(self),
                source,
                done: false,
            };
            std::thread::Builder::new()
                .name("baton-listing".to_owned())
                .spawn(move || worker.run())
                .map_err(|_| Refusal::NoThread)?;
        }
        match tokio::time::timeout(PATIENCE, listed).await {
            Ok(Ok(listed)) => listed,
            Ok(Err(_)) => Err(Refusal::NoThread),
            Err(_) => Err(Refusal::Late),
        }
    }
}

/// The thread that makes the listings of one source.
struct Worker {
    listings: Arc<Listings>,
    source: Source,
    /// Another thread has the source from here on.
    done: bool,
}

impl Worker {
    fn run(mut self) {
        while let Some(waiting) = self.next() {
            let begun = Instant::now();
            let listed = self.make(waiting.make);
            for asker in waiting.askers {
                // An asker that has gone needs no answer.
                let _ = asker.send(listed.clone());
            }
            drop(listed);
            rest(begun.elapsed());
        }
    }

    /// The next listing to make; `None` ends the thread.
    fn next(&mut self) -> Option<WaitingListing> {
        let mut queue = self.listings.source(self.source).lock();
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.busy = false;
            self.done = true;
        }
        next
    }

    fn make(&self, make: Make) -> Listed {
        let held = &self.listings.held;
        // A listing that panics does not affect the others.
        let made = catch_unwind(AssertUnwindSafe(make));
        let text = made.unwrap_or(Err(Refusal::Failed))?;
        held.fetch_add(text.len(), Relaxed);
        Ok(Listing(Arc::new(Counted {
            text,
            held: Arc::clone(held),
        })))
    }
}

impl Drop for Worker {
    /// Ends the waiting for a thread that could not begin.
    fn drop(&mut self) {
        if !self.done {
            let mut queue = self.listings.source(self.source).lock();
            queue.busy = false;
            queue.waiting.clear();
        }
    }
}

/// Does one slice, which holds a lock for its time at most, and rests for as long.
pub(crate) fn slice<T>(slice: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = slice();
    rest(begun.elapsed());
    done
}

/// Leaves the processor to others for as long as it was used.
fn rest(used: Duration) {
    std::thread::sleep(used.min(LONGEST_REST));
}

/// Size of a listing so far.
#[derive(Debug)]
pub(crate) struct SizeLimit {
    bytes: usize,
    max_bytes: usize,
}

impl SizeLimit {
    /// # Errors
    /// Too much of earlier listings has not been read.
    pub(crate) fn new(listings: &Listings) -> Result<Self, Refusal> {
        let max_bytes = listings.max_bytes;
        let unread = listings.held.load(Relaxed);
        if unread > max_bytes {
            return Err(Refusal::Unread(unread));
        }
        Ok(Self {
            bytes: 0,
            max_bytes,
        })
    }

    /// Counts what was added.
    ///
    /// # Errors
    /// The listing is too long.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.max_bytes {
            return Err(Refusal::TooLong(self.max_bytes));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::task::JoinSet;

    use super::*;

    const WATCHES: ListingName = ListingName::Word("wchp");
    const METRICS: ListingName = ListingName::Metrics;

    /// Asks `times` for a listing that counts how often it is made.
    fn ask(
        listings: &Arc<Listings>,
        name: ListingName,
        source: Source,
        times: usize,
        made: &Arc<AtomicUsize>,
    ) -> JoinSet<Listed> {
        let mut asked = JoinSet::new();
        for _ in 0..times {
            let (listings, made) = (Arc::clone(listings), Arc::clone(made));
            asked.spawn(async move {
                let list = listings.list(name, source, move || {
                    made.fetch_add(1, Relaxed);
                    Ok("listed".to_owned())
                });
                list.await
            });
        }
        asked
    }

    /// A listing that hangs until what comes back is dropped; the second says that it has begun.
    fn hang(listings: &Arc<Listings>, source: Source) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
        let (release, released) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let listings = Arc::clone(listings);
        tokio::spawn(async move {
            let list = listings.list(ListingName::Word("cons"), source, move || {
                begun.send(()).unwrap();
                let _ = released.recv();
                Ok(String::new())
            });
            let _ = list.await;
        });
        (release, begins)
    }

    async fn until(condition: impl Fn() -> bool) {
        let wait = async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_who_ask_while_another_listing_is_made_share_one() {
        let listings = Listings::new(&Options::default());
        let (release, begins) = hang(&listings, Source::Memory);
        tokio::task::spawn_blocking(move || begins.recv().unwrap())
            .await
            .unwrap();
        let made = Arc::new(AtomicUsize::new(0));
        let watches = ask(&listings, WATCHES, Source::Memory, 100, &made);
        let metrics = ask(&listings, METRICS, Source::Memory, 100, &made);
        until(|| {
            let queue = listings.memory.lock();
            let askers = queue.waiting.iter().map(|waiting| waiting.askers.len());
            askers.sum::<usize>() == 200
        })
        .await;
        assert_eq!(made.load(Relaxed), 0, "one at a time");
        // Files are a source of their own: neither keeps the other waiting.
        let files = ask(&listings, METRICS, Source::Folder, 1, &made);
        assert_eq!(&*files.join_all().await.pop().unwrap().unwrap(), "listed");
        drop(release);
        for listed in watches
            .join_all()
            .await
            .into_iter()
            .chain(metrics.join_all().await)
        {
            assert_eq!(&*listed.unwrap(), "listed");
        }
        assert_eq!(made.load(Relaxed), 3);
        until(|| listings.held.load(Relaxed) == 0).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_more_wait_than_may_and_those_who_have_gone_do_not_count() {
        let listings = Listings::new(&Options::default());
        let (release, begins) = hang(&listings, Source::Memory);
        tokio::task::spawn_blocking(move || begins.recv().unwrap())
            .await
            .unwrap();
        let made = Arc::new(AtomicUsize::new(0));
        let full = || {
            let queue = listings.memory.lock();
            queue
                .waiting
                .iter()
                .any(|waiting| waiting.askers.len() == MOST_WAITING)
        };
        let first = ask(&listings, WATCHES, Source::Memory, MOST_WAITING, &made);
        until(full).await;
        let refused = ask(&listings, WATCHES, Source::Memory, 1, &made)
            .join_all()
            .await;
        assert!(
            matches!(refused[..], [Err(Refusal::TooMany)]),
            "{refused:?}"
        );
        let mut first = first;
        first.shutdown().await;
        let next = ask(&listings, WATCHES, Source::Memory, 1, &made);
        until(|| !full()).await;
        drop(release);
        assert!(next.join_all().await[0].is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_listing_that_fails_keeps_nobody_waiting_and_the_next_is_made() {
        let listings = Listings::new(&Options::default());
        let failed = listings
            .list(WATCHES, Source::Memory, || panic!("on purpose"))
            .await;
        assert_eq!(failed.unwrap_err(), Refusal::Failed);
        let next = listings
            .list(WATCHES, Source::Memory, || Ok("next".to_owned()))
            .await;
        assert_eq!(&*next.unwrap(), "next");
    }

    #[test]
    fn unread_listings_bound_further_ones() {
        let listings = Listings::new(&Options::default());
        let max = listings.max_bytes;
        listings.held.store(max, Relaxed);
        let mut size = SizeLimit::new(&listings).unwrap();
        assert_eq!(size.count(max), Ok(()));
        assert_eq!(size.count(1), Err(Refusal::TooLong(max)));
        listings.held.store(max + 1, Relaxed);
        assert_eq!(
            SizeLimit::new(&listings).unwrap_err(),
            Refusal::Unread(max + 1)
        );
    }

    #[tokio::test]
    async fn where_no_thread_can_begin_nobody_waits_and_the_next_listing_is_made() {
        let listings = Listings::new(&Options::default());
        let make = || -> Make { Box::new(|| Ok("listed".to_owned())) };
        let ask = || listings.ask(WATCHES, Source::Memory, make).unwrap();
        let (waiting, start) = ask();
        assert!(start);
        let worker = |done| Worker {
            listings: Arc::clone(&listings),
            source: Source::Memory,
            done,
        };
        drop(worker(false));
        waiting.await.unwrap_err();
        let (_waiting, start) = ask();
        assert!(start, "the next asker tries to start a thread");
        // A thread that has made everything has nothing to do with later requests.
        drop(worker(true));
        let (_, start) = ask();
        assert!(!start);
    }
}
