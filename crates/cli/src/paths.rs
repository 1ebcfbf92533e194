//! Paths on the command line.
//!
//! Owns that one that no server would take is refused before any is asked, or started.

/// Reads the path of a znode.
///
/// # Errors
/// Text that says what was wrong, for the argument parser to show.
pub(crate) fn legal(text: &str) -> Result<String, String> {
    match baton_proto::path::validate(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("no legal path: {error}")),
    }
}
