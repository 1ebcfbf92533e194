//! One line `server.N` of a zoo.cfg: where the other servers reach a server, and where clients do.
//! Reads no file and resolves no name.

use super::address::{ANY, port, with_port};

/// Text behind `server.N=`: `HOST:PORT[:ELECTION_PORT][:ROLE][;[HOST:]CLIENT_PORT]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerLine {
    /// Address for the other servers, `HOST:PORT`.
    pub(super) address: String,
    pub(super) election_port: Option<String>,
    pub(super) is_observer: bool,
    /// Address for clients, as the setting `listen` has it.
    pub(super) client: Option<String>,
}

impl ServerLine {
    /// Reads a line's value.
    ///
    /// # Errors
    /// The value, what is wrong with it, and the remedy.
    pub(super) fn read(value: &str) -> Result<Self, String> {
        let wrong = |what: &str| {
            format!("{value} {what}; write HOST:PORT:PORT, then ;CLIENT_PORT if clients use it")
        };
        let mut parts = value.split(';').map(str::trim);
        let servers = parts.next().unwrap_or_default();
        let client = match parts.next().filter(|client| !client.is_empty()) {
            Some(client) => Some(client_address(client).map_err(|what| wrong(&what))?),
            None => None,
        };
        if parts.any(|secure| !secure.is_empty()) {
            return Err(format!(
                "{value} names a port with TLS behind the second ;, which is not read here; \
                 remove that part, and name the port in secureClientPort"
            ));
        }
        if servers.contains('|') {
            return Err(format!(
                "{value} has several addresses of one server, and one is possible; leave one"
            ));
        }
        let (host, rest) = split_host(servers).ok_or_else(|| wrong("has no host and port"))?;
        let mut rest = rest.split(':').peekable();
        let own = port(rest.next().unwrap_or_default()).map_err(|_| wrong("has no port"))?;
        let is_port = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let election_port = match rest.next_if(is_port) {
            Some(text) => Some(port(text).map_err(|_| wrong("has an impossible election port"))?),
            None => None,
        };
        let role = rest.next().map(str::to_ascii_lowercase);
        let is_observer = match role.as_deref() {
            None | Some("participant") => false,
            Some("observer") => true,
            Some(_) => return Err(wrong("has a role other than participant and observer")),
        };
        if rest.next().is_some() {
            return Err(wrong("has too many parts"));
        }
        Ok(Self {
            address: format!("{host}:{own}"),
            election_port,
            is_observer,
            client,
        })
    }
}

/// The host, in brackets if it is an IPv6 address, and what follows the colon behind it.
fn split_host(text: &str) -> Option<(&str, &str)> {
    let from = if text.starts_with('[') {
        text.find(']')?
    } else {
        0
    };
    let colon = from + text.get(from..)?.find(':')?;
    let host = text.get(..colon)?;
    (!host.is_empty()).then_some((host, text.get(colon + 1..)?))
}

/// Returns the address for clients: a port alone is every address.
fn client_address(text: &str) -> Result<String, String> {
    let (host, number) = text.rsplit_once(':').unwrap_or((ANY, text));
    if host.is_empty() {
        return Err("has no host before the client port".to_owned());
    }
    let number = port(number).map_err(|_| "has no client port behind the ;".to_owned())?;
    Ok(with_port(host, &number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_zookeeper_3_9_is_read() {
        let read = |value: &str| {
            let line = ServerLine::read(value).unwrap();
            let election = line.election_port.unwrap_or_default();
            let client = line.client.unwrap_or_default();
            format!("{} {election} {client} {}", line.address, line.is_observer)
        };
        for (value, read_as) in [
            ("zk1:2888", "zk1:2888   false"),
            ("zk1:2888:3888", "zk1:2888 3888  false"),
            ("zk1:2888:3888:participant", "zk1:2888 3888  false"),
            ("zk1:2888:3888:OBSERVER", "zk1:2888 3888  true"),
            ("zk1:2888:observer", "zk1:2888   true"),
            ("zk1:2888:3888;2181", "zk1:2888 3888 *:2181 false"),
            (
                "zk1:2888:3888:participant;0.0.0.0:2181",
                "zk1:2888 3888 *:2181 false",
            ),
            ("zk1:2888:3888;[::]:2181", "zk1:2888 3888 *:2181 false"),
            (
                "10.0.0.1:2888:3888;10.0.0.1:2181",
                "10.0.0.1:2888 3888 10.0.0.1:2181 false",
            ),
            (
                "[fe80::1]:2888:3888;[::1]:2181",
                "[fe80::1]:2888 3888 [::1]:2181 false",
            ),
            ("zk1:2888:3888;zk1:2181", "zk1:2888 3888 zk1:2181 false"),
            ("zk1:2888:3888;", "zk1:2888 3888  false"),
            ("zk1:2888:3888;2181;", "zk1:2888 3888 *:2181 false"),
        ] {
            assert_eq!(read(value), read_as, "{value}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_is_refused_with_what_is_wrong() {
        for (value, complaint) in [
            ("", "has no host and port"),
            ("zk1", "has no host and port"),
            (":2888:3888", "has no host and port"),
            ("[::1", "has no host and port"),
            ("zk1:x:3888", "has no port"),
            ("zk1:70000:3888", "has no port"),
            ("zk1:2888:70000", "has an impossible election port"),
            ("zk1:2888:3888:leader", "a role other than"),
            ("zk1:2888:3888:observer:x", "too many parts"),
            ("zk1:2888:3888;x", "has no client port"),
            ("zk1:2888:3888;:2181", "has no host before"),
            ("zk1:2888:3888;2181;2281", "secureClientPort"),
            ("zk1:2888:3888|zk2:2888:3888", "leave one"),
        ] {
            let refused = ServerLine::read(value).unwrap_err();
            assert!(
                refused.starts_with(value) && refused.contains(complaint),
                "{refused}"
            );
        }
    }
}
