//! Open addresses of a server: who reaches them may use the server without proving who they are.
//! Owns the rule by which such an address stops the start.

use std::fmt;
use std::net::IpAddr;

use baton_tls::ClientAuth;

use crate::error::StartError;
use crate::options::{DEFAULT_WORDS, Options, is_loopback_host};

/// An address or a socket where nobody has to prove who they are, though others than this user
/// reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// The setting that names it.
    pub setting: &'static str,
    /// The address or the path.
    pub place: String,
    /// Reach of the address, and what is missing.
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

const LOCAL_USERS: &str = "every user of this machine";
const LOCAL_USERS_OF_TCP: &str = "every user of this machine, without authentication";
const LOCAL_READERS: &str =
    "every user of this machine, who reads paths, addresses and session ids without authentication";
const WORDS: &str = "every machine that reaches it, for four-letter words that list sessions or paths, or reset counters";
const PLAIN: &str = "every machine that reaches it, without encryption and authentication";
const LISTEN_REMEDY: &str = "must not be open to other machines without TLS or authentication: any host that reaches it would \
     read and change every znode whose ACL is open to the world. Listen on 127.0.0.1 or a unix socket, \
     or with TLS (secure_listen, tls_cert), or have clients authenticate (require_auth = \"sasl\", or \
     \"x509\" with port_unification); where the network keeps strangers away, insecure = true \
     (baton serve --insecure) permits it";
const HTTP_REMEDY: &str = "must not be open to other machines without authentication: any host that reaches it would read \
     paths, addresses and session ids. Listen on 127.0.0.1, or have callers show a token \
     (http_token_file), better with TLS (https, tls_cert); where the network keeps strangers away, \
     insecure = true (baton serve --insecure) permits it";

impl Options {
    /// Every address and socket where nobody has to prove who they are, though others than this
    /// user reach it.
    #[must_use]
    pub fn openings(&self) -> Vec<Opening> {
        let mut openings = Vec::new();
        let mut add = |setting, places: &[String], is_meant: fn(&str) -> bool, who, remedy| {
            let places = places.iter().filter(|place| is_meant(place));
            openings.extend(places.map(|place| Opening {
                setting,
                place: place.clone(),
                who,
                remedy,
            }));
        };
        let others = is_reached_by_others;
        let tls = self.tls.as_ref();
        let shows_certificate = tls.is_some_and(|tls| tls.client_auth == ClientAuth::Required);
        if !self.clients_prove_who_they_are() {
            add("listen", &self.listen, others, PLAIN, Some(LISTEN_REMEDY));
            add(
                "listen",
                &self.listen,
                is_of_this_machine,
                LOCAL_USERS_OF_TCP,
                None,
            );
            if !shows_certificate {
                let who =
                    "every machine that reaches it, with encryption and without authentication";
                add("secure_listen", &self.secure_listen, others, who, None);
            }
        } else if self.has_telling_words() {
            // A word comes in the place of a session, so nothing is proved before it.
            add("four_letter_words", &self.listen, others, WORDS, None);
            if !shows_certificate {
                add(
                    "four_letter_words",
                    &self.secure_listen,
                    others,
                    WORDS,
                    None,
                );
            }
        }
        // A caller from a loopback address reads without credentials.
        let mut local_readers: fn(&str) -> bool = is_reached_by_local_users;
        if self.http_token_file.is_none() {
            add("http", &self.http, others, PLAIN, Some(HTTP_REMEDY));
            local_readers = is_of_this_machine;
        }
        add("http", &self.http, local_readers, LOCAL_READERS, None);
        add(
            "https",
            &self.https,
            is_reached_by_local_users,
            LOCAL_READERS,
            None,
        );
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
                who: LOCAL_USERS,
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

    /// Whether a client that shows nothing is served, on this machine or elsewhere: it reads and
    /// changes what the ACLs leave open to everybody.
    pub(crate) fn serves_strangers(&self, on_this_machine: bool) -> bool {
        if !self.required_schemes.is_empty() {
            return false;
        }
        let reaches = |place: &String| on_this_machine || is_reached_by_others(place);
        let tls = self.tls.as_ref();
        let shows_certificate = tls.is_some_and(|tls| tls.client_auth == ClientAuth::Required);
        let is_open_socket = !self.unix_sockets.is_empty() && self.unix_socket_mode & 0o002 != 0;
        self.listen.iter().any(reaches)
            || !shows_certificate && self.secure_listen.iter().any(reaches)
            || on_this_machine && is_open_socket
    }

    /// Whether every client has to prove who it is before it may ask for anything. One of the
    /// required schemes is enough for a client, so each has to be a proof. With `digest`, a client
    /// may name any user with any password, so it is not one.
    fn clients_prove_who_they_are(&self) -> bool {
        let mut required = self.required_schemes.iter();
        !self.required_schemes.is_empty()
            && required.all(|scheme| matches!(scheme.as_str(), "sasl" | "x509"))
    }

    /// Whether a four-letter word is answered that shows more than the server's own state, or
    /// changes something.
    fn has_telling_words(&self) -> bool {
        let words = self.four_letter_words.iter();
        words
            .map(String::as_str)
            .any(|word| !DEFAULT_WORDS.contains(&word))
    }
}

/// Whether other machines reach `HOST:PORT`. What is not an address is refused where it is used.
fn is_reached_by_others(address: &str) -> bool {
    let host = host_of(address);
    !host.is_empty() && !is_loopback_host(host)
}

/// Whether only this machine reaches `HOST:PORT`, with all its users.
fn is_of_this_machine(address: &str) -> bool {
    is_loopback_host(host_of(address))
}

/// Whether the users of this machine reach `HOST:PORT` by an address of loopback.
fn is_reached_by_local_users(address: &str) -> bool {
    let host = host_of(address);
    let is_every = host == "*" || host.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified());
    is_every || is_loopback_host(host)
}

fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or("", |(host, _)| host);
    let inside = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inside.unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use baton_tls::Files;

    use super::*;
    use crate::options::ServerTlsOptions;
    use crate::options::sasl_users::SaslUsers;

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
            assert!(!(reached && is_of_this_machine(address)), "{address}");
        }
        for (address, reached) in [
            ("127.0.0.1:1", true),
            ("[::]:1", true),
            ("0.0.0.0:1", true),
            ("*:1", true),
            ("localhost:1", true),
            ("10.0.0.1:1", false),
            ("zk1:1", false),
            (":1", false),
        ] {
            assert_eq!(is_reached_by_local_users(address), reached, "{address}");
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
            revocation_lists: None,
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
            // The other users of this machine are named, and nothing more.
            let local = of(setting, "127.0.0.1:1");
            local.check_exposure().unwrap();
            let [opening] = &local.openings()[..] else {
                panic!("{setting}");
            };
            assert!(opening.to_string().contains("every user of this machine"));
        }
        // They are named, and do not stop the start.
        for (setting, place) in [("secure_listen", "*:1"), ("unix_socket", "/run/s")] {
            let mut options = of(setting, place);
            options.unix_socket_mode = 0o666;
            options.check_exposure().unwrap();
            assert_eq!(options.openings().len(), 1, "{setting}");
        }
        assert_eq!(of("https", "10.0.0.1:1").openings(), []);
        assert_eq!(of("https", "*:1").openings().len(), 1);
        assert_eq!(of("unix_socket", "/run/s").openings(), []);
    }

    #[test]
    fn who_has_to_prove_who_they_are_may_come_from_anywhere() {
        let mut options = of("listen", "*:1");
        options.sasl_users = SaslUsers::from_iter([("bob".to_owned(), "secret".to_owned())]);
        for (schemes, is_open) in [
            (&["sasl"][..], false),
            (&["x509"], false),
            (&["sasl", "x509"], false),
            (&["digest"], true),
            (&["sasl", "digest"], true),
            (&["digest", "x509"], true),
            (&[], true),
        ] {
            options.required_schemes = schemes.iter().map(|&scheme| scheme.to_owned()).collect();
            assert_eq!(options.check_exposure().is_err(), is_open, "{schemes:?}");
            assert_eq!(options.openings().is_empty(), !is_open, "{schemes:?}");
        }
        let mut options = of("http", "*:1");
        options.http_token_file = Some(PathBuf::from("tokens"));
        options.check_exposure().unwrap();
        let local = options.openings();
        assert!(local.iter().all(|opening| !opening.needs_insecure()));
        assert_eq!(local.len(), 1, "those who ask from this machine");
        let mut options = of("secure_listen", "*:1");
        options.tls.as_mut().unwrap().client_auth = ClientAuth::Required;
        assert_eq!(options.openings(), []);
        options.tls.as_mut().unwrap().client_auth = ClientAuth::Optional;
        assert_eq!(options.openings().len(), 1);
        options.required_schemes = vec!["x509".to_owned()];
        assert_eq!(options.openings(), []);
    }

    #[test]
    fn words_that_tell_of_others_are_named_where_a_session_needs_a_proof() {
        for (words, is_named) in [
            (&["ruok", "mntr"][..], false),
            (&["*"], true),
            (&["srst"], true),
        ] {
            let mut options = of("listen", "*:1");
            options.four_letter_words = words.iter().map(|&word| word.to_owned()).collect();
            options.required_schemes = vec!["x509".to_owned()];
            options.check_exposure().unwrap();
            let openings = options.openings();
            let named = openings
                .iter()
                .any(|opening| opening.setting == "four_letter_words");
            assert_eq!((named, openings.len()), (is_named, usize::from(is_named)));
            // Behind a required certificate nobody reaches them without one.
            options.secure_listen = std::mem::take(&mut options.listen);
            options.tls.as_mut().unwrap().client_auth = ClientAuth::Required;
            assert_eq!(options.openings(), []);
        }
    }
}
