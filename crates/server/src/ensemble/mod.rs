//! A server as one of several.
//!
//! | module | owns |
//! |---|---|
//! | `transfer` | snapshots between servers: sent, received, verified |

#[cfg_attr(
    not(test),
    expect(
        dead_code,
        unused_imports,
        reason = "the core drives it once it has peers"
    )
)]
pub(crate) mod transfer;
