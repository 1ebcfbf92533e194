//! Identities of clients in the log: their cost, and that every replica knows them.

use super::*;

fn body_of(request: &Request<'_>) -> (Kind, Vec<u8>) {
    let mut body = Vec::new();
    request.encode(&mut body);
    (Kind::Write(request.op()), body)
}

/// Gives the connection this many further names.
fn add_names(conn: &Conn, names: usize) {
    let mut more = Identity::clone(&conn.identity());
    for _ in 0..names {
        let name = format!("user{}:{:0>30}", more.ids().len(), "");
        more.add("digest", name);
    }
    conn.set_identity(Arc::new(more));
}

fn set(path: &str) -> (Kind, Vec<u8>) {
    body_of(&Request::SetData {
        path,
        data: Some(b"x"),
        version: -1,
    })
}

/// A znode of which the connection may do everything, and nobody else anything.
fn create_own(path: &str) -> (Kind, Vec<u8>) {
    let mode = CreateMode::Persistent;
    body_of(&Request::Create(Create::new(
        path,
        None,
        vec![Acl::creator_all()],
        mode,
    )))
}

fn logged_bytes(state: &ServerState) -> u64 {
    state.stats.batch_bytes.spread().sum
}

fn version(state: &ServerState, path: &str) -> i32 {
    state.tree.read().peek(path).unwrap().0.version
}

#[test]
fn the_names_of_a_connection_go_into_the_log_once() {
    const WRITES: i32 = 20;
    let disk = FaultStorage::new();
    let (state, mut core) = driven(&disk);
    let conn = opened(&state, &mut core);
    add_names(&conn, 60);
    let names = conn.identity().bytes() as u64;
    let (kind, body) = create_own("/own");
    turn(&mut core, &[(&conn, kind, &body)]);
    let before = logged_bytes(&state);
    let (kind, body) = set("/own");
    for _ in 0..WRITES {
        turn(&mut core, &[(&conn, kind, &body)]);
    }
    assert_eq!(version(&state, "/own"), WRITES, "the log knows who it is");
    let each = (logged_bytes(&state) - before) / WRITES as u64;
    assert!(each < 128, "{each} bytes for a set of one byte");

    // A further name is one of the connection from the next write on.
    add_names(&conn, 1);
    let newest = conn.identity().ids().last().unwrap().clone();
    let acl = vec![Acl::new(baton_proto::Perms::ALL, "digest", newest.id)];
    let newest = Create::new("/newest", None, acl, CreateMode::Persistent);
    let (create_kind, create_body) = body_of(&Request::Create(newest));
    turn(&mut core, &[(&conn, create_kind, &create_body)]);
    let (kind, body) = set("/newest");
    turn(&mut core, &[(&conn, kind, &body), (&conn, kind, &body)]);
    assert_eq!(version(&state, "/newest"), 2);
    assert!(logged_bytes(&state) - before < 2 * names + 30 * 128);

    // A start from that log decides as the server that wrote it.
    let digest = state.tree.read().digest();
    drop(core);
    let (again, _core) = driven(&disk);
    assert_eq!(version(&again, "/own"), WRITES);
    assert_eq!(version(&again, "/newest"), 2);
    assert_eq!(again.tree.read().digest(), digest);
}

#[test]
fn a_connection_that_takes_the_session_over_is_not_who_the_former_one_was() {
    let (state, mut core) = driven(&FaultStorage::new());
    let first = opened(&state, &mut core);
    add_names(&first, 60);
    let (kind, body) = create_own("/own");
    turn(&mut core, &[(&first, kind, &body)]);
    let second = state.open(Peer::Local).unwrap();
    let reattach = Kind::Reattach {
        session: first.session(),
        timeout_ms: 1000,
        mirror_read_only: false,
    };
    turn(&mut core, &[(&second, reattach, &[7; PASSWORD_BYTES])]);
    let (kind, body) = set("/own");
    turn(&mut core, &[(&second, kind, &body)]);
    assert_eq!(version(&state, "/own"), 0);
    add_names(&second, 60);
    turn(&mut core, &[(&second, kind, &body)]);
    turn(&mut core, &[(&second, kind, &body)]);
    assert_eq!(version(&state, "/own"), 2);
}
