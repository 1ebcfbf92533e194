//! The two servers, or ensembles, side by side: runs a program on both, says where they differ, and
//! cuts the program down to what shows it. Decides nothing about who is right.

use std::sync::Arc;

use baton_proto::Request;

use super::differences::Differences;
use super::error::OracleError;
use super::program::{Act, Program};
use super::reach::SessionCertificates;
use super::side::Side;
use super::transcript::transcript;
use crate::launch::Target;

/// Difference between the answers of two servers.
#[derive(Debug)]
pub struct Difference {
    /// Requests and everything heard, up to the first difference.
    pub transcript: String,
    /// Number of acts of the program.
    pub acts: usize,
}

/// Baton and Apache ZooKeeper, each freshly started.
#[derive(Debug)]
pub struct Oracle {
    ours: Side,
    theirs: Side,
    differences: Differences,
    programs: u64,
}

impl Oracle {
    /// Starts both servers.
    ///
    /// # Errors
    /// What is missing, or why one of them does not serve.
    pub async fn start(differences: Differences) -> Result<Self, OracleError> {
        Self::start_several(1, differences).await
    }

    /// [`Oracle::start`] with an ensemble of this number of servers on each side. The sessions of a
    /// program are spread over them.
    ///
    /// # Errors
    /// As [`Oracle::start`].
    pub async fn start_several(
        servers: usize,
        differences: Differences,
    ) -> Result<Self, OracleError> {
        Self::start_sides(servers, differences, None).await
    }

    /// [`Oracle::start_several`] with servers that are reached with TLS. The sessions of a program
    /// show certificates of their own, or none.
    ///
    /// # Errors
    /// As [`Oracle::start`]; certificates that cannot be made.
    pub async fn start_with_tls(
        servers: usize,
        differences: Differences,
    ) -> Result<Self, OracleError> {
        let certified = Arc::new(SessionCertificates::new()?);
        Self::start_sides(servers, differences, Some(certified)).await
    }

    async fn start_sides(
        servers: usize,
        differences: Differences,
        certified: Option<Arc<SessionCertificates>>,
    ) -> Result<Self, OracleError> {
        let (ours, theirs) = tokio::try_join!(
            Side::start(Target::Baton, servers, certified.clone()),
            Side::start(Target::ZooKeeper, servers, certified.clone())
        )?;
        Ok(Self {
            ours,
            theirs,
            differences,
            programs: 0,
        })
    }

    /// Runs a program on both; `None` if they behave alike.
    ///
    /// # Errors
    /// A server refused the program's folder or its sessions.
    pub async fn compare(&mut self, program: &Program) -> Result<Option<Difference>, OracleError> {
        let number = self.programs;
        self.programs += 1;
        let (ours, theirs) = tokio::try_join!(
            self.ours.run(program, number, &self.differences),
            self.theirs.run(program, number, &self.differences),
        )?;
        if ours == theirs {
            return Ok(None);
        }
        Ok(Some(Difference {
            transcript: transcript(program, &ours, &theirs),
            acts: program.len(),
        }))
    }

    /// The smallest program found that still shows a difference, with that difference; `None` if
    /// this one does not show one again.
    ///
    /// # Errors
    /// As [`Oracle::compare`].
    pub async fn shrink(
        &mut self,
        mut program: Program,
    ) -> Result<Option<(Program, Difference)>, OracleError> {
        let Some(mut found) = self.compare(&program).await? else {
            return Ok(None);
        };
        let mut chunk = program.len() / 2;
        while chunk > 0 {
            let (mut at, before) = (0, program.len());
            while at < program.len() {
                let mut smaller = program.clone();
                let end = (at + chunk).min(smaller.len());
                smaller.lines.drain(at..end);
                match self.compare(&smaller).await? {
                    Some(still) => (program, found) = (smaller, still),
                    None => at += chunk,
                }
            }
            if chunk > 1 || program.len() == before {
                chunk /= 2;
            }
        }
        let mut at = 0;
        'lines: while at < program.len() {
            for smaller in simpler(&program, at) {
                if let Some(still) = self.compare(&smaller).await? {
                    (program, found) = (smaller, still);
                    continue 'lines;
                }
            }
            at += 1;
        }
        Ok(Some((program, found)))
    }

    /// Stops both servers.
    pub async fn stop(self) {
        tokio::join!(self.ours.stop(), self.theirs.stop());
    }
}

/// One of the two servers, freshly started, and all that it answers: for golden answers.
#[derive(Debug)]
pub struct Recorder {
    side: Side,
    differences: Differences,
    programs: u64,
}

impl Recorder {
    /// Starts the server.
    ///
    /// # Errors
    /// What is missing, or why it does not serve.
    pub async fn start(target: Target, differences: Differences) -> Result<Self, OracleError> {
        Self::start_several(target, 1, differences).await
    }

    /// [`Recorder::start`] with an ensemble of this number of servers.
    ///
    /// # Errors
    /// As [`Recorder::start`].
    pub async fn start_several(
        target: Target,
        servers: usize,
        differences: Differences,
    ) -> Result<Self, OracleError> {
        Ok(Self {
            side: Side::start(target, servers, None).await?,
            differences,
            programs: 0,
        })
    }

    /// Runs a program: what was asked, and all that was heard. Two servers that no client can
    /// distinguish, with the same programs before, give the same text.
    ///
    /// # Errors
    /// The server refused the program's folder or its sessions.
    pub async fn record(&mut self, program: &Program) -> Result<String, OracleError> {
        let number = self.programs;
        self.programs += 1;
        let heard = self.side.run(program, number, &self.differences).await?;
        Ok(transcript(program, &heard, &heard))
    }

    /// Stops the server.
    pub async fn stop(self) {
        self.side.stop().await;
    }
}

/// Programs with one line simpler: not sent with the one before, or with one operation less in its
/// multi.
fn simpler(program: &Program, at: usize) -> Vec<Program> {
    let mut all = Vec::new();
    let Some(line) = program.lines.get(at) else {
        return all;
    };
    let mut with = |change: &dyn Fn(&mut super::program::ProgramLine)| {
        let mut smaller = program.clone();
        if let Some(line) = smaller.lines.get_mut(at) {
            change(line);
        }
        all.push(smaller);
    };
    if let Act::Ask(Request::Multi(ops) | Request::MultiRead(ops)) = &line.act {
        for index in 0..ops.len() {
            with(&|line| {
                if let Act::Ask(Request::Multi(ops) | Request::MultiRead(ops)) = &mut line.act {
                    ops.remove(index);
                }
            });
        }
    }
    if line.joined {
        with(&|line| line.joined = false);
    }
    all
}
