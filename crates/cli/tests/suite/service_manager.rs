//! A server that systemd starts: sockets that it inherits, and what it says of its state.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{CommandHome, RunningCommand};

/// `baton serve` with this socket as the first one that a service manager hands over, which has
/// this name.
fn serve_on(home: &CommandHome, socket: OwnedFd, name: &str, args: &[&str]) -> Command {
    let plain = home.baton(&[&["serve"], args].concat());
    let mut command = Command::new("sh");
    // The only way to a number of one's own choice that needs no unsafe code: the shell's.
    command
        .args([
            "-c",
            "exec 3<&0 0</dev/null; LISTEN_PID=$$ exec \"$@\"",
            "sh",
        ])
        .arg(plain.get_program())
        .args(plain.get_args())
        .env_clear()
        .envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", name)
        .stdin(Stdio::from(socket))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The answer to `ruok`.
fn asked(mut stream: impl Read + Write) -> String {
    stream.write_all(b"ruok").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_port_that_is_inherited_answers_who_connected_before_the_start() {
    let home = CommandHome::new();
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = open.local_addr().unwrap();
    let early = TcpStream::connect(address).unwrap();
    // Its own configuration may name the address, too.
    let listen = address.to_string();
    let args = ["--ephemeral", "--listen", &listen];
    let mut server = RunningCommand::new(serve_on(&home, open.into(), "baton.socket", &args));
    let line = server.line();
    assert!(line.contains(&listen), "{line}");
    assert_eq!(asked(early), "imok");
    server.signal("TERM");
    assert_eq!(server.end().code, 0);
}

#[test]
fn an_inherited_unix_socket_has_the_access_of_its_file_and_outlives_the_server() {
    let home = CommandHome::new();
    let path = home.path("shared.sock");
    let open = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let kept = open.try_clone().unwrap();
    let mut server = RunningCommand::new(serve_on(&home, open.into(), "", &["--ephemeral"]));
    let line = server.line();
    assert!(line.contains("shared.sock"), "{line}");
    assert_eq!(asked(UnixStream::connect(&path).unwrap()), "imok");
    server.signal("TERM");
    assert_eq!(server.end().code, 0);
    // Who comes now waits for the next server.
    let waiting = UnixStream::connect(&path).unwrap();
    let server = RunningCommand::new(serve_on(&home, kept.into(), "", &["--ephemeral"]));
    assert_eq!(asked(waiting), "imok");
    server.signal("TERM");
    assert_eq!(server.end().code, 0);
}

#[test]
fn an_inherited_port_for_http_serves_http() {
    let home = CommandHome::new();
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut http = TcpStream::connect(open.local_addr().unwrap()).unwrap();
    let server = RunningCommand::new(serve_on(
        &home,
        open.into(),
        "http",
        &["--ephemeral", "--listen", "127.0.0.1:0"],
    ));
    http.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    http.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    server.signal("TERM");
    assert_eq!(server.end().code, 0);
}

#[test]
fn what_cannot_be_inherited_is_refused_in_one_line() {
    let home = CommandHome::new();
    let datagrams = UnixDatagram::bind(home.path("datagrams")).unwrap();
    let command = serve_on(&home, datagrams.into(), "odd", &["--ephemeral"]);
    let ended = RunningCommand::new(command).end();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(
        ended.complaint().contains("the socket \"odd\""),
        "{ended:?}"
    );
    assert!(ended.complaint().contains("ListenStream="), "{ended:?}");
    // Open to other machines, like any other port.
    let open = TcpListener::bind("0.0.0.0:0").unwrap();
    let ended = RunningCommand::new(serve_on(&home, open.into(), "", &["--ephemeral"])).end();
    assert!(ended.complaint().contains("insecure"), "{ended:?}");
}

#[test]
fn the_service_manager_hears_when_the_server_answers_and_when_it_stops() {
    let home = CommandHome::new();
    let heard = UnixDatagram::bind(home.path("notify")).unwrap();
    heard
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let hear = || {
        let mut text = [0; 64];
        let length = heard.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    };
    let mut command = home.baton(&["serve", "--ephemeral", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", home.path("notify"));
    let server = RunningCommand::new(command);
    assert_eq!(hear(), "READY=1");
    server.signal("TERM");
    assert_eq!(hear(), "STOPPING=1");
    assert_eq!(server.end().code, 0);
    // Nobody hears it: the server serves all the same.
    let mut command = home.baton(&["serve", "--ephemeral", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", home.path("nobody"));
    let mut server = RunningCommand::new(command);
    assert!(server.line().contains("serving on"));
    server.signal("TERM");
    let ended = server.end();
    assert!(ended.err.contains("NOTIFY_SOCKET"), "{ended:?}");
}
