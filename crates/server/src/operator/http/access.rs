//! Access over HTTP: who asks, and what the caller may. Reading needs nothing on this machine, and
//! an identity elsewhere; a change needs an identity that is trusted, wherever it comes from.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::http::{Extensions, HeaderMap, StatusCode, header};
use baton_proto::{AuthPacket, Perms};
use baton_tls::subject;
use baton_tree::Identity;

use crate::audit::line::{Ending, Operation};
use crate::audit::record::Principal;
use crate::auth::attempts::{Account, Claim, Judgement};
use crate::auth::credentials;
use crate::auth::tokens::Tokens;
use crate::connections::peer::Peer;
use crate::listening::http::{CallerCertificate, is_by_own_name};
use crate::report::notice::Notice;
use crate::state::ServerState;

/// Callers that may read at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Every caller that reaches it.
    Everybody,
    /// Callers on this machine, and those elsewhere who authenticate.
    Known,
}

/// The kind of a request: what the caller wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    /// To be a client of the server: the ACLs say what it may change.
    Use,
    Change,
}

/// Somebody who looks at a page that shows the tree: a client of the server, as it were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) peer: SocketAddr,
    pub(crate) identity: Identity,
    /// Whether the request names its sender: a browser adds a certificate unasked, and no name.
    pub(crate) is_named: bool,
    /// Whether something was shown that nobody else can show, and was judged.
    pub(crate) is_proven: bool,
}

/// Caller of a request.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(super) peer: SocketAddr,
    readers: Readers,
    /// Whether the request is for a name that no other site can give to this machine.
    is_by_own_name: bool,
    /// The subject of the certificate that the connection has shown.
    subject: Option<String>,
    authorization: Option<Vec<u8>>,
    /// Whether a browser has sent the request for a page, which may be any site's.
    is_by_page: bool,
}

/// Reason for which a caller is refused, with the status of the answer.
pub(crate) type Refused = (StatusCode, String);

/// Proof in the header `Authorization`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presented<'a> {
    Nothing,
    /// ZooKeeper's form of `USER:PASSWORD`.
    Digest(&'a [u8]),
    /// ZooKeeper's form of "the certificate of this connection".
    Certificate,
    Token(&'a [u8]),
    Unknown,
}

impl<'a> Presented<'a> {
    /// The auth packet by which a client would say the same.
    fn packet(self) -> Option<AuthPacket<'a>> {
        let Self::Digest(credentials) = self else {
            return None;
        };
        Some(AuthPacket {
            kind: 0,
            scheme: "digest",
            auth: Some(credentials),
        })
    }

    /// The scheme, for the audit record.
    fn scheme(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Digest(_) => "digest",
            Self::Certificate => "x509",
            Self::Token(_) => "bearer",
            Self::Unknown => "unknown",
        }
    }

    fn of(header: Option<&'a [u8]>) -> Self {
        let Some(header) = header.map(<[u8]>::trim_ascii) else {
            return Self::Nothing;
        };
        let behind = |scheme: &str| {
            let (name, rest) = header.split_at_checked(scheme.len())?;
            name.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
        };
        if let Some(credentials) = behind("digest ") {
            Self::Digest(credentials)
        } else if let Some(token) = behind("bearer ") {
            Self::Token(token.trim_ascii())
        } else if behind("x509") == Some(b"") {
            Self::Certificate
        } else {
            Self::Unknown
        }
    }
}

impl Caller {
    /// Returns the sender of this request; `None`: the connection's address is not known.
    pub(crate) fn of(headers: &HeaderMap, about: &Extensions) -> Option<Self> {
        let certificate = about.get::<CallerCertificate>();
        let subject = certificate.and_then(|shown| subject::of_certificate(&shown.0).ok());
        let authorization = headers.get(header::AUTHORIZATION);
        Some(Self {
            peer: *about.get::<SocketAddr>()?,
            readers: *about.get::<Readers>()?,
            is_by_own_name: is_by_own_name(headers),
            subject,
            authorization: authorization.map(|value| value.as_bytes().to_vec()),
            is_by_page: headers.contains_key(header::ORIGIN),
        })
    }

