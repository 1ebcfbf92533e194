//! The console's page at `/` of the server's HTTP.
//!
//! The page is `baton_console`'s, who may look is `baton_server::pages`'s to say; here they meet.
//! Each identity that looks has a session of its own on this server, so what is shown is what the
//! ACLs leave to it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use baton_client::{BoxStream, Client, Config, EnsembleMember};
use baton_console::http::{CallerView, Host, Refusal, router};
use baton_console::metrics::RecipeMetrics;
use baton_console::{Answers, Consoles, Words};
use baton_server::Server;
use baton_server::pages::{Visitor, VisitorIdentity, Visitors};
use tokio::task::JoinSet;

use super::inside::InProcessTransport;
use crate::servers::probe;

/// Time that the page waits for a session: the server is in this process, but may know no leader.
const SESSION_WITHIN: Duration = Duration::from_secs(5);

/// The page of one server, with the sessions of those who look at it.
#[derive(Debug, Clone)]
pub(super) struct Page {
    visitors: Visitors,
    own: OwnServer,
    /// Names the server in what is said of a session that cannot be opened.
    config: Config,
    consoles: Consoles<VisitorIdentity>,
    past: Option<Arc<RecipeMetrics>>,
}

/// The server that shows the page.
#[derive(Debug, Clone)]
pub(super) struct OwnServer {
    pub(super) id: u64,
    pub(super) address: String,
}

impl Page {
    /// The page of this server, whose sessions have these settings.
    pub(super) fn new(
        server: &Server,
        own: OwnServer,
        config: Config,
        past: Option<Arc<RecipeMetrics>>,
    ) -> Self {
        Self {
            config,
            visitors: server.visitors(),
            consoles: Consoles::new(&own.address),
            own,
            past,
        }
    }

    pub(super) fn router(&self) -> Router {
        router(Arc::new(self.clone()))
    }

    /// Ends the sessions of those who look.
    pub(super) async fn close(&self) {
        self.consoles.close().await;
    }

    /// A client that is this visitor, and what it is shown of the servers.
    fn open(&self, visitor: Visitor) -> (Client, Option<Arc<dyn Words>>) {
        let inside = Arc::new(InProcessTransport(visitor.clone()));
        let config = self.config.clone().connect_within(SESSION_WITHIN);
        let client = Client::lazy(config.transport(inside));
        let words = OwnWords {
            client: client.clone(),
            visitor,
            own: self.own.clone(),
            known: Mutex::default(),
        };
        (client, Some(Arc::new(words)))
    }
}

impl Host for Page {
    fn seat<'a>(
        &'a self,
        request: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<CallerView, Refusal>> + Send + 'a>> {
        Box::pin(async move {
            let admitted = self.visitors.admit(request).await;
            let visitor = admitted.map_err(|refusal| Refusal {
                status: refusal.status,
                text: refusal.text,
            })?;
            let identity = visitor.identity();
            let (may_act, is_proven) = (visitor.is_named(), visitor.is_proven());
            let who = identity.text();
            let console = self.consoles.of(identity, || self.open(visitor));
            let console = console.ok_or_else(|| Refusal {
                status: StatusCode::SERVICE_UNAVAILABLE,
                text: "the limit on identities that view this page is reached; close a page, or try again in a minute"
                    .to_owned(),
            })?;
            Ok(CallerView {
                console,
                may_act,
                is_proven,
                who,
                past: self.past.clone(),
            })
        })
    }
}

/// Reports of this server and the others of its ensemble about themselves.
struct OwnWords {
    client: Client,
    visitor: Visitor,
    own: OwnServer,
    /// The other servers, as they were read last.
    known: Mutex<Vec<EnsembleMember>>,
}

impl OwnWords {
    /// The other servers, as far as the visitor may read the list. Without a majority there is no
    /// session to read it, and nothing is of more interest than they are.
    async fn others(&self) -> Vec<EnsembleMember> {
        let read = match self.client.session().await {
            Ok(session) => session.ensemble_config().await.ok(),
            Err(_) => None,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = read {
            *known = config.members;
            known.retain(|member| member.id != self.own.id);
        }
        known.clone()
    }
}

impl Words for OwnWords {
    fn ask<'a>(
        &'a self,
        words: &'a [&'a str],
    ) -> Pin<Box<dyn Future<Output = Vec<Answers>> + Send + 'a>> {
        Box::pin(async move {
            let words: Arc<[String]> = words.iter().map(|word| (*word).to_owned()).collect();
            let own = ServerAccess::Within(self.visitor.clone());
            let mut servers = vec![(self.own.address.clone(), Some(own))];
            servers.extend(self.others().await.iter().map(|member| {
                match probe::client_address(member) {
                    Some(address) => (address.clone(), Some(ServerAccess::At(address))),
                    None => (format!("server {}", member.id), None),
                }
            }));
            // All at once, so that those that do not answer hold the others up once.
            let mut asking = JoinSet::new();
            for (name, reach) in servers {
                asking.spawn(answers(name, reach, Arc::clone(&words)));
            }
            let mut all = asking.join_all().await;
            all.sort_by(|one, other| one.address.cmp(&other.address));
            all
        })
    }
}

/// Access to a server.
enum ServerAccess {
    Within(Visitor),
    At(String),
}

impl ServerAccess {
    async fn ask(&self, word: &str) -> Result<String, String> {
        match self {
            Self::Within(visitor) => {
                let connected = visitor.connect_for_words();
                let connected = connected.map(|stream| Box::new(stream) as BoxStream);
                probe::ask_over(word, std::future::ready(connected)).await
            }
            Self::At(address) => probe::ask(address, word, None).await,
        }
    }
}

/// The answers of one server to these words. What does not answer one word answers none.
async fn answers(name: String, reach: Option<ServerAccess>, words: Arc<[String]>) -> Answers {
    let mut answered = BTreeMap::new();
    let Some(reach) = reach else {
        let why = "the list of servers does not say where its clients connect";
        return Answers::new(&name, answered, Some(why.to_owned()));
    };
    let mut failure = None;
    for word in words.iter() {
        match reach.ask(word).await {
            Ok(answer) if !answer.is_empty() => {
                answered.insert(word.clone(), answer);
                continue;
            }
            Ok(_) => {
                let why = "it closed the connection without an answer: it is starting, or its port accepts only TLS";
                failure = Some(why.to_owned());
            }
            Err(why) => failure = Some(why),
        }
        break;
    }
    let failure = failure.filter(|_| answered.is_empty());
    Answers::new(&name, answered, failure)
}
