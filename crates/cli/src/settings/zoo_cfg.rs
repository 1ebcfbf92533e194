//! Reads ZooKeeper's zoo.cfg. Keys without effect are listed, so that they can be reported; a
//! file that cannot be served at all is refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::address::{ANY, port, with_port};
use super::properties::{self, Entry, entries};
use super::protections::ProtectionLines;
use super::server_line::ServerLine;
use super::zoo_auth::ZooAuth;
use super::zoo_keys::{ALONE, TOGETHER, Unit, instead};
use super::zoo_tls::ZooTls;
use super::{FromFile, SETTINGS, SettingValue};

/// ZooKeeper's own defaults, where a file leaves something out.
const TICK_MS: u64 = 3000;
const MAX_CONNECTIONS_PER_ADDRESS: &str = "60";
/// Session timeouts of no other mention, in ticks.
const TIMEOUT_TICKS: [(&str, u64); 2] = [("min_session_timeout", 2), ("max_session_timeout", 20)];

/// The file in the dataDir that says which of the servers this one is.
const MYID: &str = "myid";
/// Keys that `conf` shows as they stand.
const SHOWN: [&str; 2] = ["initLimit", "syncLimit"];
/// Keys that are taken as they are, or mean nothing, where there are several servers.
const SILENT_TOGETHER: [&str; 3] = ["standaloneEnabled", "quorumListenOnAllIPs", "peerType"];
/// Keys that mean something where there are several servers only, with their settings.
const SWITCHES_TOGETHER: [(&str, &str); 2] = [
    ("reconfigEnabled", "ensemble.reconfig"),
    ("readonlymode.enabled", "ensemble.read_only_mode"),
];

/// Reads the file of this name. `server_id` says which of its servers this one is; without it, the
/// file `myid` in the dataDir does.
///
/// # Errors
/// One line that names the file, the place and the remedy.
pub(super) fn read(name: &str, text: &str, server_id: Option<&str>) -> Result<FromFile, String> {
    let mut reader = Reader {
        server_id: server_id.map(str::to_owned),
        ..Reader::default()
    };
    reader.take_all(name, text)?;
    reader.finish(name)
}

/// A value, and the line that has it: the last line with a key counts, as in ZooKeeper.
type PlacedValue = (String, String);

#[derive(Default)]
struct Reader {
    given: BTreeMap<&'static str, SettingValue>,
    instead: Vec<(String, &'static str)>,
    tick_ms: Option<(u64, String)>,
    port: Option<PlacedValue>,
    address: Option<String>,
    /// The client address in the line of this server.
    server_address: Option<PlacedValue>,
    servers: BTreeMap<u64, NamedServer>,
    /// Id of this server, where a flag gives it.
    server_id: Option<String>,
    /// The dataDir as it stands.
    folder: Option<PathBuf>,
    /// Whether this server listens for others on every address; the origin.
    on_every_address: Option<String>,
    /// Whether `standaloneEnabled` is off.
    is_never_alone: bool,
    /// Value of `peerType`; the origin.
    peer_type: Option<PlacedValue>,
    /// Those of [`SWITCHES_TOGETHER`] that are on, by their keys; the origins.
    switched_on: BTreeMap<String, String>,
    conf_lines: Vec<(String, String)>,
    http: Http,
    tls: ZooTls,
    auth: ZooAuth,
    asked: ProtectionLines,
}

/// A line `server.N`.
struct NamedServer {
    line: ServerLine,
    /// Value as it stands.
    value: String,
    origin: String,
}

/// The admin server and the Prometheus provider: one and the same here.
#[derive(Default)]
struct Http {
    /// Origin of `admin.enableServer`, if it says yes.
    enabled: Option<String>,
    admin_address: Option<String>,
    admin_port: Option<String>,
    metrics_host: Option<String>,
    metrics_port: Option<PlacedValue>,
}

impl Http {
    const ADMIN_PORT: &str = "8080";

    fn given(self) -> Option<SettingValue> {
        let place =
            |host: Option<String>, port: &str| with_port(host.as_deref().unwrap_or(ANY), port);
        let mut values = Vec::new();
        let mut origins = Vec::new();
        if let Some(origin) = self.enabled {
            let port = self.admin_port.as_deref().unwrap_or(Self::ADMIN_PORT);
            values.push(place(self.admin_address, port));
            origins.push(origin);
        }
        if let Some((port, origin)) = self.metrics_port {
            let metrics = place(self.metrics_host, &port);
            if !values.contains(&metrics) {
                values.push(metrics);
            }
            origins.push(origin);
        }
        (!values.is_empty()).then(|| SettingValue {
            setting: "http",
            values,
            origin: origins.join(", "),
        })
    }
}

impl Reader {
    fn take_all(&mut self, name: &str, text: &str) -> Result<(), String> {
        let found = entries(text).map_err(|(line, text)| {
            format!("{name}:{line}: '{text}' is not a key=value line, or has a wrong \\u escape; correct it")
        })?;
        for entry in &found {
            self.take(name, entry)
                .map_err(|what| format!("{name}:{}: {}={what}", entry.line, entry.key))?;
        }
        Ok(())
    }

