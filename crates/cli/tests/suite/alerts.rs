//! The alert rules and the dashboard of `packaging/`: every metric that they name is on a page of a
//! server, and every alert has a story in which it fires. `cargo xtask interop --only alerts` runs
//! the stories, and the rules on a server.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use serde_json::Value;

use crate::common::{CommandHome, RunningCommand};

fn packaging(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("../../packaging").join(name)).unwrap()
}

/// The expressions of the rules, one a line.
fn of_rules(rules: &str) -> Vec<String> {
    let lines = rules.lines().map(str::trim);
    let expressions = lines.filter_map(|line| line.strip_prefix("expr: "));
    expressions.map(str::to_owned).collect()
}

/// The expressions of a dashboard.
fn of_dashboard(json: &Value, found: &mut Vec<String>) {
    match json {
        Value::Object(fields) => {
            if let Some(Value::String(expression)) = fields.get("expr") {
                found.push(expression.clone());
            }
            fields.values().for_each(|value| of_dashboard(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| of_dashboard(value, found)),
        _ => {}
    }
}

/// `text` without what is between these two, brackets in brackets not counted.
fn without(text: &str, open: char, close: char) -> String {
    let mut is_inside = false;
    let kept = text.chars().filter(|character| {
        let was_inside = is_inside;
        is_inside = (is_inside || *character == open) && *character != close;
        !is_inside && !was_inside
    });
    kept.collect()
}

/// The metrics in an expression of Prometheus.
fn metrics(expression: &str) -> BTreeSet<String> {
    let unquoted: String = expression.split('"').step_by(2).collect();
    let text = without(&without(&unquoted, '{', '}'), '[', ']');
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    let mut found = BTreeSet::new();
    let mut rest = &*text;
    while let Some(start) = rest.find(is_part) {
        let word = &rest[start..];
        let end = word
            .find(|character| !is_part(character))
            .unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        rest = after;
        let after = after.trim_start();
        let is_function = after.starts_with('(') || after.starts_with("by ");
        match word {
            "by" | "on" | "group_left" | "group_right" => {
                let (_, behind) = after.split_once(')').unwrap();
                rest = behind;
            }
            "and" | "or" | "unless" | "offset" => {}
            _ if is_function || word.starts_with(|first: char| first.is_ascii_digit()) => {}
            _ => {
                found.insert(word.to_owned());
            }
        }
    }
    found
}

#[test]
fn the_metrics_of_an_expression_are_found() {
    for (expression, expected) in [
        ("a > 0", &["a"][..]),
        (
            "max by (job, path) (a{kind!=\"b\"}) > 3600 and c == 1",
            &["a", "c"],
        ),
        (
            "histogram_quantile(0.9, sum by (le) (rate(a_bucket[5m])))",
            &["a_bucket"],
        ),
        (
            "a < on (job) group_left () max by (job) (b offset 1m)",
            &["a", "b"],
        ),
        (
            r#"label_replace(a, "port", "clients", "", "") - time() < 5"#,
            &["a"],
        ),
    ] {
        let expected: BTreeSet<_> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(metrics(expression), expected, "{expression}");
    }
}

/// On the page of a server that has a certificate, or was backed up; not on that of one that has
/// just started. The table of metrics in monitor.md has each that a server can show.
const SHOWN_LATER: [&str; 3] = [
    "baton_backup_last_success_timestamp_seconds",
    "baton_peer_tls_certificate_not_after_timestamp_seconds",
    "baton_tls_certificate_not_after_timestamp_seconds",
];

/// The names of the samples at this address.
fn names_at(address: &str) -> BTreeSet<String> {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let names = samples.filter_map(|line| line.split(['{', ' ']).next());
    names.map(str::to_owned).collect()
}

#[test]
fn every_metric_of_the_rules_and_the_dashboard_is_on_a_page_of_a_server() {
    let home = CommandHome::new();
    let mut command = home.baton(&["dev", "--json", "--servers", "3"]);
    command.env("TMPDIR", home.dir.path());
    let mut running = RunningCommand::new(command);
    let mut shown = BTreeSet::from(["up".to_owned()]);
    for _ in 0..4 {
        let event: Value = serde_json::from_str(&running.line()).unwrap();
        if let Some(address) = event["http"].as_str() {
            shown.extend(names_at(address));
        }
    }
    let table = include_str!("../../../../docs/operate/monitor.md");
    for name in SHOWN_LATER {
        assert!(table.contains(&format!("\n| `{name}` | ")), "{name}");
        assert!(shown.insert(name.to_owned()), "{name} is always shown");
    }
    let rules = of_rules(&packaging("prometheus/baton-alerts.yml"));
    let dashboard = serde_json::from_str(&packaging("grafana/baton.json")).unwrap();
    let mut panels = Vec::new();
    of_dashboard(&dashboard, &mut panels);
    assert!(
        rules.len() > 20 && panels.len() > 20,
        "{rules:?} {panels:?}"
    );
    for expression in rules.iter().chain(&panels) {
        let named = metrics(expression);
        assert!(!named.is_empty(), "{expression}");
        let missing: Vec<_> = named.difference(&shown).collect();
        assert!(missing.is_empty(), "{missing:?} in {expression}");
    }
    running.signal("TERM");
    assert_eq!(running.end().code, 0);
}

#[test]
fn every_alert_has_a_story_and_says_what_to_do() {
    let rules = packaging("prometheus/baton-alerts.yml");
    let stories = packaging("prometheus/baton-alerts.test.yml");
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert_eq!(alerts.len(), of_rules(&rules).len());
    for part in ["summary: ", "description: ", "severity: "] {
        assert_eq!(rules.matches(part).count(), alerts.len(), "{part}");
    }
    for alert in alerts {
        let name = format!("alertname: {alert}\n");
        let mut of_alert = stories.split(&name).skip(1);
        let fires = of_alert.any(|story| story.trim_start().starts_with("exp_alerts:\n"));
        assert!(fires, "{alert} fires in no story");
    }
}
