//! One voter, driven by hand: what commits when, what a restart gives back, what is refused.

use baton_consensus::{
    Config, Consensus, ConsensusError, Effects, Entry, EntryKind, HardState, Membership,
    ProposeError, ReadError, Recovered, Role, SnapshotPoint,
};
use bytes::Bytes;

fn fresh() -> Consensus {
    Consensus::new(&Config::sole_voter(1), Recovered::default()).unwrap()
}

/// A leader whose no-op is committed and applied.
fn leader() -> Consensus {
    let mut node = fresh();
    node.campaign().unwrap();
    let committed = settle(&mut node);
    assert_eq!(indexes(&committed), [1]);
    node.applied(1).unwrap();
    node
}

/// Persists everything until nothing is left, and gives what was committed on the way.
fn settle(node: &mut Consensus) -> Vec<Entry> {
    let mut committed = Vec::new();
    while let Some(effects) = node.drain() {
        node.persisted(effects.token);
        committed.extend(effects.committed);
    }
    committed
}

fn indexes(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.index).collect()
}

fn entry(index: u64, term: u64, text: &'static str) -> Entry {
    Entry {
        index,
        term,
        kind: if text.is_empty() {
            EntryKind::Noop
        } else {
            EntryKind::Command
        },
        payload: Bytes::from_static(text.as_bytes()),
    }
}

#[test]
fn a_sole_voter_leads_at_once_and_reports_it() {
    let mut node = fresh();
    assert_eq!(node.status().role, Role::Follower);
    node.campaign().unwrap();
    let effects = node.drain().unwrap();
    let role = effects.role.unwrap();
    assert_eq!(
        (role.role, role.term, role.leader),
        (Role::Leader, 1, Some(1))
    );
    assert_eq!(effects.hard_state, Some(HardState { term: 1, vote: 1 }));
    assert_eq!(effects.append, [entry(1, 1, "")]);
    assert!(effects.must_sync && effects.committed.is_empty());
}

#[test]
fn nothing_commits_before_its_own_persisted_acknowledgement() {
    let mut node = leader();
    let position = node.propose(Bytes::from_static(b"a")).unwrap();
    assert_eq!((position.index, position.term), (2, 1));
    let effects = node.drain().unwrap();
    assert_eq!(effects.append, [entry(2, 1, "a")]);
    assert!(effects.must_sync && effects.committed.is_empty());
    for _ in 0..50 {
        node.tick();
        if let Some(more) = node.drain() {
            assert!(more.committed.is_empty() && more.append.is_empty());
        }
    }
    assert_eq!(node.commit_index(), 1);
    node.persisted(effects.token);
    let effects = node.drain().unwrap();
    assert_eq!(effects.committed, [entry(2, 1, "a")]);
    assert_eq!(effects.commit, Some(2));
    assert!(!effects.must_sync && effects.append.is_empty() && effects.hard_state.is_none());
}

#[test]
fn a_later_batch_may_be_drained_while_the_first_is_on_its_way_to_the_disk() {
    let mut node = leader();
    node.propose(Bytes::from_static(b"a")).unwrap();
    let first = node.drain().unwrap();
    node.propose(Bytes::from_static(b"b")).unwrap();
    node.propose(Bytes::from_static(b"c")).unwrap();
    let second = node.drain().unwrap();
    assert_eq!(indexes(&second.append), [3, 4]);
    node.persisted(first.token);
    assert_eq!(indexes(&node.drain().unwrap().committed), [2]);
    node.persisted(second.token);
    assert_eq!(indexes(&node.drain().unwrap().committed), [3, 4]);
}

#[test]
fn proposals_that_wait_come_out_as_one_batch() {
    let mut node = leader();
    for at in 0..1000_u32 {
        node.propose(Bytes::copy_from_slice(&at.to_le_bytes()))
            .unwrap();
    }
    let Effects { append, token, .. } = node.drain().unwrap();
    assert_eq!(append.len(), 1000);
    node.persisted(token);
    let committed = node.drain().unwrap().committed;
    assert_eq!(committed, append);
    assert!(node.drain().is_none());
    node.applied(1001).unwrap();
}

