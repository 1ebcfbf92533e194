//! `baton::inspect`: what somebody sees of a recipe who takes no part in it, and the two changes
//! that are bound to the node that was seen.

use std::time::Duration;

use baton::barrier::BarrierLayout;
use baton::inspect::{
    Inspector, LockKind, LockNode, LockSnapshot, NodeMode, QueueKind, RoundPhase,
};
use baton::membership::{GroupLayout, Registration};
use baton::naming::{Dialect, RwDialect};
use baton::queue::{LockingQueue, PriorityQueue};
use baton::tree::CreateMode;
use baton::{
    Barrier, Client, CountdownLatch, DistributedQueue, DoubleBarrier, LeaderElection, Membership,
    Mutex, RwLock, Semaphore, Session, WorkQueue,
};
use baton_client::{Acl, OpCode, Perms};
use baton_testkit::Match;

use crate::common::{LONG, Stage, mutex, session, within};

/// 32 hex digits that begin with this one.
fn hex(first: char) -> String {
    format!("{first}123456789abcdef0123456789abcdef")
}

/// A UUID that begins with this digit.
fn uuid(first: char) -> String {
    format!("{first}41d7b58-9a5b-4a30-a0a3-5c2f7f6d1a10")
}

/// Makes ephemeral nodes of these names below the stage's path, in this order.
async fn plant(stage: &Stage, names: &[String]) -> Session {
    let session = session(&stage.client().await).await;
    let _ = within(session.create(&stage.path, b"", CreateMode::Persistent)).await;
    for name in names {
        let path = format!("{}/{name}", stage.path);
        within(session.create(&path, b"", CreateMode::Ephemeral))
            .await
            .unwrap();
    }
    session
}

async fn seen(stage: &Stage) -> LockSnapshot {
    let inspector = Inspector::new(&stage.client().await);
    within(inspector.lock(&stage.path)).await.unwrap()
}

fn names(nodes: &[LockNode]) -> Vec<&str> {
    nodes.iter().map(|node| node.info.name()).collect()
}

