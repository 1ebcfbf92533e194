//! Operator that changes the members while the servers run: adds servers, with and without a vote,
//! promotes and demotes them, swaps them, moves them, removes them, one or several at once. A
//! client like any other asks for it.

use std::collections::BTreeMap;
use std::time::Duration;

use baton_client::{
    Client, EnsembleConfig, EnsembleMember, MemberRole, MembershipChange, ReconfigError, Session,
};
use fastrand::Rng;
use tokio::time::Instant;

use crate::cluster::{Cluster, mark};
use crate::stage::Stage;

/// Voters below which none is removed.
const LEAST_VOTERS: usize = 3;
/// Limit of a read of the members, and of the answer to a change.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
const CHANGE_LIMIT: Duration = Duration::from_secs(15);
/// Limit of the time until a change is in force once it is answered.
const FORCE_LIMIT: Duration = Duration::from_secs(5);
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Servers remember for less than this that a server has asked to be admitted, and with which
/// folder.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(6);

/// Members that join, and members that leave.
type MemberChange = (Vec<EnsembleMember>, Vec<u64>);

struct Operator {
    stage: Stage,
    cluster: Cluster,
    client: Client,
    rng: Rng,
    /// From when on a server whose folder was emptied may be added again.
    may_join: BTreeMap<u64, Instant>,
}

/// Changes the members until everything is whole again.
pub(super) async fn operate(stage: Stage, cluster: Cluster, seed: u64) {
    let client = match stage.operator() {
        Ok(client) => client,
        Err(error) => return stage.fail(&error.to_string()),
    };
    let mut operator = Operator {
        stage,
        cluster,
        client,
        rng: Rng::with_seed(seed ^ 0x00be_4a7e),
        may_join: BTreeMap::new(),
    };
    while !operator.stage.is_calm() {
        let pause_ms = operator.rng.u64(100..1_500);
        operator.stage.pause(pause_ms).await;
        operator.act().await;
    }
    // Otherwise its session ends by itself.
    let _ = operator.client.close_timeout(CLOSE_LIMIT).await;
}

impl Operator {
    async fn act(&mut self) {
        let asked = async {
            let session = self.client.session().await.ok()?;
            let config = session.ensemble_config().await.ok()?;
            Some((session, config))
        };
        let known = tokio::time::timeout(LOOK_LIMIT, asked).await;
        if let Ok(Some((session, before))) = known
            && !self.stage.is_calm()
        {
            let wanted = self.draw(&before);
            if wanted != (Vec::new(), Vec::new()) {
                self.carry_out(&session, &before, wanted).await;
            }
        }
    }

