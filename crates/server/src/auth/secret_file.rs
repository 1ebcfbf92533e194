//! Files with passwords: text that nobody but the owner and the group may read, and nobody but the
//! owner may change.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use baton_tls::pem::exposed_mode;

/// The most bytes of such a file.
const MAX_BYTES: u64 = 64 << 10;

/// The text of a file with passwords.
///
/// # Errors
/// The file, what is wrong with it, and the remedy, in one line.
pub fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let unreadable =
        |error: std::io::Error| format!("{shown}: {error}; name a file that can be read");
    let file = File::open(path).map_err(unreadable)?;
    // Of the file that was opened, which its name may not mean any more.
    let about = file.metadata().map_err(unreadable)?;
    let exposed = about.is_file().then(|| exposed_mode(&about)).flatten();
    if let Some(mode) = exposed {
        return Err(format!(
            "{shown} has passwords that other users may read or change (mode {mode:04o}); run: chmod 600 {shown}"
        ));
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    match text.len() as u64 > MAX_BYTES {
        true => Err(format!(
            "{shown} has more than {MAX_BYTES} bytes; name a file of passwords"
        )),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_may_read_or_change_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        write(&path, "bob:secret\n").unwrap();
        for (mode, is_fine) in [
            (0o600, true),
            (0o640, true),
            (0o400, true),
            (0o644, false),
            (0o602, false),
            (0o620, false),
        ] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            match read(&path) {
                Ok(text) => assert!(is_fine && text == "bob:secret\n", "{mode:o}"),
                Err(why) => assert!(!is_fine && why.contains("chmod 600"), "{mode:o}: {why}"),
            }
        }
    }

    #[test]
    fn what_is_no_small_text_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let refused = |bytes: &[u8]| {
            write(&path, bytes).unwrap();
            set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            read(&path).unwrap_err()
        };
        assert!(refused(&[0xff, 0xfe]).contains("users"));
        assert!(refused(&vec![b'a'; 65 << 10]).contains("more than 65536 bytes"));
        assert!(
            read(&folder.path().join("none"))
                .unwrap_err()
                .contains("none")
        );
        assert!(read(folder.path()).is_err());
    }
}
