//! Guides: a first program, which recipe when, what is guaranteed, what can go wrong.
//!
//! - [`recipes`]: a decision tree, then each recipe with an example.
//! - [`guarantees`]: the promises, the lease, fencing, doing work twice.
//! - [`hazards`]: what goes wrong with locks across machines, and what is left for you to do.
//! - [`examples`]: whole programs.
//!
//! # A first program
//!
//! It needs no server of yours: with the feature `embedded`, one runs in this process.
//!
//! ```
//! # #[cfg(feature = "embedded")]
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let server = baton::embedded::Embedded::in_memory().await?;
//!     let mutex = baton::Mutex::new(server.client(), "/report")?;
//!
//!     let guard = mutex.acquire().await?;
//!     let report = guard.run(async { "the work, dropped as soon as the lock is lost" }).await?;
//!     println!("{report}: done under token {}", guard.token());
//!     guard.release().await?;
//!
//!     server.shutdown().await?;
//!     Ok(())
//! }
//! # #[cfg(not(feature = "embedded"))]
//! # fn main() {}
//! ```
//!
//! Against servers of your own, a client takes the place of the embedded server:
//!
//! ```no_run
//! # async fn example() -> Result<(), baton::Error> {
//! use baton::{Client, Config};
//!
//! let client = Client::connect(Config::new("zk1:2181,zk2:2181,zk3:2181")?).await?;
//! # Ok(())
//! # }
//! ```

// The pages are those of the repository, which the packed crate contains by way of symbolic links.
// Their links are reference links: of two definitions of one label the first counts, so those that
// stand before a page here lead inside this documentation. `cargo xtask fixture` compiles their
// snippets, with the variables that they use; they are no doctests.

/// Recipes: which one to use, its guarantees and their limits, its nodes in the tree.
///
/// [doing it again]: crate::guide::guarantees#your-part-doing-it-again
/// [example]: crate::guide::examples
/// [fencing]: crate::guide::guarantees#your-part-fencing
/// [guarantees]: crate::guide::guarantees
/// [once a night]: crate::guide::recipes#once
#[cfg_attr(not(doctest), doc = "")]
#[cfg_attr(not(doctest), doc = include_str!("../guide/recipes.md"))]
pub mod recipes {}

/// Guarantees of Baton, their limits, and what your program has to do.
///
/// [example fencing]: crate::guide::examples#fencing
/// [hazards]: crate::guide::hazards
#[cfg_attr(not(doctest), doc = "")]
#[cfg_attr(not(doctest), doc = include_str!("../guide/guarantees.md"))]
pub mod guarantees {}

/// Hazards of distributed locks, and how Baton handles them.
///
/// [doing it again]: crate::guide::guarantees#your-part-doing-it-again
/// [fencing]: crate::guide::guarantees#your-part-fencing
/// [guarantees]: crate::guide::guarantees
#[cfg_attr(not(doctest), doc = "")]
#[cfg_attr(not(doctest), doc = include_str!("../guide/hazards.md"))]
pub mod hazards {}

/// Complete programs, each with its own embedded server.
#[cfg_attr(not(doctest), doc = "\n# barrier\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/barrier.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# counter\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/counter.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# election\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/election.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# fencing\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/fencing.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# locking_queue\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/locking_queue.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# membership\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/membership.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# multi_lock\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/multi_lock.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# mutex\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/mutex.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# observe\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/observe.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# partitioner\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/partitioner.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# queue\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/queue.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# queue_orders\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/queue_orders.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# reentrant\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/reentrant.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# rw_lock\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/rw_lock.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# semaphore\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/semaphore.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# simple_mutex\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/simple_mutex.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# tree_cache\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/tree_cache.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# waiters_memory\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/waiters_memory.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
#[cfg_attr(not(doctest), doc = "\n# work_queue\n\n```no_run")]
#[cfg_attr(not(doctest), doc = include_str!("../examples/work_queue.rs"))]
#[cfg_attr(not(doctest), doc = "```")]
pub mod examples {}
