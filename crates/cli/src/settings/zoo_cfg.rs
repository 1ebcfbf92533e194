//! Reads ZooKeeper's zoo.cfg. Keys without effect are listed, so that they can be reported; a
//! file that cannot be served at all is refused.

use std::collections::BTreeMap;
use std::path::Path;

use super::properties::{Entry, entries};
use super::protections::Asked;
use super::zoo_keys::{ALONE, Unit, instead};
use super::{FromFile, Given, SETTINGS};

/// ZooKeeper's own defaults, where a file leaves something out.
const TICK_MS: u64 = 3000;
const MAX_CONNECTIONS_PER_ADDRESS: &str = "60";
/// Every address, of IPv6 and IPv4: where ZooKeeper listens if the file names no address.
const ANY: &str = "*";
/// Session timeouts of no other mention, in ticks.
const TIMEOUT_TICKS: [(&str, u64); 2] = [("min_session_timeout", 2), ("max_session_timeout", 20)];

/// Reads the file of this name.
///
/// # Errors
/// One line that names the file, the place and the remedy.
pub(super) fn read(name: &str, text: &str) -> Result<FromFile, String> {
    let mut reader = Reader::default();
    reader.take_all(name, text)?;
    reader.finish(name)
}

/// The address of a value: the last line with a key counts, as in ZooKeeper.
type Placed = (String, String);

#[derive(Default)]
struct Reader {
    given: BTreeMap<&'static str, Given>,
    instead: Vec<(String, &'static str)>,
    tick_ms: Option<(u64, String)>,
    port: Option<Placed>,
    address: Option<String>,
    /// The client address in the line of a single server.
    server_address: Option<Placed>,
    servers: usize,
    http: Http,
    asked: Asked,
}

/// The admin server and the Prometheus provider: one and the same here.
#[derive(Default)]
struct Http {
    /// Where `admin.enableServer` says so, if it says yes.
    enabled: Option<String>,
    admin_address: Option<String>,
    admin_port: Option<String>,
    metrics_host: Option<String>,
    metrics_port: Option<Placed>,
}

impl Http {
    const ADMIN_PORT: &str = "8080";

    fn given(self) -> Option<Given> {
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
        (!values.is_empty()).then(|| Given {
            setting: "http",
            values,
            origin: origins.join(", "),
        })
    }
}

/// An IPv6 address stands alone in a zoo.cfg, or already in the brackets that it needs before a
/// port. To Java, no address and every address of IPv4 are the same: every address, of IPv6 too.
fn with_port(address: &str, port: &str) -> String {
    if matches!(address, "0.0.0.0" | "::" | "[::]") {
        format!("{ANY}:{port}")
    } else if address.contains(':') && !address.starts_with('[') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

/// A port's number.
fn port(value: &str) -> Result<String, String> {
    match value.parse::<u16>() {
        Ok(port) => Ok(port.to_string()),
        Err(_) => Err(format!("{value} is no port; give a number up to 65535")),
    }
}

impl Reader {
    fn take_all(&mut self, name: &str, text: &str) -> Result<(), String> {
        let found = entries(text).map_err(|(line, text)| {
            format!("{name}:{line}: '{text}' is no key=value line; correct it")
        })?;
        for entry in &found {
            self.take(name, entry)
                .map_err(|what| format!("{name}:{}: {}={what}", entry.line, entry.key))?;
        }
        Ok(())
    }

    /// What is wrong begins with the value.
    fn take(&mut self, name: &str, entry: &Entry) -> Result<(), String> {
        let (key, value) = (entry.key.as_str(), entry.value.as_str());
        let place = format!("{name}:{}", entry.line);
        let origin = format!("{place} {key}");
        if self.asked.take(key, value, place) {
            return Ok(());
        }
        let setting = SETTINGS.iter().find_map(|setting| {
            setting
                .zoo
                .filter(|(known, _)| *known == key)
                .map(|(_, unit)| (setting, unit))
        });
        if let Some((setting, unit)) = setting {
            return self.take_setting(setting.name, unit, value, origin, key);
        }
        match key {
            "tickTime" => {
                let millis: u64 = value
                    .parse()
                    .map_err(|_| format!("{value} is no number; correct it"))?;
                if millis == 0 {
                    return Err("0 is no tick; give a number above 0".to_owned());
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
                let text = std::fs::read_to_string(Path::new(value))
                    .map_err(|error| format!("{value}: {error}; correct it or remove the line"))?;
                self.take_all(value, &text)
                    .map_err(|what| format!("{value}: {what}"))?;
            }
            _ if key.starts_with("server.") => {
                self.servers += 1;
                // host:2888:3888[:role][;[address:]port]
                if let Some((_, client)) = value.split_once(';') {
                    let client = client.split(';').next().unwrap_or_default();
                    let whole = if let Some((address, port)) = client.rsplit_once(':') {
                        with_port(address, port)
                    } else {
                        format!("{ANY}:{client}")
                    };
                    self.server_address = Some((whole, origin));
                }
            }
            "version" if self.servers > 0 => {}
            _ => {
                if let Some(reason) = instead(key, value) {
                    self.instead.push((key.to_owned(), reason));
                }
            }
        }
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
            let given = Given {
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
        if self.servers > 1 {
            return Err(format!(
                "{name}: it names {} servers, and baton serve runs alone; leave one server line or none",
                self.servers
            ));
        }
        if self.servers == 1 && self.port.is_some() && self.server_address.is_some() {
            self.instead.push(("server".to_owned(), ALONE));
        }
        if let Some(given) = self.listen() {
            self.given.insert("listen", given);
        }
        if let Some(given) = std::mem::take(&mut self.http).given() {
            self.given.insert("http", given);
        }
        let (tick_ms, tick_at) = self
            .tick_ms
            .unwrap_or_else(|| (TICK_MS, format!("{name}, ZooKeeper's default")));
        for (setting, ticks) in TIMEOUT_TICKS {
            self.given.entry(setting).or_insert_with(|| Given {
                setting,
                values: vec![format!("{}ms", tick_ms.saturating_mul(ticks))],
                origin: format!("{tick_at}, {ticks} ticks"),
            });
        }
        let setting = "max_connections_per_address";
        self.given.entry(setting).or_insert_with(|| Given {
            setting,
            values: vec![MAX_CONNECTIONS_PER_ADDRESS.to_owned()],
            origin: format!("{name}, ZooKeeper's default"),
        });
        Ok(FromFile {
            given: self.given.into_values().collect(),
            instead: self.instead,
            is_zoo_cfg: true,
        })
    }

    /// Where clients come in: the port of its own, else the one in the server's line.
    fn listen(&self) -> Option<Given> {
        let (listen, origin) = match (&self.port, &self.server_address) {
            (Some((port, origin)), _) => {
                let address = self.address.as_deref().unwrap_or(ANY);
                (with_port(address, port), origin)
            }
            (None, Some((listen, origin))) => (listen.clone(), origin),
            (None, None) => return None,
        };
        Some(Given {
            setting: "listen",
            values: vec![listen],
            origin: origin.clone(),
        })
    }
}
