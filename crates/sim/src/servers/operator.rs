//! Who changes the members while the servers run: adds servers, with and without a vote, promotes
//! and demotes them, swaps them, removes them. A client like any other asks for it.

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
/// How long the members may take to be read, and a change to be answered.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
const CHANGE_LIMIT: Duration = Duration::from_secs(15);
/// How long a change may take to be in force once it is answered.
const FORCE_LIMIT: Duration = Duration::from_secs(5);
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Servers remember for less than this that a server has asked to be admitted, and with which
/// folder.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(6);

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
    let _ = operator.client.close(CLOSE_LIMIT).await;
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
            && let Some((joining, leaving)) = self.draw(&before)
        {
            self.carry_out(&session, &before, (joining, leaving)).await;
        }
    }

    /// A change that an operator could want.
    fn draw(&mut self, before: &EnsembleConfig) -> Option<(Option<EnsembleMember>, Option<u64>)> {
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
        let has_spare = voters.len() > LEAST_VOTERS;
        let newcomer = self.rng.choice(absent);
        let voter = self.rng.choice(voters);
        let observer = self.rng.choice(observers);
        let line = |id: Option<u64>, role: &str| {
            let text = format!("server.{0}=p{0}:1:1:{role};s{0}:1", id?);
            text.parse::<EnsembleMember>().ok()
        };
        let change = match self.rng.u8(..10) {
            0 | 1 => (line(newcomer, "participant"), None),
            2 if newcomer.is_some() => (line(newcomer, "participant"), voter),
            3 | 4 => (line(newcomer, "observer"), None),
            5 | 6 => (line(observer, "participant"), None),
            7 if has_spare => (line(voter, "observer"), None),
            8 | 9 if has_spare => (None, voter),
            8 => (None, observer),
            _ => (None, None),
        };
        (change != (None, None)).then_some(change)
    }

    async fn carry_out(
        &mut self,
        session: &Session,
        before: &EnsembleConfig,
        (joining, leaving): (Option<EnsembleMember>, Option<u64>),
    ) {
        let leader = self.cluster.leader();
        let change = MembershipChange::Incremental {
            joining: joining.iter().cloned().collect(),
            leaving: leaving.iter().copied().collect(),
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
        if let Some(member) = joining {
            match before.member(member.id).map(|known| known.role) {
                None => self.stage.mark(mark::MEMBER_ADDED),
                Some(MemberRole::Observer) if member.role == MemberRole::Participant => {
                    self.stage.mark(mark::MEMBER_PROMOTED);
                }
                Some(_) => {}
            }
        }
        if let Some(id) = leaving {
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
