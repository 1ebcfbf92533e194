//! Groups of users by their names, as `/etc/group` has them.

use std::path::Path;

/// The file with the groups of this machine. Those of a directory service are not in it.
const FILE: &str = "/etc/group";

/// The id of the group that this text names or numbers.
///
/// # Errors
/// The text, and what to write.
pub(super) fn id(text: &str) -> Result<u32, String> {
    of_file(Path::new(FILE), text)
}

fn of_file(file: &Path, text: &str) -> Result<u32, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text
            .parse()
            .map_err(|_| format!("'{text}' is not the number of a group; write a smaller one"));
    }
    let shown = file.display();
    let groups = std::fs::read_to_string(file)
        .map_err(|error| format!("{shown}: {error}; write the number of the group"))?;
    let mut ids = groups.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let is_meant = fields.next()? == text && !text.is_empty();
        fields.nth(1)?.parse().ok().filter(|_| is_meant)
    });
    ids.next().ok_or_else(|| {
        format!("'{text}' is not a group of {shown}; write the name of one, or its number")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_name_or_a_number() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("group");
        std::fs::write(
            &file,
            "root:x:0:\n# no\nbaton:x:997:alice,bob\nodd:x\n:x:5:\n",
        )
        .unwrap();
        for (text, group) in [("root", 0), ("baton", 997), ("12", 12)] {
            assert_eq!(of_file(&file, text), Ok(group), "{text}");
        }
        for text in ["alice", "odd", "", "-1", "4294967296", "bat"] {
            let refused = of_file(&file, text).unwrap_err();
            assert!(
                refused.starts_with(&format!("'{text}' is not ")),
                "{refused}"
            );
        }
        let refused = of_file(&folder.path().join("none"), "baton").unwrap_err();
        assert!(refused.contains("write the number"), "{refused}");
    }
}
