//! Identity of a verb to a server with ACLs, and what others may do with what it creates: users of
//! SASL, `--acl`, `baton acl set`.

use baton_testkit::{ServerOptions, inspect};

use crate::common::{Ran, RunningCommand, ServedHome, number_in};

const BATON: &str = env!("CARGO_BIN_EXE_baton");

/// A server that knows bob and eve, and a file of credentials for each.
struct Users {
    served: ServedHome,
    bob: String,
    eve: String,
}

impl Users {
    async fn new() -> Self {
        Self::with(false).await
    }

    async fn with(requires_sasl: bool) -> Self {
        let users = [("bob", "secret"), ("eve", "other")];
        let users = users.map(|(name, password)| (name.to_owned(), password.to_owned()));
        let options = ServerOptions {
            sasl_users: users.to_vec(),
            requires_sasl,
            ..ServerOptions::default()
        };
        let served = ServedHome::with(options).await;
        let file = |name: &str, text: &str| {
            let path = served.home.write_secret(name, text);
            path.display().to_string()
        };
        let bob = file("bob", "sasl:bob:secret\n");
        let eve = file("eve", "sasl:eve:other\n");
        Self { served, bob, eve }
    }

    fn run_as(&self, file: &str, args: &[&str]) -> Ran {
        let mut command = self.served.baton(args);
        command.env("BATON_AUTH_FILE", file).env("BATON", BATON);
        Ran::from(command.output().unwrap())
    }

    fn bob(&self, args: &[&str]) -> Ran {
        self.run_as(&self.bob, args)
    }

    fn eve(&self, args: &[&str]) -> Ran {
        self.run_as(&self.eve, args)
    }

