//! The keys of a zoo.cfg about who clients are: SASL (`authProvider.…`, the JAAS file), who has to
//! authenticate (`enforce.auth.…`), the superuser of SASL. What Baton does not have of it is in
//! `protections`.

use std::collections::BTreeMap;

use super::SettingValue;

const PROVIDER: &str = "authProvider.";
const SASL_PROVIDER: &str = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
/// A property of Java, which people write into the file as well.
const JAAS: &str = "java.security.auth.login.config";
const ENFORCED: &str = "enforce.auth.enabled";
const SCHEMES: &str = "enforce.auth.schemes";
/// The older form of the same, for SASL alone. It outweighs the other, as in ZooKeeper.
const SASL_REQUIRED: &str = "sessionRequireClientSASLAuth";
const SUPER_USER: &str = "superUser";

const NOT_ENFORCED: &str = "enforce.auth.enabled is not true, so clients need not authenticate";
const OUTWEIGHED: &str = "sessionRequireClientSASLAuth requires SASL";
const NO_SASL: &str = "nobody authenticates by SASL";

/// The keys of the file: value and origin of each.
#[derive(Default)]
pub(super) struct ZooAuth {
    seen: BTreeMap<String, (String, String)>,
}

/// The result.
#[derive(Default)]
pub(super) struct AuthGiven {
    pub(super) given: Vec<SettingValue>,
    /// Keys without effect, and why.
    pub(super) instead: Vec<(String, &'static str)>,
    /// Origin of the request for SASL.
    pub(super) sasl: Option<String>,
}

impl ZooAuth {
    /// Whether the key is about who clients are. ZooKeeper puts the prefix there itself; who writes
    /// it means the same.
    pub(super) fn take(&mut self, key: &str, value: &str, origin: &str) -> bool {
        let key = key.strip_prefix("zookeeper.").unwrap_or(key);
        let is_ours = [JAAS, ENFORCED, SCHEMES, SASL_REQUIRED].contains(&key)
            || is_super_user(key)
            || key.starts_with(PROVIDER) && value == SASL_PROVIDER;
        if is_ours {
            let seen = (value.to_owned(), origin.to_owned());
            self.seen.insert(key.to_owned(), seen);
        } else if key.starts_with(PROVIDER) {
            // The last line with a key counts.
            self.seen.remove(key);
        }
        is_ours
    }

    /// The settings.
    ///
    /// # Errors
    /// One line that names the place, the key and the remedy.
    pub(super) fn settle(&self) -> Result<AuthGiven, String> {
        let mut out = AuthGiven::default();
        let providers = self.seen.iter();
        let mut providers = providers.filter(|(key, _)| key.starts_with(PROVIDER));
        out.sasl = providers.next().map(|(_, (_, origin))| origin.clone());
        if let Some((file, origin)) = self.text(JAAS) {
            out.give("sasl_users", vec![file.to_owned()], origin);
            out.sasl.get_or_insert(origin.to_owned());
        }
        if let Some(origin) = self.is_on(SASL_REQUIRED) {
            out.give("require_auth", vec!["sasl".to_owned()], origin);
            out.sasl.get_or_insert(origin.to_owned());
            if self.is_on(ENFORCED).is_some() {
                out.instead.push((ENFORCED.to_owned(), OUTWEIGHED));
            }
        } else if let Some(origin) = self.is_on(ENFORCED) {
            let (schemes, at) = self.text(SCHEMES).ok_or_else(|| {
                format!("{origin}: no scheme is named; add {SCHEMES}=sasl, or remove this line")
            })?;
            let schemes: Vec<_> = schemes.split(',').map(str::trim).collect();
            if schemes.contains(&"sasl") {
                out.sasl.get_or_insert(at.to_owned());
            }
            let schemes = schemes.into_iter().map(str::to_owned).collect();
            out.give("require_auth", schemes, at);
        } else if self.text(SCHEMES).is_some() {
            out.instead.push((SCHEMES.to_owned(), NOT_ENFORCED));
        }
        let named = self.seen.iter().filter(|(key, _)| is_super_user(key));
        let named: Vec<_> = named.filter(|(_, (user, _))| !user.is_empty()).collect();
        if out.sasl.is_none() {
            let keys = named.iter().map(|(key, _)| ((*key).clone(), NO_SASL));
            out.instead.extend(keys);
        } else if !named.is_empty() {
            let origins: Vec<_> = named.iter().map(|(_, (_, origin))| &**origin).collect();
            let users = named.iter().map(|(_, (user, _))| user.clone()).collect();
            out.give("sasl_super_users", users, &origins.join(", "));
        }
        Ok(out)
    }

    /// A value that is not empty, and its origin.
    fn text(&self, key: &str) -> Option<(&str, &str)> {
        let (value, origin) = self.seen.get(key)?;
        (!value.is_empty()).then_some((value, origin))
    }

    /// Returns the origin of a switch that is on.
    fn is_on(&self, key: &str) -> Option<&str> {
        let (value, origin) = self.text(key)?;
        value.eq_ignore_ascii_case("true").then_some(origin)
    }
}

/// Whether the key names a superuser of SASL: `superUser`, or one of several, `superUser.1`.
fn is_super_user(key: &str) -> bool {
    key.strip_prefix(SUPER_USER)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl AuthGiven {
    fn give(&mut self, setting: &'static str, values: Vec<String>, origin: &str) {
        self.given.push(SettingValue {
            setting,
            values,
            origin: origin.to_owned(),
        });
    }
}
