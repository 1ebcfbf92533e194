//! The servers of an ensemble change while it runs, and what is acknowledged meanwhile stays.

use std::collections::BTreeSet;
use std::time::Duration;

use baton_proto::{ErrorCode, EventKind, Request, Response};
use baton_server::Server;
use baton_server::offline::{NewCluster, OfflineError, found_cluster};
use baton_wal::WalError;
use tokio::net::TcpListener;

use crate::support::ensemble::{Ensemble, be_superuser, sync};
use crate::support::http::ask;
use crate::support::{PATIENCE, Wire, create, set, watched, word};

const CONFIG: &str = "/zookeeper/config";
pub(crate) const SEQUENTIAL: i32 = 2;

/// A change of the servers.
pub(crate) fn change<'a>(joining: Option<&'a str>, leaving: Option<&'a str>) -> Request<'a> {
    Request::Reconfig {
        joining,
        leaving,
        new_members: None,
        config_id: -1,
    }
}

pub(crate) async fn reconfig(wire: &mut Wire, request: Request<'_>) -> Result<String, ErrorCode> {
    match wire.call(request).await? {
        Response::Data { data, .. } => {
            Ok(String::from_utf8(data.unwrap_or_default().to_vec()).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn superuser(ensemble: &Ensemble, id: u64) -> Wire {
    let mut wire = ensemble.open(id).await;
    be_superuser(&mut wire).await;
    wire
}

/// Adds a server that waits to be admitted, or is about to: until it has asked for that, its
/// addition is refused.
async fn add(wire: &mut Wire, server: &str) -> String {
    let added = async {
        loop {
            match reconfig(wire, change(Some(server), None)).await {
                Ok(list) => return list,
                Err(code) => assert_eq!(code, ErrorCode::NewConfigNoQuorum),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let added = tokio::time::timeout(PATIENCE, added).await;
    added.expect("the server waits")
}

/// Waits until one more server asks three to be admitted: with two that nobody has met, most of the
/// voters would be in reach only with it.
pub(crate) async fn asks_to_join(ensemble: &Ensemble, server: &str) {
    let mut nobody = ensemble.open(1).await;
    let unknown = [8, 9].map(|id| format!("server.{id}=127.0.0.1:{id}:{id}:participant;{id}"));
    let joining = format!("{server},{}", unknown.join(","));
    let asked = async {
        loop {
            match reconfig(&mut nobody, change(Some(&joining), None)).await {
                Err(ErrorCode::NoAuth) => return,
                other => assert_eq!(other, Err(ErrorCode::NewConfigNoQuorum)),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let asked = tokio::time::timeout(PATIENCE, asked).await;
    asked.expect("the server asks for admission");
}

/// Removes a server, once enough of the others are in reach: they may have just started.
async fn remove(wire: &mut Wire, id: u64) -> String {
    let removed = async {
        loop {
            match reconfig(wire, change(None, Some(&id.to_string()))).await {
                Ok(list) => return list,
                Err(code) => assert_eq!(code, ErrorCode::NewConfigNoQuorum),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let removed = tokio::time::timeout(PATIENCE, removed).await;
    removed.expect("the others are in reach")
}

/// The list at this server, once it has one.
pub(crate) async fn list_at(ensemble: &Ensemble, id: u64) -> String {
    let mut wire = ensemble.open(id).await;
    let listed = async {
        loop {
            sync(&mut wire).await;
            let list = wire.get(CONFIG).await.unwrap();
            if !list.is_empty() {
                return String::from_utf8(list).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let listed = tokio::time::timeout(PATIENCE, listed).await;
    listed.expect("the leader lists the servers")
}

pub(crate) async fn children(wire: &mut Wire, path: &str) -> usize {
    let list = Request::GetChildren { path, watch: false };
    match wire.call(list).await.unwrap() {
        Response::Children(found) => found.len(),
        other => panic!("{other:?}"),
    }
}

/// Makes this change, which servers that start or wait may delay.
pub async fn make(wire: &mut Wire, joining: &[String], leaving: &[u64]) -> String {
    let joining = joining.join(",");
    let leaving: Vec<String> = leaving.iter().map(u64::to_string).collect();
    let leaving = leaving.join(",");
    let request = change(Some(&joining), Some(&leaving));
    let made = async {
        loop {
            match reconfig(wire, request.clone()).await {
                Ok(list) => return list,
                Err(code) => assert_eq!(code, ErrorCode::NewConfigNoQuorum),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let made = tokio::time::timeout(PATIENCE, made).await;
    made.expect("the members change")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_lists_the_servers_and_notifies_of_a_change() {
    let mut ensemble = Ensemble::start(3).await;
    let expected: Vec<String> = (1..=3)
        .map(|id| {
            let named = ensemble.name(id, "participant");
            named.split(';').next().unwrap().to_owned()
        })
        .collect();
    let mut watchers = Vec::new();
    for id in ensemble.ids() {
        let list = list_at(&ensemble, id).await;
        let mut lines: Vec<&str> = list.lines().collect();
        let version = lines.pop().unwrap().strip_prefix("version=").unwrap();
        assert!(i64::from_str_radix(version, 16).unwrap() > 0);
        assert_eq!(lines, expected);
        let mut wire = ensemble.open(id).await;
        wire.call(watched(CONFIG)).await.unwrap();
        watchers.push(wire);
    }
    let mut wire = superuser(&ensemble, 2).await;
    // An observer that nobody has met.
    let observer = "server.100=0.0.0.0:1:2:observer;0.0.0.0:3";
    let list = reconfig(&mut wire, change(Some(observer), None)).await;
    assert!(list.unwrap().contains(observer));
    for watcher in &mut watchers {
        let event = watcher.event().await;
        let is_changed = (event.kind, &*event.path) == (EventKind::NodeDataChanged, CONFIG);
        assert!(is_changed);
        let list = String::from_utf8(watcher.get(CONFIG).await.unwrap()).unwrap();
        assert!(list.contains(observer));
    }
    let list = reconfig(&mut wire, change(None, Some("100"))).await;
    assert!(!list.unwrap().contains(observer));
    let written = wire.call(set(CONFIG, b"server.1=x")).await;
    assert_eq!(written, Err(ErrorCode::BadArguments), "only by a reconfig");
}

#[tokio::test(flavor = "multi_thread")]
async fn r15_three_servers_become_five_and_three_again_while_clients_write() {
    let mut ensemble = Ensemble::start(3).await;
    let mut writer = ensemble.open(1).await;
    writer.create("/q", b"", 0).await.unwrap();
    let mut created = 0;
    let mut wire = superuser(&ensemble, 2).await;
    for id in [4, 5] {
        let server = ensemble.name(id, "participant");
        let waiting = ensemble.start_waiting(id);
        for _ in 0..20 {
            writer.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
            created += 1;
        }
        add(&mut wire, &server).await;
        ensemble.admitted(id, waiting).await;
        let mut at_new = ensemble.open(id).await;
        sync(&mut at_new).await;
        assert_eq!(children(&mut at_new, "/q").await, created);
        at_new.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
        created += 1;
        assert!(list_at(&ensemble, id).await.contains(&server));
    }
    // Any two may fail now.
    ensemble.kill(1).await;
    ensemble.kill(3).await;
    let mut writer = ensemble.open(4).await;
    writer.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
    created += 1;
    ensemble.start_all(&[1, 3]).await;
    let leader = ensemble.leader().await;
    let leave = [4, 5].into_iter().chain(1..=3).filter(|id| *id != leader);
    let leave: Vec<u64> = leave.take(2).collect();
    let stays = (1..=5).find(|id| !leave.contains(id)).unwrap();
    let mut wire = superuser(&ensemble, stays).await;
    for id in &leave {
        let left = remove(&mut wire, *id).await;
        assert!(!left.contains(&format!("server.{id}=")));
    }
    for id in leave {
        ensemble.kill(id).await;
    }
    wire.create("/q/n-", b"", SEQUENTIAL).await.unwrap();
    created += 1;
    for id in ensemble.ids() {
        let mut wire = ensemble.open(id).await;
        sync(&mut wire).await;
        assert_eq!(children(&mut wire, "/q").await, created);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r17_a_server_whose_folder_is_lost_comes_back_after_its_removal() {
    let mut ensemble = Ensemble::start(3).await;
    let mut wire = superuser(&ensemble, 1).await;
    wire.create("/kept", b"1", 0).await.unwrap();
    let server = ensemble.name(3, "participant");
    ensemble.kill(3).await;
    ensemble.lose_folder(3);
    let waiting = ensemble.start_waiting(3);
    reconfig(&mut wire, change(None, Some("3"))).await.unwrap();
    add(&mut wire, &server).await;
    ensemble.admitted(3, waiting).await;
    let mut at_new = ensemble.open(3).await;
    sync(&mut at_new).await;
    assert_eq!(at_new.get("/kept").await.unwrap(), b"1");
    // It votes: with it, one of the others may fail, and it finds its way back.
    ensemble.kill(2).await;
    at_new.create("/more", b"", 0).await.unwrap();
    ensemble.kill(3).await;
    ensemble.start_all(&[2, 3]).await;
    let mut at_new = ensemble.open(3).await;
    sync(&mut at_new).await;
    assert!(at_new.exists("/more").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn r17_a_server_that_loses_its_folder_while_it_is_admitted_is_admitted_with_the_next_one() {
    let mut ensemble = Ensemble::start(3).await;
    list_at(&ensemble, 1).await;
    let server = ensemble.name(4, "participant");
    let waiting = ensemble.start_waiting(4);
    asks_to_join(&ensemble, &server).await;
    waiting.abort();
    assert!(waiting.await.is_err(), "it was not admitted");
    let is_free = async {
        while TcpListener::bind(ensemble.peer_address(4)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let is_free = tokio::time::timeout(PATIENCE, is_free).await;
    is_free.expect("the start ends");
    ensemble.lose_folder(4);
    // The leader has it in mind with the folder that is gone, and makes that one a learner.
    let mut wire = superuser(&ensemble, 1).await;
    let added = tokio::spawn({
        let server = server.clone();
        async move { reconfig(&mut wire, change(Some(&server), None)).await }
    });
    let is_learner = async {
        let leader = ensemble.leader().await;
        let http = ensemble.server(leader).http_addr().unwrap();
        let known = "baton_server_match_index{server=\"4\"}";
        while !ask(http, "GET", "/metrics", "", "").await.1.contains(known) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let is_learner = tokio::time::timeout(PATIENCE, is_learner).await;
    is_learner.expect("the leader admits it");
    let waiting = ensemble.start_waiting(4);
    // The very first request succeeds: it is not refused because nobody comes with that folder.
    added.await.unwrap().unwrap();
    ensemble.admitted(4, waiting).await;
    let mut at_new = ensemble.open(4).await;
    sync(&mut at_new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r16_a_leader_that_is_removed_hands_over_and_disturbs_nobody() {
    let mut ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let mut wire = superuser(&ensemble, leader).await;
    let list = remove(&mut wire, leader).await;
    assert!(!list.contains(&format!("server.{leader}=")));
    // It serves no clients any more.
    assert!(wire.is_closed().await);
    let next = ensemble.leader().await;
    assert_ne!(next, leader);
    let other = ensemble.ids().into_iter();
    let other = other.filter(|id| ![leader, next].contains(id)).min();
    let mut wire = superuser(&ensemble, other.unwrap()).await;
    wire.create("/without", b"", 0).await.unwrap();
    assert_eq!(ensemble.leader().await, next, "nobody disturbs it");
    // With its folder it may come back.
    let server = ensemble.name(leader, "participant");
    ensemble.kill(leader).await;
    ensemble.start_all(&[leader]).await;
    add(&mut wire, &server).await;
    let mut wire = ensemble.open(leader).await;
    sync(&mut wire).await;
    assert!(wire.exists("/without").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn r16_a_follower_that_is_removed_serves_nobody_and_disturbs_nobody() {
    let ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let removed = (1..=3).find(|id| *id != leader).unwrap();
    let mut at_removed = ensemble.open(removed).await;
    let mut wire = superuser(&ensemble, leader).await;
    let left = reconfig(&mut wire, change(None, Some(&removed.to_string()))).await;
    assert_eq!(left.unwrap().lines().count(), 3);
    assert!(at_removed.is_closed().await);
    for _ in 0..20 {
        wire.send(&[Request::Ping]).await;
        wire.reply().await;
        wire.create("/w", b"", SEQUENTIAL).await.unwrap();
    }
    assert_eq!(ensemble.leader().await, leader);
}

/// Asks a server to hand its leadership over.
async fn transfer(ensemble: &Ensemble, id: u64, to: u64) -> (u16, String) {
    let root = "Authorization: digest super:secret\r\n";
    let http = ensemble.server(id).http_addr().unwrap();
    let target = format!("/commands/transfer?to={to}");
    ask(http, "POST", &target, root, "").await
}

/// Waits until this server leads.
async fn leads(ensemble: &Ensemble, id: u64) {
    let moved = async {
        while ensemble.leader().await != id {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let moved = tokio::time::timeout(PATIENCE, moved).await;
    moved.expect("the other server leads");
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_moves_where_an_operator_wants_it() {
    let ensemble = Ensemble::start(3).await;
    let leader = ensemble.leader().await;
    let next = (1..=3).find(|id| *id != leader).unwrap();
    let mut wire = ensemble.open(next).await;
    let post = async |id: u64, to: u64| transfer(&ensemble, id, to).await;
    for (id, to, why) in [
        (leader, leader, "leads already"),
        (leader, 9, "does not vote"),
        (next, leader, "does not lead"),
    ] {
        let (status, shown) = post(id, to).await;
        assert_eq!(status, 409, "{shown}");
        assert!(shown.contains(why), "{shown}");
    }
    let (status, shown) = post(leader, next).await;
    assert_eq!(status, 200, "{shown}");
    leads(&ensemble, next).await;
    wire.create("/same-session", b"", 0).await.unwrap();
}

/// With an empty folder a server begins with the first membership, which lacks that leader.
#[tokio::test(flavor = "multi_thread")]
async fn r41_an_added_server_catches_up_with_a_leader_that_was_added_itself() {
    let mut ensemble = Ensemble::start(3).await;
    let mut wire = superuser(&ensemble, 1).await;
    for id in [4, 5] {
        let named = ensemble.name(id, "participant");
        let waiting = ensemble.start_waiting(id);
        add(&mut wire, &named).await;
        ensemble.admitted(id, waiting).await;
        wire.create(&format!("/with-{id}"), b"", 0).await.unwrap();
        let mut joined = ensemble.open(id).await;
        sync(&mut joined).await;
        assert!(joined.exists(&format!("/with-{id}")).await);
        if id == 4 {
            let leader = ensemble.leader().await;
            let (status, shown) = transfer(&ensemble, leader, 4).await;
            assert_eq!(status, 200, "{shown}");
            leads(&ensemble, 4).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn observers_serve_clients_and_never_vote() {
    let mut ensemble = Ensemble::unstarted(4);
    ensemble.observers = BTreeSet::from([4]);
    ensemble.start_all(&[1, 2, 3, 4]).await;
    let mut wire = ensemble.open(4).await;
    wire.create("/from-observer", b"", 0).await.unwrap();
    for _ in 0..2 {
        wire.send(&[Request::Ping]).await;
        wire.reply().await;
    }
    let shown = word(&ensemble.address(4), "srvr").await;
    assert!(shown.contains("Mode: observer"), "{shown}");
    assert!(list_at(&ensemble, 4).await.contains(":observer"));
    // A leader that stops hands over to a voter.
    let leader = ensemble.leader().await;
    ensemble.stop(leader).await;
    wire.create("/handed-over", b"", 0).await.unwrap();
    ensemble.start_all(&[leader]).await;
    // With two of three voters the ensemble goes on; with one of them and the observer it does not.
    let leader = ensemble.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    ensemble.kill(others[0]).await;
    wire.create("/with-two", b"", 0).await.unwrap();
    ensemble.kill(others[1]).await;
    wire.send(&[create("/with-one", b"", 0)]).await;
    assert!(wire.is_closed().await, "without an answer");
    ensemble.start_all(&others).await;
    let mut wire = superuser(&ensemble, 4).await;
    sync(&mut wire).await;
    assert!(wire.exists("/with-two").await);
    // It becomes a voter, and an observer again.
    let voter = ensemble.name(4, "participant");
    let list = reconfig(&mut wire, change(Some(&voter), None)).await;
    assert!(list.unwrap().contains(&voter));
    let observer = ensemble.name(4, "observer");
    let list = reconfig(&mut wire, change(Some(&observer), None)).await;
    assert!(list.unwrap().contains(&observer));
    wire.create("/still-here", b"", 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r13_a_second_change_meanwhile_is_refused_and_the_first_has_an_outcome() {
    let mut ensemble = Ensemble::start(3).await;
    let server = ensemble.name(4, "participant");
    let waiting = ensemble.start_waiting(4);
    asks_to_join(&ensemble, &server).await;
    // It goes before it can catch up.
    waiting.abort();
    let mut first = superuser(&ensemble, 1).await;
    first.send(&[change(Some(&server), None)]).await;
    let mut second = superuser(&ensemble, 1).await;
    let observer = "server.100=0.0.0.0:1:2:observer;0.0.0.0:3";
    let meanwhile = async {
        // Until the first one is under way.
        while reconfig(&mut second, change(Some(observer), None)).await
            != Err(ErrorCode::ReconfigInProgress)
        {}
    };
    let meanwhile = tokio::time::timeout(PATIENCE, meanwhile).await;
    meanwhile.expect("the second change is refused");
    second.create("/others-go-on", b"", 0).await.unwrap();
    let (header, _) = first.reply().await;
    assert_eq!(header.error(), ErrorCode::Ok);
    let list = reconfig(&mut second, change(Some(observer), None)).await;
    assert!(
        list.unwrap().contains(&server),
        "it may catch up and vote later"
    );
    // Three of four would have to go on if it voted.
    let leader = ensemble.leader().await;
    let (one, other) = match leader {
        3 => (1, 2),
        _ => (3 - leader, 3),
    };
    let mut wire = ensemble.open(other).await;
    ensemble.kill(one).await;
    wire.create("/two-of-three", b"", 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voter_that_does_not_run_is_listed_where_the_others_are_a_quorum_and_votes_once_it_runs()
{
    let mut ensemble = Ensemble::start(3).await;
    let mut wire = superuser(&ensemble, 1).await;
    let absent = [4, 5, 6].map(|id| ensemble.name(id, "participant"));
    let all = absent.join(",");
    let refused = reconfig(&mut wire, change(Some(&all), None)).await;
    let why = "three of six are no majority";
    assert_eq!(refused, Err(ErrorCode::NewConfigNoQuorum), "{why}");
    let both = absent[..2].join(",");
    let list = reconfig(&mut wire, change(Some(&both), None)).await;
    let list = list.unwrap();
    assert!(list.contains(&absent[0]) && list.contains(&absent[1]));
    // Until it has caught up it is not a voter that the others would need.
    wire.create("/kept", b"1", 0).await.unwrap();
    ensemble.kill(2).await;
    wire.create("/with-two", b"", 0).await.unwrap();
    ensemble.start_all(&[2]).await;
    let waiting = ensemble.start_waiting(4);
    ensemble.admitted(4, waiting).await;
    let mut at_new = ensemble.open(4).await;
    sync(&mut at_new).await;
    assert_eq!(at_new.get("/kept").await.unwrap(), b"1");
    // The other one is removed without having been there.
    let list = remove(&mut wire, 5).await;
    assert!(!list.contains("server.5="));
    ensemble.votes(2).await;
    ensemble.kill(1).await;
    at_new.create("/three-of-four", b"", 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_removed_and_added_again_at_once_votes_again() {
    let ensemble = Ensemble::start(3).await;
    list_at(&ensemble, 1).await;
    for round in 0..6 {
        let id = round % 3 + 1;
        let stays = id % 3 + 1;
        let server = ensemble.name_of(id, "participant");
        let mut wire = superuser(&ensemble, stays).await;
        let left = reconfig(&mut wire, change(None, Some(&id.to_string()))).await;
        assert!(left.unwrap().lines().count() == 3, "{round}");
        let list = reconfig(&mut wire, change(Some(&server), None)).await;
        assert!(list.unwrap().contains(&server), "{round}");
        let mut again = ensemble.open(id).await;
        sync(&mut again).await;
        ensemble.votes(id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r12_a_change_under_way_when_the_leader_dies_is_carried_out_by_the_next() {
    let mut ensemble = Ensemble::start(3).await;
    let server = ensemble.name(4, "participant");
    let mut waiting = Some(ensemble.start_waiting(4));
    for round in 0..3 {
        let leader = ensemble.leader().await;
        let follower = (1..=3).find(|id| *id != leader).unwrap();
        let mut wire = superuser(&ensemble, follower).await;
        if round == 0 {
            wire.send(&[change(Some(&server), None)]).await;
        } else {
            // The same list again: a change without another member.
            let observer = "server.100=0.0.0.0:1:2:observer;0.0.0.0:3";
            wire.send(&[change(Some(observer), None)]).await;
        }
        ensemble.kill(leader).await;
        let (header, _) = wire.reply().await;
        let answer = header.error();
        let is_final = [ErrorCode::Ok, ErrorCode::NewConfigNoQuorum].contains(&answer);
        assert!(is_final, "{answer}");
        wire.create("/after-", b"", SEQUENTIAL).await.unwrap();
        ensemble.start_all(&[leader]).await;
        // From here on it may be the one that leads.
        if answer == ErrorCode::Ok
            && let Some(waiting) = waiting.take()
        {
            ensemble.admitted(4, waiting).await;
        }
    }
    let mut wire = superuser(&ensemble, 1).await;
    add(&mut wire, &server).await;
    if let Some(waiting) = waiting {
        ensemble.admitted(4, waiting).await;
    }
    let mut lists = Vec::new();
    for id in 1..=4 {
        lists.push(list_at(&ensemble, id).await);
    }
    assert!(lists.iter().all(|list| *list == lists[0]), "{lists:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_changes_are_refused_in_zookeepers_order() {
    let mut ensemble = Ensemble::start(3).await;
    list_at(&ensemble, 1).await;
    let mut nobody = ensemble.open(1).await;
    let mut wire = superuser(&ensemble, 2).await;
    let of_version = |config_id| Request::Reconfig {
        joining: Some("some thing"),
        leaving: None,
        new_members: None,
        config_id,
    };
    let refused = reconfig(&mut nobody, of_version(1 << 40)).await;
    assert_eq!(refused, Err(ErrorCode::BadVersion), "before the text");
    let refused = reconfig(&mut nobody, of_version(-1)).await;
    assert_eq!(
        refused,
        Err(ErrorCode::BadArguments),
        "before the permission"
    );
    let unknown = [4, 5, 6].map(|id| ensemble.name(id, "participant"));
    let refused = reconfig(&mut nobody, change(Some(&unknown.join(",")), None)).await;
    assert_eq!(
        refused,
        Err(ErrorCode::NewConfigNoQuorum),
        "before the permission"
    );
    let observer = "server.999=0.0.0.0:1234:2345:observer;3456";
    let refused = reconfig(&mut nobody, change(Some(observer), None)).await;
    assert_eq!(refused, Err(ErrorCode::NoAuth));
    let twice = "server.9=127.0.0.1:8:8:observer;8,server.9=127.0.0.1:9:9:observer;9";
    let second = ensemble.name(2, "participant");
    let first_there = second.replace("server.2", "server.1");
    let swapped = format!("{first_there},{}", ensemble.name(1, "participant"));
    for (joining, leaving) in [
        (Some(observer), None),
        (Some(twice), None),
        // At the address of another one.
        (Some(&*first_there), None),
        (Some(&*swapped), None),
        (None, Some("1,2,3")),
        (None, Some("one")),
        (Some("server.4=127.0.0.1:9:participant;9"), None),
    ] {
        let refused = reconfig(&mut wire, change(joining, leaving)).await;
        assert_eq!(
            refused,
            Err(ErrorCode::BadArguments),
            "{joining:?} {leaving:?}"
        );
    }
    // Nothing has changed by all that.
    wire.create("/still", b"", 0).await.unwrap();
    let list = list_at(&ensemble, 3).await;
    assert_eq!(list.lines().count(), 4, "{list}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_would_lose_the_majority_is_refused() {
    let mut ensemble = Ensemble::start(3).await;
    list_at(&ensemble, 1).await;
    let leader = ensemble.leader().await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    ensemble.kill(others[0]).await;
    let mut wire = superuser(&ensemble, leader).await;
    let refused = reconfig(&mut wire, change(None, Some(&others[1].to_string()))).await;
    assert_eq!(refused, Err(ErrorCode::NewConfigNoQuorum));
    // The one that is gone may be removed.
    let left = reconfig(&mut wire, change(None, Some(&others[0].to_string()))).await;
    assert_eq!(left.unwrap().lines().count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_nobody_changes_the_servers() {
    let mut ensemble = Ensemble::unstarted(3);
    ensemble.reconfig = false;
    ensemble.start_all(&[1, 2, 3]).await;
    let mut wire = superuser(&ensemble, 2).await;
    for request in [change(None, Some("3")), change(Some("some thing"), None)] {
        let refused = reconfig(&mut wire, request).await;
        assert_eq!(refused, Err(ErrorCode::ReconfigDisabled));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r34_a_lone_server_gets_company_after_a_restart_that_ends_its_connections() {
    let mut ensemble = Ensemble::unstarted(1);
    let before = tempfile::tempdir().unwrap();
    let alone = Server::builder()
        .data_dir(before.path())
        .listen("127.0.0.1:0")
        .start()
        .await
        .unwrap();
    let mut wire = Wire::open(&alone.connect_string()).await;
    wire.create("/kept", b"1", 0).await.unwrap();
    let zxid = alone.last_zxid();
    alone.shutdown().await.unwrap();
    assert!(wire.is_closed().await);
    let new = NewCluster {
        server_id: 1,
        address: ensemble.peer_address(1),
        may_lack_writes: false,
    };
    let into = ensemble.folder(1);
    let began = tokio::task::spawn_blocking(move || found_cluster(before.path(), &into, &new));
    assert!(began.await.unwrap().unwrap() >= zxid);
    ensemble.start_all(&[1]).await;
    let mut wire = superuser(&ensemble, 1).await;
    let shown = String::from_utf8(wire.get("/zookeeper/baton").await.unwrap()).unwrap();
    assert!(
        shown.contains("\"lease\":\"ping\""),
        "reads do not count: {shown}"
    );
    for id in [2, 3] {
        let server = ensemble.name(id, "participant");
        let waiting = ensemble.start_waiting(id);
        add(&mut wire, &server).await;
        ensemble.admitted(id, waiting).await;
    }
    ensemble.kill(1).await;
    let mut wire = ensemble.open(3).await;
    assert_eq!(wire.get("/kept").await.unwrap(), b"1");
    wire.create("/without-the-first", b"", 0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r20_a_server_that_is_left_begins_a_new_cluster_whose_zxids_leap() {
    let mut ensemble = Ensemble::start(3).await;
    list_at(&ensemble, 1).await;
    let mut wire = ensemble.open(1).await;
    wire.create("/kept", b"1", 0).await.unwrap();
    sync(&mut wire).await;
    let zxid = ensemble.server(1).last_zxid();
    for id in 1..=3 {
        ensemble.stop(id).await;
    }
    let old = ensemble.folder(1).with_extension("old");
    std::fs::rename(ensemble.folder(1), &old).unwrap();
    let new = NewCluster {
        server_id: 1,
        address: ensemble.peer_address(1),
        may_lack_writes: true,
    };
    let into = ensemble.folder(1);
    let began = tokio::task::spawn_blocking(move || {
        let wrong = NewCluster {
            server_id: 2,
            ..new.clone()
        };
        // It leaves the old folder to its server.
        found_cluster(&old, &into, &wrong).unwrap_err();
        let zxid = found_cluster(&old, &into, &new).unwrap();
        let second = found_cluster(&old, &old.with_extension("other"), &new).unwrap_err();
        assert!(
            matches!(second, OfflineError::Log(WalError::Superseded { .. })),
            "{second}"
        );
        zxid
    });
    assert!(began.await.unwrap() >= zxid + i64::from(u32::MAX));
    ensemble.start_all(&[1]).await;
    let list = list_at(&ensemble, 1).await;
    assert_eq!(list.lines().count(), 2, "itself and the version: {list}");
    let mut wire = superuser(&ensemble, 1).await;
    assert_eq!(wire.get("/kept").await.unwrap(), b"1");
    // A former member is of another cluster: it is not admitted, and starts nothing by itself.
    ensemble.start_all(&[2]).await;
    let former = ensemble.name(2, "participant");
    let refused = reconfig(&mut wire, change(Some(&former), None)).await;
    assert_eq!(refused, Err(ErrorCode::NewConfigNoQuorum));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_connection_asks_for_behind_a_change_waits_for_it_and_nobody_else_does() {
    let ensemble = Ensemble::start(3).await;
    let mut wire = superuser(&ensemble, 2).await;
    let observer = "server.100=0.0.0.0:1:2:observer;0.0.0.0:3";
    let get = Request::GetData {
        path: CONFIG,
        watch: false,
    };
    let first = wire
        .send(&[
            create("/before", b"", 0),
            change(Some(observer), None),
            get,
            create("/behind", b"", 0),
            change(None, Some("100")),
            create("/last", b"", 0),
        ])
        .await;
    let mut newest = 0;
    for place in 0..6 {
        let (header, body) = wire.reply().await;
        assert_eq!(header.xid, first + place);
        assert_eq!(header.error(), ErrorCode::Ok, "{place}");
        assert!(header.zxid >= newest, "zxids never fall");
        newest = header.zxid;
        if place == 2 {
            let shown = String::from_utf8_lossy(&body);
            assert!(shown.contains(observer), "a read sees the change before it");
        }
    }
}

/// The majority applies an entry, and answers it, before a leader whose disk is slow.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_right_behind_an_acknowledged_one_is_not_refused_as_another_at_once() {
    let (ensemble, gates) = Ensemble::start_gated(3).await;
    let leader = ensemble.leader().await;
    let other = ensemble.ids().into_iter().find(|id| *id != leader).unwrap();
    list_at(&ensemble, other).await;
    let mut wire = superuser(&ensemble, other).await;
    let shut = gates[&leader].shut();
    let observer = "server.100=0.0.0.0:1:2:observer;0.0.0.0:3";
    let list = reconfig(&mut wire, change(Some(observer), None)).await;
    assert!(list.unwrap().contains(observer));
    let list = reconfig(&mut wire, change(None, Some("100"))).await;
    assert!(!list.unwrap().contains(observer));
    drop(shut);
}
