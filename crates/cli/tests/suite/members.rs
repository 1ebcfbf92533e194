//! `baton server` on Batons that run: members come, go, are replaced, and lead.

use serde_json::Value;

use crate::common::{CommandHome, Ran, RunningCommand, free_port, until};

/// `super:secret`.
const SUPER_DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

/// Ports of one server.
struct ServerPorts {
    clients: u16,
    peers: u16,
    http: u16,
}

/// The servers of one ensemble, each a process.
struct Servers {
    home: CommandHome,
    /// Ports of servers 1, 2 and so on.
    places: Vec<ServerPorts>,
    running: Vec<Option<RunningCommand>>,
    /// Flags of each server that is started, besides those of its place.
    more: Vec<&'static str>,
    /// Whether clients and HTTP have TLS only, and the name of the certificate that verbs show.
    tls: Option<Option<&'static str>>,
}

/// A change of the members that is not over.
struct Beginning {
    running: RunningCommand,
    notes: &'static str,
}

impl Beginning {
    /// Waits until its notes have this in them.
    fn until_said(&self, servers: &Servers, text: &str) {
        until(text, || {
            let notes = std::fs::read_to_string(servers.home.path(self.notes));
            notes.is_ok_and(|notes| notes.contains(text))
        });
    }
}

impl Servers {
    /// Starts servers 1 to 3, with addresses for as many more as are wanted.
    fn three_and(more: usize) -> Self {
        let mut servers = Self::unstarted(3 + more);
        for id in 1..=3 {
            servers.start(id, &[1, 2, 3]);
        }
        servers.until_all_answer(3);
        servers
    }

    /// Addresses for this many servers.
    fn unstarted(count: usize) -> Self {
        let places = (0..count).map(|_| ServerPorts {
            clients: free_port(),
            peers: free_port(),
            http: free_port(),
        });
        let places = places.collect();
        let servers = Self {
            home: CommandHome::new(),
            places,
            running: (0..count).map(|_| None).collect(),
            more: Vec::new(),
            tls: None,
        };
        servers.home.write_secret("auth", "digest:super:secret\n");
        servers
    }

    fn place(&self, id: usize) -> &ServerPorts {
        &self.places[id - 1]
    }

    /// Starts server `id`, whose list has these servers.
    fn start(&mut self, id: usize, list: &[usize]) {
        let place = self.place(id);
        let (secure, s) = match self.tls {
            Some(_) => ("secure-", "s"),
            None => ("", ""),
        };
        let mut args = vec![
            "serve".to_owned(),
            format!("--data-dir=data-{id}"),
            format!("--{secure}listen=127.0.0.1:{}", place.clients),
            format!("--http{s}=127.0.0.1:{}", place.http),
            format!("--server-id={id}"),
            format!("--super-digest={SUPER_DIGEST}"),
            "--reconfig".to_owned(),
        ];
        for id in list {
            let place = self.place(*id);
            args.push(format!("--server={id}=127.0.0.1:{}", place.peers));
            args.push(format!("--client-address={id}=127.0.0.1:{}", place.clients));
        }
        let args = args.iter().map(String::as_str);
        let args: Vec<_> = args.chain(self.more.iter().copied()).collect();
        self.running[id - 1] = Some(self.home.spawn(&args));
    }

    /// Kills a server and deletes its data.
    fn lose(&mut self, id: usize) {
        drop(self.running[id - 1].take());
        std::fs::remove_dir_all(self.home.path(&format!("data-{id}"))).unwrap();
    }

