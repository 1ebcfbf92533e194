//! Pages that the program around a server adds to its HTTP: who looks at one, and what they may.
//!
//! Owns the connection of a [`Visitor`]. It is one of the server's clients, at the visitor's
//! address and with the identity that the visitor has shown over HTTP: ACLs, limits on connections
//! and the audit record count for it as for any other. What a page shows is the page's matter.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Weak};

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use baton_tree::Identity;
use tokio::net::UnixStream;
use tokio::runtime::Handle;

use crate::audit::line::{Ending, Operation};
use crate::audit::record::Principal;
use crate::connections::peer::Peer;
use crate::net::accept::{self, Accepted};
use crate::net::stream::Stream;
use crate::operator::http::Site;
use crate::operator::http::access::{Caller, RequestKind};
use crate::server::Server;
use crate::state::ServerState;

/// Reason for which a visitor is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// The cause, and what to do.
    pub text: String,
}

/// Lets visitors of pages in. Cheap to clone, and keeps no server alive.
#[derive(Debug, Clone)]
pub struct Visitors {
    site: Weak<Site>,
    sockets: Handle,
}

/// Somebody who looks at a page.
#[derive(Debug, Clone)]
pub struct Visitor {
    state: Weak<ServerState>,
    /// Runtime that serves the server's end of its connections, like that of any client.
    sockets: Handle,
    peer: SocketAddr,
    identity: Arc<Identity>,
    is_named: bool,
    is_proven: bool,
}

/// Identity of a visitor: its address, and what it has shown. Visitors with equal identities see
/// the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisitorIdentity(Arc<Identity>);

impl Server {
    /// Answers by `pages` what is asked for over HTTP at paths that the server has no answer for.
    /// `false`: that was called before, and nothing has changed.
    pub fn add_pages(&self, pages: Router) -> bool {
        self.site().add_pages(pages)
    }

    /// Lets visitors of such pages in. Call it on the server's tokio runtime; the pages may have
    /// one of their own, so that what they compute holds no socket up.
    #[must_use]
    pub fn visitors(&self) -> Visitors {
        Visitors {
            site: Arc::downgrade(self.site()),
            sockets: Handle::current(),
        }
    }
}

impl Visitors {
    /// Admits the sender of this request, one that the server has handed to its pages.
    ///
    /// Who shows nothing is let in where a client that shows nothing is served. Credentials of any
    /// kind that HTTP takes are judged as there.
    ///
    /// # Errors
    /// [`Refusal`]: the visitor may not look at the tree at all.
    pub async fn admit(&self, request: &Parts) -> Result<Visitor, Refusal> {
        self.admit_to(RequestKind::Read, request).await
    }

    /// Admits the sender of a request that may change something, as [`Visitors::admit`] does.
    ///
    /// A client certificate is enough only where the ACL of `/` names it. A browser's request for a
    /// page needs the header `Authorization`, because the page may be any site's.
    ///
    /// # Errors
    /// [`Refusal`]: the sender may not be a client of the server.
    pub async fn admit_client(&self, request: &Parts) -> Result<Visitor, Refusal> {
        self.admit_to(RequestKind::Use, request).await
    }

    async fn admit_to(&self, kind: RequestKind, request: &Parts) -> Result<Visitor, Refusal> {
        let Some(site) = self.site.upgrade() else {
            return Err(Refusal {
                status: StatusCode::SERVICE_UNAVAILABLE,
                text: "the server has stopped; start it again".to_owned(),
            });
        };
        let caller = Caller::of(&request.headers, &request.extensions);
        match site.visit(caller, kind).await {
            Ok((state, visit)) => Ok(Visitor {
                state: Arc::downgrade(&state),
                sockets: self.sockets.clone(),
                peer: visit.peer,
                identity: Arc::new(visit.identity),
                is_named: visit.is_named,
                is_proven: visit.is_proven,
            }),
            Err((status, text)) => Err(Refusal { status, text }),
        }
    }
}

impl Visitor {
    /// Returns the identity.
    #[must_use]
    pub fn identity(&self) -> VisitorIdentity {
        VisitorIdentity(Arc::clone(&self.identity))
    }

