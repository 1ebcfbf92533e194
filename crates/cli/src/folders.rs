//! The folders of this user: where data and settings are kept unless a folder is named.
//!
//! A folder that the environment names counts only if it is this user's, or the superuser's:
//! `sudo -E` and `su` leave the variables of the user before, whose folders are not for the state
//! of another.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::exit::Failure;

/// Permissions with which others than the owner could change a file.
pub(crate) const CHANGED_BY_OTHERS: u32 = 0o022;
/// The user who can replace any file anyway.
const SUPERUSER: u32 = 0;

/// The server's folder: the one given, else `baton` in the user's state folder.
pub(crate) fn data(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let chosen = match given {
        Some(folder) => folder.to_owned(),
        None => state_home()?.join("baton"),
    };
    let folder = std::path::absolute(&chosen).map_err(|error| {
        Failure::usage(format!(
            "{} is not a folder: {error}; give another --data-dir",
            chosen.display()
        ))
    })?;
    text(&folder)?;
    Ok(folder)
}

/// The path as text, for a configuration file.
///
/// # Errors
/// A path that is not UTF-8.
pub(crate) fn text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::usage(format!(
            "the path of the folder {} is not UTF-8; choose another folder",
            path.display()
        ))
    })
}

/// The user's folder of settings, if there is one.
pub(crate) fn config_home() -> Option<PathBuf> {
    of_user("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))
}

/// The folders that variables name and that belong to another user, each with its variable.
pub(crate) fn passed_over() -> Vec<(&'static str, PathBuf)> {
    let named = ["HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"].into_iter();
    named
        .filter_map(|name| Some((name, absolute_variable(name)?)))
        .filter(|(_, folder)| !is_users(folder))
        .collect()
}

/// Whether a file or folder of this owner is safe to trust for this user.
pub(crate) fn is_trusted(owner: u32, user: u32) -> bool {
    owner == user || owner == SUPERUSER
}

/// The folder that this variable names, if it is an absolute path.
fn absolute_variable(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(name).map(PathBuf::from);
    path.filter(|path| path.is_absolute())
}

/// The folder that this variable names, if it is this user's.
pub(crate) fn of_user(name: &str) -> Option<PathBuf> {
    absolute_variable(name).filter(|folder| is_users(folder))
}

/// The user's home: HOME, else what the system has for the user.
fn home() -> Option<PathBuf> {
    let of_system = || Some(User::from_uid(Uid::effective()).ok()??.dir);
    of_user("HOME").or_else(of_system)
}

/// Whether the folder, or the first one above it that is there, is this user's, or one of the
/// superuser's that this user may enter: `sudo -u USER -E` leaves `/root`.
fn is_users(folder: &Path) -> bool {
    let mut there = folder.ancestors();
    let about = there.find_map(|folder| Some((folder, std::fs::metadata(folder).ok()?)));
    about.is_none_or(|(folder, about)| {
        let may_enter = accessat(CWD, folder, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
        may_enter && is_trusted(about.uid(), Uid::effective().as_raw())
    })
}

fn state_home() -> Result<PathBuf, Failure> {
    let at_home = || Some(home()?.join(".local/state"));
    of_user("XDG_STATE_HOME").or_else(at_home).ok_or_else(|| {
        Failure::baton("no folder for the local server: this user has no home folder of its own, by XDG_STATE_HOME, HOME or the system; give --data-dir or --servers")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_user_owns_is_not_trusted() {
        for (owner, user, expected) in [(7, 7, true), (0, 7, true), (7, 0, false), (8, 7, false)] {
            assert_eq!(is_trusted(owner, user), expected, "{owner} {user}");
        }
    }

    #[test]
    fn a_home_that_this_user_may_not_enter_is_passed_over() {
        let home = tempfile::tempdir().unwrap();
        assert!(is_users(home.path()) && is_users(&home.path().join("none/yet")));
        // Not a folder: nobody may enter it, not even the superuser.
        let file = home.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(!is_users(&file) && !is_users(&file.join("below")));
    }

    #[test]
    fn a_path_that_is_no_text_is_refused_by_name() {
        use std::os::unix::ffi::OsStrExt;

        let path = Path::new(std::ffi::OsStr::from_bytes(b"/tmp/d\xff"));
        let failure = data(Some(path)).unwrap_err();
        assert!(failure.text.contains("not UTF-8"), "{failure}");
    }
}
