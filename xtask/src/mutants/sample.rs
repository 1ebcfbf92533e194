//! Selection of mutants: a draw by a seed, spread over operators and files; the lines that a change
//! touches.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::process::Command;

use super::mutant::{Mutant, Operator};
use crate::{Result, command};

/// All mutants in the order of the draw: a module's sample is the beginning of it.
///
/// The operators take turns, so that rare ones are tried too, and each takes one of the file that
/// has been drawn from least. The order among the mutants of one operator and file depends on the
/// seed and on what they are, not on their line.
pub(super) fn draw(mutants: Vec<Mutant>, seed: u64) -> Vec<Mutant> {
    let mut by_operator: BTreeMap<Operator, BTreeMap<String, VecDeque<Mutant>>> = BTreeMap::new();
    let mut keyed: Vec<(u64, Mutant)> = mutants
        .into_iter()
        .map(|mutant| {
            let Mutant {
                file,
                function,
                original,
                replacement,
                ..
            } = &mutant;
            let key = format!("{file} {function} {original} {replacement}");
            (hash(seed, &key), mutant)
        })
        .collect();
    keyed.sort_by_key(|(key, mutant)| (*key, mutant.range.start));
    for (_, mutant) in keyed {
        let files = by_operator.entry(mutant.operator).or_default();
        let queue = files.entry(mutant.file.clone()).or_default();
        queue.push_back(mutant);
    }
    let mut drawn = Vec::new();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    while !by_operator.is_empty() {
        for files in by_operator.values_mut() {
            let least = files
                .iter()
                .min_by_key(|(file, _)| (taken.get(*file).copied(), hash(seed, file)))
                .map(|(file, _)| file.clone());
            let Some(file) = least else { continue };
            if let Some(queue) = files.get_mut(&file) {
                drawn.extend(queue.pop_front());
                *taken.entry(file.clone()).or_default() += 1;
                if queue.is_empty() {
                    files.remove(&file);
                }
            }
        }
        by_operator.retain(|_, files| !files.is_empty());
    }
    drawn
}

/// The first of each list, then the second of each.
pub(super) fn in_turns<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    while !lists.is_empty() {
        lists.retain_mut(|list| {
            let next = list.next();
            let goes_on = next.is_some();
            all.extend(next);
            goes_on
        });
    }
    all
}

/// FNV-1a of the text, begun with the seed.
fn hash(seed: u64, text: &str) -> u64 {
    let begin = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xcbf2_9ce4_8422_2325;
    let mixed = text.bytes().fold(begin, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mixed ^ mixed >> 29
}

/// The lines that differ from a commit, by file.
pub(super) fn changed_lines(root: &Path, base: &str) -> Result<BTreeMap<String, Vec<usize>>> {
    let diff = command::output(
        Command::new("git")
            .current_dir(root)
            .args(["diff", "--unified=0", "--no-color", "--no-ext-diff", base])
            .args(["--", "crates"]),
    )?;
    Ok(parse_diff(&diff))
}

fn parse_diff(diff: &str) -> BTreeMap<String, Vec<usize>> {
    let mut changed: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut file = None;
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("+++ ") {
            file = name.strip_prefix("b/").map(str::to_owned);
        } else if let (Some(hunk), Some(file)) = (line.strip_prefix("@@ "), &file) {
            let added = hunk.split(' ').find_map(|part| part.strip_prefix('+'));
            let (start, count) = match added.unwrap_or_default().split_once(',') {
                Some((start, count)) => (start, count.parse().unwrap_or(0)),
                None => (added.unwrap_or_default(), 1),
            };
            let start: usize = start.parse().unwrap_or(0);
            let lines = changed.entry(file.clone()).or_default();
            lines.extend(start..start + count);
        }
    }
    changed
}

/// Returns whether a mutant changes one of these lines. One that covers many lines, like a body,
/// counts by its first.
pub(super) fn touches(changed: &BTreeMap<String, Vec<usize>>, mutant: &Mutant) -> bool {
    let Some(lines) = changed.get(&mutant.file) else {
        return false;
    };
    let last = match mutant.operator {
        Operator::Body => mutant.line + 1,
        _ => mutant.last_line,
    };
    (mutant.line..=last).any(|line| lines.contains(&line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::scan::scan;

    #[test]
    fn a_draw_is_the_same_for_a_seed_and_spreads_over_operators_and_files() {
        let text = "fn f(a: u8, b: u8) -> bool { if a < b && a < 3 && b < 4 { g(a); } a == b }";
        let mut mutants = scan("one.rs", text).unwrap();
        mutants.extend(scan("two.rs", text).unwrap());
        let first = draw(mutants.clone(), 7);
        assert_eq!(first, draw(mutants.clone(), 7));
        assert_ne!(first, draw(mutants.clone(), 8));
        assert_eq!(first.len(), mutants.len());
        let operators: std::collections::BTreeSet<_> =
            mutants.iter().map(|mutant| mutant.operator).collect();
        let begin = &first[..operators.len()];
        let drawn: std::collections::BTreeSet<_> =
            begin.iter().map(|mutant| mutant.operator).collect();
        assert_eq!(drawn, operators, "each operator has had its turn");
        let ones = begin.iter().filter(|mutant| mutant.file == "one.rs");
        assert!(ones.count().abs_diff(begin.len() / 2) <= 1);
    }

    #[test]
    fn lines_of_a_diff() {
        let diff = "diff --git a/x.rs b/x.rs\n--- a/x.rs\n+++ b/x.rs\n@@ -3,0 +4,2 @@ fn f\n+a\n+b\n\
                    @@ -9 +12 @@\n-c\n+d\n--- a/y.rs\n+++ /dev/null\n@@ -1,2 +0,0 @@\n";
        let changed = parse_diff(diff);
        assert_eq!(changed.get("x.rs"), Some(&vec![4, 5, 12]));
        assert_eq!(changed.len(), 1);
    }

    #[test]
    fn lists_take_turns() {
        let lists = vec![vec![1, 2, 3], vec![], vec![4], vec![5, 6]];
        assert_eq!(in_turns(lists), [1, 4, 5, 2, 6, 3]);
    }
}
