//! The state of a server as clients see it: four-letter words, and what is in its tree. Reads only.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use baton_proto::{ErrorCode, Request, Response, Stat, path};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{RawClient, RawError};

/// Time that a server may take to answer a four-letter word.
const PATIENCE: Duration = Duration::from_secs(10);

/// Session timeout of the sessions that read; they are closed afterwards.
const SESSION: Duration = Duration::from_secs(10);

/// Sends a four-letter word (protocol.md §7.1) and returns the server's whole answer.
///
/// # Errors
/// No connection, or no complete answer within 10 s.
pub async fn four_letter_word(server: SocketAddr, word: &str) -> io::Result<String> {
    let ask = async {
        let mut socket = TcpStream::connect(server).await?;
        socket.write_all(word.as_bytes()).await?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    tokio::time::timeout(PATIENCE, ask).await.map_err(|_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{server} did not answer `{word}` within 10 s"),
        )
    })?
}

/// The number of watches that a server holds, from `wchs`. ZooKeeper counts data watches only.
///
/// # Errors
/// Those of [`four_letter_word`], or an answer that is not that of `wchs`.
pub async fn watch_count(server: SocketAddr) -> io::Result<u64> {
    let answer = four_letter_word(server, "wchs").await?;
    answer
        .lines()
        .find_map(|line| line.strip_prefix("Total watches:")?.trim().parse().ok())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("not an answer to wchs: {answer:?}"),
            )
        })
}

/// One value of `srvr`, such as `Mode` or `Zxid`; `None` if the server does not report it.
///
/// # Errors
/// Those of [`four_letter_word`].
pub async fn srvr(server: SocketAddr, key: &str) -> io::Result<Option<String>> {
    let answer = four_letter_word(server, "srvr").await?;
    let value = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned());
    Ok(answer.lines().find_map(value))
}

/// One value of `mntr`, such as `znode_count`; `None` if the server does not report it as a whole
/// number.
///
/// # Errors
/// Those of [`four_letter_word`].
pub async fn metric(server: SocketAddr, name: &str) -> io::Result<Option<u64>> {
    let answer = four_letter_word(server, "mntr").await?;
    let value = |line: &str| {
        let (key, value) = line.split_once('\t')?;
        (key.strip_prefix("zk_")? == name).then(|| value.parse().ok())?
    };
    Ok(answer.lines().find_map(value))
}

/// A znode as a test sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Znode {
    /// Its path.
    pub path: String,
    /// Its stat.
    pub stat: Stat,
    /// Its data; `None` is null.
    pub data: Option<Bytes>,
}

/// The children of a znode, sorted by name, with data; empty if there is no such znode. Uses a
/// session of its own.
///
/// # Errors
/// The server cannot be reached or refuses.
pub async fn children(server: SocketAddr, parent: &str) -> Result<Vec<Znode>, RawError> {
    let mut client = RawClient::connect(server, SESSION).await?;
    let children = list(&mut client, parent).await?;
    client.close().await?;
    Ok(children)
}

/// Every znode at and below a path, parents first; empty if there is no such znode. Uses a session
/// of its own.
///
/// # Errors
/// Those of [`children`].
pub async fn tree(server: SocketAddr, top: &str) -> Result<Vec<Znode>, RawError> {
    let mut client = RawClient::connect(server, SESSION).await?;
    let mut found = Vec::new();
    let mut to_visit = vec![top.to_owned()];
    while let Some(path) = to_visit.pop() {
        if let Some(node) = read_node(&mut client, &path).await? {
            let below = list(&mut client, &path).await?;
            to_visit.extend(below.into_iter().rev().map(|node| node.path));
            found.push(node);
        }
    }
    client.close().await?;
    Ok(found)
}

/// Children of a lock, queue or election that none of the `expected` sessions own: what a failed or
/// cancelled acquire has left behind. Persistent children count as orphans too.
///
/// # Errors
/// Those of [`children`].
pub async fn orphans(
    server: SocketAddr,
    parent: &str,
    expected: &[i64],
) -> Result<Vec<Znode>, RawError> {
    let mut nodes = children(server, parent).await?;
    nodes
        .retain(|node| !node.stat.is_ephemeral() || !expected.contains(&node.stat.ephemeral_owner));
    Ok(nodes)
}

async fn list(client: &mut RawClient, parent: &str) -> Result<Vec<Znode>, RawError> {
    let names = match client
        .call(&Request::GetChildren {
            path: parent,
            watch: false,
        })
        .await
    {
        Ok(Response::Children(mut names)) => {
            names.sort();
            names
        }
        Ok(_) | Err(RawError::Rejected(ErrorCode::NoNode)) => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut nodes = Vec::with_capacity(names.len());
    for name in names {
        nodes.extend(read_node(client, &path::join(parent, &name)).await?);
    }
    Ok(nodes)
}

async fn read_node(client: &mut RawClient, path: &str) -> Result<Option<Znode>, RawError> {
    match client.call(&Request::GetData { path, watch: false }).await {
        Ok(Response::Data { data, stat }) => Ok(Some(Znode {
            path: path.to_owned(),
            stat,
            data,
        })),
        Ok(_) | Err(RawError::Rejected(ErrorCode::NoNode)) => Ok(None),
        Err(error) => Err(error),
    }
}
