//! ACLs and credentials, the same requests to Baton and to Apache ZooKeeper: what each answers must
//! agree with what was recorded of ZooKeeper, but for what is named here.
//!
//! 3.8.0 shows the stat of a znode that may not be read, and knows no ranges of IPv6 addresses; 3.9
//! does as Baton.

use std::net::SocketAddr;
use std::time::Duration;

use baton_proto::{
    Acl, AuthPacket, Create, CreateOp, ErrorCode, EventKind, MultiOp, Perms, Request, Response,
};
use baton_server::Server;
use baton_testkit::{
    RawClient, RawError, ServerOptions, Target, TestServer, golden, zookeeper_or_skip,
};

/// Recorded answers of Apache ZooKeeper 3.8.0.
const GOLDEN: &str = "acl.txt";

/// `super:test`.
const SUPER: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
/// `m:n`.
const SOMEBODY: &str = "m:HAzCVm6dWUg+t34w3cXf2SCCVso=";

/// Requests, each with the server's answer.
type Transcript = Vec<(String, String)>;

struct Client {
    raw: RawClient,
    said: Transcript,
}

fn create<'a>(path: &'a str, acl: Vec<Acl<'a>>) -> Request<'a> {
    Request::Create(Create {
        op: CreateOp::Create,
        path,
        data: Some(b""),
        acl: Some(acl),
        flags: 0,
        ttl_ms: 0,
    })
}

fn set_acl<'a>(path: &'a str, acl: Vec<Acl<'a>>, version: i32) -> Request<'a> {
    Request::SetAcl {
        path,
        acl: Some(acl),
        version,
    }
}

fn all<'a>(scheme: &'a str, id: &'a str) -> Vec<Acl<'a>> {
    vec![Acl::new(Perms::ALL, scheme, id)]
}

fn open() -> Vec<Acl<'static>> {
    all("world", "anyone")
}

fn set(path: &str) -> Request<'_> {
    Request::SetData {
        path,
        data: Some(b"x"),
        version: -1,
    }
}

fn delete(path: &str) -> Request<'_> {
    Request::Delete { path, version: -1 }
}

impl Client {
    async fn of(server: SocketAddr) -> Self {
        let raw = RawClient::connect(server, Duration::from_secs(30)).await;
        Self {
            raw: raw.unwrap(),
            said: Vec::new(),
        }
    }

    /// Asks, and notes the answer: its error, or of an ACL the entries.
    async fn ask(&mut self, what: impl Into<String>, request: Request<'_>) {
        let answer = match self.raw.call(&request).await {
            Ok(Response::Acl { mut acl, .. }) => {
                acl.sort_by_key(|entry| format!("{entry:?}"));
                format!("{acl:?}")
            }
            Ok(Response::Multi(parts)) => {
                let errors = parts.iter().map(|part| match part {
                    baton_proto::MultiResult::Error(code) => format!("{code:?}"),
                    _ => "done".to_owned(),
                });
                errors.collect::<Vec<_>>().join(" ")
            }
            Ok(_) => "done".to_owned(),
            Err(RawError::Rejected(code)) => format!("{code:?}"),
            // However the other end was closed.
            Err(RawError::Closed | RawError::Io(_)) => "closed".to_owned(),
            Err(other) => panic!("{other}"),
        };
        self.said.push((what.into(), answer));
    }

    async fn authenticate(&mut self, scheme: &str, auth: &[u8]) {
        self.authenticate_or_null(scheme, Some(auth)).await;
    }

    async fn authenticate_or_null(&mut self, scheme: &str, auth: Option<&[u8]>) {
        let packet = AuthPacket {
            kind: 0,
            scheme,
            auth,
        };
        let what = format!("credentials {scheme} {auth:?}");
        self.ask(what, Request::Auth(packet)).await;
    }

    fn note_events(&mut self, when: &str) {
        let events = self.raw.take_events();
        let events: Vec<(EventKind, String)> = events
            .into_iter()
            .map(|(_, event)| (event.kind, event.path))
            .collect();
        self.said
            .push((format!("events {when}"), format!("{events:?}")));
    }
}

