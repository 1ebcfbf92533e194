//! The settings as flags: one for each row of the table. Owns no value.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{BoolishValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};

use super::{Field, Flag, SETTINGS, Setting, SettingValue, Target, setting};
use crate::output::log_filter;

/// Settings that a variable gives, too: a switch that no file of a fleet should have to name, and
/// what one start is to log.
const VARIABLES: [(&str, &str); 2] = [
    ("insecure", "BATON_INSECURE"),
    ("log", log_filter::VARIABLE),
];

/// The settings on both help pages of `baton serve`.
const FIRST: [&str; 6] = [
    "ephemeral",
    "listen",
    "http",
    "insecure",
    "server_id",
    "ensemble.servers",
];
/// Those that only the longer one has. The others are on a page of their own.
const USUAL: [&str; 6] = [
    "secure_listen",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "unix_socket",
    "log",
];

/// The flags that were given.
#[derive(Debug, Default)]
pub(crate) struct SettingFlags {
    given: Vec<(&'static str, Vec<String>)>,
    /// Settings that a variable has given.
    from_variables: Vec<&'static str>,
}

impl SettingFlags {
    /// The settings that the flags give.
    pub(super) fn given(&self) -> impl Iterator<Item = SettingValue> {
        self.given.iter().map(|(name, values)| SettingValue {
            setting: name,
            values: values.clone(),
            origin: match variable(name).filter(|_| self.from_variables.contains(name)) {
                Some(variable) => format!("{variable} in the environment"),
                None => format!("--{}", setting(name).flag_name()),
            },
        })
    }

    /// The value that counts of the flag of this setting.
    pub(super) fn last(&self, setting: &str) -> Option<&str> {
        let mut given = self.given.iter();
        let (_, values) = given.find(|(name, _)| *name == setting)?;
        values.last().map(String::as_str)
    }
}

/// The variable that gives this setting, too.
fn variable(setting: &str) -> Option<&'static str> {
    let mut variables = VARIABLES.iter();
    let (_, variable) = variables.find(|(name, _)| *name == setting)?;
    Some(variable)
}

/// The value as text.
fn text(value: OsString, origin: &dyn Fn() -> String) -> Result<String, Error> {
    value.into_string().map_err(|value| {
        let what = format!("{}: {value:?} is not UTF-8; correct it", origin());
        Error::raw(ErrorKind::InvalidUtf8, what)
    })
}

fn flag(setting: &'static Setting, value_name: &'static str) -> Arg {
    let field = setting.field;
    let is_among = |names: &[&str]| names.contains(&setting.name);
    let arg = Arg::new(setting.name)
        .long(setting.flag_name())
        .hide_short_help(!is_among(&FIRST))
        .hide_long_help(!is_among(&FIRST) && !is_among(&USUAL));
    let default = field
        .toml(&Target::default())
        .filter(|value| !field.takes_many() && value != "false");
    let help = match default {
        Some(value) => format!("{} [default: {}]", setting.help, value.trim_matches('"')),
        None => setting.help.to_owned(),
    };
    let arg = arg.help(help);
    if let Field::Switch(_) = field {
        let arg = arg.action(ArgAction::SetTrue);
        return match variable(setting.name) {
            Some(variable) => arg
                .env(variable)
                .hide_env_values(true)
                .value_parser(BoolishValueParser::new()),
            None => arg,
        };
    }
    let parser = match field {
        // The type of the options of every verb that name files: clap wants one type for options
        // of one name.
        Field::Path(_) => {
            ValueParser::from(move |text: &str| field.check(text).map(|()| PathBuf::from(text)))
        }
        _ => ValueParser::from(move |text: &str| field.check(text).map(|()| text.to_owned())),
    };
    let arg = arg.value_name(value_name).value_parser(parser);
    match field {
        Field::Texts(_) | Field::Servers(_) | Field::Ports(_) | Field::Ids(_) => {
            arg.action(ArgAction::Append).value_delimiter(',')
        }
        Field::Paths(_) => arg.action(ArgAction::Append),
        _ => arg,
    }
}

impl clap::Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        SETTINGS
            .iter()
            .filter_map(|setting| match setting.flag {
                Flag::Own(value_name) | Flag::Named(_, value_name) => {
                    Some(flag(setting, value_name))
                }
                Flag::OfEveryVerb => None,
            })
            .fold(command, Command::arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for setting in SETTINGS {
            if setting.flag == Flag::OfEveryVerb {
                continue;
            }
            if let Field::Switch(_) = setting.field {
                if matches.get_flag(setting.name) {
                    self.given.push((setting.name, vec!["true".to_owned()]));
                    if matches.value_source(setting.name) == Some(ValueSource::EnvVariable) {
                        self.from_variables.push(setting.name);
                    }
                }
            } else if matches.value_source(setting.name) == Some(ValueSource::CommandLine)
                && let Some(values) = matches.get_raw(setting.name)
            {
                // What an option of every verb takes from the environment is not the server's.
                let origin = || format!("--{}", setting.flag_name());
                let values = values.map(|value| text(value.to_owned(), &origin));
                self.given
                    .push((setting.name, values.collect::<Result<_, _>>()?));
            } else if let Some(value) = variable(setting.name).and_then(std::env::var_os)
                && !value.is_empty()
            {
                // Not by clap, whose error would not name the variable.
                let origin = || {
                    let name = variable(setting.name).unwrap_or_default();
                    format!("{name} in the environment")
                };
                self.given.push((setting.name, vec![text(value, &origin)?]));
                self.from_variables.push(setting.name);
            }
        }
        Ok(())
    }
}
