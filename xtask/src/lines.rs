//! `cargo xtask lines`: the size of each crate in lines, and of the pages in words. Vendored
//! dependencies, builds and generated data do not count.

use std::collections::BTreeMap;
use std::fs;

use crate::files::{self, TestModules};
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
        // The indentation of the item for tests that the line is in.
        let mut item = None;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let indented = line.len() - line.trim_start().len();
            let line = line.trim();
            if item.is_none() && is_for_tests(line) {
                item = Some(indented);
            }
            let kind = match line {
                _ if is_test || item.is_some() => &mut lines.tests,
                _ if line.starts_with("//") => &mut lines.comments,
                _ => &mut lines.code,
            };
            *kind += 1;
            if item == Some(indented) && line.ends_with([';', ',', '}']) {
                item = None;
            }
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
    let (mut texts, mut for_tests) = (Vec::new(), TestModules::default());
    for folder in ["crates", "xtask", "fuzz"] {
        for path in files::below(&root.join(folder), "rs")? {
            let text = fs::read_to_string(&path)?;
            for module in test_modules(&text) {
                for_tests.add(&path, module);
            }
            texts.push((folder, path, text));
        }
    }
    let mut crates = BTreeMap::new();
    for (folder, path, text) in texts {
        let inside = path.strip_prefix(&root)?;
        let parts: Vec<_> = inside.iter().map(|part| part.to_string_lossy()).collect();
        let name = parts.get(usize::from(folder == "crates"));
        let is_test = for_tests.contains(&path)
            || parts
                .iter()
                .any(|part| ["tests", "examples", "benches"].contains(&part.as_ref()));
        let lines: &mut Lines = crates.entry(name.map(ToString::to_string)).or_default();
        lines.add(Lines::of(&text, is_test));
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
    for path in files::below(&root.join("docs"), "md")? {
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

/// Returns whether an attribute keeps the item below it out of a build for users.
fn is_for_tests(line: &str) -> bool {
    line == "#[cfg(test)]" || line.starts_with("#[cfg(any(test,")
}

/// The modules that a source declares for tests only and that have files of their own.
fn test_modules(text: &str) -> impl Iterator<Item = &str> {
    let lines = || text.lines().map(str::trim);
    let pairs = lines().zip(lines().skip(1));
    let declared = pairs.filter(|(attribute, _)| is_for_tests(attribute));
    declared.filter_map(|(_, item)| Some(item.strip_suffix(';')?.rsplit_once("mod ")?.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_tests_are_counted_apart() {
        let text = "//! Head.\n\nfn a() {} // b\n    // c\n#[cfg(test)]\nmod model;\nstruct S {\n    \
                    #[cfg(test)]\n    seen: u8,\n    kept: u8,\n}\n#[cfg(test)]\nmod tests {\n    // d\n}\n";
        let (code, comments, tests) = (4, 2, 8);
        let lines = Lines {
            code,
            comments,
            tests,
        };
        assert_eq!(Lines::of(text, false), lines);
        assert_eq!(Lines::of(text, true).tests, 14);
    }

    #[test]
    fn a_module_for_tests_in_a_file_of_its_own_is_found() {
        let text = "mod a;\n#[cfg(test)]\npub(crate) mod b;\n#[cfg(any(test, feature = \"x\"))]\n\
                    pub mod c;\n#[cfg(test)]\nmod d {\n}\n";
        assert_eq!(test_modules(text).collect::<Vec<_>>(), ["b", "c"]);
    }
}
