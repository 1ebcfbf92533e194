//! The same requests to Baton and to Apache ZooKeeper: every reply, every error and every watch
//! event must agree. A short run of what `cargo xtask diff` does for long, and the same against
//! ZooKeeper's recorded answers, which needs none.

use baton_testkit::differential::{Differences, Generator, Oracle, OracleError, Recorder};
use baton_testkit::{LaunchError, Target, golden, skip, zookeeper_or_skip};

const PROGRAMS: usize = 20;
const ACTS: usize = 100;
const GOLDEN: &str = "programs.txt";

#[tokio::test]
async fn baton_and_zookeeper_agree() {
    if !zookeeper_or_skip() {
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

/// The same with TLS, certificates of the sessions, and ACLs that name these.
#[tokio::test]
async fn baton_and_zookeeper_agree_about_certificates() {
    if !zookeeper_or_skip() {
        return;
    }
    let differences = Differences::meant();
    let mut oracle = match Oracle::start_with_tls(1, differences.clone()).await {
        Err(OracleError::Launch(missing @ LaunchError::NotInstalled { .. })) => {
            skip("zookeeper", &missing.to_string());
            return;
        }
        oracle => oracle.unwrap(),
    };
    let mut generator = Generator::new(4, 3, differences).for_certificates();
    for _ in 0..PROGRAMS / 2 {
        let program = generator.program(ACTS);
        assert!(format!("{program:?}").contains("\"x509\""));
        if oracle.compare(&program).await.unwrap().is_some() {
            let (_, difference) = oracle.shrink(program).await.unwrap().expect("as before");
            panic!("they differ:\n{}", difference.transcript);
        }
    }
    oracle.stop().await;
}

async fn transcript(target: Target) -> String {
    let differences = Differences::meant();
    let mut recorder = Recorder::start(target, differences.clone()).await.unwrap();
    let mut generator = Generator::new(2, 3, differences);
    let mut all = String::new();
    for number in 0..PROGRAMS {
        all.push_str(&format!("-- program {number}\n"));
        all.push_str(&recorder.record(&generator.program(ACTS)).await.unwrap());
    }
    recorder.stop().await;
    all
}

#[tokio::test]
async fn baton_answers_as_was_recorded_of_zookeeper() {
    golden::compare(GOLDEN, &transcript(Target::Baton).await);
}

/// After a change to the generator:
/// `BATON_RECORD_GOLDEN=1 cargo test -p baton-testkit --test suite differential::`.
#[tokio::test]
async fn zookeeper_answers_as_was_recorded() {
    if zookeeper_or_skip() {
        golden::compare_or_record(GOLDEN, &transcript(Target::ZooKeeper).await);
    }
}

/// An ensemble answers as one server does, through each server, and with sessions that move from
/// one to another.
#[tokio::test(flavor = "multi_thread")]
async fn three_batons_answer_as_one() {
    let differences = Differences::meant();
    let one = Recorder::start(Target::Baton, differences.clone());
    let three = Recorder::start_several(Target::Baton, 3, differences.clone());
    let (mut one, mut three) = (one.await.unwrap(), three.await.unwrap());
    let mut generator = Generator::new(3, 3, differences).for_ensembles();
    for _ in 0..PROGRAMS {
        let program = generator.program(ACTS);
        let expected = one.record(&program).await.unwrap();
        let found = three.record(&program).await.unwrap();
        for (found, expected) in found.lines().zip(expected.lines()) {
            assert_eq!(found, expected);
        }
        assert_eq!(found.len(), expected.len());
    }
    one.stop().await;
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_batons_and_three_zookeepers_agree() {
    if !zookeeper_or_skip() {
        return;
    }
    let differences = Differences::meant();
    let oracle = Oracle::start_several(3, differences.clone());
    let mut oracle = oracle.await.unwrap();
    let mut generator = Generator::new(1, 3, differences).for_ensembles();
    for _ in 0..PROGRAMS / 4 {
        let program = generator.program(ACTS);
        if let Some(first) = oracle.compare(&program).await.unwrap() {
            let difference = match oracle.shrink(program).await.unwrap() {
                Some((_, smallest)) => smallest,
                None => first,
            };
            panic!("they differ:\n{}", difference.transcript);
        }
    }
    oracle.stop().await;
}
