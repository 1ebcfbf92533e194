//! `baton server`: the members of an ensemble, seen and changed while it runs.
//!
//! | module | owns |
//! |---|---|
//! | `change` | servers that join, leave, move, and come back with an empty folder |
//! | `reset_time` | a time that was ahead of the clocks |
//! | `transfer` | which server leads |
//! | `recover` | a new cluster with the data of a folder |
//! | `ls` | what each member is, and whether it answers |

mod change;
mod ls;
mod recover;
mod reset_time;
mod transfer;

use std::path::PathBuf;
use std::time::Duration;

use baton_client::{ClientTls, EnsembleConfig, EnsembleMember, Error, ReconfigError, Session};

use self::change::Changes;
use crate::access::AUTH_VARIABLE;
use crate::connection::{BRIEF, Connection};
use crate::context::Context;
use crate::duration;
use crate::exit::{self, Failure};
use crate::servers::http_port::first_token;
use crate::servers::probe;
use crate::znode;

/// List and change the servers that form an ensemble.
///
/// Works with Baton and with Apache ZooKeeper: changes are ZooKeeper's reconfig. The servers accept
/// them only if their settings say so (ensemble.reconfig, in a zoo.cfg reconfigEnabled), by default
/// from the superuser only: --auth-file names a file with a line digest:USER:PASSWORD, and without
/// it the variable BATON_AUTH may hold USER:PASSWORD.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  baton server ls --servers LIST            role and newest change of each
  baton server add '4=zk4:2888:3888;2181'   it votes, once it has caught up
  baton server add '4=zk4:2888:3888:observer;2181'
  baton server remove 4 5
  baton server move '3=zk8:2888:3888;2181'  its data goes with it
  baton server replace 3                    its data is lost, it has a new disk
  baton server replace '3=zk7:2888:3888;2181'
  baton server transfer 2 --http zk1:8080   server 2 becomes the leader
  baton server reset-time --http zk1:8080   after clocks were ahead
  baton server recover --from DIR --into NEW --server-id 1 --address zk1:2888

A server is named as in a zoo.cfg: ID=HOST:QUORUM:ELECTION[:ROLE];CLIENT, where
ROLE is participant (default) or observer, and CLIENT is PORT or HOST:PORT.
First start a new voter, with an empty folder and all servers in its list: it
waits until it is added. All servers that a command names join or leave with
one change, or none does.
Exit codes: 0 done   1 refused, or (ls) a server does not answer   2 usage
            125 baton failed; the message says what is not known")]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Print each member: id, role, mode, newest change, version, addresses.
    Ls,
    /// Add servers; turn observers into voters, or voters into observers.
    ///
    /// A new voter has to run already. The command waits until it votes: like ZooKeeper, the
    /// ensemble would also list a voter that is not running, and go on without its vote.
    Add {
        /// Each server: ID=HOST:QUORUM:ELECTION[:ROLE];CLIENT.
        #[arg(value_name = "ID=ADDRESS", value_parser = member, required = true)]
        joining: Vec<EnsembleMember>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Remove servers.
    Remove {
        /// The servers' ids.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<u64>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Change the address of a server, which keeps its data.
    ///
    /// Until the others have reached the server at the new address, they try both addresses, so
    /// this change may come before or after the move. A majority of voters that do not move has to
    /// be running.
    Move {
        /// The server and its new address; omitted parts of the address stay as they are.
        #[arg(value_name = "ID=ADDRESS", value_parser = relocation)]
        server: Relocation,
        #[command(flatten)]
        limit: Limit,
    },
    /// Replace a server whose data is lost by a server that waits with an empty folder.
    ///
    /// Removes the server with its former data, which can never vote again, then adds the waiting
    /// server under the same id.
    Replace {
        /// The server's id; with an address, as for `add`, if the address changes.
        #[arg(value_name = "ID[=ADDRESS]", value_parser = replacement)]
        server: Replacement,
        #[command(flatten)]
        limit: Limit,
    },
    /// Make the folder of a new cluster of one server from an existing folder.
    ///
    /// No server may run on that folder. For a single server that is to become an ensemble; or,
    /// with --majority-lost, for a member whose ensemble has lost its majority for good.
    Recover(recover::Args),
    /// Make a server the leader.
    Transfer {
        /// The server's id.
        id: u64,
        #[command(flatten)]
        port: LeaderPort,
        #[command(flatten)]
        limit: Limit,
    },
    /// Set the ensemble's time back to the clocks, after clocks were ahead.
    ///
    /// The ensemble's time never goes back by itself: it stands still until the clocks have reached
    /// the newest change, and TTL nodes and delayed items stay so long. First set the clocks right;
    /// baton doctor names the wrong one. Changes with a later time get the current time. The
    /// servers do not answer meanwhile, about a second for ten million znodes.
    ResetTime {
        #[command(flatten)]
        port: LeaderPort,
        #[command(flatten)]
        limit: Limit,
    },
}

/// HTTP port of the leader, for what ZooKeeper's protocol has no operation for.
#[derive(Debug, clap::Args)]
struct LeaderPort {
    /// HTTP ports of the servers, including the leader's [default: port 8080 of the leader]. Use
    /// TLS where the connections to the servers do, unless one begins with http://.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    http: Vec<String>,
    /// Show the first token of this file at the HTTP port, in place of the credentials. Other users
    /// must not be able to read it.
    #[arg(
        long,
        value_name = "FILE",
        env = "BATON_HTTP_TOKEN_FILE",
        hide_env_values = true
    )]
    http_token_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct Limit {
    /// Time to try.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, default_value = "1m")]
    wait: Duration,
}

