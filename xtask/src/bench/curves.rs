//! Figures: throughput against connections, the distribution of latency, and the cost of an
//! operation beside many znodes, children, sessions and watches. Each server is loaded at each
//! size before the next one is.

use std::collections::BTreeMap;

use baton_testkit::Target;
use serde_json::Value;

use super::{Args, TARGETS};
use crate::figure::{self, Series};
use crate::load_generator::{Load, number};
use crate::process::{Server, build_baton, work_dir};
use crate::scale::{Clients, WATCHERS, memory, watch_paths};
use crate::{Result, machine};

/// Measure of one or two figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Curve {
    /// Throughput against connections.
    Connections,
    /// Distribution of latency.
    Latency,
    /// Cost beside other znodes.
    Tree,
    /// Cost below a node with many children.
    Children,
    /// Cost beside idle sessions, and their memory.
    Sessions,
    /// Cost beside watches, and their memory.
    Watches,
    /// Locks, elections and queues, beside those of Curator, kazoo, etcd and Redis.
    Recipes,
}

impl Curve {
    /// The figure of costs, and that of memory.
    fn figures(self) -> [Option<&'static str>; 2] {
        match self {
            Self::Connections => [Some("throughput"), None],
            Self::Latency => [Some("latency"), None],
            Self::Tree => [Some("cost-tree"), None],
            Self::Children => [Some("cost-children"), None],
            Self::Sessions => [Some("cost-sessions"), Some("memory-sessions")],
            Self::Watches => [Some("cost-watches"), Some("memory-watches")],
            Self::Recipes => [None, None],
        }
    }
}

const CONNECTIONS: [u32; 5] = [1, 4, 16, 64, 256];
/// Share of the operations below each percentile of the report.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];
/// Connections that fill a tree, each below a node of its own.
const FILLERS: usize = 64;

/// Points that have been measured, by series.
type Points = BTreeMap<String, Vec<(f64, f64)>>;

/// A server under measurement.
struct MeasuredServer<'a> {
    target: Target,
    server: &'a Server,
    seconds: u64,
    points: &'a mut Points,
}

impl MeasuredServer<'_> {
    fn load(&self, workload: &'static str, load: (u32, u32), options: &[&str]) -> Result<Value> {
        let load = Load {
            workload,
            connections: load.0,
            in_flight: load.1,
            servers: &self.server.addr(),
            pids: &[self.server.pid()?],
            seconds: self.seconds,
        };
        let options = options.iter().map(|option| (*option).to_owned());
        let options: Vec<_> = options.chain(["--warm-up=1".to_owned()]).collect();
        load.run(&options)
    }

    fn add(&mut self, what: &str, x: f64, y: f64) {
        eprintln!("{:?}, {what}: {x:.0}: {y:.2}", self.target);
        let points = self.points.entry(format!("{:?}, {what}", self.target));
        points.or_default().push((x, y));
    }

    /// The cost of an operation at this size.
    fn cost(
        &mut self,
        workload: &'static str,
        load: (u32, u32),
        size: usize,
        options: &[&str],
    ) -> Result<()> {
        let report = self.load(workload, load, options)?;
        let cost = number(&report, "/server/cpu_us_per_op")?;
        self.add(workload, size as f64, cost);
        Ok(())
    }

    fn gets_and_sets(&mut self, size: usize) -> Result<()> {
        self.cost("get", (16, 32), size, &[])?;
        self.cost("set", (16, 32), size, &[])
    }

    fn connections(&mut self) -> Result<()> {
        for connections in CONNECTIONS {
            for workload in ["get", "set"] {
                let report = self.load(workload, (connections, 32), &[])?;
                let rate = number(&report, "/ops_per_second")?;
                self.add(workload, connections.into(), rate);
            }
        }
        Ok(())
    }

    fn latency(&mut self) -> Result<()> {
        for (what, workload, load) in [
            ("get, 1×1", "get", (1, 1)),
            ("set, 1×1", "set", (1, 1)),
            ("set, 16×32", "set", (16, 32)),
        ] {
            let report = self.load(workload, load, &[])?;
            for (name, share) in PERCENTILES {
                let latency = number(&report, &format!("/latency_us/{name}"))?;
                self.add(what, 1.0 / (1.0 - share), latency);
            }
        }
        Ok(())
    }

    /// Creates nodes that stay, below a node for each of the connections.
    fn fill(&self, path: &str, nodes: usize, connections: usize) -> Result<()> {
        let connections = format!("--connections={connections}");
        let options = [connections.as_str(), "--path", path];
        super::fill(self.server, nodes, &options)
    }

    fn tree(&mut self, most: usize) -> Result<()> {
        let mut nodes = 0;
        for size in sizes(1_000, most) {
            self.fill(&format!("/fill-{size}"), size - nodes, FILLERS)?;
            nodes = size;
            self.gets_and_sets(size)?;
        }
        Ok(())
    }

    fn children(&mut self, most: usize) -> Result<()> {
        for size in sizes(10, most) {
            let path = format!("/parent-{size}");
            self.fill(&path, size, 1)?;
            // The first connection makes its nodes in the node that has been filled.
            let path = format!("--path={path}");
            self.cost("churn", (1, 512), size, &["--keep", &path])?;
        }
        Ok(())
    }

    fn sessions(&mut self, most: usize) -> Result<Option<Points>> {
        let clients = Clients::of(&self.server.addr())?;
        let (mut open, mut costs) = (Vec::new(), Vec::new());
        let at_rest = memory(self.server)?;
        for size in sizes(10, most.min(MOST_SESSIONS)) {
            open.extend(clients.open(size - open.len(), &[])?);
            costs.push((size as f64, (memory(self.server)? - at_rest) / size as f64));
            self.gets_and_sets(size)?;
        }
        Ok(self.memory(costs))
    }

    fn watches(&mut self, most: usize) -> Result<Option<Points>> {
        let clients = Clients::of(&self.server.addr())?;
        let mut watchers = clients.open(WATCHERS, &[])?;
        let (mut paths, mut costs) = (0, Vec::new());
        self.gets_and_sets(0)?;
        let at_rest = memory(self.server)?;
        for size in sizes(1_000, most) {
            watch_paths(&mut watchers, paths..size / WATCHERS)?;
            paths = size / WATCHERS;
            costs.push((size as f64, (memory(self.server)? - at_rest) / size as f64));
            self.gets_and_sets(size)?;
        }
        Ok(self.memory(costs))
    }

    /// Memory that Baton takes for each, from where there are more than fit in what the server has
    /// at rest. The heap of a Java machine says nothing of it.
    fn memory(&self, mut costs: Vec<(f64, f64)>) -> Option<Points> {
        costs.retain(|(_, bytes)| *bytes >= 1.0);
        (self.target == Target::Baton).then(|| Points::from([("Baton".to_owned(), costs)]))
    }
}

