//! Reason why a server refuses a connection of another one. The refusing server sends it, so that
//! the logs of both have the same text.

use crate::codec::fields::{Field, fields};
use crate::codec::hello::ProtocolRange;
use crate::codec::input::{Input, Malformed};
use crate::codec::pieces::FrameBody;
use crate::codec::preface::ForeignProtocol;

/// The most bytes of a text from a peer.
const MAX_TEXT_BYTES: usize = 512;

fields!(ProtocolRange { oldest, newest });

/// The last field: it takes what is left.
impl Field for String {
    fn write(&self, out: &mut FrameBody) {
        out.slice(printable(self).as_bytes());
    }

    fn read(input: &mut Input) -> Result<Self, Malformed> {
        Ok(printable(&String::from_utf8_lossy(&input.rest())))
    }
}

/// Declares the refusals that are sent: the byte behind the name is the one on the wire, and the
/// fields follow it in their order.
macro_rules! refusals {
    ($(
        $(#[$meta:meta])*
        $name:ident = $code:literal $({ $($(#[$doc:meta])* $field:ident: $kind:ty,)* })?,
    )*) => {
        /// Reason why a connection between two servers is refused. The texts name both servers'
        /// facts, so they read the same on both sides.
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[non_exhaustive]
        pub enum Refusal {
            /// The first bytes are not those of a server of Baton. Never sent: the other side would
            /// not understand it.
            #[error("the first bytes are not those of a Baton server; {0}")]
            Foreign(ForeignProtocol),
            $($(#[$meta])* $name $({ $($(#[$doc])* $field: $kind,)* })?,)*
            /// A frame of the handshake cannot be read.
            #[error("the handshake cannot be read: {0}")]
            BadFrame(String),
            /// A reason that this version does not know.
            #[error("refused for reason {code}, which a later version knows: {text}")]
            Other {
                /// The reason.
                code: u8,
                /// Its text.
                text: String,
            },
        }

        impl Refusal {
            /// The byte on the wire.
            pub fn code(&self) -> u8 {
                match self {
                    $(Refusal::$name { .. } => $code,)*
                    Refusal::Foreign(_) | Refusal::BadFrame(_) => Refusal::BAD_FRAME,
                    Refusal::Other { code, .. } => *code,
                }
            }

            pub(crate) fn write(&self, out: &mut FrameBody) {
                out.u8(self.code());
                out.zeros(7);
                match self {
                    $(Refusal::$name $({ $($field),* })? => {
                        $($($field.write(out);)*)?
                    })*
                    Refusal::Foreign(foreign) => foreign.to_string().write(out),
                    Refusal::BadFrame(text) | Refusal::Other { text, .. } => text.write(out),
                }
            }

            pub(crate) fn read(input: &mut Input) -> Result<Refusal, Malformed> {
                let code = input.u8()?;
                input.zeros(7)?;
                Ok(match code {
                    $($code => Refusal::$name $({ $($field: Field::read(input)?,)* })?,)*
                    Refusal::BAD_FRAME => Refusal::BadFrame(Field::read(input)?),
                    code => Refusal::Other { code, text: Field::read(input)? },
                })
            }
        }
    };
}

refusals! {
    /// There is no version of the protocol that both speak.
    #[error(
        "the refusing server speaks versions {this} of the protocol between servers, the other one versions {other}: \
         run releases of Baton that have a version in common"
    )]
    Protocol = 1 {
        /// The versions of the refusing server.
        this: ProtocolRange,
        /// The versions of the other one.
        other: ProtocolRange,
    },
    /// The servers belong to different clusters.
    #[error(
        "the refusing server belongs to cluster {this:016x}, the other one to cluster {other:016x}: correct the \
         list of servers, or start each server with the data folder of its cluster"
    )]
    OtherCluster = 2 {
        /// The cluster of the refusing server.
        this: u64,
        /// The cluster of the other one.
        other: u64,
    },
    /// The address belongs to another server than the one that was meant.
    #[error(
        "the address that is listed for server {expected} belongs to server {found}: correct the list of servers"
    )]
    WrongServer = 3 {
        /// The server that was meant.
        expected: u64,
        /// The server that was reached.
        found: u64,
    },
    /// Both servers have the same id.
    #[error("both servers have the id {id}: give each server an id of its own")]
    SameId = 4 {
        /// The id.
        id: u64,
    },
    /// An id that no server can have.
    #[error("{id} is not an id of a server: use 1 to 127")]
    BadId = 5 {
        /// The id.
        id: u64,
    },
    /// The data folder of a server is not the one with which it became a member (R17).
    #[error(
        "server {id} has a data folder of incarnation {found:08x}…, but it is a member of cluster {cluster:016x} \
         with incarnation {member:08x}…: its data was lost or exchanged. Start it with its own data folder, or \
         admit it again with `baton server replace {id}`"
    )]
    OtherIncarnation = 6 {
        /// The server.
        id: u64,
        /// The cluster.
        cluster: u64,
        /// The first 32 bits of the incarnation in the membership. Anyone who is refused does not
        /// receive the whole.
        member: u32,
        /// The first 32 bits of the incarnation of the data folder.
        found: u32,
    },
    /// The log of a server ends before what it has acknowledged (R19).
    #[error(
        "the log of server {id} ends at entry {last}, but the server has acknowledged entry {acknowledged}: its data \
         folder is an older copy. It neither votes nor leads until a leader has sent it what it lacks; its newest \
         data folder, if there is one, has that too"
    )]
    OlderCopy = 7 {
        /// The server.
        id: u64,
        /// The newest committed entry that it has acknowledged.
        acknowledged: u64,
        /// The end of its log.
        last: u64,
    },
    /// A server does not belong to the cluster.
    #[error(
        "server {id} is not a member of cluster {cluster:016x} as of log entry {membership_index}: add it with \
         `baton server add`"
    )]
    NotAMember = 8 {
        /// The server.
        id: u64,
        /// The cluster.
        cluster: u64,
        /// The log entry of the membership that says so.
        membership_index: u64,
    },
    /// The number in a welcome or a confirmation is not the one that was sent.
    #[error(
        "the handshake repeats another number than the one that was sent: it may be a recording"
    )]
    NotConfirmed = 9,
    /// The handshake took too long.
    #[error(
        "the handshake was not complete after {after_ms} ms: check the network and the load of both servers"
    )]
    Late = 10 {
        /// The limit in milliseconds.
        after_ms: u32,
    },
    /// Too many connections are in their handshake.
    #[error(
        "more than {limit} connections wait for their handshake: check who connects to this port"
    )]
    Busy = 11 {
        /// The limit.
        limit: u32,
    },
    /// Another process runs, or ran later, with the id.
    #[error(
        "another process has connected as server {id} since this one did: stop the one that runs with a copy of the \
         data folder or with a wrong id; the other one is admitted when the connections of that one have ended"
    )]
    RunsTwice = 14 {
        /// The id.
        id: u64,
    },
    /// A server has connected without TLS.
    #[error(
        "the refusing server takes connections of other servers with TLS only: switch it on at the other one (ensemble.tls, in \
         a zoo.cfg sslQuorum), or let the refusing one take both while the servers change (ensemble.port_unification, \
         portUnification)"
    )]
    TlsRequired = 15,
    /// The certificate of a server is not for the host by which the refusing server reaches it.
    #[error(
        "the certificate of server {id} is not for {names}: issue it one with the host of its address in the list of servers as \
         subjectAltName, or correct the list"
    )]
    OtherHost = 16 {
        /// The server.
        id: u64,
        /// The host, and those that the certificate is for.
        names: String,
    },
    /// The refusing server stops.
    #[error("the refusing server stops: it is tried again")]
    Stopping = 12,
}

