//! One machine, several users: which servers a command finds, the socket that all may use, and what
//! is said where they do not.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{CommandHome, Ran, RunningCommand};

/// The user whom no file belongs to.
const NOBODY: u32 = 65534;

fn write(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

fn mode(path: &Path) -> u32 {
    let about = std::fs::symlink_metadata(path).unwrap();
    about.permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A server at the machine's socket; it serves when this returns.
fn machine_server(home: &CommandHome, args: &[&str]) -> (RunningCommand, String) {
    let socket = home.system("run/baton/baton.sock");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let base = ["--ephemeral", "--unix-socket", socket.to_str().unwrap()];
    let mut server = home.spawn(&[&["serve"], &base[..], args].concat());
    let line = server.line();
    assert!(line.contains("serving on"), "{line}");
    (server, line)
}

#[test]
fn each_step_of_the_lookup_outweighs_the_next() {
    let home = CommandHome::new();
    let (server, line) = machine_server(&home, &["--listen", "127.0.0.1:0"]);
    let address = line.split_whitespace().nth(3).unwrap();
    for name in ["flag", "variable", "user", "machine"] {
        assert_eq!(
            home.run(&["create", &format!("/{name}"), "--servers", address])
                .code,
            0
        );
        let servers = format!("{address}/{name}");
        let made = home.run(&["create", "/who", name, "--servers", &servers]);
        assert_eq!(made.code, 0, "{made:?}");
    }
    let made = home.run(&["create", "/who", "socket", "--servers", address]);
    assert_eq!(made.code, 0, "{made:?}");
    let user = home.path(".config/baton/config.toml");
    let other_user = home.path("config-home/baton/config.toml");
    let machine = home.system("etc/baton/config.toml");
    write(&user, &format!("# mine\nservers = \"{address}/user\"\n"));
    write(&other_user, &format!("servers = \"{address}/variable\"\n"));
    write(&machine, &format!("servers = [\"{address}/machine\"]\n"));
    let flag = format!("{address}/flag");
    let variable = format!("{address}/variable");
    let ask = |flag: Option<&str>, variable: Option<&str>, config: Option<&Path>| {
        let mut command = home.baton(&["-v", "get", "/who"]);
        command.args(flag.map(|list| format!("--servers={list}")));
        command.envs(variable.map(|list| ("BATON_SERVERS", list)));
        command.envs(config.map(|folder| ("XDG_CONFIG_HOME", folder)));
        Ran::from(command.output().unwrap())
    };
    let check = |ran: Ran, who: &str, origin: &str| {
        assert_eq!((ran.code, ran.out.trim_end()), (0, who), "{ran:?}");
        let using = ran
            .err
            .lines()
            .find(|line| line.starts_with("baton: using "));
        assert!(using.unwrap().ends_with(&format!("({origin})")), "{ran:?}");
    };
    check(ask(Some(&flag), Some(&variable), None), "flag", "--servers");
    let origin = "BATON_SERVERS in the environment";
    check(ask(None, Some(&variable), None), "variable", origin);
    let at = |file: &Path, line: u32| format!("{}:{line} servers", file.display());
    check(ask(None, None, None), "user", &at(&user, 2));
    let config = home.path("config-home");
    check(
        ask(None, None, Some(&config)),
        "variable",
        &at(&other_user, 1),
    );
    std::fs::remove_file(&user).unwrap();
    check(ask(None, None, None), "machine", &at(&machine, 1));
    // A file that says nothing is passed over.
    write(&machine, "# nothing yet\n");
    check(ask(None, None, None), "socket", "the machine's socket");
    // A data folder that is named is a server of one's own.
    let own = home.run(&["get", "/who", "--data-dir", "data"]);
    assert_eq!(own.code, 1, "{own:?}");
    server.signal("TERM");
    assert_eq!(server.end().code, 0);
    let local = ask(None, None, None);
    assert_eq!(local.code, 1, "{local:?}");
    assert!(local.err.contains("started a local server"), "{local:?}");
    let origin = format!(
        "(no servers are named, and none answers at {})",
        home.system("run/baton/baton.sock").display()
    );
    assert!(local.err.contains(&origin), "{local:?}");
    assert!(!local.err.contains("cannot be used"), "{local:?}");
}

#[test]
fn a_wrong_file_is_an_error_with_its_line_and_no_server_is_started() {
    let home = CommandHome::new();
    let user = home.path(".config/baton/config.toml");
    let machine = home.system("etc/baton/config.toml");
    for file in [&user, &machine] {
        for (text, complaint) in [
            ("\nserver = \"a:1\"\n", ":2 server: unknown key"),
            (
                "servers = \"a:port\"\n",
                ":1 servers: server `a:port` is not",
            ),
            ("servers = \n", ":1: "),
        ] {
            write(file, text);
            let ran = home.run(&["ls"]);
            assert_eq!(ran.code, 2, "{text}: {ran:?}");
            let expected = format!("baton: {}{complaint}", file.display());
            assert!(ran.complaint().starts_with(&expected), "{ran:?}");
            assert!(!home.state().exists());
        }
        // Who names servers, or a folder, need not mend it.
        assert_eq!(home.run(&["ls", "--data-dir", "data"]).code, 0);
        std::fs::remove_file(file).unwrap();
    }
    // What is not a file is no reason to go on either.
    std::fs::create_dir_all(&machine).unwrap();
    let ran = home.run(&["ls"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.complaint().contains("name the servers with --servers"),
        "{ran:?}"
    );
    std::fs::remove_dir(&machine).unwrap();
    // Where servers are named and none answers, the file is named, too.
    write(&machine, "servers = \"127.0.0.1:1\"\n");
    let ran = home.run(&["ls", "--connect-timeout", "200ms"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(
        ran.complaint().contains(&format!(
            "the servers come from {}:1 servers",
            machine.display()
        )),
        "{ran:?}"
    );
    let mut relative = home.baton(&["ls"]);
    relative.env("BATON_SYSTEM_DIR", "system");
    let ran = Ran::from(relative.output().unwrap());
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.complaint()
            .contains("BATON_SYSTEM_DIR in the environment"),
        "{ran:?}"
    );
}

#[test]
fn a_socket_has_the_mode_that_was_asked_for_whatever_the_umask() {
    let home = CommandHome::new();
    let toml = home.path("baton.toml");
    write(
        &toml,
        "data_dir = \"data\"\nunix_socket = \"s\"\nunix_socket_mode = \"0640\"\n",
    );
    for (umask, args, expected) in [
        ("0", "--unix-socket s", 0o600),
        ("077", "--unix-socket s --unix-socket-mode 0660", 0o660),
        ("0", "--unix-socket s --unix-socket-mode 0660", 0o660),
        ("077", "--unix-socket s --unix-socket-mode 666", 0o666),
        ("0", "--config baton.toml", 0o640),
    ] {
        let script = format!("umask {umask}; exec \"$0\" serve --data-dir data {args}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_baton")]);
        command.current_dir(home.dir.path()).stdin(Stdio::null());
        command.env("BATON_SYSTEM_DIR", home.path("system"));
        let mut server = RunningCommand::new(command);
        assert!(server.line().contains("serving on"), "{args}");
        assert_eq!(mode(&home.path("s")), expected, "umask {umask}, {args}");
        // That of the data folder stays its owner's.
        assert_eq!(mode(&home.path("data/baton.sock")), 0o600, "{args}");
        server.signal("TERM");
        assert_eq!(server.end().code, 0, "{args}");
    }
    for wrong in ["rw", "0888", "01777", "0060", "+660", ""] {
        let value = format!("--unix-socket-mode={wrong}");
        let ran = home.run(&["serve", "--ephemeral", "--unix-socket", "s", &value]);
        assert_eq!(ran.code, 2, "{wrong}: {ran:?}");
        assert!(ran.complaint().contains("unix"), "{ran:?}");
    }
    write(&toml, "unix_socket_mode = 0o660\n");
    let ran = home.run(&["serve", "--config", "baton.toml"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let line = ran.complaint();
    assert!(
        line.contains("baton.toml:1 unix_socket_mode") && line.contains("\"0660\""),
        "{line}"
    );
}

#[test]
fn a_socket_that_cannot_be_made_is_refused_with_its_cause() {
    let home = CommandHome::new();
    let serve = |path: &str| home.run(&["serve", "--ephemeral", "--unix-socket", path]);
    let missing = serve("missing/s");
    assert_eq!(missing.code, 125, "{missing:?}");
    let line = missing.complaint();
    let folder = home.path("missing");
    let cause = format!("the folder {} does not exist; make it", folder.display());
    assert!(line.contains(&cause), "{line}");
    std::fs::write(home.path("file"), "kept").unwrap();
    let taken = serve("file");
    assert_eq!(taken.code, 125, "{taken:?}");
    assert!(
        taken
            .complaint()
            .contains("a file that is not a socket is there"),
        "{taken:?}"
    );
    assert_eq!(std::fs::read_to_string(home.path("file")).unwrap(), "kept");
    let (server, _) = machine_server(&home, &[]);
    let socket = home.system("run/baton/baton.sock");
    let second = serve(socket.to_str().unwrap());
    assert_eq!(second.code, 125, "{second:?}");
    assert!(
        second
            .complaint()
            .contains("a running server listens there"),
        "{second:?}"
    );
    assert_eq!(home.run(&["create", "/x"]).code, 0);
    server.signal("KILL");
    server.end();
    // What a killed server has left is replaced, and until then said.
    assert!(socket.exists());
    let local = home.run(&["create", "/x"]);
    assert_eq!(local.code, 0, "{local:?}");
    let said = local
        .err
        .lines()
        .find(|line| line.contains("cannot be used"));
    let said = said.unwrap_or_else(|| panic!("{local:?}"));
    assert!(
        said.contains(socket.to_str().unwrap()) && said.contains("refused"),
        "{said}"
    );
    assert_eq!(home.run(&["-q", "get", "/x"]).err, "");
    let json = home.run(&["--json", "get", "/x"]);
    let event: serde_json::Value = serde_json::from_str(json.err.trim()).unwrap();
    assert_eq!(event["event"], "locks_not_shared");
    assert_eq!(event["socket"], socket.to_str().unwrap());
    let (_server, _) = machine_server(&home, &[]);
    let there = home.run(&["get", "/x"]);
    assert_eq!((there.code, there.err.lines().count()), (1, 1), "{there:?}");
}

/// A home that another user may enter, too.
struct TwoUsers {
    home: CommandHome,
}

impl TwoUsers {
    /// `None` where this process cannot become another user, or that user cannot run the command.
    fn new() -> Option<Self> {
        let home = CommandHome::new();
        chmod(home.dir.path(), 0o755);
        std::fs::create_dir(home.path("theirs")).unwrap();
        std::fs::create_dir_all(home.system("run/lock")).unwrap();
        chmod(&home.system("run/lock"), 0o1777);
        chown(home.path("theirs"), Some(NOBODY), Some(NOBODY)).ok()?;
        let users = Self { home };
        let able = users.theirs(&["--version"]).output();
        able.is_ok_and(|output| output.status.success())
            .then_some(users)
    }

    /// `baton` as the other user.
    fn theirs(&self, args: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        let changed = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        command.args(changed).args(["--clear-groups", "--"]);
        command.arg(env!("CARGO_BIN_EXE_baton")).args(args);
        for (name, value) in self.home.baton(&[]).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let home = self.home.path("theirs");
        command.env("HOME", &home);
        command.env("XDG_STATE_HOME", home.join("state"));
        command.current_dir(home).stdin(Stdio::null());
        command
    }

    /// Runs `baton` as the other user.
    fn they_run(&self, args: &[&str]) -> Ran {
        Ran::from(self.theirs(args).output().unwrap())
    }
}

/// If the tests may not become another user, `socket_access` is tested alone.
#[test]
fn a17_another_user_is_refused_whatever_became_of_the_sockets_mode() {
    let Some(users) = TwoUsers::new() else {
        return;
    };
    let home = &users.home;
    let socket = home.system("run/baton/baton.sock");
    let list = format!("unix:{}", socket.display());
    let ask = ["ls", "--servers", &list, "--connect-timeout", "200ms"];
    let (server, _) = machine_server(home, &[]);
    chmod(&socket, 0o777);
    let theirs = users.they_run(&ask);
    assert_eq!(theirs.code, 125, "{theirs:?}");
    assert_eq!(home.run(&ask[..3]).code, 0);
    server.signal("TERM");
    let ended = server.end();
    let refused = format!("connection refused: user {NOBODY} (process ");
    let lines = || ended.err.lines().filter(|line| line.contains(&refused));
    assert!(lines().count() > 0, "{ended:?}");
    assert!(
        lines().all(|line| line.contains("which is for user 0;")),
        "{ended:?}"
    );
    // A group that the operator names, and its members.
    let group = NOBODY.to_string();
    let (server, _) = machine_server(home, &["--unix-socket-group", &group]);
    assert_eq!(mode(&socket), 0o660);
    let theirs = users.they_run(&ask[..3]);
    assert_eq!(theirs.code, 0, "{theirs:?}");
    server.signal("TERM");
    server.end();
    let wrong = [
        "serve",
        "--ephemeral",
        "--unix-socket",
        "s",
        "--unix-socket-group",
    ];
    for (more, complaint) in [
        (&["no such group"][..], "is not a group of"),
        (&["0", "--unix-socket-mode", "0600"], "must go together"),
    ] {
        let ran = home.run(&[&wrong[..], more].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.complaint().contains(complaint), "{ran:?}");
    }
}

fn name_of_nobody() -> String {
    let id = Command::new("id")
        .args(["-nu", &NOBODY.to_string()])
        .output()
        .unwrap();
    String::from_utf8(id.stdout).unwrap().trim().to_owned()
}

/// If the tests may not become another user, those of the markers alone remain (`marker.rs`).
#[test]
fn two_users_of_a_machine_are_informed_that_they_share_no_lock() {
    let Some(users) = TwoUsers::new() else {
        return;
    };
    let home = &users.home;
    let mut holder = RunningCommand::new(users.theirs(&["lock", "/x"]));
    assert!(holder.line().starts_with("held /x"));
    let ours = home.run(&["lock", "-n", "/x", "--", "true"]);
    assert_eq!(ours.code, 0, "{ours:?}");
    let said: Vec<&str> = ours
        .err
        .lines()
        .filter(|line| line.contains("not shared"))
        .collect();
    let expected = format!(
        "baton: user {} runs a local server on this machine",
        name_of_nobody()
    );
    assert_eq!(said.len(), 1, "{ours:?}");
    assert!(said[0].starts_with(&expected), "{said:?}");
    assert!(
        said[0].contains("--unix-socket") && said[0].contains("--servers"),
        "{said:?}"
    );
    // The other user receives the notice about us, too, unless `-q` is given, and once.
    let mut held = home.spawn(&["lock", "/y"]);
    assert!(held.line().starts_with("held /y"));
    let quiet = users.they_run(&["-q", "ls"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""), "{quiet:?}");
    let json = users.they_run(&["--json", "ls"]);
    let event: serde_json::Value = serde_json::from_str(json.err.trim()).unwrap();
    assert_eq!(event["users"].as_array().map(Vec::len), Some(1), "{event}");
    for again in [users.they_run(&["ls"]), home.run(&["ls"])] {
        assert_eq!((again.code, again.err.as_str()), (0, ""), "{again:?}");
    }
    assert_eq!(event["event"], "locks_not_shared");
}

/// Cron starts them like this. Each has to list the other servers once its own server is visible.
#[test]
fn of_two_users_who_start_at_once_at_least_one_is_informed() {
    let Some(users) = TwoUsers::new() else {
        return;
    };
    let home = &users.home;
    let [mut one, mut two] = [
        users.theirs(&["create", "/x"]),
        home.baton(&["create", "/x"]),
    ];
    // Longer than the one can be delayed after the other.
    one.env("BATON_IDLE", "10m");
    two.env("BATON_IDLE", "10m");
    let ran = [RunningCommand::new(one), RunningCommand::new(two)].map(RunningCommand::end);
    assert!(ran.iter().all(|ran| ran.code == 0), "{ran:?}");
    assert!(
        ran.iter().any(|ran| ran.err.contains("not shared")),
        "{ran:?}"
    );
}

#[test]
fn two_users_of_a_machine_exclude_each_other_at_its_socket() {
    let Some(users) = TwoUsers::new() else {
        return;
    };
    let home = &users.home;
    let (server, _) = machine_server(home, &["--unix-socket-mode", "0666"]);
    let mut holder = RunningCommand::new(users.theirs(&["lock", "/x"]));
    assert!(holder.line().starts_with("held /x"));
    let ours = home.run(&["lock", "-n", "/x", "--", "true"]);
    assert_eq!(ours.code, 124, "{ours:?}");
    assert!(ours.complaint().contains("/x not acquired"), "{ours:?}");
    holder.signal("TERM");
    holder.end();
    assert_eq!(home.run(&["lock", "-n", "/x", "--", "true"]).err, "");
    server.signal("TERM");
    server.end();
    // With the mode that is the default it is root's alone, and others read that it is closed to
    // them.
    let (_server, _) = machine_server(home, &[]);
    let kept_out = users.they_run(&["ls"]);
    assert_eq!(kept_out.code, 0, "{kept_out:?}");
    let line = kept_out
        .err
        .lines()
        .find(|line| line.contains("cannot be used"));
    assert!(
        line.is_some_and(|line| line.contains("Permission denied")),
        "{kept_out:?}"
    );
}
