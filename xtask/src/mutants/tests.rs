//! The scanner and the rewriter on small sources.

use std::collections::BTreeMap;
use std::fs;

use super::modules::MODULES;
use super::mutant::{Mutant, Operator, Shape};
use super::rewrite::{rewrite, without_overlaps};
use super::scan::{scan, test_modules};
use super::switch;

/// Returns what is found in a source, one line a mutant: line, operator, change.
fn found(text: &str) -> Vec<String> {
    let mutants = scan("f.rs", text).unwrap();
    let shown = mutants.iter().map(|mutant| {
        assert_eq!(
            super::mutant::one_line(&text[mutant.range.clone()]),
            mutant.original
        );
        format!("{} {} {}", mutant.line, mutant.operator, mutant.change())
    });
    shown.collect()
}

const GOLDEN: &str = r#"
use std::time::Duration;
const LIMIT: u8 = 3;
static OTHER: u8 = 4;
impl Book {
    /// Not `a < b`.
    fn extend(&mut self, sent: Instant, end: u8) -> bool {
        if self.ready() && end <= LIMIT {
            self.watch(end);
            self.deadline = sent;
        }
        match end {
            1 if !self.dead => self.items[end + 1],
            _ => false,
        }
    }
}
#[cfg(test)]
mod tests {
    fn t() { f(1 < 2); }
}
const fn no(a: u8) -> u8 { a + 1 }
async fn release(session: &Session, version: i32) -> Result<()> {
    session.sync("/a").await?;
    session.delete("/a", Some(version)).await?;
    tracing::debug!("a {}", 1 + 1);
    tokio::select! {
        biased;
        x = session.until(7), if x == y => { go(); }
        else => return Ok(()),
    }
    if let Some(a) = session.get() && a > 2 {}
    Ok(())
}
"#;

