//! The order of modules inside a crate: at each level no circle among sibling modules, and where
//! the folder's first file has a map (a table whose first column is called *module*), a module uses
//! only those below it. A folder of more than six modules has a map.
//!
//! A module and the modules inside it may use each other. Names that a module re-exports count as
//! the module that they come from. Tests count for nothing here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

use super::{files, refuse, root};

/// A folder of more modules has a map.
const MODULES_WITHOUT_MAP: usize = 6;

type Name = Vec<String>;

/// A crate's modules, each with what it uses.
#[derive(Default)]
struct Modules {
    /// The modules themselves, with the head comment of their file.
    heads: BTreeMap<Name, String>,
    /// For each module, the names that it takes from elsewhere, as the paths that it wrote.
    imports: BTreeMap<Name, BTreeMap<String, Name>>,
    /// Paths, each with the module that wrote it.
    uses: Vec<(Name, Name)>,
}

impl Modules {
    fn read(src: &Path) -> Self {
        let mut modules = Self::default();
        let mut paths = Vec::new();
        files(src, ".rs", &mut paths);
        for path in paths {
            let inside = path.strip_prefix(src).unwrap().with_extension("");
            let mut name: Name = inside
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            if name.iter().any(|part| part == "tests") {
                continue;
            }
            if matches!(&**name.last().unwrap(), "lib" | "main" | "mod") {
                name.pop();
            }
            let text = fs::read_to_string(&path).unwrap();
            let head = text.lines().take_while(|line| {
                line.is_empty() || line.starts_with("//") || line.starts_with("#![")
            });
            let head = head.collect::<Vec<_>>().join("\n");
            let known = modules.heads.entry(name.clone()).or_default();
            known.push_str(&head);
            let file = syn::parse_file(&text).unwrap();
            let mut reader = Reader {
                modules: &mut modules,
                name,
            };
            reader.visit_file(&file);
        }
        modules
    }

    /// The module that a path leads to, as `from` reads it; `None`: it leads out of the crate.
    fn resolve(&self, from: &Name, path: &[String], depth: usize) -> Option<Name> {
        let (first, mut rest) = path.split_first()?;
        let mut at = from.clone();
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop();
            }
            _ => rest = path,
        }
        while let Some((next, after)) = rest.split_first() {
            if next == "super" {
                at.pop();
                rest = after;
                continue;
            }
            let mut child = at.clone();
            child.push(next.clone());
            if self.heads.contains_key(&child) {
                at = child;
                rest = after;
                continue;
            }
            let import = self.imports.get(&at).and_then(|names| names.get(next));
            if let Some(import) = import
                && depth > 0
                && import.as_slice() != path
            {
                let mut longer = import.clone();
                longer.extend_from_slice(after);
                return self.resolve(&at, &longer, depth - 1);
            }
            break;
        }
        let relative = matches!(first.as_str(), "crate" | "self" | "super");
        (relative || at != *from).then_some(at)
    }

    /// For each module with modules inside: who of them uses whom.
    fn edges(&self) -> BTreeMap<Name, BTreeMap<String, BTreeSet<String>>> {
        let mut edges = BTreeMap::<Name, BTreeMap<String, BTreeSet<String>>>::new();
        for (from, path) in &self.uses {
            let Some(to) = self.resolve(from, path, 6) else {
                continue;
            };
            let same = from.iter().zip(&to).take_while(|(one, other)| one == other);
            let same = same.count();
            if let (Some(one), Some(other)) = (from.get(same), to.get(same)) {
                let level = edges.entry(from[..same].to_vec()).or_default();
                level.entry(one.clone()).or_default().insert(other.clone());
            }
        }
        edges
    }

    fn children(&self, of: &Name) -> BTreeSet<&String> {
        self.heads
            .keys()
            .filter(|name| name.len() == of.len() + 1 && name.starts_with(of))
            .filter_map(|name| name.last())
            .collect()
    }
}

/// Collects what one file uses.
struct Reader<'a> {
    modules: &'a mut Modules,
    name: Name,
}

impl Reader<'_> {
    fn uses(&mut self, path: Name) {
        self.modules.uses.push((self.name.clone(), path));
    }

    fn tree(&mut self, tree: &syn::UseTree, before: &Name) {
        let mut path = before.clone();
        match tree {
            syn::UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.tree(&inner.tree, &path);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(tree, &path);
                }
            }
            syn::UseTree::Name(name) => self.import(path, &name.ident, &name.ident),
            syn::UseTree::Rename(name) => self.import(path, &name.ident, &name.rename),
            syn::UseTree::Glob(_) => self.uses(path),
        }
    }

    fn import(&mut self, mut path: Name, name: &syn::Ident, called: &syn::Ident) {
        if name != "self" {
            path.push(name.to_string());
        }
        let here = self.modules.imports.entry(self.name.clone()).or_default();
        here.insert(called.to_string(), path.clone());
        self.uses(path);
    }

    /// Paths in the arguments of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Name::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.tokens(group.stream());
                }
                _ => self.end(&mut path),
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Name) {
        if path.len() > 1 {
            self.uses(std::mem::take(path));
        }
        path.clear();
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => list
            .tokens
            .to_string()
            .split_whitespace()
            .any(|token| token == "test"),
        meta => meta.path().is_ident("test"),
    })
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if item.content.is_some() {
            self.name.push(item.ident.to_string());
            self.modules.heads.entry(self.name.clone()).or_default();
            syn::visit::visit_item_mod(self, item);
            self.name.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.tree(&item.tree, &Name::new());
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let path_as_written = path.segments.iter().map(|part| part.ident.to_string());
        let path_as_written: Name = path_as_written.collect();
        if path_as_written.len() > 1 {
            self.uses(path_as_written);
        }
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'a syn::Macro) {
        self.tokens(item.tokens.clone());
    }
}

