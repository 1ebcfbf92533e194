//! A scene for the console, on the server that the argument names, until it is interrupted: a few
//! of each recipe and a deadlock of three; with `large`, a thousand locks with ten thousand waiters
//! and two hundred queues as well, and names and data that attack a program that shows them.
//!
//! ```console
//! $ baton serve --ephemeral --listen 127.0.0.1:2181 &
//! $ cargo run -p baton-locks-console --example scene -- 127.0.0.1:2181 large &
//! $ baton console --servers 127.0.0.1:2181
//! ```
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use baton::work_queue::WorkItem;
use baton::{Barrier, CountdownLatch, LeaderElection, Membership, Mutex, Semaphore, WorkQueue};
use baton_client::{Client, Config, CreateMode};

const NAME: &str = "_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-lock-";

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let servers = arguments
        .next()
        .expect("name the server, like 127.0.0.1:2181");
    let is_large = arguments.next().as_deref() == Some("large");
    let connect = async || {
        Client::connect(Config::new(&servers).unwrap())
            .await
            .unwrap()
    };
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    let client = connect().await;
    for (path, name) in [
        ("/deploy/web", "deploy 4711"),
        ("/deploy/api", "deploy 4712"),
        ("/cron/backup", "backup --full"),
        ("/<img src=x onerror=alert(1)>", "<b>markup</b>"),
        ("/abc\u{202e}txt.exe", "right to left"),
    ] {
        let lock = Mutex::new(&client, path).unwrap().name(name);
        kept.push(Box::new(lock.acquire().await.unwrap()));
    }
    for at in 0..4 {
        for path in ["/deploy/eu", "/cron/report", "/migrate"] {
            let lock = Mutex::new(&client, path).unwrap();
            let lock = lock.name(&format!("deploy {}", 4707 + at));
            lock.acquire().await.unwrap().release().await.unwrap();
        }
    }
    for at in 0..7 {
        let path = if at < 5 {
            "/deploy/web"
        } else {
            "/cron/backup"
        };
        let waiting = Mutex::new(&connect().await, path)
            .unwrap()
            .name(&format!("deploy {}", 4713 + at));
        kept.push(Box::new(tokio::spawn(
            async move { waiting.acquire().await },
        )));
    }
    // Three that wait for each other.
    let mut waiting = Vec::new();
    for (at, (own, other)) in [
        ("accounts", "invoices"),
        ("invoices", "payments"),
        ("payments", "accounts"),
    ]
    .iter()
    .enumerate()
    {
        let client = connect().await;
        let name = format!("ledger-{at}");
        let lock = |path: &str| {
            let lock = Mutex::new(&client, &format!("/ledger/{path}"));
            lock.unwrap().name(&name)
        };
        kept.push(Box::new(lock(own).acquire().await.unwrap()));
        waiting.push(lock(other));
    }
    for waiting in waiting {
        kept.push(Box::new(tokio::spawn(
            async move { waiting.acquire().await },
        )));
    }
    for (path, name) in [
        ("/services/billing/leader", "billing-1"),
        ("/services/search/leader", "search-1"),
    ] {
        let election = LeaderElection::new(&client, path).unwrap().name(name);
        kept.push(Box::new(election.campaign().await.unwrap()));
        let next = LeaderElection::new(&connect().await, path)
            .unwrap()
            .name("standby");
        kept.push(Box::new(tokio::spawn(async move { next.campaign().await })));
    }
    let permits = Semaphore::new(&client, "/licences", 3).unwrap();
    kept.push(Box::new(permits.acquire(2).await.unwrap()));
    for (path, items, dead) in [("/jobs/mail", 40, 3), ("/jobs/images", 7, 0)] {
        let queue = WorkQueue::new(&client, path).unwrap();
        for id in 0..items + dead {
            let item = WorkItem::new(b"payload".to_vec()).id(format!("job-{id}"));
            queue.offer(item).await.unwrap();
        }
        for _ in 0..dead {
            let claim = queue.take().await.unwrap();
            claim.dead_letter("mailbox does not exist").await.unwrap();
        }
        kept.push(Box::new(queue.take().await.unwrap()));
    }
    let group = Membership::new(&client, "/web").unwrap();
    for id in ["web-1", "web-2", "web-3"] {
        let member = group.join(id, b"10.0.0.1:80").unwrap();
        member.registered().await.unwrap();
        kept.push(Box::new(member));
    }
    let latch = CountdownLatch::new(&client, "/import/loaded", 8).unwrap();
    for shard in ["a", "b", "c"] {
        latch.count_down(shard).await.unwrap();
    }
    let gate = Barrier::new(&client, "/maintenance").unwrap();
    gate.close().await.unwrap();
    if is_large {
        large(&connect).await;
        hostile(&connect).await;
    }
    println!("the scene stands");
    std::future::pending::<()>().await;
}