    /// Whether the request names its sender by `digest` or `x509`: what it changes has an author.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.is_named
    }

    /// Whether it has shown something that nobody else can: a certificate, a token, or a password
    /// that the server knows. Where clients need to show nothing, any other name and password are
    /// taken as they are.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Connects to the server as this visitor, within the process. Needs a tokio runtime.
    ///
    /// # Errors
    /// The server has stopped, or takes no further connection of that address.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let state = self.state()?;
        let stream = self.open(&state, Arc::clone(&self.identity))?;
        let schemes = self.identity.ids().map(|id| id.scheme.as_str());
        for scheme in schemes.filter(|scheme| !matches!(*scheme, "ip" | "super")) {
            let who = || Principal::at(&Peer::Tcp(self.peer), None).known_as(&self.identity);
            state.record(Operation::Login, Ending::Success, who, |fields| {
                fields.text("scheme", scheme);
            });
        }
        Ok(stream)
    }

    /// [`Visitor::connect`] for four-letter words, which ask nobody who they are.
    ///
    /// # Errors
    /// As there.
    pub fn connect_for_words(&self) -> io::Result<UnixStream> {
        let identity = Identity::from_ip(self.peer.ip());
        self.open(&self.state()?, Arc::new(identity))
    }

    fn state(&self) -> io::Result<Arc<ServerState>> {
        let state = self.state.upgrade();
        state.ok_or_else(|| io::Error::other("the server has stopped"))
    }

    fn open(&self, state: &Arc<ServerState>, identity: Arc<Identity>) -> io::Result<UnixStream> {
        let (ours, theirs) = StdUnixStream::pair()?;
        for end in [&ours, &theirs] {
            end.set_nonblocking(true)?;
        }
        let ours = UnixStream::from_std(ours)?;
        let _entered = self.sockets.enter();
        let theirs = UnixStream::from_std(theirs)?;
        let accepted = Accepted::Known(Stream::Unix(theirs), identity);
        let Some(life) = accept::take_on(state, accepted, Peer::Tcp(self.peer)) else {
            let text = "the server takes no further connection of this address; close some, or raise \
                        max_connections_per_address or max_connections";
            return Err(io::Error::other(text));
        };
        tokio::spawn(life);
        Ok(ours)
    }
}

impl VisitorIdentity {
    /// A text that equal identities alone have in common. It contains hashes of passwords: keep it
    /// out of logs.
    #[must_use]
    pub fn key(&self) -> String {
        let ids = self.0.ids().map(|id| format!("{:?}{:?}", id.scheme, id.id));
        ids.collect()
    }

