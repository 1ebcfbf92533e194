//! The file of the audit record. Owns who may read it, when the next file is begun and which old
//! ones are kept, and what happens where somebody else has moved it. Nothing is synced: the record
//! has no more of the last moments before a crash of the machine than the system has written.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::options::audit::AuditOptions;

/// The mode of a new file.
const MODE: u32 = 0o600;
/// Mode that an older file may have besides that: its group may read it.
const ALLOWED_MODE: u32 = 0o640;
/// Interval at which the file's name is looked at: another program may have moved the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Outcome of writing lines.
#[derive(Debug)]
pub(super) struct Written {
    /// Number of bytes of them that are in the record.
    pub(super) bytes: usize,
    /// Failure, for the log; lines that are in the record may be there all the same.
    pub(super) failure: Option<String>,
}

/// A file that is appended to, and the older ones beside it: `NAME.1` is the newest of those.
#[derive(Debug)]
pub(super) struct AuditFile {
    path: PathBuf,
    max_bytes: u64,
    files: usize,
    /// `None`: it could not be opened again.
    open: Option<Open>,
    next_look: Instant,
}

#[derive(Debug)]
struct Open {
    file: File,
    /// Identity that distinguishes it from another file of its name.
    identity: (u64, u64),
    size: u64,
    /// Whether it ends in the middle of a line.
    is_torn: bool,
}

impl AuditFile {
    /// Opens the file, and makes it if there is none.
    ///
    /// # Errors
    /// Why it cannot be used, and what to do.
    pub(super) fn open(path: &Path, options: &AuditOptions) -> Result<Self, String> {
        Ok(Self {
            path: path.to_owned(),
            max_bytes: options.max_bytes,
            files: options.files,
            open: Some(Open::at(path, false)?),
            next_look: Instant::now() + LOOK_INTERVAL,
        })
    }

    /// Appends whole lines, and begins further files where one would get too large.
    pub(super) fn write(&mut self, lines: &[u8]) -> Written {
        let mut written = Written {
            bytes: 0,
            failure: None,
        };
        if let Err(why) = self.find_again() {
            written.failure = Some(format!("{}: {why}", self.path.display()));
            return written;
        }
        while let Some(rest) = lines.get(written.bytes..).filter(|rest| !rest.is_empty()) {
            let size = self.open.as_ref().map_or(0, |open| open.size);
            let room = self.max_bytes.saturating_sub(size);
            let mut part = whole_lines(rest, usize::try_from(room).unwrap_or(usize::MAX));
            if part.is_empty() && size > 0 {
                match self.rotate() {
                    Ok(()) => continue,
                    Err(why) => written.failure = Some(why),
                }
                if self.open.is_none() {
                    return written;
                }
                // Too large a file is better than a record with a hole.
                part = rest;
            } else if part.is_empty() {
                part = whole_lines(rest, rest.len());
            }
            let Some(open) = &mut self.open else {
                return written;
            };
            if let Err(error) = open.append(part) {
                written.bytes += open.appended(part.len());
                // A line that is not whole is found when the file is opened again.
                self.open = None;
                written.failure = Some(format!(
                    "{}: {error}; make room on its disk, or let audit name another file",
                    self.path.display()
                ));
                return written;
            }
            written.bytes += part.len();
        }
        written
    }

    /// Opens the file again if there is none, or if its name means another file by now.
    fn find_again(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if let Some(open) = &mut self.open {
            if now < self.next_look {
                return Ok(());
            }
            self.next_look = now + LOOK_INTERVAL;
            if let Ok(about) = fs::symlink_metadata(&self.path)
                && (about.dev(), about.ino()) == open.identity
            {
                // Another program may have cut it.
                open.size = about.len();
                return Ok(());
            }
        }
        self.open = None;
        self.open = Some(Open::at(&self.path, false)?);
        Ok(())
    }

