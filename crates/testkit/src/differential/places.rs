//! Folders of programs: each has its own, so that one server can run many. Paths of the server
//! itself, and those that no server takes, stay as they are.

use std::collections::HashMap;

use baton_proto::{Create, MultiOp, Request};

/// The program's own folder, as a program names it.
pub(super) const FOLDER: &str = ".";

/// The same below the folder of all quotas, in a program's names.
pub(super) const QUOTA: &str = "quota";

/// The full path of every path that a program may name.
#[derive(Debug)]
pub(super) struct PathTable(HashMap<&'static str, String>);

impl PathTable {
    pub(super) fn new(folder: &str, paths: impl Iterator<Item = &'static str>) -> Self {
        let full = |path: &'static str| match path.strip_prefix(QUOTA) {
            Some(rest) => Some((path, format!("/zookeeper/quota{folder}{rest}"))),
            None if path.starts_with('/') => Some((path, format!("{folder}{path}"))),
            None => None,
        };
        let own = paths.filter_map(full);
        Self(own.chain([(FOLDER, folder.to_owned())]).collect())
    }

    fn at<'a>(&'a self, path: &'static str) -> &'a str {
        self.0.get(path).map_or(path, String::as_str)
    }

    fn all<'a>(&'a self, paths: &[&'static str]) -> Vec<&'a str> {
        paths.iter().map(|path| self.at(path)).collect()
    }

    fn create<'a>(&'a self, create: &Create<'static>) -> Create<'a> {
        Create {
            path: self.at(create.path),
            ..create.clone()
        }
    }

    fn multi<'a>(&'a self, ops: &[MultiOp<'static>]) -> Vec<MultiOp<'a>> {
        ops.iter()
            .map(|op| match *op {
                MultiOp::Create(ref create) => MultiOp::Create(self.create(create)),
                MultiOp::Delete { path, version } => MultiOp::Delete {
                    path: self.at(path),
                    version,
                },
                MultiOp::SetData {
                    path,
                    data,
                    version,
                } => MultiOp::SetData {
                    path: self.at(path),
                    data,
                    version,
                },
                MultiOp::Check { path, version } => MultiOp::Check {
                    path: self.at(path),
                    version,
                },
                MultiOp::GetData { path, watch } => MultiOp::GetData {
                    path: self.at(path),
                    watch,
                },
                MultiOp::GetChildren { path, watch } => MultiOp::GetChildren {
                    path: self.at(path),
                    watch,
                },
            })
            .collect()
    }

    /// A request that sets this data.
    pub(super) fn with_data<'a>(&'a self, path: &'static str, data: &'a [u8]) -> Request<'a> {
        Request::SetData {
            path: self.at(path),
            data: Some(data),
            version: -1,
        }
    }

    /// The request with full paths, and with its `relative_zxid` counted from `base`.
    pub(super) fn request<'a>(&'a self, request: &Request<'static>, base: i64) -> Request<'a> {
        match *request {
            Request::Create(ref create) => Request::Create(self.create(create)),
            Request::Delete { path, version } => Request::Delete {
                path: self.at(path),
                version,
            },
            Request::Exists { path, watch } => Request::Exists {
                path: self.at(path),
                watch,
            },
            Request::GetData { path, watch } => Request::GetData {
                path: self.at(path),
                watch,
            },
            Request::SetData {
                path,
                data,
                version,
            } => Request::SetData {
                path: self.at(path),
                data,
                version,
            },
            Request::GetAcl { path } => Request::GetAcl {
                path: self.at(path),
            },
            Request::SetAcl {
                path,
                ref acl,
                version,
            } => Request::SetAcl {
                path: self.at(path),
                acl: acl.clone(),
                version,
            },
            Request::GetChildren { path, watch } => Request::GetChildren {
                path: self.at(path),
                watch,
            },
            Request::GetChildren2 { path, watch } => Request::GetChildren2 {
                path: self.at(path),
                watch,
            },
            Request::Sync { path } => Request::Sync {
                path: self.at(path),
            },
            Request::Check { path, version } => Request::Check {
                path: self.at(path),
                version,
            },
            Request::Multi(ref ops) => Request::Multi(self.multi(ops)),
            Request::MultiRead(ref ops) => Request::MultiRead(self.multi(ops)),
            Request::CheckWatches { path, kind } => Request::CheckWatches {
                path: self.at(path),
                kind,
            },
            Request::RemoveWatches { path, kind } => Request::RemoveWatches {
                path: self.at(path),
                kind,
            },
            Request::DeleteContainer { path } => Request::DeleteContainer {
                path: self.at(path),
            },
            Request::GetEphemerals { prefix } => Request::GetEphemerals {
                prefix: self.at(prefix),
            },
            Request::GetAllChildrenNumber { path } => Request::GetAllChildrenNumber {
                path: self.at(path),
            },
            Request::AddWatch { path, mode } => Request::AddWatch {
                path: self.at(path),
                mode,
            },
            Request::SetWatches {
                relative_zxid,
                ref data,
                ref exist,
                ref child,
            } => Request::SetWatches {
                relative_zxid: relative_zxid + base,
                data: self.all(data),
                exist: self.all(exist),
                child: self.all(child),
            },
            Request::SetWatches2 {
                relative_zxid,
                ref data,
                ref exist,
                ref child,
                ref persistent,
                ref persistent_recursive,
            } => Request::SetWatches2 {
                relative_zxid: relative_zxid + base,
                data: self.all(data),
                exist: self.all(exist),
                child: self.all(child),
                persistent: self.all(persistent),
                persistent_recursive: self.all(persistent_recursive),
            },
            ref other => other.clone(),
        }
    }
}
