//! The parts of `docs/` that a task writes: between two marks, and nothing else of the page.

use std::fs;

use crate::{Result, root};

/// Replaces what is between `<!-- NAME -->` and `<!-- end of NAME -->` by what `write` makes of it.
pub(crate) fn edit(page: &str, name: &str, write: impl FnOnce(&str) -> String) -> Result<()> {
    let file = root().join(page);
    let text = fs::read_to_string(&file).map_err(|error| format!("{page}: {error}"))?;
    let (begin, end) = (
        format!("<!-- {name} -->"),
        format!("<!-- end of {name} -->"),
    );
    let parts = text
        .split_once(&begin)
        .and_then(|(head, rest)| Some((head, rest.split_once(&end)?)));
    let (head, (section, tail)) = parts
        .ok_or_else(|| format!("{page} has no place for {name}: put {begin} and {end} into it"))?;
    let section = write(section);
    let section = section.trim();
    Ok(fs::write(
        &file,
        format!("{head}{begin}\n\n{section}\n\n{end}{tail}"),
    )?)
}
