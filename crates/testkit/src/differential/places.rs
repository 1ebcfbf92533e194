//! Folders of programs: each has its own, so that one server can run many. Paths of the server
//! itself, and those that no server takes, stay as they are.

use std::collections::HashMap;

use baton_proto::{MultiOp, Request};

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

    fn at<'a>(&'a self, path: &'a str) -> &'a str {
        self.0.get(path).map_or(path, String::as_str)
    }

    fn put_in<'a>(&'a self, path: &mut &'a str) {
        *path = self.at(path);
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
        let mut request: Request<'a> = request.clone();
        match &mut request {
            Request::Create(create) => self.put_in(&mut create.path),
            Request::Delete { path, .. }
            | Request::Exists { path, .. }
            | Request::GetData { path, .. }
            | Request::SetData { path, .. }
            | Request::GetAcl { path }
            | Request::SetAcl { path, .. }
            | Request::GetChildren { path, .. }
            | Request::GetChildren2 { path, .. }
            | Request::Sync { path }
            | Request::Check { path, .. }
            | Request::CheckWatches { path, .. }
            | Request::RemoveWatches { path, .. }
            | Request::DeleteContainer { path }
            | Request::GetEphemerals { prefix: path }
            | Request::GetAllChildrenNumber { path }
            | Request::AddWatch { path, .. } => self.put_in(path),
            Request::Multi(ops) | Request::MultiRead(ops) => {
                for op in ops {
                    match op {
                        MultiOp::Create(create) => self.put_in(&mut create.path),
                        MultiOp::Delete { path, .. }
                        | MultiOp::SetData { path, .. }
                        | MultiOp::Check { path, .. }
                        | MultiOp::GetData { path, .. }
                        | MultiOp::GetChildren { path, .. } => self.put_in(path),
                    }
                }
            }
            Request::SetWatches {
                relative_zxid,
                data,
                exist,
                child,
            } => {
                *relative_zxid += base;
                for path in [data, exist, child].into_iter().flatten() {
                    self.put_in(path);
                }
            }
            Request::SetWatches2 {
                relative_zxid,
                data,
                exist,
                child,
                persistent,
                persistent_recursive,
            } => {
                *relative_zxid += base;
                let lists = [data, exist, child, persistent, persistent_recursive];
                for path in lists.into_iter().flatten() {
                    self.put_in(path);
                }
            }
            _ => {}
        }
        request
    }
}
