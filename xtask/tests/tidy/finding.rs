//! The page of questions and places is true: each file is there, has the name, and is found from
//! ARCHITECTURE.md.

use std::fs;

use super::{refuse, root};

/// As many questions as the page has at least.
const QUESTIONS: usize = 20;

#[test]
fn what_the_page_of_questions_names_is_there() {
    let page = fs::read_to_string(root().join("docs/internals/finding.md")).unwrap();
    let architecture = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut problems = Vec::new();
    let mut questions = 0;
    for row in page.lines().filter(|line| line.contains("? | `")) {
        questions += 1;
        let mut cells = row.split('`').skip(1).step_by(2);
        let (file, name) = (cells.next().unwrap(), cells.next().unwrap());
        let Ok(text) = fs::read_to_string(root().join(file)) else {
            problems.push(format!("there is no {file}"));
            continue;
        };
        let defines = ["fn", "struct", "enum"].iter().any(|kind| {
            let starts = format!("{kind} {name}");
            text.match_indices(&starts).any(|(at, _)| {
                !text[at + starts.len()..]
                    .starts_with(|next: char| next.is_alphanumeric() || next == '_')
            })
        });
        if !defines {
            problems.push(format!("{file} does not define {name}"));
        }
        // `net/frames` or `net/` of `crates/server/src/net/frames.rs`.
        let (krate, inside) = file.split_once("/src/").unwrap();
        let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
        let folder = inside.split('/').next().unwrap_or(inside);
        let named = [
            format!("`{inside}`"),
            format!("`{folder}/`"),
            format!("`{folder}`"),
        ];
        let is_mapped = architecture.contains(&format!("`{krate}`"))
            && named
                .iter()
                .any(|name| architecture.contains(name.as_str()));
        if !is_mapped {
            problems.push(format!("ARCHITECTURE.md does not lead to {file}"));
        }
    }
    assert!(questions >= QUESTIONS, "{questions} questions");
    refuse(&problems);
}
