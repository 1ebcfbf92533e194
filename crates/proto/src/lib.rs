//! The ZooKeeper wire protocol: frames, records, op codes, errors, paths. Pure; no I/O.

#![forbid(unsafe_code)]
