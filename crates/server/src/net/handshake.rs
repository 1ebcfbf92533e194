//! A connection's first frame (protocol.md §1.2): what it asks for, and what is refused before the
//! log is asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_proto::{ConnectRequest, ConnectResponse, OpCode, PASSWORD_BYTES};

use crate::connections::conn::Conn;
use crate::connections::inbox::{Kind, Work};
use crate::net::read_only;
use crate::state::ServerState;

/// Result of the first frame.
#[derive(Debug)]
pub(crate) enum Opening {
    /// The core has to open or to re-attach the session.
    Asked,
    /// The answer is known: the server is in read-only mode.
    Answered(ConnectResponse),
}

/// Puts the session's opening or re-attachment into `work`, or opens one of read-only mode.
///
/// # Errors
/// What is wrong with the frame; the connection is then closed without an answer.
pub(crate) fn request(
    state: &ServerState,
    conn: &Arc<Conn>,
    frame: &[u8],
    work: &mut Work,
    received: Instant,
) -> Result<Opening, String> {
    let request = ConnectRequest::decode(frame, &state.limits)
        .map_err(|error| format!("its first frame is not a ConnectRequest: {error}"))?;
    if let Some(left) = state.held_for() {
        return Err(format!(
            "the server was restored from a backup, and leases of before may last: sessions are served in {} s",
            left.as_millis().div_ceil(1000)
        ));
    }
    let timeout_ms = negotiate(
        request.timeout_ms,
        &state.options.min_session_timeout,
        &state.options.max_session_timeout,
    );
    if let Some(answer) = read_only::open(state, conn, &request, timeout_ms)? {
        state.stats.requests.count(OpCode::CreateSession);
        return Ok(Opening::Answered(answer));
    }
    let zxid = state.zxid();
    if request.last_zxid_seen > zxid && state.ensemble.is_some() {
        // This server may lag. It knows better once it has applied the session's entry, which comes
        // behind everything that the client can have seen (R32).
        conn.set_ahead(request.last_zxid_seen);
    } else if request.last_zxid_seen > zxid {
        // It would see time go back. It has to find a server that is not behind (single system
        // image).
        return Err(format!(
            "it has seen zxid 0x{:x}, this server is at 0x{zxid:x}; is this the right server, with its right data?",
            request.last_zxid_seen
        ));
    }
    state.stats.requests.count(OpCode::CreateSession);
    let mirror_read_only = request.read_only.is_some();
    work.begin(conn, &conn.identity(), received);
    if request.session_id == 0 {
        let mut password = [0_u8; PASSWORD_BYTES];
        getrandom::fill(&mut password)
            .map_err(|error| format!("the system gave no random bytes: {error}"))?;
        work.push(
            0,
            Kind::OpenSession {
                timeout_ms,
                mirror_read_only,
            },
            &password,
        );
    } else {
        let kind = Kind::Reattach {
            session: request.session_id,
            timeout_ms,
            mirror_read_only,
        };
        work.push(0, kind, request.password);
    }
    Ok(Opening::Asked)
}

fn negotiate(wanted_ms: i32, min: &Duration, max: &Duration) -> i32 {
    let ms = |duration: &Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
    wanted_ms.clamp(ms(min), ms(max).max(ms(min)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use parking_lot::Mutex;

    use super::*;
    use crate::connections::conn::tests::conn;
    use crate::options::{EnsembleOptions, Options};
    use crate::state::ensemble_status::EnsembleStatus;
    use crate::state::tests::state;

    #[test]
    fn r32_a_client_that_is_ahead_waits_for_its_entry_in_an_ensemble_and_is_refused_elsewhere() {
        let mut frame = Vec::new();
        let password = [7; PASSWORD_BYTES];
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 5,
            timeout_ms: 4000,
            session_id: 9,
            password: &password,
            read_only: None,
        }
        .encode(&mut frame);
        let mut state = state(Options::default());
        let conn = conn(1);
        let mut work = Work::default();
        let now = Instant::now();
        let refused = request(&state, &conn, &frame, &mut work, now).unwrap_err();
        assert!(refused.contains("it has seen zxid 0x5"), "{refused}");
        assert!(work.is_empty());
        let ensemble = EnsembleOptions {
            servers: BTreeMap::from([(1, "localhost:1".to_owned())]),
            ..EnsembleOptions::default()
        };
        let status = EnsembleStatus::new(1, &ensemble);
        Arc::get_mut(&mut state).unwrap().ensemble = Some(Mutex::new(status));
        request(&state, &conn, &frame, &mut work, now).unwrap();
        assert_eq!(work.len(), 1);
        assert_eq!((conn.is_ahead_of(4), conn.is_ahead_of(5)), (Some(5), None));
    }

    #[test]
    fn timeouts_are_clamped() {
        let (min, max) = (Duration::from_millis(1000), Duration::from_secs(40));
        assert_eq!(negotiate(-5, &min, &max), 1000);
        assert_eq!(negotiate(4000, &min, &max), 4000);
        assert_eq!(negotiate(i32::MAX, &min, &max), 40_000);
    }
}