    /// Takes an entry; an error begins with the value.
    fn take(&mut self, name: &str, entry: &Entry) -> Result<(), String> {
        let (key, value) = (entry.key.as_str(), entry.value.as_str());
        let place = format!("{name}:{}", entry.line);
        let origin = format!("{place} {key}");
        if self.tls.take(key, value, &origin) || self.auth.take(key, value, &origin) {
            return Ok(());
        }
        if self.asked.take(key, value, place) {
            return Ok(());
        }
        let setting = SETTINGS.iter().find_map(|setting| {
            setting
                .zoo
                .filter(|(known, _)| *known == key)
                .filter(|(known, _)| SWITCHES_TOGETHER.iter().all(|(key, _)| key != known))
                .map(|(_, unit)| (setting, unit))
        });
        if key == "dataDir" {
            self.folder = Some(PathBuf::from(value));
        }
        if SHOWN.contains(&key) {
            self.conf_lines.push((key.to_owned(), value.to_owned()));
        }
        if let Some((setting, unit)) = setting {
            return self.take_setting(setting.name, unit, value, origin, key);
        }
        match key {
            "tickTime" => {
                let millis: u64 = value
                    .parse()
                    .map_err(|_| format!("{value} is not a number; correct it"))?;
                if millis == 0 {
                    return Err("0 is not a tick; give a number above 0".to_owned());
                }
                self.tick_ms = Some((millis, origin));
            }
            "clientPort" => {
                self.port = Some((port(value)?, origin));
            }
            "admin.enableServer" => {
                self.http.enabled = value.eq_ignore_ascii_case("true").then_some(origin);
            }
            "admin.serverAddress" => self.http.admin_address = Some(value.to_owned()),
            "admin.serverPort" => self.http.admin_port = Some(port(value)?),
            "metricsProvider.httpHost" => self.http.metrics_host = Some(value.to_owned()),
            "metricsProvider.httpPort" => {
                self.http.metrics_port = Some((port(value)?, origin));
            }
            "clientPortAddress" => self.address = Some(value.to_owned()),
            "dynamicConfigFile" => {
                let bytes = std::fs::read(Path::new(value))
                    .map_err(|error| format!("{value}: {error}; correct it or remove the line"))?;
                self.take_all(value, &properties::text(&bytes))
                    .map_err(|what| format!("{value}: {what}"))?;
            }
            _ if key.starts_with("server.") => self.take_server(key, value, origin)?,
            "version" if !self.servers.is_empty() => {}
            _ => {
                match key {
                    "quorumListenOnAllIPs" => {
                        let all = value.eq_ignore_ascii_case("true");
                        self.on_every_address = all.then_some(origin);
                    }
                    "standaloneEnabled" => {
                        self.is_never_alone = value.eq_ignore_ascii_case("false");
                    }
                    "peerType" => self.peer_type = Some((value.to_ascii_lowercase(), origin)),
                    _ if SWITCHES_TOGETHER.iter().any(|(known, _)| *known == key) => {
                        if value.eq_ignore_ascii_case("true") {
                            self.switched_on.insert(key.to_owned(), origin);
                        } else {
                            self.switched_on.remove(key);
                        }
                    }
                    _ => {}
                }
                if let Some(reason) = instead(key, value) {
                    self.instead.push((key.to_owned(), reason));
                }
            }
        }
        Ok(())
    }

    fn take_server(&mut self, key: &str, value: &str, origin: String) -> Result<(), String> {
        let id = key.split_once('.').and_then(|(_, id)| id.parse().ok());
        let id: u64 = id.ok_or_else(|| {
            format!("{value}: there is no number behind server.; write server.1 to server.127")
        })?;
        if let Some(other) = self.servers.get(&id) {
            return Err(format!(
                "{value} names server {id} a second time, after {}; leave one",
                other.origin
            ));
        }
        let named = NamedServer {
            line: ServerLine::read(value)?,
            value: value.to_owned(),
            origin,
        };
        self.servers.insert(id, named);
        Ok(())
    }

