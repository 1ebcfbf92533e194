//! The command's process tree, as its guardian sees it: signalling, reaping, and killing all of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, getsid, kill_process,
    kill_process_group, test_kill_process_group, wait,
};

/// Something that happened to a child of the guardian.
pub(super) enum Change {
    /// The command stopped, by this signal.
    Stopped(i32),
    /// The command ended.
    Ended(WaitStatus),
}

/// The command and its descendants. The guardian is their subreaper: all that lose their parent
/// become its children.
pub(super) struct CommandTree {
    /// The command's process.
    pub(super) pid: Pid,
    /// The process group that the command has joined; `None`: it leads one of its own.
    pub(super) group: Option<Pid>,
}

impl CommandTree {
    /// The next change of the command, without waiting. Orphans that ended are reaped on the way.
    pub(super) fn next_change(&self) -> Option<Change> {
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) if pid == self.pid => {
                    return Some(match status.stopping_signal() {
                        Some(signal) => Change::Stopped(signal),
                        None => Change::Ended(status),
                    });
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Sends a signal to the command and those of its descendants that are in its process group,
    /// and wakes them up to receive it where that is needed.
    pub(super) fn signal(&self, signal: Signal) {
        let wake = (signal == Signal::TERM).then_some(Signal::CONT);
        for signal in [Some(signal), wake].into_iter().flatten() {
            // Those who are to receive it may have ended already.
            match self.group {
                None => {
                    let _ = kill_process_group(self.pid, signal);
                }
                // Others than the command are in the group.
                Some(group) => {
                    for pid in descendants(getpid()) {
                        let found = process(&folder_of(pid));
                        if found.is_some_and(|found| found.group == Some(group)) {
                            let _ = kill_process(pid, signal);
                        }
                    }
                }
            }
        }
    }

    /// Has the command and all of its process group go on.
    pub(super) fn resume(&self) {
        let _ = kill_process_group(self.group.unwrap_or(self.pid), Signal::CONT);
    }

    /// Kills the command and every descendant, and returns when none is left, with the command's
    /// status if it was reaped here. What loses its parent is found next.
    pub(super) fn kill_all(&self) -> Option<WaitStatus> {
        let mut status = None;
        loop {
            if self.group.is_none() {
                let _ = kill_process_group(self.pid, Signal::KILL);
            }
            kill_children();
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, ended))) if pid == self.pid => status = Some(ended),
                    Ok(Some(_)) | Err(Errno::INTR) => {}
                    Ok(None) => break,
                    Err(_) => return status,
                }
            }
            pause(Duration::from_millis(2));
        }
    }
}

/// Kills all descendants of this process, whose subreaper it is, and returns when none is left.
pub(super) fn kill_and_reap() {
    loop {
        kill_children();
        if !reap_children() {
            return;
        }
        pause(Duration::from_millis(2));
    }
}

/// Kills the children of this process.
pub(super) fn kill_children() {
    for child in children(getpid()) {
        let _ = kill_process(child, Signal::KILL);
    }
}

/// Reaps the children of this process that have ended; whether there are others.
pub(super) fn reap_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Whether a process group has a process that has not ended. One that has, and whose parent does
/// not reap it, is a member all the same.
pub(super) fn runs(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    let is_over = |process: &Process| ["Z", "X"].contains(&process.state.as_str());
    members(group).is_none_or(|members| !members.iter().all(is_over))
}

/// Whether a shell stops and continues this process's group as a job that has other processes
/// than this one: a script, or parts of a pipeline. Where no shell does, the system stops no
/// process group by a key, since nobody would continue it.
pub(super) fn is_part_of_a_job() -> bool {
    let (own, session) = (getpgrp(), getsid(None).ok());
    let members = members(own).unwrap_or_default();
    let is_of_shell = |parent: &Process| parent.session == session && parent.group != Some(own);
    let parents = members.iter().filter_map(|member| member.parent);
    let mut parents = parents.filter_map(|parent| process(&folder_of(parent)));
    members.len() > 1 && parents.any(|parent| is_of_shell(&parent))
}

/// A process, as /proc shows it.
struct Process {
    state: String,
    parent: Option<Pid>,
    group: Option<Pid>,
    session: Option<Pid>,
}

/// The processes of a group; `None` where the system does not list processes.
fn members(group: Pid) -> Option<Vec<Process>> {
    let listed = std::fs::read_dir("/proc").ok()?.flatten();
    // Beside the processes, it has files and other names for this process.
    let pids = listed.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let processes = pids.filter_map(|pid| process(&folder_of(pid)));
    let members: Vec<_> = processes
        .filter(|process| process.group == Some(group))
        .collect();
    (!members.is_empty()).then_some(members)
}

/// The process that this folder of /proc is about.
fn process(folder: &Path) -> Option<Process> {
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    // Behind the program's name, which may have any letters.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.to_owned();
    let mut pids = fields.map(|pid| Pid::from_raw(pid.parse().ok()?));
    Some(Process {
        state,
        parent: pids.next()?,
        group: pids.next()?,
        session: pids.next()?,
    })
}

fn folder_of(pid: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()))
}

/// The descendants of a process.
fn descendants(of: Pid) -> Vec<Pid> {
    let mut found = children(of);
    let mut at = 0;
    while let Some(pid) = found.get(at) {
        found.extend(children(*pid));
        at += 1;
    }
    found
}

/// The children of a process, from the kernel's list. Empty where the kernel keeps none.
fn children(of: Pid) -> Vec<Pid> {
    let threads = std::fs::read_dir(folder_of(of).join("task"));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let pids = |list: String| {
        let pids = list.split_whitespace();
        let pids = pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        pids.collect::<Vec<_>>()
    };
    lists.flat_map(pids).collect()
}

/// Waits for processes that were killed and not yet gone.
fn pause(duration: Duration) {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: duration.subsec_nanos().into(),
    };
    let _ = rustix::event::poll(&mut [], Some(&timeout));
}
