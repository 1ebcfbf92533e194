//! Filter of the log's events: the one that BATON_LOG, `--log` and `log` of a `baton.toml` give, in
//! the syntax of `tracing`'s `EnvFilter`. What no directive names keeps its default.

use std::fmt;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{Directive, LevelFilter};

/// The environment's variable for the filter.
pub(crate) const VARIABLE: &str = "BATON_LOG";

/// The targets of Baton's own events. A directive that begins with `baton` and names none of them
/// is a slip of the pen.
pub(crate) const TARGETS: [&str; 15] = [
    "baton",
    "baton_agent",
    "baton_audit",
    "baton_client",
    "baton_consensus",
    "baton_console",
    "baton_otel",
    "baton_peers",
    "baton_proto",
    "baton_sasl",
    "baton_server",
    "baton_tls",
    "baton_tree",
    "baton_wal",
    "baton_zkdata",
];

/// The client in a server's process: that of the console.
const CLIENT: &str = "baton_client";

/// The directives of a filter, each of which is correct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogFilter(String);

impl LogFilter {
    /// The level of whatever no directive names, if a directive says so.
    fn level(&self) -> Option<LevelFilter> {
        let levels = directives(&self.0).filter_map(|text| text.parse().ok());
        levels.last()
    }

    /// Whether a directive is about the client: its target is the beginning of the client's.
    fn names_client(&self) -> bool {
        let levels = |text: &&str| text.parse::<LevelFilter>().is_err();
        let mut targets = directives(&self.0)
            .filter(levels)
            .filter_map(|text| text.split(['=', '[']).next());
        targets.any(|target| !target.is_empty() && CLIENT.starts_with(target))
    }
}

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        for directive in directives(text) {
            check(directive)?;
        }
        Ok(Self(text.trim().to_owned()))
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The filter of a server's log. What `filter` does not name has the level `default`; sessions in
/// the server's process are those of the console, and their steps are no news at the level info.
pub(crate) fn of_server(filter: Option<&LogFilter>, default: LevelFilter) -> EnvFilter {
    let level = filter.and_then(LogFilter::level).unwrap_or(default);
    let names_client = filter.is_some_and(LogFilter::names_client);
    let client = (level == LevelFilter::INFO && !names_client).then_some(LevelFilter::WARN);
    build(filter, level, client)
}

/// The filter of the log of another verb, which has one only where somebody asks for it.
pub(crate) fn of_verb(filter: &LogFilter) -> EnvFilter {
    build(
        Some(filter),
        filter.level().unwrap_or(LevelFilter::WARN),
        None,
    )
}

fn build(filter: Option<&LogFilter>, level: LevelFilter, client: Option<LevelFilter>) -> EnvFilter {
    let mut built = EnvFilter::default().add_directive(level.into());
    let client = client.and_then(|level| format!("{CLIENT}={level}").parse().ok());
    let given = filter.map_or("", |filter| &filter.0);
    let given = directives(given).filter_map(|text| text.parse::<Directive>().ok());
    for directive in client.into_iter().chain(given) {
        built = built.add_directive(directive);
    }
    built
}

/// The directives of a filter, as `EnvFilter` separates them.
fn directives(text: &str) -> impl Iterator<Item = &str> {
    text.split(',')
        .map(str::trim)
        .filter(|directive| !directive.is_empty())
}

/// Refuses what is not a directive, and what `EnvFilter` takes for the name of a target that nobody
/// has: a misspelt level would silence the log.
fn check(directive: &str) -> Result<(), String> {
    let refuse = |why: &str| {
        Err(format!(
            "{directive:?} {why}; write error, warn, info, debug, trace or off, or TARGET=LEVEL, as in \
             info,baton_server::net=debug"
        ))
    };
    if directive.parse::<LevelFilter>().is_ok() {
        return Ok(());
    }
    let target = directive.split(['=', '[']).next().unwrap_or_default();
    if directive.parse::<Directive>().is_err() || target.contains(char::is_whitespace) {
        return refuse("is not a directive of a log filter");
    }
    let root = target.split("::").next().unwrap_or_default();
    let is_own = TARGETS.contains(&root);
    if target.parse::<LevelFilter>().is_ok() && !target.is_empty() {
        return refuse("has a level where a target belongs");
    }
    if directive.ends_with('=') {
        return refuse("names no level");
    }
    if !is_own && (root.starts_with("baton") || target == directive) {
        return refuse("names no part of Baton and no level");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(filter: &str) -> String {
        let filter: LogFilter = filter.parse().unwrap();
        of_server(Some(&filter), LevelFilter::INFO).to_string()
    }

    /// The directives of a filter, sorted.
    fn sorted(text: &str) -> Vec<String> {
        let mut all: Vec<_> = text.split(',').map(str::to_owned).collect();
        all.sort();
        all
    }

    #[test]
    fn what_no_directive_names_keeps_its_default() {
        let of = |filter: &str| sorted(&shown(filter));
        assert_eq!(of(""), ["baton_client=warn", "info"]);
        assert_eq!(of("info"), ["baton_client=warn", "info"]);
        assert_eq!(of("WARN"), ["warn"]);
        assert_eq!(of("off"), ["off"]);
        assert_eq!(of(" debug , "), ["debug"]);
        assert_eq!(of("warn,debug"), ["debug"], "the last one counts");
        let net = ["baton_client=warn", "baton_server::net=debug", "info"];
        assert_eq!(of("baton_server::net=debug"), net);
        assert_eq!(of("info, baton_server::net=debug"), net);
        assert_eq!(of("baton_client=info"), ["baton_client=info", "info"]);
        assert_eq!(of("baton_client"), ["baton_client=trace", "info"]);
        assert_eq!(of("baton=debug"), ["baton=debug", "info"], "all of Baton");
        assert_eq!(of("off,rustls=trace"), ["off", "rustls=trace"]);
        let quiet = of_server(None, LevelFilter::ERROR).to_string();
        assert_eq!(quiet, "error");
        let spans: LogFilter = "[hold{path=/a}]=trace".parse().unwrap();
        assert!(
            of_verb(&spans)
                .to_string()
                .contains("[hold{path=/a}]=trace")
        );
    }

    #[test]
    fn a_wrong_directive_is_named_with_an_example() {
        for (filter, named) in [
            ("chatty", "chatty"),
            ("inf0", "inf0"),
            ("info,baton_server=loud", "baton_server=loud"),
            ("baton_sever=debug", "baton_sever=debug"),
            ("baton_server::net=", "baton_server::net="),
            ("info=debug", "info=debug"),
            ("baton[", "baton["),
            ("=debug", "=debug"),
            ("\u{fffd}", "\u{fffd}"),
            ("a b=info\n", "a b=info"),
        ] {
            let why = filter.parse::<LogFilter>().unwrap_err();
            assert!(why.contains(&format!("{named:?}")), "{filter:?}: {why}");
            assert!(why.contains("info,baton_server::net=debug"), "{why}");
        }
    }
}
