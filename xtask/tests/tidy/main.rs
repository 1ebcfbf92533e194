//! Reads the repository as text and enforces those invariants of ARCHITECTURE.md that a reader of
//! text can enforce: which crate may depend on which, which calls are banned where, how long a file
//! may be, what must never be committed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod commands;
mod errors;
mod facade;
mod golden;
mod modules;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A file longer than this has to be split.
const MAX_LINES: usize = 1000;
/// Columns of a comment, at most.
const MAX_COLUMNS: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

fn files(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && name != ".git" {
                files(&path, extension, found);
            }
        } else if name.ends_with(extension) {
            found.push(path);
        }
    }
}

fn sources(below: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let dir = root().join(below);
    if dir.exists() {
        files(&dir, ".rs", &mut found);
    }
    found.sort();
    found
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// The lines of a file that run in production: without comments and without what follows
/// `#[cfg(test)]`.
fn production_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .map(|(number, line)| (number + 1, line.split("//").next().unwrap_or("")))
        .filter(|(_, line)| !line.trim().is_empty())
}

fn refuse(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

/// Invariant 1: arrows go down only.
#[test]
fn crates_depend_downwards_only() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("proto", &[][..]),
        ("tree", &["baton-proto"][..]),
        ("wal", &[][..]),
        ("zkdata", &["baton-proto", "baton-tree"][..]),
        ("consensus", &[][..]),
        ("tls", &[][..]),
        ("peers", &["baton-consensus", "baton-tls"][..]),
        ("sasl", &[][..]),
        (
            "server",
            &[
                "baton-proto",
                "baton-tree",
                "baton-wal",
                "baton-zkdata",
                "baton-consensus",
                "baton-peers",
                "baton-sasl",
                "baton-tls",
            ][..],
        ),
        ("client", &["baton-proto", "baton-sasl", "baton-tls"][..]),
        (
            "recipes",
            &["baton-client", "baton-proto", "baton-server"][..],
        ),
        ("otel", &["baton-client", "baton-server", "baton-tls"][..]),
        ("agent", &["baton"][..]),
        ("console", &["baton", "baton-client", "baton-server"][..]),
        (
            "testkit",
            &[
                "baton-proto",
                "baton-client",
                "baton-server",
                "baton-tls",
                "baton-wal",
            ][..],
        ),
        (
            "sim",
            &[
                "baton",
                "baton-client",
                "baton-consensus",
                "baton-peers",
                "baton-proto",
                "baton-server",
                "baton-testkit",
                "baton-tree",
                "baton-wal",
            ][..],
        ),
        (
            "bench",
            &["baton", "baton-client", "baton-proto", "baton-tls"][..],
        ),
        (
            "cli",
            &[
                "baton",
                "baton-agent",
                "baton-client",
                "baton-console",
                "baton-otel",
                "baton-proto",
                "baton-server",
                "baton-tls",
                "baton-wal",
                "baton-zkdata",
            ][..],
        ),
    ]);
    let mut problems = Vec::new();
    for (name, allowed) in allowed {
        let manifest =
            fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let mut section = "";
        for line in manifest.lines() {
            if line.starts_with('[') {
                section = line.trim();
            }
            let dependency = line.split(['.', ' ', '=']).next().unwrap_or("");
            let ours = dependency == "baton" || dependency.starts_with("baton-");
            if section == "[dependencies]" && ours && !allowed.contains(&dependency) {
                problems.push(format!("crates/{name} must not depend on {dependency}"));
            }
        }
    }
    refuse(&problems);
}

/// A dependency that nothing names is one too many.
#[test]
fn each_dependency_is_used() {
    let mut manifests = Vec::new();
    for dir in ["crates", "xtask"] {
        files(&root().join(dir), "Cargo.toml", &mut manifests);
    }
    let mut problems = Vec::new();
    for manifest in manifests {
        let dir = manifest.parent().unwrap().strip_prefix(root()).unwrap();
        let all = sources(&dir.display().to_string());
        let library = dir.join("src").display().to_string();
        let mut dev = None;
        for line in fs::read_to_string(&manifest).unwrap().lines() {
            if line.starts_with('[') {
                dev = match line.trim_end_matches(']').rsplit('.').next() {
                    Some("[dependencies" | "dependencies") => Some(false),
                    Some("[dev-dependencies" | "dev-dependencies") => Some(true),
                    _ => None,
                };
                continue;
            }
            let name = line.split(['.', ' ', '=']).next().unwrap_or("");
            let (Some(dev), false) = (dev, name.is_empty() || name.starts_with('#')) else {
                continue;
            };
            let word = name.replace('-', "_");
            let used = all
                .iter()
                .filter(|(file, _)| dev || file.starts_with(&library))
                .any(|(_, text)| text.contains(&word));
            if !used {
                problems.push(format!("{}: nothing uses `{name}`", dir.display()));
            }
        }
    }
    refuse(&problems);
}

