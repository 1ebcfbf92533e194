//! Admission of servers: the rules for a hello, the same on both sides. Sans-I/O.
//!
//! A connection between two servers of one cluster is refused when a data folder is not the one
//! with which its server became a member (R17), or is an older copy of it whose server does not
//! know that yet (R19). Two servers without a cluster may connect: that is how a cluster starts.

use crate::codec::{Hello, Lane, LogProof, ProtocolRange, Refusal};

/// The highest id of a server. Session ids have it in their highest byte and stay positive.
pub const MAX_SERVER_ID: u64 = 127;

/// Knowledge of this server about a member of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownMember {
    /// Its id.
    pub id: u64,
    /// The incarnation with which it became a member; 0: not known.
    pub incarnation: u128,
    /// The newest *committed* entry that it has acknowledged to this server; 0 for none. An
    /// uncommitted entry does not count: a later leader may have replaced it.
    pub acknowledged_index: u64,
}

/// This server as it greets others, and its knowledge of them. The owner keeps it current.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// The versions of the protocol that it speaks.
    pub protocol: ProtocolRange,
    /// Its id.
    pub id: u64,
    /// The incarnation of its data folder; never 0.
    pub incarnation: u128,
    /// A number that is drawn when the process starts, so that two processes have different ones;
    /// never 0.
    pub run: u64,
    /// Its cluster; 0: none yet, the data folder is empty.
    pub cluster: u64,
    /// Its term.
    pub term: u64,
    /// The log entry of the newest membership that it has applied; 0 for none.
    pub membership_index: u64,
    /// The newest entry of its log that is on disk.
    pub last_index: u64,
    /// The highest format level that it can read.
    pub level: u32,
    /// The members of its cluster; empty before it has one.
    pub members: Vec<KnownMember>,
    /// Address at which other servers reach it; empty if not known.
    pub address: String,
    /// Proof of what the members have committed and acknowledged.
    pub proof: LogProof,
}

impl LocalServer {
    /// A server with an empty data folder.
    pub fn new(id: u64, incarnation: u128, run: u64) -> LocalServer {
        LocalServer {
            protocol: ProtocolRange::THIS,
            id,
            incarnation,
            run,
            cluster: 0,
            term: 0,
            membership_index: 0,
            last_index: 0,
            level: 1,
            members: Vec::new(),
            address: String::new(),
            proof: LogProof::default(),
        }
    }

    /// Returns the hello for the server `to`.
    pub fn hello(&self, to: u64, lane: Lane, nonce: u64, wall_ms: i64) -> Hello {
        Hello {
            protocol: self.protocol,
            lane,
            nonce,
            run: self.run,
            cluster: self.cluster,
            from: self.id,
            to,
            incarnation: self.incarnation,
            to_incarnation: self.member(to).map_or(0, |member| member.incarnation),
            term: self.term,
            membership_index: self.membership_index,
            last_index: self.last_index,
            wall_ms,
            level: self.level,
            address: self.address.clone(),
            proof: self.proof,
        }
    }

    /// Returns whether both speak a version of the protocol. To be asked before the rest of a hello
    /// is read.
    ///
    /// # Errors
    /// [`Refusal::Protocol`].
    pub fn check_protocol(&self, other: ProtocolRange) -> Result<u16, Refusal> {
        self.protocol.common(other).ok_or(Refusal::Protocol {
            this: self.protocol,
            other,
        })
    }

    /// Returns whether the server that says this may connect, or may be connected to.
    ///
    /// # Errors
    /// [`Refusal`] says why not.
    pub fn check(&self, hello: &Hello) -> Result<(), Refusal> {
        self.check_protocol(hello.protocol)?;
        self.check_ids(hello)?;
        self.check_membership(hello)?;
        self.check_log(hello)
    }

    /// Returns whether the server that said this when it connected may stay, by the membership of
    /// now.
    pub fn still_admits(&self, hello: &Hello) -> bool {
        self.check_membership(hello).is_ok()
    }

