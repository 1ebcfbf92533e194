//! The servers of an ensemble in `/zookeeper/config`: every replica decides a change alike, in
//! ZooKeeper's order.

use baton_proto::{ErrorCode, Request, Response};
use baton_tree::{
    ChangeKind, Command, FormatLevel, Identity, ListChange, MAX_CHUNK_BYTES, ServerList, Tree,
};
use proptest::prelude::*;

use crate::common::{Driver, drain, restore, tree_at};

const PATH: &str = "/zookeeper/config";
const FIRST: &str = "server.1=a:1:1:participant\nserver.2=b:1:1:participant\nversion=0";

fn body(joining: Option<&str>, new_members: Option<&str>, config_id: i64) -> Vec<u8> {
    let request = Request::Reconfig {
        joining,
        leaving: None,
        new_members,
        config_id,
    };
    let mut body = Vec::new();
    request.encode(&mut body);
    body
}

fn superuser() -> Identity {
    let mut identity = Identity::anonymous();
    identity.add("super", "");
    identity
}

fn listed(tree: &Tree) -> String {
    let (data, stat) = tree.get_data(PATH, &Identity::anonymous()).unwrap();
    if tree.servers().is_some() {
        assert_eq!(stat.version, -1, "as ZooKeeper shows it");
    }
    String::from_utf8(data.unwrap_or_default().to_vec()).unwrap()
}

/// Applies it, given by `session`, as `identity`.
fn reconfigure(
    tree: &mut Tree,
    session: i64,
    identity: &Identity,
    refusal: i32,
    body: &[u8],
) -> Result<Response, ErrorCode> {
    let command = Command::Reconfigure { refusal, body };
    tree.apply(5, session, identity, command, &mut ()).result
}

/// A tree that lists two servers.
fn with_list() -> Tree {
    let mut tree = tree_at(FormatLevel::Members);
    let first = body(None, Some(FIRST), -1);
    reconfigure(&mut tree, 0, &Identity::anonymous(), 0, &first).unwrap();
    let open = Command::OpenSession {
        session_id: 7,
        password: [0; 16],
        timeout_ms: 1000,
    };
    tree.apply(5, 7, &Identity::anonymous(), open, &mut ());
    tree
}

#[test]
fn the_first_list_is_taken_once_and_from_the_server_only() {
    let mut tree = tree_at(FormatLevel::Members);
    let nobody = Identity::anonymous();
    let first = body(None, Some(FIRST), -1);
    assert_eq!(
        reconfigure(&mut tree, 7, &superuser(), 0, &first),
        Err(ErrorCode::SessionExpired)
    );
    reconfigure(&mut tree, 0, &nobody, 0, &first).unwrap();
    let zxid = tree.zxid();
    assert_eq!(listed(&tree), FIRST.replace("=0", &format!("={zxid:x}")));
    let again = reconfigure(&mut tree, 0, &nobody, 0, &first);
    assert_eq!(again, Err(ErrorCode::BadVersion));
    assert_eq!(tree.servers().unwrap().version, zxid);
}

#[test]
fn a_change_is_answered_with_the_new_list_and_notifies() {
    let mut tree = with_list();
    let change = body(Some("server.3=c:1:1:observer;2"), None, -1);
    struct RecordedChange(Vec<(ChangeKind, String)>);
    impl baton_tree::Effects for RecordedChange {
        fn event(&mut self, change: baton_tree::Change<'_>) {
            self.0.push((change.kind, change.path.to_owned()));
        }
    }
    let mut seen = RecordedChange(Vec::new());
    let command = Command::Reconfigure {
        refusal: 0,
        body: &change,
    };
    let outcome = tree.apply(6, 7, &superuser(), command, &mut seen);
    let Ok(Response::Data { data, stat }) = outcome.result else {
        panic!("{:?}", outcome.result);
    };
    assert_eq!(seen.0, [(ChangeKind::DataChanged, PATH.to_owned())]);
    assert_eq!(data.unwrap(), listed(&tree).as_bytes());
    assert_eq!((stat.mzxid, stat.version), (outcome.zxid, -1));
    let list = tree.servers().unwrap();
    assert_eq!(list.version, outcome.zxid);
    assert!(list.servers[&3].is_observer);
    // A replica that restores this has the same list, and the same digest.
    tree.begin_snapshot().unwrap();
    let restored = restore(&drain(&mut tree, MAX_CHUNK_BYTES)).unwrap();
    assert_eq!(restored.servers(), tree.servers());
    assert_eq!(restored.digest(), tree.digest());
}

