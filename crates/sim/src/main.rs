//! The simulator's command: explores scenarios, or plays one plan and prints its transcript.

use std::process::ExitCode;

use baton_sim::servers::{self, MARKS, SeededBug, ServersSettings};
use baton_sim::{Effort, Plan, explore, plans_that_reach, replay, scenario};
use clap::{Parser, Subcommand};

/// Number of plans that `--find` prints.
const FOUND: usize = 10;

/// Runs recipes under simulated faults; the same arguments give the same runs.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The scenario to play; all of them without it.
    #[arg(long)]
    scenario: Option<String>,
    /// Runs this one plan, as a failure has printed it, and prints the transcript.
    #[arg(long, requires = "scenario")]
    plan: Option<Plan>,
    /// Prints plans that come to this mark instead of exploring.
    #[arg(
        long,
        value_name = "MARK",
        requires = "scenario",
        conflicts_with = "plan"
    )]
    find: Option<String>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The most runs per seed with one fault each.
    #[arg(long, default_value_t = usize::MAX)]
    runs: usize,
    /// Runs per seed with two faults each.
    #[arg(long, default_value_t = 200)]
    pairs: usize,
    /// Prints the scenarios' names.
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs an ensemble of whole servers with whole clients, under faults that each seed draws.
    Servers(ServersArgs),
}

#[derive(Debug, Parser)]
struct ServersArgs {
    /// The scenario to play: `history`, which is plain operations, `writes`, which strikes logs,
    /// elections and members, one of the recipes, or `all`.
    #[arg(long, default_value = "history")]
    scenario: String,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Seeds this known bug in each run, and stops at the run that finds it.
    #[arg(long)]
    bug: Option<SeededBug>,
    /// Prints how many runs came to each rare situation, and the first seed that did.
    #[arg(long)]
    marks: bool,
    /// Prints the transcript of the first seed, also when it passes.
    #[arg(long)]
    transcript: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match &args.command {
        Some(Command::Servers(args)) => return play_servers(args),
        None => {}
    }
    let mut chosen = scenario::all();
    if let Some(name) = &args.scenario {
        chosen.retain(|scenario| scenario.name == name);
        if chosen.is_empty() {
            eprintln!("baton-sim: there is no scenario {name:?}; --list prints their names");
            return ExitCode::from(2);
        }
    }
    if args.list {
        for scenario in &chosen {
            println!("{}", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    let mut good = true;
    for scenario in &chosen {
        if let Some(plan) = &args.plan {
            let report = replay(scenario, plan);
            for line in &report.transcript {
                println!("{line}");
            }
            for failure in &report.failures {
                println!("FAILED: {failure}");
            }
            good &= report.failures.is_empty();
            continue;
        }
        if let Some(mark) = &args.find {
            let found = plans_that_reach(scenario, mark, args.first_seed, FOUND);
            for plan in &found {
                println!("{plan}");
            }
            good &= !found.is_empty();
            continue;
        }
        let effort = Effort {
            first_seed: args.first_seed,
            seeds: args.seeds,
            runs: args.runs,
            pairs: args.pairs,
        };
        match explore(scenario, &effort) {
            Ok(summary) => println!(
                "{}: {} runs good, {} boundaries, {} polls, at most {} creates, {:.0} s of virtual time",
                scenario.name,
                summary.runs,
                summary.frames,
                summary.polls,
                summary.creates,
                summary.elapsed.as_secs_f64(),
            ),
            Err(failure) => {
                print!("{failure}");
                good = false;
            }
        }
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn play_servers(args: &ServersArgs) -> ExitCode {
    let mut chosen = scenario::all();
    chosen.splice(0..0, [scenario::history(), scenario::writes()]);
    if args.scenario != "all" {
        chosen.retain(|scenario| scenario.name == args.scenario);
    }
    if chosen.is_empty() {
        eprintln!(
            "baton-sim: there is no scenario {:?}; --list prints the names of the recipes'",
            args.scenario
        );
        return ExitCode::from(2);
    }
    let mut good = true;
    for scenario in chosen {
        if args.transcript {
            let report = servers::run(&ServersSettings {
                scenario,
                seed: args.first_seed,
                bug: args.bug,
                is_recording: true,
            });
            for line in &report.transcript {
                println!("{line}");
            }
            good &= report.failures.is_empty();
            continue;
        }
        match servers::explore(&scenario, args.first_seed, args.seeds, args.bug) {
            Ok(summary) => {
                println!(
                    "{} on several servers: {} runs good, {} entries, {:.1} h of virtual time",
                    scenario.name,
                    summary.runs,
                    summary.entries,
                    summary.elapsed.as_secs_f64() / 3600.0,
                );
                for mark in MARKS.iter().filter(|_| args.marks) {
                    match summary.marks.get(mark) {
                        Some((runs, seed)) => println!("{runs:>8} {mark}, first in seed {seed}"),
                        None => println!("{:>8} {mark}", 0),
                    }
                }
            }
            Err(failure) => {
                print!("{failure}");
                good = false;
            }
        }
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