    /// Its address and its names, for people: `digest:alice at 127.0.0.1`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut address = "";
        let mut names = Vec::new();
        for id in self.0.ids() {
            match id.scheme.as_str() {
                "ip" => address = &id.id,
                "super" => names.push("super".to_owned()),
                // Behind the name is what its password comes to.
                "digest" => names.push(format!("digest:{}", id.id.split(':').next().unwrap_or(""))),
                scheme => names.push(format!("{scheme}:{}", id.id)),
            }
        }
        if names.is_empty() {
            names.push("anybody".to_owned());
        }
        format!("{} at {address}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::{Request, header};
    use baton_tree::digest_id;

    use super::*;
    use crate::operator::http::access::Readers;
    use crate::options::Options;

    const HERE: &str = "127.0.0.1:9";
    const ELSEWHERE: &str = "10.0.0.1:9";

    /// A request as the listener hands it to the pages.
    fn request(from: &str, readers: Readers, authorization: Option<&str>) -> Parts {
        let mut request = Request::new(Body::empty());
        let about = request.extensions_mut();
        about.insert(from.parse::<SocketAddr>().unwrap());
        about.insert(readers);
        if let Some(authorization) = authorization {
            let value = authorization.parse().unwrap();
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        request.into_parts().0
    }

    async fn server(change: impl FnOnce(&mut Options)) -> Server {
        let mut options = Options {
            super_digest: Some(digest_id(b"super:secret")),
            ..Options::default()
        };
        change(&mut options);
        Server::start(options).await.unwrap()
    }

    fn listens(options: &mut Options) {
        options.listen = vec!["127.0.0.1:0".to_owned()];
    }

    /// The status of a refusal, or who is let in, whether it may change something, and whether it
    /// may ask under any name.
    async fn admitted(server: &Server, request: &Parts) -> Result<(String, bool, bool), u16> {
        let admitted = server.visitors().admit(request).await;
        let admitted = admitted.map_err(|refusal| refusal.status.as_u16())?;
        let who = admitted.identity().text();
        Ok((who, admitted.is_named(), admitted.is_proven()))
    }

    fn who(text: &str, is_named: bool, is_proven: bool) -> Result<(String, bool, bool), u16> {
        Ok((text.to_owned(), is_named, is_proven))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a18_who_looks_at_a_page_shows_what_a_client_would_have_to_show() {
        let open = server(listens).await;
        let bob = Some("digest bob:guess");
        let root = Some("digest super:secret");
        let here = |shown| request(HERE, Readers::Known, shown);
        let elsewhere = |shown| request(ELSEWHERE, Readers::Known, shown);
        let anybody = || who("anybody at 127.0.0.1", false, false);
        assert_eq!(admitted(&open, &here(None)).await, anybody());
        let as_bob = who("digest:bob at 127.0.0.1", true, false);
        assert_eq!(admitted(&open, &here(bob)).await, as_bob);
        let as_root = who("super, digest:super at 127.0.0.1", true, true);
        assert_eq!(admitted(&open, &here(root)).await, as_root);
        let as_root = who("super, digest:super at 10.0.0.1", true, true);
        assert_eq!(admitted(&open, &elsewhere(root)).await, as_root);
        for (shown, status) in [
            (None, 401),
            (bob, 403),
            (Some("Bearer x"), 403),
            (Some("x509"), 403),
        ] {
            assert_eq!(
                admitted(&open, &elsewhere(shown)).await,
                Err(status),
                "{shown:?}"
            );
        }
        // What is wrong is refused where nothing is needed, too.
        for wrong in ["digest super:guess", "Bearer x", "x509", "Basic x"] {
            assert_eq!(
                admitted(&open, &here(Some(wrong))).await,
                Err(403),
                "{wrong}"
            );
        }
        // Whose port is open to everybody is open to those whom a client port serves.
        let everybody = |from| request(from, Readers::Everybody, None);
        assert_eq!(admitted(&open, &everybody(ELSEWHERE)).await, Err(401));
        let wide = server(|options| {
            options.listen = vec!["0.0.0.0:0".to_owned()];
            options.insecure = true;
        });
        let wide = wide.await;
        let stranger = who("anybody at 10.0.0.1", false, false);
        assert_eq!(admitted(&wide, &everybody(ELSEWHERE)).await, stranger);
        assert_eq!(admitted(&wide, &elsewhere(None)).await, Err(401));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a18_where_no_client_is_served_that_shows_nothing_no_page_is_shown_either() {
        let here = |shown| request(HERE, Readers::Known, shown);
        let (bob, root) = (Some("digest bob:guess"), Some("digest super:secret"));
        // Its clients reach it over the owner's socket alone.
        let private = server(|_| {}).await;
        assert_eq!(admitted(&private, &here(None)).await, Err(401));
        assert_eq!(admitted(&private, &here(bob)).await, Err(403));
        assert!(admitted(&private, &here(root)).await.is_ok());
        let digest = server(|options| {
            listens(options);
            options.required_schemes = vec!["digest".to_owned()];
        });
        let digest = digest.await;
        assert_eq!(admitted(&digest, &here(None)).await, Err(401));
        assert_eq!(admitted(&digest, &here(bob)).await, Err(403));
        assert!(admitted(&digest, &here(root)).await.is_ok());
        // Not even the superuser has authenticated by what clients have to.
        let sasl = server(|options| {
            listens(options);
            options.required_schemes = vec!["sasl".to_owned()];
            let bob = ("bob".to_owned(), "secret".to_owned());
            options.sasl_users = std::iter::once(bob).collect();
        });
        let sasl = sasl.await;
        assert_eq!(admitted(&sasl, &here(None)).await, Err(401));
        let refusal = sasl.visitors().admit(&here(root)).await.unwrap_err();
        assert_eq!(refusal.status, StatusCode::FORBIDDEN);
        assert!(
            refusal.text.contains("authenticate by sasl"),
            "{}",
            refusal.text
        );
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a01_guesses_of_the_superusers_password_at_a_page_are_slowed_and_counted() {
        let open = server(listens).await;
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let visitors = open.visitors();
            let guess = request(HERE, Readers::Known, Some("digest super:guess"));
            all.spawn(async move { visitors.admit(&guess).await.unwrap_err().status.as_u16() });
        }
        assert_eq!(all.join_all().await, [403; 20]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_connections_of_visitors_count_for_the_limits_and_end_with_the_server() {
        let open = server(|options| {
            listens(options);
            options.max_connections_per_address = 2;
        });
        let open = open.await;
        let here = request(HERE, Readers::Known, None);
        let visitor = open.visitors().admit(&here).await.unwrap();
        let kept = [
            visitor.connect().unwrap(),
            visitor.connect_for_words().unwrap(),
        ];
        assert!(visitor.connect().is_err());
        assert_eq!(open.active_connections(), 2);
        drop(kept);
        while open.active_connections() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(visitor.connect().is_ok());
        let visitors = open.visitors();
        open.shutdown().await.unwrap();
        assert!(visitor.connect().is_err());
        let refusal = visitors.admit(&here).await.unwrap_err();
        assert_eq!(refusal.status, StatusCode::SERVICE_UNAVAILABLE);
    }
}