#[test]
fn refusals_come_in_zookeepers_order_and_change_nothing() {
    let mut tree = with_list();
    let before = listed(&tree);
    let nobody = Identity::anonymous();
    let good = body(Some("server.3=c:1:1:participant;2"), None, -1);
    let in_progress = ErrorCode::ReconfigInProgress;
    for (refusal, change, expected) in [
        (in_progress.code(), body(Some("x"), None, 99), in_progress),
        (0, body(Some("x"), None, 99), ErrorCode::BadVersion),
        (0, body(Some("x"), None, -1), ErrorCode::BadArguments),
        (0, good.clone(), ErrorCode::NoAuth),
        (0, b"x".to_vec(), ErrorCode::MarshallingError),
    ] {
        let zxid = tree.zxid();
        let refused = reconfigure(&mut tree, 7, &nobody, refusal, &change);
        assert_eq!(refused, Err(expected));
        assert_eq!(tree.zxid(), zxid + 1, "it takes its zxid");
    }
    assert_eq!(listed(&tree), before);
    reconfigure(&mut tree, 7, &superuser(), 0, &good).unwrap();
    assert_ne!(listed(&tree), before);
}

#[test]
fn r20_a_new_cluster_leaves_zxids_out_and_lists_its_own_servers() {
    let mut tree = with_list();
    let zxid = tree.zxid();
    tree.begin_new_cluster(zxid + (1 << 20));
    tree.begin_new_cluster(zxid);
    assert_eq!((tree.zxid(), tree.servers()), (zxid + (1 << 20), None));
    tree.begin_snapshot().unwrap();
    let restored = restore(&drain(&mut tree, MAX_CHUNK_BYTES)).unwrap();
    assert_eq!(restored.digest(), tree.digest());
    let other = body(None, Some("server.9=z:1:1:participant"), -1);
    reconfigure(&mut tree, 0, &Identity::anonymous(), 0, &other).unwrap();
    assert_eq!(tree.servers().unwrap().version, zxid + (1 << 20) + 1);
}

#[test]
fn r39_before_level_3_the_list_does_not_change() {
    let mut tree = tree_at(FormatLevel::Attachments);
    let first = body(None, Some(FIRST), -1);
    let refused = reconfigure(&mut tree, 0, &Identity::anonymous(), 0, &first);
    assert_eq!(refused, Err(ErrorCode::ReconfigDisabled));
    assert_eq!(listed(&tree), "");
}

#[test]
fn a_list_is_written_by_changes_of_the_servers_only() {
    let mut driver = Driver::over(with_list());
    driver.identity = superuser();
    let written = driver.set(PATH, b"server.9=x", -1);
    assert_eq!(written, Err(ErrorCode::BadArguments));
    let mut alone = Driver::over(Tree::new());
    alone.identity = superuser();
    alone.set(PATH, b"server.9=x", -1).unwrap();
}

proptest! {
    #![proptest_config(crate::common::cases(512))]

    /// Texts that are almost those of servers: nothing panics, and what is accepted is shown in a
    /// form that reads back as the same.
    #[test]
    fn no_text_of_servers_makes_the_parser_panic_and_lists_read_back(
        joining in "(server[.=]|[0-9]{1,3}|[a-z\\[\\]:;,=.| ]|:participant|:observer|0){0,40}",
        whole in "(server\\.[1-9]=[a-c]:[0-9]{1,4}:[0-9]{1,6}(:observer|:participant)?(;[0-9]{1,5})?[,\\n]){0,6}",
        leaving in "[0-9, ]{0,8}",
        garbage in any::<String>(),
    ) {
        let list = ServerList::read(FIRST).unwrap();
        for text in [&joining, &whole, &garbage] {
            drop(ServerList::read(text));
            for (joining, new_members) in [(Some(&**text), None), (None, Some(&**text))] {
                let change = ListChange {
                    joining,
                    leaving: Some(&leaving),
                    new_members,
                    config_id: -1,
                    takes_bare_ids: true,
                    is_bounded: true,
                };
                if let Ok(next) = list.after(&change) {
                    prop_assert_eq!(ServerList::read(&next.to_string()), Some(next));
                }
            }
        }
    }
}
