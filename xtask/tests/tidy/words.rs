//! Names of types and first lines of documentation: a type is a noun of the field, and a first line
//! says what the item is or does. Crates that are not there yet have an allowance, which only
//! shrinks.

use std::collections::BTreeMap;

use super::{refuse, sources};

/// Names that say nothing without their context: participles, pronouns, adverbs, verbs, and nouns
/// of no field.
const NOT_TYPES: &[&str] = &[
    "Ahead",
    "Alone",
    "Anew",
    "Apart",
    "Armed",
    "Asked",
    "At",
    "Because",
    "Belief",
    "Believes",
    "Birth",
    "Book",
    "By",
    "Bye",
    "Course",
    "Dead",
    "Done",
    "Door",
    "Ended",
    "Entered",
    "Excuse",
    "Excuses",
    "Fate",
    "Fired",
    "Given",
    "Glance",
    "Got",
    "Habit",
    "Held",
    "Here",
    "Home",
    "How",
    "Idling",
    "Inside",
    "Kept",
    "Known",
    "Ledger",
    "Left",
    "Lent",
    "Life",
    "Lives",
    "Luggage",
    "Made",
    "Manners",
    "Means",
    "Meant",
    "Mistake",
    "Need",
    "NotThere",
    "Noted",
    "One",
    "Own",
    "Past",
    "Place",
    "Placed",
    "Power",
    "Printed",
    "Reach",
    "Registered",
    "Releasing",
    "Running",
    "Said",
    "Seat",
    "Seen",
    "Settled",
    "Shown",
    "Since",
    "Standing",
    "Still",
    "Stopped",
    "Stopping",
    "Story",
    "Stuck",
    "Surroundings",
    "Taken",
    "Through",
    "Together",
    "Travelling",
    "Tried",
    "Truth",
    "UnderWay",
    "Underway",
    "Unless",
    "Unresolved",
    "Waiting",
    "Wanted",
    "Way",
    "Ways",
    "What",
    "Which",
    "Who",
    "Wish",
    "Without",
    "World",
    "Would",
];

/// Words with which a first line asks a question instead of naming the item.
const NOT_FIRST: &[&str] = &[
    "As", "By", "How", "Of", "Until", "What", "Whatever", "Where", "Which", "Who", "Whoever",
    "Whom", "Whose", "Why",
];

/// Type names and first lines that a crate may still have. Lower a number with what you mend; never
/// raise one.
const ALLOWED: &[(&str, usize, usize)] = &[];

/// The type that a line declares.
fn declared_type(line: &str) -> Option<&str> {
    let words = line.split("//").next()?.split_whitespace();
    let mut words = words.skip_while(|word| word.starts_with("pub"));
    let kinds = ["struct", "enum", "trait", "type", "union"];
    kinds.contains(&words.next()?).then_some(())?;
    let name = words.next()?;
    name.split(|char: char| !char.is_alphanumeric()).next()
}

/// The text of a line of documentation.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))
}

/// The lines that declare a type of such a name, and those that open with such a word.
fn found(text: &str) -> (Vec<usize>, Vec<usize>) {
    let (mut types, mut openings) = (Vec::new(), Vec::new());
    let mut before = "";
    for (number, line) in text.lines().enumerate() {
        if declared_type(line).is_some_and(|name| NOT_TYPES.contains(&name)) {
            types.push(number + 1);
        }
        let first = doc(line).filter(|_| doc(before).is_none());
        let word = first.and_then(|text| text.split(|char: char| !char.is_alphabetic()).nth(1));
        if word.is_some_and(|word| NOT_FIRST.contains(&word)) {
            openings.push(number + 1);
        }
        before = line;
    }
    (types, openings)
}

#[test]
fn types_are_nouns_and_first_lines_name_the_item() {
    let mut problems: BTreeMap<String, [Vec<String>; 2]> = BTreeMap::new();
    for (name, text) in ["crates", "xtask"].iter().flat_map(|dir| sources(dir)) {
        let parts: Vec<&str> = name.split('/').collect();
        let part = if parts[0] == "crates" {
            parts[1]
        } else {
            parts[0]
        };
        let (types, openings) = found(&text);
        let problems = problems.entry(part.to_owned()).or_default();
        for (lines, problems) in [types, openings].iter().zip(problems) {
            problems.extend(lines.iter().map(|number| format!("{name}:{number}")));
        }
    }
    let mut too_many = Vec::new();
    for (part, [types, openings]) in problems {
        let allowed = ALLOWED.iter().find(|(allowed, ..)| *allowed == part);
        let (_, most_types, most_openings) = *allowed.unwrap_or(&("", 0, 0));
        for (found, most, what) in [
            (
                types,
                most_types,
                "a type's name is not a noun of the field",
            ),
            (
                openings,
                most_openings,
                "a first line does not name its item",
            ),
        ] {
            if found.len() > most {
                too_many.push(format!(
                    "{part}: {what} ({}, allowed {most}):\n  {}",
                    found.len(),
                    found.join("\n  ")
                ));
            }
        }
    }
    refuse(&too_many);
}

#[test]
fn a_bare_name_and_a_question_are_found() {
    let text = [
        "//! How it is.",
        "",
        "/// What is held.",
        "/// Which goes on.",
        "pub(crate) struct Held<T>(T);",
        "/// Whatever.",
        "    type Own = u8;",
        "/// Owner.",
        "struct Owner;",
        "// struct Held;",
    ];
    assert_eq!(found(&text.join("\n")), (vec![5, 7], vec![1, 3, 6]));
    assert_eq!(found("/// Whole.\nstruct HeldBytes;\n"), (vec![], vec![]));
}