/// Those that can be reached from one of them and lead back to it.
fn circle(edges: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&String> {
    let reached = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut left: Vec<&String> = edges.get(from).into_iter().flatten().collect();
        while let Some(next) = left.pop() {
            if reached.insert(next) {
                left.extend(edges.get(next).into_iter().flatten());
            }
        }
        reached
    };
    let circular = edges.keys().filter(|from| reached(from).contains(from));
    circular.collect()
}

/// The rows of the map in a file's head: the modules that each names.
fn map(head: &str) -> Vec<Vec<String>> {
    let lines = head
        .lines()
        .map(|line| line.trim_start_matches(['/', '!']).trim());
    let table =
        lines.skip_while(|line| !line.starts_with("| module") && !line.starts_with("| file"));
    table
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cell = line.split('|').nth(1).unwrap_or("");
            let names = cell.split('`').skip(1).step_by(2);
            names
                .map(|name| name.trim_end_matches('/').to_owned())
                .collect()
        })
        .collect()
}

/// Returns what is wrong with the modules below `of`.
fn problems_of(modules: &Modules, krate: &str) -> Vec<String> {
    let edges = modules.edges();
    let mut problems = Vec::new();
    let none = BTreeMap::new();
    for (of, head) in &modules.heads {
        let edges = edges.get(of).unwrap_or(&none);
        let place = format!("{krate}/src/{}", of.join("/"));
        let circle = circle(edges);
        if !circle.is_empty() {
            let arrows = circle.iter().map(|from| {
                let to = edges[*from].iter().filter(|to| circle.contains(to));
                let to = to.map(String::as_str).collect::<Vec<_>>();
                format!("{from} → {}", to.join(", "))
            });
            let arrows = arrows.collect::<Vec<_>>().join("; ");
            problems.push(format!("{place}: a circle: {arrows}"));
        }
        let children = modules.children(of);
        let map = map(head);
        if map.is_empty() {
            if children.len() > MODULES_WITHOUT_MAP {
                let problem = format!("{place}: {} modules and no map", children.len());
                problems.push(problem);
            }
            continue;
        }
        let rank = |name: &String| map.iter().position(|row| row.contains(name));
        for child in &children {
            if rank(child).is_none() {
                problems.push(format!("{place}: the map lacks {child}"));
            }
        }
        for name in map.iter().flatten().filter(|name| !children.contains(name)) {
            problems.push(format!("{place}: there is no module {name}"));
        }
        for (from, to) in edges
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |to| (from, to)))
        {
            if rank(from) > rank(to) {
                let problem = format!("{place}: {from} uses {to}, which is above it in the map");
                problems.push(problem);
            }
        }
    }
    problems
}

#[test]
fn modules_depend_downwards_only() {
    let mut crates: Vec<_> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| format!("crates/{}", entry.unwrap().file_name().display()))
        .collect();
    crates.push("xtask".to_owned());
    crates.sort();
    let mut problems = Vec::new();
    for krate in &crates {
        let modules = Modules::read(&root().join(krate).join("src"));
        assert!(modules.heads.len() > 2, "{krate}");
        problems.extend(problems_of(&modules, krate));
    }
    refuse(&problems);
}

#[test]
fn a_circle_and_a_step_upwards_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let found = || problems_of(&Modules::read(folder.path()), "k");
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Third;");
    write("a.rs", "use crate::b::Second;\npub struct First;");
    write("b/mod.rs", "mod d;\npub struct Second;");
    write(
        "b/d.rs",
        "fn f() { let _ = (super::Second, vec![crate::c::Third]); }",
    );
    write(
        "c.rs",
        "pub struct Third;\n#[cfg(test)]\nmod tests { use crate::a::First; }",
    );
    assert_eq!(found(), Vec::<String>::new());
    // By the name under which the crate's root exports it.
    write(
        "c.rs",
        "pub struct Third;\nfn f() -> crate::a::First { todo() }",
    );
    write("a.rs", "use crate::Third;\npub struct First;");
    assert_eq!(found(), ["k/src/: a circle: a → c; c → a"]);
    write("c.rs", "pub struct Third;");
    let map = "// | module | owns |\n// |---|---|\n// | `b/`, `c` | |\n// | `a` | |\n";
    write(
        "lib.rs",
        &format!("{map}mod a;\nmod b;\nmod c;\npub use c::Third;"),
    );
    assert_eq!(found(), ["k/src/: a uses c, which is above it in the map"]);
}
