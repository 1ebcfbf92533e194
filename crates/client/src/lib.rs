//! A ZooKeeper-protocol session that knows its lease and never guesses an outcome.

#![forbid(unsafe_code)]
