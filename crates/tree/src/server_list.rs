//! The servers of an ensemble as `/zookeeper/config` lists them (protocol.md §1.13). Owns what a
//! `reconfig` makes of the list; `baton-proto` owns the form of its lines. Who votes in the
//! consensus follows from this list; the consensus owns how.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use baton_proto::{ClientAddress, EnsembleMember, ErrorCode, MemberError, MemberRole};

/// Servers that a list may have: more than an ensemble can.
const MAX_SERVERS: usize = 255;

/// Servers that a change may name, from level 7 on: all of one list leave, and those of another
/// join.
const MAX_NAMED: usize = 2 * MAX_SERVERS;

/// One server of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedServer {
    /// Host and port at which the other servers reach it, `HOST:PORT`.
    pub address: String,
    /// ZooKeeper's port of elections. Baton's servers use one port; this is kept as text.
    pub election_port: u16,
    /// Whether it receives every write and does not vote.
    pub is_observer: bool,
    /// Address for clients; `None` where the list does not have it.
    pub client: Option<ClientAddress>,
}

/// The servers of an ensemble.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerList {
    /// Every server by its id.
    pub servers: BTreeMap<u64, ListedServer>,
    /// The zxid of the change that made the list.
    pub version: i64,
}

/// Change that a client asks for with `reconfig`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListChange<'a> {
    /// Servers to add, or to list otherwise: `server.N=…`, separated by commas.
    pub joining: Option<&'a str>,
    /// Ids of servers to remove, separated by commas.
    pub leaving: Option<&'a str>,
    /// The whole new list, one server a line or separated by commas; then the two others are
    /// ignored.
    pub new_members: Option<&'a str>,
    /// The version that the list must have; -1 for any.
    pub config_id: i64,
    /// Whether a server may join as `N=…`, too: from [`FormatLevel::SessionIdentities`] on.
    ///
    /// [`FormatLevel::SessionIdentities`]: crate::FormatLevel::SessionIdentities
    pub takes_bare_ids: bool,
    /// Whether it may name a bounded number of servers: from [`FormatLevel::BoundedMultis`] on.
    ///
    /// [`FormatLevel::BoundedMultis`]: crate::FormatLevel::BoundedMultis
    pub is_bounded: bool,
}

impl ListChange<'_> {
    /// The first line that names no server as it should, and what is wrong with it.
    #[must_use]
    pub fn unreadable_line(&self) -> Option<(&str, MemberError)> {
        let lines = self.new_members.or(self.joining).unwrap_or_default();
        let mut lines = parts(lines, &['\n', ',']).filter(|line| !line.starts_with("version="));
        lines.find_map(|line| Some((line, self.member(line).err()?)))
    }

    /// Reads a line. As in ZooKeeper, nothing but the number before the `=` of a server that joins
    /// counts.
    fn member(&self, line: &str) -> Result<EnsembleMember, MemberError> {
        if !self.takes_bare_ids || self.new_members.is_some() {
            return line.parse();
        }
        let (key, value) = line.split_once('=').ok_or(MemberError::NoId)?;
        let number = key.rsplit('.').next().unwrap_or_default();
        format!("server.{}={value}", number.trim()).parse()
    }

    /// Returns whether it names more servers than a change may.
    fn names_too_many(&self) -> bool {
        let texts = match self.new_members {
            Some(whole) => [Some(whole), None],
            None => [self.joining, self.leaving],
        };
        let texts = texts.into_iter().flatten();
        let lines = texts.flat_map(|text| parts(text, &['\n', ',']));
        self.is_bounded && lines.take(MAX_NAMED + 1).count() > MAX_NAMED
    }

    /// Returns whether one server is to join twice, so that the later line would silently replace
    /// the earlier one.
    #[must_use]
    pub fn names_one_twice(&self) -> bool {
        let lines = self.new_members.or(self.joining).unwrap_or_default();
        let lines = parts(lines, &['\n', ',']);
        let members = lines.filter_map(|line| self.member(line).ok());
        let mut ids = members.map(|member| member.id);
        let mut seen = BTreeSet::new();
        ids.any(|id| !seen.insert(id))
    }
}

