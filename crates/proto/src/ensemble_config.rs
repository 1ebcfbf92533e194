//! The text of `/zookeeper/config`: the servers of an ensemble, where they are reached, and which
//! of them vote (`protocol.md` §1.13). The requests of op 16 name servers by the same lines.
//!
//! Owns the form of these lines, both ways. Never decides whether a membership is possible.

use core::net::Ipv6Addr;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::str::FromStr;

/// The znode that holds the members of the ensemble.
pub const CONFIG_PATH: &str = "/zookeeper/config";

/// The most servers that a text may name. ZooKeeper's ids are one byte of the session ids.
const MAX_MEMBERS: usize = 255;
/// The most addresses of one server.
const MAX_ADDRESSES: usize = 16;
/// The longest name of a host, as the domain name system has it.
const MAX_HOST_BYTES: usize = 255;
/// Host for a client part that names none: every address of the server's machine.
const EVERY_ADDRESS: &str = "0.0.0.0";

/// The part that a server takes in its ensemble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberRole {
    /// It votes.
    Participant,
    /// It has all data and does not vote.
    Observer,
}

impl MemberRole {
    /// The role as a line has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Participant => "participant",
            Self::Observer => "observer",
        }
    }
}

impl fmt::Display for MemberRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Address of a server for the other servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerAddress {
    /// The host, without the brackets of an IPv6 address.
    pub host: String,
    /// The port for data: ZooKeeper's quorum port.
    pub quorum_port: u16,
    /// The port for elections.
    pub election_port: u16,
}

impl PeerAddress {
    /// `HOST:QUORUM_PORT`, with brackets around an IPv6 address.
    #[must_use]
    pub fn quorum(&self) -> String {
        let mut text = String::new();
        // Writing into a text does not fail.
        let _ = write_host(&mut text, &self.host);
        let _ = write!(text, ":{}", self.quorum_port);
        text
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_host(f, &self.host)?;
        write!(f, ":{}:{}", self.quorum_port, self.election_port)
    }
}

/// Address of a server for clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientAddress {
    /// The host, without the brackets of an IPv6 address; `0.0.0.0` is every address of the
    /// server's machine.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl ClientAddress {
    /// Returns whether it is every address of the server's machine, so that clients take the host
    /// from elsewhere.
    #[must_use]
    pub fn is_every_address(&self) -> bool {
        matches!(&*self.host, EVERY_ADDRESS | "::" | "*")
    }
}

impl FromStr for ClientAddress {
    type Err = MemberError;

    /// Reads `PORT` or `HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, MemberError> {
        let (host, rest) = match text.contains(':') {
            true => split_host(text).ok_or(MemberError::BadClient)?,
            false => (EVERY_ADDRESS, text),
        };
        Ok(Self {
            host: host.to_owned(),
            port: port(rest).ok_or(MemberError::BadClient)?,
        })
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_host(f, &self.host)?;
        write!(f, ":{}", self.port)
    }
}

/// One server of an ensemble, as a line `server.ID=…` describes it.
///
/// ```
/// use baton_proto::{EnsembleMember, MemberRole};
///
/// let member: EnsembleMember = "server.4=zk4:2888:3888:observer;2181".parse()?;
/// assert_eq!((member.id, member.role), (4, MemberRole::Observer));
/// assert_eq!(member.to_string(), "server.4=zk4:2888:3888:observer;0.0.0.0:2181");
/// # Ok::<(), baton_proto::MemberError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EnsembleMember {
    /// The server's id.
    pub id: u64,
    /// Addresses for the other servers: at least one, and only one of most servers.
    pub addresses: Vec<PeerAddress>,
    /// Whether it votes.
    pub role: MemberRole,
    /// Address for clients, if the line has one.
    pub client: Option<ClientAddress>,
    /// Address for clients with TLS, if the line has one.
    pub secure_client: Option<ClientAddress>,
}

