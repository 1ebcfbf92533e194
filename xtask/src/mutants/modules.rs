//! The parts of the workspace that are mutated, and whose tests count for each.

use std::fs;
use std::path::{Path, PathBuf};

use super::mutant::Mutant;
use super::scan::{scan, test_modules};
use crate::Result;
use crate::files::{self, TestModules};

/// One part of the workspace.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: &'static str,
    /// Files and folders below the crate's `src`; none for all of it.
    paths: &'static [&'static str],
    pub(super) source: &'static Source,
}

/// One crate.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) package: &'static str,
    folder: &'static str,
    /// The packages whose tests may notice a mutant, its own first.
    pub(super) tests: &'static [&'static str],
    /// The types of instants that it uses, besides those of the standard library.
    pub(super) instants: &'static [&'static str],
}

static CLIENT: Source = Source {
    package: "baton-locks-client",
    folder: "crates/client/src",
    tests: &["baton-locks-client", "baton-locks", "baton-sim"],
    instants: &["crate::BootInstant", "tokio::time::Instant"],
};
static RECIPES: Source = Source {
    package: "baton-locks",
    folder: "crates/recipes/src",
    tests: &["baton-locks", "baton-sim"],
    instants: &["baton_client::BootInstant", "tokio::time::Instant"],
};
static TREE: Source = Source {
    package: "baton-locks-tree",
    folder: "crates/tree/src",
    tests: &[
        "baton-locks-tree",
        "baton-locks-zkdata",
        "baton-locks-server",
        "baton-sim",
    ],
    instants: &[],
};
static WAL: Source = Source {
    package: "baton-locks-wal",
    folder: "crates/wal/src",
    tests: &[
        "baton-locks-wal",
        "baton-locks-consensus",
        "baton-locks-server",
        "baton-sim",
    ],
    instants: &[],
};
static CONSENSUS: Source = Source {
    package: "baton-locks-consensus",
    folder: "crates/consensus/src",
    tests: &["baton-locks-consensus", "baton-locks-server", "baton-sim"],
    instants: &[],
};
static PEERS: Source = Source {
    package: "baton-locks-peers",
    folder: "crates/peers/src",
    tests: &["baton-locks-peers"],
    instants: &["tokio::time::Instant"],
};
static SERVER: Source = Source {
    package: "baton-locks-server",
    folder: "crates/server/src",
    tests: &[
        "baton-locks-server",
        "baton-sim",
        "baton-locks-client",
        "baton-locks",
    ],
    instants: &["tokio::time::Instant"],
};

static CONSOLE: Source = Source {
    package: "baton-locks-console",
    folder: "crates/console/src",
    tests: &["baton-locks-console"],
    instants: &[],
};
static OTEL: Source = Source {
    package: "baton-locks-otel",
    folder: "crates/otel/src",
    tests: &["baton-locks-otel"],
    instants: &[],
};

/// All modules.
pub(super) static MODULES: &[Module] = &[
    Module {
        name: "client::lease",
        paths: &["lease.rs", "lease"],
        source: &CLIENT,
    },
    Module {
        name: "client::session",
        paths: &["session"],
        source: &CLIENT,
    },
    Module {
        name: "recipes::acquisition",
        paths: &[
            "acquire/acquisition.rs",
            "wait_queue",
            "parents.rs",
            "retry.rs",
            "receipt.rs",
        ],
        source: &RECIPES,
    },
    Module {
        name: "recipes::guard",
        paths: &["guard"],
        source: &RECIPES,
    },
    Module {
        name: "recipes::work-queue",
        paths: &["work_queue"],
        source: &RECIPES,
    },
    Module {
        name: "tree",
        paths: &[],
        source: &TREE,
    },
    Module {
        name: "wal",
        paths: &[],
        source: &WAL,
    },
    Module {
        name: "consensus",
        paths: &[],
        source: &CONSENSUS,
    },
    Module {
        name: "peers",
        paths: &[],
        source: &PEERS,
    },
    Module {
        name: "server::core",
        paths: &[
            "core",
            "connections",
            "session",
            "watch",
            "read",
            "report",
            "stats",
            "auth/attempts.rs",
            "net/lag.rs",
            "state",
            "time",
        ],
        source: &SERVER,
    },
    Module {
        name: "console::metrics",
        paths: &["metrics"],
        source: &CONSOLE,
    },
    Module {
        name: "otel",
        paths: &[],
        source: &OTEL,
    },
];

impl Source {
    /// The file that the switch is declared in.
    pub(super) fn root_file(&self) -> String {
        format!("{}/lib.rs", self.folder)
    }

    /// Returns whether the tests of this package may notice a mutant.
    pub(super) fn tests_count(&self, package: &str) -> bool {
        self.tests.contains(&package)
    }

    /// The file of the switch.
    pub(super) fn switch_file(&self) -> String {
        format!("{}/__mutant.rs", self.folder)
    }
}

impl Module {
    /// All mutants of the module.
    pub(super) fn scan(&self, root: &Path) -> Result<Vec<Mutant>> {
        let folder = root.join(self.source.folder);
        let all = files::below(&folder, "rs")?;
        let mut for_tests = TestModules::default();
        for file in &all {
            let modules = test_modules(&fs::read_to_string(file)?)
                .map_err(|error| format!("{}: {error}", file.display()))?;
            for module in modules {
                for_tests.add(file, &module);
            }
        }
        let mut found = Vec::new();
        let wanted: Vec<PathBuf> = match self.paths {
            [] => vec![folder],
            paths => paths.iter().map(|path| folder.join(path)).collect(),
        };
        for path in wanted {
            if !path.exists() {
                return Err(format!("{}: no {} any more", self.name, path.display()).into());
            }
            for file in all.iter().filter(|file| file.starts_with(&path)) {
                if for_tests.contains(file) {
                    continue;
                }
                let name = file.strip_prefix(root)?.display().to_string();
                let mutants = scan(&name, &fs::read_to_string(file)?)
                    .map_err(|error| format!("{name}: {error}"))?;
                found.extend(mutants);
            }
        }
        Ok(found)
    }
}