/// Ids that a scheme may or may not have.
async fn ids(server: SocketAddr) -> Transcript {
    let mut client = Client::of(server).await;
    for (n, (scheme, id)) in [
        ("world", "anyone"),
        ("world", "everyone"),
        ("world", ""),
        ("World", "anyone"),
        ("nonsense", "x"),
        ("", ""),
        ("x509", "CN=a"),
        ("sasl", "a"),
        ("super", ""),
        ("super", "x"),
        ("ensemble", "x"),
        ("auth", ""),
        ("digest", "user:hash"),
        ("digest", "user"),
        ("digest", "user:"),
        ("digest", ":hash"),
        ("digest", "a:b:c"),
        ("digest", ""),
        ("ip", "127.0.0.1"),
        ("ip", "127.0.0.2"),
        ("ip", "127.0.0.0/8"),
        ("ip", "127.0.0.0/31"),
        ("ip", "127.0.0.2/31"),
        ("ip", "126.0.0.0/7"),
        ("ip", "128.0.0.0/1"),
        ("ip", "0.0.0.0/0"),
        ("ip", "10.0.0.0/33"),
        ("ip", "10.0.0.0/-1"),
        ("ip", "10.0.0.0/"),
        ("ip", "10.0.0.1/08"),
        ("ip", "10.0.0.1/+8"),
        ("ip", "10.0.0.0/8/9"),
        ("ip", "10.0.0"),
        ("ip", "10.0.0.256"),
        ("ip", "1.2.3.4.5"),
        ("ip", " 1.2.3.4"),
        ("ip", "localhost"),
        ("ip", "/8"),
        ("ip", ""),
        ("ip", ":::"),
        ("ip", "::1/129"),
        ("ip", "1:2:3:4:5:6:7:8:9"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/id{n}");
        let what = format!("{scheme}:{id}");
        client.ask(&what, create(&path, all(scheme, id))).await;
        client
            .ask(&what, set_acl("/nosuch", all(scheme, id), -1))
            .await;
        client
            .ask(
                &what,
                Request::GetData {
                    path: &path,
                    watch: false,
                },
            )
            .await;
        client.ask(&what, Request::GetAcl { path: &path }).await;
    }
    let both = vec![
        Acl::new(Perms::READ, "world", "anyone"),
        Acl::new(Perms::READ, "world", "anyone"),
        Acl::new(Perms::ALL, "world", "anyone"),
    ];
    client.ask("no entry", create("/none", Vec::new())).await;
    client.ask("twice", create("/twice", both)).await;
    client
        .ask("twice", Request::GetAcl { path: "/twice" })
        .await;
    for version in [3, 0, 0, 1, -1] {
        let what = format!("version {version}");
        client.ask(what, set_acl("/twice", open(), version)).await;
    }
    client.said
}

/// Every set of permissions, against every operation.
async fn permissions(server: SocketAddr) -> Transcript {
    let mut client = Client::of(server).await;
    for bits in 0..32 {
        let (path, child) = (format!("/p{bits}"), format!("/p{bits}/c"));
        let other = format!("{path}/d");
        let acl = || {
            let perms = Perms(bits);
            let somebody = Acl::new(Perms::ALL, "digest", SOMEBODY);
            vec![Acl::new(perms, "world", "anyone"), somebody]
        };
        client.ask("create", create(&path, open())).await;
        client.ask("create", create(&child, open())).await;
        let watch = false;
        for (op, request) in [
            ("close", set_acl(&path, acl(), -1)),
            ("getData", Request::GetData { path: &path, watch }),
            ("getChildren", Request::GetChildren { path: &path, watch }),
            ("getChildren2", Request::GetChildren2 { path: &path, watch }),
            ("count", Request::GetAllChildrenNumber { path: &path }),
            ("getACL", Request::GetAcl { path: &path }),
            ("setData", set(&path)),
            ("create below", create(&other, open())),
            ("delete below", delete(&child)),
            ("delete nothing below", delete("/p0/nothing")),
            ("delete it", delete(&path)),
            (
                "check",
                Request::Multi(vec![MultiOp::Check {
                    path: &path,
                    version: -1,
                }]),
            ),
            (
                "setData and delete",
                Request::Multi(vec![
                    MultiOp::SetData {
                        path: &path,
                        data: None,
                        version: -1,
                    },
                    MultiOp::Delete {
                        path: &other,
                        version: -1,
                    },
                ]),
            ),
            (
                "both reads",
                Request::MultiRead(vec![
                    MultiOp::GetData { path: &path, watch },
                    MultiOp::GetChildren { path: &path, watch },
                ]),
            ),
            ("setACL", set_acl(&path, acl(), -1)),
        ] {
            client.ask(format!("{op} with {bits}"), request).await;
        }
    }
    client.said
}

/// Credentials, what `auth` stands for, the superuser, and who sees a digest's hash.
async fn credentials(server: SocketAddr) -> Transcript {
    let mut said = Transcript::new();
    for scheme in [
        "nonsense", "world", "super", "auth", "x509", "sasl", "", "Digest",
    ] {
        let mut client = Client::of(server).await;
        client.authenticate(scheme, b"a:b").await;
        client
            .ask("afterwards", Request::GetAcl { path: "/" })
            .await;
        said.append(&mut client.said);
    }
    for scheme in ["digest", "ip", "nonsense"] {
        let mut client = Client::of(server).await;
        client.authenticate_or_null(scheme, None).await;
        client
            .ask("after null", create("/null", all("auth", "")))
            .await;
        said.append(&mut client.said);
    }
    for (n, auth) in [&b""[..], b"name", b"a:b:c", b":", b"\xff\xfe"]
        .iter()
        .enumerate()
    {
        let path = format!("/odd{n}");
        let mut client = Client::of(server).await;
        client.authenticate("digest", auth).await;
        client.ask("mine", create(&path, all("auth", ""))).await;
        client.ask("mine", Request::GetAcl { path: &path }).await;
        said.append(&mut client.said);
    }
    let mut owner = Client::of(server).await;
    owner.authenticate("ip", b"x").await;
    owner
        .ask("an address is nobody", create("/ip", all("auth", "")))
        .await;
    for auth in [&b"u:p"[..], b"u:p", b"v:q"] {
        owner.authenticate("digest", auth).await;
    }
    owner.ask("mine", create("/mine", all("auth", "x"))).await;
    owner.ask("mine", Request::GetAcl { path: "/mine" }).await;
    let masked = vec![
        Acl::new(Perms::READ, "auth", ""),
        Acl::new(Perms::READ, "world", "anyone"),
    ];
    owner.ask("masked", create("/masked", masked)).await;
    let mut stranger = Client::of(server).await;
    for path in ["/mine", "/masked"] {
        stranger.ask("a stranger", Request::GetAcl { path }).await;
        owner.ask("the owner", Request::GetAcl { path }).await;
        stranger.ask("a stranger", set(path)).await;
    }
    let mut root = Client::of(server).await;
    root.authenticate("digest", b"super:test").await;
    root.ask("root sees", Request::GetAcl { path: "/mine" })
        .await;
    root.ask("root", create("/root", all("auth", ""))).await;
    root.ask("root", Request::GetAcl { path: "/root" }).await;
    for request in [
        set("/mine"),
        delete("/p0/c"),
        set_acl("/p0", open(), -1),
        delete("/zookeeper"),
        set("/zookeeper/config"),
    ] {
        root.ask("root", request).await;
    }
    stranger.ask("config", set("/zookeeper/config")).await;
    for path in ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"] {
        stranger.ask(path, Request::GetAcl { path }).await;
    }
    for client in [&mut owner, &mut stranger, &mut root] {
        said.append(&mut client.said);
    }
    said
}

