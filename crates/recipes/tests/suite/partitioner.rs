//! Items spread over members: each has one owner, moves are few, and nothing is had by two.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton::membership::MemberError;
use baton::partition::{PartitionError, PartitionEvent};
use baton::tree::CreateMode;
use baton::{Client, Guard, LostReason, Membership, Partitioner};
use baton_testkit::{ExclusionChecker, Proxy, inspect};
use tokio::sync::oneshot;

use crate::common::{LONG, SHORT, Stage, plant, session, until_quiet, within};

const ITEMS: usize = 10;

fn partitioner(client: &Client, stage: &Stage) -> Partitioner {
    let items = (0..ITEMS).map(|nth| format!("item-{nth}"));
    Partitioner::new(client, &stage.path, items).unwrap()
}

/// Owner of each item, and whether an item ever had two.
#[derive(Clone, Default)]
struct AssignmentTable {
    owners: Arc<Mutex<BTreeMap<String, String>>>,
    moves: Arc<Mutex<Vec<(String, String)>>>,
    checkers: Arc<Mutex<HashMap<String, ExclusionChecker>>>,
}

impl AssignmentTable {
    fn owners(&self) -> BTreeMap<String, String> {
        self.owners.lock().unwrap().clone()
    }

    /// Waits until everything is had, by these members and no others.
    async fn until_shared_by(&self, members: &[&str]) -> BTreeMap<String, String> {
        within(async {
            loop {
                let owners = self.owners();
                let right = |member: &String| members.contains(&member.as_str());
                let all = members.iter().all(|m| owners.values().any(|o| o == m));
                if owners.len() == ITEMS && owners.values().all(right) && all {
                    return owners;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }

    fn check_all(&self) {
        for checker in self.checkers.lock().unwrap().values() {
            checker.check().unwrap();
        }
    }
}

/// A member that follows the assignments until it is stopped; then it leaves, and releases what it
/// has.
fn member(
    client: &Client,
    stage: &Stage,
    id: &'static str,
    board: &AssignmentTable,
) -> oneshot::Sender<()> {
    let (stop, mut stopped) = oneshot::channel();
    let mut partition = partitioner(client, stage).join(id).unwrap();
    let board = board.clone();
    tokio::spawn(async move {
        let mut mine = HashMap::new();
        let let_go = |item: &Arc<str>| {
            let mut owners = board.owners.lock().unwrap();
            if owners.get(&**item).is_some_and(|owner| owner == id) {
                owners.remove(&**item);
            }
        };
        loop {
            let event = tokio::select! {
                event = partition.next() => event.unwrap(),
                _ = &mut stopped => break,
            };
            match event {
                PartitionEvent::Assigned { item, guard } => {
                    assert_eq!(guard.check(), Ok(()));
                    let checker = board
                        .checkers
                        .lock()
                        .unwrap()
                        .entry(item.to_string())
                        .or_default()
                        .clone();
                    let inside = checker.enter(id, guard.token());
                    let moved = (item.to_string(), id.to_owned());
                    board.moves.lock().unwrap().push(moved.clone());
                    board.owners.lock().unwrap().insert(moved.0, moved.1);
                    mine.insert(item, (inside, guard));
                }
                PartitionEvent::Revoked { item } => {
                    let (inside, guard) = mine.remove(&item).unwrap();
                    assert!(guard.revoke_requested());
                    assert_eq!(guard.check(), Ok(()), "kept until it is released");
                    let_go(&item);
                    drop(inside);
                    guard.release().await.unwrap();
                }
                PartitionEvent::Lost { item, .. } => {
                    let_go(&item);
                    mine.remove(&item);
                }
                event => panic!("{event:?}"),
            }
        }
        partition.leave().await;
        for (item, (inside, guard)) in mine {
            let_go(&item);
            drop(inside);
            guard.release().await.unwrap();
        }
    });
    stop
}

#[tokio::test]
async fn every_item_has_one_owner_while_members_come_and_go_and_few_of_them_move() {
    let stage = Stage::new("partition").await;
    let board = AssignmentTable::default();
    let _one = member(&stage.client().await, &stage, "one", &board);
    board.until_shared_by(&["one"]).await;
    let _two = member(&stage.client().await, &stage, "two", &board);
    let before = board.until_shared_by(&["one", "two"]).await;

    board.moves.lock().unwrap().clear();
    let three = member(&stage.client().await, &stage, "three", &board);
    let with_three = board.until_shared_by(&["one", "two", "three"]).await;
    let moves = std::mem::take(&mut *board.moves.lock().unwrap());
    assert!(moves.iter().all(|(_, to)| to == "three"), "{moves:?}");
    for (item, owner) in &with_three {
        assert!(owner == "three" || before[item] == *owner);
    }

    three.send(()).unwrap();
    let after = board.until_shared_by(&["one", "two"]).await;
    assert_eq!(after, before, "as it was");
    let moves = std::mem::take(&mut *board.moves.lock().unwrap());
    assert!(moves.iter().all(|(item, _)| with_three[item] == "three"));
    board.check_all();
}

#[tokio::test]
async fn the_items_of_a_member_whose_session_ends_pass_on_and_its_guards_end_first() {
    let stage = Stage::new("partition-loss").await;
    let board = AssignmentTable::default();
    let _one = member(&stage.client().await, &stage, "one", &board);
    let (client, proxy) = stage.proxied(SHORT).await;
    let _two = member(&client, &stage, "two", &board);
    board.until_shared_by(&["one", "two"]).await;
    proxy.partition();
    board.until_shared_by(&["one"]).await;
    proxy.heal();
    board.until_shared_by(&["one", "two"]).await;
    board.check_all();
}

/// The next assignment.
async fn assigned(partition: &mut baton::partition::Partition) -> (Arc<str>, Guard) {
    match within(partition.next()).await.unwrap() {
        PartitionEvent::Assigned { item, guard } => (item, guard),
        event => panic!("{event:?}"),
    }
}

#[tokio::test]
async fn an_item_that_is_asked_back_stays_until_it_is_released_and_one_given_back_comes_again() {
    let stage = Stage::new("partition-back").await;
    let client = stage.client().await;
    let two = ["left", "right"];
    let of = Partitioner::new(&client, &stage.path, two).unwrap();
    let mut one = of.join("one").unwrap();
    let mut mine = HashMap::from([assigned(&mut one).await, assigned(&mut one).await]);
    // Given back unasked: it is ours again, under a greater token.
    let guard = mine.remove("left").unwrap();
    let token = guard.token();
    within(guard.release()).await.unwrap();
    let (item, guard) = assigned(&mut one).await;
    assert_eq!(&*item, "left");
    assert!(guard.token() > token);
    mine.insert(item, guard);
    // Lost by force: we are notified, and the item is assigned to us again.
    let node = mine["left"].node().to_owned();
    let admin = session(&client).await;
    within(admin.delete(&node, None)).await.unwrap();
    let event = within(one.next()).await.unwrap();
    let reason = match event {
        PartitionEvent::Lost { item, reason } if &*item == "left" => reason,
        event => panic!("{event:?}"),
    };
    assert_eq!(reason, LostReason::NodeGone);
    drop(mine.remove("left"));
    mine.extend([assigned(&mut one).await]);

    // Members come until one of them is to have an item of ours.
    let mut others = Vec::new();
    let revoked = loop {
        let id = format!("other-{}", others.len());
        others.push((of.join(&id).unwrap(), id));
        let waited = tokio::time::timeout(Duration::from_millis(500), one.next()).await;
        match waited {
            Ok(Ok(PartitionEvent::Revoked { item })) => break item,
            Ok(event) => panic!("{event:?}"),
            Err(_) => assert!(others.len() < 30),
        }
    };
    let asked_back = mine.remove(&revoked).unwrap();
    assert!(asked_back.revoke_requested());
    let (other, _) = others.last_mut().unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(200), other.next()).await;
    assert!(waited.is_err(), "two have it: {waited:?}");
    assert_eq!(asked_back.check(), Ok(()));
    let token = asked_back.token();
    within(asked_back.release()).await.unwrap();
    let (item, guard) = assigned(other).await;
    assert_eq!(item, revoked);
    assert!(guard.token() > token);
}

/// A member that takes no events for a while finds locks that were acquired for it meanwhile, and
/// are another's by now.
#[tokio::test]
async fn an_item_that_passed_on_before_it_was_handed_out_goes_to_its_next_owner() {
    const MANY: usize = 40;
    let stage = Stage::new("partition-slow").await;
    let items: Vec<_> = (0..MANY).map(|nth| format!("item-{nth}")).collect();
    let clients = [stage.proxied(LONG).await, stage.proxied(LONG).await];
    let client = &clients[0].0;
    let of = Partitioner::new(client, &stage.path, &items).unwrap();
    let mut slow = of.join("slow").unwrap();
    within(async {
        for item in &items {
            let line = format!("{}/locks/{item}", stage.path);
            while inspect::children(stage.addr, &line).await.unwrap().len() != 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
    let next = Partitioner::new(&clients[1].0, &stage.path, &items).unwrap();
    let mut next = next.join("next").unwrap();
    let group = Membership::new(client, &format!("{}/members", stage.path)).unwrap();
    let mut view = group.updates().unwrap();
    while within(view.next()).await.unwrap().members.len() != 2 {}
    let shares = settled(&clients, &mut slow, &mut next, MANY).await;
    assert_eq!(shares[0].len() + shares[1].len(), MANY);

    // The same members and items, where nobody is slow.
    let path = format!("{}-again", stage.path);
    let of = Partitioner::new(client, &path, &items).unwrap();
    let (mut slow, mut next) = (of.join("slow").unwrap(), of.join("next").unwrap());
    let again = settled(&clients, &mut slow, &mut next, MANY).await;
    assert_eq!(again, shares);
}

/// The assignment of two members when they have all of the items, each of them some, and nothing
/// more happens on these clients of theirs.
async fn settled(
    clients: &[(Client, Proxy)],
    one: &mut baton::partition::Partition,
    other: &mut baton::partition::Partition,
    many: usize,
) -> [BTreeSet<Arc<str>>; 2] {
    let (mut has, mut other_has) = (HashMap::new(), HashMap::new());
    let take = |has: &mut HashMap<_, _>, event| match event {
        PartitionEvent::Assigned { item, guard } => drop(has.insert(item, guard)),
        PartitionEvent::Revoked { item } => drop(has.remove(&item)),
        event => panic!("{event:?}"),
    };
    within(async {
        loop {
            let quiet = async {
                for (client, proxy) in clients {
                    until_quiet(client, proxy).await;
                }
            };
            tokio::select! {
                biased;
                event = one.next() => take(&mut has, event.unwrap()),
                event = other.next() => take(&mut other_has, event.unwrap()),
                () = quiet => {
                    let settled = has.len() + other_has.len() == many;
                    if settled && !has.is_empty() && !other_has.is_empty() {
                        return [has, other_has].map(|has| has.into_keys().collect());
                    }
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn what_cannot_be_partitioned_is_refused_and_a_lock_that_cannot_be_had_is_reported() {
    let stage = Stage::new("partition-bad").await;
    let client = stage.client().await;
    for path in ["", "relative", "/"] {
        let error = Partitioner::new(&client, path, ["a"]).unwrap_err();
        assert!(
            matches!(error, PartitionError::Members(MemberError::BadPath { .. })),
            "{path}: {error}"
        );
    }
    for item in ["", "a/b", "..", "a\u{1}b"] {
        let error = Partitioner::new(&client, &stage.path, [item]).unwrap_err();
        assert!(
            matches!(error, PartitionError::BadItem { .. }),
            "{item}: {error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
    let of = Partitioner::new(&client, &stage.path, ["a", "b", "a"]).unwrap();
    assert!(matches!(
        of.join("x/y").unwrap_err(),
        PartitionError::Members(MemberError::BadId { .. })
    ));

    let guard = baton::Mutex::new(&client, &format!("{}/locks/a", stage.path)).unwrap();
    drop(within(guard.acquire()).await.unwrap());
    let admin = session(&stage.client().await).await;
    let foreign = format!(
        "{}/locks/a/5c1b0f546d3c4f0b9d0e0a4b7d3f2e11__lock__0000000001",
        stage.path
    );
    plant(&admin, &foreign).await;
    let mut one = of.join("one").unwrap();
    let (mut failed, mut had) = (false, None);
    while !failed || had.is_none() {
        match within(one.next()).await.unwrap() {
            PartitionEvent::Failed { item, .. } if &*item == "a" => failed = true,
            PartitionEvent::Assigned { item, guard } if &*item == "b" => had = Some(guard),
            event => panic!("{event:?}"),
        }
    }
    within(admin.delete(&foreign, None)).await.unwrap();
    loop {
        match within(one.next()).await.unwrap() {
            PartitionEvent::Failed { .. } => {}
            PartitionEvent::Assigned { item, .. } if &*item == "a" => break,
            event => panic!("{event:?}"),
        }
    }
    within(client.close_timeout(Duration::from_secs(5)))
        .await
        .unwrap();
    loop {
        match within(one.next()).await {
            Ok(_) => {}
            Err(error) => {
                assert!(!error.to_string().contains('\n'));
                break;
            }
        }
    }
}

#[tokio::test]
async fn h83_an_item_that_is_refused_is_asked_for_again_after_growing_pauses() {
    let stage = Stage::new("pauses").await;
    let client = stage.client().await;
    let admin = session(&client).await;
    let lock = format!("{}/locks/a", stage.path);
    for path in [&stage.path, &format!("{}/locks", stage.path), &lock] {
        within(admin.create(path, b"", CreateMode::Persistent))
            .await
            .unwrap();
    }
    plant(
        &admin,
        &format!("{lock}/5c1b0f546d3c4f0b9d0e0a4b7d3f2e11__lock__0000000000"),
    )
    .await;
    let mut one = Partitioner::new(&client, &stage.path, ["a"])
        .unwrap()
        .join("one")
        .unwrap();
    let mut refused = 0;
    let counting = async {
        while let Ok(PartitionEvent::Failed { .. }) = one.next().await {
            refused += 1;
        }
    };
    let ended = tokio::time::timeout(Duration::from_millis(800), counting).await;
    assert!(ended.is_err(), "it is refused as long as the node is there");
    assert!((1..12).contains(&refused), "{refused} refusals");
}
