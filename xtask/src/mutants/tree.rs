//! The copy of the workspace with mutants in it, and its build.
//!
//! A mutant that does not compile is found by the place of the compiler's error, and left out; then
//! the build is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::modules::Source;
use super::mutant::Mutant;
use super::rewrite::{NumberedMutant, PlacedMutant, rewrite};
use crate::executables::Executable;
use crate::{Result, command};

/// The most builds before the cause must be something else.
const MOST_ROUNDS: usize = 60;

/// A mutant with its number and the crate that it is in.
#[derive(Debug, Clone)]
pub(super) struct ChosenMutant {
    pub(super) id: u32,
    pub(super) module: &'static str,
    pub(super) source: &'static Source,
    pub(super) mutant: Mutant,
}

/// Build that shows what compiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Build {
    /// The mutated libraries alone, not linked.
    Check,
    /// All test executables.
    Tests,
}

/// The copy.
#[derive(Debug)]
pub(super) struct Tree {
    /// The sources as they were when the copy was made: somebody may go on with the work meanwhile.
    originals: BTreeMap<String, String>,
    folder: PathBuf,
    target: PathBuf,
    /// The crates whose `lib.rs` has the switch in it.
    switched: Vec<&'static Source>,
}

impl Tree {
    /// Copies the workspace, with all changes that are not committed, into `folder`.
    pub(super) fn copy(root: &Path, folder: &Path) -> Result<Self> {
        let listed = command::output(Command::new("git").current_dir(root).args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
        ]))?;
        let mut tree = Self {
            originals: BTreeMap::new(),
            folder: folder.join("tree"),
            target: folder.join("build"),
            switched: Vec::new(),
        };
        // Files that an earlier run has mutated are written with this run's mutants, once: a
        // resumed run then builds nothing.
        let mutated = tree.mutated_files();
        let mut kept = BTreeSet::new();
        for name in listed.lines().filter(|name| root.join(name).is_file()) {
            kept.insert(tree.folder.join(name));
            let bytes = fs::read(root.join(name))?;
            if !mutated.contains(name) {
                write(&tree.folder.join(name), &bytes)?;
            }
            if name.ends_with(".rs") {
                tree.originals
                    .insert(name.to_owned(), String::from_utf8(bytes)?);
            }
        }
        remove_others(&tree.folder, &kept)?;
        Ok(tree)
    }

    /// Writes the mutants into the copy, builds it, and leaves out those that do not compile.
    /// Returns the executables.
    pub(super) fn build(
        &mut self,
        build: Build,
        packages: &BTreeSet<&str>,
        chosen: &mut Vec<ChosenMutant>,
    ) -> Result<Vec<Executable>> {
        for round in 1..=MOST_ROUNDS {
            let placed = self.write_mutants(chosen)?;
            let (errors, executables) = self.cargo(build, packages)?;
            if errors.is_empty() {
                return Ok(executables);
            }
            let guilty: BTreeSet<u32> = errors
                .iter()
                .filter_map(|error| error.guilty(&placed))
                .collect();
            if guilty.is_empty() {
                let texts: Vec<_> = errors.iter().map(|error| error.rendered.as_str()).collect();
                return Err(format!(
                    "the copy in {} does not build, and no mutant is the cause:\n{}",
                    self.folder.display(),
                    texts.join("\n")
                )
                .into());
            }
            eprintln!(
                "build {round}: {} errors, {} mutants do not compile",
                errors.len(),
                guilty.len()
            );
            chosen.retain(|mutant| !guilty.contains(&mutant.id));
        }
        Err(format!("the copy does not build after {MOST_ROUNDS} rounds").into())
    }

    /// Writes all mutated files again, and those that have no mutant any more as they were.
    fn write_mutants(
        &mut self,
        chosen: &[ChosenMutant],
    ) -> Result<BTreeMap<String, Vec<PlacedMutant>>> {
        let mut files: BTreeMap<&str, Vec<NumberedMutant<'_>>> = BTreeMap::new();
        for ChosenMutant {
            id, mutant, source, ..
        } in chosen
        {
            files.entry(&mutant.file).or_default().push((*id, mutant));
            if !self
                .switched
                .iter()
                .any(|other| std::ptr::eq(*other, *source))
            {
                self.switched.push(source);
            }
        }
        let mut names = self.mutated_files();
        names.extend(files.keys().map(|&file| file.to_owned()));
        for source in &self.switched {
            let mut switch = include_str!("switch.rs").to_owned();
            for instant in source.instants {
                switch.push_str(&format!(
                    "\nimpl Delayable for {instant} {{\n    fn later(self) -> Self {{\n        \
                     self + Duration::from_secs(1)\n    }}\n}}\n"
                ));
            }
            write(&self.folder.join(source.switch_file()), switch.as_bytes())?;
            names.insert(source.root_file());
        }
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        write(&self.list(), lines.as_bytes())?;
        let mut placed = BTreeMap::new();
        for name in names {
            let Some(original) = self.originals.get(&name) else {
                continue;
            };
            let mutants = files.get(&*name).map_or(&[][..], Vec::as_slice);
            let (mut text, places) = rewrite(original, mutants);
            if self
                .switched
                .iter()
                .any(|source| source.root_file() == name)
            {
                text.push_str("\nmod __mutant;\n");
            }
            write(&self.folder.join(&name), text.as_bytes())?;
            placed.insert(name, places);
        }
        Ok(placed)
    }

    fn list(&self) -> PathBuf {
        self.target.with_file_name("mutated-files")
    }

    /// The files of the copy that are not as they are in the workspace.
    fn mutated_files(&self) -> BTreeSet<String> {
        let list = fs::read_to_string(self.list()).unwrap_or_default();
        list.lines().map(str::to_owned).collect()
    }

    fn cargo(
        &self,
        build: Build,
        packages: &BTreeSet<&str>,
    ) -> Result<(Vec<CompileError>, Vec<Executable>)> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        match build {
            Build::Check => command.args(["check", "--keep-going"]),
            Build::Tests => command.args(["test", "--no-run", "--tests"]),
        };
        command.args(["--quiet", "--locked", "--message-format=json"]);
        for package in packages {
            command.args(["--package", package]);
        }
        let output = command
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // What a mutant leaves unused is not an error of the build.
            .env("RUSTFLAGS", "--cap-lints=warn")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("cannot start {command:?}: {error}"))?;
        let mut errors = Vec::new();
        let mut executables = Vec::new();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Ok(message) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            match message["reason"].as_str() {
                Some("compiler-message") => errors.extend(CompileError::from(&message["message"])),
                Some("compiler-artifact") => executables.extend(Executable::of_message(&message)),
                _ => {}
            }
        }
        if !output.status.success() && errors.is_empty() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{command:?} ended with {}: {stderr}", output.status).into());
        }
        Ok((errors, Executable::all_modules(executables)?))
    }
}

