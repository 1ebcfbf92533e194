//! Work that may be done by several threads at once. The crate starts none: its caller lends them.

use std::fmt;

/// A piece of work.
pub type Piece<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Runs pieces of work that do not depend on each other.
pub trait Executor: fmt::Debug {
    /// Number of pieces that run at once; work is split into as many.
    fn width(&self) -> usize;

    /// Runs all pieces to their end.
    fn run(&self, pieces: Vec<Piece<'_>>);
}

/// Runs one piece after the other, in the caller's thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequential;

impl Executor for Sequential {
    fn width(&self) -> usize {
        1
    }

    fn run(&self, pieces: Vec<Piece<'_>>) {
        for piece in pieces {
            piece();
        }
    }
}
