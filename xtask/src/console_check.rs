//! `cargo xtask console-check`: the console's page in a browser.
//!
//! Three parts, each with a headless Chromium: every view of `baton console` on a small scene, by
//! keyboard, with the dialog of an action; the page of a server with a thousand locks, ten thousand
//! waiters, two hundred queues and names that attack; three servers that fail under the page. Views
//! are looked at in three windows, in light and dark. Nothing may be wrong with the browser's
//! console, names, labels, contrast or the reach of the keyboard, no text may lie on another or be
//! cut without a sign, axe may find nothing, and no name may become markup. Needs Debian's
//! `chromium` and Node 20; what is missing is named. axe is fetched from npm once; without it the
//! command says so at its end. A fourth part, `--part cost`, measures what a page costs the server;
//! it runs alone.

mod cost;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use self::cost::MeasuredServer;
use crate::process::{OwnedChild, build_baton, succeed};
use crate::{Result, command, root};

/// The rules of accessibility, a package of npm.
const AXE: &str = "axe-core@4.11.1";

/// Open every view of the console in a headless Chromium, and check it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the pictures here.
    #[arg(long, value_name = "DIR", default_value = "target/console")]
    pictures: PathBuf,
    /// One part alone.
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// One view of the small scene alone.
    #[arg(long, value_name = "VIEW")]
    view: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Every view on a small scene: the pictures of `docs/user/pictures`.
    Views,
    /// A server's page with a large scene, and names that attack.
    Large,
    /// Three servers that stand still or are killed.
    Outages,
    /// The cost of a page to the server that shows it; no browser takes part.
    Cost,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.part == Some(Part::Cost) {
        return Check::new(args)?.cost();
    }
    let missing = missing();
    if !missing.is_empty() {
        return Err(format!("this machine lacks {}", missing.join(" and ")).into());
    }
    let check = Check::new(args)?;
    let mut failed = Vec::new();
    for part in [Part::Views, Part::Large, Part::Outages] {
        if args.part.is_some_and(|only| only != part) {
            continue;
        }
        let outcome = match part {
            Part::Views => check.views(),
            Part::Large => check.large(),
            Part::Outages => check.outages(),
            Part::Cost => continue,
        };
        if let Err(error) = outcome {
            failed.push(format!("{part:?}: {error}"));
        }
    }
    println!("pictures in {}", args.pictures.display());
    if let Err(error) = &check.axe {
        println!("NOT CHECKED: the rules of {AXE}, which cannot be fetched: {error}");
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("; ").into()),
    }
}

/// Returns what the check needs and this machine has not.
fn missing() -> Vec<String> {
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
    let version = |program: &str| {
        let ran = Command::new(program).arg("--version").output().ok()?;
        ran.status.success().then_some(())?;
        Some(String::from_utf8_lossy(&ran.stdout).trim().to_owned())
    };
    let mut missing = Vec::new();
    if version(&chromium).is_none() {
        missing.push(format!(
            "{chromium} (Debian: apt-get install chromium; CHROMIUM names another)"
        ));
    }
    let node = version("node").unwrap_or_default();
    let major = node.trim_start_matches('v').split('.').next();
    if major.and_then(|major| major.parse().ok()).unwrap_or(0) < 20 {
        missing.push("node 20 or newer (Debian: apt-get install nodejs)".to_owned());
    }
    missing
}

struct Check<'a> {
    args: &'a Args,
    baton: PathBuf,
    scene: PathBuf,
    /// The script of axe.
    axe: Result<PathBuf>,
}

impl<'a> Check<'a> {
    fn new(args: &'a Args) -> Result<Self> {
        let baton = build_baton()?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let package = ["--package", "baton-locks-console", "--example", "scene"];
        succeed(
            Command::new(cargo)
                .args(["build", "--quiet"])
                .args(package)
                .current_dir(root()),
        )?;
        Ok(Self {
            args,
            baton,
            scene: command::target_dir()?.join("debug/examples/scene"),
            axe: axe(),
        })
    }

    /// A server alone, with its data in this folder or in memory; its addresses for clients and
    /// browsers.
    fn server(&self, folder: Option<&Path>) -> Result<(OwnedChild, String, String)> {
        let mut serve = Command::new(&self.baton);
        serve.args(["serve", "--json", "--four-letter-words", "*"]);
        match folder {
            Some(folder) => serve.arg("--data-dir").arg(folder),
            None => serve.arg("--ephemeral"),
        };
        serve.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        let (server, mut said) = start(&mut serve)?;
        let said = next(&mut said)?;
        let places = said["serving"].as_array().ok_or("no address")?;
        let place = places.iter().find(|place| {
            let place = place.as_str().unwrap_or_default();
            !place.starts_with("unix:")
        });
        let address = text(place.ok_or("no address")?)?;
        Ok((server, address, text(&said["http"])?))
    }

