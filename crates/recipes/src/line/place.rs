//! Finding our place in a line, and waiting until it is the first.
//!
//! Owns the rule that a deletion wakes only those whom it may concern (H52): each contender watches the nearest before it that it
//! waits for, with `getData`, because an `exists` on a node that is gone would leave a watch behind for ever (H53). Must never sleep instead of looking again (H31).

use super::{Contender, OwnNode, contender};
use crate::dialect::{Child, Grammar, Kind, Refusal};
use crate::guard::LostReason;
use crate::link;
use crate::order::{self, Rival};
use crate::record::Record;
use baton_client::{Data, Error, Session, Watch, WatchEvent};
use baton_proto::EventKind;

/// First in line: the node, and the watch on it.
#[derive(Debug)]
pub(crate) struct Granted {
    pub contender: Contender,
    pub own_node: OwnNode,
}

/// What happens on the way, for those who report it.
pub(crate) enum Step<'a> {
    /// About to find out our place.
    Looking,
    /// So many stand before us whom we wait for.
    Placed(usize),
    /// About to wait behind another.
    Following,
    /// The watch on the nearest of them is set.
    Waiting { predecessor: &'a str },
}

/// Why a place in line came to nothing. Our node is deleted, or was already gone, whichever it is (H12).
#[derive(Debug)]
pub(crate) enum Trouble {
    /// Somebody deleted our node, or its directory (H14): join again.
    OwnNodeGone,
    /// A child that cannot be ordered against ours (H13).
    Foreign { child: String, why: Refusal },
    /// The session has ended, and our node with it.
    SessionLost,
    /// The client could not do what was needed.
    Client(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        if error.is_session_ended() {
            Self::SessionLost
        } else {
            Self::Client(error)
        }
    }
}

/// As what we stand in the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stance<'a> {
    pub grammar: Grammar,
    pub kind: Kind,
    /// The name of a node of ours that is not to stand in our own way.
    pub beside: Option<&'a str>,
}

/// How we stand.
pub(crate) enum Place {
    /// Nobody before us whom we wait for.
    First,
    /// So many stand before us whom we wait for; the nearest of them.
    Behind {
        position: usize,
        predecessor: String,
    },
}

