//! `baton rm`, and the lists that pass over what may not be read: what somebody else holds is not
//! deleted unasked, and one node that cannot be read hides no other. On Baton's server, or with
//! BATON_TEST_TARGET=zookeeper on Apache ZooKeeper.

use std::io::{Read, Write};
use std::process::Stdio;

use baton_client::{Acl, Client, Config, CreateMode, Op, OpCode, Perms, Session};
use baton_testkit::{Action, Match, Proxy};

use crate::common::{Ran, ServedHome};

async fn session(served: &ServedHome) -> (Client, Session) {
    let config = Config::new(&served.servers).unwrap();
    let client = Client::connect(config).await.unwrap();
    let session = client.session().await.unwrap();
    (client, session)
}

/// Makes a node that nobody may read, and that anyone may delete.
async fn hide(session: &Session, path: &str) {
    let unreadable = Acl::new(
        Perms::WRITE | Perms::ADMIN | Perms::DELETE,
        "world",
        "anyone",
    );
    session.set_acl(path, &[unreadable], None).await.unwrap();
}

fn lines(ran: &Ran) -> Vec<&str> {
    ran.out.lines().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_live_session_holds_is_shown_and_deleted_only_with_yes() {
    let served = ServedHome::new().await;
    let mut holder = served.spawn(&["lock", "/prod/deploy"]);
    assert!(holder.line().starts_with("held "));
    assert_eq!(served.run(&["create", "-p", "/prod/config", "x"]).code, 0);

    let refused = served.run(&["rm", "-r", "/prod"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    let complaint = refused.complaint();
    for part in ["/prod/deploy by ", "--yes", "nothing was deleted"] {
        assert!(complaint.contains(part), "{complaint}");
    }
    let json = served.run(&["rm", "-r", "/prod", "--json"]);
    assert!(json.err.contains("\"kind\":\"held\""), "{json:?}");
    assert_eq!(served.run(&["get", "/prod/config"]).out, "x\n");

    let dry = served.run(&["rm", "-r", "--dry-run", "/prod"]);
    assert_eq!((dry.code, lines(&dry).len()), (0, 4), "{dry:?}");
    assert!(dry.err.contains("held: /prod/deploy by "), "{dry:?}");
    let dry = served.run(&["rm", "-r", "--dry-run", "--json", "/prod"]);
    let held = |line: &&str| line.contains("\"session\":\"0x");
    assert_eq!(lines(&dry).into_iter().filter(held).count(), 1, "{dry:?}");
    assert_eq!(served.run(&["lock", "show", "/prod/deploy"]).code, 0);

    let removed = served.run(&["rm", "-r", "--yes", "--json", "/prod"]);
    assert_eq!((removed.code, lines(&removed).len()), (0, 4), "{removed:?}");
    assert_eq!(
        lines(&removed).last(),
        Some(&"{\"deleted\":\"/prod\"}"),
        "children go first"
    );
    assert_eq!(holder.end().code, 113, "its holder is notified");
    assert_eq!(served.run(&["stat", "/prod"]).code, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_members_and_claimed_items_are_held_as_well() {
    let served = ServedHome::new().await;
    for (held, part) in [
        (&["sem", "/app/sem", "--slots", "2"][..], "/app/sem by "),
        (&["elect", "/app/leader"][..], "/app/leader by "),
        (
            &["member", "join", "/app/group", "--id", "me"][..],
            "/app/group/",
        ),
        (&["queue", "work", "take", "/app/q"][..], "/app/q/items/"),
    ] {
        assert_eq!(served.run(&["queue", "work", "put", "/app/q", "x"]).code, 0);
        let mut holder = served.spawn(held);
        holder.line();
        // The queue's own nodes are held too, while it is used: by receipts beside it.
        let refused = served.run(&["rm", "-r", "/app"]);
        assert_eq!(refused.code, 1, "{held:?}: {refused:?}");
        assert!(refused.err.contains(part), "{held:?}: {refused:?}");
        holder.signal("TERM");
        holder.end();
        let removed = served.run(&["rm", "-r", "/app"]);
        assert_eq!(removed.code, 0, "{held:?}: {removed:?}");
        assert_eq!(served.run(&["stat", "/app"]).code, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_while_its_folder_is_deleted_is_deleted_too() {
    let served = ServedHome::new().await;
    let (client, session) = session(&served).await;
    assert_eq!(served.run(&["create", "-p", "/busy/one"]).code, 0);
    let proxy = Proxy::start(served.server.addr()).await.unwrap();
    // The second deletion is that of the folder.
    let deleting = proxy
        .on(Match::request(OpCode::Delete).nth(2))
        .then(Action::Hold);
    let mut command = served.baton(&["rm", "-r", "/busy"]);
    command.env("BATON_SERVERS", proxy.addr().to_string());
    let removing = crate::common::RunningCommand::new(command);
    deleting.fired().await;
    for name in ["/busy/two", "/busy/two/three"] {
        session
            .create(name, b"", CreateMode::Persistent)
            .await
            .unwrap();
    }
    deleting.release();
    let removed = removing.end();
    assert_eq!(removed.code, 0, "{removed:?}");
    assert_eq!(session.exists("/busy").await.unwrap(), None);
    client
        .close_timeout(std::time::Duration::from_secs(5))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_filled_without_end_ends_the_removal_and_is_named() {
    let served = ServedHome::new().await;
    let (_client, session) = session(&served).await;
    session
        .create("/busy", b"", CreateMode::Persistent)
        .await
        .unwrap();
    // Whatever is deleted is there again before the deletion is answered.
    let filling = session.clone();
    let filling = tokio::spawn(async move {
        loop {
            let _ = filling.create("/busy", b"", CreateMode::Persistent).await;
            for name in ["/busy/a", "/busy/b", "/busy/c"] {
                let _ = filling.create(name, b"", CreateMode::Persistent).await;
            }
        }
    });
    let removed = served.run(&["rm", "-r", "/busy"]);
    // It may have been empty at the very instant.
    if removed.code != 0 {
        assert_eq!(removed.code, 1, "{removed:?}");
        let complaint = removed.complaint();
        assert!(
            complaint.contains("others keep creating nodes there"),
            "{complaint}"
        );
    }
    filling.abort();
    let _ = filling.await;
    let _ = served.run(&["rm", "-r", "/busy"]);
    assert_eq!(session.exists("/busy").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_is_emptied_but_for_what_belongs_to_the_servers() {
    let served = ServedHome::new().await;
    let (_client, session) = session(&served).await;
    for path in ["/a/b/c", "/zookeeper-of-mine", "/z"] {
        assert_eq!(served.run(&["create", "-p", path]).code, 0);
    }
    session
        .create("/many", b"", CreateMode::Persistent)
        .await
        .unwrap();
    for some in (0..3000).collect::<Vec<_>>().chunks(500) {
        let parts: Vec<_> = some
            .iter()
            .map(|n| Op::create(format!("/many/{n}"), &b""[..], CreateMode::Persistent))
            .collect();
        session.multi(&parts).await.unwrap();
    }
    let removed = served.run(&["rm", "-r", "/"]);
    assert_eq!(removed.code, 0, "{removed:?}");
    assert!(
        removed.err.contains("/zookeeper"),
        "it says so: {removed:?}"
    );
    assert_eq!(served.run(&["ls", "/"]).out, "zookeeper\n");
    let system = served.run(&["rm", "-r", "/zookeeper"]);
    assert_eq!(system.code, 1, "{system:?}");
    assert_eq!(served.run(&["rm", "-r", "/none"]).code, 1);
    // A root of one's own is emptied, whatever is in it.
    for path in ["/mine/zookeeper/x", "/mine/y"] {
        assert_eq!(served.run(&["create", "-p", path]).code, 0);
    }
    let own = format!("{}/mine", served.servers);
    assert_eq!(served.run(&["rm", "-r", "/", "--servers", &own]).code, 0);
    assert_eq!(served.run(&["ls", "/mine"]).out, "");
}

/// Runs `baton` with a terminal for its input and errors, on which `answer` is typed.
fn on_a_terminal(served: &ServedHome, args: &[&str], answer: &str) -> (i32, String) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let open = || {
        let path = name.to_str().unwrap();
        let mut options = std::fs::OpenOptions::new();
        Stdio::from(options.read(true).write(true).open(path).unwrap())
    };
    let mut command = served.baton(args);
    command.stdin(open()).stderr(open()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut terminal = std::fs::File::from(terminal);
    let mut shown = Vec::new();
    let mut some = [0; 4096];
    while !String::from_utf8_lossy(&shown).contains("[y/N]") {
        let read = terminal.read(&mut some).unwrap();
        shown.extend_from_slice(&some[..read]);
    }
    terminal.write_all(answer.as_bytes()).unwrap();
    let status = child.wait().unwrap();
    (
        status.code().unwrap(),
        String::from_utf8_lossy(&shown).into_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_terminal_it_asks_and_does_what_is_answered() {
    let served = ServedHome::new().await;
    let mut holder = served.spawn(&["lock", "/prod/deploy"]);
    assert!(holder.line().starts_with("held "));
    let rm = ["rm", "-r", "/prod"];
    let (code, shown) = on_a_terminal(&served, &rm, "\n");
    assert_eq!(code, 1);
    assert!(shown.contains("held: /prod/deploy by "), "{shown}");
    assert_eq!(served.run(&["lock", "show", "/prod/deploy"]).code, 0);
    let (code, _) = on_a_terminal(&served, &rm, "yes\n");
    assert_eq!(code, 0);
    assert_eq!(served.run(&["stat", "/prod"]).code, 1);
    assert_eq!(holder.end().code, 113);

    assert_eq!(served.run(&["queue", "work", "put", "/q", "x"]).code, 0);
    let purge = ["queue", "work", "purge", "/q"];
    assert_eq!(on_a_terminal(&served, &purge, "no\n").0, 1);
    assert!(
        served
            .run(&["queue", "work", "depth", "/q"])
            .out
            .starts_with("items 1")
    );
    assert_eq!(on_a_terminal(&served, &purge, "y\n").0, 0);
    assert!(
        served
            .run(&["queue", "work", "depth", "/q"])
            .out
            .starts_with("items 0")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_may_not_be_read_hides_no_other_and_is_named() {
    let served = ServedHome::new().await;
    let (_client, session) = session(&served).await;
    for path in ["/app/a", "/app/secret/below", "/app/z"] {
        assert_eq!(served.run(&["create", "-p", path]).code, 0);
    }
    let mut holder = served.spawn(&["lock", "/app/z/lock"]);
    assert!(holder.line().starts_with("held "));
    hide(&session, "/app/secret").await;

    let listed = served.run(&["ls", "-r", "/app"]);
    assert_eq!(listed.code, 1, "{listed:?}");
    let seen: Vec<_> = lines(&listed).into_iter().take(5).collect();
    assert_eq!(
        seen,
        ["/app", "/app/a", "/app/secret", "/app/z", "/app/z/lock"]
    );
    assert!(listed.complaint().contains("/app/secret: passed over: "));

    let locks = served.run(&["lock", "ls", "/app"]);
    assert_eq!(locks.code, 1, "{locks:?}");
    assert!(locks.out.contains("\n/app/z/lock "), "{locks:?}");
    assert!(locks.complaint().contains("/app/secret: passed over: "));
    let json = served.run(&["lock", "ls", "/app", "--json"]);
    assert!(
        json.err.starts_with("{\"passed_over\":\"/app/secret\","),
        "{json:?}"
    );

    // A waiter that may not be read: the holder is not known for sure.
    let waiter = served.spawn(&["lock", "/app/z/lock"]);
    let mut names = Vec::new();
    crate::common::until("two waiter nodes are there", || {
        names = served
            .run(&["ls", "/app/z/lock"])
            .out
            .lines()
            .map(str::to_owned)
            .collect();
        names.len() == 2
    });
    let of = |name: &str| name.rsplit('-').next().unwrap().to_owned();
    names.sort_by_key(|name| of(name));
    hide(&session, &format!("/app/z/lock/{}", names[1])).await;
    let shown = served.run(&["lock", "show", "/app/z/lock"]);
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(shown.out.contains("\nunknown "), "{shown:?}");
    assert!(shown.complaint().contains(&names[1]), "{shown:?}");
    drop(waiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_may_not_be_read_is_named_and_a_group_that_may_not_is_refused() {
    let served = ServedHome::new().await;
    let (_client, session) = session(&served).await;
    let mut members = Vec::new();
    for id in ["a", "b"] {
        let mut member = served.spawn(&["member", "join", "/group", "--id", id]);
        member.line();
        members.push(member);
    }
    hide(&session, "/group/a").await;
    let listed = served.run(&["member", "ls", "/group"]);
    assert_eq!(listed.code, 1, "{listed:?}");
    assert!(listed.out.contains("\nb "), "{listed:?}");
    assert!(listed.complaint().contains("/group/a: passed over"));
    let mut watch = served.spawn(&["member", "watch", "/group"]);
    assert_eq!(
        watch.line(),
        "1 members: b; joined: b; not readable: /group/a"
    );
    drop(watch);
    hide(&session, "/group").await;
    let listed = served.run(&["member", "ls", "/group"]);
    assert_eq!(listed.code, 125, "{listed:?}");
    assert!(listed.complaint().contains("NoAuth"), "{listed:?}");
    drop(members);
}
