//! The tree against the naive model: the same outcomes, the same changes, the same stats, whatever
//! the program.

use baton_proto::{ErrorCode, MultiResult, Response, path};
use baton_tree::{FormatLevel, Tree};
use proptest::prelude::*;

use crate::common::program::{Machine, ProgramLine, Reference, identity, level, program};

fn run_both(level: FormatLevel, lines: &[ProgramLine]) {
    let mut machine = Machine::new(level);
    let mut reference = Reference::new(level);
    for line in lines {
        let (outcome, seen) = machine.take(line);
        let (expected, expected_seen) = reference.take(line);
        assert_eq!(outcome, expected, "outcome of {line:?}");
        assert_eq!(seen, expected_seen, "changes of {line:?}");
        compare(&machine.tree, &reference);
        if failed(&outcome.result) {
            assert!(seen.is_empty());
        }
    }
}

fn failed(result: &Result<Response, ErrorCode>) -> bool {
    match result {
        Err(_) => true,
        Ok(Response::Multi(results)) => results
            .iter()
            .any(|result| matches!(result, MultiResult::Error(_))),
        Ok(_) => false,
    }
}

fn compare(tree: &Tree, reference: &Reference) {
    let all = identity(3);
    let expected = reference.model.all();
    assert_eq!(tree.node_count(), expected.len());
    let mut bytes = 0;
    for (path, data, stat, acl) in &expected {
        let (found, found_stat) = tree.get_data(path, &all).unwrap();
        assert_eq!(found, data.as_deref(), "data of {path}");
        assert_eq!(found_stat, *stat, "stat of {path}");
        assert_eq!(tree.get_acl(path, &all).unwrap().0, *acl, "ACL of {path}");
        let (names, _) = tree.get_children(path, &all).unwrap();
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        assert_eq!(names, reference.model.children(path), "children of {path}");
        let below = expected
            .iter()
            .filter(|(other, ..)| other != path && path::is_at_or_below(other, path));
        assert_eq!(
            tree.count_descendants(path, &all),
            Ok(below.count() as i32),
            "descendants of {path}"
        );
        bytes += path::name(path).len() + data.as_ref().map_or(0, Vec::len);
    }
    assert_eq!(tree.approximate_bytes(), bytes);
    let mut lists: Vec<_> = expected.iter().map(|(.., acl)| acl.clone()).collect();
    lists.push(vec![baton_proto::Acl::open_unsafe()]);
    lists.sort_by_key(|list| format!("{list:?}"));
    lists.dedup();
    assert_eq!(tree.acl_count(), lists.len());
    let owners: Vec<_> = tree
        .sessions()
        .map(|session| {
            (
                session.id,
                session.timeout_ms,
                tree.ephemerals(session.id, ""),
            )
        })
        .collect();
    assert_eq!(owners, reference.model.owners());
    let owned: usize = owners.iter().map(|(_, _, paths)| paths.len()).sum();
    assert_eq!(tree.ephemeral_count(), owned);
}

proptest! {
    #![proptest_config(crate::common::cases(600))]

    #[test]
    fn every_program_ends_as_in_the_model(level in level(), lines in program(60)) {
        run_both(level, &lines);
    }

    #[test]
    fn replicas_that_apply_the_same_have_the_same_digest_and_order(
        level in level(), lines in program(60),
    ) {
        let mut one = Machine::new(level);
        let mut two = Machine::new(level);
        for line in &lines {
            one.take(line);
            two.take(line);
            prop_assert_eq!(one.tree.digest(), two.tree.digest());
        }
        prop_assert_eq!(crate::common::dump(&one.tree), crate::common::dump(&two.tree));
    }
}
