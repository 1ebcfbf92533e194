//! Waiters whose connections are cut at random: never two valid guards at one instant, tokens
//! that grow, and nothing left.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton::Guard;
use baton_testkit::{Proxy, Variant};

use crate::common::{Stage, mutex, within};

const WAITERS: u8 = 5;
const CUTS: u32 = 60;
/// Grants that there are at least, however long they take.
const GRANTS: u64 = 20;

/// Every guard that is in somebody's hands.
#[derive(Default)]
struct GuardRegister {
    guards: Vec<Arc<Guard>>,
    last_token: u64,
    grants: u64,
}

impl GuardRegister {
    /// All are asked by one clock within microseconds, so two yeses are two valid guards.
    fn audit(&self) {
        let valid: Vec<_> = self
            .guards
            .iter()
            .filter(|guard| guard.check().is_ok())
            .collect();
        assert!(valid.len() <= 1, "valid at once: {valid:?}");
    }

    fn granted(&mut self, guard: &Arc<Guard>) {
        self.grants += 1;
        self.guards.push(Arc::clone(guard));
        self.audit();
        // One that ended on its way here may come after its successor.
        if guard.check().is_ok() {
            assert!(
                guard.token() > self.last_token,
                "a token that does not grow: {guard:?}"
            );
            self.last_token = guard.token();
        }
    }

    fn returned(&mut self, guard: Arc<Guard>) {
        self.audit();
        self.guards.retain(|other| !Arc::ptr_eq(other, &guard));
    }
}

async fn contend(
    client: baton::Client,
    path: String,
    ledger: Arc<Mutex<GuardRegister>>,
    stop: Arc<AtomicBool>,
) {
    let lock = mutex(&client, &path);
    while !stop.load(Ordering::Relaxed) {
        let limit = Duration::from_millis(700);
        let Ok(guard) = lock.acquire_timeout(limit).await else {
            continue;
        };
        let guard = Arc::new(guard);
        ledger.lock().unwrap().granted(&guard);
        let _ = guard
            .run(tokio::time::sleep(Duration::from_millis(15)))
            .await;
        ledger.lock().unwrap().returned(guard);
    }
}

async fn cut_at_random(proxies: &[Proxy], ledger: &Mutex<GuardRegister>, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let variants = [
        Variant::Rst,
        Variant::Fin,
        Variant::RstClientOnly,
        Variant::RstServerOnly,
        Variant::BlackHole,
        Variant::BlackHoleToServer,
        Variant::BlackHoleToClient,
    ];
    let mut cuts = 0;
    // On a busy machine grants come more slowly: what is to be seen is exclusion among many.
    while cuts < CUTS || ledger.lock().unwrap().grants < GRANTS {
        cuts += 1;
        let proxy = &proxies[rng.usize(..proxies.len())];
        match rng.usize(..variants.len() + 2) {
            nth if nth < variants.len() => proxy.cut_all(variants[nth]),
            nth if nth == variants.len() => proxy.partition(),
            _ => proxy.refuse(),
        }
        for _ in 0..rng.usize(..16) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            ledger.lock().unwrap().audit();
        }
        if rng.usize(..3) == 0 {
            proxy.heal();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_guards_are_valid_at_once_whatever_happens_to_the_connections() {
    for seed in 1..=2 {
        let stage = Stage::new("chaos").await;
        let (ledger, stop) = (
            Arc::<Mutex<GuardRegister>>::default(),
            Arc::<AtomicBool>::default(),
        );
        let mut proxies = Vec::new();
        let mut waiters = Vec::new();
        for _ in 0..WAITERS {
            let (client, proxy) = stage.proxied(Duration::from_millis(1200)).await;
            proxies.push(proxy);
            let (ledger, stop) = (Arc::clone(&ledger), Arc::clone(&stop));
            waiters.push(tokio::spawn(contend(
                client,
                stage.path.clone(),
                ledger,
                stop,
            )));
        }
        within(cut_at_random(&proxies, &ledger, seed)).await;
        stop.store(true, Ordering::Relaxed);
        for proxy in &proxies {
            proxy.heal();
        }
        for waiter in waiters {
            within(waiter).await.unwrap();
        }
        stage.until_children(0).await;
    }
}