impl EnsembleMember {
    /// Reads what follows `server.ID=`:
    /// `HOST:QUORUM_PORT:ELECTION_PORT[:ROLE][;[HOST:]CLIENT_PORT]`. A server of several addresses
    /// has `|` between them.
    ///
    /// # Errors
    /// [`MemberError`] says which part is wrong.
    pub fn with_id(id: u64, value: &str) -> Result<Self, MemberError> {
        let mut parts = value.split(';').map(str::trim);
        let servers = parts.next().unwrap_or_default();
        let mut client = || -> Result<Option<ClientAddress>, MemberError> {
            let text = parts.next().filter(|text| !text.is_empty());
            text.map(str::parse).transpose()
        };
        let (client, secure_client) = (client()?, client()?);
        if parts.next().is_some() {
            return Err(MemberError::TooManyParts);
        }
        let mut addresses = Vec::new();
        let mut role = MemberRole::Participant;
        for text in servers.split('|').map(str::trim) {
            if addresses.len() >= MAX_ADDRESSES {
                return Err(MemberError::TooManyParts);
            }
            let (address, named) = peer_address(text)?;
            addresses.push(address);
            role = named.unwrap_or(role);
        }
        Ok(Self {
            id,
            addresses,
            role,
            client,
            secure_client,
        })
    }

    /// Returns whether this line asks for what the other one says: client addresses that this one
    /// leaves out may be any there.
    #[must_use]
    pub fn is_met_by(&self, other: &Self) -> bool {
        let same = |wanted: &Option<ClientAddress>, found: &Option<ClientAddress>| {
            wanted.is_none() || wanted == found
        };
        self.id == other.id
            && self.addresses == other.addresses
            && self.role == other.role
            && same(&self.client, &other.client)
            && same(&self.secure_client, &other.secure_client)
    }
}

impl FromStr for EnsembleMember {
    type Err = MemberError;

    /// Reads a line `server.ID=…`.
    fn from_str(line: &str) -> Result<Self, MemberError> {
        let (key, value) = line.split_once('=').ok_or(MemberError::NoId)?;
        let id = key
            .trim()
            .strip_prefix("server.")
            .ok_or(MemberError::NoId)?;
        Self::with_id(member_id(id).ok_or(MemberError::NoId)?, value.trim())
    }
}

impl fmt::Display for EnsembleMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server.{}=", self.id)?;
        for (number, address) in self.addresses.iter().enumerate() {
            if number > 0 {
                f.write_str("|")?;
            }
            address.fmt(f)?;
        }
        write!(f, ":{}", self.role)?;
        match (&self.client, &self.secure_client) {
            (None, None) => Ok(()),
            (Some(client), None) => write!(f, ";{client}"),
            (None, Some(secure)) => write!(f, ";;{secure}"),
            (Some(client), Some(secure)) => write!(f, ";{client};{secure}"),
        }
    }
}

/// The members of an ensemble at one version: what `/zookeeper/config` holds.
///
/// ```
/// use baton_proto::EnsembleConfig;
///
/// let config = EnsembleConfig::parse(
///     b"server.1=zk1:2888:3888:participant;0.0.0.0:2181\n\
///       server.2=zk2:2888:3888:participant;0.0.0.0:2181\n\
///       version=100000000",
/// )?;
/// assert_eq!(config.voters().map(|member| member.id).collect::<Vec<_>>(), [1, 2]);
/// assert_eq!(config.version, 0x1_0000_0000);
/// # Ok::<(), baton_proto::EnsembleConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnsembleConfig {
    /// The servers, in the order of the text.
    pub members: Vec<EnsembleMember>,
    /// The position of the change that made it so, in the order of all changes; 0 for the list that
    /// the servers were started with.
    pub version: i64,
}