#[test]
fn a_proposal_before_leadership_is_refused_and_leaves_nothing() {
    let mut node = fresh();
    assert_eq!(
        node.propose(Bytes::from_static(b"early")),
        Err(ProposeError::NotLeader { leader: None })
    );
    assert_eq!(
        node.read_index(),
        Err(ReadError::NotLeader { leader: None })
    );
    node.campaign().unwrap();
    assert_eq!(settle(&mut node), [entry(1, 1, "")]);
}

#[test]
fn a_refusal_names_the_leader_where_it_is_known() {
    let refused = |leader| ReadError::NotLeader { leader }.to_string();
    assert!(refused(None).ends_with("the leader is not known"));
    assert!(refused(Some(3)).ends_with("the leader is node 3"));
}

#[test]
fn an_empty_proposal_is_refused() {
    let mut node = leader();
    assert_eq!(node.propose(Bytes::new()), Err(ProposeError::Empty));
}

#[test]
fn proposals_beyond_the_byte_limit_are_refused_until_some_commit() {
    let config = Config {
        max_uncommitted_bytes: 1000,
        ..Config::sole_voter(1)
    };
    let mut node = Consensus::new(&config, Recovered::default()).unwrap();
    node.campaign().unwrap();
    settle(&mut node);
    let payload = Bytes::from(vec![1; 400]);
    node.propose(payload.clone()).unwrap();
    node.propose(payload.clone()).unwrap();
    assert_eq!(
        node.propose(payload.clone()),
        Err(ProposeError::TooMuchUncommitted { limit_bytes: 1000 })
    );
    assert_eq!(settle(&mut node).len(), 2);
    assert_eq!(node.propose(payload).unwrap().index, 4);
}

#[test]
fn a_restart_replays_to_the_stored_commit_and_commits_the_rest_again() {
    let recovered = Recovered {
        snapshot: None,
        hard_state: HardState { term: 3, vote: 1 },
        commit: 2,
        entries: vec![
            entry(1, 3, ""),
            entry(2, 3, "a"),
            entry(3, 3, "b"),
            entry(4, 3, "c"),
        ],
    };
    let mut node = Consensus::new(&Config::sole_voter(1), recovered).unwrap();
    let effects = node.drain().unwrap();
    assert_eq!(indexes(&effects.committed), [1, 2]);
    assert!(!effects.must_sync);
    node.applied(2).unwrap();

    node.campaign().unwrap();
    let effects = node.drain().unwrap();
    assert_eq!(effects.append, [entry(5, 4, "")]);
    assert_eq!(effects.hard_state, Some(HardState { term: 4, vote: 1 }));
    assert!(effects.committed.is_empty());
    node.persisted(effects.token);
    let effects = node.drain().unwrap();
    assert_eq!(
        effects.committed,
        [entry(3, 3, "b"), entry(4, 3, "c"), entry(5, 4, "")]
    );
}

#[test]
fn a_restart_goes_on_after_its_snapshot() {
    let point = SnapshotPoint {
        index: 100,
        term: 7,
        membership: Membership {
            voters: vec![1],
            learners: vec![],
            ..Membership::default()
        },
    };
    let recovered = Recovered {
        snapshot: Some(point.clone()),
        hard_state: HardState { term: 7, vote: 1 },
        commit: 101,
        entries: vec![entry(101, 7, "x"), entry(102, 7, "y")],
    };
    let mut node = Consensus::new(&Config::sole_voter(1), recovered).unwrap();
    assert_eq!(node.snapshot_point(), point);
    node.campaign().unwrap();
    assert_eq!(indexes(&settle(&mut node)), [101, 102, 103]);
    node.applied(102).unwrap();
    let point = node.snapshot_point();
    assert_eq!((point.index, point.term), (102, 7));
    node.applied(103).unwrap();
    assert_eq!(node.snapshot_point().term, 8);
    assert_eq!(node.snapshot_point().membership.voters, [1]);
}

#[test]
fn a_hard_state_older_than_the_newest_entry_does_not_bind_a_vote() {
    let recovered = Recovered {
        snapshot: None,
        hard_state: HardState { term: 2, vote: 1 },
        commit: 0,
        entries: vec![entry(1, 5, "")],
    };
    let mut node = Consensus::new(&Config::sole_voter(1), recovered).unwrap();
    node.campaign().unwrap();
    assert_eq!(node.status().term, 6);
    assert_eq!(indexes(&settle(&mut node)), [1, 2]);
}

