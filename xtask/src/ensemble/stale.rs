//! Reads at one server right after a write that another one has acknowledged. ZooKeeper's protocol
//! allows an old value there, and so does Baton: counted beside Apache ZooKeeper, since programs
//! that rely on what they usually see notice a difference.

use std::path::Path;

use baton_client::{CreateMode, Session};
use baton_testkit::{Ensemble, ServerOptions, Target};

use super::load::Client;
use super::stage::SERVERS;
use crate::process::server_name;
use crate::{Result, table};

const PATH: &str = "/fresh";

/// Writes through each server in turn, and reads at another one as soon as the answer is here.
/// Prints how many of the reads were old, in turn for both.
pub(super) async fn take(baton: &Path, rounds: usize, writes: usize) -> Result<()> {
    let options = ServerOptions {
        baton: Some(baton.to_owned()),
        wires: None,
        java_machine: Vec::new(),
        ..ServerOptions::default()
    };
    let mut ensembles = Vec::new();
    for target in [Target::ZooKeeper, Target::Baton] {
        let ensemble = Ensemble::start_processes(target, SERVERS, options.clone()).await?;
        let mut sessions = Vec::new();
        for client in Client::one_each(ensemble.servers()).await? {
            sessions.push(client.session);
        }
        sessions[0]
            .create(PATH, b"", CreateMode::Persistent)
            .await?;
        // Compilers and caches are warm then.
        stale_reads(&sessions, writes).await?;
        ensembles.push((server_name(target), sessions, ensemble));
    }
    let mut rows = Vec::new();
    for round in 1..=rounds {
        for (name, sessions, _) in &ensembles {
            let old = stale_reads(sessions, writes).await?;
            rows.push(vec![
                round.to_string(),
                name.clone(),
                old.to_string(),
                writes.to_string(),
            ]);
        }
    }
    println!(
        "{}",
        table::markdown(&["round", "servers", "old reads", "of"], &rows)
    );
    Ok(())
}

async fn stale_reads(sessions: &[Session], writes: usize) -> Result<usize> {
    let mut old = 0;
    for number in 0..writes {
        let writer = &sessions[number % sessions.len()];
        let reader = &sessions[(number / sessions.len() + number + 1) % sessions.len()];
        let value = number.to_string();
        let written = writer.set_data(PATH, value.as_bytes(), None).await?;
        let read = reader.get_data(PATH).await?;
        old += usize::from(read.stat.mzxid < written.mzxid);
    }
    Ok(old)
}
