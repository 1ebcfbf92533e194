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

/// As [`legal`], for one that the server is to end with a number.
///
/// # Errors
/// As `legal`.
pub(crate) fn legal_with_number(text: &str) -> Result<String, String> {
    match baton_proto::path::validate_sequential(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("no legal path: {error}")),
    }
}
