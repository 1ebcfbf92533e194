//! `cons`, `dump`, `wchs`, `wchc`, `wchp`: connections, sessions and watches one by one.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use baton_proto::Escaped;

use super::text::line;
use crate::connections::conn::Conn;
use crate::operator::facts;
use crate::report::listings::{Refusal, SizeLimit};
use crate::state::ServerState;

/// A connection as `stat` shows it, and as the line of `cons` begins.
pub(super) fn connection_line(conn: &Conn, out: &mut String) {
    let _ = write!(
        out,
        " /{}[{}](queued={},recved={},sent={}",
        conn.peer,
        u8::from(conn.attached().is_some()),
        conn.stats.outstanding(),
        conn.stats.received.load(Relaxed),
        conn.stats.sent.load(Relaxed)
    );
}

pub(super) fn connections_text(state: &ServerState) -> Result<String, Refusal> {
    let mut out = String::new();
    for conn in facts::connections(state, &mut SizeLimit::new(&state.listings)?)? {
        connection_line(&conn, &mut out);
        if let Some(attached) = conn.attached() {
            let stats = &conn.stats;
            let (min, mean, max) = stats.latency_ms();
            let _ = write!(
                out,
                ",sid=0x{:x},lop={},est={},to={},lcxid=0x{:x},lzxid=0x{:x},lresp={},llat={},minlat={min},avglat={mean},maxlat={max}",
                attached.session,
                facts::last_op(&conn),
                facts::wall_ms(state, conn.since_ms),
                attached.timeout_ms,
                stats.last_cxid.load(Relaxed),
                stats.last_zxid.load(Relaxed),
                stats.last_response_ms.load(Relaxed),
                stats.last_latency_us.load(Relaxed) / 1000,
            );
        }
        out.push_str(")\n");
    }
    out.push('\n');
    Ok(out)
}

pub(super) fn sessions(state: &ServerState) -> Result<String, Refusal> {
    let mut text = String::new();
    let out = &mut text;
    let mut size = SizeLimit::new(&state.listings)?;
    let ends = facts::ends(state, &mut size)?;
    let attached: usize = ends.attached.values().map(Vec::len).sum();
    let count = attached + ends.away.len();
    line(out, format_args!("SessionTracker dump:"));
    let sets = ends.attached.len() + usize::from(!ends.away.is_empty());
    line(out, format_args!("Session Sets ({sets})/({count}):"));
    for (end_ms, conns) in &ends.attached {
        let date = facts::date(*end_ms);
        line(out, format_args!("{} expire at {date}:", conns.len()));
        for conn in conns {
            line(out, format_args!("\t0x{:x}", conn.session()));
        }
    }
    if !ends.away.is_empty() {
        line(
            out,
            format_args!(
                "{} without a connection expire within their timeouts:",
                ends.away.len()
            ),
        );
        for session in &ends.away {
            line(out, format_args!("\t0x{session:x}"));
        }
    }
    line(out, format_args!("ephemeral nodes dump:"));
    let owners = facts::ephemerals(state, &mut size)?;
    line(
        out,
        format_args!("Sessions with Ephemerals ({}):", owners.len()),
    );
    for (session, paths) in owners {
        line(out, format_args!("0x{session:x}:"));
        for path in paths {
            line(out, format_args!("\t{}", Escaped(&path)));
        }
    }
    line(out, format_args!("Connections dump:"));
    let count = attached + ends.nameless.len();
    let sets = ends.attached.len() + usize::from(!ends.nameless.is_empty());
    line(out, format_args!("Connections Sets ({sets})/({count}):"));
    if !ends.nameless.is_empty() {
        let date = facts::date(facts::wall_ms(
            state,
            state.time.now_ms()
                + u64::try_from(state.options.handshake_timeout.as_millis()).unwrap_or(0),
        ));
        line(
            out,
            format_args!("{} expire at {date}:", ends.nameless.len()),
        );
        for conn in &ends.nameless {
            line(out, format_args!("\tip: /{} sessionId: 0x0", conn.peer));
        }
    }
    for (end_ms, conns) in &ends.attached {
        let date = facts::date(*end_ms);
        line(out, format_args!("{} expire at {date}:", conns.len()));
        for conn in conns {
            let session = conn.session();
            line(
                out,
                format_args!("\tip: /{} sessionId: 0x{session:x}", conn.peer),
            );
        }
    }
    Ok(text)
}

pub(super) fn watch_counts(state: &ServerState) -> Result<String, Refusal> {
    let counts = state.watches.lock().counts();
    Ok(format!(
        "{} connections watching {} paths\nTotal watches:{}\n",
        counts.connections, counts.paths, counts.watches
    ))
}

pub(super) fn watches_by_session_text(state: &ServerState) -> Result<String, Refusal> {
    let mut out = String::new();
    let mut size = SizeLimit::new(&state.listings)?;
    for (session, paths) in facts::watches_by_session(state, &mut size)? {
        line(&mut out, format_args!("0x{session:x}"));
        for path in paths {
            line(&mut out, format_args!("\t{}", Escaped(&path)));
        }
    }
    out.push('\n');
    Ok(out)
}

pub(super) fn watches_by_path_text(state: &ServerState) -> Result<String, Refusal> {
    let mut out = String::new();
    for watched in facts::watches_by_path(state, &mut SizeLimit::new(&state.listings)?)? {
        line(&mut out, format_args!("{}", Escaped(&watched.path)));
        for session in watched.sessions {
            line(&mut out, format_args!("\t0x{session:x}"));
        }
    }
    out.push('\n');
    Ok(out)
}
