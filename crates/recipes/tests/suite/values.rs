//! Counters and shared values, and their hazards (`docs/internals/hazards.md` §3.6).

use std::time::Duration;

use baton::tree::CreateMode;
use baton::value::{CounterLayout, ValueError};
use baton::{Client, Counter, SharedValue};
use baton_client::OpCode;
use baton_testkit::{Action, Match, Variant, inspect};
use tokio::task::JoinSet;

use crate::common::{CUTS, LONG, SHORT, Stage, session, within};

const ROOMY: Duration = Duration::from_secs(4);

fn counter(client: &Client, path: &str) -> Counter {
    Counter::new(client, path).unwrap()
}

fn value(client: &Client, path: &str) -> SharedValue {
    SharedValue::new(client, path).unwrap()
}

#[tokio::test]
async fn a_counter_counts_in_every_layout_and_refuses_what_does_not_fit() {
    let stage = Stage::new("counter").await;
    let client = stage.client().await;
    let session = session(&client).await;
    for (layout, stored) in [
        (CounterLayout::Decimal, &b"-35"[..]),
        (CounterLayout::Int32, &[0xff, 0xff, 0xff, 0xdd]),
        (
            CounterLayout::Int64,
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xdd],
        ),
    ] {
        let path = format!("{}/deep/{layout:?}", stage.path);
        let counter = counter(&client, &path).layout(layout);
        assert_eq!(within(counter.get()).await.unwrap(), 0);
        assert_eq!(within(counter.add(5)).await.unwrap(), 5);
        assert_eq!(within(counter.add(-40)).await.unwrap(), -35);
        assert_eq!(&session.get_data(&path).await.unwrap().data[..], stored);
        assert!(!within(counter.compare_and_set(0, 1)).await.unwrap());
        assert!(within(counter.compare_and_set(-35, 7)).await.unwrap());
        assert_eq!(within(counter.get()).await.unwrap(), 7);
        let top = match layout {
            CounterLayout::Int32 => i64::from(i32::MAX),
            _ => i64::MAX,
        };
        within(counter.set(top)).await.unwrap();
        let refused = within(counter.add(1)).await;
        let beyond = i128::from(top) + 1;
        assert!(
            matches!(refused, Err(ValueError::OutOfRange { number, .. }) if number == beyond),
            "{refused:?}"
        );
        assert_eq!(within(counter.get()).await.unwrap(), top);

        session.set_data(&path, b"three", None).await.unwrap();
        let refused = within(counter.add(1)).await;
        assert!(
            matches!(refused, Err(ValueError::NotANumber { .. })),
            "{refused:?}"
        );
        assert_eq!(&session.get_data(&path).await.unwrap().data[..], b"three");
        within(counter.set(3)).await.unwrap();
        assert_eq!(within(counter.add(1)).await.unwrap(), 4);
    }
}

