//! Libraries that honour each other on one lock path, each cell tried with the libraries
//! themselves.
//!
//! Baton must wait behind a holder that it can be ordered with, and refuse every other with the
//! typed error (H13, H90). What the others do behind Baton is theirs to decide: it is only noted.

use std::time::Duration;

use baton::lock::LockError;
use baton::naming::Dialect;
use baton::tree::CreateMode;
use baton::{Client, Config, Mutex};
use tokio::runtime::Runtime;

use crate::peer::{Log, Peer, Spec};
use crate::{Result, table};

const DIALECTS: [Dialect; 5] = [
    Dialect::Curator,
    Dialect::CuratorLatch,
    Dialect::Kazoo,
    Dialect::WriteLock,
    Dialect::ElectionSupport,
];

/// The others: what tables call them, and how they are started.
const OTHERS: [(&str, &str); 6] = [
    ("Curator `InterProcessMutex`", "curator-mutex"),
    ("Curator `LeaderLatch`", "curator-latch"),
    ("kazoo `Lock`", "kazoo-lock"),
    ("zookeeper-recipes `WriteLock`", "zk-lock"),
    ("zookeeper-recipes `LeaderElectionSupport`", "zk-election"),
    // There is no Go here: a node with the name that it gives.
    ("go-zk `Lock` (its name)", "go-zk"),
];

const TIMEOUT: Duration = Duration::from_secs(10);
/// Long enough for a peer to take what it believes to be free.
const SETTLED: Duration = Duration::from_secs(3);
/// Ends a wait when the one before has gone, which may take its session's timeout.
const PATIENCE: Duration = Duration::from_secs(30);

/// The two tables; and the cells in which two held at once because Baton let it happen, which must
/// be none.
pub(super) fn run(runtime: &Runtime, servers: &str) -> Result<(String, Vec<String>)> {
    let client = runtime.block_on(Client::connect(
        Config::new(servers)?.session_timeout(TIMEOUT),
    ))?;
    let mut broken = Vec::new();
    let mut behind = Vec::new();
    let mut before = Vec::new();
    for (name, recipe) in OTHERS {
        behind.push(row(
            name,
            baton_behind(runtime, &client, servers, recipe)?,
            &mut broken,
        ));
        if recipe != "go-zk" {
            before.push(row(
                name,
                baton_before(runtime, &client, servers, recipe)?,
                &mut Vec::new(),
            ));
        }
    }
    let head = |corner: &str| -> Vec<String> {
        let dialects = DIALECTS.iter().map(|dialect| format!("Baton `{dialect}`"));
        [corner.to_owned()].into_iter().chain(dialects).collect()
    };
    let made = |corner: &str, rows: &[Vec<String>]| {
        let head = head(corner);
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        table::markdown(&head, rows)
    };
    let text = format!(
        "Baton comes while another holds:\n\n{}\nAnother comes while Baton holds, which is that other's to decide:\n\n{}",
        made("holder", &behind),
        made("newcomer", &before)
    );
    Ok((text, broken))
}

fn row(name: &str, cells: Vec<String>, broken: &mut Vec<String>) -> Vec<String> {
    for (cell, dialect) in cells.iter().zip(DIALECTS) {
        if cell.contains("both") {
            broken.push(format!("{dialect} behind {name}: both held"));
        }
    }
    [name.to_owned()].into_iter().chain(cells).collect()
}

/// Each dialect in turn asks for a lock that another library holds.
fn baton_behind(
    runtime: &Runtime,
    client: &Client,
    servers: &str,
    recipe: &str,
) -> Result<Vec<String>> {
    let path = format!("/matrix/behind-{recipe}");
    let log = Log::default();
    let mut holder = None;
    if recipe == "go-zk" {
        runtime.block_on(plant_go(client, &path))?;
    } else {
        runtime.block_on(ensure(client, &path))?;
        holder = Some(started(&log, servers, recipe, &path)?);
    }
    if let Some(holder) = &mut holder {
        holder.ask("acquire", "enter", PATIENCE)?;
    }
    let mut cells = Vec::new();
    for dialect in DIALECTS {
        runtime.block_on(alone(client, &path))?;
        let asked = Mutex::new(client, &path)?.dialect(dialect);
        let cell = match runtime.block_on(asked.try_acquire()) {
            Ok(None) => "waits".to_owned(),
            Ok(Some(_)) => "**both hold**".to_owned(),
            Err(LockError::Foreign { .. }) => "refuses".to_owned(),
            Err(error) => return Err(error.into()),
        };
        if cell == "waits"
            && let Some(holder) = &mut holder
        {
            holder.ask("release", "released", PATIENCE)?;
            let guard = runtime.block_on(asked.acquire_timeout(PATIENCE))?;
            runtime.block_on(guard.release())?;
            holder.ask("acquire", "enter", PATIENCE)?;
        }
        cells.push(cell);
    }
    Ok(cells)
}

/// Another library asks for a lock that Baton holds, under each dialect in turn.
fn baton_before(
    runtime: &Runtime,
    client: &Client,
    servers: &str,
    recipe: &str,
) -> Result<Vec<String>> {
    let mut cells = Vec::new();
    for dialect in DIALECTS {
        let path = format!("/matrix/before-{recipe}-{dialect}");
        let mutex = Mutex::new(client, &path)?.dialect(dialect);
        let guard = runtime.block_on(mutex.acquire())?;
        let log = Log::default();
        let mut other = started(&log, servers, recipe, &path)?;
        other.send("acquire")?;
        let cell = match other.hear("enter", SETTLED) {
            Ok(None) => {
                runtime.block_on(guard.release())?;
                match other.hear("enter", PATIENCE)? {
                    Some(_) => "waits",
                    None => "waits for ever",
                }
            }
            Ok(Some(_)) => "**both hold**",
            Err(_) => "fails",
        };
        cells.push(cell.to_owned());
    }
    Ok(cells)
}

fn started(log: &Log, servers: &str, recipe: &str, path: &str) -> Result<Peer> {
    let spec = Spec {
        servers,
        recipe,
        path,
        name: "peer",
        timeout: TIMEOUT,
    };
    Peer::start(log, &spec)
}

async fn ensure(client: &Client, path: &str) -> Result<()> {
    let session = client.session().await?;
    for path in ["/matrix", path] {
        match session.create(path, b"", CreateMode::Persistent).await {
            Ok(_) => {}
            Err(error) if error.is_node_exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until only the holder is in the wait queue: what was refused takes itself out of it in the
/// background.
async fn alone(client: &Client, path: &str) -> Result<()> {
    let session = client.session().await?;
    while session.children(path).await?.names.len() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn plant_go(client: &Client, path: &str) -> Result<()> {
    ensure(client, path).await?;
    let node = format!("{path}/_c_5f0c3a7d9b2e4f618a0d1c2b3a495867-lock-");
    let session = client.session().await?;
    session
        .create(&node, b"", CreateMode::EphemeralSequential)
        .await?;
    Ok(())
}
