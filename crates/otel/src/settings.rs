//! The variables of the environment that configure an exporter: those of the OpenTelemetry
//! specification, with its defaults. What it names otherwise is read by the SDK itself: sampler,
//! resource, limits of a span; endpoint, headers and timeout of the exporter.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Uri};

/// Settings that this crate reads by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The most spans that wait to be exported.
    pub queue: usize,
    /// The most spans of one export.
    pub batch: usize,
    /// Time that a span waits for others.
    pub delay: Duration,
    /// Limit on one export.
    pub timeout: Duration,
    /// Destination of traces.
    pub endpoint: String,
    /// The file of the authorities that sign the collector's certificate.
    pub certificate: Option<String>,
}

impl Settings {
    /// The settings that the variables say which `read` reads.
    ///
    /// # Errors
    /// A variable whose value cannot be used: which, and why.
    pub(crate) fn from(read: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let read = |name: &str| {
            let value = read(name)?;
            let value = value.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        // The variable of traces outweighs that of all signals.
        let of_traces = |rest: &str| {
            let own = format!("OTEL_EXPORTER_OTLP_TRACES_{rest}");
            let all = format!("OTEL_EXPORTER_OTLP_{rest}");
            [own, all]
                .into_iter()
                .find_map(|name| read(&name).map(|value| (name, value)))
        };
        let number = |name: &str, default: u64| match read(name) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(format!("{name}: {text:?} is not a number above 0")),
            },
        };
        if let Some((name, protocol)) = of_traces("PROTOCOL")
            && protocol != "http/protobuf"
        {
            return Err(format!(
                "{name}: this build exports by http/protobuf alone, not by {protocol:?}; use that, at the collector's port for \
                 it (usually 4318)"
            ));
        }
        if let Some((name, compression)) = of_traces("COMPRESSION")
            && compression != "none"
        {
            return Err(format!(
                "{name}: this build does not compress, so not by {compression:?}; leave it out"
            ));
        }
        let timeout = match of_traces("TIMEOUT") {
            None => 10_000,
            Some((name, _)) => number(&name, 0)?,
        };
        let certificate = of_traces("CERTIFICATE").map(|(_, file)| file);
        let (name, mut endpoint) = of_traces("ENDPOINT").unwrap_or_else(|| {
            let default = "http://localhost:4318".to_owned();
            ("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), default)
        });
        let is_secure = endpoint.starts_with("https://");
        // Whatever the exporter would say of it has all of it, its password too.
        if !is_url(&endpoint) || (!is_secure && !endpoint.starts_with("http://")) {
            return Err(format!(
                "{name}: {:?} is not a URL; write http://HOST:4318",
                without_secrets(&endpoint)
            ));
        }
        if is_secure && certificate.is_none() {
            return Err(format!(
                "{name}: {} needs the file of the authorities that sign the collector's certificate; name it in \
                 OTEL_EXPORTER_OTLP_CERTIFICATE",
                without_secrets(&endpoint)
            ));
        }
        if !name.contains("_TRACES_") {
            endpoint = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        }
        if let Some((name, headers)) = of_traces("HEADERS") {
            check_headers(&name, &headers)?;
        }
        if let Some(sampler) = read("OTEL_TRACES_SAMPLER")
            && !SAMPLERS.contains(&&*sampler)
        {
            return Err(format!(
                "OTEL_TRACES_SAMPLER: {sampler:?} is not one of {}",
                SAMPLERS.join(", ")
            ));
        }
        if let Some(share) = read("OTEL_TRACES_SAMPLER_ARG")
            && read("OTEL_TRACES_SAMPLER").is_some_and(|sampler| sampler.ends_with("ratio"))
            && !share
                .parse()
                .is_ok_and(|share| (0.0..=1.0).contains(&share))
        {
            return Err(format!(
                "OTEL_TRACES_SAMPLER_ARG: {share:?} is not a number from 0 to 1"
            ));
        }
        let queue = number("OTEL_BSP_MAX_QUEUE_SIZE", 2048)?;
        let batch = number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?;
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Self {
            queue: size(queue.min(MOST_QUEUED)),
            batch: size(batch.min(queue).min(MOST_QUEUED)),
            delay: Duration::from_millis(number("OTEL_BSP_SCHEDULE_DELAY", 5000)?),
            timeout: Duration::from_millis(timeout),
            endpoint,
            certificate,
        })
    }
}

