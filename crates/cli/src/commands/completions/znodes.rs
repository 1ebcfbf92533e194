//! Names that running servers have: children of a znode, and ids of servers. One short session
//! asks; the number of names has a bound.

use std::time::Duration;

use baton_client::Session;
use baton_proto::path;

use super::words::Word;
use super::{Action, MOST, Reply};
use crate::connection;
use crate::context::Globals;

/// Time to try to reach a server.
const CONNECT_LIMIT: Duration = Duration::from_millis(300);
/// Limit on an answer of the server, and on the end of the session.
const ANSWER_LIMIT: Duration = Duration::from_millis(300);
const CLOSE_LIMIT: Duration = Duration::from_millis(100);
/// A znode with more children is not listed: the list would be long on its way.
const MOST_CHILDREN: i32 = 100_000;
/// The servers' own znodes, which are no paths for recipes.
const SERVERS_OWN: &str = "/zookeeper";

/// Runs `work` on a session of its own, without a server that would have to be started.
fn on_session<T>(globals: &Globals, work: impl AsyncFnOnce(&Session) -> Option<T>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let found = runtime.block_on(async {
        let glance = connection::glance(globals, CONNECT_LIMIT)?;
        let session = glance.client.session().await.ok()?;
        let found = work(&session.with_deadline(ANSWER_LIMIT)).await;
        let _ = glance.client.close_timeout(CLOSE_LIMIT).await;
        found
    });
    runtime.shutdown_background();
    found
}

/// The paths that begin with `typed`, to the next slash. Of those for recipes, without the nodes
/// that servers have numbered: these are a recipe's own.
pub(super) fn paths(globals: &Globals, typed: &str, for_recipe: bool) -> Option<Reply> {
    on_session(globals, async |session| {
        let mut paths = children(session, typed, for_recipe).await?;
        let mut is_open = paths.len() > 1;
        if let [only] = paths.as_slice() {
            is_open = has_children(session, only, for_recipe).await;
            // Complete as it is: what is below it comes next.
            if is_open && only == typed {
                let below = children(session, &format!("{typed}/"), for_recipe).await?;
                if !below.is_empty() {
                    paths = below;
                }
            }
        }
        paths.truncate(MOST);
        let names = paths.into_iter().map(|path| (path, None));
        Some(Reply {
            action: if is_open { Action::Open } else { Action::Names },
            ..Reply::of("", names)
        })
    })
}

/// The children of the znode before the last slash of `typed` whose paths begin with it, in order.
async fn children(session: &Session, typed: &str, for_recipe: bool) -> Option<Vec<String>> {
    let typed = if typed.is_empty() { "/" } else { typed };
    let (parent, begun) = typed.rsplit_once('/')?;
    let parent = if parent.is_empty() { "/" } else { parent };
    path::validate(parent).ok()?;
    let stat = session.exists(parent).await.ok()??;
    if stat.num_children > MOST_CHILDREN {
        return None;
    }
    let names = session.children(parent).await.ok()?.names;
    let fits =
        |name: &&String| name.starts_with(begun) && !(for_recipe && path::has_sequence(name));
    let paths = names
        .iter()
        .filter(fits)
        .map(|name| path::join(parent, name));
    let mut paths: Vec<_> = paths
        .filter(|path| super::is_printable(path) && !(for_recipe && path == SERVERS_OWN))
        .collect();
    paths.sort_unstable();
    Some(paths)
}

/// Whether there is something below a path to complete.
async fn has_children(session: &Session, path: &str, for_recipe: bool) -> bool {
    let Ok(Some(stat)) = session.exists(path).await else {
        return false;
    };
    match stat.num_children {
        0 => false,
        1..=MOST_CHILDREN if for_recipe => {
            let below = children(session, &format!("{path}/"), for_recipe).await;
            below.is_some_and(|below| !below.is_empty())
        }
        _ => true,
    }
}

/// The ids of the ensemble's servers that the line does not have yet.
pub(super) fn server_ids(globals: &Globals, typed: &str, before: &[Word]) -> Option<Reply> {
    on_session(globals, async |session| {
        let config = session.ensemble_config().await.ok()?;
        let ids = config.members.iter().map(|member| {
            let address = member.addresses.first().map(ToString::to_string);
            (member.id.to_string(), address)
        });
        let is_new = |(id, _): &(String, _)| !before.contains(&Some(id.clone()));
        Some(Reply::of(typed, ids.filter(is_new)))
    })
}
