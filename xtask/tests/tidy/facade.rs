//! The library's facade: a user needs no crate of ours but `baton`.

use std::collections::BTreeSet;
use std::fs;

use super::{refuse, root};

/// The names that a file re-exports, from any crate.
fn reexported(file: &str) -> BTreeSet<String> {
    fn names(tree: &syn::UseTree, found: &mut BTreeSet<String>) {
        match tree {
            syn::UseTree::Path(path) => names(&path.tree, found),
            syn::UseTree::Name(name) => drop(found.insert(name.ident.to_string())),
            syn::UseTree::Rename(rename) => drop(found.insert(rename.rename.to_string())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| names(item, found)),
            syn::UseTree::Glob(_) => panic!("a glob hides what is re-exported"),
        }
    }
    let text = fs::read_to_string(root().join(file)).unwrap();
    let mut found = BTreeSet::new();
    for item in syn::parse_file(&text).unwrap().items {
        if let syn::Item::Use(item) = item
            && matches!(item.vis, syn::Visibility::Public(_))
        {
            names(&item.tree, &mut found);
        }
    }
    found
}

/// Each public type of the client has a name in `baton`. That each type in a public signature has a
/// public name in its own crate is what the lint `unnameable_types` checks.
#[test]
fn the_library_names_each_type_of_the_client() {
    let client = reexported("crates/client/src/lib.rs");
    assert!(client.len() > 40, "{client:?}");
    let mut named = BTreeSet::new();
    for file in ["session", "tree", "lease", "blocking"] {
        let names = reexported(&format!("crates/recipes/src/{file}.rs"));
        named.extend(names);
    }
    let missing = client.difference(&named);
    refuse(
        &missing
            .map(|name| format!("baton does not name {name}"))
            .collect::<Vec<_>>(),
    );
}