    fn take_setting(
        &mut self,
        setting: &'static str,
        unit: Unit,
        value: &str,
        origin: String,
        key: &str,
    ) -> Result<(), String> {
        let dropped = &mut self.instead;
        let read = unit.read(value, &mut |word, why| {
            dropped.push((format!("{key}={word}"), why));
        });
        if let Some(values) = read.map_err(|what| format!("{value}: {what}"))? {
            let given = SettingValue {
                setting,
                values,
                origin,
            };
            self.given.insert(setting, given);
        } else {
            self.given.remove(setting);
        }
        Ok(())
    }

    fn finish(mut self, name: &str) -> Result<FromFile, String> {
        self.asked
            .check()
            .map_err(|what| format!("{name}: {what}"))?;
        for (key, missing) in self.asked.switched_off() {
            self.instead.push((key.to_owned(), missing));
        }
        let stands_alone = self.servers.len() <= 1 && !self.grows();
        if stands_alone {
            self.stand_alone();
        } else {
            self.join(name)?;
        }
        if let Some(given) = self.listen() {
            self.given.insert("listen", given);
        }
        let tls = self.tls.settle(stands_alone)?;
        self.instead.extend(tls.instead);
        let auth = self.auth.settle()?;
        self.instead.extend(auth.instead);
        for given in tls.given.into_iter().chain(auth.given) {
            self.given.insert(given.setting, given);
        }
        if let Some(given) = std::mem::take(&mut self.http).given() {
            self.given.insert("http", given);
        }
        let (tick_ms, tick_at) = self
            .tick_ms
            .unwrap_or_else(|| (TICK_MS, format!("{name}, ZooKeeper's default")));
        for (setting, ticks) in TIMEOUT_TICKS {
            self.given.entry(setting).or_insert_with(|| SettingValue {
                setting,
                values: vec![format!("{}ms", tick_ms.saturating_mul(ticks))],
                origin: format!("{tick_at}, {ticks} ticks"),
            });
        }
        let setting = "max_connections_per_address";
        self.given.entry(setting).or_insert_with(|| SettingValue {
            setting,
            values: vec![MAX_CONNECTIONS_PER_ADDRESS.to_owned()],
            origin: format!("{name}, ZooKeeper's default"),
        });
        Ok(FromFile {
            given: self.given.into_values().collect(),
            instead: self.instead,
            conf_lines: self.conf_lines,
            is_zoo_cfg: true,
            sasl: auth.sasl,
            revocation_lists: tls.revocation_lists,
        })
    }

    /// Whether the only server is an ensemble of one, to which others may be added.
    fn grows(&self) -> bool {
        self.servers.len() == 1
            && self.is_never_alone
            && self.switched_on.contains_key("reconfigEnabled")
    }

    /// Finishes settings with one server or none.
    fn stand_alone(&mut self) {
        self.conf_lines.clear();
        let Some(only) = self.servers.values().next() else {
            return;
        };
        let client = only.line.client.clone();
        self.server_address = client.map(|client| (client, only.origin.clone()));
        if self.port.is_some() && self.server_address.is_some() {
            self.instead.push(("server".to_owned(), ALONE));
        }
    }

