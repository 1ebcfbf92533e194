//! `cargo xtask instructions`: how many instructions of the processor the paths of a request take,
//! by valgrind, beside those that are kept. Clocks are too uneven for changes of some percent.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::command::{output, output_and_errors, target_dir};
use crate::{Result, process, root, table};

/// Count the instructions of a request's paths, and compare them with those that are kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep what is counted now.
    #[arg(long)]
    write: bool,
}

const KEPT: &str = "xtask/instructions.txt";
/// The paths of `crates/server/examples/hot_paths.rs`, and how often each is taken.
const PATHS: [(&str, u64); 7] = [
    ("decode", 5_000),
    ("apply", 5_000),
    ("append", 5_000),
    ("encode", 5_000),
    ("get", 500),
    ("set", 500),
    ("watched set", 10),
];
/// The most by which a count may differ, of what is kept. Processors have different functions to
/// copy memory, so no two machines agree to the last instruction.
const TOLERANCE: f64 = 0.03;

/// Runs the task.
pub(crate) fn run(args: &Args) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("NOT CHECKED: instructions: valgrind is not installed here");
        return Ok(());
    }
    let compiler = output(Command::new("rustc").arg("--version"))?;
    let compiler = compiler.split(' ').nth(1).unwrap_or_default().to_owned();
    let path = root().join(KEPT);
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let (of, kept) = parse(&kept);
    if of != compiler && !args.write {
        println!(
            "NOT CHECKED: instructions: {KEPT} is of rustc {of}, and this is {compiler}: cargo xtask instructions --write, at a commit that is known to be right"
        );
        return Ok(());
    }
    let build = "build --quiet --release --package baton-locks-server --example hot_paths --features simulation";
    let mut cargo = Command::new(env!("CARGO"));
    process::succeed(cargo.args(build.split(' ')).current_dir(root()))?;
    let mut text = format!("rustc {compiler}\n");
    let (mut rows, mut failures) = (Vec::new(), Vec::new());
    for (name, times) in PATHS {
        // What comes before and after is the same in both.
        let count = (count(name, 2 * times)? - count(name, times)?) / times;
        text += &format!("{count} {name}\n");
        let before = kept.get(name).copied();
        let difference = before.map(|before| count as f64 / before as f64 - 1.0);
        let percent = difference.map_or("new".to_owned(), |it| format!("{:+.1} %", it * 100.0));
        if difference.is_none_or(|it| it.abs() > TOLERANCE) {
            failures.push(format!("{name} takes {count} instructions ({percent})"));
        }
        rows.push(vec![name.to_owned(), count.to_string(), percent]);
    }
    println!(
        "{}",
        table::markdown(&["path", "instructions", "to those kept"], &rows)
    );
    if args.write {
        return Ok(fs::write(path, text)?);
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{}: {KEPT} is kept to {:.0} %; if the change is meant: cargo xtask instructions --write",
            failures.join(", "),
            TOLERANCE * 100.0
        )
        .into()),
    }
}

/// The compiler that the counts are of, and the counts.
fn parse(text: &str) -> (String, BTreeMap<&str, u64>) {
    let mut lines = text.lines();
    let compiler = lines.next().and_then(|line| line.strip_prefix("rustc "));
    let counts = lines.filter_map(|line| {
        let (count, name) = line.split_once(' ')?;
        Some((name, count.parse().ok()?))
    });
    (compiler.unwrap_or("none").to_owned(), counts.collect())
}

/// All instructions of the program that takes this path so often.
fn count(path: &str, times: u64) -> Result<u64> {
    let program = target_dir()?.join("release/examples/hot_paths");
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(program)
        .args([path, &times.to_string()]);
    let said = output_and_errors(&mut valgrind)?;
    counted(&said).ok_or_else(|| format!("valgrind counts nothing: {said}").into())
}

/// The count in what valgrind says.
fn counted(said: &str) -> Option<u64> {
    let (_, count) = said.split_once("I   refs:")?;
    let digits: String = count
        .lines()
        .next()?
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        assert_eq!(
            counted("==7== \n==7== I   refs:      1,234,567\n==7== 8"),
            Some(1_234_567)
        );
        assert_eq!(counted("killed"), None);
        let (compiler, counts) = parse("rustc 1.90.0\n12 decode\n7 watched set\n");
        assert_eq!(compiler, "1.90.0");
        assert_eq!(counts, BTreeMap::from([("decode", 12), ("watched set", 7)]));
        assert_eq!(parse("").0, "none");
    }
}
