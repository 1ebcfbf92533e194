//! `serve --config FILE`: the part of ZooKeeper's zoo.cfg that means something here. What it does not know it reports, so that
//! nobody believes in a setting that has no effect.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_server::{HARMLESS_WORDS, Options};

use crate::exit::Failure;

/// ZooKeeper's own defaults, where a file leaves something out.
const TICK_MS: u64 = 3000;
const MAX_CONNECTIONS_PER_ADDRESS: usize = 60;

/// What a zoo.cfg says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ZooCfg {
    /// `dataDir`.
    pub(crate) data_dir: PathBuf,
    /// `clientPortAddress` and `clientPort`.
    pub(crate) listen: String,
    /// `minSessionTimeout`, or two ticks.
    pub(crate) min_session_timeout: Duration,
    /// `maxSessionTimeout`, or twenty ticks.
    pub(crate) max_session_timeout: Duration,
    /// `maxClientCnxns`; 0 is no limit.
    pub(crate) max_connections_per_address: usize,
    /// `4lw.commands.whitelist`.
    four_letter_words: Option<Vec<String>>,
    /// `DigestAuthenticationProvider.superDigest`.
    super_digest: Option<String>,
    /// Keys that have no effect.
    pub(crate) ignored: Vec<String>,
}

impl ZooCfg {
    /// Reads a file.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let refused = |what: String| Failure::usage(format!("{}: {what}", file.display()));
        let text = std::fs::read_to_string(file)
            .map_err(|error| refused(format!("{error}; name a readable zoo.cfg with --config")))?;
        Self::parse(&text).map_err(refused)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut tick_ms = TICK_MS;
        let (mut min_ms, mut max_ms) = (None, None);
        let (mut data_dir, mut port, mut address) = (None, None, String::from("0.0.0.0"));
        let mut max_connections_per_address = MAX_CONNECTIONS_PER_ADDRESS;
        let (mut four_letter_words, mut super_digest) = (None, None);
        let mut servers = 0;
        let mut ignored = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                return Err(format!("'{line}' is no key=value line; correct it"));
            };
            let (key, value) = (key.trim(), value.trim());
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{key}={value} is no number; correct it"))
            };
            match key {
                "tickTime" => tick_ms = number()?,
                "minSessionTimeout" => min_ms = unless_negative(value, number)?,
                "maxSessionTimeout" => max_ms = unless_negative(value, number)?,
                "dataDir" => data_dir = Some(PathBuf::from(value)),
                "clientPort" => port = Some(number()?),
                "clientPortAddress" => address = value.to_owned(),
                "maxClientCnxns" => {
                    max_connections_per_address = usize::try_from(number()?).unwrap_or(usize::MAX);
                }
                "4lw.commands.whitelist" => four_letter_words = Some(words(value)),
                "DigestAuthenticationProvider.superDigest" => {
                    super_digest = Some(value.to_owned());
                }
                _ if key.starts_with("server.") => servers += 1,
                _ => ignored.push(key.to_owned()),
            }
        }
        if servers > 1 {
            return Err(format!(
                "it names {servers} servers, and baton serve runs alone; leave one server line or none"
            ));
        }
        let data_dir = data_dir.ok_or("dataDir is missing; add dataDir=FOLDER")?;
        let port = port.ok_or("clientPort is missing; add clientPort=2181")?;
        let port = u16::try_from(port).map_err(|_| format!("clientPort={port} is no port"))?;
        Ok(Self {
            data_dir,
            listen: format!("{address}:{port}"),
            min_session_timeout: Duration::from_millis(min_ms.unwrap_or(2 * tick_ms)),
            max_session_timeout: Duration::from_millis(max_ms.unwrap_or(20 * tick_ms)),
            max_connections_per_address,
            four_letter_words,
            super_digest,
            ignored,
        })
    }

    /// Puts the settings that have no option of their own on the command line into the server's.
    pub(crate) fn apply(self, options: &mut Options) {
        options.max_connections_per_address = self.max_connections_per_address;
        if let Some(words) = self.four_letter_words {
            options.four_letter_words = words;
        }
        options.super_digest = self.super_digest.or(options.super_digest.take());
    }
}

/// A session timeout; ZooKeeper takes -1 for "the default".
fn unless_negative(
    value: &str,
    number: impl FnOnce() -> Result<u64, String>,
) -> Result<Option<u64>, String> {
    if value.starts_with('-') {
        Ok(None)
    } else {
        number().map(Some)
    }
}

fn words(list: &str) -> Vec<String> {
    let known = HARMLESS_WORDS.iter().map(|word| (*word).to_owned());
    if list.trim() == "*" {
        return known.collect();
    }
    let named: Vec<&str> = list.split(',').map(str::trim).collect();
    known
        .filter(|word| named.contains(&word.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_zoo_cfg_says_is_taken_and_the_rest_is_named() {
        let cfg = ZooCfg::parse(
            "# a comment\ntickTime = 2000\ndataDir=/var/lib/zookeeper\nclientPort=2181\ninitLimit=10\n\
             maxClientCnxns=0\nserver.1=localhost:2888:3888\n4lw.commands.whitelist=ruok, srvr, nosuch\n",
        )
        .unwrap();
        assert_eq!(cfg.listen, "0.0.0.0:2181");
        assert_eq!(cfg.min_session_timeout, Duration::from_secs(4));
        assert_eq!(cfg.max_session_timeout, Duration::from_secs(40));
        assert_eq!(cfg.ignored, ["initLimit"]);
        let mut options = Options::default();
        cfg.apply(&mut options);
        assert_eq!(options.max_connections_per_address, 0);
        assert_eq!(options.four_letter_words, ["ruok", "srvr"]);
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_the_remedy() {
        for (text, complaint) in [
            ("clientPort=2181", "dataDir"),
            ("dataDir=/x", "clientPort=2181"),
            ("dataDir=/x\nclientPort=70000", "no port"),
            ("dataDir=/x\nclientPort=two", "no number"),
            ("dataDir", "key=value"),
            ("server.1=a:1:2\nserver.2=b:1:2", "runs alone"),
        ] {
            let error = ZooCfg::parse(text).unwrap_err();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
