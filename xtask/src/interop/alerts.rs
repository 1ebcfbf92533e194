//! The alert rules of `packaging/prometheus` on Prometheus itself: their form and their stories by
//! promtool, and the form of the dashboard's expressions; then a Prometheus that reads a server on
//! which a lock is held, a queue ages and, in the end, nothing answers; and one that reads three
//! servers, of which one is cut off and lags.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use baton_testkit::{Ensemble, ServerOptions, Target, free_addr};
use serde_json::Value;

use super::PartEnd;
use crate::process::{OwnedChild, build_baton, succeed, work_dir};
use crate::{Result, http, root};

/// Time that an alert may take to fire or to end.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) fn run(dir: Option<&Path>) -> Result<PartEnd> {
    for tool in ["promtool", "prometheus"] {
        let asked = Command::new(tool).arg("--version").output();
        if !asked.is_ok_and(|asked| asked.status.success()) {
            let why = format!(
                "{tool} is missing; install Debian's: apt-get install --no-install-recommends prometheus"
            );
            return Ok(PartEnd::Skipped(why));
        }
    }
    let rules = root().join("packaging/prometheus");
    for (verb, file) in [
        ("check", "baton-alerts.yml"),
        ("test", "baton-alerts.test.yml"),
    ] {
        let mut promtool = Command::new("promtool");
        succeed(promtool.args([verb, "rules", file]).current_dir(&rules))?;
    }
    let dashboard = root().join("packaging/grafana/baton.json");
    let dashboard = as_rules(&serde_json::from_str(&std::fs::read_to_string(dashboard)?)?)?;
    let checked = work_dir(None)?;
    std::fs::write(checked.path().join("dashboard.yml"), dashboard)?;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "rules", "dashboard.yml"]);
    succeed(promtool.current_dir(checked.path()))?;
    let text = std::fs::read_to_string(rules.join("baton-alerts.yml"))?;
    let (baton, rules) = (build_baton()?, quick(&text)?);
    fires(&baton, &rules, work_dir(dir)?.path())?;
    tokio::runtime::Runtime::new()?.block_on(lags(&baton, &rules, work_dir(dir)?.path()))?;
    Ok(PartEnd::Passed)
}

/// The expressions of a dashboard as rules that record them, so that promtool reads them. Grafana's
/// variables have values there.
fn as_rules(dashboard: &Value) -> Result<String> {
    fn collect<'a>(panels: &'a Value, into: &mut Vec<&'a str>) {
        for panel in panels.as_array().into_iter().flatten() {
            let targets = panel["targets"].as_array().into_iter().flatten();
            into.extend(targets.filter_map(|target| target["expr"].as_str()));
            collect(&panel["panels"], into);
        }
    }
    let mut expressions = Vec::new();
    collect(&dashboard["panels"], &mut expressions);
    if expressions.len() < 20 {
        return Err("the dashboard has another form now; change `as_rules`".into());
    }
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (number, expression) in expressions.into_iter().enumerate() {
        let expression = expression
            .replace("$__rate_interval", "1m")
            .replace("$job", "baton")
            .replace("$path", ".*");
        if expression.contains('$') {
            return Err(format!("a variable has no value: {expression}").into());
        }
        // A text of JSON is one of YAML.
        let expression = Value::from(expression);
        rules += &format!("  - record: dashboard_{number}\n    expr: {expression}\n");
    }
    Ok(rules)
}

/// The rules with short limits: an hour, a quarter of an hour, the minute for which a server may
/// lag and every `for` are a second.
fn quick(rules: &str) -> Result<String> {
    let mut quick = String::new();
    for line in rules.lines() {
        let begin = line.trim_start();
        let indent = &line[..line.len() - begin.len()];
        if begin.starts_with("for: ") {
            quick += &format!("{indent}for: 1s\n");
        } else {
            quick += &format!(
                "{}\n",
                line.replace("> 3600 ", "> 1 ")
                    .replace("> 900", "> 1")
                    .replace("offset 1m", "offset 1s")
            );
        }
    }
    if quick.matches("> 1").count() < 3 || !quick.contains("offset 1s") {
        return Err("the limits of the rules are others now; change `quick`".into());
    }
    Ok(quick)
}