#[test]
fn the_mutants_of_a_sample() {
    let expected = "\
7 body if self.ready() && end <= LIMIT { self.watch(end); self.deadline = sent; } match...1], _ => false, } => true
7 body if self.ready() && end <= LIMIT { self.watch(end); self.deadline = sent; } match...1], _ => false, } => false
8 negated self.ready() => !self.ready()
8 and-or self.ready() && end <= LIMIT => (self.ready()) || (end <= LIMIT)
8 always-true self.ready() && end <= LIMIT => true
8 always-false self.ready() && end <= LIMIT => false
8 later end => crate::__mutant::later(end)
8 boundary end <= LIMIT => end < LIMIT
9 watch-left-out self.watch(end); => nothing
9 later end => crate::__mutant::later(end)
10 left-out self.deadline = sent; => nothing
10 later sent => crate::__mutant::later(sent)
13 not !self.dead => self.dead
13 always-true !self.dead => true
13 always-false !self.dead => false
13 later end => crate::__mutant::later(end)
13 arithmetic end + 1 => end - 1
13 index end + 1 => (end + 1) + 1
13 literal 1 => 2
23 body session.sync(\"/a\").await?; session.delete(\"/a\", Some(version)).await?; tracing::...& a > 2 {} Ok(()) => Ok(())
24 sync-left-out session.sync(\"/a\") => Ok(())
24 sync-left-out session.sync(\"/a\").await?; => nothing
24 swapped session.sync(\"/a\").await?; session.delete(\"/a\", Some(version)).await?; => session.delete(\"/a\", Some(version)).await?; session.sync(\"/a\").await?;
25 left-out session.delete(\"/a\", Some(version)).await?; => nothing
25 version-left-out Some(version) => None
29 literal 7 => 8
29 equality x == y => x != y
29 always-true x == y => true
29 always-false x == y => false
29 left-out go(); => nothing
32 always-false let Some(a) = session.get() && a > 2 => false
32 boundary a > 2 => a >= 2
32 always-true a > 2 => true
32 literal 2 => 3";
    let found = found(GOLDEN);
    assert_eq!(found.join("\n"), expected, "\n{}", found.join("\n"));
}

#[test]
fn what_is_only_for_tests_is_known() {
    let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(any(test, feature = \"testing\"))]\npub mod c;\n\
                #[cfg(feature = \"x\")]\nmod d;\n#[cfg(not(unix))]\nmod e;\n";
    assert_eq!(test_modules(text).unwrap(), ["b", "c", "e"]);
}

fn all(text: &str, keep: impl Fn(&Mutant) -> bool) -> Vec<Mutant> {
    let mut mutants = scan("f.rs", text).unwrap();
    mutants.retain(keep);
    mutants
}

#[test]
fn mutants_inside_of_each_other_are_written_into_one_text() {
    let text = "fn f(a: u8) -> bool { if a < 3 { g(); h(); } a == 1 }";
    let mutants = all(text, |mutant| {
        use Operator::{AlwaysFalse, Body, Boundary, LeftOut, Literal};
        let operators = [AlwaysFalse, Body, Boundary, LeftOut, Literal];
        operators.contains(&mutant.operator)
    });
    let numbered: Vec<_> = (1..).zip(&mutants).collect();
    let (out, placed) = rewrite(text, &numbered);
    assert_eq!(
        out,
        "fn f(a: u8) -> bool {if crate::__mutant::on(1) { return true; } \
         if crate::__mutant::on(2) { return false; }  if \
         (if crate::__mutant::on(3) { a <= 3 } else { \
         (if crate::__mutant::on(4) { false } else { \
         a < (if crate::__mutant::on(5) { 4 } else { 3 }) }) }) \
         { if crate::__mutant::on(6) {  } else { g(); } if crate::__mutant::on(7) {  } else { h(); } } \
         a == (if crate::__mutant::on(8) { 2 } else { 1 }) }"
    );
    syn::parse_file(&out).unwrap();
    for place in placed {
        let text = &out[place.replacement.clone()];
        let (_, mutant) = numbered.iter().find(|(id, _)| *id == place.id).unwrap();
        assert_eq!(text, mutant.replacement);
        assert!(out[place.whole].contains(&format!("on({})", place.id)));
    }
}

#[test]
fn a_condition_with_let_is_switched_off_before_it() {
    let text = "fn f() { while let Some(a) = next() { g(a); } }";
    let mutants = all(text, |mutant| mutant.shape == Shape::Condition);
    let (out, _) = rewrite(text, &[(9, &mutants[0])]);
    assert_eq!(
        out,
        "fn f() { while !crate::__mutant::on(9) && let Some(a) = next() { g(a); } }"
    );
}

#[test]
fn two_swaps_that_share_a_statement_are_not_in_one_text() {
    let text = "fn f() { a(); b(); c(); }";
    let swaps = all(text, |mutant| mutant.operator == Operator::Swapped);
    assert_eq!(swaps.len(), 2);
    let kept = without_overlaps(swaps.clone());
    assert_eq!(kept, swaps[..1]);
    let whole = without_overlaps(scan("f.rs", text).unwrap());
    assert_eq!(whole.len(), scan("f.rs", text).unwrap().len() - 1);
}

/// Each module's files are there, and with all mutants of theirs they are still Rust.
#[test]
fn the_project_s_own_sources_can_be_rewritten() {
    let root = crate::root();
    for module in MODULES {
        let mut by_file: BTreeMap<String, Vec<Mutant>> = BTreeMap::new();
        for mutant in module.scan(&root).unwrap() {
            by_file.entry(mutant.file.clone()).or_default().push(mutant);
        }
        assert!(!by_file.is_empty(), "{} has mutants", module.name);
        for (file, mutants) in by_file {
            let mutants = without_overlaps(mutants);
            let numbered: Vec<_> = (1..).zip(&mutants).collect();
            let text = fs::read_to_string(root.join(&file)).unwrap();
            let (out, _) = rewrite(&text, &numbered);
            if let Err(error) = syn::parse_file(&out) {
                panic!("{file}, line {}: {error}", error.span().start().line);
            }
        }
    }
}

#[test]
fn no_mutant_is_active_where_none_is_named() {
    assert!(!switch::on(1));
    assert_eq!(switch::later(Some(5_u64)), Some(1005));
}
