//! The state of an agent, which its handlers share.

use std::sync::Arc;

use crate::claims::ClaimTable;
use crate::held::HeldTable;
use crate::hold_table::HoldTable;
use crate::sessions::Sessions;

/// The state of an agent. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) boot_id: Arc<str>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) held: Arc<HeldTable>,
    pub(crate) claims: Arc<ClaimTable>,
    pub(crate) holds: Arc<HoldTable>,
}
