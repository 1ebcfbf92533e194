//! A trial in which several members change at once under load: two servers leave, two take the
//! places of two others, two join. Meanwhile one server, now and then the leader, is killed.

use std::fs;
use std::time::Duration;

use baton_client::{EnsembleMember, MembershipChange, ReconfigError, Session};
use tokio::time::{Instant, sleep, timeout};

use super::load::{Client, PATIENCE};
use super::stage::{Report, Settings, Stage};
use crate::Result;

/// All servers: those that are no members wait.
const SIZE: usize = 7;
/// `super:secret`.
const ARGS: [&str; 2] = [
    "--reconfig",
    "--super-digest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=",
];
/// Numbers of servers that join and that leave, of seven members in the beginning and at the end.
const STEPS: [(usize, usize); 5] = [(0, 2), (2, 2), (0, 2), (2, 0), (2, 0)];
/// Between two tries of a change.
const RETRY: Duration = Duration::from_millis(100);

/// Two members come, go, and take the places of two others at once.
pub(super) async fn change_several(settings: &Settings) -> Result<Report> {
    let mut stage = Stage::of_size(settings, SIZE, &ARGS).await?;
    let outcome = change_again_and_again(&mut stage).await;
    stage.finish(outcome).await
}

async fn change_again_and_again(stage: &mut Stage) -> Result<()> {
    let servers = stage.ensemble.connect_string();
    let operator = Client::connect(SIZE, &servers).await?;
    let session = operator.session.clone();
    session.add_auth("digest", b"super:secret").await?;
    let lines = lines(stage, &session).await?;
    while stage.has_next_run() {
        let running = stage.begin().await?;
        let mut members: Vec<usize> = (0..SIZE).collect();
        for (joining, leaving) in STEPS {
            let absent: Vec<usize> = (0..SIZE).filter(|at| !members.contains(at)).collect();
            let joining = absent.get(..joining).unwrap_or_default().to_vec();
            stage.rng.shuffle(&mut members);
            let leaving = members.split_off(members.len() - leaving);
            let victim = *stage.rng.choice(&members).ok_or("nobody stays")?;
            let change = MembershipChange::Incremental {
                joining: joining
                    .iter()
                    .filter_map(|at| lines.get(*at))
                    .cloned()
                    .collect(),
                leaving: leaving.iter().map(|at| *at as u64 + 1).collect(),
            };
            let begun = Instant::now();
            let delay = Duration::from_millis(stage.rng.u64(..300));
            let changed = make(&session, &change);
            let killed = async {
                sleep(delay).await;
                stage.server(victim)?.kill();
                // The others go on without it.
                sleep(3 * delay).await;
                stage.server(victim)?.launch()?;
                Result::Ok(())
            };
            let outcome = tokio::try_join!(changed, killed);
            outcome.map_err(|error| format!("{change:?}: {error}"))?;
            eprintln!("{} ms: {change:?}", begun.elapsed().as_millis());
            members.extend(joining);
            for at in leaving {
                let server = stage.server(at)?;
                server.kill();
                let folder = server.data_dir();
                if stage.rng.bool() {
                    fs::remove_dir_all(folder)?;
                }
                // It waits until it is admitted again.
                stage.server(at)?.launch()?;
            }
            stage.all_go_on(&running).await?;
        }
        let round = running.round.clone();
        stage.end(running, &[], Vec::new()).await?;
        let client = stage.clients.first().ok_or("there is no client")?;
        round.remove(client).await?;
    }
    session.close_timeout(PATIENCE).await?;
    Ok(())
}

/// Returns the lines by which a change names each server: those of the members, with the address
/// for clients.
async fn lines(stage: &Stage, session: &Session) -> Result<Vec<EnsembleMember>> {
    let listed = async {
        loop {
            let config = session.read_latest("/", Session::ensemble_config).await?;
            if config.members.len() == SIZE {
                return Result::Ok(config);
            }
            sleep(RETRY).await;
        }
    };
    let config = timeout(PATIENCE, listed).await??;
    let servers = stage.ensemble.servers().iter();
    let lines = config.members.into_iter().zip(servers);
    lines
        .map(|(mut member, server)| {
            member.client = Some(server.addr().to_string().parse()?);
            Ok(member)
        })
        .collect()
}

/// Has the servers make a change, however often they cannot yet.
async fn make(session: &Session, change: &MembershipChange) -> Result<()> {
    let mut last = String::new();
    let made = async {
        loop {
            match session.change_members(change, None).await {
                Ok(_) => return Ok(()),
                Err(
                    error @ (ReconfigError::NoQuorum
                    | ReconfigError::InProgress
                    | ReconfigError::NotApplied(_)
                    | ReconfigError::Unknown(_)
                    | ReconfigError::Other(_)),
                ) => last = error.to_string(),
                Err(error) => return Err(error.into()),
            }
            let read = session.read_latest("/", Session::ensemble_config).await;
            if read.is_ok_and(|config| change.is_met_by(&config)) {
                return Ok(());
            }
            sleep(RETRY).await;
        }
    };
    match timeout(PATIENCE, made).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("not within {PATIENCE:?}: {last}").into()),
    }
}
