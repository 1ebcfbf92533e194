//! Hands the moment of the build to the server, which shows it behind its version as ZooKeeper
//! does. `SOURCE_DATE_EPOCH` sets it, for builds that have to come out the same.

use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let seconds = given
        .and_then(|given| given.trim().parse::<u64>().ok())
        .unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| since.as_secs())
        });
    println!("cargo:rustc-env=BATON_BUILT_SECONDS={seconds}");
}
