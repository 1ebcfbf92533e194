//! The survey against a server.

use std::time::Duration;

use baton::embedded::Embedded;
use baton::work_queue::WorkItem;
use baton::{LeaderElection, Mutex, Semaphore, WorkQueue};
use baton_client::CreateMode;
use baton_console::{Limits, Recipe, SessionReader, Surveyor};

use super::scene;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_recipe_is_recognized_and_its_parts_are_not_taken_for_others() {
    let server = Embedded::in_memory().await.unwrap();
    let client = server.client();
    let lock = Mutex::new(client, "/locks/deploy").unwrap().name("deploy");
    let held = lock.acquire().await.unwrap();
    let other = scene::client(&server).await;
    let waiting = Mutex::new(&other, "/locks/deploy").unwrap();
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    let permits = Semaphore::new(client, "/permits", 2).unwrap();
    let permit = permits.acquire(2).await.unwrap();
    let election = LeaderElection::new(client, "/leader")
        .unwrap()
        .name("web-1");
    let leadership = election.campaign().await.unwrap();
    let queue = WorkQueue::new(client, "/work").unwrap();
    for id in 0..3 {
        let item = WorkItem::new(b"payload".to_vec()).id(id.to_string());
        queue.offer(item).await.unwrap();
    }
    let claim = queue.take().await.unwrap();
    let bad = queue.take().await.unwrap();
    bad.dead_letter("broken").await.unwrap();
    let group = baton::Membership::new(client, "/group").unwrap();
    let member = group.join("web-1", b"10.0.0.1").unwrap();
    member.registered().await.unwrap();
    let latch = baton::CountdownLatch::new(client, "/latch", 3).unwrap();
    latch.count_down("one").await.unwrap();
    let gate = baton::Barrier::new(client, "/gate").unwrap();
    gate.close().await.unwrap();
    let session = client.session().await.unwrap();
    scene::folders(
        &session,
        ["/plain", "/foreign"].map(str::to_owned).into_iter(),
    )
    .await;
    for item in ["/foreign/qn-", "/foreign/qn-"] {
        let mode = CreateMode::PersistentSequential;
        session.create(item, b"x", mode).await.unwrap();
    }

    let (mut surveyor, reader) = scene::surveyor(&server).await;
    // Until the waiter is there.
    while surveyor
        .recipes()
        .get("/locks/deploy")
        .is_none_or(|lock| lock.waiters().is_empty())
    {
        surveyor.update(&reader).await.unwrap();
    }
    let kinds: Vec<_> = surveyor
        .recipes()
        .iter()
        .map(|(path, recipe)| {
            let kind = match recipe {
                Recipe::Lock(_) => "lock",
                Recipe::Election(_) => "election",
                Recipe::Queue(queue) => queue.layout,
                Recipe::Barrier(barrier) => barrier.kind,
                Recipe::Members(_) => "members",
                _ => "other",
            };
            (path.as_str(), kind)
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ("/foreign", "qn"),
            ("/gate", "gate"),
            ("/group", "members"),
            ("/latch", "latch"),
            ("/leader", "election"),
            ("/locks/deploy", "lock"),
            ("/permits", "lock"),
            ("/work", "work"),
        ]
    );
    let Recipe::Queue(work) = &surveyor.recipes()["/work"] else {
        panic!("no queue");
    };
    assert_eq!((work.depth, work.dead, work.claims.len()), (2, 1, 1));
    let reason = work.letters[0].note.as_ref().unwrap().reason.clone();
    assert_eq!(reason.as_deref(), Some("broken"));
    let states = ["/latch", "/gate"].map(|path| match &surveyor.recipes()[path] {
        Recipe::Barrier(barrier) => barrier.to_string(),
        other => panic!("{other:?}"),
    });
    assert_eq!(states, ["waiting, 1 of 3 have come", "closed"]);
    let Recipe::Election(found) = &surveyor.recipes()["/leader"] else {
        panic!("no election");
    };
    assert_eq!(found.term, Some(leadership.term()));
    let deploy = surveyor.recipes()["/locks/deploy"].queue().unwrap();
    assert_eq!(deploy.holders[0].token, Some(held.token()));
    let name = deploy.holders[0].info.record.as_ref().unwrap().name.clone();
    assert_eq!(name.as_deref(), Some("deploy"));
    let sessions = surveyor.sessions();
    assert_eq!(sessions[&other.session().await.unwrap().id()].waiting, 1);
    assert!(sessions[&session.id()].held >= 5);
    assert_eq!(surveyor.deadlocks(), []);
    let json = serde_json::to_value(surveyor.recipes()).unwrap();
    assert_eq!(json["/locks/deploy"]["recipe"], "lock");

    // The hand-over is seen.
    held.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    surveyor.update(&reader).await.unwrap();
    let deploy = surveyor.recipes()["/locks/deploy"].queue().unwrap();
    assert_eq!(deploy.holders[0].token, Some(next.token()));
    let past = surveyor.past("/locks/deploy").unwrap();
    assert_eq!((past.hand_overs, past.past.len()), (1, 1));
    drop((permit, claim, member));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_share_an_agents_session_wait_each_for_itself() {
    let server = Embedded::in_memory().await.unwrap();
    let agent = scene::client(&server).await;
    let own = scene::client(&server).await;
    // Process 1 holds a lock through the agent, process 2 waits there for the other one.
    let held = Mutex::new(&agent, "/shared/a").unwrap().pid(1);
    let held = held.acquire().await.unwrap();
    let other = Mutex::new(&own, "/shared/b").unwrap();
    let other = other.acquire().await.unwrap();
    let wait = |client: &baton::Client, path: &str, pid: u32| {
        let lock = Mutex::new(client, path).unwrap().pid(pid);
        tokio::spawn(async move { lock.acquire().await.map(|guard| guard.token()) })
    };
    let waiting = [
        wait(&agent, "/shared/b", 2),
        wait(&own, "/shared/a", std::process::id()),
    ];
    let (mut surveyor, reader) = scene::surveyor(&server).await;
    let waiters = |surveyor: &Surveyor, path: &str| {
        let lock = surveyor.recipes().get(path);
        lock.map_or(0, |lock| lock.waiters().len())
    };
    while waiters(&surveyor, "/shared/a") + waiters(&surveyor, "/shared/b") < 2 {
        surveyor.update(&reader).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(surveyor.deadlocks(), []);
    // Now the holder itself waits.
    let last = wait(&agent, "/shared/b", 1);
    while surveyor.deadlocks().is_empty() {
        surveyor.update(&reader).await.unwrap();
        tokio::task::yield_now().await;
    }
    // Process 2 waits between the two.
    assert_eq!(surveyor.deadlocks()[0].sessions, 3);
    for task in waiting.into_iter().chain([last]) {
        task.abort();
    }
    drop((held, other));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_of_three_is_found_with_a_way_out_that_ends_it() {
    let server = Embedded::in_memory().await.unwrap();
    let mut guards = Vec::new();
    let mut waiting = Vec::new();
    for at in 0..3 {
        let client = scene::client(&server).await;
        let own = Mutex::new(&client, &format!("/trio/{at}")).unwrap();
        let guard = own.acquire().await.unwrap();
        guards.push((guard.token(), Some(guard)));
        let next = Mutex::new(&client, &format!("/trio/{}", (at + 1) % 3)).unwrap();
        waiting.push(next);
    }
    let waiting: Vec<_> = waiting
        .into_iter()
        .map(|next| tokio::spawn(async move { next.acquire().await.map(|guard| guard.token()) }))
        .collect();
    let (mut surveyor, reader) = scene::surveyor(&server).await;
    while surveyor.deadlocks().is_empty() {
        surveyor.update(&reader).await.unwrap();
        tokio::task::yield_now().await;
    }
    let cycle = surveyor.deadlocks()[0].clone();
    assert_eq!((cycle.steps.len(), cycle.sessions), (3, 3));
    let asked = u64::try_from(cycle.way_out().unwrap().czxid).unwrap();
    let (_, guard) = guards
        .iter_mut()
        .find(|(token, _)| *token == asked)
        .unwrap();
    guard.take().unwrap().release().await.unwrap();
    surveyor.update(&reader).await.unwrap();
    assert_eq!(surveyor.deadlocks(), []);
    for task in waiting {
        task.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_data_that_attack_are_data() {
    let server = Embedded::in_memory().await.unwrap();
    let session = server.client().session().await.unwrap();
    let names = [
        "<script>alert(1)<",
        "\u{202e}gnirts",
        "\"'`${x}{{x}}%00&lt;",
        "-__term__",
        "-__lock__",
        "a\u{2028}b",
    ];
    for name in names {
        let dir = format!("/{name}");
        session
            .create(&dir, b"", CreateMode::Persistent)
            .await
            .unwrap();
        let node = scene::waiter(&dir);
        let mode = CreateMode::EphemeralSequential;
        session.create(&node, b"</script>", mode).await.unwrap();
        let big = vec![0xff; 1_000_000];
        session.create(&node, &big, mode).await.unwrap();
        // The bytes of a record that lies about its process.
        let lie =
            br#"{"id":"5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11","host":"<b>\u001b[31m","pid":1}"#;
        session.create(&node, lie, mode).await.unwrap();
        // Folders with the names of other recipes' parts.
        let odd = format!("{dir}/leases");
        if name.starts_with('<') {
            session
                .create(&odd, b"", CreateMode::Persistent)
                .await
                .unwrap();
        }
    }
    let (mut surveyor, reader) = scene::surveyor(&server).await;
    surveyor.update(&reader).await.unwrap();
    for name in names.iter().skip(1) {
        let lock = surveyor.recipes()[&format!("/{name}")].queue().unwrap();
        assert_eq!((lock.holders.len(), lock.waiters.len()), (1, 2), "{name}");
        assert_eq!(lock.waiters[0].info.data_length, 1_000_000);
        let process = baton_console::process(&lock.waiters[1].info).unwrap();
        assert!(!process.contains('\u{1b}'), "{process:?}");
    }
    assert!(!surveyor.tree().is_partial);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_locks_with_ten_thousand_waiters_and_two_hundred_queues() {
    let server = Embedded::in_memory().await.unwrap();
    let session = server.client().session().await.unwrap();
    scene::folders(&session, ["/l", "/q"].map(str::to_owned).into_iter()).await;
    scene::folders(&session, (0..1_000).map(|at| format!("/l/{at}"))).await;
    scene::folders(&session, (0..200).map(|at| format!("/q/{at}"))).await;
    let mut sessions = Vec::new();
    for _ in 0..11 {
        sessions.push(scene::client(&server).await.session().await.unwrap());
    }
    for owner in &sessions {
        let made: Vec<_> = (0..1_000)
            .map(|at| {
                let node = scene::waiter(&format!("/l/{at}"));
                owner.create(&node, b"", CreateMode::EphemeralSequential)
            })
            .collect();
        for made in made {
            made.await.unwrap();
        }
    }
    for _ in 0..100 {
        let made: Vec<_> = (0..200)
            .map(|at| {
                let mode = CreateMode::PersistentSequential;
                session.create(&format!("/q/{at}/qn-"), b"x", mode)
            })
            .collect();
        for made in made {
            made.await.unwrap();
        }
    }
    let (mut surveyor, reader) = scene::surveyor(&server).await;
    surveyor.update(&reader).await.unwrap();
    assert_eq!(surveyor.recipes().len(), 1_200);
    let waiting = surveyor.recipes().values();
    let waiting: usize = waiting.map(|recipe| recipe.waiters().len()).sum();
    assert_eq!(waiting, 10_000);
    let Recipe::Queue(queue) = &surveyor.recipes()["/q/7"] else {
        panic!("no queue");
    };
    // Of its hundred items, the oldest are read.
    assert_eq!((queue.depth, queue.read), (100, 64));
    assert_eq!(queue.oldest.as_deref(), Some("/q/7/qn-0000000000"));
    assert_eq!(surveyor.sessions().len(), 11);

    // One change of one lock is one row.
    let first = surveyor.recipes()["/l/7"].queue().unwrap().holders[0].clone();
    sessions[0].delete(&first.info.path, None).await.unwrap();
    let updated = surveyor.update(&reader).await.unwrap();
    assert_eq!(updated.recipes.iter().collect::<Vec<_>>(), ["/l/7"]);
    // A session that goes changes a thousand of them.
    assert!(server.expire(sessions[1].id()).await.is_ok());
    let updated = surveyor.update(&reader).await.unwrap();
    assert_eq!(updated.recipes.len(), 1_000);
    tokio::time::timeout(Duration::from_secs(60), server.shutdown())
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_of_paths_and_data_has_a_bound_and_that_is_said() {
    let server = Embedded::in_memory().await.unwrap();
    let session = server.client().session().await.unwrap();
    let data = [b'x'; 1_000];
    for at in 0..20 {
        let path = format!("/n{at:02}");
        let mode = CreateMode::Persistent;
        session.create(&path, &data, mode).await.unwrap();
    }
    let limits = Limits {
        bytes: 5_500,
        ..Limits::default()
    };
    let mut surveyor = Surveyor::new(limits);
    let reader = SessionReader::of(server.client()).await.unwrap();
    for _ in 0..2 {
        surveyor.update(&reader).await.unwrap();
        let tree = surveyor.tree();
        let kept: usize = tree
            .iter()
            .map(|(path, node)| path.len() + node.data.len())
            .sum();
        assert!((4_000..=5_500).contains(&kept), "{kept}");
        assert!(tree.is_partial);
        session.set_data("/n00", b"short", None).await.unwrap();
    }
    // What was deleted makes room.
    for at in 0..17 {
        session.delete(&format!("/n{at:02}"), None).await.unwrap();
    }
    for path in ["/n17", "/n18", "/n19"] {
        session.set_data(path, &data, None).await.unwrap();
    }
    surveyor.update(&reader).await.unwrap();
    let read = |path: &str| surveyor.tree().get(path).map(|node| node.data.len());
    assert_eq!((read("/n18"), read("/n19")), (Some(1_000), Some(1_000)));
    assert!(!surveyor.tree().is_partial);
}
