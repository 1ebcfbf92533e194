//! A server or an agent that a command has started on demand and that outlives it. It inherits
//! nothing from that command: a lock on a file would stay after the command's end, and a limit or a
//! variable would decide how all later users are served. Its working folder is the command's to
//! choose (`local`).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};

/// The first descriptor behind standard input, output and error.
const FIRST: i32 = 3;
/// The flag of a descriptor that is closed when another program begins, as fdinfo shows it.
const CLOSED_ON_EXEC: u32 = 0o2_000_000;
/// Limits that would end the server or keep it from growing. That of open files is every server's
/// concern.
const LIMITS: [Resource; 5] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Rss,
    Resource::As,
];

/// The variables that it takes over: who its user is, and with [`TRACES`] where traces go.
const INHERITED: [&str; 4] = ["PATH", "HOME", "USER", "LOGNAME"];
const TRACES: &str = "OTEL_";

/// This program, to be started so: with the variables that say who its user is and where traces go,
/// and those that `keeps` names. It writes a line on standard output once it listens, and ends
/// without one where it has failed.
pub(crate) fn command(keeps: impl Fn(&str) -> bool) -> Command {
    let is_kept = |name: &str| INHERITED.contains(&name) || name.starts_with(TRACES) || keeps(name);
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("baton")
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_kept)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// The last line in its log behind the first `from` bytes: why it has ended.
pub(crate) fn last_line(log: &mut File, from: u64) -> Option<String> {
    let mut text = String::new();
    log.seek(SeekFrom::Start(from)).ok()?;
    log.read_to_string(&mut text).ok()?;
    let line = text.lines().rfind(|line| !line.trim().is_empty())?;
    Some(line.strip_prefix("baton: ").unwrap_or(line).to_owned())
}

/// Leaves behind what this process has inherited. Others of its threads must not run yet.
pub(crate) fn leave_starter() {
    // Fails only for a process that leads a group already, which has left its starter's group then.
    let _ = rustix::process::setsid();
    close_inherited();
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    for resource in LIMITS {
        raise(resource);
    }
    // A higher priority is not every user's to take; the log says what stays.
    let _ = rustix::process::setpriority_process(None, 0);
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    let _ = sched_setaffinity(None, &all);
}

/// Says what could not be left behind.
pub(crate) fn report_rest() {
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    if nice > 0 {
        tracing::warn!(
            nice,
            "the command that has started this server had a low priority, and this user may not \
             raise it: the server has it too until it ends"
        );
    }
    for resource in LIMITS {
        if let Some(limit) = getrlimit(resource).current {
            tracing::warn!(
                ?resource,
                limit,
                "the command that has started this server had this limit, and this user may not \
                 raise it: the server has it too until it ends"
            );
        }
    }
}

/// Has nobody wait for more on standard output.
pub(crate) fn close_output() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Takes away a limit; as far as it may where that is refused.
fn raise(resource: Resource) {
    let none = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(resource, none).is_err() {
        let maximum = getrlimit(resource).maximum;
        let highest = Rlimit {
            current: maximum,
            maximum,
        };
        let _ = setrlimit(resource, highest);
    }
}

/// Closes the descriptors that were open when this program began: those that it has opened itself
/// would be closed when another one begins.
fn close_inherited() {
    let listed = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let open: Vec<i32> = listed
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for descriptor in open {
        let info = Path::new("/proc/self/fdinfo").join(descriptor.to_string());
        if descriptor >= FIRST && is_inherited(&std::fs::read_to_string(info).unwrap_or_default()) {
            let _ = nix::unistd::close(descriptor);
        }
    }
}

/// Whether a descriptor of this text in fdinfo came from another program.
fn is_inherited(info: &str) -> bool {
    let mut lines = info.lines();
    let flags = lines.find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & CLOSED_ON_EXEC == 0)
}

#[cfg(test)]
mod tests {
    use super::is_inherited;

    #[test]
    fn what_this_program_has_opened_is_not_inherited() {
        assert!(is_inherited("pos:\t0\nflags:\t0100002\nmnt_id:\t15\n"));
        assert!(!is_inherited("pos:\t0\nflags:\t02100002\nmnt_id:\t15\n"));
        assert!(!is_inherited(""));
    }
}
