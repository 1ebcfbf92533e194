//! The test commands that pages and comments give can be run: the package is there, and so are the
//! executable and the tests that they name. A command that selects nothing passes in silence.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{files, refuse, root};

/// A package of the workspace: what its tests are called and where they lie.
#[derive(Default)]
struct Package {
    /// Stems of files, folders and inline modules.
    modules: Vec<String>,
    functions: Vec<String>,
    /// Names for `--test`.
    executables: Vec<String>,
    /// Names for `--bin` and `--example`, of those that have no file of that name.
    declared: Vec<String>,
}

impl Package {
    fn read(folder: &Path) -> (String, Package) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let mut names = manifest.lines().filter_map(|line| {
            let name = line.strip_prefix("name = \"")?;
            Some(name.trim_end_matches('"').to_owned())
        });
        let name = names.next().unwrap();
        let mut package = Package {
            declared: names.collect(),
            ..Package::default()
        };
        let mut sources = Vec::new();
        files(folder, ".rs", &mut sources);
        for source in sources {
            let inside = source.strip_prefix(folder).unwrap().with_extension("");
            let parts: Vec<String> = inside
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            if parts[0] == "tests" {
                package.executables.push(parts[1].clone());
            }
            package.modules.extend(parts);
            for line in fs::read_to_string(source).unwrap().lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                for pair in words.windows(2) {
                    let end = |c: char| !c.is_alphanumeric() && c != '_';
                    let named = pair[1].split(end).next().unwrap().to_owned();
                    match pair[0] {
                        "fn" => package.functions.push(named),
                        "mod" => package.modules.push(named),
                        // A test that a macro makes, as in `barrier: "barrier",`.
                        name if name.ends_with(':') && pair[1].starts_with('"') => {
                            package
                                .functions
                                .push(name.trim_end_matches(':').to_owned());
                        }
                        _ => {}
                    }
                }
            }
        }
        (name, package)
    }

    /// Returns whether a filter selects a test, as far as names tell.
    fn selects(&self, filter: &str) -> bool {
        let parts: Vec<&str> = filter.split("::").collect();
        let (last, modules) = parts.split_last().unwrap();
        let is_module = |part: &str| self.modules.iter().any(|module| module.ends_with(part));
        modules.iter().all(|part| is_module(part))
            && (self.functions.iter().any(|name| name.contains(last))
                || self.modules.iter().any(|name| name.contains(last)))
    }
}

/// Returns what is wrong with the command that `text` begins with, after `cargo test `.
fn wrong(text: &str, packages: &BTreeMap<String, Package>) -> Option<String> {
    let command = text.split(['`', '|', '#', '"', ';', '\n']).next()?;
    let mut words = command.split_whitespace();
    let mut package: Option<&Package> = None;
    while let Some(word) = words.next() {
        match word {
            "--" => break,
            "-p" => {
                let name = words.next()?;
                let Some(found) = packages.get(name) else {
                    return Some(format!("there is no package {name}"));
                };
                package = Some(found);
            }
            "--test" | "--bin" | "--example" => {
                let name = words.next()?;
                let Some(package) = package else { continue };
                let declared = [&package.executables, &package.declared];
                if !declared.into_iter().flatten().any(|known| known == name) {
                    return Some(format!("the package has no {word} {name}"));
                }
            }
            "--features" => {
                words.next()?;
            }
            flag if flag.starts_with('-') => {}
            // A placeholder, as in `<NAME>` or `…`.
            filter if filter.starts_with(|c: char| !c.is_alphanumeric()) => break,
            filter => {
                let selects = match package {
                    Some(package) => package.selects(filter),
                    None => packages.values().any(|package| package.selects(filter)),
                };
                if !selects {
                    return Some(format!("no test is selected by {filter}"));
                }
            }
        }
    }
    None
}

fn packages() -> BTreeMap<String, Package> {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    crates
        .map(|entry| entry.unwrap().path())
        .chain([root().join("xtask")])
        .map(|folder| Package::read(&folder))
        .collect()
}

/// The command in a title that has `…` for a test's name, up to that.
fn command_of(title: &str) -> Option<&str> {
    Some(title.split_once("`cargo test ")?.1.split_once('…')?.0)
}

/// The name that a table's row begins with.
fn test_of(row: &str) -> Option<&str> {
    row.strip_prefix("| `")?.split('`').next()
}

#[test]
fn test_commands_of_pages_and_comments_select_tests() {
    let packages = packages();
    let mut found = Vec::new();
    for below in ["docs", "crates", "xtask", ".ci"] {
        files(&root().join(below), "", &mut found);
    }
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        found.push(root().join(page));
    }
    let mut problems = Vec::new();
    let mut commands = 0;
    for path in found {
        // What is not text gives no commands.
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        let mut heading = None;
        for (number, line) in text.lines().enumerate() {
            if line.starts_with("## ") {
                heading = command_of(line);
            }
            if let Some(command) = heading.zip(test_of(line)).map(|(a, b)| a.to_owned() + b) {
                commands += 1;
                if let Some(what) = wrong(&command, &packages) {
                    let name = path.strip_prefix(root()).unwrap().display();
                    problems.push(format!("{name}:{}: {what}", number + 1));
                }
            }
            for (at, start) in line.match_indices("cargo test ") {
                commands += 1;
                if let Some(what) = wrong(&line[at + start.len()..], &packages) {
                    let name = path.strip_prefix(root()).unwrap().display();
                    problems.push(format!("{name}:{}: {what}", number + 1));
                }
            }
        }
    }
    assert!(commands > 100, "{commands} commands were found");
    refuse(&problems);
}

#[test]
fn a_command_that_selects_nothing_is_found() {
    let packages = packages();
    let wrong = |command: &str| wrong(command, &packages);
    assert_eq!(wrong("--workspace"), None);
    assert_eq!(wrong("-p xtask --test tidy a_command_that"), None);
    assert_eq!(wrong("-p xtask --test tidy commands::` and so on"), None);
    assert_eq!(wrong("<the test's name>"), None);
    let title = command_of("## `cargo test -p xtask --test tidy …`").unwrap();
    for (row, is_right) in [
        ("| `a_command_that` | is there |", true),
        ("| `a_test_that_nobody_has_written` | is not |", false),
    ] {
        let command = title.to_owned() + test_of(row).unwrap();
        assert_eq!(wrong(&command).is_none(), is_right, "{command}");
    }
    assert_eq!(command_of("## Other commands"), None);
    assert_eq!(test_of("| test | what |"), None);
    for command in [
        "-p baton",
        "-p xtask --test neat",
        "-p xtask a_test_that_nobody_has_written",
        "-p xtask nowhere::a_command",
        "a_test_that_nobody_has_written",
    ] {
        assert!(wrong(command).is_some(), "{command}");
    }
}