fn fires(baton: &Path, rules: &str, dir: &Path) -> Result<()> {
    let (port, http, page) = (
        free_addr()?.port(),
        free_addr()?.port(),
        free_addr()?.port(),
    );
    let servers = format!("127.0.0.1:{port}");
    let quiet = |command: &mut Command| OwnedChild::start(command.stdout(Stdio::null()));
    let command = |args: &[&str]| {
        let mut command = Command::new(baton);
        command.args(args).env("BATON_SERVERS", &servers);
        command
    };
    let http = format!("127.0.0.1:{http}");
    let mut server = quiet(&mut command(&[
        "serve",
        "--ephemeral",
        "--listen",
        &servers,
        "--http",
        &http,
    ]))?;
    until("the server is ready", || {
        get(&http, "/readyz").is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
    })?;
    let mut holder = quiet(&mut command(&["lock", "/deploy", "--", "sleep", "600"]))?;
    let held = "baton_recipe_lock_holders{path=\"/deploy\",kind=\"lock\"} 1\n";
    until("the lock is held", || {
        get(&http, "/metrics").is_ok_and(|page| page.contains(held))
    })?;
    let _waiter = quiet(&mut command(&["lock", "/deploy", "--", "true"]))?;
    succeed(&mut command(&["queue", "work", "put", "/jobs", "item"]))?;

    let (_prometheus, page) = prometheus(rules, &[http], page, dir)?;
    let held = ("BatonLockHeldTooLong", "/deploy");
    for (alert, path) in [
        held,
        ("BatonLockWaitedTooLong", "/deploy"),
        ("BatonQueueAges", "/jobs"),
    ] {
        until(&format!("{alert} fires"), || is_firing(&page, alert, path))?;
        println!("{alert} fires for {path}");
    }
    if is_firing(&page, "BatonServerDown", "") {
        return Err("BatonServerDown fires though the server answers".into());
    }
    holder.kill();
    until("the alert ends with the hold", || {
        !is_firing(&page, held.0, held.1)
    })?;
    println!("{} ends with the hold", held.0);
    until("the loss of the holder is reported", || {
        is_firing(&page, "BatonHoldersLost", "/deploy")
    })?;
    println!("BatonHoldersLost fires for /deploy");
    server.kill();
    until("BatonServerDown fires", || {
        is_firing(&page, "BatonServerDown", "")
    })?;
    println!("BatonServerDown fires");
    Ok(())
}

/// One of three servers that is cut off from the others, and goes on answering HTTP.
async fn lags(baton: &Path, rules: &str, dir: &Path) -> Result<()> {
    let options = ServerOptions {
        baton: Some(baton.to_owned()),
        baton_args: vec!["--http=127.0.0.1:0".to_owned()],
        ..ServerOptions::default()
    };
    let ensemble = Ensemble::start_processes(Target::Baton, 3, options).await?;
    let mut pages = Vec::new();
    for server in ensemble.servers() {
        let log = server.log();
        let page = log.split("HTTP on ").nth(1);
        let page = page.and_then(|rest| rest.split_whitespace().next());
        pages.push(
            page.ok_or("a server does not say where its HTTP is")?
                .to_owned(),
        );
    }
    let (_prometheus, page) = prometheus(rules, &pages, free_addr()?.port(), dir)?;
    let leader = ensemble.wait_leader().await?;
    let lags = (leader + 1) % 3;
    let others = ensemble.servers().iter().enumerate();
    let others = others.filter(|(index, _)| *index != lags);
    let servers: Vec<String> = others.map(|(_, server)| server.connect_string()).collect();
    let write = || {
        let mut put = Command::new(baton);
        put.args(["queue", "work", "put", "/jobs", "item", "--servers"]);
        succeed(put.arg(servers.join(",")).stdout(Stdio::null()))
    };
    let on = pages.get(lags).ok_or("there are three")?;
    let fires = || {
        let alerts = firing(&page);
        let mut alerts = alerts.iter();
        alerts.any(|labels| labels["alertname"] == "BatonServerLags" && labels["instance"] == **on)
    };
    write()?;
    if fires() {
        return Err("BatonServerLags fires though the server is as far as the others".into());
    }
    ensemble.set_cut_off(lags, true);
    until("BatonServerLags fires", || write().is_ok() && fires())?;
    println!("BatonServerLags fires for the server that was cut off");
    ensemble.set_cut_off(lags, false);
    until("the alert ends when the server has caught up", || !fires())?;
    println!("BatonServerLags ends when it has caught up");
    Ok(())
}

/// A Prometheus with these rules that reads these pages, and its own address.
fn prometheus(
    rules: &str,
    pages: &[String],
    port: u16,
    dir: &Path,
) -> Result<(OwnedChild, String)> {
    std::fs::write(dir.join("baton-alerts.yml"), rules)?;
    let config = dir.join("prometheus.yml");
    let targets: Vec<String> = pages.iter().map(|page| format!("\"{page}\"")).collect();
    let targets = targets.join(", ");
    std::fs::write(
        &config,
        format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
             rule_files: [baton-alerts.yml]\n\
             scrape_configs:\n  - job_name: baton\n    static_configs: [{{ targets: [{targets}] }}]\n"
        ),
    )?;
    let page = format!("127.0.0.1:{port}");
    let data = dir.join("data");
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg(format!("--web.listen-address={page}"))
        .arg("--log.level=warn")
        .stdout(Stdio::null());
    Ok((OwnedChild::start(&mut prometheus)?, page))
}

/// Returns whether this alert fires, for this path if it is not empty.
fn is_firing(prometheus: &str, alert: &str, path: &str) -> bool {
    firing(prometheus)
        .iter()
        .any(|labels| labels["alertname"] == alert && (path.is_empty() || labels["path"] == path))
}

/// The labels of each alert that fires; none where Prometheus does not answer.
fn firing(prometheus: &str) -> Vec<Value> {
    let Ok(answer) = get(prometheus, "/api/v1/alerts") else {
        return Vec::new();
    };
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let Ok(json) = serde_json::from_str::<Value>(body) else {
        return Vec::new();
    };
    let alerts = json["data"]["alerts"].as_array();
    let firing = alerts
        .into_iter()
        .flatten()
        .filter(|alert| alert["state"] == "firing");
    firing.map(|alert| alert["labels"].clone()).collect()
}

fn get(address: &str, path: &str) -> Result<String> {
    http::get(address, path, "", Duration::from_secs(5))
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > PATIENCE {
            return Err(format!("after {} s it was never so: {what}", PATIENCE.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}
