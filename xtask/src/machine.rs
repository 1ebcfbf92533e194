//! The machine that measurements were taken on, as a table's caption needs it, and what it allows
//! by itself: synced writes, round trips on loopback, copies in memory.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::table::show;
use crate::{Result, command, root};

/// Bytes of a request of 100 bytes of data, and of the log's record of it, as servers have them.
pub(crate) const MESSAGE_BYTES: usize = 192;
pub(crate) const RECORD_BYTES: usize = 256;
/// Bytes of a file that is written before it is measured, so that no write makes it longer.
const FILE_BYTES: usize = 4 << 20;
/// More than a processor's caches hold.
const COPIED_BYTES: usize = 128 << 20;
/// Time for which each limit is measured.
const WINDOW: Duration = Duration::from_millis(400);

/// Cores, processor and kernel on one line.
pub(crate) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, model)| model.trim())
        })
        .unwrap_or(std::env::consts::ARCH);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cores} cores, {model}, {} {}",
        std::env::consts::OS,
        kernel.trim()
    )
}

/// A file as a log has it: long enough already, written and synced from the front.
pub(crate) struct LogFile {
    file: File,
    at: u64,
}

impl LogFile {
    pub(crate) fn create(folder: &Path, name: &str) -> Result<Self> {
        let file = File::create(folder.join(name))?;
        file.write_all_at(&vec![0; FILE_BYTES], 0)?;
        file.sync_all()?;
        Ok(Self { file, at: 0 })
    }

    pub(crate) fn append(&mut self) -> Result<()> {
        self.file.write_all_at(&[7; RECORD_BYTES], self.at)?;
        self.file.sync_data()?;
        self.at = (self.at + RECORD_BYTES as u64) % (FILE_BYTES - RECORD_BYTES) as u64;
        Ok(())
    }
}

/// Both ends of a connection on loopback.
pub(crate) fn connection() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    for end in [&near, &far] {
        end.set_nodelay(true)?;
    }
    Ok((near, far))
}

/// Answers each message until its sender closes, after `work`.
pub(crate) fn serve(mut socket: TcpStream, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let mut message = [0; MESSAGE_BYTES];
    while socket.read_exact(&mut message).is_ok() {
        work()?;
        socket.write_all(&message)?;
    }
    Ok(())
}

/// Runs `step` again and again; the time of one.
fn time_of(mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    let (begun, mut steps) = (Instant::now(), 0.0);
    while begun.elapsed() < WINDOW {
        step()?;
        steps += 1.0;
    }
    Ok(begun.elapsed().as_secs_f64() / steps)
}

/// Says what a figure is from, on two lines: the command and the commit; the machine, its load and
/// its limits with files in `folder`. To be asked before the machine is loaded.
pub(crate) fn run(folder: &Path) -> Result<String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short=8", "HEAD"]);
    let commit = command::output(git.current_dir(root()))?;
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    let mut log = LogFile::create(folder, "limit")?;
    let sync = time_of(|| log.append())?;
    let (mut near, far) = connection()?;
    let round_trip = thread::scope(|scope| {
        scope.spawn(|| serve(far, || Ok(())).map_err(|error| error.to_string()));
        let time = time_of(|| {
            near.write_all(&[1; MESSAGE_BYTES])?;
            Ok(near.read_exact(&mut [0; MESSAGE_BYTES])?)
        });
        drop(near);
        time
    })?;
    let (from, mut to) = (vec![1_u8; COPIED_BYTES], vec![0_u8; COPIED_BYTES]);
    let copy = time_of(|| {
        to.copy_from_slice(&from);
        std::hint::black_box(&mut to);
        Ok(())
    })?;
    Ok(format!(
        "cargo xtask {} at {}, load {load}\n{}; limits: fdatasync {} µs, round trip on loopback {} µs, memory {} GB/s",
        arguments.join(" "),
        commit.trim(),
        describe(),
        show(sync * 1e6),
        show(round_trip * 1e6),
        show(COPIED_BYTES as f64 / copy / 1e9)
    ))
}
