//! Connections that are lost within their set-up: behind each of its frames (SASL, credentials,
//! watches, the probe), on the session's first connection and on a later one.

use std::time::Duration;

use baton_client::{OpCode, Session};
use baton_proto::Response;
use baton_sasl::Server;

use crate::support::{FakeServers, Peer, ReceivedRequest, SESSION, settle};

const USER: &str = "bob";
const PASSWORD: &str = "secret";

/// A server that answers a given number of set-up frames.
struct SetUpServer {
    left: usize,
    /// The frames that it answered.
    answered: Vec<OpCode>,
}

impl SetUpServer {
    fn answering(frames: usize) -> Self {
        Self {
            left: frames,
            answered: Vec::new(),
        }
    }

    /// Answers frames until none is left to answer or the client asks for something else, which is
    /// returned.
    async fn serve(&mut self, peer: &mut Peer) -> Option<ReceivedRequest> {
        while self.left > 0 {
            let asked = tokio::time::timeout(PATIENCE, peer.any()).await;
            let asked = asked.expect("a frame").expect("the client is there");
            let response = match asked.op {
                OpCode::Sasl => Some(token(&asked)),
                OpCode::Auth | OpCode::SetWatches | OpCode::SetWatches2 => None,
                OpCode::GetData if asked.path() == "/zookeeper/baton" => {
                    self.note(asked.op);
                    peer.answer_probe(&asked).await;
                    continue;
                }
                OpCode::Ping => {
                    peer.ok(&asked, None).await;
                    continue;
                }
                _ => return Some(asked),
            };
            self.note(asked.op);
            peer.ok(&asked, response).await;
        }
        None
    }

    fn note(&mut self, op: OpCode) {
        self.left -= 1;
        self.answered.push(op);
    }
}

/// The server's answer to one message of SASL.
fn token(asked: &ReceivedRequest) -> Response {
    let server = Server::new("zookeeper", "zk-sasl-md5", "0123abcd");
    let token = match asked.request() {
        baton_proto::Request::Sasl { token } => token.unwrap_or_default().to_vec(),
        other => panic!("{other:?}"),
    };
    let answer = match token.is_empty() {
        true => server.challenge(),
        false => {
            let judged = server.judge(&token, |_| Some(PASSWORD.to_owned()));
            judged.unwrap().message
        }
    };
    Response::Sasl(Some(answer.into_bytes().into()))
}

/// Time by the test's clock.
const PATIENCE: Duration = Duration::from_secs(300);
/// More frames than any set-up has.
const ALL: usize = 100;

/// Frames of the whole set-up of a connection, without and with a watch.
const FRAMES: [OpCode; 5] = [
    OpCode::Sasl,
    OpCode::Sasl,
    OpCode::Auth,
    OpCode::Auth,
    OpCode::GetData,
];

fn config(world: &FakeServers) -> baton_client::Config {
    let config = world.config().sasl(USER, PASSWORD);
    config.auth("digest", b"a:1").auth("digest", b"b:2")
}

#[tokio::test(start_paused = true)]
async fn the_first_connection_lost_behind_any_of_its_frames_is_followed_by_a_whole_one() {
    for frames in 0..=FRAMES.len() {
        let mut world = FakeServers::new();
        let connect = tokio::spawn(Session::connect(config(&world)));
        let mut lost = world.accept(SESSION).await;
        let mut partly = SetUpServer::answering(frames);
        assert!(partly.serve(&mut lost).await.is_none());
        assert_eq!(partly.answered, FRAMES[..frames]);
        settle().await;
        drop(lost);
        let mut peer = world.accept(SESSION).await;
        let reading = tokio::spawn(async move {
            let session = connect.await.unwrap().unwrap();
            session.get_data("/n").await.map(|_| ())
        });
        let mut whole = SetUpServer::answering(ALL);
        let asked = whole.serve(&mut peer).await.expect("a read");
        assert_eq!(whole.answered, FRAMES, "{frames} frames before");
        peer.no_data(&asked, Default::default()).await;
        reading.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_connection_lost_behind_any_of_its_frames_is_followed_by_a_whole_one() {
    let mut expected = FRAMES.to_vec();
    expected.insert(4, OpCode::SetWatches);
    for frames in 0..=expected.len() {
        let mut world = FakeServers::new();
        let connect = tokio::spawn(Session::connect(config(&world)));
        let mut peer = world.accept(SESSION).await;
        let mut first = SetUpServer::answering(FRAMES.len());
        first.serve(&mut peer).await;
        let session = connect.await.unwrap().unwrap();
        let reading = session.get_data_watch("/watched");
        let asked = peer.expect(OpCode::GetData).await;
        peer.no_data(&asked, Default::default()).await;
        let _watch = reading.await.unwrap();
        drop(peer);
        let mut lost = world.accept(SESSION).await;
        let mut partly = SetUpServer::answering(frames);
        assert!(partly.serve(&mut lost).await.is_none());
        assert_eq!(partly.answered, expected[..frames]);
        settle().await;
        drop(lost);
        let mut peer = world.accept(SESSION).await;
        let reading = session.get_data("/n");
        let mut whole = SetUpServer::answering(ALL);
        let asked = whole.serve(&mut peer).await.expect("a read");
        assert_eq!(whole.answered, expected, "{frames} frames before");
        peer.no_data(&asked, Default::default()).await;
        reading.await.unwrap();
        // What is asked next finds a session that is settled.
        let reading = session.get_data("/n");
        let asked = peer.expect(OpCode::GetData).await;
        peer.no_data(&asked, Default::default()).await;
        reading.await.unwrap();
    }
}
