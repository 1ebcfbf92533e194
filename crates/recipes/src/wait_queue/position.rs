//! Finding our place in a line, and waiting until it is the first.
//!
//! Owns the rule that a deletion wakes only those whom it may concern (H52): each contender watches
//! the nearest before it that it waits for, with `getData`, because an `exists` on a node that is
//! gone would leave a watch behind for ever (H53). Must never sleep instead of looking again (H31).

use super::release_marker::release_marker;
use super::{AcquireError, OwnNodeWatch, WaiterNode};
use crate::lost_reason::LostReason;
use crate::naming::{Child, LockMode, NamingScheme};
use crate::record::Record;
use crate::retry;
use crate::wait_queue::order::{self, SequentialChild};
use baton_client::{Data, Session, Watch, WatchEvent};
use baton_proto::EventKind;
use std::time::Duration;
use tokio::time::Instant;

/// First in line: the node, and the watch on it.
#[derive(Debug)]
pub(crate) struct GrantedNode {
    pub waiter: WaiterNode,
    pub own_node: OwnNodeWatch,
}

/// What happens on the way, for those who report it.
pub(crate) enum Step<'a> {
    /// About to find out our place.
    Looking,
    /// So many stand before us whom we wait for.
    Placed(usize),
    /// About to wait, with `head` as the first of those whom we wait for: it holds, or will before
    /// us.
    Following { head: &'a str },
    /// The watch on the nearest of them is set.
    Waiting { predecessor: &'a str },
}

/// As what we stand in the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contention<'a> {
    pub naming: NamingScheme,
    pub mode: LockMode,
    /// The name of a node of ours that is not to stand in our own way.
    pub beside: Option<&'a str>,
}

/// How we stand.
pub(crate) enum Position {
    /// Nobody before us whom we wait for.
    First,
    /// So many stand before us whom we wait for; the nearest of them.
    Behind {
        position: usize,
        predecessor: String,
        /// The first of them.
        head: String,
    },
}

/// Until when one who is first leaves the lock alone, because its last holder has failed and had
/// asked for that. It outlives a place in line: who has lost its own while it waited still knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DelayedUntil(Option<Instant>);

impl DelayedUntil {
    fn extend(&mut self, until: Instant) {
        self.0 = self.0.max(Some(until));
    }

    /// Whether who is first may hold at once.
    pub(crate) fn has_passed(self) -> bool {
        self.0.is_none_or(|until| until <= Instant::now())
    }
}

/// As [`wait_for_turn_delayed`], for one that has not waited before.
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