/// A thousand locks with ten waiters each, and two hundred queues of fifty items.
async fn large(connect: &impl AsyncFn() -> Client) {
    let session = connect().await.session().await.unwrap();
    for (folder, count) in [("/many", 1_000), ("/queues", 200)] {
        let mode = CreateMode::Persistent;
        session.create(folder, b"", mode).await.unwrap();
        let made: Vec<_> = (0..count)
            .map(|at| session.create(&format!("{folder}/{at:04}"), b"", mode))
            .collect();
        for made in made {
            made.await.unwrap();
        }
    }
    for _ in 0..11 {
        let client = connect().await;
        let session = client.session().await.unwrap();
        let made: Vec<_> = (0..1_000)
            .map(|at| {
                let node = format!("/many/{at:04}/{NAME}");
                session.create(&node, b"", CreateMode::EphemeralSequential)
            })
            .collect();
        for made in made {
            made.await.unwrap();
        }
        // The session lives as long as this process.
        std::mem::forget(client);
    }
    for _ in 0..50 {
        let made: Vec<_> = (0..200)
            .map(|at| {
                let mode = CreateMode::PersistentSequential;
                session.create(&format!("/queues/{at:04}/qn-"), b"x", mode)
            })
            .collect();
        for made in made {
            made.await.unwrap();
        }
    }
}

/// Names and data of any kind that a server takes: markup, control bytes, letters that turn the
/// direction of writing, long ones, a megabyte.
async fn hostile(connect: &impl AsyncFn() -> Client) {
    let client = connect().await;
    let session = client.session().await.unwrap();
    let mode = CreateMode::Persistent;
    let bytes: Vec<u8> = [&[0, 1, 2, 0x1b], &b"[2J\x07<script>"[..], &[0xff, 0xfe]].concat();
    let names = [
        "<img src=x onerror=alert(1)>",
        "\"'><svg onload=alert(1)>",
        "\u{202e}gnp.txt\u{2066}",
        "{{constructor.constructor('alert(1)')()}}",
        "%3Cscript%3E&lt;b&gt;&#x202e;",
        "..\u{fe0f}\u{200b}",
    ];
    session.create("/hostile", b"", mode).await.unwrap();
    let big = vec![b'<'; 1_000_000];
    session.create("/hostile/big", &big, mode).await.unwrap();
    session
        .create("/hostile/bytes", &bytes, mode)
        .await
        .unwrap();
    let long = "long ".repeat(2_000);
    for name in names.into_iter().chain([long.trim_end()]) {
        let path = format!("/hostile/{name}");
        session.create(&path, name.as_bytes(), mode).await.unwrap();
        // A holder says who it is in bytes of its own choice.
        for data in [&bytes, name.as_bytes(), b""] {
            let node = format!("{path}/{NAME}");
            let waiter = CreateMode::EphemeralSequential;
            session.create(&node, data, waiter).await.unwrap();
        }
    }
    std::mem::forget(client);
}
