//! `cargo xtask fixture`: a user's crate, outside the workspace, with the dependencies that
//! README.md and the users' pages name and no others. It has every example of the library and every
//! Rust snippet of README.md and of the pages, and must pass `cargo check`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Result, command, files, process, root};

/// The path by which README.md depends on the library.
const PATH_OF_USERS: &str = "../baton/crates/recipes";

/// The folder of Baton's crates, as the pages name it.
const CRATES_OF_USERS: &str = "../baton/crates";

/// Types and variables that a snippet of the users' pages uses without defining them.
const PRELUDE: &str = "
    use std::{collections::HashMap, ops::ControlFlow, time::Duration};

    use baton::embedded::Embedded;
    use baton::{barrier::*, cache::*, election::*, fence::*, guard::*, lock::*, membership::*};
    use baton::{partition::*, queue::*, semaphore::*, value::*, work_queue::*};
    use baton::{inspect::Inspector, session::{Client, Config}, tree::{Acl, CreateMode}};
    struct Log;
    impl Log {
        fn append(&mut self, _: &[u8]) -> std::result::Result<(), String> { Ok(()) }
    }
    async fn work(_: impl Sized) -> std::result::Result<(), String> { Ok(()) }
    async fn serve(_: impl Sized) -> std::result::Result<(), String> { Ok(()) }
    async fn resize(_: &[u8]) -> std::result::Result<(), String> { Ok(()) }
    async fn update_report(_: &str, _: &str, _: u64) -> std::result::Result<u64, String> { Ok(1) }
    async fn snippet(
        client: &Client, mutex: &Mutex, election: &LeaderElection, server: &Embedded, stop: std::future::Pending<()>,
        db: &str, body: &str, newest_token_in_the_file: u64, token: u64, mut file: Log,
        record: &[u8],
    ) -> std::result::Result<(), Box<dyn std::error::Error>> {
";

/// Check that examples and snippets compile with the dependencies that README.md names.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the crate, and do not check it.
    #[arg(long)]
    write_only: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = command::target_dir()?.join("fixture");
    write(&folder)?;
    println!("wrote {}", folder.display());
    if args.write_only {
        return Ok(());
    }
    process::succeed(
        Command::new(env!("CARGO"))
            .args(["check", "--quiet", "--all-targets"])
            .env("CARGO_TARGET_DIR", command::target_dir()?)
            .current_dir(&folder),
    )
}

fn write(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    for part in ["src", "tests", "examples"] {
        fs::create_dir_all(folder.join(part))?;
    }
    let readme = fs::read_to_string(root().join("README.md"))?;
    let pages = files::below(&root().join("docs/user"), "md")?;
    let pages = pages
        .into_iter()
        .map(|page| Ok((fs::read_to_string(&page)?, page)));
    let pages = pages.collect::<Result<Vec<_>>>()?;
    let manifest = manifest(&readme, pages.iter().map(|(text, _)| text.as_str()))?;
    fs::write(folder.join("Cargo.toml"), manifest)?;
    fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock"))?;
    let program = blocks(&readme, "rust").next();
    let program = program.ok_or("README.md has no Rust program")?;
    fs::write(folder.join("src/main.rs"), program)?;

    let mut snippets = 0;
    for (text, page) in &pages {
        let stem = page.file_stem().unwrap_or_default().to_string_lossy();
        let module = module(text, &mut snippets)?;
        if !module.is_empty() {
            fs::write(folder.join("tests").join(format!("{stem}.rs")), module)?;
        }
    }
    let examples = files::below(&root().join("crates/recipes/examples"), "rs")?;
    for example in &examples {
        let name = example.file_name().unwrap_or_default();
        fs::copy(example, folder.join("examples").join(name))?;
    }
    println!("{snippets} snippets, {} examples", examples.len());
    if snippets < 20 || examples.len() < 15 {
        return Err("there were more snippets and examples than these".into());
    }
    Ok(())
}

/// The manifest of a user who has copied the dependencies of README.md, and those of the pages.
fn manifest<'a>(readme: &str, pages: impl Iterator<Item = &'a str>) -> Result<String> {
    let dependencies = blocks(readme, "toml").next();
    let dependencies = dependencies.ok_or("README.md names no dependencies")?;
    if !dependencies.contains(PATH_OF_USERS) {
        return Err(format!("README.md does not depend on {PATH_OF_USERS}").into());
    }
    let mut manifest = format!(
        "[package]\nname = \"fixture\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
         [workspace]\n\n[profile.dev]\ndebug = \"line-tables-only\"\n\n{dependencies}\n"
    );
    // README.md's last table is that of the dependencies of tests, which the snippets are here.
    for block in pages.flat_map(|page| blocks(page, "toml")) {
        if !block.contains("dependencies]\n") {
            continue;
        }
        for line in block.lines().filter(|line| line.contains(" = ")) {
            let name = line.split(' ').next().unwrap_or_default();
            if !manifest.contains(&format!("\n{name} = ")) {
                writeln!(manifest, "{line}")?;
            }
        }
    }
    Ok(manifest.replace(
        CRATES_OF_USERS,
        &root().join("crates").display().to_string(),
    ))
}

/// The code blocks of one language, each as its lines.
fn blocks<'a>(page: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    page.split("\n```").filter_map(move |block| {
        let (head, body) = block.split_once('\n')?;
        (head == language || head.starts_with(&format!("{language},"))).then_some(body)
    })
}

/// The snippets of a page: a module for each. One that defines no function is the body of one.
fn module(page: &str, snippets: &mut usize) -> Result<String> {
    let mut text = String::new();
    for (number, snippet) in blocks(page, "rust").enumerate() {
        *snippets += 1;
        writeln!(text, "#[allow(warnings)]\nmod snippet_{number} {{")?;
        if snippet.lines().any(|line| line.contains("fn ")) {
            writeln!(text, "{snippet}\n}}")?;
        } else {
            writeln!(text, "{PRELUDE}{snippet}\nOk(())\n}}\n}}")?;
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_cut_into_its_blocks() {
        let page = "x\n\n```toml\na = 1\n```\n\n```rust,no_run\nfn main() {}\n```\n\n```rust\nlet one = 1;\n```\n";
        assert_eq!(blocks(page, "toml").collect::<Vec<_>>(), ["a = 1"]);
        assert_eq!(blocks(page, "rust").count(), 2);
        let mut count = 0;
        let module = module(page, &mut count).unwrap();
        assert_eq!(count, 2);
        assert!(module.contains("mod snippet_1"));
        assert!(module.contains("let one = 1;\nOk(())"));
    }

    #[test]
    fn a_page_adds_the_dependencies_that_the_readme_does_not_have() {
        let readme =
            "x\n```toml\n[dependencies]\nlib = { path = \"../baton/crates/recipes\" }\n```\n";
        let page = "x\n```toml\n[dependencies]\nlib = \"2\"\nmore = { path = \"../baton/crates/more\" }\n```\n\
                    \n```toml\n[context.prod]\nservers = \"a\"\n```\n";
        let manifest = manifest(readme, std::iter::once(page)).unwrap();
        assert!(manifest.ends_with("/crates/more\" }\n"), "{manifest}");
        assert_eq!(manifest.matches("\nlib = ").count(), 1);
        assert!(!manifest.contains("../baton"));
        assert!(!manifest.contains("servers"));
    }
}