impl EnsembleConfig {
    /// Reads the text. One that is empty names no server: a server that stands alone has it.
    ///
    /// # Errors
    /// [`EnsembleConfigError`] names the line and what is wrong in it.
    pub fn parse(data: &[u8]) -> Result<Self, EnsembleConfigError> {
        let text = std::str::from_utf8(data).map_err(|_| EnsembleConfigError::NotText)?;
        let mut config = Self::default();
        let mut known = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let bad = || EnsembleConfigError::BadLine { line: number };
            let (key, value) = line.split_once('=').ok_or_else(bad)?;
            if key == "version" {
                let version = u64::from_str_radix(value, 16).map_err(|_| bad())?;
                config.version = version.cast_signed();
            } else if key.starts_with("group.") || key.starts_with("weight.") {
                // How votes are counted: no server and no address.
            } else {
                let member: EnsembleMember =
                    line.parse()
                        .map_err(|error| EnsembleConfigError::BadMember {
                            line: number,
                            error,
                        })?;
                if known.len() >= MAX_MEMBERS || !known.insert(member.id) {
                    return Err(bad());
                }
                config.members.push(member);
            }
        }
        Ok(config)
    }

    /// The server of this id.
    #[must_use]
    pub fn member(&self, id: u64) -> Option<&EnsembleMember> {
        self.members.iter().find(|member| member.id == id)
    }

    /// The servers that vote.
    pub fn voters(&self) -> impl Iterator<Item = &EnsembleMember> {
        let all = self.members.iter();
        all.filter(|member| member.role == MemberRole::Participant)
    }
}

impl fmt::Display for EnsembleConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for member in &self.members {
            writeln!(f, "{member}")?;
        }
        write!(f, "version={:x}", self.version)
    }
}

/// Error in the line of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemberError {
    /// It does not begin with `server.` and a number.
    #[error("it does not begin with server.ID=, with a number for ID")]
    NoId,
    /// It has no host, or one with letters that no host has.
    #[error("it has no host that a server can be reached at")]
    BadHost,
    /// A port is missing or is not a number from 1 to 65535.
    #[error("it lacks the two ports HOST:QUORUM_PORT:ELECTION_PORT, each from 1 to 65535")]
    BadPort,
    /// The role is neither of the two.
    #[error("its role is neither participant nor observer")]
    BadRole,
    /// The part behind the `;` is neither a port nor `HOST:PORT`.
    #[error("the address for clients behind the ; is neither PORT nor HOST:PORT")]
    BadClient,
    /// It goes on behind its last part.
    #[error("it has more parts than a server has")]
    TooManyParts,
}

/// Error in the text of `/zookeeper/config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnsembleConfigError {
    /// It is not UTF-8.
    #[error("the members of the ensemble are not text")]
    NotText,
    /// A line is neither a member nor a version, or names a server a second time.
    #[error("line {line} of the members of the ensemble is neither a new server nor the version")]
    BadLine {
        /// The line's number, from 1.
        line: usize,
    },
    /// The line of a server is wrong.
    #[error("line {line} of the members of the ensemble: {error}")]
    BadMember {
        /// The line's number, from 1.
        line: usize,
        /// The error.
        error: MemberError,
    },
}

/// An id: digits only.
fn member_id(text: &str) -> Option<u64> {
    let id: i64 = text.parse().ok()?;
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    u64::try_from(id).ok().filter(|_| plain)
}

fn port(text: &str) -> Option<u16> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| plain && *port > 0)
}

/// `HOST:PORT:PORT[:ROLE]`.
fn peer_address(text: &str) -> Result<(PeerAddress, Option<MemberRole>), MemberError> {
    let (host, rest) = split_host(text).ok_or(MemberError::BadHost)?;
    let mut rest = rest.split(':');
    let mut next_port = || rest.next().and_then(port).ok_or(MemberError::BadPort);
    let (quorum_port, election_port) = (next_port()?, next_port()?);
    let role = match rest.next() {
        None => None,
        Some(name) if name.eq_ignore_ascii_case("participant") => Some(MemberRole::Participant),
        Some(name) if name.eq_ignore_ascii_case("observer") => Some(MemberRole::Observer),
        Some(_) => return Err(MemberError::BadRole),
    };
    if rest.next().is_some() {
        return Err(MemberError::TooManyParts);
    }
    let address = PeerAddress {
        host: host.to_owned(),
        quorum_port,
        election_port,
    };
    Ok((address, role))
}

/// The host, without the brackets of an IPv6 address, and what follows the colon behind it.
fn split_host(text: &str) -> Option<(&str, &str)> {
    let odd = |letter: char| {
        letter.is_whitespace() || letter.is_control() || "/[],;=|\"\\".contains(letter)
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let rest = rest.strip_prefix(':')?;
        return host.parse::<Ipv6Addr>().is_ok().then_some((host, rest));
    }
    let (host, rest) = text.split_once(':')?;
    let known = !host.is_empty() && host.len() <= MAX_HOST_BYTES && !host.contains(odd);
    known.then_some((host, rest))
}