    /// Whether the caller may do this.
    ///
    /// # Errors
    /// Why not. Wrong credentials are counted and logged, and delay later ones of their account.
    pub(super) async fn check(
        self: &Arc<Self>,
        state: &Arc<ServerState>,
        tokens: Option<&Arc<Tokens>>,
        kind: RequestKind,
        what: &str,
    ) -> Result<(), Refused> {
        let is_free = kind == RequestKind::Read && self.may_read_freely();
        if is_free && self.is_by_own_name {
            return Ok(());
        }
        if is_free && self.authorization.is_none() && self.subject.is_none() {
            let refused = under_foreign_name();
            let peer = Peer::Tcp(self.peer);
            let line = format_args!("refused {what} over HTTP: {}", refused.1);
            state.notice(Notice::BadCredentials, Some(&peer), line);
            return Err(refused);
        }
        self.prove(state, tokens, kind, what).await
    }

    /// Whether the caller may read without showing anything, under a name of this machine.
    fn may_read_freely(&self) -> bool {
        self.readers == Readers::Everybody || self.peer.ip().is_loopback()
    }

    /// [`Self::check`] wherever the caller is.
    async fn prove(
        self: &Arc<Self>,
        state: &Arc<ServerState>,
        tokens: Option<&Arc<Tokens>>,
        kind: RequestKind,
        what: &str,
    ) -> Result<(), Refused> {
        let claim = self.claim(state);
        if let Some(claim) = claim {
            wait_for_turn(state, claim).await;
        }
        let (caller, tokens) = (Arc::clone(self), tokens.cloned());
        let shared = Arc::clone(state);
        // It may read the file of tokens.
        let judged =
            tokio::task::spawn_blocking(move || caller.judge(&shared, tokens.as_deref(), kind));
        let judged = judged.await.unwrap_or_else(|_| {
            let text = "the server failed at it; report this".to_owned();
            Err((StatusCode::INTERNAL_SERVER_ERROR, text))
        });
        let peer = Peer::Tcp(self.peer);
        match (&judged, claim) {
            (Ok(()), Some(claim)) => state.password_attempts.succeeded(claim),
            (Ok(()), None) => {}
            (Err((status, why)), claim) => {
                if claim.is_some() {
                    state.password_attempts.failed(state.time.uptime_ms());
                }
                if *status == StatusCode::FORBIDDEN {
                    state.stats.auth_failed.fetch_add(1, Relaxed);
                }
                let line = format_args!("refused {what} over HTTP: {why}");
                state.notice(Notice::BadCredentials, Some(&peer), line);
            }
        }
        judged
    }

    /// The claim of what the caller presents, where that could be a guess.
    fn claim(&self, state: &ServerState) -> Option<Claim> {
        let presented = Presented::of(self.authorization.as_deref());
        let account = match presented {
            Presented::Digest(_) => credentials::claimed_account(&presented.packet()?),
            Presented::Token(_) => Account::Token,
            Presented::Nothing | Presented::Certificate | Presented::Unknown => return None,
        };
        let attempts = &state.password_attempts;
        Some(attempts.of_user(&Peer::Tcp(self.peer), account))
    }

    /// Returns the caller's identity as far as it is known: its address, and what it presents.
    pub(super) fn claimed(&self, state: &ServerState) -> Identity {
        let address = Identity::from_ip(self.peer.ip());
        self.added_to(&address, state).unwrap_or(address)
    }