    /// The scene on these servers; it stands when this returns.
    fn scene(&self, servers: &str, size: Option<&str>) -> Result<OwnedChild> {
        let mut scene = Command::new(&self.scene);
        let (scene, mut said) = start(scene.arg(servers).args(size))?;
        let mut line = String::new();
        said.read_line(&mut line)?;
        match line.is_empty() {
            true => Err("the scene could not be made".into()),
            false => Ok(scene),
        }
    }

    /// `baton console`, and its link.
    fn console(&self, servers: &str) -> Result<(OwnedChild, String)> {
        let mut console = Command::new(&self.baton);
        console.args(["console", "--json", "--servers", servers]);
        let (console, mut said) = start(console.args(["--listen", "127.0.0.1:0"]))?;
        let link = text(&next(&mut said)?["url"])?;
        Ok((console, link))
    }

    fn views(&self) -> Result<()> {
        let (_server, address, http) = self.server(None)?;
        let _scene = self.scene(&address, None)?;
        let (_console, link) = self.console(&address)?;
        let own = format!("http://{http}/");
        self.browse(
            "views",
            &json!({"link": link, "own": own, "only": self.args.view}),
        )
    }

    fn large(&self) -> Result<()> {
        let (_server, address, http) = self.server(None)?;
        let _scene = self.scene(&address, Some("large"))?;
        self.browse("large", &json!({"link": format!("http://{http}/")}))
    }

    fn outages(&self) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut dev = Command::new(&self.baton);
        dev.args(["dev", "--servers", "3", "--restart", "--json"]);
        let (_dev, mut said) = start(dev.env("TMPDIR", folder.path()))?;
        let servers = text(&next(&mut said)?["servers"])?;
        let each = (0..3)
            .map(|_| next(&mut said))
            .collect::<Result<Vec<_>>>()?;
        let _scene = self.scene(&servers, None)?;
        let (_console, link) = self.console(&servers)?;
        self.browse("outages", &json!({"servers": each, "console": link}))
    }

    fn cost(&self) -> Result<()> {
        let folder = tempfile::Builder::new().tempdir_in(command::target_dir()?)?;
        let (server, address, http) = self.server(Some(folder.path()))?;
        let _scene = self.scene(&address, Some("large"))?;
        cost::print(&MeasuredServer {
            address: &address,
            http: &http,
            pid: server.pid(),
        })
    }

    /// Runs one part of the check in the browser.
    fn browse(&self, part: &str, given: &Value) -> Result<()> {
        let axe = self.axe.as_ref().ok();
        succeed(
            Command::new("node")
                .envs(axe.map(|axe| ("AXE", axe)))
                .args(["--experimental-websocket", "--no-warnings"])
                .arg(root().join("xtask/console/check.mjs"))
                .args([part.as_ref(), self.args.pictures.as_os_str()])
                .arg(given.to_string()),
        )
        .map_err(|_| "see what is printed above".into())
    }
}

/// Fetches axe, unless an earlier run has.
fn axe() -> Result<PathBuf> {
    let folder = command::target_dir()?.join("console-axe");
    let script = folder.join("node_modules").join("axe-core/axe.min.js");
    if !script.exists() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--ignore-scripts", "--no-save"]);
        succeed(npm.arg("--prefix").arg(&folder).arg(AXE))?;
    }
    Ok(script)
}

/// Starts a command; it, and what it prints.
fn start(command: &mut Command) -> Result<(OwnedChild, BufReader<ChildStdout>)> {
    let mut child = OwnedChild::start(command.stdout(Stdio::piped()))?;
    let out = child.0.stdout.take().ok_or("no output")?;
    Ok((child, BufReader::new(out)))
}

/// The next line, which is JSON.
fn next(said: &mut BufReader<ChildStdout>) -> Result<Value> {
    let mut line = String::new();
    said.read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|error| format!("{line:?}: {error}").into())
}

fn text(value: &Value) -> Result<String> {
    let text = value
        .as_str()
        .ok_or("a line of the command lacks a field")?;
    Ok(text.to_owned())
}