fn write_host(f: &mut impl fmt::Write, host: &str) -> fmt::Result {
    if host.contains(':') {
        write!(f, "[{host}]")
    } else {
        f.write_str(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_zookeeper_s_is_read_and_written_in_one() {
        for (read, written) in [
            ("zk1:2888:3888", "zk1:2888:3888:participant"),
            ("zk1:2888:3888:Observer", "zk1:2888:3888:observer"),
            (
                "10.0.0.1:2888:3888:participant;2181",
                "10.0.0.1:2888:3888:participant;0.0.0.0:2181",
            ),
            (
                "[::1]:2888:3888:observer;[fe80::1]:2181",
                "[::1]:2888:3888:observer;[fe80::1]:2181",
            ),
            ("zk1:2888:3888;", "zk1:2888:3888:participant"),
            (
                "zk1:2888:3888;zk1:2181;",
                "zk1:2888:3888:participant;zk1:2181",
            ),
            (
                "zk1:2888:3888;2181;2281",
                "zk1:2888:3888:participant;0.0.0.0:2181;0.0.0.0:2281",
            ),
            (
                "zk1:2888:3888;;2281",
                "zk1:2888:3888:participant;;0.0.0.0:2281",
            ),
            (
                "a:2888:3888:observer|b:2889:3889;2181",
                "a:2888:3888|b:2889:3889:observer;0.0.0.0:2181",
            ),
        ] {
            let member: EnsembleMember = format!("server.7={read}").parse().unwrap();
            assert!(written.starts_with(&member.addresses[0].quorum()), "{read}");
            assert_eq!(member.to_string(), format!("server.7={written}"), "{read}");
            assert_eq!(member.to_string().parse(), Ok(member), "{read}");
        }
    }

    #[test]
    fn a_line_that_names_no_server_is_refused_with_the_part_that_is_wrong() {
        for (line, error) in [
            ("", MemberError::NoId),
            ("zk1:2888:3888", MemberError::NoId),
            ("4=zk1:2888:3888", MemberError::NoId),
            ("server.=zk1:2888:3888", MemberError::NoId),
            ("server.x=zk1:2888:3888", MemberError::NoId),
            ("server.-1=zk1:2888:3888", MemberError::NoId),
            ("server.+1=zk1:2888:3888", MemberError::NoId),
            (
                "server.18446744073709551615=zk1:2888:3888",
                MemberError::NoId,
            ),
            ("server.4=", MemberError::BadHost),
            ("server.4=zk1", MemberError::BadHost),
            ("server.4=:2888:3888", MemberError::BadHost),
            ("server.4=a b:2888:3888", MemberError::BadHost),
            ("server.4=[zk1]:2888:3888", MemberError::BadHost),
            ("server.4=[::1]2888:3888", MemberError::BadHost),
            ("server.4=::1:2888:3888", MemberError::BadHost),
            ("server.4=a,b:2888:3888", MemberError::BadHost),
            ("server.4=zk1:2888", MemberError::BadPort),
            ("server.4=zk1:2888:", MemberError::BadPort),
            ("server.4=zk1:2888:observer", MemberError::BadPort),
            ("server.4=zk1:0:3888", MemberError::BadPort),
            ("server.4=zk1:70000:3888", MemberError::BadPort),
            ("server.4=zk1:+288:3888", MemberError::BadPort),
            ("server.4=zk1:2888:3888:leader", MemberError::BadRole),
            ("server.4=zk1:2888:3888:", MemberError::BadRole),
            (
                "server.4=zk1:2888:3888:observer:1",
                MemberError::TooManyParts,
            ),
            ("server.4=zk1:2888:3888;a", MemberError::BadClient),
            ("server.4=zk1:2888:3888;:2181", MemberError::BadClient),
            ("server.4=zk1:2888:3888;zk1:0", MemberError::BadClient),
            ("server.4=zk1:2888:3888;1;2;3", MemberError::TooManyParts),
        ] {
            assert_eq!(line.parse::<EnsembleMember>(), Err(error), "{line}");
        }
        let addresses = vec!["a:1:2"; MAX_ADDRESSES + 1].join("|");
        assert_eq!(
            EnsembleMember::with_id(1, &addresses),
            Err(MemberError::TooManyParts)
        );
        let long = format!("{}:1:2", "a".repeat(MAX_HOST_BYTES + 1));
        assert_eq!(EnsembleMember::with_id(1, &long), Err(MemberError::BadHost));
    }

    #[test]
    fn the_text_of_zookeeper_is_read_with_its_version() {
        let text = "server.1=localhost:2780:2783:participant;127.0.0.1:2181\n\
                    server.2=localhost:2781:2784:participant;localhost:2182\n\
                    server.3=localhost:2782:2785:observer\n\
                    version=20000000c";
        let config = EnsembleConfig::parse(text.as_bytes()).unwrap();
        assert_eq!(config.version, 0x2_0000_000c);
        assert_eq!(config.voters().map(|of| of.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(config.member(3).unwrap().client, None);
        assert_eq!(config.member(4), None);
        assert_eq!(config.to_string(), text);
        let grouped = format!("group.1=1:2:3\nweight.1=1\n{text}\n");
        assert_eq!(EnsembleConfig::parse(grouped.as_bytes()), Ok(config));
        let none = EnsembleConfig::default();
        assert_eq!(EnsembleConfig::parse(b""), Ok(none.clone()));
        assert_eq!(EnsembleConfig::parse(b"version=0"), Ok(none));
        let negative = EnsembleConfig::parse(b"version=ffffffffffffffff").unwrap();
        assert_eq!(negative.version, -1);
        assert_eq!(negative.to_string(), "version=ffffffffffffffff");
    }

    #[test]
    fn a_text_that_is_no_membership_is_refused_with_its_line() {
        let bad = |line| Err(EnsembleConfigError::BadLine { line });
        for (text, refused) in [
            (&b"\xff\xfe"[..], Err(EnsembleConfigError::NotText)),
            (b"hello", bad(1)),
            (b"\nversion=x", bad(2)),
            (b"version=", bad(1)),
            (b"version=0x10", bad(1)),
            (b"version=10000000000000000", bad(1)),
            (b"server.1=a:1:2\nserver.1=b:1:2", bad(2)),
            (
                b"version=1\nclientPort=2181",
                Err(EnsembleConfigError::BadMember {
                    line: 2,
                    error: MemberError::NoId,
                }),
            ),
            (
                b"server.1=a:1:2:leader",
                Err(EnsembleConfigError::BadMember {
                    line: 1,
                    error: MemberError::BadRole,
                }),
            ),
        ] {
            let shown = String::from_utf8_lossy(text);
            assert_eq!(EnsembleConfig::parse(text), refused, "{shown}");
        }
        let all = |count: usize| {
            let lines = (1..=count).map(|id| format!("server.{id}=a:1:2\n"));
            EnsembleConfig::parse(lines.collect::<String>().as_bytes())
        };
        assert_eq!(all(MAX_MEMBERS).unwrap().members.len(), MAX_MEMBERS);
        assert_eq!(all(MAX_MEMBERS + 1), bad(MAX_MEMBERS + 1));
    }

    #[test]
    fn a_line_without_a_client_address_is_met_by_any() {
        let member = |text: &str| EnsembleMember::with_id(1, text).unwrap();
        let wanted = member("a:1:2");
        assert!(wanted.is_met_by(&member("a:1:2:participant;2181")));
        assert!(!wanted.is_met_by(&member("a:1:2:observer")));
        assert!(!wanted.is_met_by(&member("b:1:2")));
        let wanted = member("a:1:2;2181");
        assert!(wanted.is_met_by(&member("a:1:2;0.0.0.0:2181")));
        assert!(!wanted.is_met_by(&member("a:1:2")));
        assert!(!wanted.is_met_by(&member("a:1:2;a:2181")));
        assert!(!wanted.is_met_by(&EnsembleMember::with_id(2, "a:1:2;2181").unwrap()));
    }
}
