//! The type of a setting and its field in [`Target`]: how text becomes a value there, and a value
//! text. Knows no names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use baton_server::{AuditFormat, AuditTo, ClientAuth};

use super::{Target, groups};
use crate::duration;
use crate::output::log_filter::LogFilter;
use crate::output::log_lines::LogFormat;

/// A field of [`Target`], with its type. One accessor serves reading and writing.
#[derive(Clone, Copy)]
pub(crate) enum Field {
    /// A duration with its unit.
    Duration(fn(&mut Target) -> &mut Duration),
    /// A duration that may be left out.
    MaybeDuration(fn(&mut Target) -> &mut Option<Duration>),
    /// A number.
    Count(fn(&mut Target) -> &mut usize),
    /// A number that may be larger than memory.
    Large(fn(&mut Target) -> &mut u64),
    /// A small number.
    Small(fn(&mut Target) -> &mut u8),
    /// The mode of a file, in octal digits.
    Mode(fn(&mut Target) -> &mut u32),
    /// A group of users, which may be left out.
    Group(fn(&mut Target) -> &mut Option<u32>),
    /// Text that may be left out.
    Text(fn(&mut Target) -> &mut Option<String>),
    /// Several pieces of text without a comma in them.
    Texts(fn(&mut Target) -> &mut Vec<String>),
    /// A file that may be left out.
    Path(fn(&mut Target) -> &mut Option<PathBuf>),
    /// Several files.
    Paths(fn(&mut Target) -> &mut Vec<PathBuf>),
    /// Addresses of servers, by their ids.
    Servers(fn(&mut Target) -> &mut BTreeMap<u64, String>),
    /// Ports of servers, by their ids.
    Ports(fn(&mut Target) -> &mut BTreeMap<u64, u16>),
    /// Ids of servers.
    Ids(fn(&mut Target) -> &mut BTreeSet<u64>),
    /// Whether clients have to show a certificate, which may be left out.
    ClientAuth(fn(&mut Target) -> &mut Option<ClientAuth>),
    /// Destination of the audit record.
    AuditTo(fn(&mut Target) -> &mut AuditTo),
    /// The form of its lines.
    AuditFormat(fn(&mut Target) -> &mut AuditFormat),
    /// Filter of the log.
    LogFilter(fn(&mut Target) -> &mut Option<LogFilter>),
    /// The form of its lines.
    LogFormat(fn(&mut Target) -> &mut Option<LogFormat>),
    /// Yes or no.
    Switch(fn(&mut Target) -> &mut bool),
}

impl Field {
    /// Whether it takes several values.
    pub(crate) const fn takes_many(self) -> bool {
        matches!(
            self,
            Self::Texts(_) | Self::Paths(_) | Self::Servers(_) | Self::Ports(_) | Self::Ids(_)
        )
    }

    /// Whether it is a table in a `baton.toml`.
    pub(crate) const fn is_table(self) -> bool {
        matches!(self, Self::Servers(_) | Self::Ports(_))
    }

    /// Whether a number in a `baton.toml` would be misread: TOML's numbers are decimal, or have a
    /// prefix that is lost.
    pub(crate) const fn refuses_numbers(self) -> bool {
        matches!(self, Self::Mode(_))
    }

