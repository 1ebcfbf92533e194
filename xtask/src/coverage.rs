//! `cargo xtask coverage`: a map of what no test enters, by crate, as `cargo llvm-cov` measures it.
//! A map and not a goal: a line that a test enters may still do anything wrong, which
//! `cargo xtask mutants` is for.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{Result, machine, page, process, root, table};

const PAGE: &str = "docs/project/mutants.md";
/// Number of files shown of each crate, those with the most functions that no test enters.
const FILES: usize = 3;

/// Measure which code the tests enter, and write the table of docs/project/mutants.md.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure this package only, and print the table only; may be given several times.
    #[arg(short, long = "package", value_name = "NAME")]
    packages: Vec<String>,
}

/// Code that the tests enter.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct EnteredCode {
    lines: (u64, u64),
    functions: (u64, u64),
}

impl EnteredCode {
    fn of(summary: &Value) -> Self {
        let pair = |what: &str| {
            let number = |field: &str| summary[what][field].as_u64().unwrap_or(0);
            (number("covered"), number("count"))
        };
        Self {
            lines: pair("lines"),
            functions: pair("functions"),
        }
    }

    fn add(&mut self, other: Self) {
        self.lines.0 += other.lines.0;
        self.lines.1 += other.lines.1;
        self.functions.0 += other.functions.0;
        self.functions.1 += other.functions.1;
    }

    fn not_entered(self) -> u64 {
        self.functions.1.saturating_sub(self.functions.0)
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let report = tempfile::NamedTempFile::new()?;
    let mut command = Command::new(env!("CARGO"));
    command.args(["llvm-cov", "--json", "--summary-only"]);
    // A test that runs the command as another user fails here, where that user may not write what
    // was entered; and a process that a test kills leaves half of it.
    command.args(["--ignore-run-fail", "--failure-mode", "all"]);
    match &*args.packages {
        [] => command.arg("--workspace"),
        some => command.args(some.iter().flat_map(|name| ["--package", name])),
    };
    command.arg("--output-path").arg(report.path());
    process::succeed(command.current_dir(root())).map_err(|error| {
        format!(
            "{error}; it needs `cargo install cargo-llvm-cov` and `rustup component add llvm-tools`"
        )
    })?;
    let report: Value = serde_json::from_slice(&std::fs::read(report.path())?)?;
    let rows = rows(&report, &root());
    let head = [
        "crate",
        "lines entered",
        "functions entered",
        "most is missing in",
    ];
    let text = format!(
        "{}\nTaken with `cargo xtask coverage`: {}.",
        table::markdown(&head, &rows),
        machine::describe()
    );
    println!("{text}");
    if args.packages.is_empty() {
        page::replace(PAGE, "coverage", &text)?;
    }
    Ok(())
}

/// One row a crate.
fn rows(report: &Value, root: &Path) -> Vec<Vec<String>> {
    let mut crates: BTreeMap<String, (EnteredCode, Vec<(u64, String)>)> = BTreeMap::new();
    let none = Vec::new();
    for file in report["data"][0]["files"].as_array().unwrap_or(&none) {
        let path = Path::new(file["filename"].as_str().unwrap_or_default());
        let Some((name, inside)) = place(path.strip_prefix(root).unwrap_or(path)) else {
            continue;
        };
        let entered = EnteredCode::of(&file["summary"]);
        let (sum, files) = crates.entry(name).or_default();
        sum.add(entered);
        files.push((entered.not_entered(), inside));
    }
    let rows = crates.into_iter().map(|(name, (sum, mut files))| {
        files.sort_by(|one, other| other.cmp(one));
        files.retain(|(missing, _)| *missing > 0);
        let missing = files.iter().take(FILES);
        let missing = missing.map(|(count, file)| format!("`{file}` {count}"));
        vec![
            format!("`{name}`"),
            share(sum.lines),
            share(sum.functions),
            missing.collect::<Vec<_>>().join(", "),
        ]
    });
    rows.collect()
}

/// The crate and the path below its `src`; none for tests and for tasks.
fn place(path: &Path) -> Option<(String, String)> {
    let text = path.to_str()?.strip_prefix("crates/")?;
    let (name, inside) = text.split_once("/src/")?;
    let for_tests = inside
        .split('/')
        .any(|part| part == "tests" || part == "tests.rs");
    (!for_tests).then(|| (name.to_owned(), inside.to_owned()))
}

fn share((part, all): (u64, u64)) -> String {
    match all {
        0 => "–".to_owned(),
        all => format!("{} %", part * 100 / all),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_adds_up_a_crates_files_and_names_what_misses_most() {
        let file = |path: &str, lines: u64, functions: u64| {
            json!({"filename": path, "summary": {
                "lines": {"count": 10, "covered": lines},
                "functions": {"count": 4, "covered": functions},
            }})
        };
        let report = json!({"data": [{"files": [
            file("/r/crates/tree/src/lib.rs", 10, 4),
            file("/r/crates/tree/src/write.rs", 5, 1),
            file("/r/crates/tree/src/write/tests.rs", 0, 0),
            file("/r/crates/tree/tests/suite/model.rs", 0, 0),
            file("/r/xtask/src/main.rs", 0, 0),
        ]}]});
        assert_eq!(
            rows(&report, Path::new("/r")),
            [["`tree`", "75 %", "62 %", "`write.rs` 3"]]
        );
    }
}
