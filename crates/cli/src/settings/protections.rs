//! The keys of a zoo.cfg that ask for protection which Baton does not have. A file that has one of
//! them stops the start: a server that ignored it would serve everybody whom the file keeps out.

use std::collections::BTreeMap;

/// Keys that ask for one kind of protection.
pub(crate) struct Protection {
    /// The keys; one that ends with a dot means every key with this prefix.
    pub(crate) keys: &'static [&'static str],
    /// Values that ask for nothing.
    pub(crate) off: &'static [&'static str],
    /// The key among them, or beside them, that turns all of them off with one of the values `off`.
    pub(crate) switch: Option<&'static str>,
    /// The protection that Baton does not have.
    pub(crate) missing: &'static str,
}

const NO: &[&str] = &["false", "no", "none", "0"];

/// All such keys. The first row that has a key counts for it.
pub(crate) static PROTECTIONS: &[Protection] = &[
    Protection {
        keys: &["quorum.auth."],
        off: NO,
        switch: Some("quorum.auth.enableSasl"),
        missing: "servers authenticate each other by certificates (sslQuorum), not by SASL",
    },
    Protection {
        keys: &["fips-mode"],
        off: NO,
        switch: None,
        missing: "the cryptography is not one that FIPS has validated",
    },
    Protection {
        keys: &["authProvider."],
        off: &[
            "org.apache.zookeeper.server.auth.DigestAuthenticationProvider",
            "org.apache.zookeeper.server.auth.IPAuthenticationProvider",
            "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        ],
        switch: None,
        missing: "clients are known by ip, digest, x509 and SASL DIGEST-MD5 only",
    },
    Protection {
        keys: &["ensembleAuthName", "znodeGroupAcl."],
        off: NO,
        switch: None,
        missing: "clients are known by ip, digest, x509 and SASL DIGEST-MD5 only",
    },
    Protection {
        keys: &[
            "requireKerberosConfig",
            "kerberos.",
            "security.auth_to_local",
        ],
        off: NO,
        switch: None,
        missing: "there is no Kerberos; give clients users and passwords by sasl_users, or certificates",
    },
    Protection {
        keys: &["sasl."],
        off: &["Server", "false"],
        switch: None,
        missing: "users are those of the section Server of the JAAS file; rename the section",
    },
    Protection {
        keys: &["DigestAuthenticationProvider.enabled"],
        off: &["true"],
        switch: None,
        missing: "digest credentials are always accepted",
    },
    Protection {
        keys: &["DigestAuthenticationProvider.digestAlg"],
        off: &["SHA1", "SHA-1"],
        switch: None,
        missing: "digests are SHA1",
    },
    Protection {
        keys: &[
            "admin.needClientAuth",
            "admin.forceHttps",
            "admin.portUnification",
        ],
        off: NO,
        switch: Some("admin.enableServer"),
        missing: "a zoo.cfg's HTTP has no TLS and no authentication; https gives it TLS",
    },
    Protection {
        keys: &[
            "metricsProvider.httpsPort",
            "metricsProvider.ssl.",
            "metricsProvider.needClientAuth",
            "metricsProvider.wantClientAuth",
        ],
        off: NO,
        switch: None,
        missing: "a zoo.cfg's HTTP has no TLS and no authentication; https gives it TLS",
    },
];

fn row_of(key: &str) -> Option<&'static Protection> {
    PROTECTIONS.iter().find(|row| {
        row.keys
            .iter()
            .any(|known| key == *known || known.ends_with('.') && key.starts_with(known))
    })
}

fn is_off(row: &Protection, value: &str) -> bool {
    value.is_empty() || row.off.iter().any(|off| off.eq_ignore_ascii_case(value))
}

/// Every line of a file that may ask for protection, or turn it off. The last line with a key
/// counts.
#[derive(Debug, Default)]
pub(super) struct ProtectionLines {
    /// The value and the place (`zoo.cfg:7`) by key.
    seen: BTreeMap<String, (String, String)>,
}

impl ProtectionLines {
    /// Takes a line. `true`: its key belongs to [`PROTECTIONS`], and nothing else is to be said of
    /// it.
    pub(super) fn take(&mut self, key: &str, value: &str, place: String) -> bool {
        // ZooKeeper puts the prefix there itself; who writes it means the same.
        let key = key.strip_prefix("zookeeper.").unwrap_or(key);
        let protects = row_of(key).is_some();
        if protects || PROTECTIONS.iter().any(|row| row.switch == Some(key)) {
            let seen = (value.to_owned(), place);
            self.seen.insert(key.to_owned(), seen);
        }
        protects
    }

    /// The keys that a switch of the file turns off: they have no effect here, as in ZooKeeper.
    pub(super) fn switched_off(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.seen.iter().filter_map(|(key, (value, _))| {
            let row = row_of(key).filter(|row| !is_off(row, value))?;
            self.turns_off(row).then_some((key.as_str(), row.missing))
        })
    }

    fn turns_off(&self, row: &Protection) -> bool {
        row.switch
            .and_then(|switch| self.seen.get(switch))
            .is_some_and(|(value, _)| is_off(row, value))
    }

    /// Whether the file can be served.
    ///
    /// # Errors
    /// One line that names every key that asks for protection with its place, what is missing, and
    /// what to do. Never a value: some are passwords.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
        for (key, (value, place)) in &self.seen {
            let Some(row) = row_of(key).filter(|row| !is_off(row, value) && !self.turns_off(row))
            else {
                continue;
            };
            let named = format!("{place} {key}");
            match groups
                .iter_mut()
                .find(|(missing, _)| *missing == row.missing)
            {
                Some((_, keys)) => keys.push(named),
                None => groups.push((row.missing, vec![named])),
            }
        }
        if groups.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = groups
            .iter()
            .map(|(missing, keys)| format!("{} ({missing})", keys.join(", ")))
            .collect();
        Err(format!(
            "the file asks for protection that baton serve does not have: {}; protect the ports by other means (an address that \
             only trusted hosts reach, a TLS proxy, ACLs), then remove these lines",
            groups.join("; ")
        ))
    }
}
