//! `cargo xtask hazards`: which hazards of `docs/internals/hazards.md` have a test, read from the
//! tests' names. It reads sources; it never runs a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Result, root};

const REQUIRED: &str = "xtask/hazards-required.txt";

/// List the hazards that have a test, and those that have none.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Fail if one of these has no test: a list like H01,H03-H16, or the project's own list.
    #[arg(long, value_name = "LIST", num_args = 0..=1, default_missing_value = "")]
    check: Option<String>,
    /// Print the tests' names and files too.
    #[arg(short, long)]
    verbose: bool,
}

/// Hazard to the tests that carry its number: (name, file).
type Covered = BTreeMap<u8, Vec<(String, PathBuf)>>;

pub(crate) fn run(args: &Args) -> Result<()> {
    let covered = covered(&root())?;
    let known = known()?;
    if args.verbose {
        for (id, tests) in &covered {
            println!("H{id:02}");
            for (name, file) in tests {
                println!("    {name}  {}", file.display());
            }
        }
    }
    let with = known.iter().filter(|id| covered.contains_key(id));
    let without: BTreeSet<u8> = known
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
        return Err(format!(
            "a test is named for H{unknown:02}, which is not in docs/internals/hazards.md"
        )
        .into());
    }
    let Some(list) = &args.check else {
        return Ok(());
    };
    let required = if list.is_empty() {
        fs::read_to_string(root().join(REQUIRED))?
    } else {
        list.clone()
    };
    let missing: BTreeSet<u8> = parse(&required)?
        .into_iter()
        .filter(|id| !covered.contains_key(id))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no test is named for {}; write one, named like h01_what_it_protects",
        show(missing)
    )
    .into())
}

/// Every hazard with a test in the workspace's sources.
pub(crate) fn covered(root: &Path) -> Result<Covered> {
    let mut covered = Covered::new();
    let mut folders = vec![root.join("crates"), root.join("xtask")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let short = path.strip_prefix(root).unwrap_or(&path).to_owned();
                for (ids, name) in fs::read_to_string(&path)?.lines().filter_map(test_in) {
                    for id in ids {
                        covered
                            .entry(id)
                            .or_default()
                            .push((name.clone(), short.clone()));
                    }
                }
            }
        }
    }
    Ok(covered)
}

/// The hazards and the name of the test function that a line declares: `fn h01_h15_name(`.
fn test_in(line: &str) -> Option<(Vec<u8>, String)> {
    let line = line
        .trim_start()
        .trim_start_matches("pub ")
        .trim_start_matches("async ");
    let name = line.strip_prefix("fn ")?.split(['(', '<']).next()?;
    let mut ids = Vec::new();
    let mut rest = name;
    while let Some((id, after)) = rest.strip_prefix('h').and_then(|r| r.split_once('_')) {
        match id.parse::<u8>() {
            Ok(id) if after.len() < rest.len() && rest.len() - after.len() == 4 => ids.push(id),
            _ => break,
        }
        rest = after;
    }
    (!ids.is_empty()).then(|| (ids, name.to_owned()))
}

/// The hazards that `docs/internals/hazards.md` lists in its tables.
fn known() -> Result<BTreeSet<u8>> {
    let file = root().join("docs/internals/hazards.md");
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let ids: BTreeSet<u8> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix('|')?
                .trim_start()
                .strip_prefix('H')?
                .get(..2)?
                .parse()
                .ok()
        })
        .collect();
    if ids.is_empty() {
        return Err(format!(
            "{} has no table row that begins with an ID like H01",
            file.display()
        )
        .into());
    }
    Ok(ids)
}

/// Reads `H01,H03-H16 H20` with `#` comments.
fn parse(list: &str) -> Result<BTreeSet<u8>> {
    let id = |text: &str| -> Result<u8> {
        let digits = text
            .strip_prefix('H')
            .and_then(|digits| digits.parse().ok());
        digits.ok_or_else(|| format!("'{text}' is no hazard; write H01 or H03-H16").into())
    };
    let words = list
        .lines()
        .filter_map(|line| line.split('#').next())
        .flat_map(|line| line.split([',', ' ']));
    let mut ids = BTreeSet::new();
    for word in words.filter(|word| !word.is_empty()) {
        let (from, to) = word.split_once('-').unwrap_or((word, word));
        ids.extend(id(from)?..=id(to)?);
    }
    Ok(ids)
}

/// Shows numbers as `H01-H03 H07`.
fn show(ids: impl IntoIterator<Item = u8>) -> String {
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for id in ids {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == id => *last = id,
            _ => runs.push((id, id)),
        }
    }
    let words = runs.iter().map(|(a, b)| {
        if a == b {
            format!("H{a:02}")
        } else {
            format!("H{a:02}-H{b:02}")
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_carries_one_or_several_numbers() {
        assert_eq!(
            test_in("    async fn h01_h15_reply_lost() {").unwrap().0,
            [1, 15]
        );
        assert_eq!(
            test_in("fn h91_follower_cut_off() {").unwrap().1,
            "h91_follower_cut_off"
        );
        for other in [
            "fn hash_of() {",
            "fn h1_x() {",
            "fn h001_x() {",
            "// fn h01_x",
            "let h01_x = 1;",
        ] {
            assert!(test_in(other).is_none(), "{other}");
        }
    }

    #[test]
    fn lists_have_ranges_and_comments() {
        let ids = parse("# ours\nH01, H03-H05\nH09").unwrap();
        assert_eq!(show(ids), "H01 H03-H05 H09");
        assert!(parse("31").is_err());
    }

    #[test]
    fn the_required_list_can_be_read() {
        assert!(
            !parse(&fs::read_to_string(root().join(REQUIRED)).unwrap())
                .unwrap()
                .is_empty()
        );
    }
}
