//! Paths on the command line.
//!
//! A path that no server would accept, or that belongs to the server, is refused before a server is
//! asked, or started.

/// The znode below which servers keep their own: quotas, the ensemble's configuration.
const SERVERS_OWN: &str = "/zookeeper";

/// Reads the path of a znode.
///
/// # Errors
/// Text that says what was wrong, for the argument parser to show.
pub(crate) fn legal(text: &str) -> Result<String, String> {
    match baton_proto::path::validate(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("not a legal path: {error}")),
    }
}

/// Reads the path of a lock, a queue or another recipe.
///
/// # Errors
/// As [`legal`], and for a path that belongs to the server.
pub(crate) fn recipe(text: &str) -> Result<String, String> {
    let is_servers = text == SERVERS_OWN
        || text
            .strip_prefix(SERVERS_OWN)
            .is_some_and(|rest| rest.starts_with('/'));
    if is_servers {
        return Err(format!(
            "{SERVERS_OWN} and what is below it belong to the server; choose another path"
        ));
    }
    legal(text)
}

/// The path below which a verb lists.
#[derive(Debug, clap::Args)]
pub(crate) struct Prefix {
    /// Only below this path.
    #[arg(value_name = "PREFIX", default_value = "/", value_parser = legal)]
    pub(crate) prefix: String,
}

/// Reads the path of a sequential znode, to which the server appends a number.
///
/// # Errors
/// As [`legal`].
pub(crate) fn legal_with_number(text: &str) -> Result<String, String> {
    match baton_proto::path::validate_sequential(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("not a legal path: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::recipe;

    #[test]
    fn no_recipe_uses_what_belongs_to_the_server() {
        for path in ["/zookeeper", "/zookeeper/quota", "/zookeeper/quota/a/b"] {
            assert!(recipe(path).is_err_and(|error| error.contains("another path")));
        }
        for path in ["/zookeepers", "/zookeeper-locks/x", "/a/zookeeper"] {
            assert_eq!(recipe(path), Ok(path.to_owned()));
        }
        assert!(recipe("x").is_err());
    }
}
