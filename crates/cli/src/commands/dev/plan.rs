//! Plan of the servers: their number, ports, folders and configuration files. Starts nothing.

use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::folders;
use crate::servers::local;

/// The most servers of an ensemble.
const MOST: usize = 7;
/// The file of the folder that keeps the ports: one line a server.
const PORTS: &str = "ports";
/// Tries to find a name for a temporary folder.
const NAMES: u32 = 100;

/// Addresses of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServerAddresses {
    pub(super) id: u64,
    pub(super) client_port: u16,
    /// For the other servers.
    pub(super) peer_port: u16,
    /// For browsers; a folder of an earlier version has none.
    pub(super) http_port: Option<u16>,
}

impl ServerAddresses {
    /// Returns the address for clients.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", Ipv4Addr::LOCALHOST, self.client_port)
    }

    /// Returns the address for HTTP.
    pub(super) fn http(&self) -> Option<String> {
        let port = self.http_port?;
        Some(format!("{}:{port}", Ipv4Addr::LOCALHOST))
    }
}

/// The servers and their folder.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) folder: PathBuf,
    pub(super) is_temporary: bool,
    pub(super) places: Vec<ServerAddresses>,
}

impl Plan {
    /// Chooses the ports, or reads those that the folder has, and writes the configuration files.
    ///
    /// # Errors
    /// Usage: a number of servers or a port that is not possible, or not that of the folder. A
    /// folder that cannot be used.
    pub(super) fn make(
        folder: Option<&Path>,
        count: Option<&str>,
        port_base: Option<u16>,
    ) -> Result<Self, Failure> {
        let count = count.map(number_of_servers).transpose()?;
        let known = match folder {
            Some(folder) => read_ports(&folder.join(PORTS))?,
            None => Vec::new(),
        };
        let places = if known.is_empty() {
            choose(count.unwrap_or(1), port_base)?
        } else {
            if count.is_some_and(|count| count != known.len()) {
                return Err(Failure::usage(format!(
                    "{} has the data of {} servers; give --servers {}, or another --data-dir",
                    folder.unwrap_or(Path::new("")).display(),
                    known.len(),
                    known.len()
                )));
            }
            let same = |base| {
                let ports = |place: &ServerAddresses| (place.client_port, place.peer_port);
                choose(known.len(), Some(base))
                    .is_ok_and(|chosen| chosen.iter().map(ports).eq(known.iter().map(ports)))
            };
            if port_base.is_some_and(|base| !same(base)) {
                return Err(Failure::usage(format!(
                    "the servers in {} have other ports, by which they know each other; leave \
                     --port-base out, or give another --data-dir",
                    folder.unwrap_or(Path::new("")).display()
                )));
            }
            known
        };
        let plan = Self {
            is_temporary: folder.is_none(),
            folder: match folder {
                Some(folder) => {
                    let folder = folders::data(Some(folder))?;
                    local::make_folder(&folder)?;
                    folder
                }
                None => temporary_folder(&std::env::temp_dir())?,
            },
            places,
        };
        plan.write()?;
        Ok(plan)
    }

    /// The list for `--servers`.
    pub(super) fn connect_string(&self) -> String {
        let addresses: Vec<_> = self.places.iter().map(ServerAddresses::address).collect();
        addresses.join(",")
    }

    /// The data folder of a server.
    pub(super) fn folder_of(&self, place: &ServerAddresses) -> PathBuf {
        self.folder.join(place.id.to_string())
    }

    /// The configuration file of a server.
    pub(super) fn config_of(&self, place: &ServerAddresses) -> PathBuf {
        self.folder.join(format!("{}.toml", place.id))
    }

