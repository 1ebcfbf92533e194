//! `cargo xtask hazards`: which hazards have a test, read from the tests' names: those of the
//! recipes (`docs/internals/hazards.md`), those of replication (`docs/internals/replication.md`),
//! and attacks (`docs/internals/security.md`). It reads sources; it never runs a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Result, files, root};

/// The letter that the hazards' IDs of a page begin with, and the page.
const SERIES: [(char, &str); 3] = [
    ('A', "docs/internals/security.md"),
    ('H', "docs/internals/hazards.md"),
    ('R', "docs/internals/replication.md"),
];

/// The ID of a hazard, like H01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hazard {
    series: char,
    number: u8,
}

impl Hazard {
    /// Returns whether it is one of the recipes' hazards.
    pub(crate) fn is_of_recipes(self) -> bool {
        self.series == 'H'
    }

    /// Reads `H01`, and `h01` too.
    fn parse(text: &str) -> Option<Hazard> {
        let mut letters = text.chars();
        let series = letters.next()?.to_ascii_uppercase();
        let digits = letters.as_str();
        let is_id = SERIES.iter().any(|(letter, _)| *letter == series)
            && digits.len() == 2
            && digits.chars().all(|digit| digit.is_ascii_digit());
        let number = digits.parse().ok()?;
        is_id.then_some(Hazard { series, number })
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:02}", self.series, self.number)
    }
}

/// List the hazards that have a test, and those that have none.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fail if one has no test.
    #[arg(long)]
    check: bool,
    /// Print the tests' names and files too.
    #[arg(short, long)]
    verbose: bool,
}

/// Hazard to the tests that carry its ID: (name, file).
type CoveringTests = BTreeMap<Hazard, Vec<(String, PathBuf)>>;

pub(crate) fn run(args: &Args) -> Result<()> {
    let covered = covered(&root())?;
    let known = known()?;
    if args.verbose {
        for (id, tests) in &covered {
            println!("{id}");
            for (name, file) in tests {
                println!("    {name}  {}", file.display());
            }
        }
    }
    let with = known.iter().filter(|id| covered.contains_key(id));
    let without: BTreeSet<Hazard> = known
        .iter()
        .filter(|id| !covered.contains_key(id))
        .copied()
        .collect();
    let tests: usize = covered.values().map(Vec::len).sum();
    println!(
        "covered {} of {} by {tests} tests: {}",
        with.clone().count(),
        known.len(),
        show(with.copied())
    );
    println!(
        "uncovered {}: {}",
        without.len(),
        show(without.iter().copied())
    );
    if let Some(unknown) = covered.keys().find(|id| !known.contains(id)) {
        let pages = SERIES.map(|(_, page)| page).join(" nor in ");
        return Err(format!("a test is named for {unknown}, which is not in {pages}").into());
    }
    match args.check && !without.is_empty() {
        true => Err("write a test for each, named like h01_what_it_protects".into()),
        false => Ok(()),
    }
}

/// Every hazard with a test in the workspace's sources.
pub(crate) fn covered(root: &Path) -> Result<CoveringTests> {
    let mut covered = CoveringTests::new();
    for folder in ["crates", "xtask"] {
        for path in files::below(&root.join(folder), "rs")? {
            let short = path.strip_prefix(root).unwrap_or(&path).to_owned();
            for (ids, name) in fs::read_to_string(&path)?.lines().filter_map(test_in) {
                for id in ids {
                    let tests = covered.entry(id).or_default();
                    tests.push((name.clone(), short.clone()));
                }
            }
        }
    }
    Ok(covered)
}

/// The hazards and the name of the test function that a line declares: `fn h01_h15_name(`.
fn test_in(line: &str) -> Option<(Vec<Hazard>, String)> {
    let line = line
        .trim_start()
        .trim_start_matches("pub ")
        .trim_start_matches("async ");
    let name = line.strip_prefix("fn ")?.split(['(', '<']).next()?;
    let mut ids = Vec::new();
    let mut rest = name;
    while let Some((id, after)) = rest.split_once('_') {
        // A function's name is in small letters.
        match Hazard::parse(id) {
            Some(hazard) if id.starts_with(char::is_lowercase) => ids.push(hazard),
            _ => break,
        }
        rest = after;
    }
    (!ids.is_empty()).then(|| (ids, name.to_owned()))
}

/// The hazards that the pages list in their tables.
fn known() -> Result<BTreeSet<Hazard>> {
    let mut ids = BTreeSet::new();
    for (series, page) in SERIES {
        let file = root().join(page);
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let before = ids.len();
        ids.extend(text.lines().filter_map(|line| {
            let id = Hazard::parse(line.strip_prefix('|')?.trim_start().get(..3)?)?;
            (id.series == series).then_some(id)
        }));
        if ids.len() == before {
            return Err(format!(
                "{} has no table row that begins with an ID like {series}01",
                file.display()
            )
            .into());
        }
    }
    Ok(ids)
}

/// Shows IDs as `H01-H03 H07`.
fn show(ids: impl IntoIterator<Item = Hazard>) -> String {
    let mut runs: Vec<(Hazard, Hazard)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((_, last)) if last.series == id.series && last.number + 1 == id.number => {
                *last = id;
            }
            _ => runs.push((id, id)),
        }
    }
    let words = runs.iter().map(|(from, to)| {
        if from == to {
            from.to_string()
        } else {
            format!("{from}-{to}")
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_carries_one_or_several_numbers() {
        let ids = |line: &str| show(test_in(line).unwrap().0);
        assert_eq!(ids("    async fn h01_h15_reply_lost() {"), "H01 H15");
        assert_eq!(ids("fn r17_an_empty_folder() {"), "R17");
        assert_eq!(ids("async fn a03_who_listens_and_a04_x() {"), "A03");
        assert_eq!(
            test_in("fn h91_follower_cut_off() {").unwrap().1,
            "h91_follower_cut_off"
        );
        for other in [
            "fn hash_of() {",
            "fn h1_x() {",
            "fn h001_x() {",
            "fn H01_x() {",
            "fn s01_x() {",
            "// fn h01_x",
            "let h01_x = 1;",
        ] {
            assert!(test_in(other).is_none(), "{other}");
        }
    }

    #[test]
    fn neighbouring_ids_are_shown_as_a_range() {
        let ids = ["H01", "H03", "H04", "H05", "R06"].map(|id| Hazard::parse(id).unwrap());
        assert_eq!(show(ids), "H01 H03-H05 R06");
        assert!(Hazard::parse("31").is_none());
    }

    #[test]
    fn each_hazard_of_the_pages_has_a_test() {
        let covered = covered(&root()).unwrap();
        let known = known().unwrap().into_iter();
        let without = known.filter(|id| !covered.contains_key(id));
        assert_eq!(show(without), "");
    }
}
