//! `baton server ls`: each member, and what it says of itself.

use std::collections::BTreeSet;

use baton_client::{EnsembleConfig, MemberRole};
use serde::Serialize;

use super::Ensemble;
use crate::exit::{self, Failure};
use crate::output::Tone;
use crate::output::table::known;
use crate::servers::probe::{self, Probe, Summary};

/// One server.
#[derive(Serialize)]
struct ServerRow {
    /// `None`: it stands alone.
    id: Option<u64>,
    role: Option<&'static str>,
    /// Address for the other servers.
    address: Option<String>,
    client: Option<String>,
    answers: bool,
    mode: Option<String>,
    zxid: Option<String>,
    version: Option<String>,
    /// When it was built.
    built: Option<String>,
    /// The format level of its data.
    format_level: Option<u64>,
    /// The newest format level that it can read.
    newest_format_level: Option<u64>,
    /// Number of entries that it lacks because its data folder was rolled back.
    lost_entries: Option<u64>,
    /// Reason why it does not answer.
    why: Option<String>,
    /// The position of the newest change of members in the order of all changes.
    members_version: String,
}

impl ServerRow {
    /// `monitor` is its answer to `mntr`, which a server may be forbidden to give.
    fn new(probe: Option<Probe>, monitor: Option<&str>, config: &EnsembleConfig) -> Self {
        let (summary, why) = match probe {
            Some(Probe::Answered(summary)) => (Some(summary), None),
            Some(Probe::Silent) => (None, Some("takes connections, does not answer".to_owned())),
            Some(Probe::Unreachable(why)) => (None, Some(why)),
            None => (
                None,
                Some("its address for clients is not known".to_owned()),
            ),
        };
        let answers = summary.is_some();
        let Summary {
            mode,
            zxid,
            version,
            built,
        } = summary.unwrap_or_default();
        Self {
            id: None,
            role: None,
            address: None,
            client: None,
            answers,
            mode,
            zxid,
            version,
            built,
            format_level: number(monitor, "zk_baton_format_level"),
            newest_format_level: number(monitor, "zk_baton_format_level_newest"),
            lost_entries: number(monitor, "zk_baton_lost_entries"),
            why,
            members_version: format!("0x{:x}", config.version),
        }
    }

    /// The columns of the table.
    fn cells(&self) -> [String; 8] {
        let silent = if self.answers {
            "not serving"
        } else {
            "no answer"
        };
        [
            known(self.id),
            known(self.role),
            match self.lost_entries {
                Some(1..) => "rolled back".to_owned(),
                _ => self.mode.as_deref().unwrap_or(silent).to_owned(),
            },
            known(self.zxid.as_deref()),
            known(self.version.as_deref()),
            match (self.format_level, self.newest_format_level) {
                (Some(level), Some(newest)) => format!("{level} of {newest}"),
                _ => "-".to_owned(),
            },
            known(self.address.as_deref()),
            known(self.client.as_deref()),
        ]
    }
}

const TITLES: [&str; 8] = [
    "ID", "ROLE", "MODE", "ZXID", "VERSION", "FORMAT", "ADDRESS", "CLIENTS",
];

/// A number of an answer to `mntr`.
fn number(monitor: Option<&str>, key: &str) -> Option<u64> {
    let mut lines = monitor?.lines();
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'))?;
    value.trim().parse().ok()
}

/// Said while servers of several builds serve: the level does not rise, and each can go back.
fn mixed_builds(all: &[ServerRow]) -> Option<String> {
    let newest = all.iter().filter_map(|shown| shown.newest_format_level);
    let newest: BTreeSet<u64> = newest.collect();
    let (least, most) = (newest.first()?, newest.last()?);
    (least < most).then(|| {
        format!(
            "the servers are of different versions: formats up to {least} are written until every one reads those up to {most}"
        )
    })
}

/// Note on servers whose data folders were rolled back. It names no folder to be emptied.
fn rolled_back(all: &[ServerRow]) -> Vec<String> {
    let lacking = all.iter().filter_map(|shown| {
        let lost = shown.lost_entries.filter(|lost| *lost > 0)?;
        let id = shown.id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        Some(format!(
            "the data folder of server {id} was rolled back: it lacks {lost} entries, and neither votes nor leads until a \
             leader has sent them; see baton doctor"
        ))
    });
    lacking.collect()
}

