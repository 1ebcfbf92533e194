//! The keys of a zoo.cfg that have no setting here, and what Baton does instead. Also the units in
//! which a zoo.cfg writes values.

use baton_server::{CHANGING_WORDS, HARMLESS_WORDS};

/// Unit of a value in a zoo.cfg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A number of milliseconds; a negative one is the default.
    Milliseconds,
    /// The same, but at least 1.
    Timeout,
    /// A number; a negative one is the default.
    Count,
    /// A number of KiB; none or a negative one is the default.
    Kibibytes,
    /// A number between these two: another one becomes the nearest of them. A negative one is the
    /// default.
    Within(u64, u64),
    /// Text as it is.
    Text,
    /// A folder of ZooKeeper's, in which Baton makes its own.
    Folder,
    /// Four-letter words with commas between them.
    Words,
    /// `true`, which means this value; everything else means the default.
    TrueIs(&'static str),
}

impl Unit {
    /// The values as `baton.toml` would have them; none for "the default". `refuse` gets what is
    /// not taken as it is, and why.
    ///
    /// # Errors
    /// The value is not of this unit.
    pub(super) fn read(
        self,
        value: &str,
        refuse: &mut impl FnMut(&str, &'static str),
    ) -> Result<Option<Vec<String>>, String> {
        let number = || {
            // Java reads some of them as hexadecimal.
            match value.strip_prefix("0x") {
                Some(digits) => i64::from_str_radix(digits, 16),
                None => value.parse(),
            }
            .map_err(|_| format!("'{value}' is not a number; correct it"))
            .map(|number| u64::try_from(number).ok())
        };
        let one = |text: String| Some(vec![text]);
        Ok(match self {
            Self::Milliseconds => number()?.and_then(|millis| one(format!("{millis}ms"))),
            Self::Timeout => number()?.and_then(|millis| {
                if millis == 0 {
                    refuse(value, NEAREST);
                }
                one(format!("{}ms", millis.max(1)))
            }),
            Self::Count => number()?.and_then(|count| one(count.to_string())),
            Self::Within(least, most) => number()?.and_then(|count| {
                let possible = count.clamp(least, most);
                if possible != count {
                    refuse(value, NEAREST);
                }
                one(possible.to_string())
            }),
            Self::Kibibytes => number()?
                .filter(|kib| *kib > 0)
                .and_then(|kib| one(kib.saturating_mul(1024).to_string())),
            Self::TrueIs(means) => {
                let is_true = value.eq_ignore_ascii_case("true");
                is_true.then(|| vec![means.to_owned()])
            }
            Self::Text => one(value.to_owned()),
            Self::Folder => one(format!("{}/baton", value.trim_end_matches('/'))),
            Self::Words => {
                let words = value.split(',').map(str::trim);
                let (known, unknown): (Vec<&str>, Vec<&str>) =
                    words.filter(|word| !word.is_empty()).partition(|word| {
                        *word == "*"
                            || HARMLESS_WORDS.contains(word)
                            || CHANGING_WORDS.contains(word)
                    });
                for word in unknown {
                    refuse(word, NO_SUCH_WORD);
                }
                Some(known.into_iter().map(str::to_owned).collect())
            }
        })
    }
}

/// Keys that have no setting here.
pub(crate) struct UnsupportedKeys {
    /// The keys with spaces between them; one that ends with a dot or an underscore means every key
    /// with this prefix.
    pub(super) keys: &'static str,
    /// Value that asks for what Baton does anyway: it needs no warning.
    pub(super) agreeing: Option<&'static str>,
    /// Baton's substitute.
    pub(super) instead: &'static str,
}

/// Reason why a key that is in no list is not followed.
pub(super) const UNKNOWN: &str = "unknown";
/// Reason why a four-letter word is not answered.
pub(super) const NO_SUCH_WORD: &str = "no such word here";
/// Reason why a number is not taken as it is.
pub(super) const NEAREST: &str = "the nearest value that is possible is taken";
/// Reason why the address in a single server's line has no effect.
pub(super) const ALONE: &str = "a server alone has no ensemble";

/// The same in an ensemble.
pub(super) const TOGETHER: &str =
    "servers agree in Baton's own way: one vote each, times by ensemble.tick";

macro_rules! unsupported {
    (@agreeing) => { None };
    (@agreeing $value:literal) => { Some($value) };
    ($($keys:literal $(unless $agreeing:literal)?: $instead:expr;)*) => {
        &[$(UnsupportedKeys {
            keys: $keys,
            agreeing: unsupported!(@agreeing $($agreeing)?),
            instead: $instead,
        },)*]
    };
}

/// All keys of ZooKeeper's that are known and have no setting; unless the value asks for what Baton
/// does anyway; Baton's substitute.
pub(crate) static WITHOUT: &[UnsupportedKeys] = unsupported! {
    "initLimit syncLimit connectToLearnerMasterLimit group. weight. peerType \
     oraclePath electionAlg electionPortBindRetry leaderServes quorumListenOnAllIPs \
     quorum.cnxn.threads.size cnxTimeout commitLogCount": ALONE;
    "standaloneEnabled" unless "true": ALONE;
    "reconfigEnabled" unless "false": "reconfig is refused";
    "dataLogDir": "the log is in the data folder";
    "autopurge. snapshot.retain.": "files that a newer snapshot covers are always removed";
    "preAllocSize txnLogSizeLimitInKb fsync.warningthresholdms":
        "the log's files are allocated in its own way";
    "forceSync" unless "yes": "every write is on disk before it is answered";
    "flushDelay maxWriteQueuePollTime maxBatchSize": "writes that arrive during a sync are the next batch";
    "globalOutstandingLimit": "requests are bounded by max_queued_bytes";
    "largeRequestMaxBytes largeRequestThreshold request_throttle_max_requests \
     requestThrottleLimit requestThrottleStallTime requestThrottleDropStale \
     throttledOpWaitTime":
        "requests wait in their sockets, bounded by max_requests_in_flight and max_queued_bytes";
    "connectionMaxTokens connectionTokenFillTime connectionTokenFillCount \
     connectionFreezeTime connectionDropIncrease connectionDropDecrease \
     connectionDecreaseRatio connection_throttle_": "connections are bounded by their number";
    "maxResponseCacheSize maxGetChildrenResponseCacheSize": "replies are not cached";
    "clientPortListenBacklog" unless "-1": "the backlog is fixed";
    "tcpKeepAlive clientTcpKeepAlive": "sessions find out that a peer is gone";
    "X509AuthenticationProvider. letAnySaslUserDoX":
        "superusers are named by super_digest, tls_super_subject and sasl_super_users only";
    "SASLAuthenticationProvider.": "the password of every user is in the file of sasl_users";
    "requireClientAuthScheme jaasLoginRenew":
        "ZooKeeper does not read it either; require_auth says who has to authenticate";
    "allowSaslFailedClients" unless "false": "a client that asks for SASL is closed";
    "enableEagerACLCheck": "ACLs are checked when a request is applied";
    "skipACL" unless "no": "ACLs are checked";
    "enforceQuota" unless "true": "hard quotas are always enforced";
    "localSessionsEnabled localSessionsUpgradingEnabled" unless "false":
        "every session is a global one";
    "readonlymode.enabled" unless "false": "a server that stands alone has no read-only mode";
    "extendedTypesEnabled" unless "true": "TTL znodes are always there";
    "znode.container.maxPerMinute": "all that are due are removed";
    "digest.enabled" unless "true": "the state's digest is always kept";
    "snapshot.compression.method compressed.snapshot. snapshot.trust.empty":
        "snapshots are Baton's own";
    "watchManagerName watcherCleanThreadsNum": "there is one kind of watch table";
    "serverCnxnFactory nio. netty.": "there is one kind of network code";
    "admin. metricsProvider." unless "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider":
        "HTTP is plain and has one set of paths on all its ports";
    "audit.": "the audit record has one writer; audit says where it goes";
};

/// Returns what Baton does instead of what this key asks for, if that differs.
pub(super) fn instead(key: &str, value: &str) -> Option<&'static str> {
    let names_it =
        |known: &str| key == known || known.ends_with(['.', '_']) && key.starts_with(known);
    let found = WITHOUT.iter().find(|row| row.keys.split(' ').any(names_it));
    match found {
        None => Some(UNKNOWN),
        Some(row) => {
            let agrees = |agreeing: &str| agreeing.eq_ignore_ascii_case(value);
            (!row.agreeing.is_some_and(agrees)).then_some(row.instead)
        }
    }
}
