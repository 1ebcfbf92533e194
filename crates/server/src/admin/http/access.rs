//! Who asks over HTTP, and what they may. Reading needs nothing on this machine, and an identity
//! elsewhere; a change needs an identity that is trusted, wherever it comes from.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use baton_proto::{AuthPacket, Perms};
use baton_tls::subject;
use baton_tree::Identity;

use crate::auth::attempts::Judgement;
use crate::auth::credentials;
use crate::auth::tokens::Tokens;
use crate::connections::peer::Peer;
use crate::http::CallerCertificate;
use crate::report::notice::Notice;
use crate::state::ServerState;

/// Who may read at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Whoever reaches it.
    Everybody,
    /// Callers on this machine, and those elsewhere who show who they are.
    Known,
}

/// What a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Read,
    Change,
}

/// Who asks.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) peer: SocketAddr,
    readers: Readers,
    /// The subject of the certificate that the connection has shown.
    subject: Option<String>,
    authorization: Option<Vec<u8>>,
}

/// Why a caller may not, with the status of the answer.
pub(super) type Refused = (StatusCode, String);

/// What the header `Authorization` presents.
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
    /// Who sends this request; `None`: the connection's address is not known.
    pub(super) fn of(request: &Request<Body>) -> Option<Self> {
        let about = request.extensions();
        let certificate = about.get::<CallerCertificate>();
        let subject = certificate.and_then(|shown| subject::of_certificate(&shown.0).ok());
        let authorization = request.headers().get(header::AUTHORIZATION);
        Some(Self {
            peer: *about.get::<SocketAddr>()?,
            readers: *about.get::<Readers>()?,
            subject,
            authorization: authorization.map(|value| value.as_bytes().to_vec()),
        })
    }

    /// Whether the caller may do this.
    ///
    /// # Errors
    /// Why not. Wrong credentials are counted and logged, and slow their address down.
    pub(super) async fn check(
        self: &Arc<Self>,
        state: &Arc<ServerState>,
        tokens: Option<&Arc<Tokens>>,
        wish: Wish,
        what: &str,
    ) -> Result<(), Refused> {
        let reads_freely = self.readers == Readers::Everybody || self.peer.ip().is_loopback();
        if wish == Wish::Read && reads_freely {
            return Ok(());
        }
        if self.authorization.is_some() {
            turn(state, self.peer).await?;
        }
        let (caller, tokens) = (Arc::clone(self), tokens.cloned());
        let shared = Arc::clone(state);
        // It may read the file of tokens.
        let judged =
            tokio::task::spawn_blocking(move || caller.judge(&shared, tokens.as_deref(), wish));
        let judged = judged.await.unwrap_or_else(|_| {
            let text = "the server failed at it; report this".to_owned();
            Err((StatusCode::INTERNAL_SERVER_ERROR, text))
        });
        let peer = Peer::Tcp(self.peer);
        match &judged {
            Ok(()) if self.authorization.is_some() => state.password_attempts.succeeded(&peer),
            Ok(()) => {}
            Err((status, why)) => {
                if *status == StatusCode::FORBIDDEN {
                    state.stats.auth_failed.fetch_add(1, Relaxed);
                }
                let line = format_args!("refused {what} over HTTP: {why}");
                state.notice(Notice::BadCredentials, Some(&peer), line);
            }
        }
        judged
    }

    /// Who the caller is, as far as that is known: its address, and what it presents.
    pub(super) fn claimed(&self, state: &ServerState) -> Identity {
        let address = Identity::from_ip(self.peer.ip());
        self.added_to(&address, state).unwrap_or(address)
    }

    /// `identity` with what the caller presents; `None`: it presents no identity.
    fn added_to(&self, identity: &Identity, state: &ServerState) -> Option<Identity> {
        let options = &state.options;
        let added = match Presented::of(self.authorization.as_deref()) {
            Presented::Certificate => {
                credentials::add_subject(identity, self.subject.clone()?, options)
            }
            Presented::Digest(credentials) => {
                let packet = AuthPacket {
                    kind: 0,
                    scheme: "digest",
                    auth: Some(credentials),
                };
                credentials::add(identity, &packet, options)
            }
            Presented::Nothing | Presented::Token(_) | Presented::Unknown => return None,
        };
        added.ok()
    }

    fn judge(
        &self,
        state: &ServerState,
        tokens: Option<&Tokens>,
        wish: Wish,
    ) -> Result<(), Refused> {
        let presented = Presented::of(self.authorization.as_deref());
        let identity = match presented {
            Presented::Nothing => {
                // A browser shows its certificate unasked, so a change asks for the header, too.
                return match (wish, &self.subject) {
                    (Wish::Read, Some(_)) => Ok(()),
                    _ => Err((StatusCode::UNAUTHORIZED, needs(wish).to_owned())),
                };
            }
            Presented::Token(token) => {
                let is_known = tokens.is_some_and(|tokens| tokens.admits(token));
                return if is_known { Ok(()) } else { not_enough(wish) };
            }
            Presented::Certificate | Presented::Digest(_) | Presented::Unknown => {
                self.added_to(&Identity::anonymous(), state)
            }
        };
        let suffices = identity.is_some_and(|identity| {
            let shows_certificate = presented == Presented::Certificate;
            wish == Wish::Read && shows_certificate || is_named(state, &identity, wish)
        });
        if suffices { Ok(()) } else { not_enough(wish) }
    }
}

