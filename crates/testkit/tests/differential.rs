//! The same requests to Baton and to Apache ZooKeeper: every reply, every error and every watch event must agree.
//! A short run of what `cargo xtask diff` does for long; skipped where no ZooKeeper is installed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs
)]

use baton_testkit::differential::{Differences, Generator, Oracle};
use baton_testkit::zookeeper_is_installed;

const PROGRAMS: usize = 20;
const ACTS: usize = 100;

#[tokio::test]
async fn baton_and_zookeeper_agree() {
    if !zookeeper_is_installed() {
        eprintln!("skipped: Apache ZooKeeper is not installed");
        return;
    }
    let differences = Differences::meant();
    let mut oracle = Oracle::start(differences.clone()).await.unwrap();
    let mut generator = Generator::new(1, 3, differences);
    for _ in 0..PROGRAMS {
        let program = generator.program(ACTS);
        if oracle.compare(&program).await.unwrap().is_some() {
            let (_, difference) = oracle.shrink(program).await.unwrap().expect("as before");
            panic!("they differ:\n{}", difference.transcript);
        }
    }
    oracle.stop().await;
}
