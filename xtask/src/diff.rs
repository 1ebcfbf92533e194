//! `cargo xtask diff`: random programs on Baton and on Apache ZooKeeper; the first differences, cut
//! down, as transcripts.

use std::time::Instant;

use baton_testkit::differential::{Differences, Generator, Oracle};

use crate::Result;

/// Number of lines shown of a difference that cannot be cut down.
const END_LINES: usize = 40;

/// Compare Baton's answers with Apache ZooKeeper's, operation by operation.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Operations in all.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    ops: usize,
    /// Seed of the programs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Servers on each side: one, or this number that are an ensemble.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=7))]
    servers: u8,
    /// Sessions in each program, spread over the servers.
    #[arg(long, value_name = "N", default_value_t = 3)]
    sessions: usize,
    /// Reach both sides with TLS, each session with a certificate of its own or none, and have ACLs
    /// name these.
    #[arg(long)]
    tls: bool,
    /// Operations in each program.
    #[arg(long, value_name = "N", default_value_t = 250)]
    length: usize,
    /// Show a difference that is kept on purpose, by its name in differences.txt.
    #[arg(long, value_name = "NAME")]
    compare: Vec<String>,
    /// Stop after this number of differences.
    #[arg(long, value_name = "N", default_value_t = 3)]
    findings: usize,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(compare(args))
}

async fn compare(args: &Args) -> Result<()> {
    let mut differences = Differences::meant();
    for name in &args.compare {
        differences.compare(name)?;
    }
    let length = args.length.max(1);
    let servers = usize::from(args.servers);
    let start = async || match args.tls {
        true => Oracle::start_with_tls(servers, differences.clone()).await,
        false => Oracle::start_several(servers, differences.clone()).await,
    };
    let mut generator = Generator::new(args.seed, args.sessions, differences.clone());
    if servers > 1 {
        generator = generator.for_ensembles();
    }
    if args.tls {
        generator = generator.for_certificates();
    }
    let mut oracle = start().await?;
    let begin = Instant::now();
    let (mut done, mut programs, mut found) = (0, 0_u64, 0);
    let mut once = 0;
    while done < args.ops && found < args.findings {
        let program = generator.program(length);
        done += program.len();
        programs += 1;
        let Some(first) = oracle.compare(&program).await? else {
            if programs % 100 == 0 {
                eprintln!("{done} operations, {:.0} s", begin.elapsed().as_secs_f64());
            }
            continue;
        };
        // What came before may have left the servers unlike each other.
        oracle.stop().await;
        oracle = start().await?;
        match oracle.shrink(program).await? {
            Some((_, difference)) => {
                found += 1;
                println!(
                    "difference {found}, seed {}, program {programs}, {} acts:\n{}",
                    args.seed, difference.acts, difference.transcript
                );
            }
            None => {
                once += 1;
                let lines: Vec<_> = first.transcript.lines().collect();
                let end = lines.len().saturating_sub(END_LINES);
                println!(
                    "seed {}, program {programs}: a difference that did not come again; the end of it:\n{}\n",
                    args.seed,
                    lines.get(end..).unwrap_or_default().join("\n")
                );
            }
        }
        oracle.stop().await;
        oracle = start().await?;
    }
    oracle.stop().await;
    println!(
        "{done} operations in {programs} programs of {} sessions on {servers} servers each{}, {:.0} s: {found} differences, {once} that did not come again",
        args.sessions,
        if args.tls { " with TLS" } else { "" },
        begin.elapsed().as_secs_f64()
    );
    if found + once > 0 {
        return Err("Baton and Apache ZooKeeper differ; see the transcripts".into());
    }
    Ok(())
}
