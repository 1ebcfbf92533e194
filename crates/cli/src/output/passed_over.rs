//! Nodes that a listing could not read.
//!
//! Owns what is said of them: each is named on standard error, and the exit code says that the
//! answer is not whole. One such node must never keep the others from being listed.

use std::fmt::Display;

use baton::inspect::UnreadableNode;

use crate::exit;
use crate::output::Output;

/// The nodes that one listing has passed over.
#[derive(Debug, Default)]
pub(crate) struct PassedOver {
    any: bool,
}

impl PassedOver {
    /// Names a node, and why it could not be read.
    pub(crate) fn add(&mut self, output: &Output, path: &str, error: &impl Display) {
        self.any = true;
        output.passed_over(path, &error.to_string());
    }

    /// Names several.
    pub(crate) fn extend(&mut self, output: &Output, nodes: &[UnreadableNode]) {
        for node in nodes {
            self.add(output, &node.path, &node.error);
        }
    }

    /// 0, or 1 where anything was passed over.
    pub(crate) fn exit_code(&self) -> u8 {
        if self.any { exit::NOTHING } else { exit::OK }
    }
}
