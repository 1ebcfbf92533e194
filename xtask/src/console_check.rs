//! `cargo xtask console-check`: the console's page in a browser.
//!
//! A server with a scene, `baton console`, and a headless Chromium that opens every view in light
//! and dark: no error in the browser's console, no markup made of names, each control with a name,
//! enough contrast, and every view reached by keyboard. Needs Debian's `chromium` and Node 20. The
//! script that drives the browser is `xtask/console/check.mjs`, which uses no package.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::{Owned, build_baton, succeed};
use crate::{Result, command, root};

/// Open every view of the console in a headless Chromium, and check it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the pictures here.
    #[arg(long, value_name = "DIR", default_value = "target/console")]
    pictures: PathBuf,
    /// A thousand locks with ten thousand waiters, and two hundred queues.
    #[arg(long)]
    large: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let baton = build_baton()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let package = ["--package", "baton-locks-console", "--example", "scene"];
    succeed(
        Command::new(cargo)
            .args(["build", "--quiet"])
            .args(package)
            .current_dir(root()),
    )?;
    let scene = command::target_dir()?.join("debug/examples/scene");
    let mut serve = Command::new(&baton);
    serve.args(["serve", "--ephemeral", "--listen", "127.0.0.1:0", "--json"]);
    serve.args(["--four-letter-words", "*"]);
    let (_server, said) = first_line(&mut serve)?;
    let said: Value = serde_json::from_str(&said)?;
    let address = said["serving"][0].as_str().ok_or("no address")?.to_owned();
    let mut scene = Command::new(scene);
    scene.arg(&address).args(args.large.then_some("large"));
    let (_scene, _) = first_line(&mut scene)?;
    let mut console = Command::new(&baton);
    console.args(["console", "--servers", &address, "--listen", "127.0.0.1:0"]);
    let (_console, said) = first_line(console.arg("--json"))?;
    let said: Value = serde_json::from_str(&said)?;
    let url = said["url"].as_str().ok_or("no address of the page")?;
    succeed(
        Command::new("node")
            .args(["--experimental-websocket", "--no-warnings"])
            .arg(root().join("xtask/console/check.mjs"))
            .arg(url)
            .arg(&args.pictures),
    )?;
    println!("pictures in {}", args.pictures.display());
    Ok(())
}

/// Starts a command; it, and the first line that it prints.
fn first_line(command: &mut Command) -> Result<(Owned, String)> {
    let mut child = Owned::start(command.stdout(Stdio::piped()))?;
    let out = child.0.stdout.take().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    Ok((child, line))
}
