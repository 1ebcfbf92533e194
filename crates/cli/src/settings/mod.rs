//! The settings of `baton serve`: where each comes from, and what comes out.
//!
//! [`SETTINGS`] defines each once: its name in `baton.toml`, its flag, its key in ZooKeeper's
//! `zoo.cfg`, its type and its help. Flags, both kinds of file, `--print-config` and the table in
//! `docs/operate/configure.md` are derived from that. A flag outweighs the variable of its setting,
//! this one the file, and the file the default. Starts nothing and makes no file.
//!
//! | module | owns |
//! |---|---|
//! | `flags` | the settings as flags |
//! | `toml_file` | `baton.toml` |
//! | `zoo_cfg` | ZooKeeper's `zoo.cfg` |
//! | `zoo_tls`, `zoo_auth` | its keys about TLS; about who clients are |
//! | `server_line` | one line `server.N` of it |
//! | `address` | hosts and ports as it writes them |
//! | `table` | the one definition of every setting |
//! | `field` | the type of a setting, and its field |
//! | `groups` | groups of users by their names |
//! | `sasl_users` | the file of users for SASL |
//! | `properties` | Java's properties format |
//! | `protections`, `zoo_keys` | keys of a `zoo.cfg` that stop the start; keys without a setting |

mod address;
mod field;
mod flags;
mod groups;
mod properties;
mod protections;
mod sasl_users;
mod server_line;
mod table;
pub(crate) mod toml_file;
mod zoo_auth;
mod zoo_cfg;
mod zoo_keys;
mod zoo_tls;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use baton_console::metrics::Selection;
use baton_server::{
    ClientAuth, EnsembleOptions, Options, PeerTlsOptions, ServerTlsOptions, StartError, TlsFiles,
};

pub(crate) use field::Field;
pub(crate) use flags::SettingFlags;
pub(crate) use table::{Flag, SETTINGS, Setting, setting};

use crate::exit::Failure;
use crate::folders;
use crate::output::log_filter::LogFilter;
use crate::output::log_lines::LogFormat;
use crate::secret_file;

/// The mode of unix sockets for a group.
const GROUP_SOCKET_MODE: u32 = 0o660;

/// The settings with which a server is started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    /// The server's own settings.
    pub(crate) options: Options,
    /// The servers that are to be one with this one. [`Options::ensemble`] is set from it once all
    /// settings are known.
    ensemble: EnsembleOptions,
    /// TLS of the ports. [`Options::tls`] is set from it once all settings are known.
    tls: TlsSettings,
    /// TLS between the servers. [`EnsembleOptions::tls`] is set from it likewise.
    peer_tls: PeerTlsSettings,
    /// The data folder; the user's own if there is none.
    pub(crate) data_dir: Option<PathBuf>,
    /// Whether nothing is kept.
    pub(crate) ephemeral: bool,
    /// The file of users for SASL. [`Options::sasl_users`] is read from it.
    sasl_users: Option<PathBuf>,
    /// Time that the server outlives its last use.
    pub(crate) exit_when_idle: Option<Duration>,
    /// Whether the system may write the memory of a server that crashes to a file.
    pub(crate) core_dumps: bool,
    /// Locks and queues that have metrics of their own.
    pub(crate) metrics: Selection,
    /// The log of the process.
    pub(crate) log: LogSettings,
}

/// The log as it is asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogSettings {
    /// Its filter.
    pub(crate) filter: Option<LogFilter>,
    /// The form of its lines.
    pub(crate) format: Option<LogFormat>,
}

/// The files and rules of TLS as they are given.
#[derive(Debug, Clone)]
struct TlsSettings {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    crl: Option<PathBuf>,
    client_auth: Option<ClientAuth>,
    super_subject: Option<String>,
    reload_interval: Duration,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            cert: None,
            key: None,
            ca: None,
            crl: None,
            client_auth: None,
            super_subject: None,
            reload_interval: ServerTlsOptions::RELOAD_INTERVAL,
        }
    }
}

/// The files and rules of TLS between servers as they are given.
#[derive(Debug, Clone, Default)]
struct PeerTlsSettings {
    connects: bool,
    accepts_both: bool,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: Option<PathBuf>,
    crl: Option<PathBuf>,
    any_host: bool,
}

