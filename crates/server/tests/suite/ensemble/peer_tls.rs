//! An ensemble with TLS between its servers: they do what others do, change from plain connections
//! one after the other, and take new certificates while they run.

use std::collections::BTreeSet;

use baton_server::{PeerTlsOptions, Server, StartError};

use super::{assert_all_have, children};
use crate::support::ensemble::{Ensemble, sync};
use crate::support::tls::{Fleet, SOON};

/// TLS only, with a certificate of the fleet for the hosts of the ensemble.
fn tls(fleet: &Fleet) -> PeerTlsOptions {
    PeerTlsOptions {
        reload_interval: SOON,
        ..PeerTlsOptions::new(fleet.files(&fleet.issue("servers")))
    }
}

/// Creates a znode at some server, and finds it at every other one.
async fn replicate(ensemble: &Ensemble, name: &str) {
    let mut at = ensemble.open(ensemble.ids()[0]).await;
    at.create(&format!("/{name}"), b"", 0).await.unwrap();
    for id in ensemble.ids() {
        let mut wire = ensemble.open(id).await;
        sync(&mut wire).await;
        let found = children(&mut wire, "/").await;
        assert!(found.contains(name), "server {id}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_with_tls_elects_replicates_and_survives_the_end_of_any_server() {
    let fleet = Fleet::new();
    let mut ensemble = Ensemble::unstarted(3);
    ensemble.tls = Some(tls(&fleet));
    ensemble.snapshot_every_entries = 20;
    ensemble.start_every().await;
    let mut acknowledged = BTreeSet::new();
    for round in 0..3 {
        let leader = ensemble.leader().await;
        ensemble.kill(leader).await;
        let left = ensemble.ids()[0];
        let mut wire = ensemble.open(left).await;
        for number in 0..30 {
            let name = format!("n-{round}-{number}");
            // Larger than a record of TLS, and than what a sender writes itself.
            let data = vec![7; 1000 * number];
            wire.create(&format!("/{name}"), &data, 0).await.unwrap();
            acknowledged.insert(name);
        }
        // The log is cut: what the server missed comes to it as a snapshot.
        ensemble.start_all(&[leader]).await;
        assert_all_have(&ensemble, &acknowledged).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_changes_from_plain_connections_to_tls_and_back_without_a_stop() {
    let fleet = Fleet::new();
    let mut ensemble = Ensemble::start(3).await;
    replicate(&ensemble, "plain").await;
    let alone = tls(&fleet);
    let both = PeerTlsOptions {
        accepts_plain: true,
        ..alone.clone()
    };
    let accepting = PeerTlsOptions {
        connects: false,
        ..both.clone()
    };
    let there = [Some(accepting), Some(both), Some(alone)];
    let back = there.iter().rev().skip(1).cloned();
    let steps = there.iter().cloned().chain(back).chain([None]);
    for (step, tls) in steps.enumerate() {
        for id in 1..=3 {
            ensemble.stop(id).await;
            // The other two go on.
            let left = ensemble.ids()[0];
            let mut wire = ensemble.open(left).await;
            let path = format!("/without-{step}-{id}");
            wire.create(&path, b"", 0).await.unwrap();
            ensemble.tls.clone_from(&tls);
            ensemble.start_all(&[id]).await;
            replicate(&ensemble, &format!("with-{step}-{id}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_take_certificates_of_a_new_authority_while_they_run() {
    let (old, new) = (Fleet::new(), Fleet::new());
    let files = old.files(&old.issue("servers"));
    let authorities = |of: &[&Fleet]| {
        let all: String = of.iter().map(|fleet| fleet.authority()).collect();
        old.write("ca.pem", &all);
    };
    let mut ensemble = Ensemble::unstarted(3);
    ensemble.tls = Some(PeerTlsOptions {
        reload_interval: SOON,
        ..PeerTlsOptions::new(files)
    });
    ensemble.start_every().await;
    replicate(&ensemble, "old").await;
    // As operators do it: trust both, show the new one, trust it alone.
    authorities(&[&old, &new]);
    let pair = new.issue("servers");
    old.write("server.key", &pair.key);
    old.write("server.pem", &pair.certificate);
    authorities(&[&new]);
    // A server that starts now trusts the new authority alone: the others have to show its
    // certificates, and accept those.
    for id in 1..=3 {
        ensemble.kill(id).await;
        ensemble.start_all(&[id]).await;
        replicate(&ensemble, &format!("new-{id}")).await;
    }
}

/// A file that is wrong stops the start before a folder has been made for the server.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_others_would_refuse_stops_the_start() {
    let fleet = Fleet::new();
    let of_client = fleet.issue_with("client", |params| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    });
    let mut ensemble = Ensemble::unstarted(1);
    ensemble.tls = Some(PeerTlsOptions::new(fleet.files(&of_client)));
    let refused = Server::start(ensemble.options(1)).await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, StartError::Tls(_)), "{text}");
    assert!(
        text.contains("not both serverAuth and clientAuth"),
        "{text}"
    );
}
