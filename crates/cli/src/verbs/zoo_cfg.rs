//! `serve --config FILE`: the part of ZooKeeper's zoo.cfg that means something here. What it does not know it reports, so that
//! nobody believes in a setting that has no effect.

use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_server::{HARMLESS_WORDS, Options};

use crate::exit::Failure;

/// ZooKeeper's own defaults, where a file leaves something out.
const TICK_MS: u64 = 3000;
const MAX_CONNECTIONS_PER_ADDRESS: usize = 60;

/// The words that are not in the server's default, because they change something.
const RESETTING_WORDS: &[&str] = &["srst", "crst"];

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
    /// `jute.maxbuffer`, which ZooKeeper takes as a system property.
    pub(crate) max_frame_bytes: Option<usize>,
    /// `4lw.commands.whitelist`.
    four_letter_words: Option<Vec<String>>,
    /// `DigestAuthenticationProvider.superDigest`.
    super_digest: Option<String>,
    /// Keys and words that have no effect.
    pub(crate) ignored: Vec<String>,
}

impl ZooCfg {
    /// Reads a file.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let name = file.display();
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::usage(format!(
                "{name}: {error}; name a readable zoo.cfg with --config"
            ))
        })?;
        Self::parse(&text).map_err(|(line, what)| {
            Failure::usage(match line {
                Some(line) => format!("{name}:{line}: {what}"),
                None => format!("{name}: {what}"),
            })
        })
    }

    /// What is wrong comes with the number of its line, where it is one line that is wrong.
    fn parse(text: &str) -> Result<Self, (Option<usize>, String)> {
        let mut tick_ms = TICK_MS;
        let (mut min_ms, mut max_ms) = (None, None);
        let (mut data_dir, mut port, mut address) = (None, None, String::from("0.0.0.0"));
        let mut max_connections_per_address = MAX_CONNECTIONS_PER_ADDRESS;
        let (mut max_frame_bytes, mut four_letter_words, mut super_digest) = (None, None, None);
        let mut servers = 0;
        let mut ignored = Vec::new();
        for (number_of_line, line) in (1..).zip(text.lines().map(str::trim)) {
            let wrong = |what: String| (Some(number_of_line), what);
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                return Err(wrong(format!("'{line}' is no key=value line; correct it")));
            };
            let (key, value) = (key.trim(), value.trim());
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| wrong(format!("{key}={value} is no number; correct it")))
            };
            match key {
                "tickTime" => tick_ms = number()?,
                "minSessionTimeout" => min_ms = unless_negative(value, number)?,
                "maxSessionTimeout" => max_ms = unless_negative(value, number)?,
                "dataDir" => data_dir = Some(PathBuf::from(value)),
                "clientPort" => {
                    port = Some(value.parse::<u16>().map_err(|_| {
                        wrong(format!(
                            "{key}={value} is no port; give a number up to 65535"
                        ))
                    })?);
                }
                "clientPortAddress" => address = value.to_owned(),
                "maxClientCnxns" => {
                    max_connections_per_address = usize::try_from(number()?).unwrap_or(usize::MAX);
                }
                "jute.maxbuffer" => {
                    max_frame_bytes = Some(usize::try_from(number()?).unwrap_or(usize::MAX));
                }
                "4lw.commands.whitelist" => {
                    let (known, unknown) = words(value);
                    four_letter_words = Some(known);
                    ignored.extend(unknown.iter().map(|word| format!("{key}={word}")));
                }
                "DigestAuthenticationProvider.superDigest" => {
                    super_digest = Some(value.to_owned());
                }
                _ if key.starts_with("server.") => servers += 1,
                _ => ignored.push(key.to_owned()),
            }
        }
        let whole = |what: String| (None, what);
        if servers > 1 {
            return Err(whole(format!(
                "it names {servers} servers, and baton serve runs alone; leave one server line or none"
            )));
        }
        let data_dir =
            data_dir.ok_or_else(|| whole("dataDir is missing; add dataDir=FOLDER".into()))?;
        let port =
            port.ok_or_else(|| whole("clientPort is missing; add clientPort=2181".into()))?;
        // An IPv6 address stands alone in a zoo.cfg, or already in the brackets that it needs before a port.
        let listen = if address.contains(':') && !address.starts_with('[') {
            format!("[{address}]:{port}")
        } else {
            format!("{address}:{port}")
        };
        Ok(Self {
            data_dir,
            listen,
            min_session_timeout: Duration::from_millis(min_ms.unwrap_or(2 * tick_ms)),
            max_session_timeout: Duration::from_millis(max_ms.unwrap_or(20 * tick_ms)),
            max_connections_per_address,
            max_frame_bytes,
            four_letter_words,
            super_digest,
            ignored,
        })
    }

    /// Puts the settings that have no option of their own on the command line into the server's.
    pub(crate) fn apply(self, options: &mut Options) {
        options.max_connections_per_address = self.max_connections_per_address;
        if let Some(bytes) = self.max_frame_bytes {
            options.max_frame_bytes = bytes;
        }
        if let Some(words) = self.four_letter_words {
            options.four_letter_words = words;
        }
        options.super_digest = self.super_digest.or(options.super_digest.take());
    }
}