    /// Renames the file, as the newest of the older ones, and begins a new one.
    fn rotate(&mut self) -> Result<(), String> {
        let cannot = |from: &Path, to: &Path, error: &io::Error| {
            format!(
                "the next file cannot be begun, because {} cannot be renamed to {}: {error}; remove what is in the way",
                from.display(),
                to.display()
            )
        };
        for number in (1..self.files).rev() {
            let (from, to) = (self.older(number), self.older(number + 1));
            match fs::rename(&from, &to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(cannot(&from, &to, &error));
                }
                _ => {}
            }
        }
        let to = self.older(1);
        fs::rename(&self.path, &to).map_err(|error| cannot(&self.path, &to, &error))?;
        self.open = None;
        let open = Open::at(&self.path, true);
        self.open = Some(open.map_err(|why| format!("{}: {why}", self.path.display()))?);
        Ok(())
    }

    /// The name of an older file; 1 is the newest.
    fn older(&self, number: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

impl Open {
    /// `is_new`: there must be no such file yet.
    fn at(path: &Path, is_new: bool) -> Result<Self, String> {
        // No link is followed, and nothing that is not a file is waited for.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .create_new(is_new)
            .mode(MODE)
            .custom_flags(flags.bits().cast_signed())
            .open(path)
            .map_err(|error| {
                if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
                    return "it is a symbolic link; name the file itself".to_owned();
                }
                format!("{error}; name a file in a folder that this user may write to")
            })?;
        Self::take(file)
    }

    fn take(file: File) -> Result<Self, String> {
        let unusable = |error: io::Error| format!("{error}; name another file");
        let about = file.metadata().map_err(unusable)?;
        if !about.is_file() {
            return Err("it is not a regular file; name another".to_owned());
        }
        if about.uid() != rustix::process::geteuid().as_raw() {
            return Err("it belongs to another user; remove it, or name another".to_owned());
        }
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => {
                return Err(
                    "another server writes to it; give each server a file of its own".to_owned(),
                );
            }
            // A file system without locks.
            Ok(()) | Err(fs::TryLockError::Error(_)) => {}
        }
        let mode = about.mode() & 0o7777;
        if mode & !ALLOWED_MODE != 0 {
            let less = Permissions::from_mode(mode & ALLOWED_MODE | MODE);
            file.set_permissions(less).map_err(unusable)?;
            tracing::warn!(
                "other users could read or change the audit record (mode {mode:04o}), and cannot any more"
            );
        }
        let size = about.len();
        let mut last = [b'\n'];
        if size > 0 {
            file.read_exact_at(&mut last, size - 1).map_err(unusable)?;
        }
        Ok(Self {
            file,
            identity: (about.dev(), about.ino()),
            size,
            is_torn: last != [b'\n'],
        })
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.write_all(b"\n")?;
            self.is_torn = false;
            self.size += 1;
        }
        self.file.write_all(lines)?;
        self.size += lines.len() as u64;
        Ok(())
    }

    /// Returns the number of `bytes` bytes that are in the file, after an append that failed.
    fn appended(&self, bytes: usize) -> usize {
        let size = self.file.metadata().map_or(self.size, |about| about.len());
        let more = usize::try_from(size.saturating_sub(self.size));
        more.unwrap_or(bytes).min(bytes)
    }
}

