//! The bill of materials, in CycloneDX's JSON: the packages that the command is linked from.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use super::metadata::{COMMAND, Metadata, text};
use crate::{Result, root};

pub(super) fn of(metadata: &Metadata) -> Result<String> {
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    Ok(serde_json::to_string_pretty(&document(metadata, &checksums(&lock)))? + "\n")
}

fn document(metadata: &Metadata, checksums: &BTreeMap<String, String>) -> Value {
    let linked = metadata.linked();
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    let mut command = Value::Null;
    for (package, needs) in linked.values() {
        let mut component = component(package, checksums);
        let reference = reference(package);
        let needs = needs.iter().filter_map(|id| linked.get(id));
        let needs: Vec<String> = needs.map(|(package, _)| self::reference(package)).collect();
        dependencies.push(json!({"ref": reference, "dependsOn": needs}));
        match text(package, "name") == COMMAND {
            true => {
                component["type"] = "application".into();
                command = component;
            }
            false => components.push(component),
        }
    }
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": command},
        "components": components,
        "dependencies": dependencies,
    })
}

fn reference(package: &Value) -> String {
    let (name, version) = (text(package, "name"), text(package, "version"));
    format!("pkg:cargo/{name}@{version}")
}

fn component(package: &Value, checksums: &BTreeMap<String, String>) -> Value {
    let reference = reference(package);
    let mut component = json!({
        "type": "library",
        "bom-ref": reference,
        "purl": reference,
        "name": text(package, "name"),
        "version": text(package, "version"),
    });
    // The older way to say OR.
    let license = text(package, "license").replace('/', " OR ");
    if !license.is_empty() {
        component["licenses"] = json!([{"expression": license}]);
    }
    if let Some(sum) = checksums.get(&reference) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// The sums that `Cargo.lock` has, by package.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let start = format!("{name} = \"");
            let mut lines = package.lines();
            lines.find_map(|line| line.strip_prefix(&start)?.strip_suffix('"'))
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            sums.insert(format!("pkg:cargo/{name}@{version}"), sum.to_owned());
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::metadata::items;

    #[test]
    fn the_bill_lists_what_is_linked_with_its_sums_and_nothing_for_tests_or_builds() {
        let metadata = Metadata::read().unwrap();
        let bill: Value = serde_json::from_str(&of(&metadata).unwrap()).unwrap();
        let component = &bill["metadata"]["component"];
        assert_eq!(component["name"], COMMAND);
        let components = items(&bill, "components");
        let named = |name: &str| components.iter().find(|it| text(it, "name") == name);
        for name in ["tokio", "ring"] {
            let found = named(name).unwrap();
            assert_eq!(
                found["hashes"][0]["content"].as_str().unwrap().len(),
                64,
                "{name}"
            );
            assert!(!items(found, "licenses").is_empty(), "{name}");
        }
        assert!(named("baton-locks-server").is_some());
        for name in ["cc", "proptest", "baton-testkit", COMMAND] {
            assert!(named(name).is_none(), "{name}");
        }
        let references: Vec<&str> = components.iter().map(|it| text(it, "bom-ref")).collect();
        for dependency in items(&bill, "dependencies") {
            for need in items(dependency, "dependsOn") {
                assert!(references.contains(&need.as_str().unwrap()), "{need}");
            }
        }
    }
}
