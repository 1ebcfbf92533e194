//! Reads.
//!
//! | module | owns |
//! |---|---|
//! | `answer` | the reply to a read, and the watch that it sets under the same lock |
//! | `sliced` | reads whose parts are answered in slices, with others in between |
//! | `baton_node` | the virtual znode `/zookeeper/baton` |

pub(crate) mod answer;
mod baton_node;
pub(crate) mod sliced;