    /// The form of its value in a `baton.toml`, for people.
    pub(crate) const fn form(self) -> &'static str {
        match self {
            Self::Duration(_) | Self::MaybeDuration(_) => "a duration, like \"500ms\" or \"5s\"",
            Self::Count(_) | Self::Large(_) | Self::Small(_) => "a number in digits",
            Self::Mode(_) => "octal digits in quotes, like \"0660\"",
            Self::Group(_) => "the name or the number of a group, in quotes",
            Self::Text(_) | Self::Path(_) => "text in quotes",
            Self::ClientAuth(_) => "\"none\", \"optional\" or \"required\"",
            Self::AuditTo(_) => "\"off\", \"log\" or a file in quotes",
            Self::LogFilter(_) => {
                "a level or TARGET=LEVEL in quotes, like \"info,baton_server::net=debug\""
            }
            Self::AuditFormat(_) | Self::LogFormat(_) => "\"text\" or \"json\"",
            Self::Texts(_) | Self::Paths(_) => "text in quotes, or a list of it in [ ]",
            Self::Servers(_) => "a table of addresses by id, like { 1 = \"zk1:2888\" }",
            Self::Ports(_) => "a table of ports by id, like { 1 = 3888 }",
            Self::Ids(_) => "a list of ids, like [4, 5]",
            Self::Switch(_) => "true or false",
        }
    }

    /// Sets it. What takes one value takes the last one.
    ///
    /// # Errors
    /// The text is not a value of this type; the message says what is.
    pub(crate) fn put(self, target: &mut Target, values: &[String]) -> Result<(), String> {
        let last = values.last().map_or("", String::as_str);
        match self {
            Self::Duration(at) => *at(target) = duration::parse(last)?,
            Self::MaybeDuration(at) => *at(target) = Some(duration::parse(last)?),
            Self::Count(at) => *at(target) = number(last, "a whole number")?,
            Self::Large(at) => *at(target) = number(last, "a whole number")?,
            Self::Small(at) => *at(target) = number(last, "a whole number up to 255")?,
            Self::Mode(at) => *at(target) = mode(last)?,
            Self::Group(at) => *at(target) = Some(groups::id(last)?),
            Self::Text(at) => *at(target) = Some(last.to_owned()),
            Self::Texts(at) => *at(target) = values.to_vec(),
            Self::Path(at) => *at(target) = Some(PathBuf::from(last)),
            Self::Paths(at) => *at(target) = values.iter().map(PathBuf::from).collect(),
            Self::Servers(at) => *at(target) = servers(values)?,
            Self::Ports(at) => *at(target) = ports(values)?,
            Self::Ids(at) => *at(target) = ids(values)?,
            Self::ClientAuth(at) => *at(target) = Some(last.parse()?),
            Self::AuditTo(at) => *at(target) = last.parse()?,
            Self::AuditFormat(at) => *at(target) = last.parse()?,
            Self::LogFilter(at) => *at(target) = Some(last.parse()?),
            Self::LogFormat(at) => *at(target) = Some(last.parse()?),
            Self::Switch(at) => {
                *at(target) = match last {
                    "true" => true,
                    "false" => false,
                    _ => {
                        return Err(format!(
                            "'{last}' is neither true nor false; write one of them"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks one value without setting it.
    ///
    /// # Errors
    /// As [`Field::put`].
    pub(crate) fn check(self, value: &str) -> Result<(), String> {
        self.put(&mut Target::default(), &[value.to_owned()])
    }

    /// The value as `baton.toml` has it; `None` if there is none.
    pub(crate) fn toml(self, target: &Target) -> Option<String> {
        let target = &mut target.clone();
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let list = |texts: Vec<String>| format!("[{}]", texts.join(", "));
        Some(match self {
            Self::Duration(at) => quoted(&exact(*at(target))),
            Self::MaybeDuration(at) => quoted(&exact((*at(target))?)),
            Self::Count(at) => at(target).to_string(),
            Self::Large(at) => at(target).to_string(),
            Self::Small(at) => at(target).to_string(),
            Self::Mode(at) => quoted(&format!("{:04o}", at(target))),
            Self::Group(at) => quoted(&(*at(target))?.to_string()),
            Self::Text(at) => quoted(at(target).as_deref()?),
            Self::Texts(at) => list(at(target).iter().map(|text| quoted(text)).collect()),
            Self::Path(at) => quoted(&at(target).as_deref()?.display().to_string()),
            Self::Paths(at) => list(
                at(target)
                    .iter()
                    .map(|path| quoted(&path.display().to_string()))
                    .collect(),
            ),
            Self::Servers(at) => table(at(target), |address| quoted(address))?,
            Self::Ports(at) => table(at(target), u16::to_string)?,
            Self::Ids(at) => list(at(target).iter().map(u64::to_string).collect()),
            Self::ClientAuth(at) => quoted(&(*at(target))?.to_string()),
            Self::AuditTo(at) => quoted(&at(target).to_string()),
            Self::AuditFormat(at) => quoted(&at(target).to_string()),
            Self::LogFilter(at) => quoted(&at(target).as_ref()?.to_string()),
            Self::LogFormat(at) => quoted(&(*at(target))?.to_string()),
            Self::Switch(at) => at(target).to_string(),
        })
    }
}

/// Values by the ids of servers, as an inline table; `None`: there is none.
fn table<V>(values: &BTreeMap<u64, V>, shown: impl Fn(&V) -> String) -> Option<String> {
    let values = values.iter();
    let values: Vec<_> = values
        .map(|(id, value)| format!("{id} = {}", shown(value)))
        .collect();
    (!values.is_empty()).then(|| format!("{{ {} }}", values.join(", ")))
}

/// Ports of servers, each written as `ID=PORT`.
fn ports(texts: &[String]) -> Result<BTreeMap<u64, u16>, String> {
    let ports = servers(texts)?.into_iter().map(|(id, text)| {
        let port = text.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or_else(|| {
            format!("'{text}' is not the port of server {id}; give a number from 1 to 65535")
        })?;
        Ok((id, port))
    });
    ports.collect()
}

/// Servers, each written as `ID=ADDRESS`. Whether the addresses can be used is not checked here.
fn servers(texts: &[String]) -> Result<BTreeMap<u64, String>, String> {
    let mut servers = BTreeMap::new();
    for text in texts {
        let (id, address) = text
            .split_once('=')
            .and_then(|(id, address)| Some((id.trim().parse().ok()?, address.trim())))
            .filter(|(_, address)| !address.is_empty())
            .ok_or_else(|| {
                format!("'{text}' names no server; write ID=HOST:PORT, like 1=127.0.0.1:2888")
            })?;
        if servers.insert(id, address.to_owned()).is_some() {
            return Err(format!(
                "'{text}' names server {id} a second time; leave one"
            ));
        }
    }
    Ok(servers)
}

fn ids(texts: &[String]) -> Result<BTreeSet<u64>, String> {
    let ids = texts
        .iter()
        .map(|text| number(text.trim(), "the id of a server"));
    ids.collect()
}

fn number<N: std::str::FromStr>(text: &str, wanted: &str) -> Result<N, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is not {wanted}; write digits only"))
}

fn mode(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
        .ok_or_else(|| format!("'{text}' is not the mode of a file; write octal digits, like 0660"))
}

/// A duration that reads back as itself, to the millisecond.
pub(crate) fn exact(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (unit, name) in [(3_600_000, "h"), (60_000, "m"), (1_000, "s")] {
        if millis >= unit && millis.is_multiple_of(unit) {
            return format!("{}{name}", millis / unit);
        }
    }
    format!("{millis}ms")
}
