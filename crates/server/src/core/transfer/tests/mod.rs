//! Transfers of snapshots between folders on disks that fail, over links and a clock that the test
//! moves.
//!
//! | module | owns |
//! |---|---|
//! | `disks` | disks that fail or are slow, crashes, threads |
//! | `honest` | servers that do what they should, on links that do not |
//! | `lying` | peers that send anything |
//! | `pair` | a sender, a receiver and what is between them |

mod disks;
mod honest;
mod lying;
mod pair;
