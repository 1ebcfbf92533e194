//! Sessions of read-only mode: opened by this server alone, for clients that ask for that, while it
//! knows no leader. Such a session is in no log and in no tree. It lives as long as its connection,
//! and the core closes that when a leader is known again.
//!
//! A client that has a session keeps its id, as at a ZooKeeper server in this mode: whether the
//! session still lives, only a leader can say. So nothing is done in the session's name.

use baton_proto::{ConnectRequest, ConnectResponse, PASSWORD_BYTES};

use crate::connections::conn::{Attached, Conn};
use crate::connections::touch::Touch;
use crate::session::ids;
use crate::state::ServerState;

/// Opens a session for `conn`, whose answer is returned. `None`: the server is not in read-only
/// mode.
///
/// # Errors
/// Why the connection is to be closed without an answer.
pub(super) fn open(
    state: &ServerState,
    conn: &Conn,
    request: &ConnectRequest<'_>,
    timeout_ms: i32,
) -> Result<Option<ConnectResponse>, String> {
    if !state.is_read_only() {
        return Ok(None);
    }
    if request.read_only != Some(true) {
        return Err(
            "this server knows no leader and serves clients that ask for read-only mode alone; let the client connect to another server"
                .to_owned(),
        );
    }
    let zxid = state.zxid();
    if request.last_zxid_seen > zxid {
        // It would see time go back, and no leader will bring this server further (R31).
        return Err(format!(
            "it has seen zxid 0x{:x}, this server is in read-only mode at 0x{zxid:x}; let the client connect to another server",
            request.last_zxid_seen
        ));
    }
    let Some((session, password)) = identify(state, conn, request)? else {
        return Ok(Some(ConnectResponse::refused(request.read_only)));
    };
    let Some(status) = &state.ensemble else {
        return Ok(None);
    };
    // Under the lock: the end of the mode closes every connection that is attached before it.
    let status = status.lock();
    if !status.is_read_only {
        return Ok(None);
    }
    conn.attach(Attached {
        session,
        timeout_ms: u32::try_from(timeout_ms).unwrap_or(0),
        touch: Touch::new(state.time.now_ms()),
        nonce: None,
        last_sequence: 0.into(),
        is_read_only: true,
        stored_identity: Default::default(),
    });
    drop(status);
    Ok(Some(ConnectResponse {
        protocol_version: 0,
        timeout_ms,
        session_id: session,
        password,
        read_only: Some(true),
    }))
}

/// The id and the password of the client's session: new ones, or those that it has. `None`: the
/// password is not that of the session, or the client does not show to whom it is bound.
fn identify(
    state: &ServerState,
    conn: &Conn,
    request: &ConnectRequest<'_>,
) -> Result<Option<(i64, [u8; PASSWORD_BYTES])>, String> {
    if request.session_id == 0 {
        return Ok(Some((ids::read_only_id(draw()?), draw()?)));
    }
    let Ok(password) = <[u8; PASSWORD_BYTES]>::try_from(request.password) else {
        return Ok(None);
    };
    // This server may not know the session, because it lags or because the session has ended.
    let identity = conn.identity();
    let admitted = state
        .tree
        .read()
        .admits(request.session_id, &password, &identity);
    Ok((admitted != Some(false)).then_some((request.session_id, password)))
}

fn draw<const BYTES: usize>() -> Result<[u8; BYTES], String> {
    let mut random = [0; BYTES];
    getrandom::fill(&mut random)
        .map_err(|error| format!("the system gave no random bytes: {error}"))?;
    Ok(random)
}