    fn bob_does(&self, args: &[&str]) -> String {
        let ran = self.bob(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.out
    }
}

/// Prints the ACL of each node below `/t`, and the node.
const WALK: &str = r#""$BATON" ls -r /t | while read -r p; do printf '%s %s\n' "$("$BATON" acl "$p" | tr '\n' ';')" "$p"; done"#;

#[tokio::test(flavor = "multi_thread")]
async fn each_verb_gives_what_it_creates_the_acl_that_is_asked_for_parents_included() {
    let users = Users::new().await;
    let walk = |by: &[&str]| {
        let out = users.bob_does(&[&["--acl", "creator"], by].concat());
        let lines: Vec<_> = out.lines().filter(|line| line.contains("/t")).collect();
        for line in &lines {
            assert!(line.starts_with("rwcda sasl bob; /t"), "{by:?}: {line}");
        }
        lines.len()
    };
    let walk_with = |by: &[&str]| {
        let lines = walk(&[by, &["--", "sh", "-c", WALK]].concat());
        assert!(lines >= 3, "{by:?} shows {lines} nodes");
    };
    walk_with(&["lock", "/t/lock/a"]);
    walk_with(&["lock", "--shared", "/t/shared/a"]);
    walk_with(&["sem", "/t/sem/a", "--slots", "2"]);
    walk_with(&["elect", "/t/elect/a"]);
    walk_with(&["member", "join", "/t/member/a"]);
    walk_with(&["barrier", "/t/barrier/a", "--count", "1"]);
    for verb in [
        &["create", "-p", "/t/create/a", "1"][..],
        &["counter", "add", "/t/counter/a"],
        &["queue", "put", "/t/queue/a", "item"],
        &["queue", "put", "/t/priority/a", "--priority", "3", "item"],
        &["queue", "put", "/t/delay/a", "--delay", "1h", "item"],
        &["queue", "put", "/t/id/a", "--id", "17", "item"],
        &["queue", "work", "put", "/t/work/a", "item"],
        &["barrier", "close", "/t/gate/a"],
    ] {
        users.bob_does(&[&["--acl", "creator"], verb].concat());
    }
    walk_with(&["queue", "work", "/t/work/a", "--until-empty"]);
    let all = users.bob_does(&["ls", "-r", "/t"]);
    for kind in [
        "lock", "sem", "elect", "member", "barrier", "create", "counter", "queue", "priority",
        "delay", "id", "work", "gate",
    ] {
        assert!(all.contains(&format!("/t/{kind}")), "{kind}: {all}");
    }
    let refused = users.eve(&["ls", "/t"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(
        refused
            .complaint()
            .contains("missing: permission read on /t"),
        "{refused:?}"
    );
    let refused = users.eve(&["lock", "/t/lock/a", "--", "true"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert!(
        refused
            .complaint()
            .contains("missing: permission create on /t/lock/a"),
        "{refused:?}"
    );
}

/// Others may create nodes of theirs and read, not delete: a node of theirs goes with its session.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_may_wait_and_hold_and_not_break() {
    let users = Users::new().await;
    users.bob_does(&["create", "/g"]);
    users.bob_does(&["acl", "set", "/g", "sasl:bob=all", "sasl:eve=read+create"]);
    let acl = ["--acl", "creator=all;sasl:bob=all;sasl:eve=read"];
    let held = users.bob_does(
        &[
            &acl[..],
            &["lock", "/g", "--", "sh", "-c"],
            &[r#"BATON_AUTH_FILE=eve "$BATON" rm "$BATON_NODE" 2>&1; BATON_AUTH_FILE=eve "$BATON" set "$BATON_NODE" x 2>&1
                 BATON_AUTH_FILE=eve "$BATON" lock ls /g"#],
        ]
        .concat(),
    );
    assert!(held.contains("missing: permission delete on /g"), "{held}");
    assert!(held.contains("missing: permission write on /g/"), "{held}");
    assert!(held.contains("/g"), "{held}");
    // It waits, holds, and is gone when its session is.
    let ran = users.eve(&[&acl[..], &["lock", "/g", "--", "echo", "held"]].concat());
    assert_eq!((ran.code, ran.out.as_str()), (0, "held\n"), "{ran:?}");
    assert_eq!(users.bob_does(&["ls", "/g"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acl_is_set_in_words_and_read_again() {
    let users = Users::new().await;
    users.bob_does(&["create", "/n", "1"]);
    assert_eq!(users.bob_does(&["acl", "/n"]), "rwcda world anyone\n");
    let set = ["acl", "set", "/n", "creator=all", "everyone=read"];
    assert_eq!(users.bob_does(&set), "version 1\n");
    assert_eq!(
        users.bob_does(&["acl", "/n"]),
        "rwcda sasl bob\nr world anyone\n"
    );
    assert_eq!(users.eve(&["get", "/n"]).out, "1\n");
    for (args, missing) in [
        (&["set", "/n", "2"][..], "permission write on /n"),
        (&["acl", "set", "/n", "everyone"], "permission admin on /n"),
        (&["create", "/n/c"], "permission create on /n"),
    ] {
        let refused = users.eve(args);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.complaint().contains(missing), "{refused:?}");
    }
    let old = users.bob(&["acl", "set", "/n", "everyone", "--if-version", "0"]);
    assert_eq!(old.code, 1, "{old:?}");
    // ZooKeeper's form, and an id of another scheme.
    users.bob_does(&["acl", "set", "/n", "sasl:bob:cdrwa", "ip:127.0.0.1:r"]);
    assert_eq!(
        users.bob_does(&["acl", "/n"]),
        "rwcda sasl bob\nr ip 127.0.0.1\n"
    );
    for (entry, code, part) in [
        ("bob", 2, "WHO=PERMISSIONS"),
        ("sasl:bob=reed", 2, "permissions are read, write"),
        ("nonsense:bob=read", 1, "an unknown scheme"),
    ] {
        let ran = users.bob(&["acl", "set", "/n", entry]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert!(ran.complaint().contains(part), "{ran:?}");
    }
    // Nobody's ACL cannot be its creator's.
    let nobody = users.served.run(&["create", "/o", "--acl", "creator"]);
    assert_eq!(nobody.code, 1, "{nobody:?}");
    assert!(nobody.complaint().contains("no credentials"), "{nobody:?}");
    let wrong = users.served.run(&["create", "/o", "--acl", "creator=x"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(
        wrong.complaint().contains("--acl: 'creator=x'"),
        "{wrong:?}"
    );
    let mut variable = users.served.baton(&["create", "/o"]);
    variable.env("BATON_ACL", "everyone=read;x");
    let wrong = Ran::from(variable.output().unwrap());
    assert!(
        wrong
            .complaint()
            .contains("BATON_ACL in the environment: 'x'"),
        "{wrong:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_and_the_acl_come_from_a_config_file_too() {
    let users = Users::new().await;
    let home = &users.served.home;
    let file = home.path(".config/baton/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!(
        "servers = \"{}\"\nauth_file = \"../../bob\"\nacl = [\"creator=all\", \"sasl:eve=read\"]\n",
        users.served.servers
    );
    std::fs::write(&file, text).unwrap();
    let made = home.run(&["create", "/n", "1"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(home.run(&["acl", "/n"]).out, "rwcda sasl bob\nr sasl eve\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_not_let_in_reads_one_line_that_names_the_server_and_the_file() {
    let strict = Users::with(true).await;
    strict.bob_does(&["create", "/n", "1"]);
    let home = &strict.served.home;
    let wrong = home.write_secret("wrong", "sasl:bob:guessed\n");
    let wrong = wrong.display().to_string();
    let ran = strict.run_as(&wrong, &["get", "/n"]);
    assert_eq!(ran.code, 125, "{ran:?}");
    let said = ran.complaint();
    for part in [
        strict.served.servers.as_str(),
        "refused the user or the password of SASL",
        "BATON_AUTH_FILE in the environment",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!ran.err.contains("guessed"), "{ran:?}");

    // Without any, and with some that the server does not ask for.
    let digest = home.write_secret("digest", "digest:bob:secret\n");
    for file in ["", digest.to_str().unwrap()] {
        for args in [
            &["get", "/n"][..],
            &["create", "/new", "1"],
            &["member", "ls", "/m"],
            &["lock", "/l", "--", "true"],
            &["counter", "get", "/c"],
            &["server", "ls"],
        ] {
            let ran = strict.run_as(file, args);
            assert_eq!(ran.code, 125, "{args:?}: {ran:?}");
            let said = ran.complaint();
            assert!(
                said.contains("credentials that it knows"),
                "{args:?}: {said}"
            );
            assert!(!said.contains("maybe"), "it was refused: {said}");
        }
    }

    let plain = ServedHome::new().await;
    let mut command = plain.baton(&["get", "/n"]);
    command.env("BATON_AUTH_FILE", &strict.bob);
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 125, "{ran:?}");
    assert!(
        ran.complaint()
            .contains("does not authenticate by SASL DIGEST-MD5"),
        "{ran:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guardian_proves_who_it_is_before_it_ends_the_session_of_a_killed_baton() {
    let users = Users::with(true).await;
    let work = "echo $$ > worker; while :; do sleep 0.02; done";
    let mut holder = users.served.baton(&[
        "lock",
        "/x",
        "--session-timeout",
        "40s",
        "--",
        "sh",
        "-c",
        work,
    ]);
    holder.env("BATON_AUTH_FILE", &users.bob);
    let holder = RunningCommand::new(holder);
    number_in(&users.served.home.path("worker"));
    holder.signal("KILL");
    users.bob_does(&["lock", "/x", "--", "true"]);
    let address = users.served.server.addr();
    let report = inspect::four_letter_word(address, "mntr").await.unwrap();
    assert!(report.contains("stale_sessions_expired\t0"), "{report}");
}
