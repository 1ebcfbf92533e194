//! `cargo xtask lines`: the size of each crate in lines, and of the pages in words. Vendored
//! dependencies, builds and generated data do not count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::{Result, root};

/// Crates that no product needs.
const HARNESS: [&str; 5] = ["bench", "fuzz", "sim", "testkit", "xtask"];

/// Print the lines of each crate and the words of each folder of pages.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Numbers of lines that are not blank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    comments: usize,
    tests: usize,
}

impl Lines {
    /// Counts the lines of one file; all of them are tests in a file of tests.
    fn of(text: &str, is_test: bool) -> Self {
        let mut lines = Self::default();
        let mut is_test = is_test;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            is_test |= line == "#[cfg(test)]";
            let kind = match line {
                _ if is_test => &mut lines.tests,
                _ if line.starts_with("//") => &mut lines.comments,
                _ => &mut lines.code,
            };
            *kind += 1;
        }
        lines
    }

    fn add(&mut self, other: Self) {
        self.code += other.code;
        self.comments += other.comments;
        self.tests += other.tests;
    }

    fn print(self, name: &str) {
        let Self {
            code,
            comments,
            tests,
        } = self;
        println!("| {name} | {code} | {comments} | {tests} |");
    }
}

/// Prints both tables.
pub(crate) fn run(_: &Args) -> Result<()> {
    let root = root();
    let mut crates = BTreeMap::new();
    for folder in ["crates", "xtask", "fuzz"] {
        for path in files(&root.join(folder), "rs")? {
            let inside = path.strip_prefix(&root)?;
            let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
            let name = parts.get(usize::from(folder == "crates"));
            let is_test = parts
                .iter()
                .any(|part| ["tests", "tests.rs", "examples", "benches"].contains(&part.as_ref()));
            let lines: &mut Lines = crates.entry(name.map(ToString::to_string)).or_default();
            lines.add(Lines::of(&fs::read_to_string(&path)?, is_test));
        }
    }
    println!("| crate | code | comments | tests |\n|---|---:|---:|---:|");
    let (mut product, mut harness) = (Lines::default(), Lines::default());
    for (name, lines) in crates {
        let name = name.unwrap_or_default();
        lines.print(&name);
        match HARNESS.contains(&name.as_str()) {
            true => harness.add(lines),
            false => product.add(lines),
        }
    }
    product.print("**product**");
    harness.print("**harness**");

    let mut pages = BTreeMap::new();
    for path in files(&root.join("docs"), "md")? {
        let folder = path.parent().unwrap_or(&root).strip_prefix(&root)?;
        let words = fs::read_to_string(&path)?.split_whitespace().count();
        *pages.entry(folder.display().to_string()).or_default() += words;
    }
    println!("\n| pages | words |\n|---|---:|");
    for (folder, words) in &pages {
        println!("| {folder} | {words} |");
    }
    println!("| **all** | {} |", pages.values().sum::<usize>());
    Ok(())
}

/// The files below `folder` with this extension.
fn files(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_tests_are_counted_apart() {
        let text =
            "//! Head.\n\nfn a() {} // b\n    // c\n#[cfg(test)]\nmod tests {\n    // d\n}\n";
        let (code, comments, tests) = (1, 2, 4);
        let lines = Lines {
            code,
            comments,
            tests,
        };
        assert_eq!(Lines::of(text, false), lines);
        assert_eq!(Lines::of(text, true).tests, 7);
    }
}
