//! A pod of the chart as a process: its disk, its address, and what the controller does to it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use super::chart::{ADMIN_FOLDER, Chart, SETTINGS_FILE, TLS_FOLDER};
use crate::ensemble::load::PATIENCE;
use crate::process::OwnedChild;
use crate::{Result, command, http};

/// The chart's `terminationGracePeriodSeconds`.
const GRACE: Duration = Duration::from_secs(30);
/// Between two looks at a pod.
const LOOK: Duration = Duration::from_millis(100);
const HTTP_PORT: u16 = 8080;
/// `super:secret`.
const DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

/// Shared parts of all pods: the folder of the run, the name server, the secrets.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) dir: PathBuf,
    pub(super) has_tls: bool,
    pub(super) pods: Vec<Pod>,
    /// Addresses that were given, so that none is given twice.
    given: u8,
}

/// One server.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) id: usize,
    address: Ipv4Addr,
    disk: PathBuf,
    /// Disks that it has had.
    disks: usize,
    process: Option<OwnedChild>,
}

impl Cluster {
    /// A cluster without pods, with its secrets.
    pub(super) fn new(dir: &Path, has_tls: bool, baton: &Path, most: usize) -> Result<Self> {
        let cluster = Self {
            dir: dir.to_owned(),
            has_tls,
            pods: Vec::new(),
            given: 0,
        };
        fs::create_dir_all(cluster.admin())?;
        for (name, text) in [
            ("auth", "digest:super:secret\n"),
            ("http.token", "0123456789abcdef\n"),
        ] {
            let file = cluster.admin().join(name);
            fs::write(&file, text)?;
            // As the volume of a secret has it, for the user's group.
            fs::set_permissions(&file, fs::Permissions::from_mode(0o440))?;
        }
        if has_tls {
            cluster.make_certificate(baton, most)?;
        }
        Ok(cluster)
    }

    fn admin(&self) -> PathBuf {
        self.dir.join("admin")
    }

    pub(super) fn tls(&self) -> PathBuf {
        self.dir.join("tls")
    }

    /// One certificate for all servers, as the secret of the chart has it.
    fn make_certificate(&self, baton: &Path, most: usize) -> Result<()> {
        let made = self.dir.join("authority");
        let mut init = Command::new(baton);
        let hosts = (1..=most).map(Chart::host);
        command::output(init.args(["cert", "init"]).arg(&made).args(hosts))?;
        fs::create_dir_all(self.tls())?;
        for (from, to) in [
            ("server.pem", "tls.crt"),
            ("server.key", "tls.key"),
            ("ca.pem", "ca.crt"),
        ] {
            let to = self.tls().join(to);
            fs::copy(made.join(from), &to)?;
            fs::set_permissions(to, fs::Permissions::from_mode(0o440))?;
        }
        Ok(())
    }

    /// The file that all processes here read names from.
    pub(super) fn hosts(&self) -> PathBuf {
        self.dir.join("hosts")
    }

    /// The delayed answer of a cluster's name server.
    fn publish(&self) -> Result<()> {
        let own = self
            .pods
            .iter()
            .map(|pod| format!("{} {}\n", pod.address, Chart::host(pod.id)));
        let text: String = ["127.0.0.1 localhost\n".to_owned()]
            .into_iter()
            .chain(own)
            .collect();
        // In place: it is mounted over the system's.
        Ok(fs::write(self.hosts(), text)?)
    }

    fn next_address(&mut self) -> Ipv4Addr {
        self.given += 1;
        Ipv4Addr::new(127, 0, 1, self.given)
    }

    /// Makes a pod with a disk of its own; it does not run yet.
    pub(super) fn schedule(&mut self, id: usize) -> Result<()> {
        let address = self.next_address();
        let disk = self.dir.join(format!("disk-{id}-0"));
        fs::create_dir_all(&disk)?;
        fs::set_permissions(&disk, fs::Permissions::from_mode(0o700))?;
        self.pods.push(Pod {
            id,
            address,
            disk,
            disks: 1,
            process: None,
        });
        self.publish()
    }

    pub(super) fn pod(&mut self, id: usize) -> Result<&mut Pod> {
        let pod = self.pods.iter_mut().find(|pod| pod.id == id);
        pod.ok_or_else(|| format!("there is no pod {id}").into())
    }

    /// Moves a pod that does not run to another machine.
    pub(super) fn reschedule(&mut self, id: usize) -> Result<()> {
        let address = self.next_address();
        self.pod(id)?.address = address;
        self.publish()
    }

