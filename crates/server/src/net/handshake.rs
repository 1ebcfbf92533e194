//! A connection's first frame (protocol.md §1.2): what it asks for, and what is refused before the
//! log is asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_proto::{ConnectRequest, OpCode, PASSWORD_BYTES};

use crate::connections::conn::Conn;
use crate::connections::inbox::{Kind, Work};
use crate::state::ServerState;

/// Puts the session's opening or re-attachment into `work`.
///
/// # Errors
/// What is wrong with the frame; the connection is then closed without an answer.
pub(crate) fn request(
    state: &ServerState,
    conn: &Arc<Conn>,
    frame: &[u8],
    work: &mut Work,
    received: Instant,
) -> Result<(), String> {
    let request = ConnectRequest::decode(frame, &state.limits)
        .map_err(|error| format!("its first frame is not a ConnectRequest: {error}"))?;
    let zxid = state.zxid();
    if request.last_zxid_seen > zxid {
        // It would see time go back. It has to find a server that is not behind (single system
        // image).
        return Err(format!(
            "it has seen zxid 0x{:x}, this server is at 0x{zxid:x}; is this the right server, with its right data?",
            request.last_zxid_seen
        ));
    }
    let timeout_ms = negotiate(
        request.timeout_ms,
        &state.options.min_session_timeout,
        &state.options.max_session_timeout,
    );
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
    Ok(())
}

fn negotiate(wanted_ms: i32, min: &Duration, max: &Duration) -> i32 {
    let ms = |duration: &Duration| i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
    wanted_ms.clamp(ms(min), ms(max).max(ms(min)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_clamped() {
        let (min, max) = (Duration::from_millis(1000), Duration::from_secs(40));
        assert_eq!(negotiate(-5, &min, &max), 1000);
        assert_eq!(negotiate(4000, &min, &max), 4000);
        assert_eq!(negotiate(i32::MAX, &min, &max), 40_000);
    }
}
