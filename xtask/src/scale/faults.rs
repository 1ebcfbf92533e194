//! Faults beside many sessions: a snapshot, clients that never read, `kill -9`, a full disk. It is
//! an error if a session is lost or a client that never reads is not closed; times are only shown.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use baton_proto::{AddWatchMode, CreateMode, Request};
use baton_testkit::{ServerOptions, Target, free_addr, inspect};
use tempfile::TempDir;

use super::{AT_ONCE, Args, Client, Clients, SESSION, WATCHED};
use super::{come_back, create, foreground, memory, new_node, ping_until, set};
use crate::process::{Server, build_baton, succeed, work_dir};
use crate::table::{latencies, markdown};
use crate::{Result, http, machine};

/// Identity that may ask for a snapshot: `super` with the password `admin`.
const SUPERUSER: &str = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";
/// Memory that such a client may cost: twice what the server keeps for it.
const SILENT_BYTES: f64 = (32 << 20) as f64;
/// Time for which the disk is full: longer than the sessions' timeout.
const FULL_FOR: Duration = SESSION.saturating_add(Duration::from_secs(5));

/// Time that a snapshot may take.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(120);

/// A server with many sessions and znodes, and a client that works.
struct Stage {
    server: Server,
    http: SocketAddr,
    clients: Clients,
    sessions: Vec<Client>,
    foreground: Client,
}

impl Stage {
    fn start(baton: &Path, folder: &Path, sessions: usize, nodes: usize) -> Result<Self> {
        let http = free_addr()?;
        let superuser = format!("--super-digest={SUPERUSER}");
        let options = ServerOptions {
            baton_args: vec![format!("--http={http}"), superuser],
            ..ServerOptions::default()
        };
        let server = Server::start_with(Target::Baton, baton, folder, options)?;
        let clients = Clients::of(&server.addr())?;
        let mut writer = clients.one()?;
        for path in [WATCHED, "/foreground", &long_path()] {
            create(&mut writer, path, CreateMode::Persistent)?;
        }
        for first in (0..nodes).step_by(AT_ONCE) {
            let some = first..nodes.min(first + AT_ONCE);
            for number in some.clone() {
                let path = format!("{WATCHED}/{number:07}");
                writer.send(1, &new_node(&path, CreateMode::Persistent))?;
            }
            answered(&mut writer, some.len())?;
        }
        Ok(Self {
            sessions: clients.open(sessions, &[])?,
            foreground: clients.one()?,
            server,
            http,
            clients,
        })
    }

    /// Does this while each session pings and one client reads, and writes once in `one_write_in`
    /// requests. Returns the latencies of that client too.
    fn beside<T>(
        &mut self,
        one_write_in: usize,
        act: impl FnOnce(&Server, &Clients) -> Result<T>,
    ) -> Result<(T, String)> {
        let is_over = AtomicBool::new(false);
        let (sessions, first) = (&mut self.sessions, &mut self.foreground);
        std::thread::scope(|scope| {
            let pings = scope.spawn(|| {
                let pinged = ping_until(sessions, || is_over.load(Relaxed));
                pinged.map_err(|error| format!("a session was disconnected: {error}"))
            });
            let times = scope.spawn(|| {
                let times = foreground(first, one_write_in, |_| is_over.load(Relaxed));
                times.map_err(|error| format!("the client beside: {error}"))
            });
            let outcome = act(&self.server, &self.clients);
            is_over.store(true, Relaxed);
            let (pinged, times) = (pings.join(), times.join());
            pinged.map_err(|_| "the thread of the pings has panicked")??;
            let times = times.map_err(|_| "the thread of the requests has panicked")??;
            let writes = times.iter().skip(one_write_in - 1).step_by(one_write_in);
            let writes = latencies(writes.copied().collect());
            let text = format!("all: {}; writes: {writes}", latencies(times));
            Ok((outcome?, text))
        })
    }

    /// Latencies while nothing else happens.
    fn undisturbed(&mut self, seconds: u64) -> Result<String> {
        let ((), latencies) = self.beside(10, |_, _| {
            sleep(Duration::from_secs(seconds));
            Ok(())
        })?;
        Ok(latencies)
    }

    /// A client sends `times` such requests and never reads, while others change what it may watch.
    /// Its connection has to end, and the server's memory to stay bounded.
    fn never_reads(&mut self, at_rest: f64, request: &Request<'_>, times: usize) -> Result<String> {
        let path = long_path();
        let (text, latencies) = self.beside(10, |server, clients| {
            let mut writer = clients.one()?;
            let connections = clients.metric("num_alive_connections")?;
            let mut silent = clients.one()?;
            (0..times).try_for_each(|_| silent.send(1, request))?;
            let (begun, mut most) = (Instant::now(), 0.0);
            while clients.metric("num_alive_connections")? > connections {
                if begun.elapsed() > 3 * SESSION {
                    return Err("a client that never reads was not closed".into());
                }
                // More often than metrics are asked for, which cost much with many sessions.
                for _ in 0..16 {
                    if matches!(request, Request::AddWatch { .. }) {
                        (0..AT_ONCE).try_for_each(|_| writer.send(1, &set(&path, &[])))?;
                        answered(&mut writer, AT_ONCE)?;
                    }
                    most = f64::max(most, memory(server)? - at_rest);
                    sleep(Duration::from_millis(20));
                }
            }
            let took = begun.elapsed().as_secs_f64();
            let more = most / 1e6;
            let text = format!("closed after {took:.1} s, {more:.1} MB more at most");
            if most > SILENT_BYTES {
                return Err(format!("a client that never reads: {text}").into());
            }
            Ok(text)
        })?;
        Ok(format!("{text}; {latencies}"))
    }

