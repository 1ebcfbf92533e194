//! Project tasks, as `cargo xtask TASK`: what a contributor runs and a user does not. Nothing here
//! is needed to build or to test.
//!
//! | module | owns |
//! |---|---|
//! | `bench`, `peers_break`, `lease_cuts`, `interop`, `diff` | Baton beside other libraries |
//! | `holder_deaths` | the time from a holder's death to the next grant |
//! | `instructions` | the processor's instructions that a request takes |
//! | `agent_soak` | memory and processor time of many guards of one agent |
//! | `ensemble` | three servers that are killed, paused, cut off and restarted under load |
//! | `scale` | many sessions and watches on one server |
//! | `mutants`, `flakes`, `hazards` | tasks that check the tests |
//! | `console_check` | the console's page in a headless browser |
//! | `book` | the pages as a book with a search |
//! | `release/` | all files of a release, each checked by installing it |
//! | `lines` | the size of the crates and of the pages |
//! | `fixture` | a user's crate: examples and snippets with the dependencies of README.md |
//! | `peer/` | processes of other libraries, and who of them held when |
//! | `secure` | servers with TLS and identities, and credentials of their clients |
//! | `load_generator` | loads for the benchmarks, and what they measure |
//! | `go_peers` | etcd, Redis and the program that measures them |
//! | `process` | servers and other children, ended by their process id |
//! | `java` | the Java peers and their jars |
//! | `figure` | measured series, kept and drawn |
//! | `files`, `table`, `machine`, `executables`, `command`, `http` | what the tasks share |

mod agent_soak;
mod bench;
mod book;
mod command;
mod console_check;
mod diff;
mod ensemble;
mod executables;
mod figure;
mod files;
mod fixture;
mod flakes;
mod go_peers;
mod hazards;
mod holder_deaths;
mod http;
mod instructions;
mod interop;
mod java;
mod lease_cuts;
mod lines;
mod load_generator;
mod machine;
mod mutants;
mod peer;
mod peers_break;
mod process;
mod release;
mod scale;
mod secure;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Result of a task: its error is shown on one line.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Project tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    /// Source of the jars of the tasks that run Java peers.
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "SOURCE",
        default_value = "debian"
    )]
    java: java::Source,
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    AgentSoak(agent_soak::Args),
    Bench(bench::Args),
    Book(book::Args),
    ConsoleCheck(console_check::Args),
    Diff(diff::Args),
    Ensemble(ensemble::Args),
    Fixture(fixture::Args),
    Flakes(flakes::Args),
    Hazards(hazards::Args),
    HolderDeaths(holder_deaths::Args),
    Instructions(instructions::Args),
    Interop(interop::Args),
    LeaseCuts(lease_cuts::Args),
    Lines(lines::Args),
    Mutants(mutants::Args),
    PeersBreak(peers_break::Args),
    Pods(ensemble::pods::Args),
    Release(release::Args),
    Scale(scale::Args),
    Upgrade(ensemble::upgrade::Args),
    #[command(hide = true)]
    Member(peer::member::Member),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match java::again_with(cli.java) {
        Ok(None) => {}
        Ok(Some(status)) if status.success() => return ExitCode::SUCCESS,
        Ok(Some(_)) => return ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            return ExitCode::FAILURE;
        }
    }
    let result = match cli.task {
        Task::AgentSoak(args) => agent_soak::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Book(args) => book::run(&args),
        Task::ConsoleCheck(args) => console_check::run(&args),
        Task::Diff(args) => diff::run(&args),
        Task::Ensemble(args) => ensemble::run(&args),
        Task::Fixture(args) => fixture::run(&args),
        Task::Flakes(args) => flakes::run(&args),
        Task::Hazards(args) => hazards::run(&args),
        Task::HolderDeaths(args) => holder_deaths::run(&args),
        Task::Instructions(args) => instructions::run(&args),
        Task::Interop(args) => interop::run(&args),
        Task::LeaseCuts(args) => lease_cuts::run(&args),
        Task::Lines(args) => lines::run(&args),
        Task::Mutants(args) => mutants::run(&args),
        Task::PeersBreak(args) => peers_break::run(&args),
        Task::Pods(args) => ensemble::pods::run(&args),
        Task::Release(args) => release::run(&args),
        Task::Scale(args) => scale::run(&args),
        Task::Upgrade(args) => ensemble::upgrade::run(&args),
        Task::Member(member) => peer::member::take_part(member),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root.
fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}
