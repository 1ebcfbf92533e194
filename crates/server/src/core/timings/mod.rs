//! When entries were proposed, synced and committed: for metrics and traces. Decides nothing.
//!
//! | module | owns |
//! |---|---|
//! | `phases` | since when this server looks for a leader or serves no writes |
//! | `proposed` | when a leader has proposed its newest entries |
//! | `synced` | when the log has synced its newest entries |

pub(crate) mod phases;
pub(crate) mod proposed;
pub(crate) mod synced;
