//! Cost of a page that is open on a server: at rest, and of its throughput under full load.
//!
//! Owns how that is measured. The page is a connection that reads all events, as a browser's tab
//! does; the browser's own work is left out, since it runs elsewhere.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;
use crate::command::output;
use crate::load_generator::generator;
use crate::process::cpu_seconds;

/// Pairs of measurements under load, one with a page and one without.
const ROUNDS: usize = 7;
const LOADED_SECONDS: u32 = 4;
/// Time that a server at rest is measured.
const REST: Duration = Duration::from_secs(40);
/// A page that has been opened reads the whole tree first.
const SETTLING: Duration = Duration::from_secs(8);

/// A server to measure.
pub(super) struct MeasuredServer<'a> {
    pub(super) address: &'a str,
    pub(super) http: &'a str,
    pub(super) pid: u32,
}

/// Measures, and prints two lines.
pub(super) fn print(measured: &MeasuredServer<'_>) -> Result<()> {
    let without = at_rest(measured)?;
    let page = Page::open(measured.http)?;
    thread::sleep(SETTLING);
    let with = at_rest(measured)?;
    let first = page.close()?;
    println!(
        "at rest: {:.2} % of a core without a page, {:.2} % with one; {first} bytes to the page in {} s",
        without * 100.0,
        with * 100.0,
        (SETTLING + REST).as_secs()
    );
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        // The one that is first has no advantage over all rounds.
        for turn in 0..2 {
            let is_open = (round + turn) % 2 == 1;
            let page = is_open.then(|| Page::open(measured.http)).transpose()?;
            if is_open {
                thread::sleep(SETTLING);
            }
            rates[usize::from(is_open)].push(under_load(measured)?);
            if let Some(page) = page {
                page.close()?;
            }
        }
    }
    let [without, with] = rates.map(|mut all| {
        all.sort_by(f64::total_cmp);
        (all[0], all[ROUNDS / 2], all[ROUNDS - 1])
    });
    let shown = |(least, median, most): (f64, f64, f64)| {
        format!("{median:.0} op/s ({least:.0} to {most:.0})")
    };
    println!(
        "set, 16x32, {ROUNDS} rounds of {LOADED_SECONDS} s each: {} without a page, {} with one: {:.3}",
        shown(without),
        shown(with),
        with.1 / without.1
    );
    Ok(())
}

/// The share of a core that the server takes while nothing changes.
fn at_rest(measured: &MeasuredServer<'_>) -> Result<f64> {
    let gone = "the server has ended";
    let before = cpu_seconds(measured.pid).ok_or(gone)?;
    let began = Instant::now();
    thread::sleep(REST);
    let after = cpu_seconds(measured.pid).ok_or(gone)?;
    Ok((after - before) / began.elapsed().as_secs_f64())
}

/// Operations a second.
fn under_load(measured: &MeasuredServer<'_>) -> Result<f64> {
    let mut bench = generator()?;
    bench.args(["set", "--servers", measured.address]);
    bench.args(["--connections", "16", "--in-flight", "32"]);
    bench.args(["--warm-up", "1", "--seconds"]);
    let report = output(bench.arg(LOADED_SECONDS.to_string()))?;
    let report: Value = serde_json::from_str(&report)?;
    let rate = report["ops_per_second"].as_f64();
    rate.ok_or_else(|| format!("no ops_per_second in {report}").into())
}

/// A page that is open.
struct Page {
    socket: TcpStream,
    reading: JoinHandle<u64>,
}

impl Page {
    fn open(http: &str) -> Result<Self> {
        let mut socket = TcpStream::connect(http)?;
        let request = format!(
            "GET /console/api/events HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n"
        );
        socket.write_all(request.as_bytes())?;
        let mut input = socket.try_clone()?;
        let reading = thread::spawn(move || {
            let mut bytes = 0;
            let mut part = [0; 64 << 10];
            while let Ok(read @ 1..) = input.read(&mut part) {
                bytes += read as u64;
            }
            bytes
        });
        Ok(Self { socket, reading })
    }

    /// Closes it; how many bytes it has got.
    fn close(self) -> Result<u64> {
        self.socket.shutdown(Shutdown::Both)?;
        let bytes = self.reading.join();
        bytes.map_err(|_| "the page's thread failed".into())
    }
}