/// The most that 20,000 open files allow with a connection of each.
const MOST_SESSIONS: usize = 9_000;

/// Powers of ten from the first to the most, which is the last.
fn sizes(first: usize, most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(first), |size| size.checked_mul(10));
    let below = powers.take_while(|size| *size < most);
    below.chain([most]).collect()
}

/// Takes the measurements, and draws the figures.
pub(super) fn run(args: &Args) -> Result<()> {
    let baton = build_baton()?;
    let dir = work_dir(args.dir.as_deref())?;
    let run = machine::run(dir.path())?;
    for curve in &args.curves {
        if *curve == Curve::Recipes {
            super::recipes::run(args, &baton, dir.path(), &run)?;
            continue;
        }
        let (mut points, mut memory) = (Points::new(), None);
        for target in TARGETS {
            let folder = dir.path().join(format!("{curve:?}-{target:?}"));
            let server = match Server::start(target, &baton, &folder) {
                Err(error) if target != Target::Baton => {
                    eprintln!("NOT MEASURED: {target:?}: {error}");
                    continue;
                }
                started => started?,
            };
            let mut measured = MeasuredServer {
                target,
                server: &server,
                seconds: 2,
                points: &mut points,
            };
            // A Java machine compiles first, and both servers get their buffers.
            measured.load("mixed", (16, 32), &[])?;
            match curve {
                Curve::Connections => measured.connections()?,
                Curve::Latency => measured.latency()?,
                Curve::Tree => measured.tree(args.most)?,
                Curve::Children => measured.children(args.most)?,
                Curve::Sessions => memory = measured.sessions(args.most)?,
                Curve::Watches => memory = measured.watches(args.most)?,
                Curve::Recipes => {}
            }
        }
        for (figure, points) in curve.figures().iter().zip([Some(points), memory]) {
            if let (Some(figure), Some(points)) = (figure, points) {
                let series: Vec<Series> = points.into_iter().collect();
                figure::save(figure, series, &run)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_with_the_most() {
        assert_eq!(sizes(10, 1_000), [10, 100, 1_000]);
        assert_eq!(sizes(1_000, 9_000), [1_000, 9_000]);
    }
}