/// A server that moves.
#[derive(Debug, Clone)]
struct Relocation {
    id: u64,
    /// Text behind the `=`.
    address: String,
}

/// A server to be replaced.
#[derive(Debug, Clone)]
struct Replacement {
    id: u64,
    /// Text behind the `=`.
    address: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    if let Act::Recover(args) = &args.act {
        return recover::run(args, context);
    }
    let from_variable = match context.globals.auth_file {
        Some(_) => None,
        None => credentials_of_variable()?,
    };
    let token = match &args.act {
        Act::Transfer { port, .. } | Act::ResetTime { port, .. } => {
            let file = port.http_token_file.as_ref();
            file.map(|file| first_token(file)).transpose()?
        }
        _ => None,
    };
    context.block_on(Connection::during(
        context,
        BRIEF,
        async |connection: &Connection| {
            let session = connection.session().await?;
            if let Some(credentials) = &from_variable {
                let added = session.add_auth("digest", credentials.as_bytes()).await;
                added.map_err(znode::failure)?;
            }
            let ensemble = Ensemble {
                context,
                session,
                known: probe::addresses(&connection.servers),
                tls: connection.tls(),
                credentials: from_variable.as_deref().or(connection.digest()),
            };
            match &args.act {
                // It has no use for a connection, and was done above.
                Act::Recover(args) => recover::run(args, context),
                Act::Ls => ls::run(&ensemble).await,
                Act::Add { joining, limit } => {
                    Changes::within(&ensemble, limit.wait).add(joining).await
                }
                Act::Remove { ids, limit } => {
                    Changes::within(&ensemble, limit.wait).remove(ids).await
                }
                Act::Move { server, limit } => {
                    let changes = Changes::within(&ensemble, limit.wait);
                    changes.relocate(server.id, &server.address).await
                }
                Act::Replace { server, limit } => {
                    let changes = Changes::within(&ensemble, limit.wait);
                    changes.replace(server.id, server.address.as_deref()).await
                }
                Act::Transfer { id, port, limit } => {
                    let token = token.as_deref();
                    transfer::run(&ensemble, *id, &port.http, token, limit.wait).await
                }
                Act::ResetTime { port, limit } => {
                    reset_time::run(&ensemble, &port.http, token.as_deref(), limit.wait).await
                }
            }
        },
    ))?
}