    /// Finishes settings with several servers: which of them this is, and where it listens.
    fn join(&mut self, name: &str) -> Result<(), String> {
        let (id, id_origin) = self.own_id(name)?;
        let Some(own) = self.servers.get(&id) else {
            let known: Vec<_> = self.servers.keys().map(u64::to_string).collect();
            return Err(format!(
                "{id_origin}: this is server {id}, and {name} has the servers {}; correct one of them",
                known.join(", ")
            ));
        };
        if let Some((named, at)) = &self.peer_type {
            let role = match own.line.is_observer {
                true => "observer",
                false => "participant",
            };
            if named != role {
                return Err(format!(
                    "{at}: it says {named}, but {} makes this server one that is {role}; write the \
                     same in both: the other servers go by their lists",
                    own.origin
                ));
            }
        }
        if let Some(client) = &own.line.client {
            if let Some((number, at)) = &self.port {
                let whole = with_port(self.address.as_deref().unwrap_or(ANY), number);
                let is_same_port = client.ends_with(&format!(":{number}"));
                if whole != *client && !(whole.starts_with(ANY) && is_same_port) {
                    return Err(format!(
                        "{at}: clients are to connect to {whole}, but {} has {client}; write the \
                         same in both, or remove one",
                        own.origin
                    ));
                }
            }
            // It says more than the port, which agrees with it.
            self.port = None;
            self.server_address = Some((client.clone(), own.origin.clone()));
        }
        if let Some(port) = &own.line.election_port {
            let shown = ("electionPort".to_owned(), port.clone());
            self.conf_lines.push(shown);
        }
        if let Some(origin) = self.on_every_address.take() {
            let port = own.line.address.rsplit(':').next().unwrap_or_default();
            let listen = SettingValue {
                setting: "ensemble.listen",
                values: vec![format!("{ANY}:{port}")],
                origin,
            };
            self.given.insert(listen.setting, listen);
        }
        let origins: Vec<_> = self.servers.values().map(|of| of.origin.as_str()).collect();
        let servers = self.servers.iter();
        let addresses = servers
            .clone()
            .map(|(id, of)| format!("{id}={}", of.line.address));
        let servers_given = SettingValue {
            setting: "ensemble.servers",
            values: addresses.collect(),
            origin: origins.join(", "),
        };
        let mut more = vec![
            SettingValue {
                setting: "ensemble.observers",
                values: servers
                    .clone()
                    .filter(|(_, of)| of.line.is_observer)
                    .map(|(id, _)| id.to_string())
                    .collect(),
                origin: origins.join(", "),
            },
            SettingValue {
                setting: "ensemble.clients",
                values: servers
                    .clone()
                    .filter_map(|(id, of)| Some((id, of.line.client.as_deref()?)))
                    .map(|(id, client)| format!("{id}={}", as_zookeeper_shows(client)))
                    .collect(),
                origin: origins.join(", "),
            },
        ];
        more.push(SettingValue {
            setting: "ensemble.election_ports",
            values: servers
                .clone()
                .filter_map(|(id, of)| Some((id, of.line.election_port.as_deref()?)))
                .map(|(id, port)| format!("{id}={port}"))
                .collect(),
            origin: origins.join(", "),
        });
        more.retain(|given| !given.values.is_empty());
        self.conf_lines
            .extend(servers.map(|(id, of)| (format!("server.{id}"), of.value.clone())));
        for (key, setting) in SWITCHES_TOGETHER {
            if let Some(origin) = self.switched_on.remove(key) {
                self.instead.retain(|(known, _)| known != key);
                more.push(SettingValue {
                    setting,
                    values: vec!["true".to_owned()],
                    origin,
                });
            }
        }
        let id_given = SettingValue {
            setting: "server_id",
            values: vec![id.to_string()],
            origin: id_origin,
        };
        more.extend([servers_given, id_given]);
        for given in more {
            self.given.insert(given.setting, given);
        }
        self.instead
            .retain(|(key, _)| !SILENT_TOGETHER.contains(&key.as_str()));
        for (_, reason) in &mut self.instead {
            if *reason == ALONE {
                *reason = TOGETHER;
            }
        }
        Ok(())
    }

    /// Returns which of several servers this is, and who says so.
    fn own_id(&self, name: &str) -> Result<(u64, String), String> {
        let unknown = format!("{name}: it names {} servers", self.servers.len());
        let remedy = "write the number of this server's line into it, or give --server-id";
        let (text, origin) = match (&self.server_id, &self.folder) {
            (Some(id), _) => (id.clone(), "--server-id".to_owned()),
            (None, Some(folder)) => {
                let file = folder.join(MYID);
                let shown = file.display().to_string();
                let text = std::fs::read_to_string(&file).map_err(|error| {
                    format!(
                        "{unknown}, and {shown} is to say which of them this is: {error}; {remedy}"
                    )
                })?;
                (text, shown)
            }
            (None, None) => {
                return Err(format!(
                    "{unknown} and no dataDir, whose file {MYID} says which of them this is; add \
                     dataDir=FOLDER, or give --server-id"
                ));
            }
        };
        let text = text.lines().next().unwrap_or_default().trim();
        let id = text.parse().ok().filter(|id| (1..=127).contains(id));
        let id = id.ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            format!("{origin}: '{shown}' is not a number from 1 to 127; {remedy}")
        })?;
        Ok((id, origin))
    }

    /// Returns the address for clients: the port of its own, else the one in the server's line.
    fn listen(&self) -> Option<SettingValue> {
        let (listen, origin) = match (&self.port, &self.server_address) {
            (Some((port, origin)), _) => {
                let address = self.address.as_deref().unwrap_or(ANY);
                (with_port(address, port), origin)
            }
            (None, Some((listen, origin))) => (listen.clone(), origin),
            (None, None) => return None,
        };
        Some(SettingValue {
            setting: "listen",
            values: vec![listen],
            origin: origin.clone(),
        })
    }
}

/// An address of the setting `listen` as ZooKeeper writes it into `/zookeeper/config`.
fn as_zookeeper_shows(listen: &str) -> String {
    match listen.strip_prefix(ANY) {
        Some(port) => format!("0.0.0.0{port}"),
        None => listen.to_owned(),
    }
}
