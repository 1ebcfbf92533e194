//! Nodes that a listing could not read.
//!
//! Owns what is said of them: each is named on standard error, and the exit code says that the
//! answer is not whole. One such node must never keep the others from being listed.

use baton_client::Error;

use crate::args::Context;
use crate::exit;

/// The nodes that one listing has passed over.
#[derive(Debug, Default)]
pub(super) struct PassedOver {
    any: bool,
}

impl PassedOver {
    /// Names a node, and why it could not be read.
    pub(super) fn add(&mut self, context: &Context, path: &str, error: &Error) {
        self.any = true;
        context.output.passed_over(path, &error.to_string());
    }

    /// Names several.
    pub(super) fn extend(&mut self, context: &Context, nodes: &[(String, Error)]) {
        for (path, error) in nodes {
            self.add(context, path, error);
        }
    }

    /// 0, or 1 where anything was passed over.
    pub(super) fn exit_code(&self) -> u8 {
        if self.any { exit::NOTHING } else { exit::OK }
    }
}