impl Refusal {
    const BAD_FRAME: u8 = 13;

    /// The data folder of a server is of another incarnation than the member.
    pub(crate) fn other_incarnation(id: u64, cluster: u64, member: u128, found: u128) -> Refusal {
        let first_bits = |incarnation: u128| u32::try_from(incarnation >> 96).unwrap_or(u32::MAX);
        Refusal::OtherIncarnation {
            id,
            cluster,
            member: first_bits(member),
            found: first_bits(found),
        }
    }

    /// The cluster that somebody in this refusal belongs to, as a server without one sees it.
    pub fn cluster(&self) -> Option<u64> {
        match self {
            Refusal::OtherIncarnation { cluster, .. } | Refusal::NotAMember { cluster, .. } => {
                Some(*cluster)
            }
            _ => None,
        }
    }

    /// A frame of the handshake that cannot be read.
    pub fn bad_frame(error: &impl std::fmt::Display) -> Refusal {
        Refusal::BadFrame(printable(&error.to_string()))
    }

    /// The certificate of a server is not for the host by which it is reached.
    pub fn other_host(id: u64, names: &str) -> Refusal {
        let names = printable(names);
        Refusal::OtherHost { id, names }
    }
}

/// The text as a log may have it: on one line, and not long.
fn printable(text: &str) -> String {
    let mut out = String::new();
    for char in text.chars() {
        let char = if char.is_control() { ' ' } else { char };
        if out.len() + char.len_utf8() > MAX_TEXT_BYTES {
            break;
        }
        out.push(char);
    }
    out
}
