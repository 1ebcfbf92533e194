//! Consensus and the log together, on a disk that breaks: whatever was committed and acknowledged
//! is applied again, in the same place, after any number of crashes.

use std::sync::Arc;

use baton_consensus::{
    Config, Consensus, Effects, Entry, EntryKind, HardState, Membership, Recovered, SnapshotPoint,
};
use baton_wal::testing::{Fault, FaultStorage, Loss};
use baton_wal::{Record, SnapshotMeta, Wal, WalError, WalOptions};
use bytes::Bytes;

/// A server in small: its state is the list of all payloads that were ever applied.
struct Server {
    wal: Wal,
    node: Consensus,
    applied: Vec<(u64, Bytes)>,
}

/// Knowledge of clients: payloads whose application was acknowledged, with their index.
#[derive(Default)]
struct Clients {
    acknowledged: Vec<(u64, Bytes)>,
    proposed: u64,
}

fn options() -> WalOptions {
    WalOptions {
        cluster_id: Some(3),
        segment_bytes: 4096,
        extend_bytes: 4096,
        keep_snapshots: 2,
    }
}

impl Server {
    fn start(disk: &FaultStorage) -> Result<Server, WalError> {
        let (wal, found) = Wal::open(Arc::new(disk.clone()), options())?;
        let mut applied = Vec::new();
        let snapshot = match &found.snapshot {
            None => None,
            Some(info) => {
                let mut reader = wal.snapshots().reader(&info.name)?;
                while let Some(chunk) = reader.next_chunk()? {
                    let (index, payload) = chunk.payload.split_at(8);
                    applied.push((
                        u64::from_le_bytes(index.try_into().unwrap()),
                        Bytes::copy_from_slice(payload),
                    ));
                }
                Some(SnapshotPoint {
                    index: info.meta.index,
                    term: info.meta.term,
                    membership: Membership::decode(&info.meta.membership).unwrap(),
                })
            }
        };
        let recovered = Recovered {
            snapshot,
            hard_state: HardState {
                term: found.hard_state.term,
                vote: found.hard_state.vote,
            },
            commit: found.commit,
            entries: found
                .entries
                .into_iter()
                .map(|e| Entry::from_stored(e.index, e.term, e.kind, e.payload).unwrap())
                .collect(),
        };
        let mut node = Consensus::new(&Config::sole_voter(1), recovered).unwrap();
        node.campaign().unwrap();
        let mut server = Server { wal, node, applied };
        server.settle(&mut Clients::default())?;
        Ok(server)
    }

    /// Stores, syncs and applies until nothing is left; only what is applied is acknowledged.
    fn settle(&mut self, clients: &mut Clients) -> Result<(), WalError> {
        while let Some(effects) = self.node.drain() {
            let Effects {
                token,
                append,
                hard_state,
                commit,
                must_sync,
                committed,
                ..
            } = effects;
            let mut records: Vec<Record> = append
                .into_iter()
                .map(|e| {
                    Record::Entry(baton_wal::Entry {
                        index: e.index,
                        term: e.term,
                        kind: e.kind.as_byte(),
                        payload: e.payload,
                    })
                })
                .collect();
            records.extend(hard_state.map(|state| {
                Record::HardState(baton_wal::HardState {
                    term: state.term,
                    vote: state.vote,
                })
            }));
            records.extend(commit.map(|index| Record::Commit { index }));
            self.wal.append(&records)?;
            if must_sync {
                self.wal.sync()?;
            }
            // As a server at rest does now and then.
            if clients.proposed % 3 == 1 {
                self.wal.mark_end()?;
            }
            self.node.persisted(token);
            for entry in committed {
                if entry.kind == EntryKind::Command {
                    self.applied.push((entry.index, entry.payload.clone()));
                    clients.acknowledged.push((entry.index, entry.payload));
                }
                self.node.applied(entry.index).unwrap();
            }
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<(), WalError> {
        let point = self.node.snapshot_point();
        let mut writer = self.wal.snapshots().writer(SnapshotMeta {
            index: point.index,
            term: point.term,
            zxid: 0,
            time_ms: 0,
            membership: point.membership.encode(),
        })?;
        for (index, payload) in &self.applied {
            writer.chunk(1, &[&index.to_le_bytes(), &payload[..]].concat())?;
        }
        let info = writer.finish()?;
        self.wal.snapshot_saved(&info)
    }

    fn work(&mut self, rng: &mut fastrand::Rng, clients: &mut Clients) -> Result<(), WalError> {
        for _ in 0..30 {
            for _ in 0..=rng.u64(..4) {
                clients.proposed += 1;
                let mut payload = clients.proposed.to_le_bytes().to_vec();
                payload.resize(8 + rng.usize(..600), 0x5a);
                self.node.propose(Bytes::from(payload)).unwrap();
            }
            self.settle(clients)?;
            if rng.u8(..100) < 10 {
                self.snapshot()?;
            }
        }
        Ok(())
    }
}

#[test]
fn acknowledged_proposals_survive_any_crash() {
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut disk = FaultStorage::new();
        let mut clients = Clients::default();
        for life in 0..6 {
            let fault = Fault::ALL[rng.usize(..Fault::ALL.len())];
            disk.fail_at(rng.u64(..160), fault);
            let what = format!("seed {seed}, life {life}, {fault:?}");
            if let Ok(mut server) = Server::start(&disk) {
                assert_holds(&server, &clients, &what);
                // What a start has applied is seen by clients, so it must stay as well.
                clients.acknowledged.clone_from(&server.applied);
                let _ = server.work(&mut rng, &mut clients);
            }
            disk = if rng.u8(..100) < 30 {
                disk.kill()
            } else {
                disk.crash(Loss::Random(rng.u64(..)))
            };
        }
        let server = Server::start(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_holds(&server, &clients, &format!("seed {seed}, at the end"));
    }
}

fn assert_holds(server: &Server, clients: &Clients, what: &str) {
    let known = clients.acknowledged.len();
    assert!(
        server.applied.len() >= known,
        "{what}: acknowledged proposals are gone"
    );
    assert_eq!(server.applied[..known], clients.acknowledged[..], "{what}");
    assert!(
        server.applied.is_sorted_by(|a, b| a.0 < b.0),
        "{what}: applied out of order"
    );
}
