//! Public errors and events: each cause stands once in a chain of errors, and a later version may
//! add a variant.

use super::{production_lines, refuse, sources};

/// The text of an error is whole, so that it has the cause in it wherever it is printed. A
/// `source()` would have a program that walks the chain print the cause twice. A field of that name
/// is written `r#source`, which `thiserror` does not take for the source; what is `#[from]` another
/// error is transparent.
#[test]
fn an_error_whose_text_has_its_cause_has_no_source() {
    let mut problems = Vec::new();
    let mut errors = 0;
    for (name, text) in sources("crates") {
        if !name.contains("/src/") || !text.contains("Error") {
            continue;
        }
        let mut before = "";
        let mut is_error = false;
        for (number, line) in production_lines(&text) {
            let line = line.trim();
            if line.contains("#[derive(") {
                is_error = line.contains("thiserror::Error");
                errors += usize::from(is_error);
            }
            // The shared variants of the recipes are in a macro.
            let in_error = is_error || name.ends_with("common_error.rs");
            let is_field = line.trim_start_matches("pub ").starts_with("source: ");
            // The type of a field, not a value; a reference is not an error's own.
            let is_type = line.ends_with("Error,") && !line.contains('&');
            let problem = if in_error && is_field && is_type {
                "write r#source"
            } else if line.contains("#[source]") || line.starts_with("fn source(&self)") {
                "an error has no source() beside its text"
            } else if line.contains("#[from]") && before != "#[error(transparent)]" {
                "only what is transparent may be #[from]"
            } else {
                before = line;
                continue;
            };
            problems.push(format!("{name}:{number}: {problem}"));
            before = line;
        }
    }
    assert!(errors > 60, "{errors}");
    refuse(&problems);
}

/// Crates that programs use directly: all their public enums.
const LIBRARIES: [&str; 2] = ["crates/client/", "crates/recipes/"];

/// Endings of names of what is reported, in any crate.
const REPORTED: [&str; 3] = ["Error", "Failure", "Event"];

#[test]
fn an_enum_that_programs_match_on_may_get_another_variant() {
    let mut problems = Vec::new();
    let mut enums = 0;
    for (name, text) in sources("crates") {
        let is_library = LIBRARIES.iter().any(|library| name.starts_with(library));
        if !name.contains("/src/") || name.contains("/sim/") || name.contains("/testkit/") {
            continue;
        }
        let mut attributes = String::new();
        for (number, line) in production_lines(&text) {
            let line = line.trim();
            let rest = line.strip_prefix("pub enum ").unwrap_or_default();
            let named = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
            if !named.is_empty() {
                let is_reported = REPORTED.iter().any(|ending| named.ends_with(ending));
                enums += 1;
                if (is_library || is_reported) && !attributes.contains("#[non_exhaustive]") {
                    problems.push(format!("{name}:{number}: {named} is not #[non_exhaustive]"));
                }
            }
            match line.starts_with("#[") {
                true => attributes.push_str(line),
                false => attributes.clear(),
            }
        }
    }
    assert!(enums > 100, "{enums}");
    refuse(&problems);
}