impl Target {
    /// The data folder, unless nothing is kept.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.data_dir.as_deref().filter(|_| !self.ephemeral)
    }
}

/// One setting as some source has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SettingValue {
    setting: &'static str,
    values: Vec<String>,
    /// The file and line, or the flag, for people.
    origin: String,
}

/// The settings of one file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FromFile {
    given: Vec<SettingValue>,
    /// Keys that have no effect, each with what Baton does instead.
    instead: Vec<(String, &'static str)>,
    /// Lines that `conf` shows.
    conf_lines: Vec<(String, String)>,
    /// Whether it is a zoo.cfg, which has to name a folder and a port.
    is_zoo_cfg: bool,
    /// The line that asks for SASL, which needs users.
    sasl: Option<String>,
    /// Lines that ask for lists of revoked certificates, which they do not name: the setting that
    /// does, its flag, and the line.
    revocation_lists: Vec<(&'static str, &'static str, String)>,
}

/// All settings, with their origins.
#[derive(Debug)]
pub(crate) struct Settings {
    target: Target,
    origins: BTreeMap<&'static str, String>,
    /// One line that names what the file says and the server does otherwise.
    warning: Option<String>,
    /// One line about a number of servers that is a bad choice.
    advice: Option<String>,
}

impl Settings {
    /// Reads the file, if there is one, and puts the flags over it. What comes from no setting is
    /// put into the options by `add`, before settings are derived from others and checked.
    ///
    /// # Errors
    /// A file that cannot be read or is wrong, with its line; settings that contradict each other;
    /// those of `add`.
    pub(crate) fn load_and_add(
        file: Option<&Path>,
        flags: &SettingFlags,
        data_dir: Option<&Path>,
        add: impl FnOnce(&mut Options) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let mut settings = Self {
            target: Target::default(),
            origins: BTreeMap::new(),
            warning: None,
            advice: None,
        };
        let mut is_zoo_cfg = false;
        let mut sasl = None;
        let mut revocation_lists = Vec::new();
        if let Some(file) = file {
            let said = read(file, flags.last("server_id"))?;
            is_zoo_cfg = said.is_zoo_cfg;
            sasl = said.sasl;
            revocation_lists = said.revocation_lists;
            settings.warning = warning(file, &said.instead);
            settings.target.options.conf_lines = said.conf_lines;
            for given in said.given {
                settings.put(given)?;
            }
        }
        if let Some(folder) = data_dir {
            settings.put(SettingValue {
                setting: "data_dir",
                values: vec![folders::text(folder)?.to_owned()],
                origin: "--data-dir or BATON_DATA_DIR".to_owned(),
            })?;
        }
        for given in flags.given() {
            settings.put(given)?;
        }
        if let Some(origin) = sasl.filter(|_| !settings.is_given("sasl_users")) {
            return Err(Failure::usage(format!(
                "{origin}: clients authenticate by SASL, and nothing names the users; name the JAAS file that \
                 the server's -Djava.security.auth.login.config names with --sasl-users, or a file with lines \
                 NAME:PASSWORD"
            )));
        }
        let unnamed = revocation_lists
            .into_iter()
            .find(|(setting, _, _)| !settings.is_given(setting));
        if let Some((_, flag, origin)) = unnamed {
            return Err(Failure::usage(format!(
                "{origin}: certificates are to be looked up in the lists of revoked ones, and baton serve \
                 fetches none; name a file with the lists of the authorities in PEM with --{flag}"
            )));
        }
        add(&mut settings.target.options)?;
        settings.settle(is_zoo_cfg)?;
        Ok(settings)
    }

    #[cfg(test)]
    pub(crate) fn load(
        file: Option<&Path>,
        flags: &SettingFlags,
        data_dir: Option<&Path>,
    ) -> Result<Self, Failure> {
        Self::load_and_add(file, flags, data_dir, |_| Ok(()))
    }

    fn put(&mut self, given: SettingValue) -> Result<(), Failure> {
        let setting = setting(given.setting);
        setting
            .field
            .put(&mut self.target, &given.values)
            .map_err(|what| Failure::usage(format!("{}: {what}", given.origin)))?;
        self.origins.insert(setting.name, given.origin);
        Ok(())
    }

