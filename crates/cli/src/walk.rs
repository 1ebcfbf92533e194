//! A walk over a tree of znodes, depth first, that reads several nodes at a time: one after the
//! other, a large tree takes a round trip for each.

use tokio::task::JoinSet;

/// Nodes that are read at a time.
const WINDOW: usize = 64;

/// Nodes that are still to be visited, the next one last.
pub(crate) struct Walk<N, T> {
    nodes: Vec<(N, Option<T>)>,
}

impl<N, T> Walk<N, T>
where
    N: Clone + Send + 'static,
    T: Send + 'static,
{
    /// A walk that begins at `node`.
    pub(crate) fn at(node: N) -> Self {
        Self {
            nodes: vec![(node, None)],
        }
    }

    /// These nodes come next, in their order.
    pub(crate) fn descend(&mut self, below: impl DoubleEndedIterator<Item = N>) {
        self.nodes.extend(below.rev().map(|node| (node, None)));
    }

    /// The next node, and what `read` has found there: perhaps before nodes that were visited
    /// meanwhile.
    pub(crate) async fn next<R>(&mut self, read: impl Fn(N) -> R) -> Option<(N, T)>
    where
        R: Future<Output = T> + Send + 'static,
    {
        let is_read = self.nodes.last()?.1.is_some();
        if !is_read {
            let mut reading = JoinSet::new();
            let unread = self.nodes.iter().enumerate().rev();
            for (at, (node, _)) in unread
                .filter(|(_, (_, found))| found.is_none())
                .take(WINDOW)
            {
                let read = read(node.clone());
                reading.spawn(async move { (at, read.await) });
            }
            while let Some(done) = reading.join_next().await {
                if let Ok((at, found)) = done
                    && let Some((_, slot)) = self.nodes.get_mut(at)
                {
                    *slot = Some(found);
                }
            }
        }
        let (node, found) = self.nodes.pop()?;
        Some((node, found?))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn nodes_come_depth_first_and_are_read_together() {
        let mut walk = Walk::at("/".to_owned());
        // Nobody passes before three read at once.
        let together = Arc::new(Barrier::new(3));
        let read = |node: String| {
            let together = Arc::clone(&together);
            async move {
                if node.len() == 2 {
                    together.wait().await;
                }
            }
        };
        let mut visited = Vec::new();
        while let Some((node, ())) = walk.next(read).await {
            if node == "/" {
                walk.descend(["/a", "/b", "/c"].map(str::to_owned).into_iter());
            } else if node == "/a" {
                walk.descend(["/a/1", "/a/2"].map(str::to_owned).into_iter());
            }
            visited.push(node);
        }
        assert_eq!(visited, ["/", "/a", "/a/1", "/a/2", "/b", "/c"]);
    }
}