/// Waits until nobody stands before `contender` whom it waits for.
///
/// `listing` is what was seen right after its creation; without it the line is listed again. Cancel-safe: dropping the
/// future deletes the node.
pub(crate) async fn stand(
    contender: Contender,
    listing: Option<Vec<String>>,
    stance: Stance<'_>,
    mut report: impl FnMut(Step<'_>),
) -> Result<Granted, Trouble> {
    report(Step::Looking);
    // Boxed: what is over soon is not to make every wait larger.
    let (mut contender, mut place) = Box::pin(look_or_leave(contender, listing, stance)).await?;
    let mut own_node = OwnNode::watch(&contender);
    loop {
        let (position, predecessor) = match place {
            Place::First => {
                report(Step::Placed(0));
                return Ok(Granted {
                    contender,
                    own_node,
                });
            }
            Place::Behind {
                position,
                predecessor,
            } => (position, predecessor),
        };
        report(Step::Placed(position));
        report(Step::Following);
        let strict = !stance.grammar.is_overtaken(Kind::Exclusive);
        if strict {
            contender.expect_followers();
        }
        let manner = if strict && position > 1 {
            Wait::ForHerald
        } else {
            Wait::ForEnd
        };
        let was_held = tokio::select! {
            biased;
            reason = own_node.gone() => {
                contender.disown();
                return Err(match reason {
                    LostReason::NodeGone => Trouble::OwnNodeGone,
                    _ => Trouble::SessionLost,
                });
            }
            gone = until_ended(contender.session(), &predecessor, manner, || {
                report(Step::Waiting { predecessor: &predecessor });
            }) => gone?,
        };
        report(Step::Looking);
        // All that can ever stand before us was created before us, hence was in that list, but for a writer that has become a
        // reader. If the one that has gone was alone there, or has held, nobody is before us now, and there is nothing left to
        // list.
        let alone = position == 1 && !stance.grammar.is_overtaken(stance.kind);
        if alone || was_held {
            place = Place::First;
        } else {
            (contender, place) = Box::pin(look_or_leave(contender, None, stance)).await?;
        }
    }
}

/// As [`look`]; one who cannot stand in the line leaves it.
pub(crate) async fn look_or_leave(
    contender: Contender,
    listing: Option<Vec<String>>,
    stance: Stance<'_>,
) -> Result<(Contender, Place), Trouble> {
    match look(&contender, listing, stance).await {
        Ok(place) => Ok((contender, place)),
        Err(trouble) => Err(leave(contender, trouble).await),
    }
}

/// Leaves the line because of `trouble`. A refusal is told when our node is gone, so that whoever asks again at once, in another
/// dialect, does not meet it; no longer than the connection lasts, and it is deleted in any case.
pub(crate) async fn leave(contender: Contender, trouble: Trouble) -> Trouble {
    if matches!(trouble, Trouble::Foreign { .. }) {
        let _ = contender.withdraw().await;
    }
    trouble
}

/// Our place in the line right now, or as of `listing`, which must have been taken after our creation.
async fn look(
    contender: &Contender,
    listing: Option<Vec<String>>,
    stance: Stance<'_>,
) -> Result<Place, Trouble> {
    let Stance {
        grammar,
        kind,
        beside,
    } = stance;
    let mut listing = listing;
    loop {
        let children = match listing.take() {
            Some(children) => children,
            None => match contender.session().children(contender.dir()).await {
                Ok(children) => children.names,
                Err(error) if error.is_no_node() => return Err(Trouble::OwnNodeGone),
                Err(error) => {
                    link::restored(contender.session(), error).await?;
                    continue;
                }
            },
        };
        let line = match arranged(contender.session(), contender.dir(), children, grammar).await {
            Err(Trouble::Client(error)) => {
                link::restored(contender.session(), error).await?;
                continue;
            }
            other => other?,
        };
        let own = contender.name();
        let mut before = 0;
        let mut nearest = None;
        let mut there = false;
        for rival in &line {
            if rival.name == own {
                there = true;
                break;
            }
            if kind.waits_for(grammar.kind(&rival.name)) && beside != Some(&*rival.name) {
                before += 1;
                nearest = Some(rival);
            }
        }
        if !there {
            return Err(Trouble::OwnNodeGone);
        }
        return Ok(match nearest {
            None => Place::First,
            Some(rival) => Place::Behind {
                position: before,
                predecessor: baton_proto::path::join(contender.dir(), &rival.name),
            },
        });
    }
}

/// The contenders among `children` of `dir`, first first.
pub(crate) async fn arranged(
    session: &Session,
    dir: &str,
    children: Vec<String>,
    grammar: Grammar,
) -> Result<Vec<Rival>, Trouble> {
    let mut line = Vec::with_capacity(children.len());
    for name in children {
        match grammar.classify(&name) {
            Child::Contender { number, .. } => line.push(Rival {
                name,
                number,
                czxid: None,
            }),
            Child::Bystander => tracing::debug!(dir, child = name, "not a contender: skipped"),
            Child::Refused(why) => return Err(Trouble::Foreign { child: name, why }),
        }
    }
    let place = |rival: &Rival, read: &Data| kept_place(grammar, &rival.name, read);
    Ok(order::arrange_by(session, dir, line, place).await?)
}

/// The `czxid` that counts for the order: that of the node, or of the writer in whose place a reader stands.
fn kept_place(grammar: Grammar, name: &str, read: &Data) -> i64 {
    let czxid = read.stat.czxid;
    if !grammar.is_overtaken(Kind::Exclusive) || grammar.kind(name) == Kind::Exclusive {
        return czxid;
    }
    let kept = Record::from_bytes(&read.data).and_then(|record| record.place);
    kept.map_or(czxid, |place| place.min(czxid))
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// That the node is gone.
    ForEnd,
    /// The same, and how it went.
    ForHerald,
}

/// Waits until `path` does not exist. Calls `watching` each time the watch is set.
pub(crate) async fn until_gone(
    session: &Session,
    path: &str,
    watching: impl FnMut(),
) -> Result<(), Trouble> {
    until_ended(session, path, Wait::ForEnd, watching)
        .await
        .map(drop)
}

/// Waits until `path` does not exist; whether its holder's herald has told that it was released.
async fn until_ended(
    session: &Session,
    path: &str,
    manner: Wait,
    mut watching: impl FnMut(),
) -> Result<bool, Trouble> {
    loop {
        let asked = (manner == Wait::ForHerald)
            .then(|| Box::new(session.exists_watch(&contender::herald(path))));
        let read = Box::pin(session.get_data_watch(path)).await;
        let mut herald = match asked {
            Some(asked) => asked.await.ok().map(|(_, herald)| herald),
            None => None,
        };
        match read {
            Ok((_, watch)) => {
                watching();
                match watch.await {
                    Ok(end) if end.kind == EventKind::NodeDeleted => {
                        return Ok(has_come(herald.as_mut(), &end));
                    }
                    // Its data changed, which is nothing to us.
                    Ok(_) => {}
                    Err(_) => return Err(Trouble::SessionLost),
                }
            }
            // Of that end there was no news to compare a herald's with.
            Err(error) if error.is_no_node() => return Ok(false),
            Err(error) => Box::pin(link::restored(session, error)).await?,
        }
    }
}

/// Whether the herald was there: its news comes before that of the end. It counts only as part of the same change, so that a node
/// that somebody else makes in its place tells nothing; a server that does not number its news (Apache ZooKeeper before 3.9)
/// leaves that open.
fn has_come(herald: Option<&mut Watch>, end: &WatchEvent) -> bool {
    let news = herald.and_then(Watch::try_event);
    matches!(news, Some(Ok(event)) if event.kind == EventKind::NodeCreated && event.zxid == end.zxid)
}
