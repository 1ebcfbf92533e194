//! The machine that measurements were taken on, as a table's caption needs it.

use std::fs;

/// Cores, processor and kernel on one line.
pub(crate) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| {
            line.strip_prefix("model name")?
                .split_once(':')
                .map(|(_, model)| model.trim())
        })
        .unwrap_or(std::env::consts::ARCH);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{cores} cores, {model}, {} {}",
        std::env::consts::OS,
        kernel.trim()
    )
}
