//! Groups, registrations, and their hazards (`docs/internals/hazards.md` §3.6).

use std::sync::Arc;
use std::time::Duration;

use baton::membership::{
    GroupLayout, GroupUpdate, GroupView, MemberError, NodeState, PersistentNode,
};
use baton::tree::CreateMode;
use baton::{Client, Membership};
use baton_client::{Acl, OpCode, Perms};
use baton_testkit::{Action, Match, Variant};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::common::{CUTS, LONG, SHORT, SleptClock, Stage, plant, session, within};

const ROOMY: Duration = Duration::from_secs(4);

fn group(client: &Client, path: &str) -> Membership {
    Membership::new(client, path).unwrap()
}

fn ids(update: &GroupUpdate) -> Vec<&str> {
    update.members.iter().map(|member| &*member.id).collect()
}

async fn until_ids(view: &mut GroupView, expected: &[&str]) -> GroupUpdate {
    loop {
        let update = within(view.next()).await.unwrap();
        if ids(&update) == expected {
            return update;
        }
    }
}

#[tokio::test]
async fn members_come_change_and_go_and_everybody_sees_it() {
    let stage = Stage::new("group").await;
    let path = format!("{}/deep/web", stage.path);
    let (here, there) = (stage.client().await, stage.client().await);
    let (here, there) = (group(&here, &path), group(&there, &path));
    let mut view = there.updates().unwrap();
    let first = within(view.next()).await.unwrap();
    assert!(first.members.is_empty() && first.joined.is_empty());

    let a = here.join("a", b"port=80").unwrap();
    let registered = within(a.registered()).await.unwrap();
    let update = within(view.next()).await.unwrap();
    assert_eq!(ids(&update), ["a"]);
    assert_eq!(update.joined.len(), 1);
    assert_eq!(update.members[0].data, "port=80");
    assert_eq!(update.members[0].czxid, registered.czxid);
    assert!(update.members[0].record.is_some());
    assert!(update.as_of >= registered.czxid);

    let b = here.join("b", b"").unwrap();
    within(b.registered()).await.unwrap();
    assert_eq!(ids(&within(view.next()).await.unwrap()), ["a", "b"]);

    a.set_data(b"port=80 draining").unwrap();
    let update = within(view.next()).await.unwrap();
    assert_eq!(update.changed[0].data, "port=80 draining");
    assert_eq!(
        update.changed[0].czxid, registered.czxid,
        "not created again"
    );
    assert!(update.joined.is_empty() && update.left.is_empty());

    within(a.leave()).await;
    let update = within(view.next()).await.unwrap();
    assert_eq!((ids(&update), &*update.left[0].id), (vec!["b"], "a"));
    drop(b);
    assert!(within(view.next()).await.unwrap().members.is_empty());
    assert!(within(there.members()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_registration_that_somebody_deletes_is_made_again() {
    let stage = Stage::new("deleted").await;
    let client = stage.client().await;
    let node = PersistentNode::start(&client, &stage.path, b"x").unwrap();
    let first = within(node.registered()).await.unwrap();
    let admin = session(&stage.client().await).await;
    admin.delete(&stage.path, None).await.unwrap();
    let mut state = node.state();
    while !matches!(state, NodeState::Present(now) if now.czxid > first.czxid) {
        state = within(node.state_other_than(&state)).await;
    }
    within(node.close()).await;
    assert_eq!(admin.exists(&stage.path).await.unwrap(), None);
}

#[tokio::test]
async fn h79_the_next_session_takes_over_from_the_dying_one_without_a_gap() {
    let stage = Stage::new("h79").await;
    let mut view = group(&stage.client().await, &stage.path).updates().unwrap();
    within(view.next()).await.unwrap();
    let client = stage.client().await;
    let member = group(&client, &stage.path).join("a", b"x").unwrap();
    let first = within(member.registered()).await.unwrap();
    within(view.next()).await.unwrap();
    for _ in 0..3 {
        // The session is over here, and lives on at the server until its timeout.
        let _export = session(&client).await.hand_over();
        let update = within(view.next()).await.unwrap();
        assert_eq!(ids(&update), ["a"]);
        assert!(update.left.is_empty() && update.joined.is_empty());
        assert!(update.changed[0].czxid > first.czxid);
        assert_ne!(update.changed[0].session_id, first.session_id);
    }
    let now = within(member.registered()).await.unwrap();
    assert_eq!(now.session_id, session(&client).await.id());
    within(member.leave()).await;
    assert!(stage.names().await.is_empty());
}

#[tokio::test]
async fn h79_a_take_over_whose_answer_is_lost_is_found_out() {
    let mut cases = JoinSet::new();
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            cases.spawn(take_over_through(variant, message));
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

async fn take_over_through(variant: Variant, message: Match) {
    let stage = Stage::new("h79cut").await;
    let mut view = group(&stage.client().await, &stage.path).updates().unwrap();
    within(view.next()).await.unwrap();
    let (client, proxy) = stage.proxied(ROOMY).await;
    let member = group(&client, &stage.path).join("a", b"x").unwrap();
    within(member.registered()).await.unwrap();
    within(view.next()).await.unwrap();
    let cut = proxy.on(message).then(Action::Cut(variant));
    let _export = session(&client).await.hand_over();
    let update = within(view.next()).await.unwrap();
    assert!(update.left.is_empty(), "{variant:?}: {update:?}");
    // Others may see the change before its answer is cut off.
    within(cut.fired()).await;
    let registered = within(member.registered()).await.unwrap();
    assert_eq!(registered.czxid, update.members[0].czxid, "once only");
}

#[tokio::test]
async fn h79_a_restarted_process_takes_over_by_its_instance_and_the_old_one_gives_way() {
    let stage = Stage::new("instance").await;
    let (old_client, new_client) = (stage.client().await, stage.client().await);
    let id = Uuid::new_v4();
    let mut view = group(&stage.client().await, &stage.path).updates().unwrap();
    let old = group(&old_client, &stage.path).instance(id);
    let old = old.join("a", b"old").unwrap();
    let first = within(old.registered()).await.unwrap();
    until_ids(&mut view, &["a"]).await;
    let new = group(&new_client, &stage.path).instance(id);
    let new = new.join("a", b"new").unwrap();
    let second = within(new.registered()).await.unwrap();
    let update = within(view.next()).await.unwrap();
    assert!(update.left.is_empty());
    assert_eq!(update.changed[0].data, "new");
    assert_eq!(update.changed[0].czxid, second.czxid);
    assert_ne!(first.session_id, second.session_id);
    within(async {
        let mut state = old.node().state();
        while !matches!(state, NodeState::Ended(MemberError::Superseded { .. })) {
            state = old.node().state_other_than(&state).await;
        }
    })
    .await;
    assert_eq!(within(new.registered()).await.unwrap(), second);
}

#[tokio::test]
async fn h79_a_node_that_another_made_on_the_way_is_not_taken_over() {
    let stage = Stage::new("another").await;
    let old_client = stage.client().await;
    let id = Uuid::new_v4();
    let old = group(&old_client, &stage.path).instance(id);
    let old = old.join("a", b"old").unwrap();
    within(old.registered()).await.unwrap();
    let path = stage.children().await.remove(0).path;
    let (client, proxy) = stage.proxied(LONG).await;
    let late = proxy.on(Match::request(OpCode::Multi)).then(Action::Hold);
    let new = group(&client, &stage.path).instance(id);
    let new = new.join("a", b"new").unwrap();
    within(late.fired()).await;
    // The old one goes in the meantime, for good, and a stranger comes.
    old_client.close_timeout(LONG).await.unwrap();
    let stranger = session(&stage.client().await).await;
    plant(&stranger, &path).await;
    let written = stranger.set_data(&path, b"theirs", None);
    within(written).await.unwrap();
    late.release();
    within(async {
        let mut state = new.node().state();
        while !matches!(state, NodeState::Blocked(MemberError::Taken { .. })) {
            state = new.node().state_other_than(&state).await;
        }
    })
    .await;
    let there = stage.children().await;
    assert_eq!(there[0].stat.ephemeral_owner, stranger.id());
}

#[tokio::test]
async fn h79_a_process_that_was_superseded_does_not_write_into_its_successors_node() {
    let stage = Stage::new("successor").await;
    let (old_client, proxy) = stage.proxied(LONG).await;
    let new_client = stage.client().await;
    let id = Uuid::new_v4();
    let old = group(&old_client, &stage.path).instance(id);
    let old = old.join("a", b"old").unwrap();
    within(old.registered()).await.unwrap();
    let late = proxy.on(Match::request(OpCode::SetData)).then(Action::Hold);
    old.set_data(b"too late").unwrap();
    within(late.fired()).await;
    let new = group(&new_client, &stage.path).instance(id);
    let new = new.join("a", b"new").unwrap();
    within(new.registered()).await.unwrap();
    late.release();
    within(async {
        let mut state = old.node().state();
        while !matches!(state, NodeState::Ended(MemberError::Superseded { .. })) {
            state = old.node().state_other_than(&state).await;
        }
    })
    .await;
    let members = within(group(&new_client, &stage.path).members()).await;
    assert_eq!(members.unwrap()[0].data, "new");
}

#[tokio::test]
async fn h80_a_reconnect_of_the_same_session_does_not_touch_the_registration() {
    let stage = Stage::new("h80").await;
    let others = group(&stage.client().await, &stage.path);
    let mut view = others.updates().unwrap();
    let (client, proxy) = stage.proxied(LONG).await;
    let member = group(&client, &stage.path).join("a", b"x").unwrap();
    let before = within(member.registered()).await.unwrap();
    until_ids(&mut view, &["a"]).await;
    for variant in [Variant::Rst, Variant::Fin] {
        let mut states = session(&client).await.states();
        proxy.clear_frames();
        proxy.cut_all(variant);
        while !within(states.next()).await.unwrap().is_connected() {}
        session(&client).await.sync("/").await.unwrap();
        for write in [OpCode::Create2, OpCode::Delete, OpCode::Multi] {
            assert_eq!(proxy.count(&Match::request(write)), 0, "{write:?}");
        }
        assert_eq!(within(member.registered()).await.unwrap(), before);
    }
    let _b = others.join("b", b"").unwrap();
    let update = within(view.next()).await.unwrap();
    assert_eq!(ids(&update), ["a", "b"]);
    assert!(update.changed.is_empty() && update.left.is_empty());
}

#[tokio::test]
async fn h81_after_a_pause_the_first_check_says_that_it_is_not_registered() {
    let stage = Stage::new("h81b").await;
    let clock = Arc::new(SleptClock::default());
    let client = stage.client_by(&clock).await;
    let me = group(&client, &stage.path).join("me", b"").unwrap();
    let registered = within(me.registered()).await.unwrap();
    assert_eq!(me.node().state(), NodeState::Present(registered));
    clock.sleep(2 * LONG);
    // No task has run since.
    assert_eq!(me.node().state(), NodeState::Absent);
}

#[tokio::test]
async fn h81_the_own_entry_is_listed_only_while_it_is_registered() {
    let stage = Stage::new("h81").await;
    let (client, proxy) = stage.proxied(SHORT).await;
    let here = group(&client, &stage.path);
    let mut view = here.updates().unwrap();
    let witness = group(&stage.client().await, &stage.path);
    let other = witness.join("other", b"").unwrap();
    until_ids(&mut view, &["other"]).await;

    // Another's node has our id: that one is listed, and we are not registered.
    let planted = session(&stage.client().await).await;
    let path = format!("{}/me", stage.path);
    crate::common::plant(&planted, &path).await;
    let me = here.join("me", b"mine").unwrap();
    let update = until_ids(&mut view, &["me", "other"]).await;
    assert_eq!(update.members[0].session_id, planted.id());
    let mut state = me.node().state();
    while !matches!(state, NodeState::Blocked(MemberError::Taken { .. })) {
        state = within(me.node().state_other_than(&state)).await;
    }
    planted.delete(&path, None).await.unwrap();
    let mine = within(me.registered()).await.unwrap();
    loop {
        let update = within(view.next()).await.unwrap();
        if update
            .members
            .iter()
            .any(|member| member.czxid == mine.czxid)
        {
            break;
        }
    }

    // The session is lost, and with it the registration, whatever the tree still shows.
    proxy.partition();
    let update = until_ids(&mut view, &["other"]).await;
    assert_eq!(update.left[0].id, "me");
    assert_eq!(me.node().state(), NodeState::Absent);
    proxy.heal();
    let update = until_ids(&mut view, &["me", "other"]).await;
    let mine = within(me.registered()).await.unwrap();
    assert_eq!(update.members[0].czxid, mine.czxid);
    drop(other);
}

#[tokio::test]
async fn h79_a_registration_whose_answer_is_lost_is_made_once() {
    let mut cases = JoinSet::new();
    for variant in CUTS {
        for message in [
            Match::request(OpCode::Create2),
            Match::reply(OpCode::Create2),
        ] {
            cases.spawn(register_through(variant, message));
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

async fn register_through(variant: Variant, message: Match) {
    let stage = Stage::new("create-cut").await;
    stage.occupied().await;
    let (client, proxy) = stage.proxied(ROOMY).await;
    let cut = proxy.on(message).then(Action::Cut(variant));
    let member = group(&client, &stage.path).join("a", b"x").unwrap();
    let registered = within(member.registered()).await.unwrap();
    assert_eq!(cut.times(), 1);
    assert_eq!(registered.session_id, session(&client).await.id());
    let nodes = stage.children().await;
    assert_eq!(nodes.len(), 1, "{variant:?}");
    assert_eq!(nodes[0].stat.czxid, registered.czxid);
    within(member.leave()).await;
    assert!(stage.names().await.is_empty());
}

#[tokio::test]
async fn h83_a_refused_registration_is_tried_again_after_a_pause() {
    let stage = Stage::new("refused").await;
    let admin = session(&stage.client().await).await;
    let nobody_creates = [Acl::new(Perms::READ | Perms::ADMIN, "world", "anyone")];
    admin
        .create_with_acl(&stage.path, b"", CreateMode::Persistent, &nobody_creates)
        .await
        .unwrap();
    let (client, proxy) = stage.proxied(LONG).await;
    let member = group(&client, &stage.path).join("a", b"").unwrap();
    let mut state = member.node().state();
    while !matches!(state, NodeState::Blocked(MemberError::Client { .. })) {
        state = within(member.node().state_other_than(&state)).await;
    }
    for _ in 0..500 {
        admin.sync("/").await.unwrap();
    }
    let tries = proxy.count(&Match::request(OpCode::Create2));
    assert!(tries <= 10, "a storm: {tries} attempts");
    admin
        .set_acl(&stage.path, &[Acl::open_unsafe()], None)
        .await
        .unwrap();
    within(member.registered()).await.unwrap();
}

#[tokio::test]
async fn the_layouts_are_those_of_the_other_libraries() {
    let stage = Stage::new("layouts").await;
    let client = stage.client().await;
    for layout in [
        GroupLayout::GroupMember,
        GroupLayout::Party,
        GroupLayout::ShallowParty,
    ] {
        let group = group(&client, &stage.path).layout(layout);
        let data: &[u8] = if layout == GroupLayout::GroupMember {
            b"payload"
        } else {
            b""
        };
        let member = group.join("me", data).unwrap();
        within(member.registered()).await.unwrap();
        let nodes = stage.children().await;
        let name = nodes[0].path.rsplit('/').next().unwrap();
        let stored = nodes[0].data.clone().unwrap_or_default();
        let is_hex = |text: &str| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match layout {
            GroupLayout::GroupMember => assert_eq!((name, &stored[..]), ("me", &b"payload"[..])),
            GroupLayout::Party => {
                assert!(is_hex(name.strip_suffix("__party__").unwrap()));
                assert_eq!(stored, "me");
            }
            _ => {
                assert!(is_hex(name.strip_suffix("-me").unwrap()));
                assert_eq!(stored, "me");
            }
        }
        let members = within(group.members()).await.unwrap();
        assert_eq!((members.len(), &*members[0].id), (1, "me"));
        within(member.leave()).await;
    }
}

#[tokio::test]
async fn bad_input_is_refused_and_foreign_children_do_no_harm() {
    let stage = Stage::new("bad").await;
    let client = stage.client().await;
    for path in ["", "relative", "/", "/a//b", "/a/"] {
        assert!(
            matches!(
                Membership::new(&client, path),
                Err(MemberError::BadPath { .. })
            ),
            "{path:?}"
        );
    }
    let here = group(&client, &stage.path);
    for id in ["", "a/b", ".."] {
        assert!(matches!(here.join(id, b""), Err(MemberError::BadId { .. })));
    }
    let party = here.clone().layout(GroupLayout::Party);
    assert!(matches!(
        party.join("a", b"x"),
        Err(MemberError::NoRoom { .. })
    ));
    let too_large = here.join("large", &vec![0; 2 << 20]).unwrap();
    let mut state = too_large.node().state();
    while !matches!(state, NodeState::Blocked(MemberError::Client { .. })) {
        state = within(too_large.node().state_other_than(&state)).await;
    }
    within(too_large.leave()).await;

    let member = here.join("a", b"").unwrap();
    within(member.registered()).await.unwrap();
    let session = session(&client).await;
    let config = format!("{}/config", stage.path);
    session
        .create(&config, b"not a member", CreateMode::Persistent)
        .await
        .unwrap();
    let members = within(here.members()).await.unwrap();
    assert_eq!(members.len(), 1, "a persistent child is not a member");
}

#[tokio::test]
async fn closing_the_client_ends_registrations_and_views() {
    let stage = Stage::new("closed").await;
    let client = stage.client().await;
    let here = group(&client, &stage.path);
    let member = here.join("a", b"").unwrap();
    within(member.registered()).await.unwrap();
    let mut view = here.updates().unwrap();
    within(view.next()).await.unwrap();
    within(client.close_timeout(LONG)).await.unwrap();
    while within(view.next()).await.is_ok() {}
    let mut state = member.node().state();
    while !matches!(state, NodeState::Ended(MemberError::Closed { .. })) {
        state = within(member.node().state_other_than(&state)).await;
    }
    assert!(stage.names().await.is_empty());
}
