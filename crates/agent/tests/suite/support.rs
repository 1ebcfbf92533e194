//! A server, an agent beside it, and a caller that speaks HTTP by hand.

use std::path::PathBuf;
use std::time::Duration;

use baton::embedded::Embedded;
use baton::{Client, Config};
use baton_agent::{Agent, AgentOptions};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(30);

pub async fn within<F: Future>(work: F) -> F::Output {
    tokio::time::timeout(PATIENCE, work).await.expect("in time")
}

pub struct Stage {
    pub server: Option<Embedded>,
    folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    agent: Option<JoinHandle<()>>,
}

impl Stage {
    pub async fn new() -> Self {
        let server = Embedded::in_memory().await.unwrap();
        let config = Config::new(&server.connect_string()).unwrap();
        let mut stage = Self::with(config).await;
        stage.server = Some(server);
        stage
    }

    pub async fn with(config: Config) -> Self {
        Self::on(AgentOptions::new(config)).await
    }

    pub async fn on(options: AgentOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("sock");
        let agent = Agent::bind(&socket, options).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let agent = tokio::spawn(agent.run(async {
            let _ = stopped.await;
        }));
        Self {
            server: None,
            folder,
            stop: Some(stop),
            agent: Some(agent),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    /// A client of the stage's server, beside the agent.
    pub async fn client(&self) -> Client {
        let server = self.server.as_ref().unwrap();
        let config = Config::new(&server.connect_string()).unwrap();
        Client::connect(config).await.unwrap()
    }

    pub async fn stop(&mut self) {
        drop(self.stop.take());
        self.ended().await;
    }

    /// The agent ends.
    pub async fn ended(&mut self) {
        within(self.agent.take().unwrap()).await.unwrap();
    }

    /// Sends a request and reads the head of its response.
    pub async fn open(&self, method: &str, path: &str, body: &str) -> Answer {
        let stream = UnixStream::connect(self.socket()).await.unwrap();
        let mut stream = BufReader::new(stream);
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        // The agent may answer before it has read all.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Answer {
            stream,
            status: 0,
            length: None,
        };
        let head = tokio::time::timeout(PATIENCE, answer.head()).await;
        assert!(head.is_ok(), "no answer to {method} {path} {body}");
        answer
    }

    /// Connects, for requests on one connection.
    pub async fn connect(&self) -> Answer {
        let stream = UnixStream::connect(self.socket()).await.unwrap();
        Answer {
            stream: BufReader::new(stream),
            status: 0,
            length: None,
        }
    }

    /// Sends a request and returns status and JSON of its whole answer.
    pub async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut answer = self.open(method, path, body).await;
        let status = answer.status;
        let whole = tokio::time::timeout(PATIENCE, answer.whole()).await;
        (
            status,
            whole.unwrap_or_else(|_| panic!("no end of the answer to {method} {path} {body}")),
        )
    }

    /// Holds a lock.
    pub async fn lock(&self, path: &str, body: &str) -> (Answer, Value) {
        let mut answer = self.open("POST", &format!("/v1/lock{path}"), body).await;
        assert_eq!(answer.status, 200);
        let held = answer.until("held").await;
        (answer, held)
    }
}

/// A response that is being read. Dropping it closes the connection, as the death of a program
/// does.
pub struct Answer {
    stream: BufReader<UnixStream>,
    pub status: u16,
    length: Option<usize>,
}

impl Answer {
    /// Sends bytes on the same connection.
    pub async fn send(&mut self, bytes: &str) {
        // The agent may close before it has read all.
        let _ = self.stream.write_all(bytes.as_bytes()).await;
    }

    /// Sends a request whose body has one line and stays open, and reads the head of its answer.
    pub async fn hold(&mut self, url: &str, body: &str) -> u16 {
        let head = format!("PUT {url} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
        let length = body.len() + 1;
        self.send(&format!("{head}{length:x}\r\n{body}\n\r\n"))
            .await;
        within(self.head()).await;
        self.status
    }

    /// Ends the body of the present request.
    pub async fn end_body(&mut self) {
        self.send("0\r\n\r\n").await;
    }

    /// Reads to the end of the connection.
    pub async fn closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // With a reset, where the agent has not read all.
        let _ = within(self.stream.read_to_end(&mut rest)).await;
        rest
    }

    /// Reads a head.
    pub async fn head(&mut self) {
        self.length = None;
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        self.status = line.split(' ').nth(1).unwrap().parse().unwrap();
        loop {
            line.clear();
            self.stream.read_line(&mut line).await.unwrap();
            if line.trim().is_empty() {
                return;
            }
            if let Some(length) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                self.length = Some(length.trim().parse().unwrap());
            }
        }
    }

    pub async fn whole(&mut self) -> Value {
        match self.length {
            Some(length) => {
                let mut body = vec![0; length];
                self.stream.read_exact(&mut body).await.unwrap();
                // Who reads lines has a refusal before the connection ends, maybe with a reset.
                assert!(self.status < 400 || body.ends_with(b"\n"));
                serde_json::from_slice(&body).unwrap()
            }
            None => self.next().await.unwrap(),
        }
    }

    /// The next event; `None` at the end of the response.
    pub async fn next(&mut self) -> Option<Value> {
        within(async {
            let mut line = String::new();
            self.stream.read_line(&mut line).await.unwrap();
            let length = usize::from_str_radix(line.trim(), 16).unwrap_or(0);
            if line.is_empty() {
                return None;
            }
            let mut chunk = vec![0; length + 2];
            self.stream.read_exact(&mut chunk).await.unwrap();
            (length > 0).then(|| serde_json::from_slice(&chunk).unwrap())
        })
        .await
    }

    /// The next event of that kind.
    pub async fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().await;
            let event = event.unwrap_or_else(|| panic!("no event {kind}"));
            if event["event"] == kind {
                return event;
            }
            assert!(
                event["event"] == "lease" || event["event"] == "waiting",
                "{event} before {kind}"
            );
        }
    }
}
