//! The position of a waiter node in its wait queue, and the wait until it is first.
//!
//! Owns the rule that a deletion wakes only those whom it may concern (H52): each waiter watches
//! the nearest before it that it waits for, with `getData`, because an `exists` on a node that is
//! gone would leave a watch behind for ever (H53). Must never sleep instead of reading the queue
//! again (H31).

use std::time::Duration;

use baton_client::{Data, Session, Watch, WatchEvent};
use baton_proto::EventKind;
use tokio::time::Instant;

use super::release_marker::release_marker;
use super::{AcquireError, OwnNodeWatch, WaiterNode};
use crate::background;
use crate::lost_reason::LostReason;
use crate::naming::{Child, LockMode, NamingScheme};
use crate::record::Record;
use crate::retry;
use crate::wait_queue::order::{self, SequentialChild};

/// A waiter node that is first in its queue, and the watch on it.
#[derive(Debug)]
pub(crate) struct GrantedNode {
    pub waiter: WaiterNode,
    pub own_node: OwnNodeWatch,
}

/// Progress of a wait, for those who report it.
pub(crate) enum Step<'a> {
    /// About to find out the position.
    Reading,
    /// Found this number of waiters before this one that it waits for.
    Positioned(usize),
    /// About to wait, with `head` as the first of them: it holds, or will before this one.
    Following { head: &'a str },
    /// The watch on the nearest of them is set.
    Waiting { predecessor: &'a str },
}

/// Naming scheme and lock mode of this waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contention<'a> {
    pub naming: NamingScheme,
    pub mode: LockMode,
    /// The name of a node that the same holder has, and that this one does not wait for.
    pub beside: Option<&'a str>,
}

/// The position of a waiter node.
pub(crate) enum Position {
    /// No other waiter before it that it waits for.
    First,
    /// Behind other waiters.
    Behind {
        position: usize,
        predecessor: String,
        /// The first of them.
        head: String,
    },
}

/// Time until which the first waiter leaves the lock alone, because the last holder has failed and
/// had asked for a lock delay. It outlives a waiter node: a waiter that has lost its node still
/// knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DelayedUntil(Option<Instant>);

impl DelayedUntil {
    fn extend(&mut self, until: Instant) {
        self.0 = self.0.max(Some(until));
    }

    /// Returns whether the first waiter may hold at once.
    pub(crate) fn has_passed(self) -> bool {
        self.0.is_none_or(|until| until <= Instant::now())
    }
}