/// Invariants 2 and 3: no clock, file, socket, chance or hash order in the pure crates; only `wal`
/// syncs a file.
#[test]
fn banned_calls_stay_out() {
    let impure = [
        "std::time",
        "SystemTime",
        "Instant::now",
        "std::fs",
        "std::net",
        "std::thread",
        "tokio::",
        "getrandom",
        "fastrand",
        "RandomState",
        "collections::HashMap",
        "collections::HashSet",
    ];
    let mut problems = Vec::new();
    for pure in [
        "crates/proto/src",
        "crates/tree/src",
        "crates/consensus/src",
        "crates/zkdata/src",
        "crates/peers/src/codec",
        "crates/peers/src/bootstrap",
    ] {
        for (name, text) in sources(pure) {
            for (number, line) in production_lines(&text) {
                for word in impure.iter().filter(|word| line.contains(**word)) {
                    problems.push(format!("{name}:{number}: `{word}` in a pure crate"));
                }
            }
        }
    }
    for dir in [
        "crates/server/src",
        "crates/client/src",
        "crates/recipes/src",
        "crates/tree/src",
        "crates/consensus/src",
        "crates/peers/src",
        "crates/tls/src",
        "crates/console/src",
    ] {
        for (name, text) in sources(dir) {
            for (number, line) in production_lines(&text) {
                for word in ["sync_data(", "sync_all(", "fdatasync(", "fsync("] {
                    if line.contains(word) {
                        problems.push(format!("{name}:{number}: `{word}` outside wal"));
                    }
                }
            }
        }
    }
    refuse(&problems);
}

/// A recipe starts tasks and timers on the client's runtime: that of its caller may end, or be
/// busy, while a lock is held. `background` alone knows the caller's runtime, for the application's
/// own code.
#[test]
fn recipes_leave_the_runtime_of_their_caller_alone() {
    let of_the_caller = [
        "tokio::spawn",
        "spawn_local",
        "task::spawn_blocking",
        "Handle::current",
        "try_current",
        "tokio::time::sleep",
        "tokio::time::timeout",
        "tokio::time::interval",
    ];
    let mut problems = Vec::new();
    for (name, text) in sources("crates/recipes/src") {
        let own_threads = ["recipes/src/background.rs", "recipes/src/embedded"];
        if own_threads.iter().any(|part| name.contains(part)) {
            continue;
        }
        for (number, line) in production_lines(&text) {
            for word in of_the_caller.iter().filter(|word| line.contains(**word)) {
                problems.push(format!(
                    "{name}:{number}: `{word}`: use the client's runtime, or `background`"
                ));
            }
            // Of a `JoinSet`: `spawn_on` names the runtime.
            if line.contains(".spawn(") && !line.contains("runtime") {
                problems.push(format!("{name}:{number}: on which runtime does this run?"));
            }
        }
    }
    refuse(&problems);
}

/// Checks that branches of a `select!` that are ready at once run in order, not by chance: the
/// simulator could not repeat a run otherwise. `// unbiased: why` on the line above is the
/// exception.
#[test]
fn each_select_is_biased() {
    let mut problems = Vec::new();
    for dir in [
        "crates/client/src",
        "crates/recipes/src",
        "crates/peers/src",
    ] {
        for (name, text) in sources(dir) {
            problems.extend(unbiased_selects(&name, &text));
        }
    }
    refuse(&problems);
}

