//! Logs that earlier versions of Baton wrote: a start reads them, whatever they ask for.

use super::*;

#[test]
fn a_log_with_an_acl_that_no_memory_holds_starts() {
    let session_id = 0x0100_0000_0000_0001;
    let mut claimed = Identity::anonymous();
    for n in 0..1000 {
        claimed.add("digest", format!("{n:0>50}:x"));
    }
    let entry = |n: i32| Acl::new(baton_proto::Perms(n), "auth", "");
    let acl = (0..20_000).map(entry).collect();
    let mode = baton_proto::CreateMode::Persistent;
    let request = Request::Create(Create::new("/poison", None, acl, mode));
    let mut poison = Vec::new();
    request.encode(&mut poison);
    let mut batch = BatchBuilder::new(FormatLevel::Initial, 1_000);
    batch.begin(session_id, &claimed, None);
    let open = Command::OpenSession {
        session_id,
        password: [7; PASSWORD_BYTES],
        timeout_ms: 1000,
    };
    batch.push(0, open);
    let (op, body) = (request.op(), &poison);
    batch.push(1, Command::Write { op, body });
    let (_, body) = create("/after", 1);
    let op = OpCode::Create;
    batch.push(2, Command::Write { op, body: &body });
    let (state, core) = driven(&disk_with(&[batch.finish()]));
    assert!(exists(&state, "/after"));
    assert!(!exists(&state, "/poison"));
    assert_eq!(core.applier.level, FormatLevel::NEWEST);
}