/// Waits until the lock at the stage's path has this number of waiters.
async fn until_waiting(stage: &Stage, count: usize) -> LockSnapshot {
    let inspector = Inspector::new(&stage.client().await);
    within(async {
        loop {
            let lock = inspector.lock(&stage.path).await.unwrap();
            if lock.waiters.len() == count {
                return lock;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test]
async fn each_naming_scheme_shows_one_holder_and_its_waiters_in_order() {
    type Name = fn(char, &str) -> String;
    let schemes: [(&str, Name); 8] = [
        ("curator", |first, number| {
            format!("_c_{}-lock-{number}", uuid(first))
        }),
        ("curator-latch", |first, number| {
            format!("_c_{}-latch-{number}", uuid(first))
        }),
        ("kazoo", |first, number| {
            format!("{}__lock__{number}", hex(first))
        }),
        ("zookeeper-recipes", |first, number| {
            format!("x-{first}2057594037927936-{number}")
        }),
        ("leader-election-support", |_, number| format!("n_{number}")),
        ("curator", |first, number| {
            format!("_c_{}-__WRIT__{number}", uuid(first))
        }),
        ("host", |first, number| format!("{first}.host-W-{number}")),
        // go-zk's.
        ("curator", |first, number| {
            format!("_c_{}-lock-{number}", hex(first))
        }),
    ];
    for (scheme, name) in schemes {
        let stage = Stage::new("scheme").await;
        // By name alone they come in another order.
        let planted = [
            name('9', "0000000003"),
            name('8', "0000000005"),
            name('7', "0000000012"),
        ];
        let owner = plant(&stage, &planted).await;
        let lock = seen(&stage).await;
        assert_eq!(names(&lock.holders), planted[..1], "{scheme}");
        assert_eq!(names(&lock.waiters), planted[1..], "{scheme}");
        assert!(lock.exists && lock.is_complete() && !lock.is_mixed());
        for node in lock.nodes() {
            assert_eq!(node.scheme.as_str(), scheme);
            assert_eq!(node.info.session_id, owner.id());
            assert!(node.info.since_ms > 0 && node.info.record.is_none());
        }
        let holder = &lock.holders[0];
        assert_eq!(holder.token, u64::try_from(holder.info.czxid).ok());
        assert!(lock.waiters.iter().all(|waiter| waiter.token.is_none()));
    }
}

#[tokio::test]
async fn h19_h21_the_order_is_that_of_creation_across_the_end_of_the_counter_and_over_ties() {
    let stage = Stage::new("wrap").await;
    let planted = [
        ('9', "2147483646"),
        ('8', "2147483647"),
        ('1', "-2147483648"),
        ('7', "2147483647"),
        ('0', "-2147483647"),
        ('6', "2147483647"),
    ]
    .map(|(first, number)| format!("_c_{}-lock-{number}", uuid(first)));
    let _owner = plant(&stage, &planted).await;
    let lock = seen(&stage).await;
    assert_eq!(names(&lock.holders), planted[..1]);
    assert_eq!(names(&lock.waiters), planted[1..]);
    let inspector = Inspector::new(&stage.client().await);
    for (position, name) in planted.iter().enumerate() {
        let node = format!("{}/{name}", stage.path);
        let ahead = within(inspector.ahead(&stage.path, &node)).await.unwrap();
        let ahead = ahead.unwrap();
        assert_eq!((ahead.position, ahead.waiting), (position, 5), "{name}");
        let holder = ahead.holder.map(|holder| holder.info.name().to_owned());
        assert_eq!(holder, (position > 0).then(|| planted[0].clone()));
    }
    let gone = format!("{}/_c_{}-lock-0000000001", stage.path, uuid('5'));
    assert_eq!(within(inspector.ahead(&stage.path, &gone)).await, Ok(None));
}

#[tokio::test]
async fn nodes_of_one_change_are_ordered_as_the_library_orders_them_and_a_forged_position_moves_none()
 {
    let stage = Stage::new("forged").await;
    let name = |first, number| format!("_c_{}-lock-{number:010}", uuid(first));
    let planted = [name('9', 1), name('8', 2)];
    let owner = plant(&stage, &planted).await;
    // Only a reader may keep an earlier position, so this one has no effect.
    let late = format!("{}/{}", stage.path, name('1', 3));
    let record = format!(r#"{{"id":"{}","host":"h","pid":1,"place":1}}"#, uuid('1'));
    within(owner.create(&late, record.as_bytes(), CreateMode::Ephemeral))
        .await
        .unwrap();
    // In one change, and listed in any order: the numbers decide.
    let parts = [('0', 5), ('2', 4)].map(|(first, number)| {
        let path = format!("{}/{}", stage.path, name(first, number));
        baton_client::Op::create(path, Vec::new(), CreateMode::Ephemeral)
    });
    within(owner.multi(&parts)).await.unwrap();
    let lock = seen(&stage).await;
    assert_eq!(names(&lock.holders), [name('9', 1)]);
    let waiters = [name('8', 2), name('1', 3), name('2', 4), name('0', 5)];
    assert_eq!(names(&lock.waiters), waiters);
}

#[tokio::test]
async fn nodes_of_several_schemes_have_a_holder_each_and_are_reported_as_mixed() {
    let stage = Stage::new("mixed").await;
    let planted = [
        format!("_c_{}-lock-0000000001", uuid('1')),
        format!("{}__lock__0000000002", hex('2')),
        format!("_c_{}-lock-0000000003", uuid('3')),
        format!("{}__lock__0000000004", hex('4')),
    ];
    let _owner = plant(&stage, &planted).await;
    let lock = seen(&stage).await;
    assert!(lock.is_mixed());
    assert_eq!(names(&lock.holders), planted[..2]);
    assert_eq!(names(&lock.waiters), planted[2..]);
    // Baton's recipe refuses such a path.
    let joining = mutex(&stage.client().await, &stage.path);
    assert!(within(joining.try_acquire()).await.is_err());
}

#[tokio::test]
async fn a_missing_directory_and_an_empty_one_have_nobody_and_other_children_are_not_guessed_at() {
    let stage = Stage::new("empty").await;
    let missing = seen(&stage).await;
    assert!(!missing.exists && !missing.is_in_use(), "{missing:?}");
    assert_eq!(
        missing.to_string(),
        format!("{}: free, 0 waiting", stage.path)
    );
    let owner = plant(&stage, &[]).await;
    let empty = seen(&stage).await;
    assert!(empty.exists && !empty.is_in_use(), "{empty:?}");
    let ephemeral = [
        "lease-0000000001",
        "order-0000000002",
        "lock-99999999999999999999",
        "config",
    ];
    let persistent = ["_c_x-lock-0000000001", "lock"];
    for (names, mode) in [
        (&ephemeral[..], CreateMode::Ephemeral),
        (&persistent[..], CreateMode::Persistent),
    ] {
        for name in names {
            let path = format!("{}/{name}", stage.path);
            within(owner.create(&path, b"", mode)).await.unwrap();
        }
    }
    let lock = seen(&stage).await;
    assert!(!lock.is_in_use(), "{lock:?}");
    let mut foreign: Vec<_> = lock.foreign.iter().map(|child| child.name()).collect();
    foreign.sort_unstable();
    assert_eq!(
        foreign,
        [
            "lease-0000000001",
            "lock-99999999999999999999",
            "order-0000000002"
        ]
    );
    let mut unowned: Vec<_> = lock.unowned.iter().map(|node| node.name()).collect();
    unowned.sort_unstable();
    assert_eq!(unowned, persistent);
    assert_eq!(lock.others, ["config"]);
    let folders = lock.folders();
    assert_eq!(folders.len(), 6);
    assert!(folders.iter().all(|folder| !folder.is_part_of_lock));
}

#[tokio::test]
async fn nodes_that_go_while_they_are_read_are_left_out_and_never_an_error() {
    let stage = Stage::new("churn").await;
    let name = |number: u32| format!("_c_{}-lock-{number:010}", uuid('1'));
    let _owner = plant(&stage, &[name(1)]).await;
    let churning = {
        let (session, path) = (session(&stage.client().await).await, stage.path.clone());
        tokio::spawn(async move {
            for number in 2.. {
                let nodes: Vec<_> = (0..20)
                    .map(|nth| format!("{path}/{}", name(number * 20 + nth)))
                    .collect();
                for node in &nodes {
                    let _ = session.create(node, b"", CreateMode::Ephemeral).await;
                }
                for node in &nodes {
                    let _ = session.delete(node, None).await;
                }
            }
        })
    };
    let inspector = Inspector::new(&stage.client().await);
    let mut most = 0;
    for _ in 0..100 {
        let lock = within(inspector.lock(&stage.path)).await.unwrap();
        assert_eq!(names(&lock.holders), [name(1)]);
        most = most.max(lock.waiters.len());
    }
    churning.abort();
    assert!(most > 0, "the nodes were never there");
}

#[tokio::test]
async fn hostile_data_is_bounded_and_shown_on_one_line() {
    let stage = Stage::new("hostile").await;
    let owner = plant(&stage, &[]).await;
    let forged = format!(
        r#"{{"id":"{}","host":"h\nheld","pid":1,"name":"[2J"}}"#,
        uuid('1')
    );
    let large = vec![b'x'; 1_000_000];
    let data: [&[u8]; 5] = [
        b"\xff\xfe\x00",
        &large,
        b"a\nb\x1b[2J",
        forged.as_bytes(),
        "10.0.0.1\u{202e}".as_bytes(),
    ];
    for (data, number) in data.into_iter().zip(1..) {
        let path = format!("{}/_c_{}-lock-{number:010}", stage.path, uuid('1'));
        within(owner.create(&path, data, CreateMode::Ephemeral))
            .await
            .unwrap();
    }
    let lock = seen(&stage).await;
    let nodes: Vec<_> = lock.nodes().collect();
    assert_eq!(nodes.len(), 5);
    let shown: Vec<_> = nodes.iter().map(|node| node.to_string()).collect();
    assert_eq!(shown[..3], ["another program"; 3]);
    assert_eq!(shown[3], "h\\nheld:1 ([2J)");
    assert_eq!(shown[4], "another program (10.0.0.1\\u{202e})");
    assert_eq!(nodes[1].info.data_length, 1_000_000);
    assert_eq!(nodes[1].info.data.len(), 4096);
    // Names are others' to choose, too, and JSON keeps them as they are.
    let json = serde_json::to_value(&lock).unwrap();
    assert_eq!(json["waiters"][2]["record"]["host"], "h\nheld");
    let session = format!("0x{:x}", owner.id());
    assert_eq!(json["holders"][0]["session"], session.as_str());
    assert_eq!(json["holders"][0]["scheme"], "curator");
    assert_eq!(json["holders"][0]["mode"], "exclusive");
    assert_eq!(json["kind"], "lock");
}

#[tokio::test]
async fn a_node_that_may_not_be_read_is_named_and_the_rest_is_shown() {
    let stage = Stage::new("hidden").await;
    let owner = plant(&stage, &[]).await;
    let nodes =
        ['1', '2'].map(|first| format!("{}/_c_{}-lock-000000000{first}", stage.path, uuid(first)));
    let hidden = [Acl::new(Perms::DELETE, "world", "anyone")];
    within(owner.create_with_acl(&nodes[0], b"", CreateMode::Ephemeral, &hidden))
        .await
        .unwrap();
    within(owner.create(&nodes[1], b"", CreateMode::Ephemeral))
        .await
        .unwrap();
    let lock = seen(&stage).await;
    assert!(!lock.is_complete());
    assert_eq!(lock.unreadable[0].path, nodes[0]);
    assert_eq!(lock.holders[0].info.path, nodes[1]);
    let inspector = Inspector::new(&stage.client().await);
    let closed = format!("{}-closed", stage.path);
    within(owner.create_with_acl(&closed, b"", CreateMode::Persistent, &hidden))
        .await
        .unwrap();
    let refused = within(inspector.lock(&closed)).await.unwrap_err();
    assert!(refused.is_no_auth(), "{refused}");
}

#[tokio::test]
async fn batons_own_holders_say_who_they_are_and_their_tokens_are_those_of_the_guards() {
    for dialect in [
        Dialect::Curator,
        Dialect::CuratorLatch,
        Dialect::Kazoo,
        Dialect::WriteLock,
        Dialect::ElectionSupport,
    ] {
        let stage = Stage::new("own").await;
        let client = stage.client().await;
        let lock = || mutex(&client, &stage.path).dialect(dialect).name("nightly");
        let guard = within(lock().acquire()).await.unwrap();
        let waiting = tokio::spawn({
            let lock: Mutex = lock();
            async move { lock.acquire().await }
        });
        let lock = until_waiting(&stage, 1).await;
        let holder = &lock.holders[0];
        assert_eq!(holder.info.path, guard.node());
        assert_eq!(holder.token, Some(guard.token()));
        assert_eq!(lock.holder_with_token(guard.token()), Some(holder));
        if dialect == Dialect::ElectionSupport {
            // Its own library reads the data as the host's name.
            assert!(holder.info.text.is_some() && holder.info.record.is_none());
        } else {
            let record = holder.info.record.as_ref().unwrap();
            assert_eq!(record.pid, std::process::id());
            assert_eq!(record.name.as_deref(), Some("nightly"));
            assert_eq!(holder.to_string(), record.to_string());
        }
        within(guard.release()).await.unwrap();
        within(within(waiting).await.unwrap().unwrap().release())
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn h43_readers_hold_together_and_a_writer_that_became_a_reader_keeps_its_position() {
    for dialect in [RwDialect::Curator, RwDialect::Kazoo, RwDialect::Host] {
        let stage = Stage::new("rw").await;
        let client = stage.client().await;
        let lock = RwLock::new(&client, &stage.path).unwrap().dialect(dialect);
        let writer = within(lock.write()).await.unwrap();
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.write().await }
        });
        let shown = until_waiting(&stage, 1).await;
        // Without a reader beside it, a writer of kazoo's has the name of a mutex's node.
        if dialect != RwDialect::Kazoo {
            assert_eq!(shown.holders[0].token, Some(writer.token()), "{dialect}");
        }
        let reader = within(writer.downgrade()).await.unwrap();
        let shown = until_waiting(&stage, 1).await;
        assert_eq!(shown.kind, LockKind::ReadWrite, "{dialect}");
        assert_eq!(shown.holders[0].mode, NodeMode::Read);
        assert_eq!(shown.waiters[0].mode, NodeMode::Write, "{dialect}");
        assert_eq!(shown.holders[0].info.path, reader.node(), "{dialect}");
        within(reader.release()).await.unwrap();
        let writer = within(waiting).await.unwrap().unwrap();
        within(writer.release()).await.unwrap();
        let readers = (within(lock.read()).await, within(lock.read()).await);
        let shown = seen(&stage).await;
        let tokens: Vec<_> = shown.holders.iter().map(|holder| holder.token).collect();
        let readers = [readers.0.unwrap(), readers.1.unwrap()];
        let expected: Vec<_> = readers.iter().map(|guard| Some(guard.token())).collect();
        assert_eq!(tokens, expected, "{dialect}");
    }
}

#[tokio::test]
async fn permits_that_were_only_asked_for_are_not_held_and_those_of_one_acquire_share_a_token() {
    let stage = Stage::new("sem").await;
    let client = stage.client().await;
    let semaphore = Semaphore::new(&client, &stage.path, 3).unwrap();
    let heavy = within(semaphore.acquire(2)).await.unwrap();
    let light = within(semaphore.acquire(1)).await.unwrap();
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire(1).await }
    });
    let inspector = Inspector::new(&client);
    // The first waiter asks for its permits beforehand.
    let shown = within(async {
        loop {
            let shown = inspector.lock(&stage.path).await.unwrap();
            if shown.waiters.len() == 1 && shown.pending.len() == 1 {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(shown.kind, LockKind::Semaphore);
    assert_eq!((shown.permits, shown.holders.len()), (Some(3), 3));
    let tokens: Vec<_> = shown.holders.iter().map(|holder| holder.token).collect();
    assert_eq!(
        tokens,
        [heavy.token(), heavy.token(), light.token()].map(Some)
    );
    assert_eq!(shown.permits_of(&shown.holders[0]), 2);
    assert_eq!(shown.permits_of(&shown.holders[2]), 1);
    assert!(!shown.is_mixed());
    let waiter = &shown.waiters[0].info.path;
    let ahead = within(inspector.ahead(&stage.path, waiter)).await.unwrap();
    let ahead = ahead.unwrap();
    assert_eq!((ahead.position, ahead.waiting), (1, 1));
    assert_eq!(ahead.holder.unwrap().info.path, shown.holders[0].info.path);
    // Those who hold keep their permits when the number is lowered.
    within(semaphore.resize(1)).await.unwrap();
    let lowered = within(inspector.lock(&stage.path)).await.unwrap();
    assert_eq!((lowered.permits, lowered.holders.len()), (Some(1), 3));
    within(heavy.release()).await.unwrap();
    within(light.release()).await.unwrap();
    within(within(waiting).await.unwrap().unwrap().release())
        .await
        .unwrap();
}

#[tokio::test]
async fn kazoos_semaphore_is_one_only_where_the_number_of_permits_is_known() {
    let stage = Stage::new("ksem").await;
    let owner = plant(&stage, &[hex('1'), hex('2')]).await;
    let plain = seen(&stage).await;
    assert!(!plain.is_in_use() && plain.others.len() == 2, "{plain:?}");
    within(owner.set_data(&stage.path, b"3", None))
        .await
        .unwrap();
    let queue = format!("{}-__lock__", stage.path);
    within(owner.create(&queue, b"", CreateMode::Persistent))
        .await
        .unwrap();
    let waiter = format!("{queue}/{}__lock__0000000000", hex('3'));
    within(owner.create(&waiter, b"", CreateMode::Ephemeral))
        .await
        .unwrap();
    let shown = seen(&stage).await;
    assert_eq!(shown.kind, LockKind::Semaphore);
    assert_eq!(names(&shown.holders), [hex('1'), hex('2')]);
    assert_eq!(shown.waiters[0].info.path, waiter);
}

#[tokio::test]
async fn a_holder_that_is_asked_is_notified_and_one_that_has_changed_since_is_not_asked() {
    let stage = Stage::new("revoke").await;
    let client = stage.client().await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let inspector = Inspector::new(&stage.client().await);
    let before = within(inspector.lock(&stage.path)).await.unwrap();
    assert_eq!(within(inspector.revoke(&before.holders[0])).await, Ok(true));
    within(guard.on_revoke()).await.unwrap();
    // The node is not as it was seen any more.
    assert_eq!(
        within(inspector.revoke(&before.holders[0])).await,
        Ok(false)
    );
    let asked = within(inspector.lock(&stage.path)).await.unwrap();
    assert!(asked.holders[0].asked);
    assert_eq!(asked.holders[0].to_string(), "asked to release");
    assert_eq!(asked.holders[0].token, Some(guard.token()));
    assert_eq!(guard.check(), Ok(()));
    within(guard.release()).await.unwrap();
    assert_eq!(within(inspector.revoke(&asked.holders[0])).await, Ok(false));
}

#[tokio::test]
async fn h18_a_broken_holder_loses_the_lock_and_a_node_made_again_at_its_path_is_left_alone() {
    let stage = Stage::new("break").await;
    let client = stage.client().await;
    let guard = within(mutex(&client, &stage.path).acquire()).await.unwrap();
    let next = tokio::spawn({
        let lock = mutex(&client, &stage.path);
        async move { lock.acquire().await }
    });
    let shown = until_waiting(&stage, 1).await;
    let inspector = Inspector::new(&stage.client().await);
    let holder = &shown.holders[0];
    assert_eq!(within(inspector.break_holder(holder)).await, Ok(true));
    within(guard.lost()).await;
    let next = within(next).await.unwrap().unwrap();
    assert_eq!(within(inspector.break_holder(holder)).await, Ok(false));
    assert_eq!(next.check(), Ok(()));
    within(next.release()).await.unwrap();

    // A simple lock, whose holders share one name.
    let stage = Stage::new("again").await;
    let owner = plant(&stage, &["lock".to_owned()]).await;
    let inspector = Inspector::new(&stage.client().await);
    let first = within(inspector.lock(&stage.path)).await.unwrap();
    assert_eq!(first.kind, LockKind::Simple);
    let node = &*first.holders[0].info.path;
    within(owner.delete(node, None)).await.unwrap();
    within(owner.create(node, b"", CreateMode::Ephemeral))
        .await
        .unwrap();
    for change in [
        within(inspector.break_holder(&first.holders[0])).await,
        within(inspector.revoke(&first.holders[0])).await,
    ] {
        assert_eq!(change, Ok(false));
    }
    let second = within(inspector.lock(&stage.path)).await.unwrap();
    assert_eq!(second.holders[0].info.version, 0);
    // One that was written to since it was seen is not as it was seen.
    within(owner.set_data(node, b"x", None)).await.unwrap();
    let change = within(inspector.break_holder(&second.holders[0])).await;
    assert_eq!(change, Ok(false));
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_is_reported_as_done() {
    for call in ["revoke", "break"] {
        let stage = Stage::new(call).await;
        let owner = plant(&stage, &["lock".to_owned()]).await;
        let (client, proxy) = stage.proxied(LONG).await;
        let inspector = Inspector::new(&client);
        let shown = within(inspector.lock(&stage.path)).await.unwrap();
        let op = match call {
            "revoke" => OpCode::SetData,
            _ => OpCode::Multi,
        };
        proxy
            .on(Match::reply(op))
            .then(baton_testkit::Action::Cut(baton_testkit::Variant::Rst));
        let node = &shown.holders[0];
        let changed = match call {
            "revoke" => within(inspector.revoke(node)).await,
            _ => within(inspector.break_holder(node)).await,
        };
        assert_eq!(changed, Ok(true), "{call}");
        let now = within(owner.exists(&node.info.path)).await.unwrap();
        assert_eq!(now.is_some(), call == "revoke");
    }
}

#[tokio::test]
async fn a_snapshot_is_one_list_and_one_read_of_each_node() {
    let stage = Stage::new("cheap").await;
    let planted: Vec<_> = (1..=300)
        .map(|number| format!("_c_{}-lock-{number:010}", uuid('1')))
        .collect();
    let _owner = plant(&stage, &planted).await;
    let (client, proxy) = stage.proxied(LONG).await;
    let inspector = Inspector::new(&client);
    let count = |op| proxy.count(&Match::request(op).path_contains(&*stage.path));
    let lock = within(inspector.lock(&stage.path)).await.unwrap();
    assert_eq!(lock.waiters.len(), 299);
    assert_eq!(count(OpCode::GetChildren2), 1);
    assert_eq!(count(OpCode::GetData), 300);
    let last = format!("{}/{}", stage.path, planted[299]);
    let ahead = within(inspector.ahead(&stage.path, &last)).await.unwrap();
    assert_eq!(ahead.unwrap().position, 299);
    assert_eq!(count(OpCode::GetChildren2), 2);
    assert_eq!(count(OpCode::GetData), 301);
}

#[tokio::test]
async fn an_election_is_a_wait_queue_whose_holder_leads() {
    let stage = Stage::new("elect").await;
    let client = stage.client().await;
    let election = LeaderElection::new(&client, &stage.path).unwrap();
    let leadership = within(election.campaign()).await.unwrap();
    let leader = within(election.leader()).await.unwrap().unwrap();
    let lock = seen(&stage).await;
    assert_eq!(lock.holders[0].info.path, leader.node);
    assert_eq!(lock.holders[0].token, Some(leader.token));
    assert_eq!(lock.holders[0].scheme.as_str(), "curator-latch");
    within(leadership.resign()).await.unwrap();
    assert!(!seen(&stage).await.is_in_use());
}

#[tokio::test]
async fn gates_barriers_and_latches_show_who_has_come() {
    let stage = Stage::new("barriers").await;
    let client = stage.client().await;
    let inspector = Inspector::new(&stage.client().await);
    let gate = Barrier::new(&client, &stage.path).unwrap();
    assert_eq!(within(inspector.gate(&stage.path)).await, Ok(None));
    within(gate.close()).await.unwrap();
    let closed = within(inspector.gate(&stage.path)).await.unwrap().unwrap();
    assert_eq!(closed.record.unwrap().pid, std::process::id());

    let path = format!("{}-latch", stage.path);
    let latch = CountdownLatch::new(&client, &path, 3).unwrap();
    assert_eq!(within(inspector.latch(&path)).await, Ok(None));
    within(latch.count_down("b")).await.unwrap();
    within(latch.count_down("a")).await.unwrap();
    let shown = within(inspector.latch(&path)).await.unwrap().unwrap();
    assert_eq!((shown.count, shown.left), (3, 1));
    assert_eq!(shown.done, ["a", "b"]);

    for layout in [BarrierLayout::Rounds, BarrierLayout::Curator] {
        let path = format!("{}-{layout:?}", stage.path);
        let barrier = DoubleBarrier::new(&client, &path, 2)
            .unwrap()
            .layout(layout);
        assert_eq!(within(inspector.double_barrier(&path)).await, Ok(None));
        let first = tokio::spawn({
            let barrier = barrier.clone();
            async move { barrier.enter().await }
        });
        let shown = within(async {
            loop {
                let shown = inspector.double_barrier(&path).await.unwrap();
                if let Some(shown) = shown.filter(|shown| shown.members.len() == 1) {
                    return shown;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        assert_eq!(shown.phase, RoundPhase::Gathering, "{layout:?}");
        let second = within(barrier.enter()).await.unwrap();
        let first = within(first).await.unwrap().unwrap();
        let shown = within(inspector.double_barrier(&path)).await.unwrap();
        let shown = shown.unwrap();
        assert!(matches!(shown.phase, RoundPhase::Entered { .. }));
        assert_eq!(shown.members.len(), 2);
        assert_eq!(shown.layout, layout);
        if layout == BarrierLayout::Rounds {
            assert_eq!((shown.round, shown.count), (1, Some(2)));
            assert!(shown.members.iter().all(|member| member.record.is_some()));
        }
        let (one, other) = tokio::join!(first.leave(), second.leave());
        assert!(one.is_ok() && other.is_ok());
    }
}

async fn item_age(node: Option<&baton::inspect::NodeInfo>, inspector: &Inspector) -> Duration {
    let now = within(inspector.server_now_ms("/inspect-clock")).await;
    node.unwrap().age_at(now.unwrap())
}

#[tokio::test]
async fn queues_show_their_depth_their_oldest_item_and_their_claims() {
    let stage = Stage::new("queue").await;
    let client = stage.client().await;
    let inspector = Inspector::new(&stage.client().await);
    let empty = inspector.queue(&stage.path, QueueKind::Recipes);
    assert_eq!(within(empty).await.unwrap().depth, 0);
    let queue = DistributedQueue::new(&client, &stage.path).unwrap();
    for item in ["a", "bb", "ccc"] {
        within(queue.offer(item.as_bytes())).await.unwrap();
    }
    let shown = inspector.queue(&stage.path, QueueKind::Recipes);
    let shown = within(shown).await.unwrap();
    assert_eq!(shown.depth, 3);
    assert_eq!(shown.oldest, shown.first);
    assert_eq!(shown.oldest.as_ref().unwrap().data_length, 1);
    assert!(item_age(shown.oldest.as_ref(), &inspector).await < Duration::from_secs(60));
    let other = inspector.queue(&stage.path, QueueKind::CuratorId);
    let other = within(other).await.unwrap();
    assert_eq!((other.depth, other.others.len()), (0, 3));

    let path = format!("{}-priority", stage.path);
    let priority = PriorityQueue::new(&client, &path).unwrap();
    within(priority.offer(b"late", 5)).await.unwrap();
    within(priority.offer(b"soon!", -5)).await.unwrap();
    let shown = inspector.queue(&path, QueueKind::CuratorPriority);
    let shown = within(shown).await.unwrap();
    let (first, oldest) = (shown.first.unwrap(), shown.oldest.unwrap());
    assert!(oldest.czxid < first.czxid);

    let path = format!("{}-locking", stage.path);
    let locking = LockingQueue::new(&client, &path).unwrap();
    within(locking.offer(b"one")).await.unwrap();
    within(locking.offer(b"two")).await.unwrap();
    let item = within(locking.take()).await.unwrap();
    let shown = within(inspector.locking_queue(&path, None)).await.unwrap();
    assert_eq!((shown.items.depth, shown.claims.len()), (2, 1));
    assert_eq!(shown.claims[0].info.path, item.node());
    within(item.consume()).await.unwrap();
}

#[tokio::test]
async fn work_queues_show_their_depth_claims_and_dead_letters() {
    let stage = Stage::new("work").await;
    let client = stage.client().await;
    let inspector = Inspector::new(&stage.client().await);
    assert_eq!(within(inspector.work_queue(&stage.path)).await, Ok(None));
    let queue = WorkQueue::new(&client, &stage.path).unwrap();
    within(queue.offer_all(["bad".into(), "one".into(), "two".into()]))
        .await
        .unwrap();
    let bad = within(queue.take()).await.unwrap();
    within(bad.dead_letter("no good")).await.unwrap();
    let claim = within(queue.take()).await.unwrap();
    let shown = within(inspector.work_queue(&stage.path)).await.unwrap();
    let shown = shown.unwrap();
    assert_eq!((shown.depth.items, shown.depth.dead), (2, 1));
    assert_eq!(shown.claims[0].token, claim.token());
    assert_eq!(shown.dead_letters[0].reason, "no good");
    let json = serde_json::to_value(&shown).unwrap();
    assert_eq!(json["dead_letters"][0]["payload"], "bad");
    assert!(json["oldest_ms"].is_u64(), "{json}");
    within(claim.ack()).await.unwrap();
}

async fn joined(client: &Client, path: &str, layout: GroupLayout) -> Registration {
    let group = Membership::new(client, path).unwrap().layout(layout);
    let data: &[u8] = match layout {
        GroupLayout::Native => b"port=80",
        _ => b"",
    };
    let member = group.join("web-1", data).unwrap();
    within(member.registered()).await.unwrap();
    member
}

#[tokio::test]
async fn groups_show_their_members_and_no_node_that_would_never_leave() {
    for layout in [
        GroupLayout::Native,
        GroupLayout::GroupMember,
        GroupLayout::Party,
        GroupLayout::ShallowParty,
    ] {
        let stage = Stage::new("group").await;
        let client = stage.client().await;
        let inspector = Inspector::new(&stage.client().await);
        let nobody = within(inspector.group(&stage.path, layout)).await.unwrap();
        assert!(nobody.members.is_empty());
        let member = joined(&client, &stage.path, layout).await;
        let admin = session(&client).await;
        let stays = format!("{}/stays", stage.path);
        within(admin.create(&stays, b"", CreateMode::Persistent))
            .await
            .unwrap();
        let shown = within(inspector.group(&stage.path, layout)).await.unwrap();
        assert_eq!(shown.members.len(), 1, "{layout:?}");
        assert_eq!(shown.members[0].id, "web-1");
        assert_eq!(shown.others, ["stays"]);
        if layout == GroupLayout::Native {
            assert_eq!(shown.members[0].info.data, &b"port=80"[..]);
            assert!(shown.members[0].info.record.is_some());
        }
        within(member.leave()).await;
    }
}