/// Prints every member; exit code 1 if one of them does not answer.
pub(super) async fn run(ensemble: &Ensemble<'_>) -> Result<u8, Failure> {
    let config = ensemble.members_if_any().await?;
    let all = if config.members.is_empty() {
        alone(ensemble, &config).await
    } else {
        members(ensemble, &config).await
    };
    let output = &ensemble.context.output;
    let tone = |shown: &ServerRow| (!shown.answers).then_some(Tone::Bad);
    let rows = all.iter().map(|shown| (shown, tone(shown), shown.cells()));
    output.table(TITLES, rows);
    if let Some(note) = mixed_builds(&all) {
        output.note(note);
    }
    for note in rolled_back(&all) {
        output.note(note);
    }
    for shown in &all {
        if let Some(why) = &shown.why {
            let id = shown
                .id
                .map_or(String::new(), |id| format!("server {id}: "));
            output.verbose(|| format!("{id}{why}"));
        }
    }
    output.verbose(|| format!("the members are those of change 0x{:x}", config.version));
    let whole = all.iter().all(|shown| shown.answers);
    Ok(if whole { exit::OK } else { exit::NOTHING })
}

async fn members(ensemble: &Ensemble<'_>, config: &EnsembleConfig) -> Vec<ServerRow> {
    let addresses = probe::client_addresses(config, &ensemble.known, ensemble.tls).await;
    let probes = probe::probe_all(&addresses, ensemble.tls).await;
    let monitors = probe::ask_all(&addresses, "mntr", ensemble.tls).await;
    let members = config.members.iter().zip(addresses);
    let members = members.zip(probes).zip(monitors);
    let shown = members.map(|(((member, client), probe), monitor)| {
        let addresses: Vec<_> = member.addresses.iter().map(ToString::to_string).collect();
        ServerRow {
            id: Some(member.id),
            role: Some(match member.role {
                MemberRole::Observer => "observer",
                _ => "participant",
            }),
            address: Some(addresses.join("|")),
            client,
            ..ServerRow::new(probe, monitor.as_deref(), config)
        }
    });
    shown.collect()
}

/// Servers that stand alone, by their addresses.
async fn alone(ensemble: &Ensemble<'_>, config: &EnsembleConfig) -> Vec<ServerRow> {
    let addresses: Vec<_> = ensemble.known.iter().cloned().map(Some).collect();
    let probes = probe::probe_all(&addresses, ensemble.tls).await;
    let monitors = probe::ask_all(&addresses, "mntr", ensemble.tls).await;
    let servers = addresses.into_iter().zip(probes).zip(monitors);
    let shown = servers.map(|((client, probe), monitor)| ServerRow {
        client,
        ..ServerRow::new(probe, monitor.as_deref(), config)
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_what_answers_and_what_does_not() {
        let config = EnsembleConfig::default();
        let shown = |probe| ServerRow::new(probe, None, &config).cells();
        let summary = Summary {
            mode: Some("leader".to_owned()),
            zxid: Some("0x2a".to_owned()),
            version: Some("0.1.0".to_owned()),
            built: None,
        };
        let mode = |probe| {
            let [_, _, mode, zxid, ..] = shown(probe);
            [mode, zxid]
        };
        assert_eq!(mode(Some(Probe::Answered(summary))), ["leader", "0x2a"]);
        let away = mode(Some(Probe::Answered(Summary::default())));
        assert_eq!(away, ["not serving", "-"]);
        assert_eq!(mode(Some(Probe::Silent)), ["no answer", "-"]);
        assert_eq!(mode(None), ["no answer", "-"]);
    }

    #[test]
    fn a_server_whose_folder_was_rolled_back_is_shown_as_that() {
        let config = EnsembleConfig::default();
        let shown = |lost: u64| {
            let monitor = format!("zk_baton_lost_entries\t{lost}\n");
            let probe = Probe::Answered(Summary {
                mode: Some("follower".to_owned()),
                ..Summary::default()
            });
            ServerRow {
                id: Some(lost),
                ..ServerRow::new(Some(probe), Some(&monitor), &config)
            }
        };
        let all = [shown(0), shown(12)];
        let modes = all.each_ref().map(|shown| shown.cells()[2].clone());
        assert_eq!(modes, ["follower", "rolled back"]);
        let notes = rolled_back(&all);
        assert_eq!(notes.len(), 1);
        let note = &notes[0];
        assert!(
            note.contains("server 12") && note.contains("lacks 12 entries"),
            "{note}"
        );
    }

    #[test]
    fn servers_of_several_builds_are_told_from_those_of_one() {
        let config = EnsembleConfig::default();
        let shown = |level: u64, newest: u64| {
            let monitor =
                format!("zk_baton_format_level\t{level}\nzk_baton_format_level_newest\t{newest}\n");
            ServerRow::new(None, Some(&monitor), &config)
        };
        assert_eq!(shown(4, 5).cells()[5], "4 of 5");
        assert_eq!(ServerRow::new(None, None, &config).cells()[5], "-");
        assert_eq!(mixed_builds(&[shown(5, 5), shown(5, 5)]), None);
        // One that does not say it counts for nothing.
        let silent = ServerRow::new(None, None, &config);
        assert_eq!(mixed_builds(&[shown(4, 5), silent]), None);
        let note = mixed_builds(&[shown(4, 5), shown(4, 4), shown(4, 5)]).unwrap();
        assert!(note.contains("up to 4 are written"), "{note}");
    }
}