/// Returns whether a text is a URL that names a host.
fn is_url(text: &str) -> bool {
    let url = text.parse::<Uri>();
    url.is_ok_and(|url| url.host().is_some_and(|host| !host.is_empty()))
}

/// A URL as it may be shown: without what precedes an @, and without its query.
fn without_secrets(url: &str) -> String {
    let (before, shown) = match url.rsplit_once('@') {
        Some((_, host)) => ("…@", host),
        None => ("", url),
    };
    let (shown, behind) = match shown.split_once(['?', '#']) {
        Some((shown, _)) => (shown, "?…"),
        None => (shown, ""),
    };
    format!("{before}{shown}{behind}")
}

/// Refuses headers that the exporter would leave out without a word. What is in them is not shown.
fn check_headers(name: &str, headers: &str) -> Result<(), String> {
    let parts = headers.split(',').map(str::trim);
    for (place, part) in (1..).zip(parts.filter(|part| !part.is_empty())) {
        let header = part.split_once('=');
        let header = header.map(|(name, value)| (name.trim(), value.trim()));
        let is_header = header.is_some_and(|(name, value)| {
            name.parse::<HeaderName>().is_ok() && HeaderValue::from_str(value).is_ok()
        });
        if !is_header {
            return Err(format!(
                "{name}: its header number {place} is not NAME=VALUE; headers are separated by commas, and a comma of a \
                 value is written %2C"
            ));
        }
    }
    Ok(())
}

/// The samplers of the SDK.
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// More spans than this never wait, whatever is asked for: each takes about a kilobyte.
const MOST_QUEUED: u64 = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::from(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn without_variables_the_defaults_of_the_specification_count() {
        let settings = of(&[("OTEL_BSP_SCHEDULE_DELAY", " ")]).unwrap();
        assert_eq!((settings.queue, settings.batch), (2048, 512));
        assert_eq!(settings.delay, Duration::from_secs(5));
        assert_eq!(settings.timeout, Duration::from_secs(10));
        assert_eq!(settings.endpoint, "http://localhost:4318/v1/traces");
    }

    #[test]
    fn the_variable_of_traces_outweighs_that_of_all_signals() {
        let settings = of(&[
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "10"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318/"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.timeout, Duration::from_millis(250));
        assert_eq!(settings.endpoint, "http://all:4318/v1/traces");
        // That of traces is the whole URL.
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://own:4318/");
        assert_eq!(of(&[own]).unwrap().endpoint, own.1);
        // Never more at once than may wait.
        assert_eq!((settings.queue, settings.batch), (10, 10));
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        for (name, value, text) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf alone"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip", "compress"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "not a URL"),
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "https://a:4318",
                "OTEL_EXPORTER_OTLP_CERTIFICATE",
            ),
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "https://user:secret@a:4318",
                "…@a:4318",
            ),
            // What is wrong with it is not said by showing it.
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "http://user:the secret@a:4318",
                "…@a:4318",
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "https://a/v1/traces?key=secret",
                "https://a/v1/traces?…",
            ),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "not a URL"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://:4318", "not a URL"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "Authorization: Bearer secret",
                "number 1 is not NAME=VALUE",
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
                "a=b,,the key=secret",
                "number 2 is not NAME=VALUE",
            ),
            ("OTEL_TRACES_SAMPLER", "xray", "always_on"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1", "above 0"),
            ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0", "above 0"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "above 0"),
        ] {
            let error = of(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(name) && error.contains(text), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn headers_and_a_share_that_can_be_used_are_taken() {
        let headers = "Authorization=Bearer%20c2VjcmV0==, x-tenant = a ,";
        of(&[("OTEL_EXPORTER_OTLP_HEADERS", headers)]).unwrap();
        let sampler = ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
        of(&[sampler, ("OTEL_TRACES_SAMPLER_ARG", "0.25")]).unwrap();
        for share in ["25%", "1.5", "-1", "NaN"] {
            let share = ("OTEL_TRACES_SAMPLER_ARG", share);
            let error = of(&[sampler, share]).unwrap_err();
            assert!(error.contains("from 0 to 1"), "{error}");
            // Other samplers have no such argument.
            of(&[("OTEL_TRACES_SAMPLER", "always_on"), share]).unwrap();
        }
    }

    #[test]
    fn a29_no_setting_makes_the_queue_unbounded() {
        let settings = of(&[("OTEL_BSP_MAX_QUEUE_SIZE", "18446744073709551615")]).unwrap();
        assert_eq!(settings.queue, 1 << 17);
    }
}
