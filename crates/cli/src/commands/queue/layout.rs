//! A queue in the layout that the command line asks for.
//!
//! Owns what `--layout`, `--priority`, `--delay` and `--lock-path` mean together. Options that
//! contradict each other are refused.

use std::time::Duration;

use baton::inspect::{Inspector, QueueKind};
use baton::queue::{DelayQueue, IdQueue, LockingQueue, PriorityQueue, QueueError, QueueLayout};
use baton::{Client, DistributedQueue};

use crate::connection::Connection;
use crate::duration;
use crate::exit::{self, Failure};
use crate::paths;

/// The names and bytes of a queue, by the library that uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Layout {
    /// zookeeper-recipes' DistributedQueue, Curator's SimpleDistributedQueue (the default).
    Qn,
    /// Curator's DistributedQueue.
    Curator,
    /// Curator's DistributedPriorityQueue.
    Priority,
    /// Curator's DistributedDelayQueue.
    Delay,
    /// Curator's DistributedIdQueue.
    Id,
    /// kazoo's Queue.
    Kazoo,
    /// kazoo's LockingQueue.
    Locking,
}

/// Selection of a queue.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct QueueSelector {
    /// The queue's path.
    #[arg(value_parser = paths::recipe)]
    pub(super) path: String,
    #[command(flatten)]
    form: Form,
}

/// Form of a queue's nodes.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Form {
    /// Layout of the queue; all clients of one path must use the same.
    #[arg(short, long, value_enum)]
    layout: Option<Layout>,
    /// Path of the claims, in a Curator queue with a lock path; only with --layout curator.
    #[arg(long, value_name = "PATH", value_parser = paths::recipe)]
    lock_path: Option<String>,
}

/// Options of a put.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct PutOptions {
    /// Priority: the item with the lowest number comes first. Implies --layout priority unless
    /// another is given.
    #[arg(short, long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Delay before the item becomes available. Implies --layout delay.
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse, conflicts_with = "priority")]
    delay: Option<Duration>,
    /// An id by which the items can be removed. Implies --layout id.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["priority", "delay"])]
    id: Option<String>,
}

/// A queue of any layout.
pub(super) enum Queue {
    Fifo(DistributedQueue),
    Priority(PriorityQueue),
    Delay(DelayQueue),
    Id(IdQueue),
    Locking(LockingQueue),
}

impl QueueSelector {
    pub(super) fn new(path: &str, form: &Form) -> Self {
        let (path, form) = (path.to_owned(), form.clone());
        Self { path, form }
    }

    /// The queue. Nothing is sent.
    pub(super) fn open(&self, client: &Client) -> Result<Queue, Failure> {
        self.open_as(client, Layout::Qn)
    }

    /// The queue, where items are put as `how` says.
    pub(super) fn open_for(&self, client: &Client, how: &PutOptions) -> Result<Queue, Failure> {
        let layout = match (how.priority, how.delay, &how.id) {
            (Some(_), _, _) => Layout::Priority,
            (None, Some(_), _) => Layout::Delay,
            (None, None, Some(_)) => Layout::Id,
            (None, None, None) => Layout::Qn,
        };
        let queue = self.open_as(client, layout)?;
        let (priority, delay, id) = (
            how.priority.is_some(),
            how.delay.is_some(),
            how.id.is_some(),
        );
        let fits = match &queue {
            Queue::Fifo(_) => !priority && !delay && !id,
            Queue::Priority(_) | Queue::Locking(_) => !delay && !id,
            Queue::Delay(_) => !priority && !id,
            Queue::Id(_) => !priority && !delay,
        };
        if !fits {
            return Err(Failure::usage(
                "this layout does not take that option; --priority goes with --layout priority, kazoo or locking, --delay with delay, --id with id",
            ));
        }
        if matches!(queue, Queue::Id(_)) && !id {
            return Err(Failure::usage(
                "items of this layout have an id; add --id TEXT",
            ));
        }
        Ok(queue)
    }

    /// Refuses to put items as `how` says, where that alone chose the layout, beside items of the
    /// usual one: consumers of those would never see them.
    pub(super) async fn refuse_unseen(
        &self,
        connection: &Connection,
        how: &PutOptions,
    ) -> Result<(), Failure> {
        let (flag, layout) = match (how.priority, how.delay, &how.id) {
            (Some(_), _, _) => ("--priority", "priority"),
            (None, Some(_), _) => ("--delay", "delay"),
            (None, None, Some(_)) => ("--id", "id"),
            (None, None, None) => return Ok(()),
        };
        if self.form.layout.is_some() {
            return Ok(());
        }
        let path = &self.path;
        let inspector = Inspector::new(&connection.client);
        let usual = inspector.queue(path, QueueKind::Recipes).await;
        let usual = usual.map_err(|error| Failure::baton(error.to_string()))?;
        if usual.depth > 0 {
            return Err(Failure::new(
                exit::NOTHING,
                "layout",
                format!(
                    "{path}: refused: there are items of layout qn, and consumers of those never see one with {flag}; use another \
                     path, or leave {flag} out; --layout {layout} puts it there all the same"
                ),
            ));
        }
        Ok(())
    }

