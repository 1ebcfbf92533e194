//! Random programs from a seed: every operation that a client may send, with valid and invalid
//! arguments, on few paths so that sessions meet. Leaves out what the list of differences names,
//! and nothing else.

use baton_proto::{AddWatchMode, AuthPacket, Create, Request};

use super::differences::Differences;
use super::generator::{Generator, ILLEGAL, OPEN, RESTRICTED};
use super::places::{FOLDER, QUOTA};
use super::program::{Act, Claim, End, Handshake, Loss, Program, ProgramLine, Silence};
use super::{quotas, writes};

/// Paths that get persistent watches, of one mode each.
const PERSISTENT: [(&str, AddWatchMode); 2] = [
    ("/b", AddWatchMode::PersistentRecursive),
    ("/a/x", AddWatchMode::Persistent),
];
impl Generator {
    /// Every path that a program names.
    pub(super) fn paths() -> impl Iterator<Item = &'static str> {
        let paths = OPEN.into_iter().chain(RESTRICTED).chain(ILLEGAL);
        let paths = paths.chain(quotas::PATHS);
        paths.filter(|path| *path != "//")
    }

    /// The next program, of `acts` acts.
    pub fn program(&mut self, acts: usize) -> Program {
        self.quotas = self.random.one_in(4);
        let mut lines: Vec<ProgramLine> = Vec::with_capacity(acts);
        // Rare, since it takes a second.
        let expiry = self.random.below(10 * acts.max(1));
        let mut expiry = (self.sessions > 1 && expiry < acts).then_some(expiry);
        while lines.len() < acts {
            let session = self.random.below(self.sessions);
            if expiry.take_if(|at| *at <= lines.len()).is_some() {
                let how = self
                    .random
                    .pick(&[Silence::Connected, Silence::Disconnected]);
                self.add(&mut lines, session, vec![Act::Expire(how)]);
            }
            let burst = self.burst();
            self.add(&mut lines, session, burst);
        }
        Program {
            sessions: self.sessions,
            quotas: self.quotas,
            lines,
        }
    }

    /// Returns the requests of one session before another has its turn.
    fn burst(&mut self) -> Vec<Act> {
        if self.quotas && self.random.one_in(12) {
            return quotas::set(self).into_iter().map(Act::Ask).collect();
        }
        if self.random.one_in(500) {
            return self.full();
        }
        let length = match self.random.below(8) {
            0..4 => 1,
            4..7 => 2 + self.random.below(6),
            _ => 8 + self.random.below(40),
        };
        if self.sessions == 1 || !self.random.one_in(15) {
            return (0..length).map(|_| self.act()).collect();
        }
        // A write under a quota is sent alone.
        let length = if self.quotas { 1 } else { length };
        let mut burst: Vec<_> = (0..length).map(|_| Act::Ask(self.open_request())).collect();
        burst.push(Act::Lose(Loss {
            end: self
                .random
                .pick(&[End::HalfClosed, End::Closed, End::Reset]),
            closing: self.random.one_in(6),
        }));
        burst
    }

    /// Writes the most data that is allowed, and soon less again, so that not everybody reads it.
    fn full(&mut self) -> Vec<Act> {
        let over = usize::from(!self.differences.has("over-the-limit") && self.random.one_in(2));
        let less = Request::SetData {
            path: FOLDER,
            data: self.data(),
            version: -1,
        };
        vec![Act::Full { path: FOLDER, over }, Act::Ask(less)]
    }

    fn add(&self, lines: &mut Vec<ProgramLine>, session: usize, burst: Vec<Act>) {
        let lost = matches!(burst.last(), Some(Act::Lose(_)));
        for (number, act) in burst.into_iter().enumerate() {
            let pending = self.quotas
                && self.differences.has("pending-quota")
                && (act.is_write() || matches!(act, Act::Cut(..) | Act::Length { .. }));
            lines.push(ProgramLine {
                session,
                joined: number > 0,
                alone: !lost && (pending || act_is_alone(&act, &self.differences)),
                act,
            });
        }
    }

    /// A request whose outcome does not depend on who the connection says that it is.
    fn open_request(&mut self) -> Request<'static> {
        loop {
            let request = self.request();
            let open = |path: &str| OPEN.contains(&path);
            let is_open = match &request {
                Request::Create(Create { path, .. })
                | Request::Delete { path, .. }
                | Request::SetData { path, .. }
                | Request::Exists { path, .. }
                | Request::GetData { path, .. }
                | Request::GetChildren2 { path, .. } => open(path),
                Request::Multi(ops) => ops.iter().all(|op| open(op.path())),
                _ => false,
            };
            if is_open {
                return request;
            }
        }
    }

    fn act(&mut self) -> Act {
        match self.random.below(400) {
            0..4 => Act::Reattach,
            4 => Act::Claim(self.random.pick(&[
                Claim::WrongPassword,
                Claim::UnknownSession,
                Claim::AheadOfTheServer,
            ])),
            5..8 => Act::Reopen(Handshake {
                timeout_ms: self.random.pick(&[30_000, 0, -1, 25_000, i32::MAX]),
                read_only: self
                    .random
                    .pick(&[Some(false), Some(false), Some(true), None]),
            }),
            8 if self.differences.has("server-ops") => {
                Act::Op(self.random.pick(&[0, 10, 99, 12_345, -7, i32::MIN]))
            }
            8 => Act::Op(self.random.pick(&[-10, 20])),
            13..19 => self.wrong_length(),
            19 if self.random.one_in(4) => Act::Frame(self.random.pick(&[-1, i32::MIN, i32::MAX])),
            9..13 => match self.request() {
                // Credentials that cannot be read end the connection in both, but not with one
                // answer.
                Request::Auth(_) | Request::WhoAmI | Request::Ping => Act::Ask(Request::WhoAmI),
                request if self.is_left_whole(&request) => Act::Ask(request),
                request => Act::Cut(request, self.random.below(100)),
            },
            _ => Act::Ask(self.request()),
        }
    }

    /// Returns whether the request, damaged, would leave the two servers with other transactions.
    fn is_left_whole(&self, request: &Request<'_>) -> bool {
        request.op().is_write() && self.differences.has("3.9-undecoded-write")
    }

    /// A number in place of a length: null, negative, too much, too little.
    fn wrong_length(&mut self) -> Act {
        let request = self.request();
        // It would be a quota that cannot be read.
        let of_quota = request.path().is_some_and(|path| path.starts_with(QUOTA));
        if of_quota || self.is_left_whole(&request) {
            return Act::Ask(request);
        }
        let mut value = self
            .random
            .pick(&[-1, -1, -2, i32::MIN, i32::MAX, 0, 1, 9_999]);
        let mut place = 0;
        match &request {
            // Credentials end the connection; ACLs and pings are sent alone.
            Request::Auth(_) | Request::SetAcl { .. } | Request::Ping => {
                return Act::Ask(Request::WhoAmI);
            }
            Request::Create(Create { path, .. }) | Request::SetData { path, .. } => {
                place = self.random.below(2);
                // An empty path that is made null leaves a whole request behind it.
                if place == 0 && value == -1 && path.is_empty() && self.differences.has("null-path")
                {
                    value = -2;
                }
            }
            Request::Delete { .. } => {}
            Request::Multi(ops) if !ops.is_empty() => {
                place = self.random.below(2);
                value = match (place, value) {
                    (0, 1) if self.differences.has("create-kind") => 99,
                    (1, -1) if self.differences.has("null-path") => -2,
                    // A path with all sorts of bytes in it.
                    (1, 9_999) if self.differences.has("utf-8") => i32::MAX,
                    _ => value,
                };
            }
            Request::Sync { .. } | Request::GetEphemerals { .. }
                if value == -1 && self.differences.has("null-path") =>
            {
                value = -2;
            }
            // A list that is too short reads as one with the empty path.
            Request::SetWatches { .. } | Request::SetWatches2 { .. } => {
                let below = value < 0 && self.differences.has("list-below-zero");
                if below || (value == 1 && self.differences.has("empty-path")) {
                    value = 9_999;
                }
            }
            _ if value == 0 && self.differences.has("empty-path") => value = 1,
            _ => {}
        }
        Act::Length {
            request,
            place,
            value,
        }
    }

    /// Returns whether to set a one-shot watch.
    fn watch(&mut self, path: &str) -> bool {
        let hidden = self.differences.has("acl-hides") && RESTRICTED.contains(&path);
        self.random.one_in(3) && !hidden && self.may_be_one_shot(path)
    }

    fn may_be_one_shot(&self, path: &str) -> bool {
        !self.differences.has("one-watch-mode-per-path") || !is_persistent(path)
    }

    fn one_shot_paths(&mut self) -> Vec<&'static str> {
        let count = self.random.below(4);
        let paths: Vec<_> = (0..count).map(|_| self.open_path()).collect();
        let mut paths: Vec<_> = paths
            .into_iter()
            .filter(|path| self.may_be_one_shot(path))
            .collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    fn request(&mut self) -> Request<'static> {
        if self.quotas && self.random.one_in(8) {
            return quotas::request(self);
        }
        let version = self.random.pick(&[-1, -1, -1, 0, 1, 2, -2, i32::MAX]);
        match self.random.below(36) {
            0..6 => {
                let path = self.checked_path();
                Request::Create(writes::create(self, path))
            }
            6..8 => Request::Delete {
                path: self.unchecked_path(),
                version,
            },
            8..11 => Request::SetData {
                path: self.own_path(),
                data: self.data(),
                version,
            },
            11..13 => {
                let path = self.open_path();
                let watch = self.watch(path);
                Request::Exists { path, watch }
            }
            13..15 => {
                let path = self.unchecked_path();
                let watch = self.watch(path);
                Request::GetData { path, watch }
            }
            15 => {
                let path = self.unchecked_path();
                let watch = self.watch(path);
                Request::GetChildren { path, watch }
            }
            16 => {
                let path = self.unchecked_path();
                let watch = self.watch(path);
                Request::GetChildren2 { path, watch }
            }
            17 => Request::GetAcl {
                path: self.unchecked_path(),
            },
            18..20 => {
                let path = self.own_path();
                let acl = writes::acl(self, path);
                Request::SetAcl { path, acl, version }
            }
            20..23 => Request::Multi(writes::multi(self)),
            23 => Request::MultiRead(writes::multi_read(self)),
            24 => Request::Sync { path: self.path() },
            25 => Request::GetEphemerals {
                prefix: self.random.pick(&[FOLDER, "/", "/a", "/a/s", "/n"]),
            },
            26 | 27 => self.persistent_watch(),
            28 => Request::CheckWatches {
                path: self.open_path(),
                kind: self.checked_kind(),
            },
            29 => {
                let path = self.open_path();
                let kind = if self.differences.has("remove-watches") && is_persistent(path) {
                    self.random.pick(&[3, 9])
                } else {
                    self.random.pick(&[1, 2, 3, 9, 0, -1])
                };
                Request::RemoveWatches { path, kind }
            }
            30 => Request::WhoAmI,
            31 => self.credentials(),
            32 | 33 => self.set_watches(),
            34 => Request::GetAllChildrenNumber {
                path: self.unchecked_path(),
            },
            _ => self.rare(),
        }
    }

    fn persistent_watch(&mut self) -> Request<'static> {
        let (mut path, mode) = self.random.pick(&PERSISTENT);
        if self.random.one_in(10) && !self.differences.has("add-watch-path") {
            path = self.random.pick(&ILLEGAL);
        }
        let mode = if self.random.one_in(20) {
            self.random.pick(&[2, -1, 9])
        } else {
            mode.code()
        };
        Request::AddWatch { path, mode }
    }

    fn checked_kind(&mut self) -> i32 {
        if self.differences.has("check-watches") {
            self.random.pick(&[0, 9, -1])
        } else {
            self.random.pick(&[1, 2, 3, 4, 5, 9])
        }
    }

    fn credentials(&mut self) -> Request<'static> {
        if self.has_certificates && self.random.one_in(3) {
            // Known since the connection was made, if there is a certificate.
            let auth = self.random.pick(&[None, Some(&b""[..]), Some(b"CN=one")]);
            return Request::Auth(AuthPacket {
                kind: 0,
                scheme: "x509",
                auth,
            });
        }
        let (scheme, auth): (_, Option<&[u8]>) = self.random.pick(&[
            ("digest", Some(b"someone:secret")),
            ("digest", Some(b"other:word")),
            ("digest", Some(b"someone:secret")),
            ("ip", Some(b"x")),
            ("ip", None),
            ("digest", Some(b"no colon")),
            ("digest", Some(b"")),
            ("digest", Some(b":")),
            ("digest", None),
            ("unheard-of", Some(b"x")),
            ("world", Some(b"anyone")),
        ]);
        Request::Auth(AuthPacket {
            kind: 0,
            scheme,
            auth,
        })
    }

    fn set_watches(&mut self) -> Request<'static> {
        let relative_zxid = i64::try_from(self.random.below(60)).unwrap_or(0);
        let (data, exist, child) = (
            self.one_shot_paths(),
            self.one_shot_paths(),
            self.one_shot_paths(),
        );
        if self.random.one_in(2) {
            return Request::SetWatches {
                relative_zxid,
                data,
                exist,
                child,
            };
        }
        Request::SetWatches2 {
            relative_zxid,
            data,
            exist,
            child,
            persistent: vec!["/a/x"],
            persistent_recursive: vec!["/b"],
        }
    }

    fn rare(&mut self) -> Request<'static> {
        match self.random.below(6) {
            0 if !self.differences.has("server-ops") => Request::DeleteContainer {
                path: self.open_path(),
            },
            1 if !self.differences.has("sasl") => Request::Sasl { token: Some(b"x") },
            2 => Request::Reconfig {
                joining: None,
                leaving: Some("1"),
                new_members: None,
                config_id: -1,
            },
            3 if !self.differences.has("check-alone") => Request::Check {
                path: self.open_path(),
                version: -1,
            },
            _ => Request::Ping,
        }
    }
}

fn is_persistent(path: &str) -> bool {
    PERSISTENT.iter().any(|(watched, _)| *watched == path)
}

/// Returns whether it is neither sent with what is before it nor with what follows.
fn act_is_alone(act: &Act, differences: &Differences) -> bool {
    match act {
        Act::Ask(Request::Auth(_)) => differences.has("credentials-overtake"),
        Act::Ask(Request::Ping) => differences.has("pings-overtake"),
        Act::Ask(Request::SetAcl { .. }) => differences.has("pending-acl"),
        // What is behind them is never answered.
        Act::Ask(
            Request::Sasl { .. } | Request::Check { .. } | Request::DeleteContainer { .. },
        )
        | Act::Op(_)
        | Act::Full { .. } => true,
        _ => !act.is_sent(),
    }
}
