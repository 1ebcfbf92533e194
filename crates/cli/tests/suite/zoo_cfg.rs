//! `baton serve --config`: a ZooKeeper zoo.cfg is served, and one that is wrong is refused at its
//! line.

use std::net::TcpListener;

use crate::common::{CommandHome, Ran, RunningCommand};

#[test]
fn a_zoo_cfg_is_served_and_what_has_no_effect_is_named() {
    let home = CommandHome::new();
    let port = baton_testkit::free_addr().unwrap().port();
    std::fs::write(
        home.path("zoo.cfg"),
        format!(
            "tickTime=2000\ninitLimit=10\ndataDir={}\ndataLogDir=/nowhere\nclientPort={port}\nclientPortAddress=127.0.0.1\n",
            home.path("zk").display()
        ),
    )
    .unwrap();
    let mut server = home.spawn(&["serve", "--config", "zoo.cfg"]);
    let address = format!("127.0.0.1:{port}");
    assert!(server.line().contains(&address));
    let ran = home.run(&["create", "/a", "x", "--servers", &address]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let ran = home.run(&["get", "/a", "--servers", &address]);
    assert_eq!(ran.out.trim_end(), "x", "{ran:?}");
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(
        ended.err.contains(
            "without effect: initLimit (a server alone has no ensemble); dataLogDir (the log is in the data folder)"
        ),
        "{ended:?}"
    );
    assert!(home.path("zk/baton/FORMAT").exists());
}

#[test]
fn what_a_zoo_cfg_comes_to_is_printed_as_a_baton_toml_that_is_served_alike() {
    let home = CommandHome::new();
    std::fs::write(
        home.path("zoo.cfg"),
        "tickTime=2000\ndataDir=/zk\nclientPort=2181\nnosuch=1\n",
    )
    .unwrap();
    let ran = home.run(&[
        "serve",
        "--config",
        "zoo.cfg",
        "--print-config",
        "--tick",
        "50ms",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for line in [
        "data_dir = \"/zk/baton\"  # zoo.cfg:2 dataDir",
        "min_session_timeout = \"4s\"  # zoo.cfg:1 tickTime, 2 ticks",
        "tick = \"50ms\"  # --tick",
        "server_id = 1  # default",
        "listen = [\"*:2181\"]  # zoo.cfg:3 clientPort  # OPEN: *:2181 to every machine that reaches it, without encryption and \
         authentication",
    ] {
        assert!(ran.out.lines().any(|printed| printed == line), "{ran:?}");
    }
    assert!(
        ran.err.contains("without effect: nosuch (unknown)"),
        "{ran:?}"
    );
    assert!(
        ran.err.contains("such a server does not start: listen = [\"*:2181\"] (zoo.cfg:3 clientPort) must not be open"),
        "{ran:?}"
    );
    std::fs::write(home.path("baton.toml"), &ran.out).unwrap();
    let again = home.run(&[
        "serve",
        "--config",
        "baton.toml",
        "--print-config",
        "--json",
    ]);
    assert_eq!(again.code, 0, "{again:?}");
    let mut printed = ran.out.lines();
    let at = printed.position(|line| line.starts_with("min_session_timeout"));
    let origin = format!("baton.toml:{} min_session_timeout", at.unwrap() + 1);
    let row = format!(r#"{{"name":"min_session_timeout","value":"\"4s\"","origin":"{origin}"}}"#);
    assert!(again.out.contains(&row), "{row}: {again:?}");
    assert!(!home.path("zk").exists());
}

#[test]
fn a_zoo_cfg_that_is_wrong_is_refused_with_2_and_its_line() {
    let home = CommandHome::new();
    let ran = home.run(&["serve", "--config", "none.cfg"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("none.cfg"), "{ran:?}");
    std::fs::write(home.path("zoo.cfg"), "clientPort=2181\n\ndataDir\n").unwrap();
    let ran = home.run(&["serve", "--config", "zoo.cfg"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("zoo.cfg:3: 'dataDir'"), "{ran:?}");
}

#[test]
fn a_zoo_cfg_that_asks_for_authentication_is_not_served_without_it() {
    let home = CommandHome::new();
    let zk = home.path("zk");
    let text = format!(
        "dataDir={}\nclientPort=0\nenforce.auth.enabled=true\nenforce.auth.schemes=sasl\n",
        zk.display()
    );
    std::fs::write(home.path("zoo.cfg"), &text).unwrap();
    for more in [&[][..], &["--print-config"]] {
        let ran = home.run(&[&["serve", "--config", "zoo.cfg"], more].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        let said = ran.complaint();
        assert!(said.contains("zoo.cfg:4 enforce.auth.schemes"), "{said}");
        assert!(said.contains("--sasl-users"), "{said}");
    }
    assert!(!zk.exists(), "nothing was made");
}

/// `clientPort` of a zoo.cfg is every address, of IPv6 and IPv4, as in ZooKeeper.
#[test]
fn the_client_port_of_a_zoo_cfg_takes_both_kinds_of_address_and_the_start_reports_what_is_bound() {
    let home = CommandHome::new();
    let text = format!(
        "dataDir={}\nclientPort=0\njute.maxbuffer=100\n",
        home.path("zk").display()
    );
    std::fs::write(home.path("zoo.cfg"), &text).unwrap();
    let ran = home.run(&["serve", "--config", "zoo.cfg"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let said = ran.complaint();
    assert!(
        said.contains("listen = [\"*:0\"] (zoo.cfg:2 clientPort) must not be open")
            && said.contains("insecure = true"),
        "{said}"
    );
    assert!(!home.path("zk").exists(), "nothing was made");
    std::fs::write(home.path("zoo.cfg"), format!("{text}insecure=true\n")).unwrap();
    let mut server = home.spawn(&["serve", "--config", "zoo.cfg"]);
    let line = server.line();
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    let bound = if has_ipv6 { "[::]:" } else { "0.0.0.0:" };
    let (_, after) = line.split_once(bound).unwrap_or_else(|| panic!("{line}"));
    let port: String = after.chars().take_while(char::is_ascii_digit).collect();
    let hosts = ["127.0.0.1", "[::1]"];
    for host in &hosts[..if has_ipv6 { 2 } else { 1 }] {
        let ran = home.run(&["ls", "/", "--servers", &format!("{host}:{port}")]);
        assert_eq!(ran.code, 0, "{host}: {ran:?}");
    }
    server.signal("TERM");
    let ended = server.end();
    let warned = format!("no authentication, no encryption: all who reach {bound}{port} ");
    assert!(ended.err.contains(&warned), "{ended:?}");
}

#[test]
fn a_server_on_every_address_says_so_and_one_on_loopback_warns_of_nothing() {
    let home = CommandHome::new();
    for (listen, shown, warned) in [
        ("0.0.0.0:0", "0.0.0.0:", true),
        ("127.0.0.1:0", "127.0.0.1:", false),
    ] {
        let serve = ["serve", "--ephemeral", "--listen", listen, "--insecure"];
        let mut server = home.spawn(&serve[..if warned { 5 } else { 4 }]);
        let line = server.line();
        assert!(line.contains(&format!("serving on {shown}")), "{line}");
        server.signal("TERM");
        let ended = server.end();
        assert_eq!(ended.err.contains("no authentication"), warned, "{ended:?}");
    }
    let http = [
        "serve",
        "--ephemeral",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "0.0.0.0:0",
    ];
    let ran = home.run(&http);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.complaint().contains("http_token_file"), "{ran:?}");
    let insecure = |value: &str| {
        let mut command = home.baton(&http);
        command.env("BATON_INSECURE", value);
        command
    };
    for value in ["perhaps", "false"] {
        let ran = Ran::from(insecure(value).output().unwrap());
        assert_eq!(ran.code, 2, "{value}: {ran:?}");
    }
    let mut server = RunningCommand::new(insecure("true"));
    assert!(server.line().contains("HTTP on 0.0.0.0:"));
    server.signal("TERM");
    let ended = server.end();
    assert!(ended.err.contains(" (HTTP) read paths"), "{ended:?}");
}

/// The files of a ZooKeeper ensemble, as they are: the same lines in each, and a `myid`.
#[test]
fn the_zoo_cfgs_of_three_servers_are_one_ensemble() {
    let home = CommandHome::new();
    let port = || baton_testkit::free_addr().unwrap().port();
    let lines: String = (1..=3)
        .map(|id| {
            let (quorum, election, client) = (port(), port(), port());
            format!("server.{id}=127.0.0.1:{quorum}:{election}:participant;127.0.0.1:{client}\n")
        })
        .collect();
    let mut servers: Vec<_> = (1..=3)
        .map(|id| {
            let folder = home.path(&format!("zk{id}"));
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("myid"), format!("{id}\n")).unwrap();
            let text = format!(
                "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\n{lines}",
                folder.display()
            );
            let name = format!("zoo{id}.cfg");
            std::fs::write(home.path(&name), text).unwrap();
            home.spawn(&["serve", "--config", &name])
        })
        .collect();
    // Each answers once it has met the others.
    for server in &mut servers {
        let line = server.line();
        assert!(line.contains("serving on 127.0.0.1:"), "{line}");
    }
    let clients: Vec<_> = lines
        .lines()
        .filter_map(|line| Some(line.split_once(';')?.1))
        .collect();
    let patience = ["--connect-timeout", "60s", "--servers"];
    let create = [&["create", "/a", "x"], &patience[..], &[clients[0]]].concat();
    let ran = home.run(&create);
    assert_eq!(ran.code, 0, "{ran:?}");
    // Another server has applied the write before it has opened a session.
    let get = [&["get", "/a"], &patience[..], &[clients[2]]].concat();
    let ran = home.run(&get);
    assert_eq!((ran.code, ran.out.trim_end()), (0, "x"), "{ran:?}");
    for server in &servers {
        server.signal("TERM");
    }
    for server in servers {
        let ended = server.end();
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(
            ended
                .err
                .contains("without effect: initLimit, syncLimit (servers agree"),
            "{ended:?}"
        );
    }
}