fn unbiased_selects(name: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut problems = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        let Some((_, rest)) = code.split_once("select! {") else {
            continue;
        };
        let next = lines.get(number + 1).copied().unwrap_or("");
        let biased = rest.trim().starts_with("biased;") || next == "biased;";
        let excused = number > 0
            && lines[number - 1]
                .strip_prefix("// unbiased:")
                .is_some_and(|why| !why.trim().is_empty());
        if !biased && !excused {
            problems.push(format!(
                "{name}:{}: `select!` without `biased;` as its first line",
                number + 1
            ));
        }
    }
    problems
}

#[test]
fn an_unbiased_select_is_found() {
    assert_eq!(
        unbiased_selects("f", "tokio::select! {\n    a => {}\n}").len(),
        1
    );
    assert_eq!(
        unbiased_selects("f", "// unbiased:\nselect! {\n    a => {}\n}").len(),
        1
    );
    for good in [
        "tokio::select! {\n    biased;\n    a => {}\n}",
        "select! { biased; a => {} }",
        "// unbiased: both are ready for good\nselect! {\n    a => {}\n}",
        "// a select! { in a comment",
    ] {
        assert!(unbiased_selects("f", good).is_empty(), "{good}");
    }
}

/// A reader understands a file from its first paragraph, and can hold a file in mind.
#[test]
fn files_are_short_and_introduce_themselves() {
    let mut problems = Vec::new();
    for dir in ["crates", "xtask"] {
        for (name, text) in sources(dir) {
            let lines = text.lines().count();
            if lines > MAX_LINES {
                problems.push(format!(
                    "{name}: {lines} lines, more than {MAX_LINES}: split it"
                ));
            }
            if !text.starts_with("//!") {
                problems.push(format!("{name}: does not begin with a `//!` paragraph"));
            }
        }
    }
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    if architecture.lines().count() > 250 {
        problems.push("ARCHITECTURE.md: more than 250 lines".to_owned());
    }
    refuse(&problems);
}

/// Comments have 100 columns at most, which `rustfmt` does not see to. Rows of tables are exempt.
#[test]
fn comments_are_not_wide() {
    let mut problems = Vec::new();
    for dir in ["crates", "xtask"] {
        for (name, text) in sources(dir) {
            for (number, line) in text.lines().enumerate() {
                let comment = line.trim_start();
                if comment.starts_with("//") && line.chars().count() > MAX_COLUMNS {
                    problems.push(format!("{name}:{}: a comment is too wide", number + 1));
                }
            }
        }
    }
    refuse(&problems);
}

/// Refuses what must never be committed: unfinished work, tests that do not run, registry hosts.
#[test]
fn nothing_unfinished_is_committed() {
    let banned = [
        ["to", "do!("].concat(),
        ["unimple", "mented!("].concat(),
        ["FIX", "ME"].concat(),
        ["TO", "DO"].concat(),
        ["#[ig", "nore"].concat(),
        ["crates", ".io"].concat(),
        ["pypi", ".org"].concat(),
    ];
    let mut problems = Vec::new();
    let mut texts = sources("crates");
    texts.extend(sources("xtask"));
    texts.extend(sources("fuzz/fuzz_targets"));
    let mut pages = Vec::new();
    files(&root(), ".md", &mut pages);
    for page in pages {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        texts.push((name, fs::read_to_string(page).unwrap()));
    }
    for (name, text) in texts {
        for (number, line) in text.lines().enumerate() {
            for word in banned.iter().filter(|word| line.contains(word.as_str())) {
                problems.push(format!("{name}:{}: `{word}`", number + 1));
            }
        }
    }
    refuse(&problems);
}

/// Logs, cores and leavings of editors and merges belong to a run, not to the repository.
#[test]
fn no_leavings_of_a_run_are_committed() {
    let leavings = [
        ".log", ".tmp", ".out", ".err", ".orig", ".rej", ".profraw", ".pid", ".core", ".swp", "~",
    ];
    let listed = std::process::Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output();
    // A source archive has no index, and nothing in it is about to be committed.
    let Ok(listed) = listed.map(|listed| listed.stdout) else {
        return;
    };
    let mut problems = Vec::new();
    for name in String::from_utf8_lossy(&listed).split('\0') {
        if leavings.iter().any(|end| name.ends_with(end)) {
            problems.push(format!("{name}: a leaving of a run; delete it"));
        }
    }
    refuse(&problems);
}