/// The ensemble that the verb is about.
struct Ensemble<'a> {
    context: &'a Context,
    session: Session,
    /// The servers that the user has named, without those at unix sockets.
    known: Vec<String>,
    /// TLS by which they are reached, if they are.
    tls: Option<&'a ClientTls>,
    /// `USER:PASSWORD`.
    credentials: Option<&'a str>,
}

impl Ensemble<'_> {
    /// The members as they are now; none where a server stands alone.
    async fn members_if_any(&self) -> Result<EnsembleConfig, Failure> {
        let read = self.session.read_latest("/", Session::ensemble_config);
        match read.await {
            Ok(config) => Ok(config),
            // A server that stands alone need not have the znode.
            Err(error) if error.is_no_node() => Ok(EnsembleConfig::default()),
            Err(error) => Err(znode::failure(error)),
        }
    }

    /// The members as they are now.
    async fn members(&self) -> Result<EnsembleConfig, Failure> {
        let config = self.members_if_any().await?;
        if config.members.is_empty() {
            return Err(refusal(&ReconfigError::StandsAlone));
        }
        Ok(config)
    }
}

/// The member of this id.
fn known_member(config: &EnsembleConfig, id: u64) -> Result<&EnsembleMember, Failure> {
    config.member(id).ok_or_else(|| {
        let known: Vec<_> = config.members.iter().map(|of| of.id.to_string()).collect();
        Failure::new(
            exit::NOTHING,
            "unknown_server",
            format!(
                "server {id} is not a member; the members are {}",
                known.join(", ")
            ),
        )
    })
}

/// Failure where the members have not changed. A refusal by the servers is an answer (exit code 1).
fn refusal(error: &ReconfigError) -> Failure {
    let (exit_code, kind) = match error {
        ReconfigError::Disabled => (exit::NOTHING, "disabled"),
        ReconfigError::InProgress => (exit::NOTHING, "in_progress"),
        ReconfigError::NoQuorum => (exit::NOTHING, "no_quorum"),
        ReconfigError::BadVersion | ReconfigError::NotApplied(_) => (exit::NOTHING, "changed"),
        ReconfigError::BadArguments => (exit::NOTHING, "rejected"),
        ReconfigError::NotAllowed => (exit::NOTHING, "not_allowed"),
        ReconfigError::StandsAlone => (exit::NOTHING, "stands_alone"),
        ReconfigError::Other(Error::Rejected { .. }) => (exit::NOTHING, "rejected"),
        _ => (exit::BATON, "baton"),
    };
    Failure::new(exit_code, kind, error.to_string())
}

/// `USER:PASSWORD` from the environment.
fn credentials_of_variable() -> Result<Option<String>, Failure> {
    match std::env::var_os(AUTH_VARIABLE).filter(|text| !text.is_empty()) {
        Some(text) => one_line(text.into_string().unwrap_or_default()).map(Some),
        None => Ok(None),
    }
}

fn one_line(text: String) -> Result<String, Failure> {
    if !text.contains(':') || text.contains(['\r', '\n']) {
        return Err(Failure::usage(format!(
            "{AUTH_VARIABLE} is not one line USER:PASSWORD in UTF-8; correct it"
        )));
    }
    Ok(text)
}

/// Reads `ID=ADDRESS`.
fn member(text: &str) -> Result<EnsembleMember, String> {
    let line = format!("server.{}", text.strip_prefix("server.").unwrap_or(text));
    line.parse()
        .map_err(|error| {
            format!("{error}; write ID=HOST:QUORUM:ELECTION[:ROLE];CLIENT, like {EXAMPLE}")
        })
        .and_then(with_possible_id)
}

const EXAMPLE: &str = "'4=zk4:2888:3888;2181'";