impl ListedServer {
    /// The server that a line describes. `None`: it has several addresses, or a port with TLS.
    fn of(member: EnsembleMember) -> Option<Self> {
        let [address] = &*member.addresses else {
            return None;
        };
        let has_tls = member.secure_client.is_some();
        (!has_tls).then(|| Self {
            address: address.quorum(),
            election_port: address.election_port,
            is_observer: member.role == MemberRole::Observer,
            client: member.client,
        })
    }

    /// The addresses that no other server may have: those of servers, and that of clients where it
    /// means one machine.
    fn addresses(&self) -> impl Iterator<Item = String> {
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        let election = format!("{host}:{}", self.election_port);
        let client = self.client.as_ref().filter(|at| !at.is_every_address());
        let client = client.map(ClientAddress::to_string);
        let all = [Some(self.address.clone()), Some(election), client];
        all.into_iter()
            .flatten()
            .map(|address| address.to_ascii_lowercase())
    }
}

impl fmt::Display for ListedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.is_observer {
            MemberRole::Observer
        } else {
            MemberRole::Participant
        };
        write!(f, "{}:{}:{role}", self.address, self.election_port)?;
        match &self.client {
            Some(client) => write!(f, ";{client}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ServerList {
    /// One line a server by id, then the version.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (id, server) in &self.servers {
            writeln!(f, "server.{id}={server}")?;
        }
        write!(f, "version={:x}", self.version)
    }
}

impl ServerList {
    /// Reads what [`Display`](fmt::Display) wrote. `None`: the text is not a list of servers.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (servers, version) = text.rsplit_once("\nversion=")?;
        let mut list = Self {
            version: i64::from_str_radix(version, 16).ok()?,
            ..Self::default()
        };
        let mut taken = Addresses::default();
        for line in servers.split('\n') {
            list.put(line.parse(), &mut taken).ok()?;
        }
        Some(list)
    }

    /// The list after this change, with the version of before.
    ///
    /// # Errors
    /// [`ErrorCode::BadVersion`]: the list has another version; [`ErrorCode::BadArguments`]: the
    /// change is not written as ZooKeeper's clients write it, or two servers would have one
    /// address.
    pub fn after(&self, change: &ListChange<'_>) -> Result<Self, ErrorCode> {
        if change.config_id != -1 && change.config_id != self.version {
            return Err(ErrorCode::BadVersion);
        }
        if change.names_too_many() {
            return Err(ErrorCode::BadArguments);
        }
        let mut next = self.clone();
        let mut taken = Addresses::default();
        if let Some(whole) = change.new_members {
            next.servers.clear();
            for line in parts(whole, &['\n', ',']) {
                // The text of a list is accepted as it is shown.
                if !line.starts_with("version=") {
                    next.put(change.member(line), &mut taken)?;
                }
            }
        } else {
            for id in parts(change.leaving.unwrap_or_default(), &[',']) {
                next.servers.remove(&read_id(id)?);
            }
            for (id, server) in &next.servers {
                taken.extend(server.addresses().map(|address| (address, *id)));
            }
            for line in parts(change.joining.unwrap_or_default(), &[',']) {
                let id = next.put(change.member(line), &mut taken)?;
                let named = next.servers.get(&id);
                if named.is_none_or(|server| server.client.is_none()) {
                    return Err(ErrorCode::BadArguments);
                }
            }
        }
        if next.servers.values().all(|server| server.is_observer) {
            return Err(ErrorCode::BadArguments);
        }
        Ok(next)
    }

    /// Takes a member into the list, in the place of what it has under that id.
    fn put(
        &mut self,
        member: Result<EnsembleMember, MemberError>,
        taken: &mut Addresses,
    ) -> Result<u64, ErrorCode> {
        let member = member.map_err(|_| ErrorCode::BadArguments)?;
        let id = member.id;
        let server = ListedServer::of(member).ok_or(ErrorCode::BadArguments)?;
        let own: Vec<String> = server.addresses().collect();
        let is_others = |address| taken.get(address).is_some_and(|other| *other != id);
        if own.iter().any(is_others) {
            return Err(ErrorCode::BadArguments);
        }
        if let Some(before) = self.servers.insert(id, server) {
            for address in before.addresses() {
                taken.remove(&address);
            }
        }
        taken.extend(own.into_iter().map(|address| (address, id)));
        if self.servers.len() > MAX_SERVERS {
            return Err(ErrorCode::BadArguments);
        }
        Ok(id)
    }
}