/// Every library forbids unsafe code.
#[test]
fn libraries_forbid_unsafe_code() {
    let mut problems = Vec::new();
    for (name, text) in sources("crates") {
        if name.ends_with("src/lib.rs") && !text.contains("#![forbid(unsafe_code)]") {
            problems.push(format!("{name}: `#![forbid(unsafe_code)]` is missing"));
        }
    }
    refuse(&problems);
}

/// The sections that a page has: `1.4` for a title "### 1.4 Op codes".
fn sections(page: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/internals").join(page)).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter_map(|line| line.trim_start_matches('#').split_whitespace().next())
        .map(|number| number.trim_end_matches('.').to_owned())
        .collect()
}

/// A link of a page to a file of this repository leads to one.
#[test]
fn links_of_pages_lead_to_files() {
    let mut pages = Vec::new();
    files(&root().join("docs"), ".md", &mut pages);
    for page in fs::read_dir(root()).unwrap() {
        let page = page.unwrap().path();
        if page.extension().is_some_and(|extension| extension == "md") {
            pages.push(page);
        }
    }
    assert!(pages.len() > 10, "{pages:?}");
    let mut problems = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let definitions = text
            .lines()
            .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
            .map(|(_, target)| target);
        for link in text.split("](").skip(1).chain(definitions) {
            let target = link.split([')', '#']).next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.contains([' ', '=']) {
                continue;
            }
            if !page.parent().unwrap().join(target).exists() {
                let page = page.strip_prefix(root()).unwrap().display();
                problems.push(format!("{page}: there is no {target}"));
            }
        }
    }
    refuse(&problems);
}

#[test]
fn what_code_cites_is_there() {
    let mut problems = Vec::new();
    for page in ["protocol.md", "hazards.md"] {
        let known = sections(page);
        for (name, text) in ["crates", "xtask/src"].iter().flat_map(|dir| sources(dir)) {
            for cited in text.split(page).skip(1) {
                let cited = cited.trim_start_matches(['`', ' ', ',']);
                for section in cited.lines().next().unwrap_or("").split(", ") {
                    let Some(section) = section.strip_prefix('§') else {
                        break;
                    };
                    let end = section.find(|char: char| !char.is_ascii_digit() && char != '.');
                    let section = section[..end.unwrap_or(section.len())].trim_end_matches('.');
                    if !known.iter().any(|number| number == section) {
                        problems.push(format!("{name}: docs/internals/{page} has no §{section}"));
                    }
                }
            }
        }
    }
    refuse(&problems);
}

/// Words of our own for what the field has a word for. On the left of the table of words that binds
/// every text here.
const NOT_OUR_WORDS: &[&str] = &[
    "told",
    "learns",
    "herald",
    "farewell",
    "contender",
    "contenders",
    "heralds",
    "rivals",
    "stance",
    "rival",
    "bid",
    "beaten",
    "stands in line",
    "stand in line",
    "speaks for",
    "that is none",
    "none that is",
    "so many",
    "tells",
    "verdict",
    "whoever",
    "anew",
    "servers that are one",
    "that are none",
];

/// Returns whether a line has the phrase, in whole words.
fn has_phrase(line: &str, phrase: &str) -> bool {
    let line = line.to_lowercase();
    let word = |char: char| char.is_alphanumeric() || char == '_';
    line.match_indices(phrase)
        .any(|(at, _)| !line[..at].ends_with(word) && !line[at + phrase.len()..].starts_with(word))
}

/// A page's lines without what stands between backticks: names that other libraries chose.
fn without_code(page: &str) -> String {
    let prose = |line: &str| -> String { line.split('`').step_by(2).collect() };
    page.lines().map(prose).collect::<Vec<_>>().join("\n")
}

