//! Stops a server whose data folder was removed or replaced while it runs. The system keeps the
//! files of the log that are open, so nothing else would notice that no later start finds them.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use baton_wal::Storage;

use crate::error::ServerError;
use crate::state::ServerState;

/// Time between two looks at the folder.
const INTERVAL: Duration = Duration::from_secs(5);

/// Looks at the folder of a running server again and again, until it is another one.
pub(crate) async fn watch(state: Arc<ServerState>, storage: Arc<dyn Storage>) {
    let mut first = None;
    loop {
        let folder = Arc::clone(&storage);
        // A disk that hangs holds up nobody else.
        let looked = tokio::task::spawn_blocking(move || folder.inode()).await;
        let is_gone = match looked {
            Ok(Ok(None)) | Err(_) => return,
            Ok(Ok(Some(now))) => *first.get_or_insert(now) != now,
            // What else the system says of it the log finds out.
            Ok(Err(error)) => error.kind() == ErrorKind::NotFound && first.is_some(),
        };
        if is_gone {
            let folder = storage.location("");
            return state.inbox.fail(ServerError::FolderGone { folder });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
