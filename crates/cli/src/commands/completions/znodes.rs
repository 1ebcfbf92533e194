//! Names that running servers have: children of a znode, and ids of servers. One short session
//! asks; the number of names has a bound.

use std::sync::mpsc;
use std::time::Duration;

use baton_client::Session;
use baton_proto::path;

use super::{GlobalsReader, bash};
use crate::connection;

/// The time that an answer may take, whatever hangs: a file on a network, a name server.
const LIMIT: Duration = Duration::from_secs(1);
/// Time to try to reach a server.
const CONNECT_LIMIT: Duration = Duration::from_millis(300);
/// Limit on an answer of the server, and on the end of the session.
const ANSWER_LIMIT: Duration = Duration::from_millis(300);
const CLOSE_LIMIT: Duration = Duration::from_millis(100);
/// A znode with more children is not listed: the list would be long on its way.
const MOST_CHILDREN: i32 = 100_000;
/// Names, at most.
const MOST: usize = 1000;
/// The servers' own znodes, which are no paths for recipes.
const SERVERS_OWN: &str = "/zookeeper";

/// Runs `work` on a session of its own, without a server that would have to be started.
fn on_session(
    globals: GlobalsReader,
    work: impl AsyncFnOnce(&Session) -> Option<Vec<String>> + Send + 'static,
) -> Option<Vec<String>> {
    let arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let arguments = options_for_servers(arguments.skip_while(|word| word != "--").skip(1));
    let ask = move || {
        let globals = globals(arguments?)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .ok()?;
        runtime.block_on(async {
            let glance = connection::glance(&globals, CONNECT_LIMIT)?;
            let session = glance.client.session().await.ok()?;
            let found = work(&session.with_deadline(ANSWER_LIMIT)).await;
            let _ = glance.client.close_timeout(CLOSE_LIMIT).await;
            found
        })
    };
    let (answer, answered) = mpsc::channel();
    std::thread::spawn(move || answer.send(ask()));
    answered.recv_timeout(LIMIT).ok()?
}

/// The arguments of a command that would use the same servers in the same way; `None`: only the
/// shell knows which they are.
fn options_for_servers(words: impl Iterator<Item = String>) -> Option<Vec<String>> {
    let names = [
        "--servers",
        "--context",
        "--data-dir",
        "--tls-ca",
        "--tls-cert",
        "--tls-key",
        "--auth-file",
    ];
    let mut arguments = vec!["baton".to_owned()];
    let mut words = bash::joined(words).into_iter();
    while let Some(word) = words.next().filter(|word| word != "--") {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        if !names.contains(&name) {
            continue;
        }
        let value = value.or_else(|| words.next())?;
        if value.contains(['$', '`', '*', '?', '{', '~', '\'', '"', '\\']) {
            return None;
        }
        arguments.push(format!("{name}={value}"));
    }
    arguments.push("ls".to_owned());
    Some(arguments)
}

/// The paths that begin with `typed`, to the next slash. Of those for recipes, without the nodes
/// that servers have numbered: these are a recipe's own.
pub(super) fn paths(
    globals: GlobalsReader,
    typed: Option<&str>,
    of_recipe: bool,
) -> Option<Vec<String>> {
    let typed = typed?.to_owned();
    on_session(globals, async move |session| {
        let mut paths = children(session, &typed, of_recipe).await?;
        paths.truncate(MOST);
        // With two candidates a shell writes no space behind the path: more may come.
        if let [only] = paths.as_slice() {
            let below = format!("{only}/");
            if !children(session, &below, of_recipe).await?.is_empty() {
                paths.push(below);
            }
        }
        Some(paths)
    })
}

/// The children of the znode before the last slash of `typed` whose paths begin with it, in order.
async fn children(session: &Session, typed: &str, of_recipe: bool) -> Option<Vec<String>> {
    let typed = if typed.is_empty() { "/" } else { typed };
    let (parent, begun) = typed.rsplit_once('/')?;
    let parent = if parent.is_empty() { "/" } else { parent };
    path::validate(parent).ok()?;
    let stat = session.exists(parent).await.ok()??;
    if stat.num_children > MOST_CHILDREN {
        return Some(Vec::new());
    }
    let mut paths = session.children(parent).await.ok()?.names;
    paths.retain(|name| name.starts_with(begun) && !(of_recipe && path::has_sequence(name)));
    for name in &mut paths {
        *name = path::join(parent, name);
    }
    paths.retain(|path| !(of_recipe && path == SERVERS_OWN));
    paths.sort_unstable();
    Some(paths)
}

/// The ids of the ensemble's servers.
pub(super) fn server_ids(globals: GlobalsReader) -> Option<Vec<String>> {
    on_session(globals, async |session| {
        let config = session.ensemble_config().await.ok()?;
        let ids = config.members.iter().map(|member| member.id.to_string());
        Some(ids.collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &str) -> Option<Vec<String>> {
        options_for_servers(line.split(' ').map(str::to_owned))
    }

    #[test]
    fn the_options_that_select_servers_are_found_wherever_they_stand() {
        let line = "baton lock --wait 3s --servers h : 1 /x --tls-ca=ca -n -- --context c";
        let found = arguments(line).unwrap();
        assert_eq!(found, ["baton", "--servers=h:1", "--tls-ca=ca", "ls"]);
        assert_eq!(arguments("baton get --servers $LIST /x"), None);
        assert_eq!(arguments("baton get --servers"), None);
        assert_eq!(arguments("baton set /x $(cat x)").unwrap(), ["baton", "ls"]);
    }
}