    fn open_as(&self, client: &Client, usual: Layout) -> Result<Queue, Failure> {
        let layout = self.form.layout.unwrap_or(usual);
        let path = &self.path;
        let queue = match (layout, &self.form.lock_path) {
            (Layout::Curator, Some(locks)) => {
                let queue = LockingQueue::new(client, path);
                queue.map(|queue| Queue::Locking(queue.curator_layout(locks)))
            }
            (_, Some(_)) => {
                return Err(Failure::usage(
                    "--lock-path is for Curator's queues only; add --layout curator",
                ));
            }
            (Layout::Qn, None) => DistributedQueue::new(client, path).map(Queue::Fifo),
            (Layout::Curator, None) => {
                let queue = DistributedQueue::new(client, path);
                queue.map(|queue| Queue::Fifo(queue.layout(QueueLayout::Curator)))
            }
            (Layout::Priority, None) => PriorityQueue::new(client, path).map(Queue::Priority),
            (Layout::Delay, None) => DelayQueue::new(client, path).map(Queue::Delay),
            (Layout::Id, None) => IdQueue::new(client, path).map(Queue::Id),
            (Layout::Kazoo, None) => {
                let queue = PriorityQueue::new(client, path);
                queue.map(|queue| Queue::Priority(queue.layout(QueueLayout::Kazoo)))
            }
            (Layout::Locking, None) => LockingQueue::new(client, path).map(Queue::Locking),
        };
        queue.map_err(|error| Failure::usage(error.to_string()))
    }
}

/// kazoo's priority of an item for which none is given, and the middle of Curator's.
fn usual_priority(layout: Option<Layout>) -> i32 {
    if layout == Some(Layout::Kazoo) {
        100
    } else {
        0
    }
}

impl Queue {
    /// Puts an item as `how` says.
    pub(super) async fn put(
        &self,
        item: &[u8],
        which: &QueueSelector,
        how: &PutOptions,
    ) -> Result<(), QueueError> {
        match (self, how.priority) {
            (Self::Fifo(queue), _) => queue.offer(item).await,
            (Self::Priority(queue), priority) => {
                let priority = priority.unwrap_or_else(|| usual_priority(which.form.layout));
                queue.offer(item, priority).await
            }
            (Self::Delay(queue), _) => queue.offer(item, how.delay.unwrap_or_default()).await,
            (Self::Id(queue), _) => {
                queue
                    .offer(item, how.id.as_deref().unwrap_or_default())
                    .await
            }
            (Self::Locking(queue), None) => queue.offer(item).await,
            (Self::Locking(queue), Some(priority)) => {
                queue.offer_with_priority(item, priority).await
            }
        }
    }

    /// Takes an item if there is one, and shows it before it is removed for good where the layout
    /// allows.
    pub(super) async fn poll(&self, show: impl FnOnce(&[u8])) -> Result<bool, QueueError> {
        let item = match self {
            Self::Fifo(queue) => queue.poll().await?,
            Self::Priority(queue) => queue.poll().await?,
            Self::Delay(queue) => queue.poll().await?,
            Self::Id(queue) => queue.poll().await?.map(|item| item.data),
            Self::Locking(queue) => {
                return match queue.poll().await? {
                    Some(item) => {
                        show(item.data());
                        item.consume().await.map(|()| true)
                    }
                    None => Ok(false),
                };
            }
        };
        if let Some(item) = &item {
            show(item);
        }
        Ok(item.is_some())
    }

    /// Takes an item as [`Queue::poll`] does, and waits for one.
    pub(super) async fn take(&self, show: impl FnOnce(&[u8])) -> Result<(), QueueError> {
        match self {
            Self::Fifo(queue) => show(&queue.take().await?),
            Self::Priority(queue) => show(&queue.take().await?),
            Self::Delay(queue) => show(&queue.take().await?),
            Self::Id(queue) => show(&queue.take().await?.data),
            Self::Locking(queue) => {
                let item = queue.take().await?;
                show(item.data());
                item.consume().await?;
            }
        }
        Ok(())
    }

    /// After a `poll` or `take` was given up: shows what it took all the same, if anything.
    pub(super) async fn recover(&self, show: impl FnOnce(&[u8])) -> Result<bool, QueueError> {
        let item = match self {
            Self::Fifo(queue) => queue.recover().await,
            Self::Priority(queue) => queue.recover().await,
            Self::Delay(queue) => queue.recover().await,
            Self::Id(queue) => Ok(queue.recover().await?.map(|item| item.data)),
            // An item that was locked, and that no caller has, is unlocked.
            Self::Locking(_) => Ok(None),
        }?;
        if let Some(item) = &item {
            show(item);
        }
        Ok(item.is_some())
    }

    /// The first item that could be taken, left where it is. Where items are locked first, it is
    /// for that moment.
    pub(super) async fn peek(&self) -> Result<Option<Vec<u8>>, QueueError> {
        let item = match self {
            Self::Fifo(queue) => queue.peek().await?,
            Self::Priority(queue) => queue.peek().await?,
            Self::Delay(queue) => queue.peek().await?,
            Self::Id(queue) => queue.peek().await?.map(|item| item.data),
            Self::Locking(queue) => {
                let Some(item) = queue.poll().await? else {
                    return Ok(None);
                };
                let data = item.data().to_vec();
                item.release().await?;
                return Ok(Some(data));
            }
        };
        Ok(item.map(|item| item.to_vec()))
    }

    pub(super) async fn names(&self) -> Result<Vec<String>, QueueError> {
        match self {
            Self::Fifo(queue) => queue.names().await,
            Self::Priority(queue) => queue.names().await,
            Self::Delay(queue) => queue.names().await,
            Self::Id(queue) => queue.names().await,
            Self::Locking(queue) => queue.names().await,
        }
    }

    pub(super) async fn depth(&self) -> Result<usize, QueueError> {
        match self {
            Self::Fifo(queue) => queue.depth().await,
            Self::Priority(queue) => queue.depth().await,
            Self::Delay(queue) => queue.depth().await,
            Self::Id(queue) => queue.depth().await,
            Self::Locking(queue) => queue.depth().await,
        }
    }
}
