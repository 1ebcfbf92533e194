//! `baton console`: the page that shows who holds, who waits and why.
//!
//! The page is `baton_console`'s; here are its address, its session, and who may see it. It is
//! served to this machine only. Its link shows what the session's credentials may read: other
//! users of the machine do not have the link.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use baton_console::http::{CallerView, Host, Refusal, router};
use baton_console::{Console, Words};
use baton_server::http;

use crate::connection::{Connection, LASTING};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::servers::words::ServerWords;
use crate::signals::{self, Signals};

/// Show who holds, who waits and why, on a page in the browser.
///
/// Locks, elections, queues, semaphores, barriers, members, sessions, who waits for whom with every
/// deadlock, the servers, and the tree: live, until Ctrl-C. Works with Baton and with Apache
/// ZooKeeper.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton console
  baton console --servers zk1:2181,zk2:2181 --auth-file ops.auth
  ssh -L 7181:127.0.0.1:7181 host baton console    on another machine

Open the link that it prints. A browser with the link's token can see what the
credentials of this command may read, and change what they may change: ask a
holder to release, break a lock, requeue or delete dead letters. The page asks
before each change. Each start makes a new token.
Exit codes: 130 ended by Ctrl-C   125 baton failed   2 usage")]
pub(crate) struct Args {
    /// Address of this machine to serve the page on; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7181")]
    listen: SocketAddr,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if !args.listen.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "--listen {}: the page is served to this machine only; use 127.0.0.1, and reach it from elsewhere through ssh -L",
            args.listen
        )));
    }
    context.block_on(async {
        let mut signals = Signals::new()?;
        Connection::during(context, LASTING, async |connection: &Connection| {
            serve(args, context, connection, &mut signals).await
        })
        .await
    })?
}

async fn serve(
    args: &Args,
    context: &Context,
    connection: &Connection,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let listening = http::bind(&args.listen.to_string()).await;
    let (listener, local) = listening.map_err(|error| {
        Failure::baton(format!(
            "--listen: {error}; --listen {}:0 takes a free port",
            args.listen.ip()
        ))
    })?;
    let token = new_token()?;
    let words = ServerWords::new(&connection.client, &connection.servers, connection.tls());
    let words: Arc<dyn Words> = Arc::new(words);
    let gate = Gate {
        console: Console::new(&connection.client, &connection.servers, Some(words)),
        token: token.clone(),
    };
    let url = format!("http://{local}/#token={token}");
    let text = format!("console of {} on {url}", connection.servers);
    let servers = &connection.servers;
    context.output.result(&record! { url: &url, servers }, text);
    let number = tokio::select! {
        () = http::serve(router(Arc::new(gate)), listener) => return Ok(exit::OK),
        number = signals.stop() => number,
    };
    Ok(signals::ended_by(number))
}

/// Sixteen random bytes in hexadecimal.
fn new_token() -> Result<String, Failure> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| {
        Failure::baton(format!(
            "cannot draw random bytes for the link: {error}; report this"
        ))
    })?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Lets those in who have the link.
struct Gate {
    console: Console,
    token: String,
}

impl Host for Gate {
    fn seat<'a>(
        &'a self,
        request: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<CallerView, Refusal>> + Send + 'a>> {
        let authorization = request.headers.get(header::AUTHORIZATION);
        let authorization = authorization.and_then(|header| header.to_str().ok());
        let shown = authorization.and_then(|header| header.strip_prefix("Bearer "));
        let is_known = shown.is_some_and(|shown| is_same(shown, &self.token));
        Box::pin(async move {
            if is_known {
                return Ok(CallerView {
                    console: self.console.clone(),
                    may_act: true,
                    is_proven: true,
                    who: "this command's identity".to_owned(),
                    past: None,
                });
            }
            Err(Refusal {
                status: StatusCode::UNAUTHORIZED,
                text: "open the link that baton console has printed: it has the token of this run"
                    .to_owned(),
            })
        })
    }
}

/// Compares in a time that does not depend on where the texts differ.
fn is_same(one: &str, other: &str) -> bool {
    let pairs = one.bytes().zip(other.bytes());
    one.len() == other.len() && pairs.fold(0, |all, (one, other)| all | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_of_its_own_each_time_and_only_the_whole_of_it_counts() {
        let (one, other) = (new_token().unwrap(), new_token().unwrap());
        assert_eq!(one.len(), 32);
        assert!(is_same(&one, &one) && !is_same(&one, &other));
        assert!(!is_same(&one, &one[..31]) && !is_same("", &one));
    }
}