    /// A change that an operator could want.
    fn draw(&mut self, before: &EnsembleConfig) -> MemberChange {
        let of = |role| {
            let members = before.members.iter().filter(|member| member.role == role);
            members.map(|member| member.id).collect::<Vec<u64>>()
        };
        let (voters, observers) = (of(MemberRole::Participant), of(MemberRole::Observer));
        let now = Instant::now();
        let absent = self.cluster.all_ids().into_iter();
        let absent = absent.filter(|id| before.member(*id).is_none());
        let absent = absent.filter(|id| self.may_join.get(id).is_none_or(|from| now >= *from));
        let absent: Vec<u64> = absent.collect();
        let spare = voters.len().saturating_sub(LEAST_VOTERS);
        let newcomer = self.rng.choice(absent.clone());
        let voter = self.rng.choice(voters.clone());
        let observer = self.rng.choice(observers.clone());
        let line = |id: &u64, role: &str, place: &str| {
            let text = format!("server.{id}={place}{id}:1:1:{role};s{id}:1");
            text.parse::<EnsembleMember>().ok()
        };
        let lines = |ids: &[u64], role: &str| -> Vec<EnsembleMember> {
            ids.iter().filter_map(|id| line(id, role, "p")).collect()
        };
        let one = |id: Option<u64>| Vec::from_iter(id);
        match self.rng.u8(..14) {
            0 | 1 => (lines(&one(newcomer), "participant"), Vec::new()),
            2 if newcomer.is_some() => (lines(&one(newcomer), "participant"), one(voter)),
            3 | 4 => (lines(&one(newcomer), "observer"), Vec::new()),
            5 | 6 => (lines(&one(observer), "participant"), Vec::new()),
            7 if spare > 0 => (lines(&one(voter), "observer"), Vec::new()),
            8 | 9 if spare > 0 => (Vec::new(), one(voter)),
            8 => (Vec::new(), one(observer)),
            // Several at once: all that may come, the same for others, and as many as may go.
            10 => (
                lines(&[&absent[..], &observers].concat(), "participant"),
                Vec::new(),
            ),
            11 => {
                let mut leaving = voters;
                self.rng.shuffle(&mut leaving);
                leaving.truncate(absent.len());
                (lines(&absent, "participant"), leaving)
            }
            12 => {
                let mut leaving = voters;
                self.rng.shuffle(&mut leaving);
                leaving.truncate(spare);
                (Vec::new(), leaving)
            }
            13 => {
                let place = self.rng.choice(["p", "q", "r"]).unwrap_or("p");
                let moved = voter.and_then(|id| line(&id, "participant", place));
                (Vec::from_iter(moved), Vec::new())
            }
            _ => (Vec::new(), Vec::new()),
        }
    }

    async fn carry_out(
        &mut self,
        session: &Session,
        before: &EnsembleConfig,
        (joining, leaving): MemberChange,
    ) {
        let leader = self.cluster.leader();
        let change = MembershipChange::Incremental {
            joining: joining.clone(),
            leaving: leaving.clone(),
        };
        self.stage.note(|| format!("the operator asks: {change:?}"));
        let asked = session.change_members(&change, None);
        match tokio::time::timeout(CHANGE_LIMIT, asked).await {
            Ok(Ok(_)) => {}
            Ok(Err(error @ (ReconfigError::NotAllowed | ReconfigError::StandsAlone))) => {
                return self.stage.fail(&format!("a change of members: {error}"));
            }
            Ok(Err(error)) => {
                return self
                    .stage
                    .note(|| format!("the members stay as they are: {error}"));
            }
            Err(_) => return self.stage.note(|| "the change takes too long".to_owned()),
        }
        let (mut added, mut moved) = (0, false);
        for member in &joining {
            let known = before.member(member.id);
            let votes = member.role == MemberRole::Participant;
            match known.map(|known| known.role) {
                None => self.stage.mark(mark::MEMBER_ADDED),
                Some(MemberRole::Observer) if votes => self.stage.mark(mark::MEMBER_PROMOTED),
                Some(_) => moved |= known.is_some_and(|known| known.addresses != member.addresses),
            }
            let voted = known.is_some_and(|known| known.role == MemberRole::Participant);
            added += usize::from(votes && !voted);
        }
        if moved {
            self.stage.mark(mark::MEMBER_MOVED);
        }
        if added > 1 || leaving.len() > 1 {
            self.stage.mark(mark::SEVERAL_CHANGED);
        }
        for id in leaving {
            self.stage.mark(mark::MEMBER_REMOVED);
            if leader == Some(id) {
                self.stage.mark(mark::LEADER_REMOVED);
            }
            // The others may be added again as they are.
            if self.rng.u8(..3) > 0 {
                self.empty(id).await;
            }
        }
    }

    /// Empties the folder of a server that was removed, once that is in force.
    async fn empty(&mut self, id: u64) {
        let in_force = async {
            loop {
                let now = self.cluster.membership();
                if now.is_some_and(|now| !now.is_joint() && !now.contains(id)) {
                    return;
                }
                self.stage.pause(20).await;
            }
        };
        if tokio::time::timeout(FORCE_LIMIT, in_force).await.is_ok() {
            self.may_join.insert(id, Instant::now() + FORGOTTEN_AFTER);
            self.cluster.empty(id);
        }
    }
}
