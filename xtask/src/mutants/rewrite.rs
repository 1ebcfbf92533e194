//! Writes many mutants into one source text, each behind a switch of its own.
//!
//! Ranges may lie inside each other, or be equal: the inner switches then stand in what is the
//! original for the outer one. They may not overlap otherwise; `without_overlaps` sees to that.

use std::ops::Range;

use super::mutant::{Mutant, Shape};

/// A mutant with the number of its switch.
pub(super) type NumberedMutant<'m> = (u32, &'m Mutant);

/// Position of a mutant in the rewritten text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlacedMutant {
    pub(super) id: u32,
    /// Its switch, with both sides.
    pub(super) whole: Range<usize>,
    /// Its own side.
    pub(super) replacement: Range<usize>,
}

/// The text with all of these mutants in it.
pub(super) fn rewrite(text: &str, mutants: &[NumberedMutant<'_>]) -> (String, Vec<PlacedMutant>) {
    let mut sorted = mutants.to_vec();
    sorted.sort_by_key(|(id, mutant)| nesting(mutant, *id));
    let mut rewriter = Rewriter {
        text,
        out: String::new(),
        placed: Vec::new(),
    };
    rewriter.render(0..text.len(), &sorted);
    (rewriter.out, rewriter.placed)
}

/// Those that can be in one text: each lies inside of or beside each other one. The earlier in the
/// list is kept.
pub(super) fn without_overlaps(mutants: Vec<Mutant>) -> Vec<Mutant> {
    let mut kept: Vec<Mutant> = Vec::new();
    for mutant in mutants {
        let (a, file) = (&mutant.range, &mutant.file);
        let crosses = kept.iter().any(|other| {
            let b = &other.range;
            other.file == *file
                && a.start < b.end
                && b.start < a.end
                && !(a.start <= b.start && b.end <= a.end)
                && !(b.start <= a.start && a.end <= b.end)
        });
        if !crosses {
            kept.push(mutant);
        }
    }
    kept
}

/// Sorts what is around before what is inside.
fn nesting(mutant: &Mutant, id: u32) -> (usize, std::cmp::Reverse<usize>, u32) {
    (mutant.range.start, std::cmp::Reverse(mutant.range.end), id)
}

struct Rewriter<'t> {
    text: &'t str,
    out: String,
    placed: Vec<PlacedMutant>,
}

impl Rewriter<'_> {
    fn copy(&mut self, range: Range<usize>) {
        self.out.push_str(self.text.get(range).unwrap_or_default());
    }

    fn render(&mut self, range: Range<usize>, mut mutants: &[NumberedMutant<'_>]) {
        let mut at = range.start;
        while let Some(((id, mutant), rest)) = mutants.split_first() {
            let end = mutant.range.end;
            let inside = rest
                .iter()
                .take_while(|(_, other)| other.range.start < end)
                .count();
            let (inside, beside) = rest.split_at(inside);
            self.copy(at..mutant.range.start);
            self.place(*id, mutant, inside);
            at = end;
            mutants = beside;
        }
        self.copy(at..range.end);
    }

    fn place(&mut self, id: u32, mutant: &Mutant, inside: &[NumberedMutant<'_>]) {
        let start = self.out.len();
        let on = format!("crate::__mutant::on({id})");
        let before = match mutant.shape {
            Shape::Expression => format!("(if {on} {{ "),
            Shape::Statements => format!("if {on} {{ "),
            Shape::Condition => format!("!{on}"),
            Shape::Body => format!("if {on} {{ return "),
        };
        self.out.push_str(&before);
        let replaced = self.out.len();
        if mutant.shape != Shape::Condition {
            self.out.push_str(&mutant.replacement);
        }
        let replacement = replaced..self.out.len();
        let between = match mutant.shape {
            Shape::Expression | Shape::Statements => " } else { ",
            Shape::Condition => " && ",
            Shape::Body => "; } ",
        };
        self.out.push_str(between);
        let inserted = self.out.len();
        self.render(mutant.range.clone(), inside);
        // An error in the original is none of what was only put before it.
        let end = match mutant.shape {
            Shape::Expression => {
                self.out.push_str(" })");
                self.out.len()
            }
            Shape::Statements => {
                self.out.push_str(" }");
                self.out.len()
            }
            Shape::Condition | Shape::Body => inserted,
        };
        self.placed.push(PlacedMutant {
            id,
            whole: start..end,
            replacement,
        });
    }
}