/// [`wait_for_turn_delayed`] for one that has not waited before.
pub(crate) async fn wait_for_turn(
    waiter: WaiterNode,
    listing: Option<Vec<String>>,
    contention: Contention<'_>,
    report: impl FnMut(Step<'_>),
) -> Result<GrantedNode, AcquireError> {
    wait_for_turn_delayed(
        waiter,
        listing,
        contention,
        &mut DelayedUntil::default(),
        report,
    )
    .await
}

/// Waits until `waiter` is first, and until `held_off` has passed.
///
/// `listing` has the children right after its creation; without it they are listed again.
/// Cancel-safe: dropping the future deletes the node.
pub(crate) async fn wait_for_turn_delayed(
    waiter: WaiterNode,
    listing: Option<Vec<String>>,
    contention: Contention<'_>,
    held_off: &mut DelayedUntil,
    mut report: impl FnMut(Step<'_>),
) -> Result<GrantedNode, AcquireError> {
    report(Step::Reading);
    // Boxed so that the long-lived acquire future stays small.
    let (mut waiter, mut own_position) =
        Box::pin(position_or_withdraw(waiter, listing, contention)).await?;
    let mut own_node = OwnNodeWatch::watch(&waiter);
    loop {
        let (position, predecessor, head) = match own_position {
            Position::First => {
                report(Step::Positioned(0));
                if let Some(until) = held_off.0 {
                    let session = waiter.session();
                    let waited = background::timeout_at(session, until, own_node.gone());
                    if let Some(reason) = Box::pin(waited).await {
                        return Err(ended(waiter, reason));
                    }
                }
                return Ok(GrantedNode { waiter, own_node });
            }
            Position::Behind {
                position,
                predecessor,
                head,
            } => (position, predecessor, head),
        };
        report(Step::Positioned(position));
        report(Step::Following { head: &head });
        drop(head);
        let strict = !contention.naming.is_overtaken(LockMode::Exclusive);
        if strict {
            waiter.note_followers();
        }
        let wanted = match (strict, position) {
            (false, _) => WatchGoal::End,
            (true, 1) => WatchGoal::Turn,
            (true, _) => WatchGoal::ReleaseMarker,
        };
        let ending = tokio::select! {
            biased;
            reason = own_node.gone() => return Err(ended(waiter, reason)),
            gone = until_ended(waiter.session(), &predecessor, wanted, || {
                report(Step::Waiting { predecessor: &predecessor });
            }) => gone?,
        };
        report(Step::Reading);
        // All that can ever be before this node was created before it, hence was in that list, but
        // for a writer that has become a reader. If the node that has gone was alone there, or has
        // held, nobody is before this one now, and there is nothing left to list.
        let alone = position == 1 && !contention.naming.is_overtaken(contention.mode);
        if alone || ending.was_held {
            own_position = Position::First;
        } else {
            (waiter, own_position) =
                Box::pin(position_or_withdraw(waiter, None, contention)).await?;
        }
        // If somebody is still before us, the one that has gone had not held.
        if let (Some(until), Position::First) = (ending.held_off, &own_position) {
            held_off.extend(until);
        }
    }
}

/// Returns the error for the end of our node.
fn ended(mut waiter: WaiterNode, reason: LostReason) -> AcquireError {
    waiter.disown();
    match reason {
        LostReason::NodeGone => AcquireError::OwnNodeGone,
        _ => AcquireError::SessionLost,
    }
}

/// [`position`] that withdraws a waiter that cannot be ordered.
pub(crate) async fn position_or_withdraw(
    waiter: WaiterNode,
    listing: Option<Vec<String>>,
    contention: Contention<'_>,
) -> Result<(WaiterNode, Position), AcquireError> {
    match position(&waiter, listing, contention).await {
        Ok(own_position) => Ok((waiter, own_position)),
        Err(error) => Err(withdraw_after(waiter, error).await),
    }
}

/// Withdraws the waiter because of `error`. A refusal is returned once its node is gone, so that a
/// caller that tries again at once, under another naming scheme, does not meet it; not later than
/// the connection is lost, and the node is deleted in any case.
pub(crate) async fn withdraw_after(waiter: WaiterNode, error: AcquireError) -> AcquireError {
    if matches!(error, AcquireError::Foreign { .. }) {
        let _ = waiter.withdraw().await;
    }
    error
}

/// The present position of `waiter`, or that as of `listing`, which must have been taken after its
/// creation.
async fn position(
    waiter: &WaiterNode,
    listing: Option<Vec<String>>,
    contention: Contention<'_>,
) -> Result<Position, AcquireError> {
    let Contention {
        naming,
        mode,
        beside,
    } = contention;
    let mut listing = listing;
    loop {
        let children = match listing.take() {
            Some(children) => children,
            None => match waiter.session().children(waiter.dir()).await {
                Ok(children) => children.names,
                Err(error) if error.is_no_node() => return Err(AcquireError::OwnNodeGone),
                Err(error) => {
                    retry::until_retryable(waiter.session(), error).await?;
                    continue;
                }
            },
        };
        let waiters = match arranged(waiter.session(), waiter.dir(), children, naming).await {
            Err(AcquireError::Client(error)) => {
                retry::until_retryable(waiter.session(), error).await?;
                continue;
            }
            other => other?,
        };
        // Gone before we came: anyone who held the lock meanwhile has left nothing to see.
        if beside.is_some_and(|held| waiters.iter().all(|child| child.name != held)) {
            return Err(AcquireError::OwnNodeGone);
        }
        let own = waiter.name();
        let mut before = 0;
        let mut nearest = None;
        let mut head = None;
        let mut there = false;
        for child in &waiters {
            if child.name == own {
                there = true;
                break;
            }
            if mode.waits_for(naming.mode_of(&child.name)) && beside != Some(&*child.name) {
                before += 1;
                nearest = Some(child);
                head = head.or(nearest);
            }
        }
        if !there {
            return Err(AcquireError::OwnNodeGone);
        }
        let path_of = |child: &SequentialChild| baton_proto::path::join(waiter.dir(), &child.name);
        return Ok(match nearest.zip(head) {
            None => Position::First,
            Some((nearest, head)) => Position::Behind {
                position: before,
                predecessor: path_of(nearest),
                head: path_of(head),
            },
        });
    }
}

/// The waiters among `children` of `dir`, in their order.
pub(crate) async fn arranged(
    session: &Session,
    dir: &str,
    children: Vec<String>,
    naming: NamingScheme,
) -> Result<Vec<SequentialChild>, AcquireError> {
    let mut waiters = Vec::with_capacity(children.len());
    for name in children {
        match naming.classify(&name) {
            Child::Waiter { number, .. } => waiters.push(SequentialChild {
                name,
                number,
                czxid: None,
            }),
            Child::Bystander => tracing::debug!(dir, child = name, "not a waiter: skipped"),
            Child::Refused(why) => return Err(AcquireError::Foreign { child: name, why }),
        }
    }
    let kept = |child: &SequentialChild, read: &Data| kept_position(naming, &child.name, read);
    Ok(order::arrange_by(session, dir, waiters, kept).await?)
}

/// The `czxid` that counts for the order: that of the node, or of the writer whose position a
/// reader has kept.
pub(crate) fn kept_position(naming: NamingScheme, name: &str, read: &Data) -> i64 {
    let czxid = read.stat.czxid;
    if naming.mode_of(name) == LockMode::Exclusive {
        return czxid;
    }
    let kept = Record::from_bytes(&read.data).and_then(|record| record.kept_position);
    kept.map_or(czxid, |position| position.min(czxid))
}

/// Thing that a wait has to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchGoal {
    /// That the node is gone.
    End,
    /// The same, and whether it was released if its holder has asked for a lock delay.
    Turn,
    /// The same, and whether it has held.
    ReleaseMarker,
}

/// End of the node that was waited for.
#[derive(Clone, Copy, Debug, Default)]
struct NodeEnd {
    /// Its holder's release marker has shown that it was released.
    was_held: bool,
    /// It was not, as far as is known, and had asked for a lock delay, which ends then.
    held_off: Option<Instant>,
}

impl NodeEnd {
    /// The ending of a node that was released, or else had asked for `lock_delay`.
    fn new(was_held: bool, is_released: bool, lock_delay: Duration) -> Self {
        let is_held_off = !is_released && !lock_delay.is_zero();
        Self {
            was_held,
            held_off: is_held_off.then(|| Instant::now() + lock_delay),
        }
    }
}

/// Waits until `path` does not exist. Calls `watching` each time the watch is set.
pub(crate) async fn until_gone(
    session: &Session,
    path: &str,
    watching: impl FnMut(),
) -> Result<(), AcquireError> {
    until_ended(session, path, WatchGoal::End, watching)
        .await
        .map(drop)
}

/// Waits until `path` does not exist, and returns how it has ended.
async fn until_ended(
    session: &Session,
    path: &str,
    wanted: WatchGoal,
    mut watching: impl FnMut(),
) -> Result<NodeEnd, AcquireError> {
    let mut lock_delay = Duration::ZERO;
    // Kept over a change of the data, so that no release is missed between two watches.
    let mut marker = None;
    loop {
        // Boxed so that the long-lived acquire future stays small.
        let end = match Box::pin(arm(session, path, wanted, marker, lock_delay)).await? {
            WatchState::Over(ending) => return Ok(ending),
            WatchState::Watching(watches) => {
                (marker, lock_delay) = (watches.marker, watches.lock_delay);
                watches.end
            }
        };
        watching();
        let Ok(event) = end.await else {
            return Err(AcquireError::SessionLost);
        };
        let was_held = has_come(marker.as_mut(), &event);
        if was_held || event.kind == EventKind::NodeDeleted {
            return Ok(NodeEnd::new(was_held, was_held, lock_delay));
        }
        // Its data changed, which does not matter here.
    }
}

/// Knowledge about a node that is waited for.
enum WatchState {
    /// It is there.
    Watching(Watches),
    /// It is gone.
    Over(NodeEnd),
}

struct Watches {
    end: Watch,
    marker: Option<Watch>,
    /// Lock delay that the node asks of the next if it goes without a release, or has asked before.
    lock_delay: Duration,
}

/// Sets the watches that `wanted` needs, where `marker` is not set yet. `lock_delay` is what the
/// node is known to have asked for.
async fn arm(
    session: &Session,
    path: &str,
    wanted: WatchGoal,
    mut marker: Option<Watch>,
    mut lock_delay: Duration,
) -> Result<WatchState, AcquireError> {
    // On a node that asks for a lock delay, from the read that has shown it: older than the watch
    // for its release marker.
    let mut first_read: Option<Watch> = None;
    loop {
        let wants_marker = wanted == WatchGoal::ReleaseMarker || !lock_delay.is_zero();
        // Where it shows what came between two requests, an answer must not have waited for another
        // connection.
        let asking = match first_read {
            Some(_) => session.fail_fast(),
            None => session.clone(),
        };
        // Asked for first: of a release between the two, the marker is seen.
        let asked =
            (wants_marker && marker.is_none()).then(|| asking.exists_watch(&release_marker(path)));
        let read = asking.get_data_watch(path).await;
        if let Some(asked) = asked {
            marker = asked.await.ok().map(|(_, marker)| marker);
        }
        match read {
            Ok((read, end)) => {
                if wanted != WatchGoal::End {
                    lock_delay = lock_delay.max(Record::lock_delay_in(&read.data));
                }
                if !lock_delay.is_zero() && !wants_marker {
                    first_read = Some(end);
                    continue;
                }
                return Ok(WatchState::Watching(Watches {
                    end,
                    marker,
                    lock_delay,
                }));
            }
            Err(error) if error.is_no_node() => {
                // A release with a lock delay changes the data as well. Another change, a request
                // to release, is not followed by a failure within one round trip.
                let is_released = has_reported(marker.as_mut(), EventKind::NodeCreated)
                    || has_reported(first_read.as_mut(), EventKind::NodeDataChanged);
                // Of that end there was no notification to compare the marker's with.
                return Ok(WatchState::Over(NodeEnd::new(
                    false,
                    is_released,
                    lock_delay,
                )));
            }
            Err(error) => {
                first_read = None;
                retry::until_retryable(session, error).await?;
            }
        }
    }
}

/// Returns whether the release marker was there: its notification comes before that of the end. It
/// counts only as part of the same change, so that a node that somebody else makes at its path
/// shows nothing; a server that does not number its notifications (Apache ZooKeeper before 3.9)
/// leaves that open.
fn has_come(marker: Option<&mut Watch>, end: &WatchEvent) -> bool {
    reported(marker)
        .is_some_and(|event| event.kind == EventKind::NodeCreated && event.zxid == end.zxid)
}

/// Returns whether a watch has reported an event of this kind.
fn has_reported(watch: Option<&mut Watch>, kind: EventKind) -> bool {
    reported(watch).is_some_and(|event| event.kind == kind)
}

/// Returns the report of a watch so far.
fn reported(watch: Option<&mut Watch>) -> Option<WatchEvent> {
    watch.and_then(Watch::try_event)?.ok()
}

#[cfg(test)]
mod tests {
    use baton_proto::Stat;
    use uuid::Uuid;

    use super::*;
    use crate::naming::{Dialect, RwDialect};

    #[tokio::test(start_paused = true)]
    async fn who_is_held_off_is_so_until_the_last_of_the_delays_has_passed_to_the_instant() {
        let (brief, long) = (Duration::from_secs(3), Duration::from_secs(5));
        let mut held_off = DelayedUntil::default();
        assert!(held_off.has_passed());
        for delay in [long, brief] {
            let ending = NodeEnd::new(false, false, delay);
            assert_eq!(ending.held_off, Some(Instant::now() + delay));
            held_off.extend(ending.held_off.unwrap());
        }
        tokio::time::advance(long - Duration::from_millis(1)).await;
        assert!(!held_off.has_passed());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(held_off.has_passed());
        assert_eq!(NodeEnd::new(true, true, long).held_off, None);
        assert_eq!(NodeEnd::new(false, false, Duration::ZERO).held_off, None);
    }

    #[test]
    fn h43_only_a_reader_keeps_the_queue_position_that_its_data_says_and_never_a_later_one() {
        let kept = |naming: NamingScheme, mode, position| {
            let mut record = Record::new(None);
            record.kept_position = position;
            let stat = Stat {
                czxid: 50,
                ..Stat::default()
            };
            let read = Data {
                data: record.to_bytes().into(),
                stat,
            };
            let name = naming.own_prefix(mode, &Uuid::new_v4(), 1) + "0000000001";
            kept_position(naming, &name, &read)
        };
        let shared = NamingScheme::ReadWrite(RwDialect::Curator);
        assert_eq!(kept(shared, LockMode::Shared, Some(40)), 40);
        assert_eq!(kept(shared, LockMode::Shared, Some(60)), 50);
        assert_eq!(kept(shared, LockMode::Shared, None), 50);
        assert_eq!(kept(shared, LockMode::Exclusive, Some(40)), 50);
        let exclusive = NamingScheme::Exclusive(Dialect::Curator);
        assert_eq!(kept(exclusive, LockMode::Exclusive, Some(40)), 50);
    }
}