    fn is_given(&self, name: &str) -> bool {
        self.origins.contains_key(name)
    }

    /// Derives settings from others, and refuses a zoo.cfg without a folder or a port.
    fn settle(&mut self, is_zoo_cfg: bool) -> Result<(), Failure> {
        let options = &mut self.target.options;
        if options.tick > options.min_session_timeout && !self.origins.contains_key("tick") {
            options.tick = options.min_session_timeout;
            self.origins
                .insert("tick", "as min_session_timeout".to_owned());
        }
        if is_zoo_cfg && !self.target.ephemeral && !self.is_given("data_dir") {
            return Err(Failure::usage(
                "the zoo.cfg has no dataDir; add dataDir=FOLDER or give --data-dir",
            ));
        }
        let options = &self.target.options;
        if is_zoo_cfg && options.listen.is_empty() && options.secure_listen.is_empty() {
            return Err(Failure::usage(
                "the zoo.cfg has no clientPort; add clientPort=2181 or give --listen",
            ));
        }
        if self.target.ephemeral {
            let options = &self.target.options;
            if options.listen.is_empty()
                && options.secure_listen.is_empty()
                && options.unix_sockets.is_empty()
            {
                return Err(Failure::usage(
                    "serve --ephemeral has no address; give --listen HOST:PORT or --unix-socket PATH",
                ));
            }
        } else {
            let folder = folders::data(self.target.data_dir.as_deref())?;
            self.target.data_dir = Some(folder);
        }
        if let Some(file) = &self.target.sasl_users {
            let text = secret_file::read(file).map_err(Failure::usage)?;
            let users = sasl_users::read(&text)
                .map_err(|what| Failure::usage(format!("{}: {what}", file.display())))?;
            self.target.options.sasl_users = users.into_iter().collect();
        } else if !self.target.options.sasl_super_users.is_empty() {
            let named = self.named("sasl_super_users");
            return Err(Failure::usage(format!(
                "{named} has no meaning without sasl_users; give --sasl-users FILE"
            )));
        }
        if self.target.options.unix_socket_group.is_some() && !self.is_given("unix_socket_mode") {
            self.target.options.unix_socket_mode = GROUP_SOCKET_MODE;
            let origin = "as unix_socket_group asks for".to_owned();
            self.origins.insert("unix_socket_mode", origin);
        }
        self.check_metrics()?;
        self.settle_tls()?;
        self.settle_ensemble()?;
        self.judged(self.target.options.check())
    }

    /// Whether the paths that may have metrics of their own are paths.
    fn check_metrics(&self) -> Result<(), Failure> {
        for prefix in &self.target.metrics.prefixes {
            baton_proto::path::validate(prefix).map_err(|why| {
                let named = self.named("metrics_prefixes");
                Failure::usage(format!(
                    "{named} is not a path of a znode: {why}; name one like /app/locks"
                ))
            })?;
        }
        Ok(())
    }

    /// Whether a server may start that is as open as this.
    ///
    /// # Errors
    /// An address that is open to other machines though nobody has said that it is meant to be.
    pub(crate) fn check_exposure(&self) -> Result<(), Failure> {
        self.judged(self.target.options.check_exposure())
    }

    /// The outcome of a check, with the values and the origins of the settings.
    fn judged(&self, outcome: Result<(), StartError>) -> Result<(), Failure> {
        outcome.map_err(|error| match error {
            StartError::Setting { setting, remedy } => {
                Failure::usage(format!("{} {remedy}", self.named(setting)))
            }
            error => Failure::usage(error.to_string()),
        })
    }

    /// Gives the ports their certificate, if one is named.
    fn settle_tls(&mut self) -> Result<(), Failure> {
        let tls = self.target.tls.clone();
        let Some(certificates) = tls.cert else {
            let rest = "tls_key, tls_ca, tls_crl, tls_client_auth, tls_super_subject";
            // A port that needs the certificate asks for it by itself, later.
            let options = &self.target.options;
            let is_asked_for = options.port_unification
                || !options.secure_listen.is_empty()
                || !options.https.is_empty();
            if !is_asked_for && rest.split(", ").any(|name| self.is_given(name)) {
                let named = self.named(rest);
                return Err(Failure::usage(format!(
                    "{named} has no meaning without tls_cert; give --tls-cert FILE"
                )));
            }
            return Ok(());
        };
        let options = ServerTlsOptions::new(TlsFiles {
            key: tls.key.unwrap_or_else(|| certificates.clone()),
            certificates,
            authorities: tls.ca,
            revocation_lists: tls.crl,
        });
        self.target.options.tls = Some(ServerTlsOptions {
            client_auth: tls.client_auth.unwrap_or(options.client_auth),
            super_subject: tls.super_subject,
            reload_interval: tls.reload_interval,
            ..options
        });
        Ok(())
    }