/// Checks that a session that may no longer read a znode receives no events of it.
async fn events(server: SocketAddr) -> Transcript {
    let mut writer = Client::of(server).await;
    let mut watcher = Client::of(server).await;
    let unread = || {
        let perms = Perms(Perms::ALL.0 & !Perms::READ.0);
        vec![Acl::new(perms, "world", "anyone")]
    };
    writer.ask("create", create("/w", open())).await;
    let watch = true;
    for request in [
        Request::GetData { path: "/w", watch },
        Request::GetChildren { path: "/w", watch },
        Request::AddWatch {
            path: "/w",
            mode: 1,
        },
        Request::Exists {
            path: "/later",
            watch,
        },
    ] {
        watcher.ask("watch", request).await;
    }
    for (when, requests) in [
        (
            "while nobody may read",
            vec![
                set_acl("/w", unread(), -1),
                set("/w"),
                create("/w/c", open()),
                create("/w/hidden", unread()),
                delete("/w/hidden"),
                create("/later", unread()),
            ],
        ),
        (
            "when everybody may read again",
            vec![
                set_acl("/w", open(), -1),
                set("/w"),
                delete("/w/c"),
                delete("/later"),
            ],
        ),
    ] {
        for request in requests {
            writer.ask("write", request).await;
        }
        watcher.ask("ping", Request::Ping).await;
        watcher.note_events(when);
    }
    watcher.said.append(&mut writer.said);
    watcher.said
}