/// The addresses of the servers of a list, each with the server that has it.
type Addresses = BTreeMap<String, u64>;

/// The parts of a text between separators, without space around them; those that are empty are
/// left out.
fn parts<'a>(text: &'a str, separators: &'a [char]) -> impl Iterator<Item = &'a str> {
    let parts = text.split(separators).map(str::trim);
    parts.filter(|part| !part.is_empty())
}

fn read_id(text: &str) -> Result<u64, ErrorCode> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let id = text
        .parse()
        .ok()
        .filter(|id| is_number && i64::try_from(*id).is_ok());
    id.ok_or(ErrorCode::BadArguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
        server.2=[::1]:2888:3888:participant;127.0.0.1:2182\n\
        server.3=c:2888:3888:observer\nversion=1f";

    fn three() -> ServerList {
        ServerList::read(THREE).unwrap()
    }

    fn joining(text: &str) -> ListChange<'_> {
        ListChange {
            joining: Some(text),
            config_id: -1,
            ..ListChange::default()
        }
    }

    #[test]
    fn a_list_is_read_as_it_is_written() {
        let list = three();
        assert_eq!(list.to_string(), THREE);
        assert_eq!(list.version, 0x1f);
        assert!(list.servers[&3].is_observer);
        for bad in [
            "",
            "version=1",
            "server.1=a:1:2:participant",
            "server.1=a:1:2:participant\nversion=g",
            "server.1=a:1:2:participant\n\nversion=1",
        ] {
            assert_eq!(ServerList::read(bad), None, "{bad}");
        }
    }

    #[test]
    fn servers_join_and_leave_as_zookeepers_clients_write_it() {
        let change = ListChange {
            leaving: Some("2, 9"),
            ..joining("server.4=d:2888:3888;2184,server.100=0.0.0.0:1:2:observer;0.0.0.0:3")
        };
        let next = three().after(&change).unwrap();
        assert_eq!(
            next.to_string(),
            "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
             server.3=c:2888:3888:observer\n\
             server.4=d:2888:3888:participant;0.0.0.0:2184\n\
             server.100=0.0.0.0:1:2:observer;0.0.0.0:3\nversion=1f"
        );
        // The same server, listed otherwise.
        let next = three().after(&joining("server.3=c:2888:3888:participant;1"));
        assert!(!next.unwrap().servers[&3].is_observer);
        let nothing = ListChange {
            config_id: 0x1f,
            ..ListChange::default()
        };
        assert_eq!(three().after(&nothing), Ok(three()));
    }

    #[test]
    fn the_whole_list_is_taken_as_it_is_shown() {
        let whole = ListChange {
            new_members: Some(THREE),
            joining: Some("ignored"),
            config_id: -1,
            ..ListChange::default()
        };
        let next = ServerList::default().after(&whole).unwrap();
        assert_eq!(next.servers, three().servers);
        assert_eq!(next.version, 0, "that of before");
    }

    #[test]
    fn a_change_names_a_bounded_number_of_servers_where_the_level_has_the_bound() {
        let lines = |count: usize| vec!["server.4=d:2888:3888;2184"; count].join(",");
        for (count, is_bounded, is_taken) in [
            (MAX_NAMED, true, true),
            (MAX_NAMED + 1, true, false),
            (MAX_NAMED + 1, false, true),
        ] {
            let text = lines(count);
            let change = ListChange {
                is_bounded,
                ..joining(&text)
            };
            let next = three().after(&change);
            assert_eq!(next.is_ok(), is_taken, "{count}");
            let (text, leaving) = (lines(count - 1), "9");
            let change = ListChange {
                leaving: Some(leaving),
                joining: Some(&text),
                ..change
            };
            assert_eq!(three().after(&change).is_ok(), is_taken, "{count}");
        }
    }

    #[test]
    fn an_address_that_a_server_has_given_up_is_free_and_one_that_it_has_is_not() {
        let after = |text: &str| three().after(&joining(text)).map(|_| ());
        let moved = "server.1=x:2888:3888;2181";
        assert_eq!(after(&format!("{moved},server.4=a:2888:3888;1")), Ok(()));
        for taken in ["A:2888:1;1", "a:1:3888;1", "y:1:2;127.0.0.1:2182"] {
            let refused = after(&format!("server.4={taken}"));
            assert_eq!(refused, Err(ErrorCode::BadArguments), "{taken}");
        }
        let back = format!("{moved},server.4=x:2888:3888;1");
        assert_eq!(after(&back), Err(ErrorCode::BadArguments));
    }

    #[test]
    fn a_server_that_is_named_twice_is_noticed() {
        let line = |id: u64, host: &str| format!("server.{id}={host}:2888:3888;1");
        for (lines, is_twice) in [
            (vec![line(4, "d"), line(5, "e")], false),
            (vec![line(4, "d"), line(4, "d")], true),
            (vec![line(4, "d"), line(5, "e"), line(4, "f")], true),
            (vec![line(4, "d"), "some thing".to_owned()], false),
        ] {
            assert_eq!(joining(&lines.join(",")).names_one_twice(), is_twice);
            let whole = lines.join("\n");
            let whole = ListChange {
                new_members: Some(&whole),
                ..ListChange::default()
            };
            assert_eq!(whole.names_one_twice(), is_twice, "{lines:?}");
        }
    }

    #[test]
    fn the_version_is_looked_at_before_the_text() {
        let change = ListChange {
            config_id: 0x20,
            ..joining("some thing")
        };
        assert_eq!(three().after(&change), Err(ErrorCode::BadVersion));
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for bad in [
            "some thing",
            "server.4",
            "server.4=d:1:2",
            "server.4=d:1:2:leader;3",
            "server.4=d:1:2:participant:x;3",
            "server.4=d:1;3",
            "server.4=:1:2;3",
            "server.4=d:0:2;3",
            "server.4=d:1:65536;3",
            "server.4=d:+1:2;3",
            "server.4=d:1:2;",
            "server.4=d:1:2;3;4",
            "server.4=d:1:2;x:y",
            "server.4=d:1:2|e:1:2;3",
            "server.4=[d:1:2;3",
            "server.=d:1:2;3",
            "server.-4=d:1:2;3",
            "server.99999999999999999999=d:1:2;3",
            "4=d:1:2;3",
            "server.4=A:2888:1;3",
            "server.4=d:1:2;127.0.0.1:2182",
        ] {
            let refused = three().after(&joining(bad));
            assert_eq!(refused, Err(ErrorCode::BadArguments), "{bad}");
        }
        let change = ListChange {
            leaving: Some("server.2"),
            config_id: -1,
            ..ListChange::default()
        };
        assert_eq!(three().after(&change), Err(ErrorCode::BadArguments));
    }

    #[test]
    fn a_server_may_join_by_its_number_alone_as_in_zookeeper_and_a_bad_line_is_named() {
        let change = ListChange {
            takes_bare_ids: true,
            ..joining("4=d:1:2;3,server.5=e:1:2;3")
        };
        let after = three().after(&change).unwrap();
        assert_eq!(after.servers.keys().copied().max(), Some(5));
        assert_eq!(change.unreadable_line(), None);
        let older = joining("server.5=e:1:2;3,4=d:1:2;3");
        assert_eq!(three().after(&older), Err(ErrorCode::BadArguments));
        let named = older.unreadable_line();
        assert_eq!(named, Some(("4=d:1:2;3", MemberError::NoId)));
        let twice = ListChange {
            takes_bare_ids: true,
            ..joining("4=d:1:2;3,server.4=e:1:2;3")
        };
        assert!(twice.names_one_twice());
        let bad = ListChange {
            takes_bare_ids: true,
            ..joining("4=d:1:2;3,5=e:1;3")
        };
        let named = bad.unreadable_line();
        assert_eq!(named, Some(("5=e:1;3", MemberError::BadPort)));
        // A whole list is one of a file, where each line has its word.
        let whole = ListChange {
            new_members: Some("4=d:1:2;3"),
            takes_bare_ids: true,
            config_id: -1,
            ..ListChange::default()
        };
        assert_eq!(three().after(&whole), Err(ErrorCode::BadArguments));
    }

    #[test]
    fn a_list_without_a_voter_is_refused() {
        let change = ListChange {
            leaving: Some("1,2"),
            config_id: -1,
            ..ListChange::default()
        };
        assert_eq!(three().after(&change), Err(ErrorCode::BadArguments));
    }
}
