//! Data that an ACL closes stays closed, whatever a client without the permission asks for and
//! wherever it listens: operations, watches, four-letter words, HTTP.

use baton_proto::{
    Acl, AddWatchMode, AuthPacket, Create, CreateMode, ErrorCode, MultiOp, Perms, Request,
};
use serde_json::Value;

use crate::support::http::get;
use crate::support::{Frame, Wire, set, with_words, word};

/// The data of the closed znode. Nothing else here has these letters in it.
const SECRET: &str = "quietly-kept";
/// The name of a child of it.
const HIDDEN: &str = "unlisted";
const CLOSED: &str = "/closed";

/// Every word that lists something.
const WORDS: [&str; 15] = [
    "ruok", "srvr", "stat", "isro", "mntr", "cons", "conf", "envi", "dump", "wchs", "wchc", "wchp",
    "dirs", "hash", "gtmk",
];

fn owned<'a>(path: &'a str, data: &'a [u8]) -> Request<'a> {
    let acl = vec![Acl::new(Perms::ALL, "auth", "")];
    Request::Create(Create::new(path, Some(data), acl, CreateMode::Persistent))
}

/// Everything that reads, and everything that fails with a text or a number of what is there.
fn attempts() -> Vec<Request<'static>> {
    let (path, version) = (CLOSED, 0);
    vec![
        Request::GetData { path, watch: true },
        Request::GetAcl { path },
        Request::GetChildren { path, watch: true },
        Request::GetChildren2 { path, watch: true },
        Request::GetAllChildrenNumber { path },
        Request::GetEphemerals { prefix: path },
        Request::MultiRead(vec![
            MultiOp::GetData { path, watch: false },
            MultiOp::GetChildren { path, watch: false },
        ]),
        Request::SetData {
            path,
            data: None,
            version,
        },
        Request::SetAcl {
            path,
            acl: Some(vec![Acl::open_unsafe()]),
            version,
        },
        Request::Multi(vec![
            MultiOp::Check { path, version: 7 },
            MultiOp::SetData {
                path,
                data: None,
                version,
            },
        ]),
        Request::Multi(vec![MultiOp::Check { path, version }]),
        Request::SetWatches {
            relative_zxid: 0,
            data: vec![path],
            exist: vec![],
            child: vec![path],
        },
        Request::AddWatch {
            path,
            mode: AddWatchMode::PersistentRecursive as i32,
        },
        Request::AddWatch {
            path: "/",
            mode: AddWatchMode::PersistentRecursive as i32,
        },
        Request::Sync { path },
        Request::WhoAmI,
    ]
}

fn assert_silent(where_from: &str, shown: &[u8]) {
    for secret in [SECRET, HIDDEN, "aGFzaA"] {
        let secret = secret.as_bytes();
        let is_shown = shown.windows(secret.len()).any(|part| part == secret);
        assert!(
            !is_shown,
            "{where_from}: {}",
            String::from_utf8_lossy(shown)
        );
    }
}

#[tokio::test]
async fn a24_what_an_acl_closes_is_shown_by_no_operation_watch_word_or_page() {
    let server = with_words().http("127.0.0.1:0").start().await.unwrap();
    let to = server.connect_string();
    let mut owner = Wire::open(&to).await;
    let credentials = Request::Auth(AuthPacket {
        kind: 0,
        scheme: "digest",
        auth: Some(b"alice:secret"),
    });
    owner.send(&[credentials]).await;
    assert_eq!(owner.reply().await.0.error(), ErrorCode::Ok);
    owner.call(owned(CLOSED, SECRET.as_bytes())).await.unwrap();
    let child = format!("{CLOSED}/{HIDDEN}");
    owner.call(owned(&child, SECRET.as_bytes())).await.unwrap();

    let mut stranger = Wire::open(&to).await;
    let mut refused = 0;
    for attempt in attempts() {
        stranger.send(std::slice::from_ref(&attempt)).await;
        let (header, body) = stranger.reply().await;
        assert_silent(&format!("{attempt:?}"), &body);
        refused += usize::from(header.error() == ErrorCode::NoAuth);
    }
    // Data, children (two forms), their number, and three changes.
    assert!(refused >= 7, "{refused}");
    // Its watches say nothing of what changes there, and they work.
    owner.call(set(CLOSED, SECRET.as_bytes())).await.unwrap();
    owner.call(set(&child, b"")).await.unwrap();
    let deleted = Request::Delete {
        path: &child,
        version: -1,
    };
    owner.call(deleted).await.unwrap();
    owner.create("/open", b"", 0).await.unwrap();
    loop {
        let frame = stranger.next().await.unwrap();
        let Frame::Event(_, event) = frame else {
            panic!("{frame:?}");
        };
        assert_silent("an event", event.path.as_bytes());
        if event.path == "/open" {
            break;
        }
    }
    owner.call(owned(&child, SECRET.as_bytes())).await.unwrap();
    for name in WORDS {
        assert_silent(name, word(&to, name).await.as_bytes());
    }
    let http = server.http_addr().unwrap();
    let (status, index) = get(http, "/commands").await;
    assert_eq!(status, 200);
    let index: Value = serde_json::from_str(&index).unwrap();
    let commands = index["commands"].as_object().unwrap();
    assert!(commands.len() > 15, "{index}");
    for command in commands.keys() {
        let (_, page) = get(http, &format!("/commands/{command}")).await;
        assert_silent(command, page.as_bytes());
    }
    assert_silent("/metrics", get(http, "/metrics").await.1.as_bytes());
    // Existence is not secret in this protocol: NoNode and NoAuth tell it, so timing adds nothing.
    let path = "/none";
    let answer = stranger.call(Request::GetData { path, watch: false }).await;
    assert_eq!(answer, Err(ErrorCode::NoNode));
}
