//! Cargo's metadata of the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::{Result, command, root};

/// The command's package.
pub(super) const COMMAND: &str = "baton-locks-cli";

/// The answer of `cargo metadata`.
#[derive(Debug)]
pub(super) struct Metadata(pub(super) Value);

/// Text of a field.
pub(super) fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}

/// Items of a field.
pub(super) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    let items = value.get(field).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

/// Returns whether a dependency counts: only some are needed at run time.
fn is_normal(dependency: &Value) -> bool {
    dependency.get("kind").is_none_or(Value::is_null)
}

impl Metadata {
    pub(super) fn read() -> Result<Self> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(root());
        Ok(Self(serde_json::from_str(&command::output(&mut cargo)?)?))
    }

    /// Packages of the workspace, by name.
    fn own(&self) -> BTreeMap<&str, &Value> {
        let members: BTreeSet<&str> = items(&self.0, "workspace_members")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let packages = items(&self.0, "packages").iter();
        let own = packages.filter(|package| members.contains(text(package, "id")));
        own.map(|package| (text(package, "name"), package))
            .collect()
    }

    /// The one version of all that is published.
    pub(super) fn version(&self) -> Result<String> {
        let own = self.own();
        let versions: BTreeSet<&str> = self
            .publishing_order()
            .iter()
            .filter_map(|name| Some(text(own.get(name.as_str())?, "version")))
            .collect();
        match versions.iter().collect::<Vec<_>>().as_slice() {
            [version] => Ok((**version).to_owned()),
            versions => Err(format!("the packages have the versions {versions:?}").into()),
        }
    }

    /// The packages that are published, each behind those that it needs.
    pub(super) fn publishing_order(&self) -> Vec<String> {
        let own = self.own();
        let mut left: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (name, package) in &own {
            let is_private = package.get("publish").is_some_and(Value::is_array);
            if is_private {
                continue;
            }
            let needs = items(package, "dependencies").iter();
            let needs = needs.filter(|dependency| is_normal(dependency));
            let needs = needs.map(|dependency| text(dependency, "name"));
            left.insert(name, needs.filter(|need| own.contains_key(need)).collect());
        }
        let mut order: Vec<String> = Vec::new();
        while !left.is_empty() {
            let ready: Vec<&str> = left
                .iter()
                .filter(|(_, needs)| needs.iter().all(|need| !left.contains_key(need)))
                .map(|(name, _)| *name)
                .collect();
            if ready.is_empty() {
                break;
            }
            for name in ready {
                left.remove(name);
                order.push(name.to_owned());
            }
        }
        order
    }

    /// The packages that the command is linked from, by id, with the ids of those that each needs.
    pub(super) fn linked(&self) -> BTreeMap<&str, (&Value, Vec<&str>)> {
        let packages: BTreeMap<&str, &Value> = items(&self.0, "packages")
            .iter()
            .map(|package| (text(package, "id"), package))
            .collect();
        let resolve = self.0.get("resolve").unwrap_or(&Value::Null);
        let nodes: BTreeMap<&str, &Value> = items(resolve, "nodes")
            .iter()
            .map(|node| (text(node, "id"), node))
            .collect();
        let mut found = BTreeMap::new();
        let own = self.own();
        let mut next: Vec<&str> = own
            .get(COMMAND)
            .map(|it| text(it, "id"))
            .into_iter()
            .collect();
        while let Some(id) = next.pop() {
            let (Some(package), Some(node)) = (packages.get(id), nodes.get(id)) else {
                continue;
            };
            if found.contains_key(id) {
                continue;
            }
            let needs = items(node, "deps").iter();
            let needs = needs.filter(|need| items(need, "dep_kinds").iter().any(is_normal));
            let needs: Vec<&str> = needs.map(|need| text(need, "pkg")).collect();
            next.extend(&needs);
            found.insert(id, (*package, needs));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_package_is_published_behind_those_that_it_needs() {
        let metadata = Metadata::read().unwrap();
        let order = metadata.publishing_order();
        let own = metadata.own();
        assert_eq!(order.last().map(String::as_str), Some(COMMAND));
        for (at, name) in order.iter().enumerate() {
            let needs = items(own[name.as_str()], "dependencies").iter();
            for need in needs.filter(|need| is_normal(need)) {
                let need = text(need, "name");
                if own.contains_key(need) {
                    assert!(
                        order[..at].iter().any(|before| before == need),
                        "{name}: {need}"
                    );
                }
            }
        }
        for private in ["xtask", "baton-bench", "baton-sim", "baton-testkit"] {
            assert!(!order.iter().any(|name| name == private), "{private}");
        }
        assert!(!metadata.version().unwrap().is_empty());
    }
}
