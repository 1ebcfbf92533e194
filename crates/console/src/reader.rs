//! Batched reads of the survey.
//!
//! Owns how a batch is sent. The survey knows a tree only by [`TreeReader`], so that a test can
//! give it one that changes between any two reads.

use std::future::Future;

use baton_client::{Children, Client, Data, Error, Pending, Session, Stat};

use crate::error::SurveyError;

/// One read of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The record of the node at this path.
    Stat(String),
    /// The names of its children.
    Children(String),
    /// Its data.
    Data(String),
}

/// The answer to one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Ask::Stat`].
    Stat(Stat),
    /// To [`Ask::Children`].
    Children(Children),
    /// To [`Ask::Data`].
    Data(Data),
    /// There is no such node.
    Gone,
    /// The reader may not read this.
    Forbidden,
}

/// A tree that can be read in batches.
///
/// Answers of later reads are never older than those of earlier ones: what a session promises.
pub trait TreeReader: Send + Sync {
    /// Answers each read, in order.
    fn read(&self, asks: &[Ask]) -> impl Future<Output = Result<Vec<Reply>, SurveyError>> + Send;

    /// Has later reads see every change that was acknowledged before this call.
    fn sync(&self) -> impl Future<Output = Result<(), SurveyError>> + Send;

    /// The newest change that an answer has shown; 0 where that is not known.
    fn last_zxid(&self) -> i64;
}

/// Reads through one session. Another session is another reader, since what one has seen says
/// nothing about the other's server.
#[derive(Clone, Debug)]
pub struct SessionReader(Session);

enum Sent {
    Stat(Pending<Option<Stat>>),
    Children(Pending<Children>),
    Data(Pending<Data>),
}

impl SessionReader {
    /// Reads through the live session of `client`.
    ///
    /// # Errors
    /// [`SurveyError`].
    pub async fn of(client: &Client) -> Result<Self, SurveyError> {
        Ok(Self(client.session().await?))
    }

    /// Whether the session is over, so that another reader is needed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.state().is_final()
    }

    /// The id of the session.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.0.id()
    }
}

impl TreeReader for SessionReader {
    async fn read(&self, asks: &[Ask]) -> Result<Vec<Reply>, SurveyError> {
        let sent: Vec<Sent> = asks
            .iter()
            .map(|ask| match ask {
                Ask::Stat(path) => Sent::Stat(self.0.exists(path)),
                Ask::Children(path) => Sent::Children(self.0.children(path)),
                Ask::Data(path) => Sent::Data(self.0.get_data(path)),
            })
            .collect();
        let mut reply = Vec::with_capacity(sent.len());
        for sent in sent {
            let answer = match sent {
                Sent::Stat(reply) => reply
                    .await
                    .map(|stat| stat.map_or(Reply::Gone, Reply::Stat)),
                Sent::Children(reply) => reply.await.map(Reply::Children),
                Sent::Data(reply) => reply.await.map(Reply::Data),
            };
            reply.push(answer.or_else(refused)?);
        }
        Ok(reply)
    }

    async fn sync(&self) -> Result<(), SurveyError> {
        Ok(self.0.sync("/").await?)
    }

    fn last_zxid(&self) -> i64 {
        self.0.last_zxid()
    }
}

fn refused(error: Error) -> Result<Reply, SurveyError> {
    if error.is_no_node() {
        Ok(Reply::Gone)
    } else if error.is_no_auth() {
        Ok(Reply::Forbidden)
    } else {
        Err(error.into())
    }
}
