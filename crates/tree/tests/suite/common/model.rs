//! The tree as naively as it can be written: a map from path to znode; children are found by
//! comparing every path; a multi works on a copy. Slow, and short enough to be believed.

use std::collections::BTreeMap;

use baton_proto::{
    Acl, Create, ErrorCode, MultiOp, MultiResult, Perms, Request, Response, Stat, path,
};
use baton_tree::{ChangeKind, Identity};

use super::RecordedChange;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Lifetime {
    Stays,
    Session(i64),
    Container,
    Ttl(i64),
}

#[derive(Debug, Clone)]
struct Znode {
    data: Option<Vec<u8>>,
    acl: Vec<Acl<'static>>,
    life: Lifetime,
    creates: i64,
    stat: Stat,
}

#[derive(Debug, Clone, Default)]
pub struct Model {
    znodes: BTreeMap<String, Znode>,
    sessions: BTreeMap<i64, ([u8; 16], i32)>,
    pub zxid: i64,
    pub seen: Vec<RecordedChange>,
    refuses_used_ids: bool,
    newest_session: i64,
}

pub struct Principal<'a> {
    pub time_ms: i64,
    pub session: i64,
    pub identity: &'a Identity,
}

/// Path, data, stat and ACL.
pub type ZnodeView = (String, Option<Vec<u8>>, Stat, Vec<Acl<'static>>);

type Answer<T> = Result<T, ErrorCode>;

fn allowed(acl: &[Acl<'_>], identity: &Identity, perms: Perms) -> bool {
    identity.is_super()
        || acl.iter().any(|entry| {
            let me = entry.scheme == "world"
                || identity
                    .ids()
                    .any(|id| id.scheme == entry.scheme && id.id == entry.id);
            me && entry.perms.0 & perms.0 != 0
        })
}

fn expand(acl: Option<&[Acl<'_>]>, identity: &Identity) -> Answer<Vec<Acl<'static>>> {
    let mut unique: Vec<Acl<'_>> = Vec::new();
    for entry in acl.unwrap_or_default() {
        if !unique.contains(entry) {
            unique.push(entry.clone());
        }
    }
    let mut expanded = Vec::new();
    for entry in unique {
        let added: Vec<Acl<'static>> = match entry.scheme.as_ref() {
            "auth" => identity
                .ids()
                .filter(|id| id.scheme == "digest")
                .map(|id| Acl::new(entry.perms, "digest", id.id.clone()))
                .collect(),
            "world" | "digest" => vec![entry.into_owned()],
            _ => vec![],
        };
        if added.is_empty() {
            return Err(ErrorCode::InvalidAcl);
        }
        expanded.extend(added);
    }
    if expanded.is_empty() {
        return Err(ErrorCode::InvalidAcl);
    }
    Ok(expanded)
}

fn bump(version: i32, expected: i32) -> Answer<i32> {
    if expected != -1 && version != expected {
        return Err(ErrorCode::BadVersion);
    }
    Ok(if version == -2 { 0 } else { version + 1 })
}

fn parent_of(path: &str) -> Answer<String> {
    let slash = path.rfind('/').ok_or(ErrorCode::BadArguments)?;
    Ok(if slash == 0 { "/" } else { &path[..slash] }.to_owned())
}

impl Model {
    pub fn new(refuses_used_ids: bool) -> Self {
        let mut model = Self {
            refuses_used_ids,
            ..Self::default()
        };
        for path in ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"] {
            let config = path.ends_with("config");
            model.znodes.insert(
                path.to_owned(),
                Znode {
                    data: Some(vec![]),
                    acl: vec![if config {
                        Acl::read_unsafe()
                    } else {
                        Acl::open_unsafe()
                    }],
                    life: Lifetime::Stays,
                    creates: 0,
                    stat: Stat {
                        aversion: if config { -1 } else { 0 },
                        ..Stat::default()
                    },
                },
            );
        }
        model
    }

    pub fn children(&self, parent: &str) -> Vec<String> {
        self.znodes
            .keys()
            .filter(|path| *path != "/" && path::parent(path) == parent)
            .map(|path| path::name(path).to_owned())
            .collect()
    }

    fn get(&self, path: &str) -> Answer<&Znode> {
        self.znodes.get(path).ok_or(ErrorCode::NoNode)
    }

    fn permitted(&self, path: &str, who: &Principal<'_>, perms: Perms) -> Answer<&Znode> {
        let znode = self.get(path)?;
        if allowed(&znode.acl, who.identity, perms) {
            Ok(znode)
        } else {
            Err(ErrorCode::NoAuth)
        }
    }

    fn stat(&self, path: &str) -> Stat {
        let znode = &self.znodes[path];
        let children = self.children(path).len() as i64;
        Stat {
            cversion: (2 * znode.creates - children) as i32,
            num_children: children as i32,
            data_length: znode.data.as_ref().map_or(0, Vec::len) as i32,
            ephemeral_owner: match znode.life {
                Lifetime::Session(session) => session,
                _ => 0,
            },
            ..znode.stat
        }
    }

    fn record(&mut self, kind: ChangeKind, path: &str, acl: Vec<Acl<'static>>) {
        self.seen.push(RecordedChange {
            kind,
            path: path.to_owned(),
            zxid: self.zxid,
            acl,
        });
    }

    pub fn open(&mut self, session: i64, password: [u8; 16], timeout_ms: i32) -> Answer<Response> {
        self.zxid += 1;
        let is_used = self.refuses_used_ids && session <= self.newest_session;
        if is_used || self.sessions.contains_key(&session) {
            return Err(ErrorCode::BadArguments);
        }
        self.newest_session = session.max(self.newest_session);
        self.sessions.insert(session, (password, timeout_ms));
        Ok(Response::Empty)
    }

    pub fn reattach(
        &mut self,
        session: i64,
        password: [u8; 16],
        timeout_ms: i32,
    ) -> Answer<Response> {
        match self.sessions.get_mut(&session) {
            Some(known) if known.0 == password => {
                known.1 = timeout_ms;
                Ok(Response::Empty)
            }
            _ => Err(ErrorCode::SessionExpired),
        }
    }

    pub fn close(&mut self, session: i64) -> Answer<Response> {
        self.zxid += 1;
        self.sessions
            .remove(&session)
            .ok_or(ErrorCode::SessionExpired)?;
        let doomed: Vec<String> = self
            .znodes
            .iter()
            .filter(|(_, znode)| znode.life == Lifetime::Session(session))
            .map(|(path, _)| path.clone())
            .collect();
        for path in doomed {
            self.remove(&path);
        }
        Ok(Response::Empty)
    }

    pub fn reap(&mut self, who: &Principal<'_>, path: &str, czxid: i64) -> Answer<Response> {
        self.zxid += 1;
        let znode = self.get(path)?;
        if !self.children(path).is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        let due = match znode.life {
            Lifetime::Container => true,
            Lifetime::Ttl(ttl_ms) => who.time_ms - znode.stat.mtime > ttl_ms,
            _ => false,
        };
        if !due || znode.stat.czxid != czxid {
            return Err(ErrorCode::BadVersion);
        }
        self.remove(path);
        Ok(Response::Empty)
    }

    /// Value of this key in a quota's text; -1 is nothing.
    fn value_of(text: &str, key: &str) -> i64 {
        text.split([',', ';'])
            .filter_map(|pair| pair.split_once('='))
            .find(|(name, _)| *name == key)
            .map_or(-1, |(_, value)| {
                value.trim_end_matches('=').parse().unwrap()
            })
    }

    /// The paths with a quota, and its text.
    fn quotas(&self) -> Vec<(String, String)> {
        let limits = self.znodes.iter().filter_map(|(path, znode)| {
            let of = path
                .strip_prefix("/zookeeper/quota")?
                .strip_suffix("/zookeeper_limits")?;
            let text = String::from_utf8(znode.data.clone().unwrap()).unwrap();
            Some((of.to_owned(), text))
        });
        limits.collect()
    }

    fn weigh(&self, of: &str) -> (i64, i64) {
        let below = self
            .znodes
            .iter()
            .filter(|(path, _)| path::is_at_or_below(path, of));
        below.fold((0, 0), |(count, bytes), (_, znode)| {
            let data = znode.data.as_ref().map_or(0, Vec::len);
            (count + 1, bytes + data as i64)
        })
    }

    fn within_quota(&self, path: &str, count: i64, bytes: i64) -> Answer<()> {
        for (of, text) in self.quotas() {
            let used = self.weigh(&of);
            let hard = |key, used: i64, more: i64| {
                let limit = Self::value_of(&text, key);
                more != 0 && limit >= 0 && used + more > limit
            };
            if path::is_at_or_below(path, &of)
                && (hard("countHardLimit", used.0, count) || hard("byteHardLimit", used.1, bytes))
            {
                return Err(ErrorCode::QuotaExceeded);
            }
        }
        Ok(())
    }

    fn count_quotas(&mut self) {
        for (of, _) in self.quotas() {
            let (count, bytes) = self.weigh(&of);
            let stats = format!("/zookeeper/quota{of}/zookeeper_stats");
            if let Some(stats) = self.znodes.get_mut(&stats) {
                stats.data = Some(format!("count={count},bytes={bytes}").into_bytes());
            }
        }
    }

    fn remove(&mut self, path: &str) {
        let znode = self.znodes.remove(path).unwrap();
        let parent = path::parent(path);
        let above = self.znodes.get_mut(parent).unwrap();
        above.stat.pzxid = self.zxid;
        let parent_acl = above.acl.clone();
        self.record(ChangeKind::Deleted, path, znode.acl);
        self.record(ChangeKind::ChildrenChanged, parent, parent_acl);
        self.count_quotas();
    }

    pub fn write(&mut self, who: &Principal<'_>, request: &Request<'_>) -> Answer<Response> {
        self.zxid += 1;
        if !self.sessions.contains_key(&who.session) {
            return Err(ErrorCode::SessionExpired);
        }
        match request {
            Request::Create(create) => {
                let (path, stat) = self.create(who, create)?;
                Ok(match create.op.op() {
                    baton_proto::OpCode::Create => Response::Path(path),
                    _ => Response::PathStat(path, stat),
                })
            }
            Request::Delete { path, version } => {
                self.delete(who, path, *version)?;
                Ok(Response::Empty)
            }
            Request::SetData {
                path,
                data,
                version,
            } => Ok(Response::Stat(self.set(who, path, *data, *version)?)),
            Request::SetAcl { path, acl, version } => {
                path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
                let acl = expand(acl.as_deref(), who.identity)?;
                let znode = self.permitted(path, who, Perms::ADMIN)?;
                let aversion = bump(znode.stat.aversion, *version)?;
                let znode = self.znodes.get_mut(*path).unwrap();
                znode.stat.aversion = aversion;
                znode.acl = acl;
                Ok(Response::Stat(self.stat(path)))
            }
            Request::Multi(ops) => Ok(Response::Multi(self.multi(who, ops))),
            _ => Err(ErrorCode::Unimplemented),
        }
    }

    fn multi(&mut self, who: &Principal<'_>, ops: &[MultiOp<'_>]) -> Vec<MultiResult> {
        let before = self.clone();
        let mut results = Vec::new();
        for (place, op) in ops.iter().enumerate() {
            let result = match op {
                MultiOp::Create(create) => self.create(who, create).map(|(path, stat)| {
                    if create.op.op() == baton_proto::OpCode::Create {
                        MultiResult::Create { path }
                    } else {
                        MultiResult::Create2 { path, stat }
                    }
                }),
                MultiOp::Delete { path, version } => self
                    .delete(who, path, *version)
                    .map(|()| MultiResult::Delete),
                MultiOp::SetData {
                    path,
                    data,
                    version,
                } => self
                    .set(who, path, *data, *version)
                    .map(MultiResult::SetData),
                MultiOp::Check { path, version } => path::validate(path)
                    .map_err(|_| ErrorCode::BadArguments)
                    .and_then(|()| self.permitted(path, who, Perms::READ))
                    .and_then(|znode| bump(znode.stat.version, *version))
                    .map(|_| MultiResult::Check),
                _ => Err(ErrorCode::Unimplemented),
            };
            match result {
                Ok(result) => results.push(result),
                Err(code) => {
                    *self = before;
                    return MultiResult::failure(ops.len(), place, code);
                }
            }
        }
        results
    }

    fn create(&mut self, who: &Principal<'_>, create: &Create<'_>) -> Answer<(String, Stat)> {
        let mode = create.mode()?;
        let parent = parent_of(create.path)?;
        let acl = expand(create.acl.as_deref(), who.identity)?;
        let above = self.permitted(&parent, who, Perms::CREATE)?;
        let path = if mode.is_sequential() {
            format!("{}{:010}", create.path, above.creates)
        } else {
            create.path.to_owned()
        };
        path::validate(&path).map_err(|_| ErrorCode::BadArguments)?;
        if self.znodes.contains_key(&path) {
            return Err(ErrorCode::NodeExists);
        }
        if matches!(above.life, Lifetime::Session(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let bytes = create.data.map_or(0, <[u8]>::len) as i64;
        self.within_quota(&path, 1, bytes)?;
        let zxid = self.zxid;
        let above = self.znodes.get_mut(&parent).unwrap();
        above.creates += 1;
        above.stat.pzxid = zxid;
        let parent_acl = above.acl.clone();
        self.znodes.insert(
            path.clone(),
            Znode {
                data: create.data.map(<[u8]>::to_vec),
                acl: acl.clone(),
                life: if mode.is_ephemeral() {
                    Lifetime::Session(who.session)
                } else if mode.is_container() {
                    Lifetime::Container
                } else {
                    mode.ttl_ms().map_or(Lifetime::Stays, Lifetime::Ttl)
                },
                creates: 0,
                stat: Stat {
                    czxid: zxid,
                    mzxid: zxid,
                    pzxid: zxid,
                    ctime: who.time_ms,
                    mtime: who.time_ms,
                    ..Stat::default()
                },
            },
        );
        self.record(ChangeKind::Created, &path, acl);
        self.record(ChangeKind::ChildrenChanged, &parent, parent_acl);
        let stat = self.stat(&path);
        self.count_quotas();
        Ok((path, stat))
    }

    fn delete(&mut self, who: &Principal<'_>, path: &str, version: i32) -> Answer<()> {
        let parent = parent_of(path)?;
        if ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"].contains(&path) {
            return Err(ErrorCode::BadArguments);
        }
        self.get(&parent)?;
        self.permitted(&parent, who, Perms::DELETE)?;
        bump(self.get(path)?.stat.version, version)?;
        if !self.children(path).is_empty() {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(path);
        Ok(())
    }

    fn set(
        &mut self,
        who: &Principal<'_>,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
    ) -> Answer<Stat> {
        path::validate(path).map_err(|_| ErrorCode::BadArguments)?;
        let znode = self.permitted(path, who, Perms::WRITE)?;
        let length = |data: Option<&[u8]>| data.map_or(0, <[u8]>::len) as i64;
        let growth = length(data) - length(znode.data.as_deref());
        self.within_quota(path, 0, growth)?;
        let version = bump(znode.stat.version, version)?;
        let zxid = self.zxid;
        let znode = self.znodes.get_mut(path).unwrap();
        znode.data = data.map(<[u8]>::to_vec);
        znode.stat.version = version;
        znode.stat.mzxid = zxid;
        znode.stat.mtime = who.time_ms;
        let acl = znode.acl.clone();
        self.record(ChangeKind::DataChanged, path, acl);
        self.count_quotas();
        Ok(self.stat(path))
    }

    /// Path, data, stat and ACL of every znode, by path.
    pub fn all(&self) -> Vec<ZnodeView> {
        self.znodes
            .iter()
            .map(|(path, znode)| {
                let stat = self.stat(path);
                (path.clone(), znode.data.clone(), stat, znode.acl.clone())
            })
            .collect()
    }

    /// Sessions with their ephemerals.
    pub fn owners(&self) -> Vec<(i64, i32, Vec<String>)> {
        self.sessions
            .iter()
            .map(|(id, (_, timeout_ms))| {
                let owned = self
                    .znodes
                    .iter()
                    .filter(|(_, znode)| znode.life == Lifetime::Session(*id))
                    .map(|(path, _)| path.clone())
                    .collect();
                (*id, *timeout_ms, owned)
            })
            .collect()
    }

    /// czxid of a znode, 0 if there is none.
    pub fn czxid(&self, path: &str) -> i64 {
        self.znodes.get(path).map_or(0, |znode| znode.stat.czxid)
    }
}
