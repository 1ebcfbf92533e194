//! Records what real clients and a real Apache ZooKeeper say to each other, for
//! `crates/proto/tests/golden`.
//!
//! ```text
//! cargo run -p baton-testkit --example record_golden -- java OUT.hex
//! cargo run -p baton-testkit --example record_golden -- PYTHON-WITH-KAZOO OUT.hex
//! ```
//!
//! Needs Java with its compiler and ZooKeeper's jars; for the second form a Python that can import
//! kazoo.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use baton_proto::OpCode;
use baton_testkit::proxy::Direction;
use baton_testkit::{
    Frame, FrameKind, Proxy, ServerOptions, Target, TestServer, Variant, zookeeper_classpath,
};

/// Lets Java log in by SASL; kazoo does without.
const LOGINS: &str = r#"
Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_recorder="not-a-secret"; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required
    username="recorder" password="not-a-secret"; };
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(client), Some(out)) = (args.next(), args.next()) else {
        return Err("usage: record_golden java|PYTHON OUT.hex".into());
    };
    let logins = tempfile::NamedTempFile::new()?;
    std::fs::write(&logins, LOGINS)?;
    let logins = format!(
        "-Djava.security.auth.login.config={}",
        logins.path().display()
    );
    let provider =
        "-Dzookeeper.authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            .to_owned();
    let options = ServerOptions {
        java_args: vec![logins.clone(), provider],
        ..ServerOptions::default()
    };
    let server = TestServer::start_with(Target::ZooKeeper, options).await?;
    let proxy = Proxy::start_recording(server.addr()).await?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/record_golden");
    let mut command = Command::new(&client);
    if client == "java" {
        command.args([
            "-cp",
            &zookeeper_classpath()?,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        ]);
        command.arg(&logins).arg(sources.join("Conversation.java"));
    } else {
        command.arg(sources.join("conversation.py"));
    }
    command
        .arg(proxy.connect_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let proxy = tokio::task::spawn_blocking(move || converse(command, proxy)).await??;

    let mut text = String::new();
    for frame in proxy.frames() {
        let way = if frame.direction == Direction::ToServer {
            '>'
        } else {
            '<'
        };
        write!(text, "{} {way} {} ", frame.connection, label(&frame))?;
        for byte in &frame.body {
            write!(text, "{byte:02x}")?;
        }
        text.push('\n');
    }
    std::fs::write(&out, text)?;
    eprintln!("{} frames in {out}", proxy.frames().len());
    Ok(())
}

/// Runs the client and cuts its connection whenever it asks for that.
fn converse(mut command: Command, proxy: Proxy) -> std::io::Result<Proxy> {
    let mut child = command.spawn()?;
    let mut orders = child.stdin.take();
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|out| BufReader::new(out).lines())
    {
        if line? == "cut" {
            proxy.cut_all(Variant::Fin);
            if let Some(orders) = &mut orders {
                orders.write_all(b"cut\n")?;
            }
        }
    }
    let status = child.wait()?;
    if status.success() {
        Ok(proxy)
    } else {
        Err(std::io::Error::other(format!(
            "the client ended with {status}"
        )))
    }
}

fn label(frame: &Frame) -> String {
    let name =
        |op: i32| OpCode::try_from(op).map_or_else(|_| format!("op{op}"), |op| op.to_string());
    match &frame.kind {
        FrameKind::ConnectRequest | FrameKind::ConnectResponse => "connect".to_owned(),
        FrameKind::Request { op, .. } | FrameKind::Reply { op: Some(op), .. } => name(*op),
        FrameKind::Reply { op: None, .. } => "unmatched".to_owned(),
        FrameKind::Event { .. } => "event".to_owned(),
        FrameKind::Raw => "raw".to_owned(),
    }
}
