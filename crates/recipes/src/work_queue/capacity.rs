//! The capacity of a bounded queue.
//!
//! Owns the promise that puts never take the queue over its capacity. Each put to a bounded queue
//! is one multi with an update of the gate, conditioned on the version that the count was read at,
//! so puts have an order and each sees what those before it added. Between counts the gate holds an
//! upper bound: consumers only ever take away, and need not touch it.

use super::context::{Fault, Inner};
use super::error::WorkError;
use super::layout::Lane;
use baton_client::{Op, Session};
use serde::{Deserialize, Serialize};

/// The gate's node as this process knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    pub version: i32,
    pub items: u64,
}

#[derive(Serialize, Deserialize)]
struct Written {
    items: u64,
}

impl Count {
    pub(super) fn empty() -> Vec<u8> {
        Self::bytes(0)
    }

    /// More than any capacity: whoever puts next has to count.
    pub(super) fn unknown() -> Vec<u8> {
        Self::bytes(u64::MAX)
    }

    fn bytes(items: u64) -> Vec<u8> {
        // Numbers always have a JSON form.
        serde_json::to_vec(&Written { items }).unwrap_or_default()
    }

    /// The gate after `more` items, and the parts of the multi that make it so.
    pub(super) fn let_in(self, gate: &str, more: u64) -> (Self, Vec<Op>) {
        let items = self.items.saturating_add(more);
        let set = |version| Op::set_data(gate, Self::bytes(items), version);
        let mut parts = vec![set(Some(self.version))];
        let mut version = self.version.wrapping_add(1);
        if version == -1 {
            // Nobody can ask for it: two writes at one instant leave it behind (H24).
            parts.push(set(None));
            version = 0;
        }
        (Self { version, items }, parts)
    }
}

impl Inner {
    /// A count that leaves room for `more` items under `capacity`.
    pub(super) async fn room(
        &self,
        session: &Session,
        known: Option<Count>,
        more: u64,
        capacity: u64,
    ) -> Result<Count, Fault> {
        let fits = |items: u64| items.saturating_add(more) <= capacity;
        if let Some(count) = known
            && fits(count.items)
        {
            return Ok(count);
        }
        let read = session.get_data(&self.layout.gate).await?;
        let version = read.stat.version;
        let bound = serde_json::from_slice(&read.data).map(|written: Written| written.items);
        if let Ok(items) = bound
            && fits(items)
        {
            return Ok(Count { version, items });
        }
        // Behind the gate's version: what is put from now on fails on it, so the count can only be
        // too large.
        let items = self.count(session).await?;
        if fits(items) {
            Ok(Count { version, items })
        } else {
            Err(WorkError::Full {
                path: self.path(),
                capacity,
            }
            .into())
        }
    }

    /// How many items there are, claimed and delayed ones among them. Without puts meanwhile it is
    /// never too small.
    pub(super) async fn count(&self, session: &Session) -> Result<u64, Fault> {
        let mut lanes = self.lanes_to_count(session).await?;
        loop {
            let asked: Vec<_> = lanes
                .iter()
                .map(|(_, name)| session.exists(&self.layout.lane(name)))
                .collect();
            let mut items = 0;
            for stat in asked {
                let children = stat.await?.map_or(0, |stat| stat.num_children);
                items += u64::try_from(children).unwrap_or(0);
            }
            // Lanes come and go with minutes and with each thousandth item, so this ends.
            let again = self.lanes_to_count(session).await?;
            if again == lanes {
                return Ok(items);
            }
            lanes = again;
        }
    }

    /// An item may move while we count, but only to a lane that is counted later: from ready to
    /// delayed, and from delayed to delayed longer. Or to a lane that was not there, which the next
    /// listing shows.
    async fn lanes_to_count(&self, session: &Session) -> Result<Vec<(Lane, String)>, Fault> {
        let mut lanes = self.lanes(session).await?;
        lanes.sort_by_key(|(lane, _)| (matches!(lane, Lane::Later { .. }), *lane));
        Ok(lanes)
    }

    /// The lanes that there are.
    pub(super) async fn lanes(&self, session: &Session) -> Result<Vec<(Lane, String)>, Fault> {
        let names = match session.children(&self.layout.items).await {
            Ok(children) => children.names,
            Err(error) if error.is_no_node() => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        Ok(self.known_lanes(names))
    }

    /// Those of `names` that are lanes; others are skipped with a warning.
    pub(super) fn known_lanes(&self, names: Vec<String>) -> Vec<(Lane, String)> {
        let mut lanes = Vec::with_capacity(names.len());
        for name in names {
            match Lane::parse(&name) {
                Some(lane) => lanes.push((lane, name)),
                None => {
                    tracing::warn!(queue = &*self.layout.root, child = name, "no lane: skipped");
                }
            }
        }
        lanes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h24_the_gates_version_steps_over_minus_one() {
        let puts = |version| {
            let (after, parts) = Count { version, items: 3 }.let_in("/gate", 2);
            let version = |op: &Op| match op {
                Op::SetData { version, .. } => *version,
                other => panic!("{other:?}"),
            };
            let asked: Vec<_> = parts.iter().map(version).collect();
            (after.version, after.items, asked)
        };
        assert_eq!(puts(7), (8, 5, vec![Some(7)]));
        assert_eq!(puts(i32::MAX), (i32::MIN, 5, vec![Some(i32::MAX)]));
        assert_eq!(puts(-3), (-2, 5, vec![Some(-3)]));
        assert_eq!(puts(-2), (0, 5, vec![Some(-2), None]));
    }
}