/// Whether the identity is more than a claim: the superuser's, or one that the ACL of `/` names
/// with every permission that the wish needs. What everybody may do there is no matter.
fn is_named(state: &ServerState, identity: &Identity, wish: Wish) -> bool {
    if identity.is_super() {
        return true;
    }
    let wanted = match wish {
        Wish::Read => Perms::READ,
        Wish::Change => Perms::ALL,
    };
    let tree = state.tree.read();
    tree.peek("/").is_some_and(|(_, acl)| {
        let ids = identity.ids();
        let entries = acl.entries().iter();
        let named = entries.filter(|entry| {
            ids.iter()
                .any(|own| own.scheme == entry.scheme && own.id == entry.id)
        });
        named
            .fold(Perms::default(), |all, entry| all | entry.perms)
            .contains(wanted)
    })
}

fn needs(wish: Wish) -> &'static str {
    match wish {
        Wish::Read => {
            "callers from other machines have to show who they are: send 'Authorization: Bearer TOKEN' with a token of \
             http_token_file, 'Authorization: digest USER:PASSWORD', or a client certificate (https)"
        }
        Wish::Change => {
            "this command changes something; send 'Authorization: digest USER:PASSWORD', 'Authorization: Bearer TOKEN' \
             with a token of http_token_file, or 'Authorization: x509' with a client certificate (https)"
        }
    }
}

fn not_enough(wish: Wish) -> Result<(), Refused> {
    let needed = match wish {
        Wish::Read => "READ, or any valid certificate",
        Wish::Change => "all permissions",
    };
    let text = format!(
        "these credentials are not enough: take a token of http_token_file, the superuser's, or those of a user whom the ACL \
         of / names with {needed}"
    );
    Err((StatusCode::FORBIDDEN, text))
}

/// Waits until it is the turn of these credentials to be judged.
async fn turn(state: &ServerState, peer: SocketAddr) -> Result<(), Refused> {
    let peer = Peer::Tcp(peer);
    match state.password_attempts.turn(&peer, state.time.uptime_ms()) {
        Judgement::Now => {}
        Judgement::After(wait) => tokio::time::sleep(wait).await,
        Judgement::Never => {
            state.stats.auth_failed.fetch_add(1, Relaxed);
            let what = "too many tries come from its address; wait a minute".to_owned();
            let line = format_args!("refused credentials over HTTP: {what}");
            state.notice(Notice::BadCredentials, Some(&peer), line);
            return Err((StatusCode::TOO_MANY_REQUESTS, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        wish: Wish,
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
            subject: subject.map(str::to_owned),
            authorization: authorization.map(|text| text.as_bytes().to_vec()),
        });
        let checked = caller.check(state, Some(&tokens), wish, "it").await;
        checked.map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[tokio::test(start_paused = true)]
    async fn a18_elsewhere_an_identity_is_needed_to_read_and_everywhere_a_trusted_one_to_change() {
        let state = crate::state::tests::state(options());
        let root = "digest super:secret";
        for (subject, authorization, read, change) in [
            (None, None, 401, 401),
            (None, Some(root), 200, 200),
            (None, Some("digest super:guess"), 403, 403),
            // Everybody may do everything at `/`: to be somebody is no proof.
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
            for (wish, from, wanted) in [
                (Wish::Read, ELSEWHERE, read),
                (Wish::Change, ELSEWHERE, change),
                (Wish::Change, HERE, change),
                (Wish::Read, HERE, 200),
                (Wish::Read, "[::1]:9", 200),
            ] {
                let status = status(&state, wish, from, subject, authorization).await;
                assert_eq!(
                    status, wanted,
                    "{wish:?} {from} {subject:?} {authorization:?}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a18_guesses_from_elsewhere_are_slowed_and_then_refused_unjudged() {
        let state = crate::state::tests::state(options());
        let guess = Some("Bearer fedcba9876543210");
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let state = Arc::clone(&state);
            all.spawn(async move { status(&state, Wish::Read, ELSEWHERE, None, guess).await });
        }
        let answers = all.join_all().await;
        let of = |wanted| answers.iter().filter(|status| **status == wanted).count();
        assert!(of(403) >= 5 && of(429) > 0, "{answers:?}");
        assert_eq!(of(403) + of(429), 40);
    }
}
