//! The first bytes of a connection, in both directions, and which foreign protocol other bytes
//! resemble: the port of servers is easily confused with another one.

/// The bytes with which each side begins.
pub const PREFACE: [u8; 8] = *b"BATONSRV";

/// Kind of the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preface {
    /// The beginning of [`PREFACE`]; more must arrive.
    Incomplete,
    /// [`PREFACE`], whatever follows.
    Baton,
    /// Something else.
    Foreign(ForeignProtocol),
}

/// A protocol that is not the one between servers of Baton.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForeignProtocol {
    /// The election port of Apache ZooKeeper.
    ZooKeeperElection,
    /// The quorum port of Apache ZooKeeper.
    ZooKeeperQuorum,
    /// A client of ZooKeeper's protocol.
    ZooKeeperClient,
    /// A four-letter word of ZooKeeper.
    FourLetterWord,
    /// TLS.
    Tls,
    /// HTTP.
    Http,
    /// SSH.
    Ssh,
    /// None of these.
    Unknown,
}

impl std::fmt::Display for ForeignProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ForeignProtocol::ZooKeeperElection => {
                "they look like an election of Apache ZooKeeper: servers of ZooKeeper and of Baton cannot form one ensemble"
            }
            ForeignProtocol::ZooKeeperQuorum => {
                "they look like a follower of Apache ZooKeeper: servers of ZooKeeper and of Baton cannot form one ensemble"
            }
            ForeignProtocol::ZooKeeperClient => {
                "they look like a client of ZooKeeper's protocol: let it connect to the client port"
            }
            ForeignProtocol::FourLetterWord => {
                "they look like a four-letter word: send it to the client port"
            }
            ForeignProtocol::Tls => {
                "they look like TLS, which this server does not use: let both servers use it (ensemble.tls), or this one take both while the servers change (ensemble.port_unification)"
            }
            ForeignProtocol::Http => "they look like HTTP: send it to the admin port",
            ForeignProtocol::Ssh => "they look like SSH: check the address",
            ForeignProtocol::Unknown => "they resemble no protocol that is known here: check the address",
        })
    }
}

/// Says what the first bytes of a connection are; `bytes` is everything that has arrived.
pub fn check_preface(bytes: &[u8]) -> Preface {
    if bytes.starts_with(&PREFACE) {
        Preface::Baton
    } else if PREFACE.starts_with(bytes) {
        Preface::Incomplete
    } else {
        Preface::Foreign(resembled(bytes))
    }
}

fn resembled(bytes: &[u8]) -> ForeignProtocol {
    const METHODS: [&[u8]; 7] = [
        b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PRI ",
    ];
    const WORDS: [&[u8]; 9] = [
        b"ruok", b"srvr", b"stat", b"mntr", b"conf", b"cons", b"envi", b"isro", b"dump",
    ];
    let starts = |known: &[&[u8]]| known.iter().any(|start| bytes.starts_with(start));
    if bytes.starts_with(&[0x16, 0x03]) {
        return ForeignProtocol::Tls;
    }
    if bytes.starts_with(b"SSH-") {
        return ForeignProtocol::Ssh;
    }
    if starts(&METHODS) {
        return ForeignProtocol::Http;
    }
    if starts(&WORDS) {
        return ForeignProtocol::FourLetterWord;
    }
    let Some((first, rest)) = bytes.split_first_chunk::<4>() else {
        return ForeignProtocol::Unknown;
    };
    let second = rest
        .first_chunk::<4>()
        .map(|bytes| i32::from_be_bytes(*bytes));
    match (i32::from_be_bytes(*first), second) {
        // The version of the election protocol, a negative 64-bit number.
        (-1, Some(-65_536 | -65_535)) => ForeignProtocol::ZooKeeperElection,
        // Before there were versions: the server's id as a 64-bit number.
        (0, Some(1..=255)) => ForeignProtocol::ZooKeeperElection,
        // Types of the packet that introduces a follower and an observer.
        (11 | 16, _) => ForeignProtocol::ZooKeeperQuorum,
        // The length of a connect request, then version 0 of the protocol.
        (28..=256, Some(0)) => ForeignProtocol::ZooKeeperClient,
        _ => ForeignProtocol::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preface_is_recognised_in_any_pieces() {
        for length in 0..PREFACE.len() {
            assert_eq!(check_preface(&PREFACE[..length]), Preface::Incomplete);
        }
        assert_eq!(check_preface(&PREFACE), Preface::Baton);
        assert_eq!(check_preface(b"BATONSRV and more"), Preface::Baton);
    }

    #[test]
    fn foreign_protocols_are_named() {
        let cases: [(&[u8], ForeignProtocol); 13] = [
            (b"\x16\x03\x01\x02\x00\x01", ForeignProtocol::Tls),
            (b"GET / HTTP/1.1\r\n", ForeignProtocol::Http),
            (b"PRI * HTTP/2.0\r\n", ForeignProtocol::Http),
            (b"SSH-2.0-x", ForeignProtocol::Ssh),
            (b"ruok", ForeignProtocol::FourLetterWord),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0],
                ForeignProtocol::ZooKeeperElection,
            ),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 1],
                ForeignProtocol::ZooKeeperElection,
            ),
            (
                &[0, 0, 0, 0, 0, 0, 0, 3],
                ForeignProtocol::ZooKeeperElection,
            ),
            (&[0, 0, 0, 11, 0, 0, 0, 1], ForeignProtocol::ZooKeeperQuorum),
            (&[0, 0, 0, 45, 0, 0, 0, 0], ForeignProtocol::ZooKeeperClient),
            (&[0, 0, 0, 11], ForeignProtocol::ZooKeeperQuorum),
            (b"BATONSRW", ForeignProtocol::Unknown),
            (b"\0", ForeignProtocol::Unknown),
        ];
        for (bytes, expected) in cases {
            assert_eq!(
                check_preface(bytes),
                Preface::Foreign(expected),
                "{bytes:?}"
            );
        }
    }
}