    /// Fails if a session does not answer a read.
    fn all_answer(&mut self) -> Result<String> {
        let read = Request::Exists {
            path: WATCHED,
            watch: false,
        };
        let sessions = self.sessions.iter_mut();
        match sessions.filter_map(|it| it.call(&read).err()).count() {
            0 => Ok(format!("{} sessions answer, 0 lost", self.sessions.len())),
            lost => Err(format!("{lost} sessions are lost").into()),
        }
    }
}

impl Clients {
    /// A value of `mntr` of the first server.
    fn metric(&self, name: &str) -> Result<u64> {
        let server = *self.to.first().ok_or("no server")?;
        let value = self.runtime.block_on(inspect::metric(server, name))?;
        Ok(value.ok_or_else(|| format!("no {name}"))?)
    }
}

/// A path that makes events large.
fn long_path() -> String {
    format!("/{}", "x".repeat(1_000))
}

/// Waits for the answers to this many requests, which must not be errors.
fn answered(client: &mut Client, count: usize) -> Result<()> {
    (0..count).try_for_each(|_| match client.receive()?.1 {
        0 => Ok(()),
        code => Err(format!("a write: error {code}").into()),
    })
}

/// A small file system, which ends with its owner.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount(image: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        File::create(image)?.set_len(1 << 30)?;
        succeed(Command::new("mkfs.ext4").args(["-q"]).arg(image))?;
        let mut mount = Command::new("mount");
        succeed(mount.args(["-o", "loop"]).arg(image).arg(folder.path()))?;
        Ok(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = succeed(Command::new("umount").arg(self.0.path()));
    }
}

/// Fills the disk below a server for longer than its sessions' timeout, then makes room.
fn full_disk(
    baton: &Path,
    disk: &Path,
    args: &Args,
    row: &mut impl FnMut(&str, String),
) -> Result<()> {
    let mut stage = Stage::start(baton, disk, args.sessions, args.nodes / 10)?;
    let filler = disk.join("filler");
    let ((mut writer, sent), reads) = stage.beside(usize::MAX, |_, clients| {
        let mut writer = clients.one()?;
        let mut file = File::create(&filler)?;
        while file.write_all(&[1; 4096]).is_ok() {}
        let mut sent = 0;
        while clients.metric("baton_disk_full")? == 0 {
            writer.send(1, &set("/foreground", &[7; 100_000]))?;
            sent += 1;
        }
        sleep(FULL_FOR);
        Ok((writer, sent))
    })?;
    let seconds = FULL_FOR.as_secs();
    row(
        &format!("reads while the disk is full for {seconds} s"),
        reads,
    );
    fs::remove_file(&filler)?;
    let begun = Instant::now();
    answered(&mut writer, sent)?;
    let text = format!("{sent} writes answered after {:.1?}", begun.elapsed());
    row("room is made", text);
    row("then", stage.undisturbed(args.seconds)?);
    row("all sessions after the full disk", stage.all_answer()?);
    Ok(())
}

/// Runs all of them, one after another.
pub(super) fn run(args: &Args) -> Result<()> {
    let (dir, baton) = (work_dir(args.dir.as_deref())?, build_baton()?);
    let mut rows = Vec::new();
    let mut row = |what: &str, value: String| {
        eprintln!("{what}: {value}");
        rows.push(vec![what.to_owned(), value]);
    };
    let mut stage = Stage::start(&baton, dir.path(), args.sessions, args.nodes)?;
    row("before a snapshot", stage.undisturbed(args.seconds)?);
    let address = stage.http;
    let (took, during) = stage.beside(10, |_, _| {
        let begun = Instant::now();
        let path = "/commands/snapshot?streaming=false";
        let who = "Authorization: digest super:admin\r\n";
        let answer = http::get(address, path, who, SNAPSHOT_TIMEOUT)?;
        answer
            .contains(" 200 OK")
            .then(|| begun.elapsed())
            .ok_or(answer.into())
    })?;
    row(&format!("while a snapshot is written ({took:.1?})"), during);
    row("after it", stage.undisturbed(args.seconds)?);
    let at_rest = memory(&stage.server)?;
    let watch = Request::AddWatch {
        path: &long_path(),
        mode: AddWatchMode::Persistent.code(),
    };
    row(
        "a watcher that never reads",
        stage.never_reads(at_rest, &watch, 1)?,
    );
    let (path, watch) = (WATCHED, false);
    let lists = stage.never_reads(at_rest, &Request::GetChildren { path, watch }, 1_000)?;
    row("a client that lists all znodes and never reads", lists);
    row("all sessions after them", stage.all_answer()?);
    let sessions = std::mem::take(&mut stage.sessions);
    let (back, lost, text) = come_back(&mut stage.server, &stage.clients, sessions)?;
    row("kill -9", text);
    if lost > 0 {
        return Err(format!("{lost} sessions are lost after kill -9").into());
    }
    drop((back, stage));
    match SmallDisk::mount(&dir.path().join("disk")) {
        Ok(disk) => full_disk(&baton, disk.0.path(), args, &mut row)?,
        Err(error) => row("a full disk", format!("NOT MEASURED: {error}")),
    }
    println!("{}", markdown(&["fault", "measured"], &rows));
    println!("{}", machine::describe());
    Ok(())
}