    fn write(&self) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::baton(format!(
                "cannot write into {}: {error}; choose another --data-dir",
                self.folder.display()
            ))
        };
        let mut ports = String::new();
        for place in &self.places {
            let http = place.http_port.map(|port| format!(" {port}"));
            let http = http.unwrap_or_default();
            let _ = writeln!(ports, "{} {}{http}", place.client_port, place.peer_port);
            std::fs::write(self.config_of(place), self.config(place)?).map_err(failed)?;
        }
        std::fs::write(self.folder.join(PORTS), ports).map_err(failed)
    }

    /// The `baton.toml` of a server.
    fn config(&self, place: &ServerAddresses) -> Result<String, Failure> {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let folder = self.folder_of(place);
        let mut text = format!(
            "# Written by baton dev.\ndata_dir = {}\nlisten = {}\nserver_id = {}\n",
            quoted(folders::text(&folder)?),
            quoted(&place.address()),
            place.id
        );
        if let Some(http) = place.http() {
            let _ = writeln!(text, "http = {}", quoted(&http));
        }
        if self.places.len() > 1 {
            text.push_str("\n[ensemble.servers]\n");
            for other in &self.places {
                let address = format!("{}:{}", Ipv4Addr::LOCALHOST, other.peer_port);
                let _ = writeln!(text, "{} = {}", other.id, quoted(&address));
            }
            text.push_str("\n[ensemble.clients]\n");
            for other in &self.places {
                let _ = writeln!(text, "{} = {}", other.id, quoted(&other.address()));
            }
        }
        Ok(text)
    }

    /// Removes a temporary folder, unless a server that somebody else has started uses it.
    pub(super) fn tidy(&self) {
        let in_use = self
            .places
            .iter()
            .any(|place| TcpStream::connect((Ipv4Addr::LOCALHOST, place.client_port)).is_ok());
        if self.is_temporary && !in_use {
            // What is left of it harms nobody.
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn number_of_servers(text: &str) -> Result<usize, Failure> {
    let count = text.parse().ok().filter(|count| (1..=MOST).contains(count));
    count.ok_or_else(|| {
        Failure::usage(format!(
            "--servers '{text}' is not a number of servers; baton dev starts 1 to {MOST} of its own"
        ))
    })
}

/// Ports for servers of this number, from 1 on.
fn choose(count: usize, port_base: Option<u16>) -> Result<Vec<ServerAddresses>, Failure> {
    const EACH: usize = 3;
    let ports = match port_base {
        Some(base) => ports_from(base, EACH * count).ok_or_else(|| {
            Failure::usage(format!(
                "--port-base {base} leaves no room for {} ports; give one from 1 to {}",
                EACH * count,
                65536 - EACH * count
            ))
        })?,
        None => free_ports(EACH * count).map_err(|error| {
            Failure::baton(format!(
                "no free ports on 127.0.0.1: {error}; give --port-base"
            ))
        })?,
    };
    let (clients, others) = ports.split_at(count);
    let (peers, https) = others.split_at(count);
    let all = clients.iter().zip(peers).zip(https);
    Ok(numbered(all.map(|((client, peer), http)| {
        (*client, *peer, Some(*http))
    })))
}

fn numbered(ports: impl Iterator<Item = (u16, u16, Option<u16>)>) -> Vec<ServerAddresses> {
    let places = (1..).zip(ports);
    let places = places.map(
        |(id, (client_port, peer_port, http_port))| ServerAddresses {
            id,
            client_port,
            peer_port,
            http_port,
        },
    );
    places.collect()
}

fn ports_from(base: u16, count: usize) -> Option<Vec<u16>> {
    let last = usize::from(base).checked_add(count)?.checked_sub(1)?;
    let last = u16::try_from(last).ok().filter(|_| base > 0)?;
    Some((base..=last).collect())
}

/// Ports that nobody uses now.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    // All are held until the last is found, so that they differ.
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<io::Result<_>>()?;
    held.iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect()
}

/// The ports that a folder keeps; none if it has no such file.
fn read_ports(file: &Path) -> Result<Vec<ServerAddresses>, Failure> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(Failure::baton(format!(
                "{}: {error}; choose another --data-dir",
                file.display()
            )));
        }
    };
    let ports: Option<Vec<_>> = text
        .lines()
        .map(|line| {
            let ports: Result<Vec<u16>, _> = line.split(' ').map(str::parse).collect();
            match ports.ok()?[..] {
                [client, peer] => Some((client, peer, None)),
                [client, peer, http] => Some((client, peer, Some(http))),
                _ => None,
            }
        })
        .collect();
    let ports = ports.filter(|ports| (1..=MOST).contains(&ports.len()));
    let ports = ports.ok_or_else(|| {
        Failure::baton(format!(
            "{} is not a file of baton dev; choose another --data-dir",
            file.display()
        ))
    })?;
    Ok(numbered(ports.into_iter()))
}