    /// Returns the caller as a client of the server, to whom the ACLs say what it may read.
    ///
    /// Such a page opens nothing that the ports of clients do not: who shows nothing is let in
    /// where a client that shows nothing is, and who shows something where it could read over
    /// HTTP, too. To [`RequestKind::Use`] the server, a certificate that the ACL of `/` does not
    /// name is not enough, nor is one that a browser has added for a page.
    ///
    /// # Errors
    /// Why it may not look. Wrong credentials are counted, logged and recorded, and delay later
    /// ones of their account.
    pub(crate) async fn visit(
        self: &Arc<Self>,
        state: &Arc<ServerState>,
        tokens: Option<&Arc<Tokens>>,
        kind: RequestKind,
    ) -> Result<Visit, Refused> {
        let options = &state.options;
        let is_local = self.peer.ip().is_loopback();
        let is_free = self.may_read_freely() && options.serves_strangers(is_local);
        let is_open = is_free && self.is_by_own_name;
        let presented = Presented::of(self.authorization.as_deref());
        if kind == RequestKind::Use && presented == Presented::Nothing && self.is_by_page {
            return Err((StatusCode::FORBIDDEN, BY_PAGE.to_owned()));
        }
        if presented == Presented::Nothing && self.subject.is_none() && is_free && !is_open {
            return Err(under_foreign_name());
        }
        if presented == Presented::Nothing && self.subject.is_none() && !is_open {
            return Err((StatusCode::UNAUTHORIZED, WHO_ARE_YOU.to_owned()));
        }
        let could_be_guess = match presented {
            Presented::Nothing => false,
            Presented::Digest(_) => presented
                .packet()
                .is_some_and(|packet| credentials::claims_superuser(&packet, options)),
            Presented::Certificate | Presented::Token(_) | Presented::Unknown => true,
        };
        let is_proven = could_be_guess || !is_open;
        if is_proven {
            let what = match kind {
                RequestKind::Read => "the console",
                RequestKind::Use | RequestKind::Change => "the locks of /v1",
            };
            let proved = self.prove(state, tokens, kind, what).await;
            if let Err((_, why)) = &proved {
                let who = || Principal::at(&Peer::Tcp(self.peer), None);
                state.record(Operation::Login, Ending::Failure, who, |fields| {
                    fields.word("scheme", presented.scheme());
                    fields.sentence("reason", why);
                });
            }
            proved?;
        }
        let identity = self.as_client(state, presented)?;
        let required = &options.required_schemes;
        if !required.is_empty() && !required.iter().any(|scheme| identity.has(scheme)) {
            let text = format!(
                "clients of this server have to authenticate by {}, also over HTTP; use baton console or \
                 baton agent with such credentials",
                required.join(" or ")
            );
            return Err((StatusCode::FORBIDDEN, text));
        }
        let is_named = matches!(presented, Presented::Digest(_) | Presented::Certificate);
        Ok(Visit {
            peer: self.peer,
            identity,
            is_named,
            is_proven,
        })
    }

    /// The identity of a client at the caller's address, with its certificate and its credentials.
    fn as_client(
        &self,
        state: &ServerState,
        presented: Presented<'_>,
    ) -> Result<Identity, Refused> {
        let options = &state.options;
        let refused = |why: credentials::Refusal| (StatusCode::FORBIDDEN, why.to_string());
        let mut identity = Identity::from_ip(self.peer.ip());
        if let Some(subject) = &self.subject {
            let more = credentials::add_subject(&identity, subject.clone(), options);
            identity = more.map_err(refused)?;
        }
        match presented.packet() {
            Some(packet) => {
                let more = credentials::add(&identity, &packet, options);
                more.map(Cow::into_owned).map_err(refused)
            }
            None => Ok(identity),
        }
    }

    /// `identity` with what the caller presents; `None`: it presents no identity.
    fn added_to(&self, identity: &Identity, state: &ServerState) -> Option<Identity> {
        let options = &state.options;
        let presented = Presented::of(self.authorization.as_deref());
        let added = match presented {
            Presented::Certificate => {
                credentials::add_subject(identity, self.subject.clone()?, options)
            }
            _ => {
                let more = credentials::add(identity, &presented.packet()?, options);
                more.map(Cow::into_owned)
            }
        };
        added.ok()
    }

