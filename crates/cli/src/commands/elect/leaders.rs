//! Leaders, as anyone may see them, and getting the leader to resign.
//!
//! Owns what `baton elect watch`, `show` and `resign` say. It is never a candidate.

use std::convert::Infallible;

use baton::election::{Departure, Leader};

use super::election::{ElectionSelector, election, failure};
use crate::connection::{BRIEF, Connection, LASTING};
use crate::context::Context;
use crate::exit::{self, Failure};
use crate::output::record::record;
use crate::signals::{self, Signals};
use crate::waiting::AwaitedEvent;

/// Prints each leader, until a signal.
pub(super) async fn watch(which: &ElectionSelector, context: &Context) -> Result<u8, Failure> {
    let connection = Connection::open(context, LASTING).await?;
    let mut signals = Signals::new()?;
    let observer = election(&connection, &which.path, which.dialect)?.leaders();
    let mut observer = observer.with_reasons();
    let mut first = true;
    let watching = async {
        loop {
            let leader = observer.next().await.map_err(|error| failure(&error))?;
            let reason = match observer.departure() {
                Some(departure) => reason(departure),
                None if first => "first_look",
                None => "none_before",
            };
            first = false;
            print_leader(context, &which.path, leader.as_ref(), Some(reason));
        }
    };
    let awaited = AwaitedEvent::News { path: &which.path };
    let outcome = tokio::select! {
        Err(failure) = connection.wait::<Result<Infallible, _>>(&awaited, watching) => Err(failure),
        number = signals.stop() => Ok(signals::lasted_until(number)),
    };
    drop(observer);
    connection.close().await;
    outcome
}

/// Reason why the leader before is gone, as it is printed.
fn reason(departure: Departure) -> &'static str {
    match departure {
        Departure::Resigned => "resigned",
        Departure::Removed => "removed",
        Departure::Failed => "failed",
        _ => "unknown",
    }
}

/// Prints the leader.
pub(super) async fn show(which: &ElectionSelector, context: &Context) -> Result<u8, Failure> {
    let reading = Connection::during(context, BRIEF, async |connection: &Connection| {
        let election = election(connection, &which.path, which.dialect)?;
        election.leader().await.map_err(|error| failure(&error))
    });
    let leader = reading.await?;
    print_leader(context, &which.path, leader.as_ref(), None);
    Ok(if leader.is_some() {
        exit::OK
    } else {
        exit::NOTHING
    })
}

/// Asks the leader to resign or, with `force`, deletes its node.
pub(super) async fn resign(
    which: &ElectionSelector,
    token: Option<u64>,
    force: bool,
    context: &Context,
) -> Result<u8, Failure> {
    let path = &which.path;
    let asking = Connection::during(context, BRIEF, async |connection: &Connection| {
        let election = election(connection, path, which.dialect)?;
        let leader = election.leader().await.map_err(|error| failure(&error))?;
        let leader = leader.filter(|leader| token.is_none_or(|token| token == leader.token));
        let resigning = match &leader {
            Some(leader) if force => election.depose(leader).await,
            Some(leader) => election.ask_to_resign(leader).await,
            None => Ok(false),
        };
        let resigning = resigning.map_err(|error| failure(&error))?;
        Ok((leader, resigning))
    });
    let (leader, resigning) = asking.await?;
    match leader {
        Some(leader) if resigning => {
            let text = if force {
                format!("{path}: the leader with token {} was deposed", leader.token)
            } else {
                format!(
                    "{path}: the leader with token {} was asked to resign",
                    leader.token
                )
            };
            let asked = record! { path, token: leader.token, forced: force };
            context.output.result(&asked, text);
            Ok(exit::OK)
        }
        _ => {
            let meant = token
                .map(|token| format!(" with token {token}"))
                .unwrap_or_default();
            context.output.note(format!("{path} has no leader{meant}"));
            Ok(exit::NOTHING)
        }
    }
}

fn print_leader(context: &Context, path: &str, leader: Option<&Leader>, reason: Option<&str>) {
    let who = leader.map(name);
    let before = match reason {
        None | Some("first_look" | "none_before") => String::new(),
        Some(reason) => format!(" (the one before: {reason})"),
    };
    let text = match (leader, &who) {
        (Some(leader), Some(who)) => format!("{path} led by {who} token {}{before}", leader.token),
        _ => format!("{path} has no leader{before}"),
    };
    let shown = record! {
        path,
        leader: who,
        node: leader.map(|leader| leader.node.as_str()),
        token: leader.map(|leader| leader.token),
        session: leader.map(|leader| format!("0x{:x}", leader.session_id)),
        since_ms: leader.map(|leader| leader.since_ms),
        ?reason,
    };
    context.output.result(&shown, text);
}

/// The leader, for people: host, process and name from Baton's record, else the data of its
/// node.
pub(super) fn name(leader: &Leader) -> String {
    match &leader.record {
        Some(record) => record.to_string(),
        None => String::from_utf8_lossy(&leader.data).into_owned(),
    }
}
