//! Pages of a server's HTTP besides its own answers: the console, and the locks of `/v1`.
//!
//! Their callers are clients of the server, each with the identity that it has shown, over
//! connections within the process. All that is computed for them is computed on one thread of its
//! own, however much they ask for: other clients of the server do not wait for it.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use baton_client::Config;
use baton_console::metrics::RecipeMetrics;
use baton_server::Server;

use super::inside::Thread;
use super::locks::Locks;
use super::page::{OwnServer, Page};
use crate::exit::Failure;

/// The pages of one server, with the sessions of their callers.
#[derive(Debug)]
pub(super) struct Pages {
    page: Page,
    locks: Arc<Locks>,
    thread: Arc<Thread>,
}

impl Pages {
    /// Adds the pages to the HTTP of this server.
    ///
    /// # Errors
    /// The server's address is not one that a client understands.
    pub(super) fn add_to(
        server: &Server,
        id: u64,
        past: Option<Arc<RecipeMetrics>>,
    ) -> Result<Self, Failure> {
        let addresses = [server.local_addr(), server.secure_addrs().first().copied()];
        let address = addresses.into_iter().flatten().next();
        // A server without a port is reached over its socket only.
        let address = address.map_or_else(|| server.connect_string(), |at| at.to_string());
        let config = Config::new(&address).map_err(|error| {
            Failure::baton(format!(
                "the pages of HTTP cannot connect: {error}; report this"
            ))
        })?;
        let thread = Thread::start().map_err(|error| {
            Failure::baton(format!(
                "cannot start the thread of HTTP's pages: {error}; raise the limit of processes, or leave http out"
            ))
        })?;
        let config = thread.runs(config);
        let page = Page::new(server, OwnServer { id, address }, config.clone(), past);
        let locks = Arc::new(Locks::new(server, config));
        let thread = Arc::new(thread);
        let of_pages = Arc::clone(&thread);
        let on_its_thread = middleware::from_fn(move |request: Request, next: Next| {
            let thread = Arc::clone(&of_pages);
            async move {
                let answer = thread.run(next.run(request)).await;
                answer.unwrap_or_else(|| StatusCode::SERVICE_UNAVAILABLE.into_response())
            }
        });
        let routes = page.router().merge(Locks::router(&locks));
        let is_first = server.add_pages(routes.layer(on_its_thread));
        debug_assert!(is_first, "a server has its pages once");
        Ok(Self {
            page,
            locks,
            thread,
        })
    }

    /// Ends the sessions of their callers.
    pub(super) async fn close(self) {
        let Self {
            page,
            locks,
            thread,
        } = self;
        let closing = async move {
            locks.close().await;
            page.close().await;
        };
        thread.run(closing).await;
    }
}