#[tokio::test]
async fn h77_an_addition_whose_answer_is_lost_happens_once() {
    let mut cases = JoinSet::new();
    for variant in CUTS {
        for message in [Match::request(OpCode::Multi), Match::reply(OpCode::Multi)] {
            for layout in [CounterLayout::Decimal, CounterLayout::Int32] {
                cases.spawn(add_through(variant, message.clone(), layout));
            }
        }
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

async fn add_through(variant: Variant, message: Match, layout: CounterLayout) {
    let stage = Stage::new("h77").await;
    let (client, proxy) = stage.proxied(ROOMY).await;
    let counter = counter(&client, &stage.path).layout(layout);
    within(counter.set(0)).await.unwrap();
    for expected in [1, 2] {
        let cut = proxy.on(message.clone()).then(Action::Cut(variant));
        assert_eq!(
            within(counter.add(1)).await.unwrap(),
            expected,
            "{variant:?}"
        );
        assert_eq!(cut.times(), 1);
        cut.remove();
    }
    assert_eq!(within(counter.get()).await.unwrap(), 2);
}

#[tokio::test]
async fn h77_an_addition_that_cannot_be_found_out_is_reported_as_unknown() {
    for (message, happened) in [
        (Match::request(OpCode::Multi), 0),
        (Match::reply(OpCode::Multi), 1),
    ] {
        let stage = Stage::new("h77unknown").await;
        let witness = counter(&stage.client().await, &stage.path);
        within(witness.set(0)).await.unwrap();
        let (client, proxy) = stage.proxied(SHORT).await;
        let cut = proxy.on(message).then(Action::Cut(Variant::Rst));
        let counting = counter(&client, &stage.path);
        let adding = tokio::spawn(async move { counting.add(1).await });
        within(cut.fired()).await;
        proxy.partition();
        let outcome = within(adding).await.unwrap();
        assert!(
            matches!(outcome, Err(ValueError::Unknown { .. })),
            "{outcome:?}"
        );
        assert_eq!(within(witness.get()).await.unwrap(), happened);
    }
}

#[tokio::test]
async fn h77_many_who_count_through_cuts_count_each_addition_once() {
    let stage = Stage::new("h77many").await;
    let mut counting = Vec::new();
    let mut proxies = Vec::new();
    for _ in 0..3 {
        let (client, proxy) = stage.proxied(LONG).await;
        let counter = counter(&client, &stage.path);
        for nth in [3, 11, 19] {
            let reply = Match::reply(OpCode::Multi).nth(nth);
            proxies.push(proxy.on(reply).then(Action::Cut(Variant::Rst)));
        }
        counting.push(tokio::spawn(async move {
            let _proxy = proxy;
            let mut sums = Vec::new();
            for _ in 0..20 {
                sums.push(counter.add(1).await.unwrap());
            }
            sums
        }));
    }
    let mut sums = Vec::new();
    for task in counting {
        sums.extend(within(task).await.unwrap());
    }
    sums.sort_unstable();
    assert_eq!(sums, (1..=60).collect::<Vec<i64>>(), "each sum once");
}

#[tokio::test]
async fn h78_a_conditional_write_whose_answer_is_lost_is_recognised_as_done() {
    let mut cases = JoinSet::new();
    for variant in CUTS {
        cases.spawn(write_through(variant));
    }
    while let Some(case) = cases.join_next().await {
        case.unwrap();
    }
}

async fn write_through(variant: Variant) {
    let stage = Stage::new("h78").await;
    let (client, proxy) = stage.proxied(ROOMY).await;
    let here = value(&client, &stage.path);
    within(here.set(b"old")).await.unwrap();
    let seen = within(here.get()).await.unwrap().unwrap();
    let cut = proxy
        .on(Match::reply(OpCode::Multi))
        .then(Action::Cut(variant));
    proxy.refuse();
    let writing = {
        let (here, seen) = (here.clone(), seen.clone());
        tokio::spawn(async move { here.compare_and_set(Some(&seen), b"ours").await })
    };
    within(cut.fired()).await;
    // The version has moved, and somebody else writes before we can read.
    let there = value(&stage.client().await, &stage.path);
    within(there.set(b"theirs")).await.unwrap();
    proxy.heal();
    assert!(
        within(writing).await.unwrap().unwrap(),
        "{variant:?}: it was applied"
    );
    assert!(
        !within(here.compare_and_set(Some(&seen), b"again"))
            .await
            .unwrap()
    );
    assert_eq!(within(here.get()).await.unwrap().unwrap().data, "theirs");
}

#[tokio::test]
async fn a_shared_value_is_written_by_one_of_those_who_saw_it() {
    let stage = Stage::new("value").await;
    let here = value(&stage.client().await, &stage.path);
    let there = value(&stage.client().await, &stage.path);
    assert_eq!(within(here.get()).await.unwrap(), None);
    assert!(within(here.compare_and_set(None, b"first")).await.unwrap());
    assert!(
        !within(there.compare_and_set(None, b"second"))
            .await
            .unwrap()
    );
    let seen = within(there.get()).await.unwrap().unwrap();
    assert_eq!((&seen.data[..], seen.version), (&b"first"[..], 0));
    assert!(
        within(here.compare_and_set(Some(&seen), b""))
            .await
            .unwrap()
    );
    assert!(
        !within(there.compare_and_set(Some(&seen), b"second"))
            .await
            .unwrap()
    );
    let empty = within(there.get()).await.unwrap().unwrap();
    assert!(empty.data.is_empty() && empty.mzxid > seen.mzxid);
}

#[tokio::test]
async fn listeners_receive_newer_values_only_over_cuts_and_sessions() {
    let stage = Stage::new("listen").await;
    let (client, proxy) = stage.proxied(ROOMY).await;
    let writer = value(&stage.client().await, &stage.path);
    let mut values = value(&client, &stage.path).values().unwrap();
    assert_eq!(within(values.next()).await.unwrap(), None);
    let writing = tokio::spawn(async move {
        for round in 1..=60 {
            writer.set(round.to_string().as_bytes()).await.unwrap();
            match round % 20 {
                7 => proxy.cut_all(Variant::Rst),
                14 => drop(client.session().await.unwrap().hand_over()),
                _ => {}
            }
        }
        (client, proxy)
    });
    let mut last = 0;
    let mut number = 0;
    while number < 60 {
        let now = within(values.next()).await.unwrap().unwrap();
        number = String::from_utf8(now.data.to_vec())
            .unwrap()
            .parse()
            .unwrap();
        assert!(now.mzxid > last, "{now:?}");
        last = now.mzxid;
    }
    let (_client, _proxy) = within(writing).await.unwrap();
    session(&stage.client().await)
        .await
        .delete(&stage.path, None)
        .await
        .unwrap();
    assert_eq!(within(values.next()).await.unwrap(), None);
}

#[tokio::test]
async fn a_listener_of_a_counter_receives_numbers_and_survives_other_data() {
    let stage = Stage::new("numbers").await;
    let client = stage.client().await;
    let counter = counter(&client, &stage.path);
    let mut numbers = counter.values().unwrap();
    assert_eq!(within(numbers.next()).await.unwrap(), 0);
    within(counter.add(2)).await.unwrap();
    assert_eq!(within(numbers.next()).await.unwrap(), 2);
    within(value(&client, &stage.path).set(b"what?"))
        .await
        .unwrap();
    let odd = within(numbers.next()).await;
    assert!(matches!(odd, Err(ValueError::NotANumber { .. })), "{odd:?}");
    within(counter.set(3)).await.unwrap();
    assert_eq!(within(numbers.next()).await.unwrap(), 3);
}

#[tokio::test]
async fn bad_input_is_refused_and_leaves_nothing() {
    let stage = Stage::new("bad").await;
    let client = stage.client().await;
    for path in ["", "relative", "/", "/a//b", "/a/"] {
        assert!(matches!(
            Counter::new(&client, path),
            Err(ValueError::BadPath { .. })
        ));
        assert!(matches!(
            SharedValue::new(&client, path),
            Err(ValueError::BadPath { .. })
        ));
    }
    let large = within(value(&client, &stage.path).set(&vec![0; 2 << 20])).await;
    assert!(matches!(large, Err(ValueError::Client { .. })), "{large:?}");
    let int = counter(&client, &stage.path).layout(CounterLayout::Int32);
    let wide = within(int.set(1 << 40)).await;
    assert!(
        matches!(wide, Err(ValueError::OutOfRange { number, .. }) if number == 1 << 40),
        "{wide:?}"
    );
    assert!(
        inspect::tree(stage.addr, &stage.path)
            .await
            .unwrap()
            .is_empty()
    );

    let owner = session(&client).await;
    owner
        .create(&stage.path, b"", CreateMode::Ephemeral)
        .await
        .unwrap();
    let below = format!("{}/below", stage.path);
    let refused = within(counter(&client, &below).add(1)).await;
    assert!(
        matches!(refused, Err(ValueError::Client { .. })),
        "{refused:?}"
    );
    assert_eq!(
        within(counter(&client, &stage.path).add(1)).await.unwrap(),
        1
    );
}

#[tokio::test]
async fn an_addition_whose_caller_goes_away_happens_once_or_not_at_all() {
    let stage = Stage::new("gone").await;
    let client = stage.client().await;
    let counter = counter(&client, &stage.path);
    within(counter.add(0)).await.unwrap();
    for _ in 0..20 {
        let mut adding = Box::pin(counter.add(1));
        for _ in 0..3 {
            tokio::select! {
                biased;
                _ = &mut adding => break,
                () = tokio::task::yield_now() => {}
            }
        }
    }
    let now = within(counter.get()).await.unwrap();
    assert!((0..=20).contains(&now), "{now}");
    within(client.close_timeout(LONG)).await.unwrap();
    let receipts = format!("{}-__receipts__", stage.path);
    assert!(
        inspect::children(stage.addr, &receipts)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn a_receipt_that_somebody_has_deleted_is_made_again() {
    let stage = Stage::new("receipt").await;
    let client = stage.client().await;
    let counter = Counter::new(&client, &stage.path).unwrap();
    assert_eq!(within(counter.add(1)).await.unwrap(), 1);
    let admin = session(&client).await;
    let folder = format!("{}-__receipts__", stage.path);
    for receipt in within(admin.children(&folder)).await.unwrap().names {
        within(admin.delete(&format!("{folder}/{receipt}"), None))
            .await
            .unwrap();
    }
    assert_eq!(within(counter.add(1)).await.unwrap(), 2);
}
