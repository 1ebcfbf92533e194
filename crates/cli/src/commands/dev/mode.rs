//! Mode of a server: whether it leads. Asked by the four-letter word `srvr`.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::plan::ServerAddresses;

/// Limit on an answer. A server that is stopped gives none.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of an answer.
const MAX_BYTES: u64 = 16 << 10;

/// The part of a server that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    Standalone,
    Leader,
    Follower,
}

impl Mode {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Leader => "leader",
            Self::Follower => "follower",
        }
    }

    /// The mode in the answer to `srvr`; `None`: it knows no leader.
    fn of_answer(answer: &str) -> Option<Self> {
        let named = answer
            .lines()
            .find_map(|line| line.strip_prefix("Mode: "))?;
        [Self::Standalone, Self::Leader, Self::Follower]
            .into_iter()
            .find(|mode| mode.name() == named.trim())
    }
}

/// The modes of these servers, in their order; `None`: it does not answer, or knows no leader.
pub(super) async fn of_all(places: &[ServerAddresses]) -> Vec<Option<Mode>> {
    let mut asking = JoinSet::new();
    for (at, place) in places.iter().enumerate() {
        let port = place.client_port;
        asking.spawn(async move {
            let answer = tokio::time::timeout(PATIENCE, ask(port)).await;
            (at, answer.ok().and_then(Result::ok))
        });
    }
    let mut modes = vec![None; places.len()];
    while let Some(answered) = asking.join_next().await {
        if let Ok((at, Some(answer))) = answered
            && let Some(mode) = modes.get_mut(at)
        {
            *mode = Mode::of_answer(&answer);
        }
    }
    modes
}

async fn ask(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"srvr").await?;
    let mut answer = String::new();
    stream.take(MAX_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The only server that says it leads. Two may for a moment: the old leader has not noticed yet.
pub(super) fn leader(places: &[ServerAddresses], modes: &[Option<Mode>]) -> Option<u64> {
    let mut leaders = places
        .iter()
        .zip(modes)
        .filter(|(_, mode)| **mode == Some(Mode::Leader))
        .map(|(place, _)| place.id);
    leaders.next().filter(|_| leaders.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_read_from_the_answer() {
        let answer = |mode: &str| format!("Zookeeper version: 3\nMode: {mode}\nNode count: 5\n");
        assert_eq!(Mode::of_answer(&answer("leader")), Some(Mode::Leader));
        assert_eq!(Mode::of_answer(&answer("follower")), Some(Mode::Follower));
        assert_eq!(
            Mode::of_answer(&answer("standalone")),
            Some(Mode::Standalone)
        );
        assert_eq!(Mode::of_answer(&answer("looking")), None);
        assert_eq!(Mode::of_answer("srvr is not executed"), None);
    }

    #[test]
    fn a_leader_is_one_that_no_other_contradicts() {
        let place = |id| ServerAddresses {
            id,
            client_port: 1,
            peer_port: 2,
            http_port: None,
        };
        let places = [place(1), place(2)];
        let (leads, follows) = (Some(Mode::Leader), Some(Mode::Follower));
        assert_eq!(leader(&places, &[follows, leads]), Some(2));
        assert_eq!(leader(&places, &[leads, leads]), None);
        assert_eq!(leader(&places, &[follows, None]), None);
    }
}
