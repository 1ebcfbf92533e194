//! The state of the interface, which its handlers share.

use std::sync::Arc;
use std::time::Duration;

use baton::{Client, Config};

use crate::body::OpenBody;
use crate::boot_clock;
use crate::caller::Caller;
use crate::claims::ClaimTable;
use crate::error::ApiError;
use crate::events::Events;
use crate::held::{self, HeldTable, Holding};
use crate::hold_table::HoldTable;
use crate::sessions::Sessions;

/// The state of the interface. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) boot_id: Arc<str>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) held: Arc<HeldTable>,
    pub(crate) claims: Arc<ClaimTable>,
    pub(crate) holds: Arc<HoldTable>,
}

impl Shared {
    pub(crate) fn new(config: Config, session_timeout: Duration) -> Self {
        Self {
            boot_id: boot_clock::boot_id().into(),
            sessions: Arc::new(Sessions::new(config, session_timeout)),
            held: Arc::default(),
            claims: Arc::default(),
            holds: Arc::default(),
        }
    }

    /// Holds what a caller was granted on a path by a client until its end, or refuses it.
    pub(crate) async fn hold(
        &self,
        caller: &Caller,
        (client, path): (&Client, &str),
        granted: Result<Holding, ApiError>,
        hold: OpenBody,
        events: Events,
    ) {
        match self.sessions.note(granted) {
            Ok(holding) => {
                let owner = caller.owner();
                let ends = (hold, events);
                held::hold(&self.held, owner, &self.boot_id, path, holding, ends).await;
            }
            Err(mut error) => {
                // Boxed so that the future of what is held stays small.
                Box::pin(error.name_holder(client, path)).await;
                events.refuse(error);
            }
        }
    }
}