/// Paths that break the rules, below a root that lets nobody delete: the client gets `NoAuth`
/// before any other error.
async fn closed_root(server: SocketAddr) -> Transcript {
    let mut client = Client::of(server).await;
    let perms = Perms(Perms::ALL.0 & !Perms::DELETE.0);
    let kept = vec![Acl::new(perms, "world", "anyone")];
    client.ask("close", set_acl("/", kept, -1)).await;
    for path in ["//a", "//", "///", "//w", "/nosuch", "/w/", "/", "a", "w/"] {
        client.ask(format!("delete {path}"), delete(path)).await;
    }
    client.ask("open", set_acl("/", open(), -1)).await;
    client.said
}

async fn transcript(server: SocketAddr) -> Transcript {
    let mut all = ids(server).await;
    all.append(&mut permissions(server).await);
    all.append(&mut credentials(server).await);
    all.append(&mut events(server).await);
    all.append(&mut closed_root(server).await);
    all
}

fn text(transcript: &Transcript) -> String {
    let lines = transcript.iter();
    let lines = lines.map(|(asked, said)| format!("{}: {said}\n", asked.escape_debug()));
    lines.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn acls_and_credentials_mean_what_was_recorded_of_zookeeper() {
    let baton = Server::builder()
        .in_memory()
        .listen("127.0.0.1:0")
        .with(|options| options.super_digest = Some(SUPER.to_owned()))
        .start()
        .await
        .unwrap();
    let ours = transcript(baton.local_addr().unwrap()).await;
    assert!(ours.len() > 700, "{}", ours.len());
    golden::compare(GOLDEN, &text(&ours));
    // That there was something to compare.
    for code in [
        ErrorCode::NoAuth,
        ErrorCode::InvalidAcl,
        ErrorCode::AuthFailed,
    ] {
        assert!(
            ours.iter().any(|(_, said)| *said == format!("{code:?}")),
            "{code}"
        );
    }
}

/// After a change to what is asked:
/// `BATON_RECORD_GOLDEN=1 cargo test -p baton-testkit --test suite acl::`.
#[tokio::test(flavor = "multi_thread")]
async fn zookeeper_answers_as_was_recorded() {
    if !zookeeper_or_skip() {
        return;
    }
    let with_super = ServerOptions {
        java_args: vec![format!(
            "-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER}"
        )],
        ..ServerOptions::default()
    };
    let zookeeper = TestServer::start_with(Target::ZooKeeper, with_super)
        .await
        .unwrap();
    golden::compare_or_record(GOLDEN, &text(&transcript(zookeeper.addr()).await));
}