    /// Server `id` as `baton server add` names it.
    fn line(&self, id: usize, role: &str) -> String {
        let ServerPorts { clients, peers, .. } = self.place(id);
        format!("{id}=127.0.0.1:{peers}:{peers}:{role};127.0.0.1:{clients}")
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    /// Begins a change of the members, whose notes go to a file.
    fn begin(&self, args: &[&str]) -> Beginning {
        let notes = "notes";
        let mut shell = std::process::Command::new("sh");
        let baton = self.command(&[&["server"], args, &["--auth-file", "auth"]].concat());
        shell.args(["-c", "exec \"$@\" 2>notes", "sh"]);
        shell.arg(baton.get_program()).args(baton.get_args());
        shell.current_dir(self.home.path(""));
        for (name, value) in baton.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Beginning {
            running: RunningCommand::new(shell),
            notes,
        }
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let servers = self.places.iter().take(3);
        let servers: Vec<_> = servers
            .map(|place| format!("127.0.0.1:{}", place.clients))
            .collect();
        let mut command = self.home.baton(args);
        command
            .env("BATON_SERVERS", servers.join(","))
            .env_remove("BATON_AUTH");
        if let Some(identity) = self.tls {
            command.env("BATON_TLS_CA", "tls/ca.pem");
            if let Some(name) = identity {
                command
                    .env("BATON_TLS_CERT", format!("tls/{name}.pem"))
                    .env("BATON_TLS_KEY", format!("tls/{name}.key"));
            }
        }
        command
    }

    /// Changes the members, which has to succeed.
    fn change(&self, args: &[&str]) -> Ran {
        let ran = self.run(&[&["server"], args, &["--auth-file", "auth"]].concat());
        assert_eq!(ran.code, 0, "{ran:?}");
        ran
    }

    /// Rows that `baton server ls` prints.
    fn members(&self) -> Vec<Value> {
        let ran = self.run(&["server", "ls", "--json", "--connect-timeout", "60s"]);
        ran.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn until_all_answer(&self, count: usize) {
        until(&format!("{count} members serve"), || {
            let members = self.members();
            let serve = |member: &&Value| {
                let mode = member["mode"].as_str().unwrap_or_default();
                ["leader", "follower", "observer"].contains(&mode)
            };
            members.len() == count && members.iter().filter(serve).count() == count
        });
    }

    fn leader(&self) -> usize {
        let members = self.members();
        let leader = members.iter().find(|member| member["mode"] == "leader");
        usize::try_from(leader.unwrap()["id"].as_u64().unwrap()).unwrap()
    }
}

#[test]
fn a_server_joins_an_observer_joins_and_both_leave_again() {
    let mut servers = Servers::three_and(2);
    assert_eq!(servers.run(&["create", "/kept", "x"]).code, 0);
    // A client that does not prove to be the superuser changes nothing.
    let refused = servers.run(&["server", "remove", "3"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.err.contains("may not change the members"),
        "{refused:?}"
    );
    let line = servers.line(4, "participant");
    servers.start(4, &[1, 2, 3, 4]);
    let added = servers.change(&["add", &line]);
    assert_eq!(added.out, "server 4 added; voters: 1, 2, 3, 4\n");
    let observer = servers.line(5, "observer");
    let added = servers.change(&["add", &observer]);
    assert_eq!(
        added.out,
        "server 5 added; voters: 1, 2, 3, 4; observers: 5\n"
    );
    servers.start(5, &[1, 2, 3, 4, 5]);
    servers.until_all_answer(5);
    // Data is there, too.
    let client = format!("127.0.0.1:{}", servers.place(4).clients);
    let read = servers.run(&["get", "/kept", "--servers", &client]);
    assert_eq!((read.code, read.out.trim_end()), (0, "x"), "{read:?}");
    // An observer comes to vote, and votes no more.
    let voter = observer.replace(":observer", "");
    let promoted = servers.change(&["add", &voter]);
    assert_eq!(promoted.out, "server 5 added; voters: 1, 2, 3, 4, 5\n");
    let demoted = servers.change(&["add", &observer]);
    assert_eq!(
        demoted.out,
        "server 5 added; voters: 1, 2, 3, 4; observers: 5\n"
    );
    servers.change(&["remove", "5"]);
    let removed = servers.change(&["remove", "4"]);
    assert_eq!(removed.out, "server 4 removed; voters: 1, 2, 3\n");
    servers.until_all_answer(3);
    assert_eq!(servers.run(&["set", "/kept", "y"]).code, 0);
}

/// With the files and the settings that `baton cert` prints.
#[test]
fn an_ensemble_with_tls_goes_on_after_a_kill_and_takes_a_member_that_has_a_certificate() {
    let mut servers = Servers::unstarted(4);
    let made = servers.home.run(&["cert", "init", "tls", "127.0.0.1"]);
    assert_eq!(made.code, 0, "{made:?}");
    servers.more = vec![
        "--peer-tls",
        "--peer-tls-cert=tls/server.pem",
        "--peer-tls-key=tls/server.key",
        "--peer-tls-ca=tls/ca.pem",
    ];
    for id in 1..=3 {
        servers.start(id, &[1, 2, 3]);
    }
    servers.until_all_answer(3);
    assert_eq!(servers.run(&["create", "/kept", "x"]).code, 0);
    let leader = servers.leader();
    drop(servers.running[leader - 1].take());
    let set = servers.run(&["set", "/kept", "y", "--connect-timeout", "60s"]);
    assert_eq!(set.code, 0, "{set:?}");
    servers.start(leader, &[1, 2, 3]);
    servers.until_all_answer(3);
    // A client's certificate of the same authority does not make a server.
    servers.more[1] = "--peer-tls-cert=tls/client.pem";
    servers.more[2] = "--peer-tls-key=tls/client.key";
    servers.start(4, &[1, 2, 3, 4]);
    let refused = servers.running[3].take().unwrap().end();
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(
        refused.err.contains("not both serverAuth and clientAuth"),
        "{refused:?}"
    );
    let issued = servers.home.run(&["cert", "server", "tls", "127.0.0.1"]);
    assert_eq!(issued.code, 0, "{issued:?}");
    servers.more[1] = "--peer-tls-cert=tls/127.0.0.1.pem";
    servers.more[2] = "--peer-tls-key=tls/127.0.0.1.key";
    servers.start(4, &[1, 2, 3, 4]);
    let line = servers.line(4, "participant");
    let added = servers.change(&["add", &line]);
    assert_eq!(added.out, "server 4 added; voters: 1, 2, 3, 4\n");
    let client = format!("127.0.0.1:{}", servers.place(4).clients);
    let read = servers.run(&["get", "/kept", "--servers", &client]);
    assert_eq!((read.code, read.out.trim_end()), (0, "y"), "{read:?}");
}

/// With TLS everywhere, and certificates for passwords.
#[test]
fn the_members_of_an_ensemble_with_tls_obey_the_certificate_of_the_superuser_alone() {
    let mut servers = Servers::unstarted(4);
    let made = servers.home.run(&["cert", "init", "tls", "127.0.0.1"]);
    assert_eq!(made.code, 0, "{made:?}");
    let made = servers.home.run(&["cert", "client", "tls", "admin"]);
    assert_eq!(made.code, 0, "{made:?}");
    servers.more = vec![
        "--peer-tls",
        "--peer-tls-cert=tls/server.pem",
        "--peer-tls-key=tls/server.key",
        "--peer-tls-ca=tls/ca.pem",
        "--tls-cert=tls/server.pem",
        "--tls-key=tls/server.key",
        "--tls-ca=tls/ca.pem",
        "--tls-super-subject=CN=admin",
        "--require-auth=x509",
    ];
    servers.tls = Some(Some("admin"));
    for id in 1..=3 {
        servers.start(id, &[1, 2, 3]);
    }
    servers.until_all_answer(3);
    servers.start(4, &[1, 2, 3, 4]);
    let line = servers.line(4, "participant");
    let http: Vec<_> = (1..=4)
        .map(|id| format!("127.0.0.1:{}", servers.place(id).http))
        .collect();
    let http = http.join(",");
    let other = (servers.leader() % 3 + 1).to_string();
    let transfer = ["server", "transfer", &other, "--http", &http];
    // Nobody, and a client who is not the superuser.
    for (identity, part) in [
        (None, "certificate"),
        (Some("client"), "may not change the members"),
    ] {
        servers.tls = Some(identity);
        let brief = ["--connect-timeout", "2s"];
        let refused = servers.run(&[&["server", "add", &line][..], &brief].concat());
        assert_ne!(refused.code, 0, "{refused:?}");
        assert!(refused.complaint().contains(part), "{refused:?}");
    }
    let refused = servers.run(&transfer);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused.complaint().contains("refused by the server"),
        "{refused:?}"
    );
    servers.tls = Some(Some("admin"));
    let added = servers.run(&["server", "add", &line]);
    assert_eq!(
        (added.code, added.out.as_str()),
        (0, "server 4 added; voters: 1, 2, 3, 4\n"),
        "{added:?}"
    );
    let transferred = servers.run(&transfer);
    assert_eq!(
        (transferred.code, transferred.out.as_str()),
        (0, format!("server {other} leads\n").as_str()),
        "{transferred:?}"
    );
    // That port has TLS only.
    let plain = format!("http://127.0.0.1:{}", servers.place(1).http);
    let third = (servers.leader() % 3 + 1).to_string();
    let refused = servers.run(&["server", "transfer", &third, "--http", &plain]);
    assert_eq!(refused.code, 125, "{refused:?}");
    let removed = servers.run(&["server", "remove", "4"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    servers.until_all_answer(3);
}

#[test]
fn r17_a_server_that_has_lost_its_data_is_replaced_under_its_id() {
    let mut servers = Servers::three_and(0);
    assert_eq!(servers.run(&["create", "/kept", "x"]).code, 0);
    let sound = servers.run(&["server", "replace", "3", "--auth-file", "auth"]);
    assert_eq!(sound.code, 1, "{sound:?}");
    assert!(sound.err.contains("has its data"), "{sound:?}");
    servers.lose(3);
    let brief = ["replace", "3", "--wait", "1s"];
    let absent = servers.run(&[&["server"], &brief[..], &["--auth-file", "auth"]].concat());
    assert_eq!(absent.code, 1, "{absent:?}");
    assert!(absent.err.contains("no server waits at"), "{absent:?}");
    // It waits for a server that does not listen yet.
    let replacing = servers.begin(&["replace", "3"]);
    replacing.until_said(&servers, "trying for");
    servers.start(3, &[1, 2, 3]);
    let replaced = replacing.running.end();
    assert_eq!(
        (replaced.code, replaced.out.as_str()),
        (0, "server 3 replaced; voters: 1, 2, 3\n"),
        "{replaced:?}"
    );
    servers.until_all_answer(3);
    let client = format!("127.0.0.1:{}", servers.place(3).clients);
    let read = servers.run(&["get", "/kept", "--servers", &client]);
    assert_eq!((read.code, read.out.trim_end()), (0, "x"), "{read:?}");
}

/// The servers would list it at once, and tolerate one failure fewer than the list says.
#[test]
fn a_voter_is_added_once_it_runs_and_within_the_time_that_is_given() {
    let mut servers = Servers::three_and(1);
    let line = servers.line(4, "participant");
    let brief = [
        "server",
        "add",
        &line,
        "--wait",
        "1s",
        "--auth-file",
        "auth",
    ];
    let absent = servers.run(&brief);
    assert_eq!(absent.code, 1, "{absent:?}");
    assert!(absent.err.contains("no server waits at"), "{absent:?}");
    let adding = servers.begin(&["add", &line]);
    adding.until_said(&servers, "trying for");
    assert_eq!(servers.members().len(), 3, "it is not listed");
    servers.start(4, &[1, 2, 3, 4]);
    let added = adding.running.end();
    assert_eq!(
        (added.code, added.out.as_str()),
        (0, "server 4 added; voters: 1, 2, 3, 4\n"),
        "{added:?}"
    );
    servers.change(&["remove", "4"]);
    servers.lose(4);
    servers.start(4, &[1, 2, 3, 4]);
    until("it listens", || {
        std::net::TcpStream::connect(("127.0.0.1", servers.place(4).clients)).is_ok()
    });
    // It has a connection and goes no further until the command has ended.
    let paused = servers.running[3].as_ref().unwrap();
    paused.signal("STOP");
    let late = servers.run(&brief);
    assert_ne!(late.code, 0, "{late:?}");
    assert!(late.err.contains("within 1s"), "{late:?}");
    paused.signal("CONT");
    servers.change(&["add", &line]);
    servers.until_all_answer(4);
}

#[test]
fn leadership_moves_to_the_server_that_is_named() {
    let servers = Servers::three_and(0);
    let http: Vec<_> = servers
        .places
        .iter()
        .map(|place| format!("127.0.0.1:{}", place.http))
        .collect();
    let http = http.join(",");
    let to = servers.leader() % 3 + 1;
    let id = to.to_string();
    let transferred = servers.change(&["transfer", &id, "--http", &http]);
    assert_eq!(transferred.out, format!("server {id} leads\n"));
    let refused = servers.run(&[
        "server",
        "transfer",
        &(to % 3 + 1).to_string(),
        "--http",
        &http,
    ]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("Authorization"), "{refused:?}");
}

#[test]
fn r34_a_lone_server_becomes_three_without_losing_a_znode() {
    let mut servers = Servers::unstarted(3);
    let clients = servers.place(1).clients;
    let listen = format!("127.0.0.1:{clients}");
    let alone = ["serve", "--data-dir", "alone", "--listen", &listen];
    let mut lone = servers.home.spawn(&alone);
    assert!(lone.line().contains("serving on"));
    let create = ["create", "/kept", "x", "--servers", &listen];
    assert_eq!(servers.home.run(&create).code, 0);
    lone.signal("TERM");
    assert_eq!(lone.end().code, 0);
    let address = format!("127.0.0.1:{}", servers.place(1).peers);
    let recover = [
        "server",
        "recover",
        "--from",
        "alone",
        "--into",
        "data-1",
        "--server-id",
        "1",
        "--address",
        &address,
    ];
    let made = servers.home.run(&recover);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(
        made.out.starts_with("data-1: a cluster of server 1 alone"),
        "{made:?}"
    );
    // Neither folder is made again, nor a member's taken for a lone server's.
    assert_eq!(servers.home.run(&recover).code, 125);
    let again = [&recover[..3], &["data-1", "--into", "x"], &recover[6..]].concat();
    let refused = servers.home.run(&again);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(
        refused.complaint().contains("--majority-lost"),
        "{refused:?}"
    );
    servers.start(1, &[1]);
    servers.until_all_answer(1);
    for id in [2, 3] {
        let list: Vec<usize> = (1..=id).collect();
        servers.start(id, &list);
        servers.change(&["add", &servers.line(id, "participant")]);
    }
    servers.until_all_answer(3);
    let third = format!("127.0.0.1:{}", servers.place(3).clients);
    let read = servers.run(&["get", "/kept", "--servers", &third]);
    assert_eq!((read.code, read.out.trim_end()), (0, "x"), "{read:?}");
}

#[test]
fn r20_the_last_of_three_servers_begins_a_new_cluster_with_its_data() {
    let mut servers = Servers::three_and(0);
    assert_eq!(servers.run(&["create", "/kept", "x"]).code, 0);
    let third = format!("127.0.0.1:{}", servers.place(3).clients);
    let get = ["get", "/kept", "--servers", &third];
    until("server 3 has it", || servers.run(&get).code == 0);
    servers.lose(1);
    servers.lose(2);
    drop(servers.running[2].take());
    std::fs::rename(servers.home.path("data-3"), servers.home.path("old")).unwrap();
    let address = format!("127.0.0.1:{}", servers.place(3).peers);
    let recover = [
        "server",
        "recover",
        "--majority-lost",
        "--from=old",
        "--into=data-3",
        "--server-id=3",
        "--address",
        &address,
    ];
    let made = servers.home.run(&recover);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.err.contains("a new cluster begins"), "{made:?}");
    servers.start(3, &[3]);
    servers.until_all_answer(1);
    let read = servers.run(&get);
    assert_eq!((read.code, read.out.trim_end()), (0, "x"), "{read:?}");
    assert_eq!(servers.run(&["set", "/kept", "y"]).code, 0);
    // No other cluster begins with the old folder.
    let into = servers.home.path("data-3").display().to_string();
    let again = servers
        .home
        .run(&[&recover[..4], &["--into=other"], &recover[5..]].concat());
    let started = servers.home.run(&[
        "serve",
        "--data-dir=old",
        "--listen=127.0.0.1:0",
        "--server-id=3",
        "--reconfig",
        "--server",
        &format!("3={address}"),
    ]);
    for ran in [again, started, servers.home.run(&["wal", "verify", "old"])] {
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.err.contains("a new cluster began with it"), "{ran:?}");
        assert!(ran.err.contains(&into), "{ran:?}");
    }
    assert!(!servers.home.path("other").exists());
}

/// The way back after the loss of all three.
#[test]
fn r20_a_backup_of_one_of_three_becomes_the_first_of_another_three() {
    let mut servers = Servers::three_and(0);
    assert_eq!(servers.run(&["create", "/kept", "x"]).code, 0);
    let follower = servers.leader() % 3 + 1;
    // The follower may lag behind what another one has acknowledged.
    let client = format!("127.0.0.1:{}", servers.place(follower).clients);
    let read = servers.run(&["get", "/kept", "--servers", &client]);
    assert_eq!(read.code, 0, "{read:?}");
    let http = format!("127.0.0.1:{}", servers.place(follower).http);
    let ran = servers.run(&["backup", "--http", &http, "--auth-file", "auth", "it"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for id in 1..=3 {
        servers.lose(id);
    }
    let address = format!("127.0.0.1:{}", servers.place(1).peers);
    let ran = servers.run(&[
        "restore",
        "it",
        "--data-dir",
        "data-1",
        "--server-id",
        "1",
        "--address",
        &address,
        "--no-hold",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    servers.start(1, &[1]);
    servers.start(2, &[1, 2, 3]);
    servers.start(3, &[1, 2, 3]);
    let (second, third) = (
        servers.line(2, "participant"),
        servers.line(3, "participant"),
    );
    servers.change(&["add", &second, &third, "--connect-timeout", "60s"]);
    servers.until_all_answer(3);
    let client = format!("127.0.0.1:{}", servers.place(3).clients);
    let read = servers.run(&["get", "/kept", "--servers", &client]);
    assert_eq!((read.code, read.out.trim_end()), (0, "x"), "{read:?}");
    assert_eq!(servers.run(&["set", "/kept", "y"]).code, 0);
}