/// A new folder that only this user can enter.
fn temporary_folder(above: &Path) -> Result<PathBuf, Failure> {
    folders::text(above)?;
    let mut last = None;
    for number in 0..NAMES {
        let folder = above.join(format!("baton-dev-{}-{number}", std::process::id()));
        // It fails where anything has the name, a link included.
        match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => last = Some(error),
        }
    }
    let why = last.map_or(String::new(), |error| format!(": {error}"));
    Err(Failure::baton(format!(
        "cannot make a folder in {}{why}; give --data-dir",
        above.display()
    )))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::settings::{SettingFlags, Settings};

    #[test]
    fn a_temporary_folder_that_is_no_text_is_refused_before_it_is_made() {
        let home = tempfile::tempdir().unwrap();
        let above = home.path().join(OsStr::from_bytes(b"t\xff"));
        std::fs::create_dir(&above).unwrap();
        let refused = temporary_folder(&above).unwrap_err();
        assert!(refused.text.contains("not UTF-8"), "{refused}");
        assert_eq!(std::fs::read_dir(&above).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_files_of_the_servers_name_one_ensemble() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan::make(Some(folder.path()), Some("3"), None).unwrap();
        let ports = plan
            .places
            .iter()
            .flat_map(|place| [place.client_port, place.peer_port, place.http_port.unwrap()]);
        assert_eq!(ports.collect::<BTreeSet<_>>().len(), 9);
        let flags = SettingFlags::default();
        let mut lists = Vec::new();
        for place in &plan.places {
            let config = plan.config_of(place);
            let settings = Settings::load(Some(&config), &flags, None).unwrap();
            let target = settings.target();
            assert_eq!(target.options.listen, [place.address()]);
            assert_eq!(target.options.http, [place.http().unwrap()]);
            assert_eq!(u64::from(target.options.server_id), place.id);
            assert_eq!(target.folder(), Some(plan.folder_of(place).as_path()));
            lists.push(target.options.ensemble.clone().unwrap());
        }
        assert_eq!(lists[0].servers.len(), 3);
        let clients = plan.places.iter().map(|place| (place.id, place.address()));
        assert_eq!(lists[0].clients, clients.collect());
        assert!(lists.iter().all(|list| *list == lists[0]));
        // The next time they have the same ports.
        let again = Plan::make(Some(folder.path()), None, None).unwrap();
        assert_eq!(again.places, plan.places);
        for (count, base) in [(Some("2"), None), (None, Some(1))] {
            let refused = Plan::make(Some(folder.path()), count, base).unwrap_err();
            assert_eq!(refused.kind, "usage");
        }
        // A folder of an earlier version has no ports for HTTP.
        std::fs::write(folder.path().join(PORTS), "7001 7002\n").unwrap();
        let old = Plan::make(Some(folder.path()), None, Some(7001)).unwrap();
        let settings = Settings::load(Some(&old.config_of(&old.places[0])), &flags, None);
        assert!(settings.unwrap().target().options.http.is_empty());
    }

    #[test]
    fn one_server_stands_alone_in_a_folder_that_goes_at_the_end() {
        let plan = Plan::make(None, None, None).unwrap();
        let [place] = plan.places[..] else {
            panic!("{plan:?}");
        };
        let settings = Settings::load(
            Some(&plan.config_of(&place)),
            &SettingFlags::default(),
            None,
        );
        assert_eq!(settings.unwrap().target().options.ensemble, None);
        assert!(plan.is_temporary && plan.folder.exists());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, place.client_port));
        plan.tidy();
        assert!(plan.folder.exists(), "somebody has started a server");
        std::fs::remove_dir_all(&plan.folder).unwrap();
        drop(listener);
        // Another program may have taken a plan's port meanwhile.
        let goes = |plan: Plan| {
            plan.tidy();
            let is_gone = !plan.folder.exists();
            let _ = std::fs::remove_dir_all(&plan.folder);
            is_gone
        };
        assert!((0..20).any(|_| goes(Plan::make(None, None, None).unwrap())));
    }

    #[test]
    fn numbers_and_ports_that_are_not_possible_are_refused() {
        for count in ["0", "8", "a:2181,b:2181", ""] {
            let refused = Plan::make(None, Some(count), None).unwrap_err();
            assert!(refused.text.contains("1 to 7"), "{refused}");
        }
        for base in [0, 65528] {
            let refused = choose(3, Some(base)).unwrap_err();
            assert!(refused.text.contains("from 1 to 65527"), "{refused}");
        }
        let places = choose(3, Some(65527)).unwrap();
        let ends = (places[0].client_port, places[2].http_port);
        assert_eq!(ends, (65527, Some(65535)));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(PORTS), "nonsense\n").unwrap();
        let refused = Plan::make(Some(folder.path()), None, None).unwrap_err();
        assert!(
            refused.text.contains("not a file of baton dev"),
            "{refused}"
        );
    }
}
