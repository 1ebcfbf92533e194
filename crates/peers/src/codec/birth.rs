//! The start of a cluster from a static list: what each server reports, and the first membership.

use baton_consensus::Membership;

use crate::codec::input::{Input, Malformed};
use crate::codec::pieces::FrameBody;

/// A number that stands for a list of servers: the same for the same ids and addresses in any
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListFingerprint(pub u64);

/// Report of a server while a cluster is to be started from a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BootstrapReport {
    /// The list that the server was started with.
    pub list: ListFingerprint,
    /// The cluster that its data folder belongs to; 0: the folder is empty.
    pub cluster: u64,
    /// The incarnation of its data folder.
    pub incarnation: u128,
    /// The incarnation of the one server from which this one will accept a membership; 0: it has
    /// promised that to nobody yet.
    pub promised: u128,
}

impl BootstrapReport {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.list.0);
        out.u64(self.cluster);
        out.u128(self.incarnation);
        out.u128(self.promised);
    }

    pub(crate) fn read(input: &mut Input) -> Result<BootstrapReport, Malformed> {
        let report = BootstrapReport {
            list: ListFingerprint(input.u64()?),
            cluster: input.u64()?,
            incarnation: input.u128()?,
            promised: input.u128()?,
        };
        if report.incarnation == 0 {
            return Err("its incarnation is 0");
        }
        Ok(report)
    }
}

/// The first membership of a cluster; each member stores it as its first snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitialMembership {
    /// The cluster's id; never 0.
    pub cluster: u64,
    /// Its members, with their incarnations and addresses.
    pub membership: Membership,
}

impl InitialMembership {
    pub(crate) fn write(&self, out: &mut FrameBody) {
        out.u64(self.cluster);
        out.slice(&self.membership.encode());
    }

    pub(crate) fn read(input: &mut Input) -> Result<InitialMembership, Malformed> {
        let cluster = input.u64()?;
        if cluster == 0 {
            return Err("its cluster id is 0");
        }
        let membership =
            Membership::decode(&input.rest()).map_err(|_| "its membership cannot be read")?;
        Ok(InitialMembership {
            cluster,
            membership,
        })
    }
}
