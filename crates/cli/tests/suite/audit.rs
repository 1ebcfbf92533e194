//! The audit record of `baton serve`: where it is, and what stops the start.

use crate::common::CommandHome;

const CREATED: &str =
    "\toperation=create\tznode=/a\tznode_type=persistent\tacl=world:anyone:cdrwa\tresult=success";

/// Serves with these arguments, creates `/a`, and stops; what the server said at the end.
fn serve(home: &CommandHome, arguments: &[&str]) -> String {
    let mut server = home.spawn(&[&["serve"], arguments].concat());
    let line = server.line();
    let address = line.split_whitespace().nth(3).unwrap();
    let ran = home.run(&["create", "/a", "x", "--servers", address]);
    assert_eq!(ran.code, 0, "{line}: {ran:?}");
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.err
}

#[test]
fn a_relative_name_is_one_of_the_folder_where_the_server_was_started() {
    let home = CommandHome::new();
    let data = home.path("data");
    let data = data.display().to_string();
    let arguments = ["--data-dir", &data, "--listen", "127.0.0.1:0"];
    let said = serve(
        &home,
        &[&arguments[..], &["--audit", "./audit.log"]].concat(),
    );
    let record = std::fs::read_to_string(home.path("audit.log")).unwrap();
    assert!(record.contains(CREATED), "{record}");
    assert!(
        record.ends_with("\tuser=server\toperation=serverStop\tresult=invoked\n"),
        "{record}"
    );
    assert!(!said.contains("operation="), "{said}");
}

#[test]
fn the_record_of_a_zoo_cfg_is_in_the_log() {
    let home = CommandHome::new();
    let port = baton_testkit::free_addr().unwrap().port();
    let text = format!(
        "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\naudit.enable=true\n",
        home.path("zk").display()
    );
    std::fs::write(home.path("zoo.cfg"), text).unwrap();
    let said = serve(&home, &["--config", "zoo.cfg"]);
    assert!(said.contains(CREATED), "{said}");
    assert!(said.contains("operation=serverStart"), "{said}");
}

#[test]
fn a_record_that_cannot_be_written_stops_the_start() {
    let home = CommandHome::new();
    let ran = home.run(&[
        "serve",
        "--ephemeral",
        "--listen",
        "127.0.0.1:0",
        "--audit",
        "./no/audit",
    ]);
    assert_ne!(ran.code, 0, "{ran:?}");
    let complaint = ran.complaint();
    assert!(
        complaint.contains("cannot write the audit record to ")
            && complaint.contains("no/audit: ")
            && complaint.contains("name a file in a folder that this user may write to"),
        "{ran:?}"
    );
}