/// Ids are the first byte of session ids, which are positive.
fn with_possible_id(member: EnsembleMember) -> Result<EnsembleMember, String> {
    if (1..=127).contains(&member.id) {
        Ok(member)
    } else {
        Err(format!(
            "{} is not an id; write one from 1 to 127",
            member.id
        ))
    }
}

/// Reads `ID=ADDRESS`, where the address may leave out what stays.
fn relocation(text: &str) -> Result<Relocation, String> {
    let Replacement { id, address } = replacement(text)?;
    let address = address.ok_or_else(|| format!("'{text}' has no address; write ID=ADDRESS"))?;
    Ok(Relocation { id, address })
}

/// Reads `ID` or `ID=ADDRESS`.
fn replacement(text: &str) -> Result<Replacement, String> {
    let text = text.strip_prefix("server.").unwrap_or(text);
    let (id, address) = match text.split_once('=') {
        Some((_, address)) => (member(text)?.id, Some(address.to_owned())),
        None => {
            let id = text.parse().ok().filter(|id| (1..=127).contains(id));
            let complaint = || format!("'{text}' is not an id; write one from 1 to 127");
            (id.ok_or_else(complaint)?, None)
        }
    };
    Ok(Replacement { id, address })
}

/// Reads `HOST:PORT`, where other servers reach one.
pub(crate) fn peer_address(text: &str) -> Result<String, String> {
    let complaint = |_| format!("'{text}' is not an address; write HOST:PORT");
    EnsembleMember::with_id(1, &format!("{text}:1")).map_err(complaint)?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_as_in_a_zoo_cfg_with_or_without_the_word() {
        for text in ["4=zk4:1:2;3", "server.4=zk4:1:2;3"] {
            assert_eq!(
                member(text).unwrap().to_string(),
                "server.4=zk4:1:2:participant;0.0.0.0:3"
            );
            let replaced = replacement(text).unwrap();
            assert_eq!(
                (replaced.id, replaced.address.as_deref()),
                (4, Some("zk4:1:2;3"))
            );
        }
        assert_eq!(replacement("4").unwrap().address, None);
        for (text, complaint) in [
            ("4", "begin with server.ID="),
            ("zk4:1:2", "begin with server.ID="),
            ("4=zk4:2888", "two ports"),
            ("4=zk4:1:2:boss", "role"),
            ("0=zk4:1:2", "0 is not an id"),
            ("128=zk4:1:2", "from 1 to 127"),
        ] {
            let refused = member(text).unwrap_err();
            assert!(refused.contains(complaint), "{text}: {refused}");
        }
        for text in ["", "0", "128", "-1", "x", "4=", "4=zk4"] {
            assert!(replacement(text).is_err(), "{text}");
        }
        assert_eq!(relocation("4=zk4:1:2").unwrap().address, "zk4:1:2");
        assert!(relocation("4").unwrap_err().contains("no address"));
    }

    #[test]
    fn the_addresses_of_a_list_are_those_that_a_word_can_be_sent_to() {
        assert_eq!(
            probe::addresses("zk1:2181, [::1]:2182,unix:/run/b.sock,zk3:2183/app"),
            ["zk1:2181", "[::1]:2182", "zk3:2183"]
        );
        assert_eq!(probe::addresses("unix:/run/b.sock/x"), [""; 0]);
        assert_eq!(
            probe::addresses("tls://zk1:2281,tls://zk2:2282/app"),
            ["zk1:2281", "zk2:2282"]
        );
        assert_eq!(
            probe::addresses("zk1,::1"),
            ["zk1:2181", "[::1]:2181"],
            "without a port, the one that clients use"
        );
    }

    #[test]
    fn credentials_are_one_line() {
        let read = |text: &str| one_line(text.to_owned());
        assert_eq!(read("super:a:b").unwrap(), "super:a:b");
        for text in ["", "super", "super:a\r\nX: y\n"] {
            assert_eq!(read(text).unwrap_err().kind, "usage", "{text:?}");
        }
    }
}