    fn judge(
        &self,
        state: &ServerState,
        tokens: Option<&Tokens>,
        kind: RequestKind,
    ) -> Result<(), Refused> {
        let presented = Presented::of(self.authorization.as_deref());
        let identity = match presented {
            Presented::Nothing => {
                // A browser shows its certificate unasked, so a change asks for the header, too.
                return match (kind, &self.subject) {
                    (RequestKind::Read, Some(_)) => Ok(()),
                    _ => Err((StatusCode::UNAUTHORIZED, needs(kind).to_owned())),
                };
            }
            Presented::Token(token) => {
                let is_known = tokens.is_some_and(|tokens| tokens.admits(token));
                return if is_known { Ok(()) } else { not_enough(kind) };
            }
            Presented::Certificate | Presented::Digest(_) | Presented::Unknown => {
                self.added_to(&Identity::anonymous(), state)
            }
        };
        let suffices = identity.is_some_and(|identity| {
            let shows_certificate = presented == Presented::Certificate;
            kind == RequestKind::Read && shows_certificate || is_named(state, &identity, kind)
        });
        if suffices { Ok(()) } else { not_enough(kind) }
    }
}

/// Whether the identity is more than a claim: the superuser's, or one that the ACL of `/` names
/// with every permission that the request needs. What everybody may do there is no matter.
fn is_named(state: &ServerState, identity: &Identity, kind: RequestKind) -> bool {
    if identity.is_super() {
        return true;
    }
    let wanted = match kind {
        RequestKind::Read | RequestKind::Use => Perms::READ,
        RequestKind::Change => Perms::ALL,
    };
    let tree = state.tree.read();
    tree.peek("/").is_some_and(|(_, acl)| {
        let entries = acl.entries().iter();
        let named = entries.filter(|entry| {
            let mut ids = identity.ids();
            ids.any(|own| own.scheme == entry.scheme && own.id == entry.id)
        });
        named
            .fold(Perms::default(), |all, entry| all | entry.perms)
            .contains(wanted)
    })
}

fn under_foreign_name() -> Refused {
    let text = "ask by an address, by localhost or by this machine's own name, or authenticate: any site can make another \
                name lead here, and its pages would read the answer";
    (StatusCode::MISDIRECTED_REQUEST, text.to_owned())
}

const BY_PAGE: &str = "the header Origin says that a browser sends this for a page, which may be any site's; send the header \
     Authorization, too, or leave Origin out";

const WHO_ARE_YOU: &str = "authenticate: USER:PASSWORD of the superuser or of a user whom the ACL of / names with READ, \
     a token of http_token_file, or a client certificate (https)";

fn needs(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Read => {
            "callers from other machines have to authenticate: send 'Authorization: Bearer TOKEN' with a token of \
             http_token_file, 'Authorization: digest USER:PASSWORD', or a client certificate (https)"
        }
        RequestKind::Use => {
            "send 'Authorization: digest USER:PASSWORD' of the superuser or of a user whom the ACL of / names with READ, \
             'Authorization: Bearer TOKEN' with a token of http_token_file, or 'Authorization: x509' with a client certificate \
             (https) that this ACL names"
        }
        RequestKind::Change => {
            "this command changes something; send 'Authorization: digest USER:PASSWORD', 'Authorization: Bearer TOKEN' \
             with a token of http_token_file, or 'Authorization: x509' with a client certificate (https)"
        }
    }
}

fn not_enough(kind: RequestKind) -> Result<(), Refused> {
    let needed = match kind {
        RequestKind::Read => "READ, or any valid certificate",
        RequestKind::Use => "READ",
        RequestKind::Change => "all permissions",
    };
    let text = format!(
        "these credentials are not enough: take a token of http_token_file, the superuser's, or those of a user whom the ACL \
         of / names with {needed}"
    );
    Err((StatusCode::FORBIDDEN, text))
}

