//! Source and target of this build. The build script sets them.

use std::sync::LazyLock;

use baton_server::FormatLevel;
use serde::Serialize;

/// The version and, where it is known, the commit: one line.
pub(crate) const VERSION: &str = env!("BATON_BUILD_VERSION");

/// The version of ZooKeeper whose protocol and answers Baton has.
const PROTOCOL: &str = "ZooKeeper 3.9";

/// The facts about the build.
#[derive(Debug, Serialize)]
pub(crate) struct Build {
    pub(crate) version: &'static str,
    /// Commit, where it is known; with `-dirty` behind it if something else was built.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) commit: Option<&'static str>,
    pub(crate) target: &'static str,
    pub(crate) profile: &'static str,
    pub(crate) rustc: &'static str,
    /// The optional parts that are in it.
    pub(crate) features: &'static [&'static str],
    /// The format levels of data folders that it reads: the oldest and the newest.
    pub(crate) format_levels: [u64; 2],
    pub(crate) protocol: &'static str,
}

/// This build.
pub(crate) static BUILD: LazyLock<Build> = LazyLock::new(|| Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: Some(env!("BATON_BUILD_COMMIT")).filter(|commit| !commit.is_empty()),
    target: env!("BATON_BUILD_TARGET"),
    profile: env!("BATON_BUILD_PROFILE"),
    rustc: env!("BATON_BUILD_RUSTC"),
    features: if cfg!(feature = "otel") {
        &["otel"]
    } else {
        &[]
    },
    format_levels: [
        FormatLevel::default().number(),
        FormatLevel::NEWEST.number(),
    ],
    protocol: PROTOCOL,
});