#[test]
fn a_read_index_waits_for_the_first_commit_of_the_term() {
    let mut node = fresh();
    node.campaign().unwrap();
    assert_eq!(node.read_index(), Err(ReadError::NothingCommittedInTerm));
    settle(&mut node);
    node.applied(1).unwrap();
    let first = node.read_index().unwrap();
    let second = node.read_index().unwrap();
    assert_ne!(first, second);
    let reads = node.drain().unwrap().reads;
    assert_eq!(
        reads
            .iter()
            .map(|read| (read.id, read.index))
            .collect::<Vec<_>>(),
        [(first, 1), (second, 1)]
    );
    node.propose(Bytes::from_static(b"a")).unwrap();
    settle(&mut node);
    let third = node.read_index().unwrap();
    let reads = node.drain().unwrap().reads;
    assert_eq!((reads[0].id, reads[0].index), (third, 2));
}

#[test]
fn recovered_parts_that_do_not_fit_are_refused() {
    let start = |recovered| Consensus::new(&Config::sole_voter(1), recovered).map(drop);
    let base = Recovered {
        hard_state: HardState { term: 1, vote: 1 },
        ..Recovered::default()
    };
    assert_eq!(
        start(Recovered {
            entries: vec![entry(1, 1, ""), entry(3, 1, "b")],
            ..base.clone()
        }),
        Err(ConsensusError::LogGap {
            expected: 2,
            found: 3
        })
    );
    assert_eq!(
        start(Recovered {
            commit: 2,
            entries: vec![entry(1, 1, "")],
            ..base.clone()
        }),
        Err(ConsensusError::CommitBeyondLog { commit: 2, last: 1 })
    );
    assert_eq!(
        start(Recovered {
            snapshot: Some(SnapshotPoint {
                index: 1,
                term: 1,
                membership: Membership {
                    voters: vec![1, 2, 3],
                    learners: vec![],
                    ..Membership::default()
                },
            }),
            ..base
        }),
        Err(ConsensusError::Membership {
            node_id: 1,
            voters: vec![1, 2, 3]
        })
    );
    assert_eq!(
        Entry::from_stored(9, 1, 77, Bytes::new()),
        Err(ConsensusError::UnknownKind { index: 9, kind: 77 })
    );
}

#[test]
fn settings_out_of_range_are_refused() {
    for config in [
        Config::sole_voter(0),
        Config {
            heartbeat_ticks: 0,
            ..Config::sole_voter(1)
        },
        Config {
            election_ticks: 1,
            ..Config::sole_voter(1)
        },
    ] {
        assert!(matches!(
            Consensus::new(&config, Recovered::default()),
            Err(ConsensusError::Config { .. })
        ));
    }
}

#[test]
fn applied_must_follow_what_was_handed_out() {
    let mut node = leader();
    node.propose(Bytes::from_static(b"a")).unwrap();
    let effects = node.drain().unwrap();
    assert_eq!(
        node.applied(2),
        Err(ConsensusError::AppliedOutOfRange {
            index: 2,
            low: 1,
            high: 1
        })
    );
    node.persisted(effects.token);
    node.drain().unwrap();
    node.applied(2).unwrap();
    node.applied(2).unwrap();
    assert!(node.applied(1).is_err());
}

#[test]
fn a_membership_record_reads_back_and_every_other_length_is_refused() {
    let membership = Membership {
        voters: vec![1, u64::MAX],
        learners: vec![3],
        ..Membership::default()
    };
    let bytes = membership.encode();
    assert_eq!(Membership::decode(&bytes), Ok(membership));
    for length in 0..bytes.len() {
        assert!(Membership::decode(&bytes[..length]).is_err());
    }
    let mut long = bytes.to_vec();
    long.push(0);
    assert!(Membership::decode(&long).is_err());
}

#[test]
fn the_same_inputs_give_the_same_effects() {
    let run = || {
        let mut trace = String::new();
        let mut node = fresh();
        for step in 0..500_u32 {
            match step % 7 {
                0 if step == 0 => node.campaign().unwrap(),
                1 | 2 => {
                    let _ = node.propose(Bytes::copy_from_slice(&step.to_le_bytes()));
                }
                3 => node.tick(),
                4 => {
                    let _ = node.read_index();
                }
                _ => {
                    if let Some(effects) = node.drain() {
                        trace.push_str(&format!("{effects:?}\n"));
                        node.persisted(effects.token);
                    }
                }
            }
        }
        trace
    };
    assert_eq!(run(), run());
}
