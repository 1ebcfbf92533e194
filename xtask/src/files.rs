//! The files of the workspace, and those of them that only tests use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Lists the files below `folder` with this extension (all files with the extension ""), in order.
/// Builds do not count.
pub(crate) fn below(folder: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if !path.is_dir() {
                let found_extension = path.extension().unwrap_or_default();
                if extension.is_empty() || found_extension == extension {
                    found.push(path);
                }
            } else if !path.ends_with("target") {
                folders.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Modules that are declared for tests only: a source file is in one if a path of this set is its
/// own without the extension, or a folder around it.
#[derive(Debug, Default)]
pub(crate) struct TestModules(BTreeSet<PathBuf>);

impl TestModules {
    /// Adds a module that `file` declares.
    pub(crate) fn add(&mut self, file: &Path, module: &str) {
        let parent = file.parent().unwrap_or(file);
        let folder = match file.file_stem().and_then(|stem| stem.to_str()) {
            Some("lib" | "main" | "mod") | None => parent.to_owned(),
            Some(stem) => parent.join(stem),
        };
        self.0.insert(folder.join(module));
    }

    /// Returns whether only tests use the file.
    pub(crate) fn contains(&self, file: &Path) -> bool {
        let module = file.with_extension("");
        module.ancestors().any(|part| self.0.contains(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_of_tests_is_its_file_and_its_folder() {
        let mut modules = TestModules::default();
        modules.add(Path::new("src/lib.rs"), "gate");
        modules.add(Path::new("src/core/log.rs"), "model");
        let contained = |file: &str| modules.contains(Path::new(file));
        assert!(contained("src/gate.rs") && contained("src/gate/run.rs"));
        assert!(contained("src/core/log/model.rs"));
        assert!(!contained("src/model.rs") && !contained("src/core/log.rs"));
    }
}