#[test]
fn code_and_pages_have_the_words_of_the_field() {
    let mut texts = sources("crates");
    texts.extend(sources("xtask"));
    // These files have the words themselves.
    let lists = ["xtask/tests/tidy/main.rs", "xtask/tests/tidy/words.rs"];
    texts.retain(|(name, _)| !lists.contains(&name.as_str()));
    let mut pages = Vec::new();
    files(&root().join("docs"), ".md", &mut pages);
    for extension in [".py", ".go", ".js", ".java", ".md"] {
        files(&root().join("clients"), extension, &mut pages);
    }
    for page in fs::read_dir(root()).unwrap() {
        let page = page.unwrap().path();
        if page.extension().is_some_and(|extension| extension == "md") {
            pages.push(page);
        }
    }
    for page in pages {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        let mut text = fs::read_to_string(page).unwrap();
        let quoting = ["docs/internals", "docs/project", "CHANGELOG.md"];
        if quoting.iter().any(|start| name.starts_with(start)) {
            text = without_code(&text);
        }
        texts.push((name, text));
    }
    let mut problems = Vec::new();
    for (name, text) in texts {
        for (number, line) in text.lines().enumerate() {
            for phrase in NOT_OUR_WORDS {
                if has_phrase(line, phrase) {
                    problems.push(format!("{name}:{}: \"{phrase}\"", number + 1));
                }
            }
        }
    }
    refuse(&problems);
}

#[test]
fn a_phrase_is_found_in_whole_words_only() {
    assert!(has_phrase("Told of it.", "told"));
    assert!(has_phrase("is `told`", "told"));
    assert!(!has_phrase("as_told_before, untold", "told"));
    assert!(has_phrase("Servers that are one.", "servers that are one"));
    assert_eq!(
        without_code("`contenders()` are told\nof `it`"),
        " are told\nof "
    );
}

/// The group of an import: 0 for the standard library, 1 for other crates, 2 for this crate and
/// `own`, the modules that the file declares.
fn import_group(import: &str, own: &[&str]) -> u8 {
    let path = import.split("use ").nth(1).unwrap_or("");
    let path = path.trim_start_matches("::").trim_start_matches("r#");
    let end = path.find(|char: char| !char.is_alphanumeric() && char != '_');
    match &path[..end.unwrap_or(path.len())] {
        "std" | "core" | "alloc" => 0,
        "crate" | "super" | "self" => 2,
        module if own.contains(&module) => 2,
        _ => 1,
    }
}

/// Imports that are not in the order of their groups, or whose groups no blank line parts.
fn wrong_imports(text: &str) -> Vec<usize> {
    let own: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim_end_matches([';', '{', ' ']).rsplit_once("mod "))
        .map(|(_, name)| name)
        .collect();
    let mut wrong = Vec::new();
    // The group of the import before, and whether a blank line has come since.
    let mut before: Option<(u8, bool)> = None;
    let mut is_open = false;
    // What is exported with `pub use` has an order of its own.
    for (number, line) in text.lines().enumerate() {
        if is_open {
            is_open = !line.ends_with(';');
            continue;
        }
        let code = line.trim_start();
        if code.starts_with("use ") {
            let group = import_group(code, &own);
            if before.is_some_and(|(last, parted)| group < last || (group > last) != parted) {
                wrong.push(number + 1);
            }
            before = Some((group, false));
            is_open = !line.ends_with(';');
        } else if code.is_empty() {
            before = before.map(|(group, _)| (group, true));
        } else if !code.starts_with("#[") {
            before = None;
        }
    }
    wrong
}

#[test]
fn imports_are_in_three_groups_std_other_crates_and_this_crate() {
    let mut problems = Vec::new();
    for below in ["crates", "xtask"] {
        for (name, text) in sources(below) {
            let wrong = wrong_imports(&text);
            problems.extend(wrong.iter().map(|number| {
                format!("{name}:{number}: imports: first std, then other crates, then this crate")
            }));
        }
    }
    refuse(&problems);
}

#[test]
fn an_import_in_the_wrong_group_is_found() {
    let good = "use std::fs;\n\nuse bytes::Bytes;\nuse tokio::{\n    io,\n};\n\nuse crate::a;\n";
    assert!(wrong_imports(good).is_empty());
    assert_eq!(wrong_imports("use crate::a;\nuse std::fs;\n"), [2]);
    assert_eq!(wrong_imports("use bytes::Bytes;\nuse crate::a;\n"), [2]);
    assert_eq!(wrong_imports("use std::fs;\n\nuse std::io;\n"), [3]);
    assert!(wrong_imports("use bytes::Bytes;\n\nmod a;\n\nuse std::fs;\n").is_empty());
}
