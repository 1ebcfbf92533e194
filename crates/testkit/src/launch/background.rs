//! A runtime beside those of the tests, for what has to go on while a test blocks its own: wires,
//! and the embedded servers of ensembles. Owns that runtime.

use std::io;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

use super::LaunchError;

const THREADS: usize = 2;

/// The runtime, which lasts until the process ends.
pub(super) fn background() -> Result<&'static Handle, LaunchError> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("baton-testkit")
            .enable_all()
            .build()
    });
    match runtime {
        Ok(runtime) => Ok(runtime.handle()),
        Err(error) => Err(LaunchError::io("cannot start a runtime")(
            error.kind().into(),
        )),
    }
}
