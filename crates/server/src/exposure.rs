//! Which addresses of a server are open: who reaches them may use the server without proving who
//! they are. Owns the rule by which such an address stops the start.

use std::fmt;

use baton_tls::ClientAuth;

use crate::error::StartError;
use crate::options::{Options, is_loopback_host};

/// An address or a socket where nobody has to prove who they are, though others than this user
/// reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The setting that names it.
    pub setting: &'static str,
    /// The address or the path.
    pub place: String,
    /// Who reaches it, and what is missing.
    who: &'static str,
    /// The remedy, where the server does not start unless [`Options::insecure`] is set.
    remedy: Option<&'static str>,
}

impl Opening {
    /// Whether the server does not start with it unless [`Options::insecure`] is set.
    #[must_use]
    pub fn needs_insecure(&self) -> bool {
        self.remedy.is_some()
    }
}

impl fmt::Display for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.place, self.who)
    }
}

const PLAIN: &str = "every machine that reaches it, without encryption and authentication";
const LISTEN_REMEDY: &str = "must not be open to other machines without TLS or authentication: whoever reaches it would \
     read and change every znode whose ACL is open to the world. Listen on 127.0.0.1 or a unix socket, \
     or with TLS (secure_listen, tls_cert), or have clients authenticate (require_auth = \"sasl\"); \
     where the network keeps strangers away, insecure = true (baton serve --insecure) permits it";
const HTTP_REMEDY: &str = "must not be open to other machines without authentication: whoever reaches it would read \
     paths, addresses and session ids. Listen on 127.0.0.1, or have callers show a token \
     (http_token_file), better with TLS (https, tls_cert); where the network keeps strangers away, \
     insecure = true (baton serve --insecure) permits it";

impl Options {
    /// Every address and socket where nobody has to prove who they are, though others than this
    /// user reach it.
    #[must_use]
    pub fn openings(&self) -> Vec<Opening> {
        let mut openings = Vec::new();
        let mut add = |setting, places: &[String], who, remedy| {
            let places = places.iter().filter(|place| is_reached_by_others(place));
            openings.extend(places.map(|place| Opening {
                setting,
                place: place.clone(),
                who,
                remedy,
            }));
        };
        let clients_prove = self.clients_prove_who_they_are();
        if !clients_prove {
            add("listen", &self.listen, PLAIN, Some(LISTEN_REMEDY));
        }
        let tls = self.tls.as_ref();
        if !clients_prove && tls.is_some_and(|tls| tls.client_auth != ClientAuth::Required) {
            let who = "every machine that reaches it, with encryption and without authentication";
            add("secure_listen", &self.secure_listen, who, None);
        }
        if self.http_token_file.is_none() {
            add("http", &self.http, PLAIN, Some(HTTP_REMEDY));
        }
        let ensemble = self.ensemble.as_ref();
        let plain_peers = ensemble.filter(|of| of.allow_plain_peers && of.has_plain_peers());
        if let Some(ensemble) = plain_peers {
            let own = ensemble.servers.get(&u64::from(self.server_id));
            let place = ensemble.listen.as_ref().or(own);
            let place = place.filter(|place| is_reached_by_others(place));
            openings.extend(place.map(|place| Opening {
                setting: "ensemble.allow_plain_peers",
                place: place.clone(),
                who: PLAIN,
                remedy: None,
            }));
        }
        if self.unix_socket_mode & 0o002 != 0 {
            let places = self.unix_sockets.iter();
            openings.extend(places.map(|path| Opening {
                setting: "unix_socket",
                place: path.display().to_string(),
                who: "every user of this machine",
                remedy: None,
            }));
        }
        openings
    }

    /// Refuses addresses that are open though nobody has said that they are meant to be.
    ///
    /// # Errors
    /// [`StartError::Setting`] names the setting and what to do.
    pub fn check_exposure(&self) -> Result<(), StartError> {
        if self.insecure {
            return Ok(());
        }
        let refused = self
            .openings()
            .into_iter()
            .find_map(|opening| Some((opening.setting, opening.remedy?)));
        match refused {
            Some((setting, remedy)) => Err(StartError::Setting { setting, remedy }),
            None => Ok(()),
        }
    }

