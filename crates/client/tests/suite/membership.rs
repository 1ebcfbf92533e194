//! Changes of the ensemble's members: what is sent, what refusals mean, and what becomes of one
//! whose answer is lost.

use baton_client::{
    EndReason, EnsembleConfig, EnsembleMember, Error, ErrorCode, MembershipChange, OpCode, Reason,
    ReconfigError, Session,
};
use baton_proto::{Request, Response, Stat};
use bytes::Bytes;

use crate::support::{FakeServers, Peer, ReceivedRequest, SESSION};

const TWO: &str = "server.1=a:1:2:participant;0.0.0.0:3\nserver.2=b:1:2:participant\nversion=1f";
const THREE: &str = "server.1=a:1:2:participant;0.0.0.0:3\nserver.2=b:1:2:participant\n\
                     server.3=c:1:2:participant\nversion=20";

fn third() -> MembershipChange {
    let member: EnsembleMember = "server.3=c:1:2".parse().unwrap();
    MembershipChange::add(member)
}

fn config(text: &str) -> EnsembleConfig {
    EnsembleConfig::parse(text.as_bytes()).unwrap()
}

fn holds(text: &'static str) -> Option<Response> {
    Some(Response::Data {
        data: Some(Bytes::from_static(text.as_bytes())),
        stat: Stat::default(),
    })
}

/// Begins a change on a session of its own, up to where the server has the request.
async fn begun(
    world: &mut FakeServers,
    version: Option<i64>,
) -> (
    Session,
    Peer,
    ReceivedRequest,
    tokio::task::JoinHandle<Result<EnsembleConfig, ReconfigError>>,
) {
    let (s, mut peer) = world.session().await;
    let changing = s.clone();
    let change = tokio::spawn(async move { changing.change_members(&third(), version).await });
    let asked = peer.expect(OpCode::Reconfig).await;
    (s, peer, asked, change)
}

#[tokio::test(start_paused = true)]
async fn a_change_names_its_servers_and_its_version_and_yields_the_members_afterwards() {
    let mut world = FakeServers::new();
    let (_s, mut peer, asked, change) = begun(&mut world, Some(0x1f)).await;
    assert_eq!(
        asked.request(),
        Request::Reconfig {
            joining: Some("server.3=c:1:2:participant"),
            leaving: None,
            new_members: None,
            config_id: 0x1f,
        }
    );
    peer.ok(&asked, holds(THREE)).await;
    assert_eq!(change.await.unwrap().unwrap(), config(THREE));
}

#[tokio::test(start_paused = true)]
async fn the_members_are_read_whatever_the_chroot_is() {
    let mut world = FakeServers::new();
    let config = world.config().chroot("/app");
    let connecting = tokio::spawn(Session::connect(config));
    let mut peer = world.accept(SESSION).await;
    let asked = peer.expect(OpCode::Exists).await;
    assert_eq!(asked.path(), "/app");
    peer.ok(&asked, Some(Response::Stat(Stat::default()))).await;
    let s = connecting.await.unwrap().unwrap();
    let read = s.ensemble_config();
    let asked = peer.expect(OpCode::GetData).await;
    assert_eq!(asked.path(), "/zookeeper/config");
    peer.ok(&asked, holds(TWO)).await;
    let found = read.await.unwrap();
    assert_eq!((found.version, found.voters().count()), (0x1f, 2));
    // A server that stands alone has none.
    let read = s.ensemble_config();
    let asked = peer.expect(OpCode::GetData).await;
    peer.no_data(&asked, Stat::default()).await;
    assert_eq!(read.await.unwrap(), EnsembleConfig::default());
    // What is not a membership is an answer that makes no sense.
    let read = s.ensemble_config();
    let asked = peer.expect(OpCode::GetData).await;
    peer.ok(&asked, holds("server.1=nowhere")).await;
    let error = read.await.unwrap_err();
    let Some(Reason::BadReply(what)) = error.reason() else {
        panic!("{error:?}");
    };
    assert!(what.contains("line 1 of the members"), "{what}");
}

#[tokio::test(start_paused = true)]
async fn each_refusal_of_a_change_has_a_name() {
    for (code, named) in [
        (ErrorCode::ReconfigDisabled, ReconfigError::Disabled),
        (ErrorCode::ReconfigInProgress, ReconfigError::InProgress),
        (ErrorCode::NewConfigNoQuorum, ReconfigError::NoQuorum),
        (ErrorCode::BadVersion, ReconfigError::BadVersion),
        (ErrorCode::BadArguments, ReconfigError::BadArguments),
        (ErrorCode::NoAuth, ReconfigError::NotAllowed),
        (ErrorCode::Unimplemented, ReconfigError::StandsAlone),
    ] {
        let mut world = FakeServers::new();
        let (_s, mut peer, asked, change) = begun(&mut world, None).await;
        peer.refuse(&asked, code).await;
        assert_eq!(change.await.unwrap(), Err(named));
    }
    let mut world = FakeServers::new();
    let (s, mut peer, asked, change) = begun(&mut world, None).await;
    peer.refuse(&asked, ErrorCode::SystemError).await;
    let error = change.await.unwrap().unwrap_err();
    let ReconfigError::Other(Error::Rejected { code, .. }) = error else {
        panic!("{error:?}");
    };
    assert_eq!(code, ErrorCode::SystemError);
    // On the wire, this version would be any.
    let refused = s.change_members(&third(), Some(-1)).await.unwrap_err();
    assert!(
        matches!(&refused, ReconfigError::Other(Error::NotSent { .. })),
        "{refused:?}"
    );
}

/// Has a change lose its answer with its connection; then the members are read as these.
async fn lost_then_read(text: &'static str) -> Result<EnsembleConfig, ReconfigError> {
    let mut world = FakeServers::new();
    let (_s, peer, asked, change) = begun(&mut world, Some(0x1f)).await;
    drop((peer, asked));
    let mut peer = world.accept(SESSION).await;
    let sync = peer.expect(OpCode::Sync).await;
    peer.ok(&sync, Some(Response::Path("/".to_owned()))).await;
    // Nothing is sent twice: the next request is the read.
    let read = peer.expect(OpCode::GetData).await;
    assert_eq!(read.path(), "/zookeeper/config");
    peer.ok(&read, holds(text)).await;
    change.await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_answer_is_lost_is_resolved_by_reading_the_members() {
    assert_eq!(lost_then_read(THREE).await, Ok(config(THREE)));
    assert_eq!(
        lost_then_read(TWO).await,
        Err(ReconfigError::NotApplied(config(TWO)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_answer_is_lost_with_its_session_stays_unknown() {
    let mut world = FakeServers::new();
    let (s, peer, asked, change) = begun(&mut world, None).await;
    drop((peer, asked));
    let mut peer = world.accept_raw().await;
    peer.frame().await.expect("a handshake");
    peer.answer_hello(0).await;
    let error = change.await.unwrap().unwrap_err();
    let ReconfigError::Unknown(lost) = &error else {
        panic!("{error:?}");
    };
    assert!(lost.is_maybe_applied(), "{lost}");
    assert!(error.to_string().contains("may have changed"), "{error}");
    assert_eq!(s.end_reason(), Some(EndReason::ExpiredByServer));
}
