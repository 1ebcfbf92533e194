//! The Helm chart as `helm` renders it: what a pod's container runs with, read from the manifests.

use std::path::PathBuf;
use std::process::Command;

use crate::{Result, command, root};

/// Names in the rendered manifests.
pub(super) const RELEASE: &str = "locks";
pub(super) const NAMESPACE: &str = "default";
/// Mount point of the secrets in the manifests.
pub(super) const ADMIN_FOLDER: &str = "/etc/baton/admin";
pub(super) const TLS_FOLDER: &str = "/etc/baton/tls";
pub(super) const SETTINGS_FILE: &str = "/etc/baton/settings/server.toml";

/// The oldest Kubernetes that the chart allows; `helm` itself takes the one it was built with.
const KUBERNETES: &str = "1.28.0";

/// The chart with these values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chart {
    pub(super) replicas: usize,
    pub(super) has_tls: bool,
    pub(super) is_upgrade: bool,
}

impl Chart {
    /// All that `packaging/helm` is rendered with.
    fn variants() -> impl Iterator<Item = Self> {
        [3, 5].into_iter().flat_map(|replicas| {
            [(false, false), (false, true), (true, false), (true, true)].map(
                |(has_tls, is_upgrade)| Self {
                    replicas,
                    has_tls,
                    is_upgrade,
                },
            )
        })
    }

    fn values(self) -> String {
        let secret = if self.has_tls { "tls" } else { "" };
        format!(
            "replicas={},admin.secretName=admin,tls.secretName={secret}",
            self.replicas
        )
    }

    /// The manifests of one template, or of all.
    pub(super) fn render(self, template: Option<&str>) -> Result<String> {
        let mut helm = rendering(&self.values());
        if self.is_upgrade {
            helm.arg("--is-upgrade");
        }
        if let Some(template) = template {
            helm.args(["--show-only", &format!("templates/{template}")]);
        }
        command::output(&mut helm)
    }

    /// The text of `server.toml`.
    pub(super) fn settings(self) -> Result<String> {
        let text = block(&self.render(Some("configmap.yaml"))?, "server.toml: |");
        match text.is_empty() {
            true => Err("the chart has no server.toml".into()),
            false => Ok(text),
        }
    }

    /// The arguments of a server's container, with what Kubernetes would put in for variables.
    pub(super) fn server_args(self, id: usize, digest: &str) -> Result<Vec<String>> {
        let args = args(&self.render(Some("statefulset.yaml"))?);
        Ok(args
            .into_iter()
            .map(|arg| {
                arg.replace("$(BATON_SERVER_ID)", &id.to_string())
                    .replace("$(BATON_SUPER_DIGEST)", digest)
            })
            .collect())
    }

    /// The arguments of the job that adds the servers of an upgrade.
    pub(super) fn member_args(self) -> Result<Vec<String>> {
        Ok(args(&self.render(Some("members.yaml"))?))
    }

    /// The name of a server.
    pub(super) fn host(id: usize) -> String {
        format!("{RELEASE}-{id}.{RELEASE}-peers.{NAMESPACE}.svc.cluster.local")
    }
}

/// The command that renders the chart with these values.
fn rendering(values: &str) -> Command {
    let mut helm = Command::new("helm");
    helm.args(["template", RELEASE, "--namespace", NAMESPACE])
        .args(["--kube-version", KUBERNETES, "--set", values])
        .arg(folder());
    helm
}

fn folder() -> PathBuf {
    root().join("packaging/helm/baton")
}

/// Lints the chart, and renders it with every kind of values. Wrong values have to be refused.
pub(super) fn check() -> Result<()> {
    for chart in Chart::variants() {
        let mut lint = Command::new("helm");
        lint.args(["lint", "--strict", "--set", &chart.values()]);
        command::output(lint.arg(folder()))?;
        let manifests = chart.render(None)?;
        let adds = manifests.contains("\"add\"");
        if adds != (chart.is_upgrade && chart.replicas > 3) {
            return Err(format!("{chart:?} adds servers, or does not where it should").into());
        }
    }
    for (wrong, named) in [
        ("replicas=4,admin.secretName=admin", "- replicas:"),
        ("replicas=3", "- admin.secretName:"),
    ] {
        let refusal = command::output(&mut rendering(wrong)).err();
        if !refusal.is_some_and(|error| error.to_string().contains(named)) {
            return Err(format!("the chart does not refuse {wrong}").into());
        }
    }
    Ok(())
}

/// The lines below the one that ends with this key, without their indentation.
fn block(yaml: &str, key: &str) -> String {
    let mut lines = yaml.lines().skip_while(|line| line.trim() != key);
    let indent = |line: &str| line.len() - line.trim_start().len();
    let Some(depth) = lines.next().map(indent) else {
        return String::new();
    };
    let inside: Vec<&str> = lines
        .take_while(|line| line.trim().is_empty() || indent(line) > depth)
        .collect();
    let first = inside.iter().find(|line| !line.trim().is_empty());
    let depth = first.map_or(0, |line| indent(line));
    let text = inside
        .into_iter()
        .map(|line| line.get(depth..).unwrap_or(""));
    text.map(|line| format!("{line}\n")).collect()
}

/// The quoted items of the list `args:`.
fn args(yaml: &str) -> Vec<String> {
    let lines = yaml.lines().skip_while(|line| line.trim() != "args:");
    let items = lines.skip(1).map_while(|line| {
        let item = line.trim().strip_prefix("- \"")?;
        Some(item.strip_suffix('"')?.to_owned())
    });
    items.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "data:\n  server.toml: |\n    a = 1\n\n    [b]\n    c = 2\nkind: x\n\
                        containers:\n  - name: x\n    args:\n      - \"serve\"\n      - \"--x=$(Y)\"\n    ports: []\n";

    #[test]
    fn a_block_of_text_and_a_list_of_arguments_are_read() {
        assert_eq!(block(YAML, "server.toml: |"), "a = 1\n\n[b]\nc = 2\n");
        assert_eq!(block(YAML, "nothing: |"), "");
        assert_eq!(args(YAML), ["serve", "--x=$(Y)"]);
        assert!(args("kind: x\n").is_empty());
    }
}