    /// Replaces the disk of a pod that does not run by an empty one.
    pub(super) fn replace_disk(&mut self, id: usize) -> Result<()> {
        let dir = self.dir.clone();
        let pod = self.pod(id)?;
        pod.disk = dir.join(format!("disk-{id}-{}", pod.disks));
        pod.disks += 1;
        fs::create_dir_all(&pod.disk)?;
        Ok(fs::set_permissions(
            &pod.disk,
            fs::Permissions::from_mode(0o700),
        )?)
    }

    /// The manifests' settings for this machine.
    fn local(&self, text: &str) -> String {
        text.replace(ADMIN_FOLDER, &self.admin().display().to_string())
            .replace(TLS_FOLDER, &self.tls().display().to_string())
    }

    /// Starts a pod's container with this image.
    pub(super) fn start(&mut self, id: usize, chart: Chart, image: &Path) -> Result<()> {
        let settings = self.local(&chart.settings()?);
        let file = self.dir.join(format!("server-{id}.toml"));
        let args = chart.server_args(id, DIGEST)?;
        let args: Vec<String> = args
            .iter()
            .map(|arg| arg.replace(SETTINGS_FILE, &file.display().to_string()))
            .collect();
        let log = self.dir.join(format!("server-{id}.log"));
        let log = File::options().create(true).append(true).open(log)?;
        let pod = self.pod(id)?;
        // Pods share this network, so that each has its own address only.
        fs::write(
            file,
            settings.replace("\"*:", &format!("\"{}:", pod.address)),
        )?;
        let mut server = Command::new(image);
        server
            .args(args)
            .env("BATON_DATA_DIR", &pod.disk)
            .stdout(log.try_clone()?)
            .stderr(log);
        pod.process = Some(OwnedChild::start(&mut server)?);
        Ok(())
    }

    /// Runs the command with arguments of a job's container.
    pub(super) fn run_job(&self, image: &Path, args: &[String]) -> Result<String> {
        let args = args.iter().map(|arg| self.local(arg));
        command::output(Command::new(image).args(args))
    }

    /// Waits until the readiness probe of a pod succeeds.
    pub(super) async fn await_ready(&self, id: usize) -> Result<()> {
        let pod = self.pods.iter().find(|pod| pod.id == id);
        let pod = pod.ok_or_else(|| format!("there is no pod {id}"))?;
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = pod.readiness();
            if answer.contains(" 200 ") {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("pod {id} is not ready: {answer}").into());
            }
            sleep(LOOK).await;
        }
    }

    /// The end of each server's log.
    pub(super) fn show_logs(&self) {
        for pod in &self.pods {
            let log = self.dir.join(format!("server-{}.log", pod.id));
            let log = fs::read_to_string(log).unwrap_or_default();
            eprintln!("pod {}:", pod.id);
            for line in log.lines().rev().take(15).collect::<Vec<_>>().iter().rev() {
                eprintln!("    {line}");
            }
        }
    }

    /// Stops all, and checks their disks.
    pub(super) async fn finish(mut self, baton: &Path) -> Result<()> {
        for pod in &mut self.pods {
            pod.delete().await?;
            let mut verify = Command::new(baton);
            command::output(verify.args(["wal", "verify"]).arg(&pod.disk))?;
        }
        Ok(())
    }
}

impl Pod {
    /// Ends it as a deletion does: asked, then killed after the grace period. Whether it ended by
    /// itself.
    pub(super) async fn delete(&mut self) -> Result<bool> {
        let Some(mut process) = self.process.take() else {
            return Ok(true);
        };
        let pid = i32::try_from(process.pid()).ok().and_then(Pid::from_raw);
        kill_process(pid.ok_or("no pid")?, Signal::TERM)?;
        let until = Instant::now() + GRACE;
        while process.0.try_wait()?.is_none() {
            if Instant::now() > until {
                process.kill();
                return Ok(false);
            }
            sleep(LOOK / 10).await;
        }
        Ok(true)
    }

    /// Ends it as the loss of its machine does.
    pub(super) fn kill(&mut self) {
        self.process = None;
    }

    /// The answer to the readiness probe.
    fn readiness(&self) -> String {
        let address = SocketAddrV4::new(self.address, HTTP_PORT);
        let answer = http::get(address, "/readyz", "", Duration::from_secs(2));
        answer.unwrap_or_else(|error| error.to_string())
    }
}
