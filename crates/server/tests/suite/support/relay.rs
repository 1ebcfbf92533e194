//! A relay before the port of a server on which the others connect to it. It can lose what they
//! send for the server's log, while their heartbeats and snapshots arrive.

use baton_peers::codec::Lane;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The place of the lane in the first bytes of a connection: behind the preface, the head of a
/// frame, and the versions of the protocol.
const LANE_AT: usize = 24;

/// Ends with its drop.
pub struct Relay {
    loses_log: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Accepts at `listen`, and connects to `to` for each connection.
    pub async fn start(listen: &str, to: String) -> Self {
        let listener = TcpListener::bind(listen).await.unwrap();
        let (loses_log, loss) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                let (from, _) = listener.accept().await.unwrap();
                let (to, loss) = (to.clone(), loss.clone());
                tokio::spawn(async move {
                    // Ends with either connection.
                    let _ = relay(from, &to, loss).await;
                });
            }
        });
        Self { loses_log, task }
    }

    /// Loses what is sent for the server's log, or (`false`) ends the connections of which
    /// something was lost, so that new ones take their place.
    pub fn lose_log(&self, lose: bool) {
        self.loses_log.send_replace(lose);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(
    mut from: TcpStream,
    to: &str,
    mut loss: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut to = TcpStream::connect(to).await?;
    let (mut from, mut to_sender) = from.split();
    let (mut answers, mut to) = to.split();
    let forth = async {
        let mut buffer = vec![0; 64 << 10];
        let mut first = 0;
        while first <= LANE_AT {
            match from.read(&mut buffer[first..]).await? {
                0 => return Ok(()),
                bytes => first += bytes,
            }
        }
        to.write_all(&buffer[..first]).await?;
        let is_log = Lane::from_byte(buffer[LANE_AT]) == Some(Lane::Log);
        let mut has_lost = false;
        loop {
            tokio::select! {
                bytes = from.read(&mut buffer) => {
                    let bytes = bytes?;
                    if bytes == 0 {
                        return Ok(());
                    }
                    has_lost |= is_log && *loss.borrow();
                    if !has_lost {
                        to.write_all(&buffer[..bytes]).await?;
                    }
                }
                changed = loss.changed() => {
                    if changed.is_err() || (has_lost && !*loss.borrow()) {
                        return Ok(());
                    }
                }
            }
        }
    };
    tokio::select! {
        ended = forth => ended,
        ended = tokio::io::copy(&mut answers, &mut to_sender) => ended.map(|_| ()),
    }
}