    /// Makes the server one of several, if more than one is named. One alone stands alone, as in
    /// ZooKeeper, unless others may be added to it.
    fn settle_ensemble(&mut self) -> Result<(), Failure> {
        let ensemble = &self.target.ensemble;
        let id = u64::from(self.target.options.server_id);
        let servers = ensemble.servers.len();
        let refuse = |setting: &str, remedy: &str| {
            Err(Failure::usage(format!("{} {remedy}", self.named(setting))))
        };
        let tls = &self.target.peer_tls;
        for (setting, is_on) in [
            ("ensemble.listen", ensemble.listen.is_some()),
            ("ensemble.tls", tls.connects),
            ("ensemble.port_unification", tls.accepts_both),
        ] {
            if servers == 0 && is_on {
                return refuse(setting, "has no meaning without ensemble.servers");
            }
        }
        if servers == 1 && !ensemble.servers.contains_key(&id) {
            let settings = "server_id, ensemble.servers";
            return refuse(settings, "must agree: the only server is another one");
        }
        if servers == 0 || servers == 1 && !ensemble.reconfig {
            return Ok(());
        }
        if self.target.ephemeral {
            return refuse(
                "ephemeral",
                "is not possible in an ensemble: a server that has lost its data may not vote \
                 again; keep the data in a folder, or leave ensemble.servers out",
            );
        }
        let votes = |id: &&u64| !ensemble.observers.contains(id);
        let voters = ensemble.servers.keys().filter(votes).count();
        if voters.is_multiple_of(2) && voters > 0 {
            let tolerated = (voters - 1) / 2;
            self.advice = Some(format!(
                "an ensemble of {voters} servers goes on after the failure of {tolerated}, no \
                 more than one of {} does; take an odd number of servers",
                voters - 1
            ));
        }
        self.target.options.ensemble = Some(EnsembleOptions {
            tls: self.peer_tls()?,
            ..self.target.ensemble.clone()
        });
        Ok(())
    }

    /// TLS between the servers, if it is on.
    fn peer_tls(&self) -> Result<Option<PeerTlsOptions>, Failure> {
        let tls = self.target.peer_tls.clone();
        let refuse = |setting: &str, remedy: &str| {
            Err(Failure::usage(format!("{} {remedy}", self.named(setting))))
        };
        let switches = "ensemble.tls, ensemble.port_unification";
        if !tls.connects && !tls.accepts_both {
            let rest = [
                ("ensemble.tls_cert", tls.cert.is_some()),
                ("ensemble.tls_key", tls.key.is_some()),
                ("ensemble.tls_ca", tls.ca.is_some()),
                ("ensemble.tls_crl", tls.crl.is_some()),
                ("ensemble.tls_any_host", tls.any_host),
            ];
            return match rest.into_iter().find(|(_, is_on)| *is_on) {
                Some((setting, _)) => refuse(
                    setting,
                    "has no meaning without ensemble.tls; give --peer-tls",
                ),
                None => Ok(None),
            };
        }
        let (Some(certificates), Some(authorities)) = (tls.cert, tls.ca) else {
            return refuse(
                switches,
                "needs a certificate, its key and the authority of the servers' certificates; give \
                 --peer-tls-cert, --peer-tls-key and --peer-tls-ca (baton cert init makes the files)",
            );
        };
        let files = TlsFiles {
            key: tls.key.unwrap_or_else(|| certificates.clone()),
            certificates,
            authorities: Some(authorities),
            revocation_lists: tls.crl,
        };
        Ok(Some(PeerTlsOptions {
            connects: tls.connects,
            accepts_plain: tls.accepts_both,
            checks_hosts: !tls.any_host,
            reload_interval: self.target.tls.reload_interval,
            ..PeerTlsOptions::new(files)
        }))
    }

