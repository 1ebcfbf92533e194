//! Thread of a server's pages, and their connections to it within its process.

use std::io;
use std::path::PathBuf;

use baton_client::{BoxFuture, BoxStream, Config, Endpoint, Host, Transport};
use baton_server::pages::Visitor;
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;

/// The runtime of the pages, of one thread. It may be dropped where nothing may block.
#[derive(Debug)]
pub(super) struct Thread(Option<Runtime>);

impl Thread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("baton-page")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// The settings of sessions that run on it.
    pub(super) fn runs(&self, config: Config) -> Config {
        match &self.0 {
            Some(runtime) => config.runtime(runtime.handle().clone()),
            None => config,
        }
    }

    /// Runs this on the page's thread, until it is done or not waited for any more.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut task = JoinSet::new();
        task.spawn_on(work, self.0.as_ref()?.handle());
        task.join_next().await?.ok()
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Connects to the server within the process, as this visitor.
pub(super) struct InProcessTransport(pub(super) Visitor);

impl Transport for InProcessTransport {
    fn resolve(&self, _: &Host) -> BoxFuture<io::Result<Vec<Endpoint>>> {
        let here = Endpoint::Unix(PathBuf::from("this server"));
        Box::pin(std::future::ready(Ok(vec![here])))
    }

    fn connect(&self, _: &Endpoint) -> BoxFuture<io::Result<BoxStream>> {
        let connected = self.0.connect();
        let connected = connected.map(|stream| Box::new(stream) as BoxStream);
        Box::pin(std::future::ready(connected))
    }
}
