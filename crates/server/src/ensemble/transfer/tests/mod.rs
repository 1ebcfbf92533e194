//! Transfers of snapshots between folders on disks that fail, over links and a clock that the test
//! moves.
//!
//! | module | owns |
//! |---|---|
//! | `honest` | two servers that do what they should, on disks and links that do not |
//! | `lying` | peers that send anything |
//! | `pair` | a sender, a receiver and what is between them |

mod honest;
mod lying;
mod pair;