/// The lines at the beginning that together have `most` bytes at most; the first one, where `most`
/// is all that there is.
fn whole_lines(lines: &[u8], most: usize) -> &[u8] {
    if lines.len() <= most {
        return lines;
    }
    let within = lines.get(..most).unwrap_or_default();
    let end = memchr::memrchr(b'\n', within).map_or(0, |at| at + 1);
    within.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn options(max_bytes: u64, files: usize) -> AuditOptions {
        AuditOptions {
            max_bytes,
            files,
            ..AuditOptions::default()
        }
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn whole(file: &mut AuditFile, lines: &[u8]) {
        let written = file.write(lines);
        assert_eq!((written.bytes, written.failure), (lines.len(), None));
    }

    #[test]
    fn files_are_private_bounded_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let mut file = AuditFile::open(&path, &options(8, 2)).unwrap();
        // One chunk that fills several files.
        whole(&mut file, b"aaa\nbbb\nccc\nddd\n");
        assert_eq!(read(&path), "ccc\nddd\n");
        whole(&mut file, b"eee\nfff\nggg\n");
        assert_eq!(read(&path), "ggg\n");
        assert_eq!(read(&file.older(1)), "eee\nfff\n");
        assert_eq!(read(&file.older(2)), "ccc\nddd\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        for file in [path.clone(), file.older(1), file.older(2)] {
            assert_eq!(mode(&file), 0o600);
        }
        drop(file);
        // It goes on where it was.
        let mut file = AuditFile::open(&path, &options(8, 2)).unwrap();
        whole(&mut file, b"hhh\n");
        assert_eq!(read(&path), "ggg\nhhh\n");
        whole(&mut file, b"a line that is longer than a file\n");
        assert_eq!(read(&path), "a line that is longer than a file\n");
    }

    #[test]
    fn a_line_that_a_crash_has_cut_stays_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        fs::write(&path, "whole\nhal").unwrap();
        let mut file = AuditFile::open(&path, &options(100, 2)).unwrap();
        whole(&mut file, b"next\n");
        assert_eq!(read(&path), "whole\nhal\nnext\n");
    }

    #[test]
    fn a16_a_record_that_others_may_read_or_change_is_closed_to_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        for (before, after) in [
            (0o600, 0o600),
            (0o640, 0o640),
            (0o644, 0o640),
            (0o666, 0o640),
            (0o4777, 0o640),
            (0o620, 0o600),
            (0o604, 0o600),
        ] {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(before)).unwrap();
            AuditFile::open(&path, &options(100, 2)).unwrap();
            assert_eq!(mode(&path), after, "{before:o}");
        }
    }

    #[test]
    fn a16_a_name_that_leads_elsewhere_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("audit"), folder.path().join("other"));
        let refused = || AuditFile::open(&path, &options(8, 2)).unwrap_err();
        fs::write(&other, "other").unwrap();
        symlink(&other, &path).unwrap();
        assert!(refused().contains("symbolic link"), "{}", refused());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(refused().contains("name a file"), "{}", refused());
        fs::remove_dir(&path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            0o600.into(),
            0,
        )
        .unwrap();
        // Neither does it wait for a reader.
        assert!(refused().contains("name a"), "{}", refused());
        fs::remove_file(&path).unwrap();
        let nowhere = AuditFile::open(&folder.path().join("none/audit"), &options(8, 2));
        assert!(nowhere.unwrap_err().contains("name a file in a folder"));

        // Nor are those of older files, which are replaced.
        let mut file = AuditFile::open(&path, &options(8, 1)).unwrap();
        symlink(&other, file.older(1)).unwrap();
        whole(&mut file, b"aaa\nbbb\nccc\n");
        assert_eq!(read(&other), "other");
        assert_eq!(read(&file.older(1)), "aaa\nbbb\n");
    }

    #[test]
    fn a_second_server_cannot_write_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let first = AuditFile::open(&path, &options(8, 2)).unwrap();
        let refused = AuditFile::open(&path, &options(8, 2)).unwrap_err();
        assert!(refused.contains("a file of its own"), "{refused}");
        drop(first);
        AuditFile::open(&path, &options(8, 2)).unwrap();
    }

    #[test]
    fn where_a_file_cannot_be_renamed_the_record_goes_on_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let mut file = AuditFile::open(&path, &options(8, 1)).unwrap();
        fs::create_dir_all(file.older(1).join("in the way")).unwrap();
        let lines = b"aaa\nbbb\nccc\n";
        let written = file.write(lines);
        assert_eq!(written.bytes, lines.len());
        let failure = written.failure.unwrap();
        assert!(failure.contains("remove what is in the way"), "{failure}");
        assert_eq!(read(&path), "aaa\nbbb\nccc\n");
        fs::remove_dir_all(file.older(1)).unwrap();
        whole(&mut file, b"ddd\n");
        assert_eq!(read(&path), "ddd\n");
    }

    #[test]
    fn what_another_program_moves_is_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let moved = folder.path().join("audit.old");
        let mut file = AuditFile::open(&path, &options(100, 2)).unwrap();
        whole(&mut file, b"aaa\n");
        fs::rename(&path, &moved).unwrap();
        file.next_look = Instant::now();
        whole(&mut file, b"bbb\n");
        assert_eq!(
            (read(&moved), read(&path)),
            ("aaa\n".into(), "bbb\n".into())
        );
        // One that cuts it, as logrotate does with `copytruncate`.
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(0)
            .unwrap();
        file.next_look = Instant::now();
        whole(&mut file, b"ccc\n");
        assert_eq!(read(&path), "ccc\n");
        assert_eq!(file.open.unwrap().size, 4);
    }

    #[test]
    fn what_cannot_be_written_is_not_counted_and_the_next_lines_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let mut file = AuditFile::open(&path, &options(100, 2)).unwrap();
        whole(&mut file, b"aaa\n");
        // A file that cannot be written to stands for a disk that is full.
        file.open.as_mut().unwrap().file = File::open(&path).unwrap();
        let written = file.write(b"bbb\n");
        assert_eq!(written.bytes, 0);
        assert!(written.failure.unwrap().contains("make room on its disk"));
        whole(&mut file, b"ccc\n");
        assert_eq!(read(&path), "aaa\nccc\n");
    }
}
