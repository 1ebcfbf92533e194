//! Source of the items of `put`: arguments, or standard input.

use std::io::{IsTerminal, Read};

use crate::context::Context;
use crate::exit::Failure;

/// Source of items if none is an argument, and whether an empty one is meant.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Input {
    /// Each line of standard input is an item.
    #[arg(long, conflicts_with = "items")]
    lines: bool,
    /// Put an empty item where standard input is empty.
    #[arg(long, conflicts_with_all = ["items", "lines"])]
    allow_empty: bool,
}

impl Input {
    /// The items: those given as arguments, else what standard input holds, as one or as one for
    /// each line.
    pub(super) fn items(
        &self,
        given: &[String],
        context: &Context,
    ) -> Result<Vec<Vec<u8>>, Failure> {
        if !given.is_empty() {
            return Ok(given.iter().map(|item| item.clone().into_bytes()).collect());
        }
        let mut input = std::io::stdin().lock();
        if input.is_terminal() {
            context
                .output
                .note("reading from standard input; end it with Ctrl-D");
        }
        let mut all = Vec::new();
        input.read_to_end(&mut all).map_err(|error| {
            Failure::usage(format!(
                "standard input cannot be read: {error}; give the item as an argument"
            ))
        })?;
        if self.lines {
            return Ok(lines_of(all));
        }
        if all.is_empty() && !self.allow_empty {
            return Err(Failure::usage(
                "no ITEM was given, and standard input is empty; nothing was put: give an ITEM, or ask for an empty one with --allow-empty",
            ));
        }
        Ok(vec![all])
    }
}

/// The lines, without their ends; an empty one among others is an item too.
fn lines_of(mut all: Vec<u8>) -> Vec<Vec<u8>> {
    if all.last() == Some(&b'\n') {
        all.pop();
    }
    if all.is_empty() {
        return Vec::new();
    }
    all.split(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}