/// Waits until it is this claim's turn to be judged.
async fn wait_for_turn(state: &ServerState, claim: Claim) {
    loop {
        match (state.password_attempts).turn(claim, state.time.uptime_ms()) {
            Judgement::Now => return,
            Judgement::After(wait) => return tokio::time::sleep(wait).await,
            Judgement::AskAfter(wait) => tokio::time::sleep(wait).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use baton_tree::digest_id;

    use super::*;
    use crate::options::Options;

    #[test]
    fn an_authorization_is_a_digest_a_token_or_the_certificate() {
        for (header, presented) in [
            ("digest a:b c", Presented::Digest(b"a:b c")),
            ("DIGEST a:b", Presented::Digest(b"a:b")),
            ("Bearer t", Presented::Token(b"t")),
            ("bearer  t ", Presented::Token(b"t")),
            ("x509", Presented::Certificate),
            ("X509 ", Presented::Certificate),
            ("x509 CN=admin", Presented::Unknown),
            ("digest", Presented::Unknown),
            ("Basic YTpi", Presented::Unknown),
            ("", Presented::Unknown),
        ] {
            assert_eq!(
                Presented::of(Some(header.as_bytes())),
                presented,
                "{header}"
            );
        }
        assert_eq!(Presented::of(None), Presented::Nothing);
    }

    const HERE: &str = "127.0.0.1:9";
    const ELSEWHERE: &str = "10.0.0.1:9";

    fn options() -> Options {
        Options {
            super_digest: Some(digest_id(b"super:secret")),
            ..Options::default()
        }
    }

    /// The status with which a caller is refused, or 200.
    async fn status(
        state: &Arc<ServerState>,
        kind: RequestKind,
        from: &str,
        subject: Option<&str>,
        authorization: Option<&str>,
    ) -> u16 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).unwrap();
        let tokens = Tokens::load(&path).unwrap();
        let caller = Arc::new(Caller {
            peer: from.parse().unwrap(),
            readers: Readers::Known,
            is_by_own_name: true,
            subject: subject.map(str::to_owned),
            authorization: authorization.map(|text| text.as_bytes().to_vec()),
            is_by_page: false,
        });
        let checked = caller.check(state, Some(&tokens), kind, "it").await;
        checked.map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[tokio::test]
    async fn a74_to_be_a_client_takes_a_proof_elsewhere_and_more_than_what_a_browser_adds() {
        let state = crate::state::tests::state(Options {
            listen: vec!["127.0.0.1:0".to_owned()],
            ..options()
        });
        for (from, subject, authorization, is_by_page, wanted) in [
            (HERE, None, None, false, 200),
            (HERE, None, None, true, 403),
            (HERE, Some("CN=bob"), None, true, 403),
            (HERE, None, Some("digest bob:x"), true, 200),
            (ELSEWHERE, None, None, false, 401),
            (ELSEWHERE, None, Some("digest bob:x"), false, 403),
            (ELSEWHERE, Some("CN=bob"), None, false, 401),
            (ELSEWHERE, Some("CN=bob"), Some("x509"), false, 403),
            (ELSEWHERE, None, Some("digest super:secret"), false, 200),
        ] {
            let caller = Arc::new(Caller {
                peer: from.parse().unwrap(),
                readers: Readers::Known,
                is_by_own_name: true,
                subject: subject.map(str::to_owned),
                authorization: authorization.map(|text: &str| text.as_bytes().to_vec()),
                is_by_page,
            });
            let visit = caller.visit(&state, None, RequestKind::Use).await;
            let status = visit.map_or_else(|(status, _)| status.as_u16(), |_| 200);
            assert_eq!(
                status, wanted,
                "{from} {subject:?} {authorization:?} {is_by_page}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a18_elsewhere_an_identity_is_needed_to_read_and_everywhere_a_trusted_one_to_change() {
        let state = crate::state::tests::state(options());
        let root = "digest super:secret";
        for (subject, authorization, read, change) in [
            (None, None, 401, 401),
            (None, Some(root), 200, 200),
            (None, Some("digest super:guess"), 403, 403),
            // Everybody may do everything at `/`: to be somebody is not a proof.
            (None, Some("digest bob:secret"), 403, 403),
            (None, Some("Bearer 0123456789abcdef"), 200, 200),
            (None, Some("Bearer 0123456789abcdeF"), 403, 403),
            (None, Some("Bearer "), 403, 403),
            (None, Some("x509"), 403, 403),
            (None, Some("Basic c3VwZXI6c2VjcmV0"), 403, 403),
            // A certificate was verified; that alone changes nothing.
            (Some("CN=bob"), None, 200, 401),
            (Some("CN=bob"), Some("x509"), 200, 403),
            (Some("CN=bob"), Some("digest super:guess"), 403, 403),
        ] {
            for (kind, from, wanted) in [
                (RequestKind::Read, ELSEWHERE, read),
                (RequestKind::Change, ELSEWHERE, change),
                (RequestKind::Change, HERE, change),
                (RequestKind::Read, HERE, 200),
                (RequestKind::Read, "[::1]:9", 200),
            ] {
                let status = status(&state, kind, from, subject, authorization).await;
                assert_eq!(
                    status, wanted,
                    "{kind:?} {from} {subject:?} {authorization:?}"
                );
            }
        }
    }

    /// Runs guesses of the superuser's password at the same time, after each of which somebody at
    /// the same address shows another account's right one. Returns how long the guesses took.
    async fn guess_beside(state: &Arc<ServerState>, other: &str, guesses: usize) -> Duration {
        let begun = tokio::time::Instant::now();
        let mut all = tokio::task::JoinSet::new();
        for n in 0..guesses {
            let shared = Arc::clone(state);
            all.spawn(async move {
                let guess = format!("digest super:guess-{n}");
                status(&shared, RequestKind::Read, ELSEWHERE, None, Some(&guess)).await
            });
            let right = status(state, RequestKind::Read, ELSEWHERE, None, Some(other)).await;
            assert_eq!(right, 200);
        }
        assert_eq!(all.join_all().await, vec![403; guesses]);
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a18_right_logins_of_others_do_not_hasten_guesses_and_are_not_delayed_by_them() {
        let state = crate::state::tests::state(options());
        let took = guess_beside(&state, "Bearer 0123456789abcdef", 25).await;
        assert!(took >= Duration::from_millis(2_900), "{took:?}");
        // A user with the right password is let in after a delay, and from then on without.
        let begun = tokio::time::Instant::now();
        let root = Some("digest super:secret");
        for _ in 0..9 {
            assert_eq!(
                status(&state, RequestKind::Read, ELSEWHERE, None, root).await,
                200
            );
        }
        assert!(begun.elapsed() <= Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a18_more_guesses_than_turns_are_all_judged_in_the_end_and_so_is_the_right_one() {
        let state = crate::state::tests::state(options());
        let mut all = tokio::task::JoinSet::new();
        for n in 0..100 {
            let state = Arc::clone(&state);
            let token = match n {
                99 => "Bearer 0123456789abcdef",
                _ => "Bearer fedcba9876543210",
            };
            all.spawn(async move {
                status(&state, RequestKind::Read, ELSEWHERE, None, Some(token)).await
            });
        }
        let mut answers = all.join_all().await;
        answers.sort_unstable();
        assert_eq!(answers[..2], [200, 403]);
        assert_eq!(answers.last(), Some(&403));
    }

    #[tokio::test]
    async fn nothing_is_read_freely_under_a_name_that_any_site_can_give_to_this_machine() {
        let state = crate::state::tests::state(Options {
            listen: vec!["127.0.0.1:0".to_owned()],
            ..options()
        });
        let caller = |host: &str, from: &str, readers, authorization: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(authorization) = authorization {
                headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
            }
            let mut about = Extensions::new();
            about.insert(from.parse::<SocketAddr>().unwrap());
            about.insert(readers);
            Arc::new(Caller::of(&headers, &about).unwrap())
        };
        for (from, readers) in [(HERE, Readers::Known), (ELSEWHERE, Readers::Everybody)] {
            for (host, shown, wanted) in [
                ("127.0.0.1:80", None, 200),
                ("localhost", None, 200),
                ("evil.example", None, 421),
                ("evil.example:80", Some("digest bob:x"), 403),
                ("evil.example:80", Some("digest super:secret"), 200),
            ] {
                let caller = caller(host, from, readers, shown);
                let read = caller.check(&state, None, RequestKind::Read, "it").await;
                let read = read.map_or_else(|(status, _)| status.as_u16(), |()| 200);
                assert_eq!(read, wanted, "{from} {host} {shown:?}");
                if from == HERE {
                    let seen = caller.visit(&state, None, RequestKind::Read).await;
                    let seen = seen.map_or_else(|(status, _)| status.as_u16(), |_| 200);
                    assert_eq!(seen, wanted, "a page: {host} {shown:?}");
                }
            }
        }
    }
}