/// An error of the compiler, with all places that it names, the main ones first.
#[derive(Debug)]
struct CompileError {
    rendered: String,
    places: Vec<(String, usize)>,
}

impl CompileError {
    fn from(message: &Value) -> Option<Self> {
        if message["level"] != "error" {
            return None;
        }
        let mut spans = Vec::new();
        collect_spans(message, &mut spans);
        // "aborting due to 3 previous errors" has no place.
        if spans.is_empty() {
            return None;
        }
        spans.sort_by_key(|span| span["is_primary"] != true);
        let places = spans.iter().filter_map(|span| {
            let file = span["file_name"].as_str()?.to_owned();
            let at = usize::try_from(span["byte_start"].as_u64()?).ok()?;
            Some((file, at))
        });
        Some(Self {
            rendered: message["rendered"].as_str().unwrap_or_default().to_owned(),
            places: places.collect(),
        })
    }

    /// The mutant at one of its places: at first one whose own text has the error, then one that is
    /// around it.
    fn guilty(&self, placed: &BTreeMap<String, Vec<PlacedMutant>>) -> Option<u32> {
        let ranges: [fn(&PlacedMutant) -> &std::ops::Range<usize>; 2] =
            [|place| &place.replacement, |place| &place.whole];
        ranges.into_iter().find_map(|range| {
            self.places.iter().find_map(|(file, at)| {
                let around = placed
                    .get(file)?
                    .iter()
                    .filter(|place| range(place).contains(at));
                around
                    .min_by_key(|place| range(place).len())
                    .map(|place| place.id)
            })
        })
    }
}

fn collect_spans<'v>(message: &'v Value, found: &mut Vec<&'v Value>) {
    let spans = message["spans"].as_array().into_iter().flatten();
    for mut span in spans {
        found.push(span);
        while span["expansion"]["span"].is_object() {
            span = &span["expansion"]["span"];
            found.push(span);
        }
    }
    for child in message["children"].as_array().into_iter().flatten() {
        collect_spans(child, found);
    }
}

/// Writes a file where it differs, so that cargo does not build again what is the same.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(())
}

/// Removes what an earlier copy has left, but for the switches, which nothing declares where they
/// are not needed.
fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) && !path.ends_with("__mutant.rs") {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_fault_of_the_innermost_mutant_around_its_place() {
        let place = |id, whole, replacement| PlacedMutant {
            id,
            whole,
            replacement,
        };
        let placed = BTreeMap::from([(
            "f.rs".to_owned(),
            vec![place(1, 0..100, 10..20), place(2, 30..60, 35..40)],
        )]);
        let error = |spans: &str| {
            let text = format!("{{\"level\":\"error\",\"rendered\":\"\",\"spans\":[{spans}]}}");
            CompileError::from(&serde_json::from_str(&text).unwrap())
        };
        let span = |at: usize, primary: bool| {
            format!("{{\"file_name\":\"f.rs\",\"byte_start\":{at},\"is_primary\":{primary}}}")
        };
        let guilty = |spans: &str| error(spans).unwrap().guilty(&placed);
        assert_eq!(guilty(&span(15, true)), Some(1));
        assert_eq!(guilty(&span(36, true)), Some(2));
        assert_eq!(guilty(&span(50, true)), Some(2));
        assert_eq!(guilty(&span(70, true)), Some(1));
        assert_eq!(guilty(&span(200, true)), None);
        let both = format!("{},{}", span(12, false), span(70, true));
        assert_eq!(guilty(&both), Some(1));
        assert!(error("").is_none(), "a summary has no place");
    }
}
