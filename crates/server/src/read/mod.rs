//! Reads.
//!
//! | module | owns |
//! |---|---|
//! | `answer` | the reply to a read, and the watch that it sets under the same lock |
//! | `baton_node` | the virtual znode `/zookeeper/baton` |

pub(crate) mod answer;
mod baton_node;
