//! Paths that a recipe may have: every legal one but the root.

use baton_proto::path;

/// Refuses a path that is not legal, and the root: `root` says of it why it is refused.
///
/// # Errors
/// What is wrong with the path.
pub(crate) fn check(path: &str, root: &str) -> Result<(), String> {
    path::validate(path).map_err(|error| error.to_string())?;
    if path == "/" {
        return Err(format!("the root {root}; name a node below it"));
    }
    Ok(())
}