    /// Returns whether this server is to connect to the one that says this at the address that it
    /// says, because it cannot know that server yet: the other one has applied a newer membership.
    /// It may lead, and needs answers before this server can know of it (R41).
    pub fn calls_back(&self, hello: &Hello) -> bool {
        let is_known = self.member(hello.from).is_some_and(|member| {
            member.incarnation == 0 || member.incarnation == hello.incarnation
        });
        hello.membership_index > self.membership_index && !is_known && !hello.address.is_empty()
    }

    fn check_ids(&self, hello: &Hello) -> Result<(), Refusal> {
        for id in [hello.from, hello.to] {
            if id == 0 || id > MAX_SERVER_ID {
                return Err(Refusal::BadId { id });
            }
        }
        if hello.to != self.id {
            return Err(Refusal::WrongServer {
                expected: hello.to,
                found: self.id,
            });
        }
        if hello.from == self.id {
            return Err(Refusal::SameId { id: self.id });
        }
        Ok(())
    }

    fn check_membership(&self, hello: &Hello) -> Result<(), Refusal> {
        // Anyone who has applied a newer membership may know a member, or an incarnation, that the
        // other does not know yet.
        let is_newer = hello.membership_index > self.membership_index;
        let is_older = hello.membership_index < self.membership_index;
        match (self.cluster, hello.cluster) {
            (0, 0) => Ok(()),
            (0, cluster) => match hello.to_incarnation {
                0 => Err(Refusal::NotAMember {
                    id: self.id,
                    cluster,
                    membership_index: hello.membership_index,
                }),
                member => self.check_own_incarnation(cluster, member),
            },
            (cluster, 0) => self.check_their_incarnation(hello, cluster),
            (this, other) if this != other => Err(Refusal::OtherCluster { this, other }),
            (cluster, _) => {
                if !is_newer {
                    self.check_their_incarnation(hello, cluster)?;
                }
                match hello.to_incarnation {
                    0 => Ok(()),
                    _ if is_older => Ok(()),
                    member => self.check_own_incarnation(cluster, member),
                }
            }
        }
    }

    fn check_own_incarnation(&self, cluster: u64, member: u128) -> Result<(), Refusal> {
        if member == self.incarnation {
            return Ok(());
        }
        Err(Refusal::other_incarnation(
            self.id,
            cluster,
            member,
            self.incarnation,
        ))
    }

    fn check_their_incarnation(&self, hello: &Hello, cluster: u64) -> Result<(), Refusal> {
        match self.member(hello.from) {
            None => Err(Refusal::NotAMember {
                id: hello.from,
                cluster,
                membership_index: self.membership_index,
            }),
            Some(member) if member.incarnation == hello.incarnation => Ok(()),
            // A member of the time before incarnations; an empty folder is not one of those.
            Some(member) if member.incarnation == 0 && hello.cluster != 0 => Ok(()),
            Some(member) => Err(Refusal::other_incarnation(
                hello.from,
                cluster,
                member.incarnation,
                hello.incarnation,
            )),
        }
    }

    /// A server whose folder was rolled back is refused once, by which it hears how far it was.
    /// Once it says so itself it does not vote, and may receive what it lacks.
    fn check_log(&self, hello: &Hello) -> Result<(), Refusal> {
        match self.member(hello.from) {
            Some(member)
                if member.incarnation == hello.incarnation
                    && hello.last_index.max(hello.proof.acknowledged_index)
                        < member.acknowledged_index =>
            {
                Err(Refusal::OlderCopy {
                    id: hello.from,
                    acknowledged: member.acknowledged_index,
                    last: hello.last_index,
                })
            }
            _ => Ok(()),
        }
    }

    fn member(&self, id: u64) -> Option<&KnownMember> {
        self.members.iter().find(|member| member.id == id)
    }
}