/// A session timeout; ZooKeeper takes -1 for "the default".
fn unless_negative<E>(
    value: &str,
    number: impl FnOnce() -> Result<u64, E>,
) -> Result<Option<u64>, E> {
    if value.starts_with('-') {
        Ok(None)
    } else {
        number().map(Some)
    }
}

/// The words of a whitelist that this server has, and those that it has not; `*` is all.
fn words(list: &str) -> (Vec<String>, Vec<String>) {
    list.split(',')
        .map(|word| word.trim().to_owned())
        .filter(|word| !word.is_empty())
        .partition(|word| {
            let word = word.as_str();
            word == "*" || HARMLESS_WORDS.contains(&word) || RESETTING_WORDS.contains(&word)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_zoo_cfg_says_is_taken_and_the_rest_is_named() {
        let cfg = ZooCfg::parse(
            "# a comment\ntickTime = 2000\ndataDir=/var/lib/zookeeper\nclientPort=2181\ninitLimit=10\n\
             maxClientCnxns=0\nserver.1=localhost:2888:3888\n4lw.commands.whitelist=ruok, srvr, nosuch, crst\n",
        )
        .unwrap();
        assert_eq!(cfg.listen, "0.0.0.0:2181");
        assert_eq!(cfg.min_session_timeout, Duration::from_secs(4));
        assert_eq!(cfg.max_session_timeout, Duration::from_secs(40));
        assert_eq!(cfg.ignored, ["initLimit", "4lw.commands.whitelist=nosuch"]);
        let mut options = Options::default();
        let max_frame_bytes = options.max_frame_bytes;
        cfg.apply(&mut options);
        assert_eq!(options.max_connections_per_address, 0);
        assert_eq!(options.max_frame_bytes, max_frame_bytes);
        assert_eq!(options.four_letter_words, ["ruok", "srvr", "crst"]);
    }

    #[test]
    fn the_last_line_with_a_key_counts() {
        let cfg = ZooCfg::parse(
            "dataDir=/a\nclientPort=2181\nclientPort=2182\nclientPortAddress=::1\nminSessionTimeout=-1\n\
             maxSessionTimeout=90000\njute.maxbuffer=4194304\n4lw.commands.whitelist=*\n\
             DigestAuthenticationProvider.superDigest=super:x=\n",
        )
        .unwrap();
        assert_eq!(cfg.listen, "[::1]:2182");
        assert_eq!(cfg.min_session_timeout, Duration::from_secs(6));
        assert_eq!(cfg.max_session_timeout, Duration::from_secs(90));
        assert_eq!(cfg.ignored, <[&str; 0]>::default());
        let mut options = Options::default();
        cfg.apply(&mut options);
        assert_eq!(options.max_frame_bytes, 4 << 20);
        assert_eq!(options.four_letter_words, ["*"]);
        assert_eq!(options.super_digest.as_deref(), Some("super:x="));
    }

    #[test]
    fn what_cannot_be_served_is_refused_with_its_line_and_the_remedy() {
        for (text, line, complaint) in [
            ("clientPort=2181", None, "add dataDir="),
            ("dataDir=/x", None, "add clientPort=2181"),
            ("dataDir=/x\nclientPort=70000", Some(2), "no port"),
            ("dataDir=/x\n\n# c\ntickTime=two", Some(4), "no number"),
            ("dataDir", Some(1), "key=value"),
            ("server.1=a:1:2\nserver.2=b:1:2", None, "runs alone"),
        ] {
            let (place, error) = ZooCfg::parse(text).unwrap_err();
            assert_eq!(place, line, "{text}");
            assert!(error.contains(complaint), "{error}");
        }
    }
}