    /// Whether every client has to prove who it is before it may ask for anything. With `digest`, a
    /// client may name any user with any password, so that is no proof.
    fn clients_prove_who_they_are(&self) -> bool {
        let mut required = self.required_schemes.iter();
        !self.required_schemes.is_empty() && required.all(|scheme| scheme == "sasl")
    }
}

/// Whether other machines reach `HOST:PORT`. What is no address is refused where it is used.
fn is_reached_by_others(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or("", |(host, _)| host);
    let inside = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = inside.unwrap_or(host);
    !host.is_empty() && !is_loopback_host(host)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use baton_tls::Files;

    use super::*;
    use crate::options::ServerTlsOptions;
    use crate::sasl_users::SaslUsers;

    #[test]
    fn a_name_may_mean_any_machine_and_loopback_is_this_one() {
        for (address, reached) in [
            ("127.0.0.1:2181", false),
            ("127.8.0.1:0", false),
            ("[::1]:2181", false),
            ("[::ffff:127.0.0.1]:2181", false),
            ("localhost:2181", false),
            ("LOCALHOST:0", false),
            ("*:2181", true),
            ("0.0.0.0:0", true),
            ("[::]:2181", true),
            ("10.0.0.1:2181", true),
            ("zk1:2181", true),
            ("127.0.0.1.example:2181", true),
            ("localhost.example:2181", true),
            // No address at all.
            ("2181", false),
            (":2181", false),
        ] {
            assert_eq!(is_reached_by_others(address), reached, "{address}");
        }
    }

    fn of(setting: &str, place: &str) -> Options {
        let places = vec![place.to_owned()];
        let mut options = Options::default();
        match setting {
            "listen" => options.listen = places,
            "http" => options.http = places,
            "secure_listen" => options.secure_listen = places,
            "https" => options.https = places,
            _ => options.unix_sockets = vec![PathBuf::from(place)],
        }
        options.tls = Some(ServerTlsOptions::new(Files {
            certificates: PathBuf::new(),
            key: PathBuf::new(),
            authorities: None,
        }));
        options
    }

    #[test]
    fn what_is_open_and_not_encrypted_stops_the_start_unless_that_is_meant() {
        for setting in ["listen", "http"] {
            let mut options = of(setting, "0.0.0.0:1");
            let refused = options.check_exposure().unwrap_err().to_string();
            assert!(
                refused.contains(&format!("setting {setting} ")) && refused.contains("--insecure"),
                "{refused}"
            );
            options.insecure = true;
            options.check_exposure().unwrap();
            let [opening] = &options.openings()[..] else {
                panic!("{setting}");
            };
            assert!(opening.needs_insecure());
            assert!(
                opening
                    .to_string()
                    .starts_with("0.0.0.0:1 to every machine")
            );
            of(setting, "127.0.0.1:1").check_exposure().unwrap();
        }
        // They are named, and do not stop the start.
        for (setting, place) in [("secure_listen", "*:1"), ("unix_socket", "/run/s")] {
            let mut options = of(setting, place);
            options.unix_socket_mode = 0o666;
            options.check_exposure().unwrap();
            assert_eq!(options.openings().len(), 1, "{setting}");
        }
        assert_eq!(of("https", "*:1").openings(), []);
        assert_eq!(of("unix_socket", "/run/s").openings(), []);
    }

    #[test]
    fn who_has_to_prove_who_they_are_may_come_from_anywhere() {
        let mut options = of("listen", "*:1");
        options.sasl_users = SaslUsers::from_iter([("bob".to_owned(), "secret".to_owned())]);
        for (schemes, is_open) in [
            (&["sasl"][..], false),
            (&["digest"], true),
            (&["sasl", "digest"], true),
            (&[], true),
        ] {
            options.required_schemes = schemes.iter().map(|&scheme| scheme.to_owned()).collect();
            assert_eq!(options.check_exposure().is_err(), is_open, "{schemes:?}");
        }
        let mut options = of("http", "*:1");
        options.http_token_file = Some(PathBuf::from("tokens"));
        options.check_exposure().unwrap();
        let mut options = of("secure_listen", "*:1");
        options.tls.as_mut().unwrap().client_auth = ClientAuth::Required;
        assert_eq!(options.openings(), []);
    }
}
