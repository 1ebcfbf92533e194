//! Cost of a process: CPU time and resident memory, read from `/proc`. It must never guess: a
//! process that cannot be read is an error, not a zero.

use std::fs;
use std::time::Duration;

use super::Result;

/// A reading of one or several processes taken together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// User and system time of all threads since the process began.
    pub(crate) cpu: Duration,
    /// Resident memory now.
    pub(crate) resident_bytes: u64,
}

impl Usage {
    /// Reads `pids` and adds them up.
    pub(crate) fn of(pids: &[u32]) -> Result<Self> {
        let mut sum = Self::default();
        for &pid in pids {
            let one = read(pid)?;
            sum.cpu += one.cpu;
            sum.resident_bytes += one.resident_bytes;
        }
        Ok(sum)
    }

    /// Reads this process: what the load generator itself takes from the shared cores.
    pub(crate) fn own() -> Result<Self> {
        read(std::process::id())
    }
}

fn read(pid: u32) -> Result<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .map_err(|error| format!("cannot read process {pid}: {error}"))?;
    let (utime, stime, resident_pages) = parse_stat(&stat)
        .ok_or_else(|| format!("process {pid}: its stat line is not in the known form"))?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let ticks = utime + stime;
    Ok(Usage {
        cpu: Duration::from_millis(ticks * 1000 / ticks_per_second.max(1)),
        resident_bytes: resident_pages * rustix::param::page_size() as u64,
    })
}

/// Takes `utime`, `stime` and `rss` (fields 14, 15 and 24) from a stat line. The command name
/// before them may hold spaces and parentheses, so counting starts after the last `)`.
fn parse_stat(line: &str) -> Option<(u64, u64, u64)> {
    let (_, after_name) = line.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let utime = fields.next()?.parse().ok()?;
    let stime = fields.next()?.parse().ok()?;
    let rss = fields.nth(8)?.parse().ok()?;
    Some((utime, stime, rss))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_a_name_with_parentheses() {
        let line = "42 (a) b) c) S 1 42 42 0 -1 4194560 500 0 0 0 70 30 0 0 20 0 9 0 100 1000000 321 184467 1 1 0 0";
        assert_eq!(parse_stat(line), Some((70, 30, 321)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_resident_memory() {
        assert!(Usage::own().unwrap().resident_bytes > 0);
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = Usage::of(&[u32::MAX]).unwrap_err();
        assert!(error.to_string().contains(&u32::MAX.to_string()), "{error}");
    }
}