    /// These settings, separated by commas, with their values and origins; only those
    /// that were given, if any was.
    fn named(&self, settings: &str) -> String {
        let all = settings.split(", ");
        let given: Vec<_> = all.clone().filter(|name| self.is_given(name)).collect();
        let chosen = if given.is_empty() {
            all.collect()
        } else {
            given
        };
        let named = chosen.iter().map(|name| {
            let setting = SETTINGS.iter().find(|setting| setting.name == *name);
            let value = setting.and_then(|setting| setting.field.toml(&self.target));
            let value = value.map_or(String::new(), |value| format!(" = {value}"));
            let origin = self.origins.get(name).map_or("default", String::as_str);
            format!("{name}{value} ({origin})")
        });
        named.collect::<Vec<_>>().join(", ")
    }

    /// Returns the warnings about the settings, one line each.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &str> {
        let all = [&self.warning, &self.advice];
        all.into_iter().filter_map(|line| line.as_deref())
    }

    /// The settings as they are to be used.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Every setting, its value as in `baton.toml` (none: there is no value), and where that came
    /// from.
    pub(crate) fn list(&self) -> Vec<SettingRow<'_>> {
        let openings = self.target.options.openings();
        SETTINGS
            .iter()
            .map(|setting| SettingRow {
                open: openings
                    .iter()
                    .filter(|opening| opening.setting == setting.name)
                    .map(ToString::to_string)
                    .collect(),
                name: setting.name,
                value: match setting.name {
                    "super_digest" if self.target.options.super_digest.is_some() => None,
                    _ => setting.field.toml(&self.target),
                },
                origin: self.origins.get(setting.name).map_or("default", |at| at),
            })
            .collect()
    }

    /// All settings as a `baton.toml`, each with its origin behind it, and with what it opens. A
    /// secret is named and not shown.
    pub(crate) fn to_toml(&self) -> String {
        let lines = self.list().into_iter().map(|shown| match shown.value {
            Some(value) if !shown.open.is_empty() => format!(
                "{} = {value}  # {}  # OPEN: {}\n",
                shown.name,
                shown.origin,
                shown.open.join("; ")
            ),
            Some(value) => format!("{} = {value}  # {}\n", shown.name, shown.origin),
            None if shown.origin == "default" => format!("# {} is not set\n", shown.name),
            None => format!("# {} is not shown  # {}\n", shown.name, shown.origin),
        });
        lines.collect()
    }
}

/// One setting for people and programs to see.
#[derive(Debug, serde::Serialize)]
pub(crate) struct SettingRow<'a> {
    name: &'static str,
    value: Option<String>,
    origin: &'a str,
    /// Things that are open because of it, and to whom.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    open: Vec<String>,
}

/// Reads a file. `server_id` is the flag that says which of its servers this one is.
fn read(file: &Path, server_id: Option<&str>) -> Result<FromFile, Failure> {
    let name = file.display();
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "{name}: {error}; name a readable baton.toml or zoo.cfg with --config"
        ))
    };
    let bytes = std::fs::read(file).map_err(|error| unreadable(&error))?;
    let is_toml = file
        .extension()
        .is_some_and(|extension| extension == "toml");
    let said = if is_toml {
        let text = String::from_utf8(bytes);
        let text = text.map_err(|error| unreadable(&error.utf8_error()))?;
        toml_file::read(&name.to_string(), &text)
    } else {
        zoo_cfg::read(&name.to_string(), &properties::text(&bytes), server_id)
    };
    said.map_err(Failure::usage)
}

/// The one line about what a file says and the server does otherwise.
fn warning(file: &Path, instead: &[(String, &'static str)]) -> Option<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (key, reason) in instead {
        match groups.iter_mut().find(|(other, _)| other == reason) {
            Some((_, keys)) => keys.push(key),
            None => groups.push((reason, vec![key])),
        }
    }
    let groups: Vec<String> = groups
        .iter()
        .map(|(reason, keys)| format!("{} ({reason})", keys.join(", ")))
        .collect();
    let file = file.display();
    (!groups.is_empty()).then(|| format!("{file}: without effect: {}", groups.join("; ")))
}

#[cfg(test)]
mod tests;
