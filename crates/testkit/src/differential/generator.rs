//! The generator of random programs: its seed, and the paths and data that it draws from. What a
//! program consists of is in `generate`, `writes` and `quotas`.

use super::differences::Differences;
use super::places::FOLDER;
use super::random::Random;

/// Open to all; watched.
pub(super) const OPEN: [&str; 13] = [
    FOLDER,
    "/a",
    "/b",
    "/a/x",
    "/a/y",
    "/b/x",
    "/a/x/deep",
    "/a/x/deep/er",
    "/a/s-",
    "/b/s-",
    "/a/s-0000000000",
    "/a/s-0000000001",
    "/b/s-0000000000",
];
/// With ACLs of all kinds; not watched.
pub(super) const RESTRICTED: [&str; 4] = ["/n", "/n/x", "/n/y", "/n/x/z"];
pub(super) const OF_THE_SERVER: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", SERVER_LIST];
const SERVER_LIST: &str = "/zookeeper/config";
const BEYOND_THE_BASIC_PLANE: &str = "/\u{1f512}";
pub(super) const ILLEGAL: [&str; 10] = [
    "",
    "a",
    "//",
    "/a/",
    "/a//b",
    "/a/./b",
    "/a/..",
    "/a/\u{1}",
    BEYOND_THE_BASIC_PLANE,
    "/\u{f000}",
];
/// The subjects of the certificates that sessions show, where they show any.
pub(super) const SUBJECTS: [&str; 2] = ["CN=one", "CN=two"];
/// Large enough to be read in parts.
pub(super) const LARGE: &[u8] = &[b'L'; 5000];

/// Makes programs, each different, all of them from one seed.
#[derive(Debug)]
pub struct Generator {
    pub(super) random: Random,
    pub(super) differences: Differences,
    pub(super) sessions: usize,
    /// Whether the programs are for ensembles.
    has_several_servers: bool,
    /// Whether the sessions of the programs show certificates.
    pub(super) has_certificates: bool,
    /// Whether the program that is being made writes quotas.
    pub(super) quotas: bool,
}

impl Generator {
    /// Programs of this number of sessions, without what `differences` leaves out.
    #[must_use]
    pub fn new(seed: u64, sessions: usize, differences: Differences) -> Self {
        Self {
            random: Random::new(seed),
            differences,
            sessions: sessions.max(1),
            has_several_servers: false,
            has_certificates: false,
            quotas: false,
        }
    }

    /// Programs for ensembles, without what differs there.
    #[must_use]
    pub fn for_ensembles(mut self) -> Self {
        self.has_several_servers = true;
        self
    }

    /// Programs for servers that are reached with TLS, where each session shows a certificate of
    /// its own or none: their ACLs name these, too.
    #[must_use]
    pub fn for_certificates(mut self) -> Self {
        self.has_certificates = true;
        self
    }

    pub(super) fn path(&mut self) -> &'static str {
        match self.random.below(40) {
            0..5 => self.random.pick(&RESTRICTED),
            5 => match self.random.pick(&OF_THE_SERVER) {
                SERVER_LIST if self.has_several_servers && self.differences.has("server-list") => {
                    "/zookeeper"
                }
                path => path,
            },
            _ => self.random.pick(&OPEN),
        }
    }

    /// A path that ZooKeeper checks.
    pub(super) fn checked_path(&mut self) -> &'static str {
        if self.random.one_in(25) {
            self.random.pick(&ILLEGAL)
        } else {
            self.path()
        }
    }

    /// A path whose data, ACL or children may be changed: the server's own would spoil the programs
    /// that follow.
    pub(super) fn own_path(&mut self) -> &'static str {
        let path = self.checked_path();
        if OF_THE_SERVER.contains(&path) {
            "/a"
        } else {
            path
        }
    }

    /// A path of which it does not.
    pub(super) fn unchecked_path(&mut self) -> &'static str {
        match self.checked_path() {
            "" if self.differences.has("empty-path") => FOLDER,
            BEYOND_THE_BASIC_PLANE if self.differences.has("utf-8") => FOLDER,
            path => path,
        }
    }

    pub(super) fn open_path(&mut self) -> &'static str {
        let path = self.unchecked_path();
        if self.differences.has("acl-hides") && RESTRICTED.contains(&path) {
            self.random.pick(&OPEN)
        } else {
            path
        }
    }

    pub(super) fn data(&mut self) -> Option<&'static [u8]> {
        self.random.pick(&[
            None,
            Some(b""),
            Some(b"one"),
            Some(b"a longer one"),
            Some(LARGE),
        ])
    }
}