/// Waits until nobody stands before `contender` whom it waits for, and until `held_off` has passed.
///
/// `listing` is what was seen right after its creation; without it the line is listed again.
/// Cancel-safe: dropping the future deletes the node.
pub(crate) async fn wait_for_turn_delayed(
    waiter: WaiterNode,
    listing: Option<Vec<String>>,
    contention: Contention<'_>,
    held_off: &mut DelayedUntil,
    mut report: impl FnMut(Step<'_>),
) -> Result<GrantedNode, AcquireError> {
    report(Step::Looking);
    // Boxed: what is over soon is not to make every wait larger.
    let (mut waiter, mut place) =
        Box::pin(position_or_withdraw(waiter, listing, contention)).await?;
    let mut own_node = OwnNodeWatch::watch(&waiter);
    loop {
        let (position, predecessor, head) = match place {
            Position::First => {
                report(Step::Placed(0));
                if let Some(until) = held_off.0 {
                    let waited = tokio::time::timeout_at(until, own_node.gone());
                    if let Ok(reason) = Box::pin(waited).await {
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
        report(Step::Placed(position));
        report(Step::Following { head: &head });
        drop(head);
        let strict = !contention.naming.is_overtaken(LockMode::Exclusive);
        if strict {
            waiter.expect_followers();
        }
        let wanted = match (strict, position) {
            (false, _) => Wait::End,
            (true, 1) => Wait::Turn,
            (true, _) => Wait::Herald,
        };
        let ending = tokio::select! {
            biased;
            reason = own_node.gone() => return Err(ended(waiter, reason)),
            gone = until_ended(waiter.session(), &predecessor, wanted, || {
                report(Step::Waiting { predecessor: &predecessor });
            }) => gone?,
        };
        report(Step::Looking);
        // All that can ever stand before us was created before us, hence was in that list, but for
        // a writer that has become a reader. If the one that has gone was alone there, or has held,
        // nobody is before us now, and there is nothing left to list.
        let alone = position == 1 && !contention.naming.is_overtaken(contention.mode);
        if alone || ending.was_held {
            place = Position::First;
        } else {
            (waiter, place) = Box::pin(position_or_withdraw(waiter, None, contention)).await?;
        }
        // If somebody still stands before us, the one that has gone had not held.
        if let (Some(until), Position::First) = (ending.held_off, &place) {
            held_off.extend(until);
        }
    }
}

/// What it means that our node is gone.
fn ended(mut waiter: WaiterNode, reason: LostReason) -> AcquireError {
    waiter.disown();
    match reason {
        LostReason::NodeGone => AcquireError::OwnNodeGone,
        _ => AcquireError::SessionLost,
    }
}

/// As [`position`]; one who cannot stand in the line leaves it.
pub(crate) async fn position_or_withdraw(
    waiter: WaiterNode,
    listing: Option<Vec<String>>,
    contention: Contention<'_>,
) -> Result<(WaiterNode, Position), AcquireError> {
    match position(&waiter, listing, contention).await {
        Ok(place) => Ok((waiter, place)),
        Err(trouble) => Err(withdraw_after(waiter, trouble).await),
    }
}

/// Leaves the line because of `trouble`. A refusal is told when our node is gone, so that whoever
/// asks again at once, in another dialect, does not meet it; no longer than the connection lasts,
/// and it is deleted in any case.
pub(crate) async fn withdraw_after(waiter: WaiterNode, trouble: AcquireError) -> AcquireError {
    if matches!(trouble, AcquireError::Foreign { .. }) {
        let _ = waiter.withdraw().await;
    }
    trouble
}

/// Our place in the line right now, or as of `listing`, which must have been taken after our
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
        let line = match arranged(waiter.session(), waiter.dir(), children, naming).await {
            Err(AcquireError::Client(error)) => {
                retry::until_retryable(waiter.session(), error).await?;
                continue;
            }
            other => other?,
        };
        // Gone before we came: whoever held the lock meanwhile has left nothing to see.
        if beside.is_some_and(|held| line.iter().all(|child| child.name != held)) {
            return Err(AcquireError::OwnNodeGone);
        }
        let own = waiter.name();
        let mut before = 0;
        let mut nearest = None;
        let mut head = None;
        let mut there = false;
        for child in &line {
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

/// The contenders among `children` of `dir`, first first.
pub(crate) async fn arranged(
    session: &Session,
    dir: &str,
    children: Vec<String>,
    naming: NamingScheme,
) -> Result<Vec<SequentialChild>, AcquireError> {
    let mut line = Vec::with_capacity(children.len());
    for name in children {
        match naming.classify(&name) {
            Child::Waiter { number, .. } => line.push(SequentialChild {
                name,
                number,
                czxid: None,
            }),
            Child::Bystander => tracing::debug!(dir, child = name, "not a waiter: skipped"),
            Child::Refused(why) => return Err(AcquireError::Foreign { child: name, why }),
        }
    }
    let place = |child: &SequentialChild, read: &Data| kept_place(naming, &child.name, read);
    Ok(order::arrange_by(session, dir, line, place).await?)
}

/// The `czxid` that counts for the order: that of the node, or of the writer in whose place a
/// reader stands.
fn kept_place(naming: NamingScheme, name: &str, read: &Data) -> i64 {
    let czxid = read.stat.czxid;
    if naming.mode_of(name) == LockMode::Exclusive {
        return czxid;
    }
    let kept = Record::from_bytes(&read.data).and_then(|record| record.place);
    kept.map_or(czxid, |place| place.min(czxid))
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// That the node is gone.
    End,
    /// The same, and how it went if its holder asks the next to leave the lock alone after a
    /// failure.
    Turn,
    /// The same, and whether it has held.
    Herald,
}

/// How the one before us has ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    /// Its holder's herald has told that it was released.
    was_held: bool,
    /// It was not, as far as we know, and had asked for that case that the lock be left alone until
    /// then.
    held_off: Option<Instant>,
}

impl Ending {
    /// Of one that was released, or else had asked for `lock_delay`.
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
    until_ended(session, path, Wait::End, watching)
        .await
        .map(drop)
}

/// Waits until `path` does not exist, and tells how it went.
async fn until_ended(
    session: &Session,
    path: &str,
    wanted: Wait,
    mut watching: impl FnMut(),
) -> Result<Ending, AcquireError> {
    let mut lock_delay = Duration::ZERO;
    // Kept over a change of the data, so that no release falls between two watches.
    let mut herald = None;
    loop {
        // Boxed: what is over soon is not to make every wait larger.
        let end = match Box::pin(arm(session, path, wanted, herald, lock_delay)).await? {
            Armed::Over(ending) => return Ok(ending),
            Armed::Watching(watches) => {
                (herald, lock_delay) = (watches.herald, watches.lock_delay);
                watches.end
            }
        };
        watching();
        let Ok(event) = end.await else {
            return Err(AcquireError::SessionLost);
        };
        let was_held = has_come(herald.as_mut(), &event);
        if was_held || event.kind == EventKind::NodeDeleted {
            return Ok(Ending::new(was_held, was_held, lock_delay));
        }
        // Its data changed, which is nothing to us.
    }
}

/// What is known of a node that is waited for.
enum Armed {
    /// It is there.
    Watching(Watches),
    /// It is gone.
    Over(Ending),
}

struct Watches {
    end: Watch,
    herald: Option<Watch>,
    /// What the node asks of the next if it goes without a release, or has asked before.
    lock_delay: Duration,
}

/// Sets the watches that `manner` needs, where `herald` is not set yet. `lock_delay` is what the
/// node is known to have asked for.
async fn arm(
    session: &Session,
    path: &str,
    wanted: Wait,
    mut herald: Option<Watch>,
    mut lock_delay: Duration,
) -> Result<Armed, AcquireError> {
    // On a node that asks for a lock delay, from the read that told so: older than the watch for
    // its herald.
    let mut first_read: Option<Watch> = None;
    loop {
        let wants_herald = wanted == Wait::Herald || !lock_delay.is_zero();
        // Where it is to tell what came between two requests, an answer must not have waited for
        // another connection.
        let asking = match first_read {
            Some(_) => session.fail_fast(),
            None => session.clone(),
        };
        // Asked for first: of a release between the two, the herald is seen.
        let asked =
            (wants_herald && herald.is_none()).then(|| asking.exists_watch(&release_marker(path)));
        let read = asking.get_data_watch(path).await;
        if let Some(asked) = asked {
            herald = asked.await.ok().map(|(_, herald)| herald);
        }
        match read {
            Ok((read, end)) => {
                if wanted != Wait::End {
                    lock_delay = lock_delay.max(Record::lock_delay_in(&read.data));
                }
                if !lock_delay.is_zero() && !wants_herald {
                    first_read = Some(end);
                    continue;
                }
                return Ok(Armed::Watching(Watches {
                    end,
                    herald,
                    lock_delay,
                }));
            }
            Err(error) if error.is_no_node() => {
                // A farewell is a change of the data. One that was something else, a request to let
                // go, is not followed by a failure within one round trip.
                let is_released = is_news(herald.as_mut(), EventKind::NodeCreated)
                    || is_news(first_read.as_mut(), EventKind::NodeDataChanged);
                // Of that end there was no news to compare a herald's with.
                return Ok(Armed::Over(Ending::new(false, is_released, lock_delay)));
            }
            Err(error) => {
                first_read = None;
                retry::until_retryable(session, error).await?;
            }
        }
    }
}

/// Whether the herald was there: its news comes before that of the end. It counts only as part of
/// the same change, so that a node that somebody else makes in its place tells nothing; a server
/// that does not number its news (Apache ZooKeeper before 3.9) leaves that open.
fn has_come(herald: Option<&mut Watch>, end: &WatchEvent) -> bool {
    news(herald).is_some_and(|news| news.kind == EventKind::NodeCreated && news.zxid == end.zxid)
}

/// Whether this has come as the news of a watch.
fn is_news(watch: Option<&mut Watch>, kind: EventKind) -> bool {
    news(watch).is_some_and(|news| news.kind == kind)
}

/// What a watch has told so far.
fn news(watch: Option<&mut Watch>) -> Option<WatchEvent> {
    watch.and_then(Watch::try_event)?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naming::{Dialect, RwDialect};
    use baton_proto::Stat;
    use uuid::Uuid;

    #[tokio::test(start_paused = true)]
    async fn who_is_held_off_is_so_until_the_last_of_the_delays_has_passed_to_the_instant() {
        let (brief, long) = (Duration::from_secs(3), Duration::from_secs(5));
        let mut held_off = DelayedUntil::default();
        assert!(held_off.has_passed());
        for delay in [long, brief] {
            let ending = Ending::new(false, false, delay);
            assert_eq!(ending.held_off, Some(Instant::now() + delay));
            held_off.extend(ending.held_off.unwrap());
        }
        tokio::time::advance(long - Duration::from_millis(1)).await;
        assert!(!held_off.has_passed());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(held_off.has_passed());
        assert_eq!(Ending::new(true, true, long).held_off, None);
        assert_eq!(Ending::new(false, false, Duration::ZERO).held_off, None);
    }

    #[test]
    fn h43_only_a_reader_keeps_the_place_that_its_data_says_and_never_a_later_one() {
        let kept = |naming: NamingScheme, mode, place| {
            let mut record = Record::new(None);
            record.place = place;
            let stat = Stat {
                czxid: 50,
                ..Stat::default()
            };
            let read = Data {
                data: record.to_bytes().into(),
                stat,
            };
            let name = naming.own_prefix(mode, &Uuid::new_v4(), 1) + "0000000001";
            kept_place(naming, &name, &read)
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
