//! Equalizes what may differ between two servers that agree: session ids, times, and the order of
//! lists without one. zxids may not differ: both servers count every write, failed or not, so they
//! are counted from the program's begin.

use baton_proto::{MultiResult, Response, Stat};

/// Any zxid from before the program and its folders.
const EARLIER: i64 = -1_000_000;

/// Facts of a run that make its answers comparable.
#[derive(Debug)]
pub(super) struct Normalizer {
    /// The zxid when the program began.
    pub(super) base: i64,
    /// Every session of the program, in the order in which they were opened.
    pub(super) sessions: Vec<i64>,
}

impl Normalizer {
    pub(super) fn zxid(&self, zxid: i64) -> i64 {
        match zxid {
            ..=0 => zxid,
            _ if zxid < self.base - 1 => EARLIER,
            _ => zxid - self.base,
        }
    }

    pub(super) fn response(&self, mut response: Response) -> Response {
        match &mut response {
            Response::PathStat(_, stat)
            | Response::Stat(stat)
            | Response::Data { stat, .. }
            | Response::Acl { stat, .. } => *stat = self.stat(*stat),
            Response::Children(names) | Response::Strings(names) => names.sort(),
            Response::Children2 { children, stat } => {
                children.sort();
                *stat = self.stat(*stat);
            }
            Response::Multi(results) => {
                for result in results {
                    match result {
                        MultiResult::Create2 { stat, .. }
                        | MultiResult::SetData(stat)
                        | MultiResult::Data { stat, .. } => *stat = self.stat(*stat),
                        MultiResult::Children(names) => names.sort(),
                        _ => {}
                    }
                }
            }
            Response::WhoAmI(infos) => {
                infos.sort_by(|a, b| (&a.scheme, &a.user).cmp(&(&b.scheme, &b.user)));
            }
            _ => {}
        }
        response
    }

    fn stat(&self, stat: Stat) -> Stat {
        let owner = stat.ephemeral_owner;
        let number = self.sessions.iter().position(|session| *session == owner);
        Stat {
            czxid: self.zxid(stat.czxid),
            mzxid: self.zxid(stat.mzxid),
            pzxid: self.zxid(stat.pzxid),
            ctime: i64::from(stat.ctime != 0),
            mtime: i64::from(stat.mtime != 0),
            ephemeral_owner: number.map_or(owner, |number| {
                i64::try_from(number).unwrap_or(i64::MAX - 1) + 1
            }),
            ..stat
        }
    }
}
