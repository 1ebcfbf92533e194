//! The part of `docs/peers.md` that a run writes: between two marks, and nothing else of the page.

use crate::{Result, root};

const PAGE: &str = "docs/peers.md";

/// Replaces what is between `<!-- NAME -->` and `<!-- end of NAME -->`.
pub(super) fn replace(name: &str, text: &str) -> Result<()> {
    let page = root().join(PAGE);
    let before = std::fs::read_to_string(&page)?;
    let (begin, end) = (
        format!("<!-- {name} -->"),
        format!("<!-- end of {name} -->"),
    );
    let missing = || format!("{PAGE} has no place for {name}: put {begin} and {end} into it");
    let (head, rest) = before.split_once(&begin).ok_or_else(missing)?;
    let (_, tail) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(std::fs::write(
        page,
        format!("{head}{begin}\n{}\n{end}{tail}", text.trim()),
    )?)
}
