//! A relay before the port of a server on which the others connect to it. It can lose what they
//! send on one lane, while the others' frames arrive.

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
    loses: watch::Sender<Option<Lane>>,
    has_lost: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Accepts at `listen`, and connects to `to` for each connection.
    pub async fn start(listen: &str, to: String) -> Self {
        let listener = TcpListener::bind(listen).await.unwrap();
        let (loses, loss) = watch::channel(None);
        let (lost, has_lost) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                let (from, _) = listener.accept().await.unwrap();
                let (to, loss, lost) = (to.clone(), loss.clone(), lost.clone());
                tokio::spawn(async move {
                    // Ends with either connection.
                    let _ = relay(from, &to, loss, lost).await;
                });
            }
        });
        Self {
            loses,
            has_lost,
            task,
        }
    }

    /// Loses what is sent on this lane, or (`None`) ends the connections of which something was
    /// lost, so that new ones take their place.
    pub fn lose(&self, lane: Option<Lane>) {
        self.loses.send_replace(lane);
    }

    /// Waits until something was lost.
    pub async fn has_lost(&mut self) {
        self.has_lost.wait_for(|lost| *lost).await.unwrap();
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
    mut loss: watch::Receiver<Option<Lane>>,
    lost: watch::Sender<bool>,
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
        let lane = Lane::from_byte(buffer[LANE_AT]);
        let mut has_lost = false;
        loop {
            tokio::select! {
                bytes = from.read(&mut buffer) => {
                    let bytes = bytes?;
                    if bytes == 0 {
                        return Ok(());
                    }
                    has_lost |= lane.is_some() && *loss.borrow() == lane;
                    if has_lost {
                        lost.send_replace(true);
                    } else {
                        to.write_all(&buffer[..bytes]).await?;
                    }
                }
                changed = loss.changed() => {
                    if changed.is_err() || (has_lost && loss.borrow().is_none()) {
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
