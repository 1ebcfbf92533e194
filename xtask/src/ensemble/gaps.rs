//! Times without an acknowledged write: measured for each fault on the clients that are not
//! connected to the server at fault, and summed up.

use std::time::Duration;

use baton_testkit::history::Operation;

/// A fault, and the clients whose writes it must not hold up for long.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// Time at which it began, on the clock of the run.
    pub(super) at: Duration,
    /// End of its effects.
    pub(super) until: Duration,
    /// The clients whose writes it must not hold up for long.
    pub(super) clients: Vec<usize>,
}

/// The longest time without an acknowledged write of one client, from the fault on: that of the
/// client for which it is longest.
pub(super) fn after(operations: &[Operation], fault: &Fault) -> Duration {
    let longest = fault.clients.iter().map(|client| {
        let own = operations
            .iter()
            .filter(|operation| operation.client == *client && operation.act.zxid().is_some());
        let mut acknowledged: Vec<Duration> = own.map(|operation| operation.ended).collect();
        acknowledged.sort_unstable();
        let gaps = acknowledged.windows(2).filter_map(|pair| match pair {
            [one, next] if *next > fault.at && *one < fault.until => Some(*next - *one),
            _ => None,
        });
        gaps.max().unwrap_or_default()
    });
    longest.max().unwrap_or_default()
}

/// Several measurements of one thing.
#[derive(Debug, Clone, Default)]
pub(super) struct Spread(Vec<Duration>);

impl Spread {
    pub(super) fn push(&mut self, measurement: Duration) {
        self.0.push(measurement);
        self.0.sort_unstable();
    }

    /// The smallest measurement that this share of all does not exceed, in percent.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100);
        let at = rank.saturating_sub(1);
        self.0.get(at).copied().unwrap_or_default()
    }

    /// All measurements in milliseconds.
    pub(super) fn millis(&self) -> Vec<f64> {
        self.0.iter().map(|gap| gap.as_secs_f64() * 1e3).collect()
    }

    /// Median, 99th percentile and maximum, in milliseconds.
    pub(super) fn cells(&self) -> [String; 3] {
        [50, 99, 100].map(|percent| match self.0.is_empty() {
            true => "–".to_owned(),
            false => format!("{} ms", self.percentile(percent).as_millis()),
        })
    }
}

#[cfg(test)]
mod tests {
    use baton_testkit::history::{Act, CreatedZnode, Outcome};

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn acknowledged(client: usize, at: u64) -> Operation {
        let created = CreatedZnode {
            name: String::new(),
            zxid: 1,
        };
        Operation {
            client,
            number: at,
            value: String::new(),
            begun: ms(at),
            ended: ms(at),
            act: Act::Create(Outcome::Done(created)),
        }
    }

    #[test]
    fn the_gap_is_that_of_the_worst_of_the_clients_that_count_and_begins_before_the_fault() {
        let mut operations = Vec::new();
        for at in [0, 300, 310, 410, 415] {
            operations.push(acknowledged(0, at));
        }
        for at in [5, 312, 380, 500] {
            operations.push(acknowledged(1, at));
        }
        let gap = |operations: &[Operation], clients: &[usize], at, until| {
            let fault = Fault {
                at: ms(at),
                until: ms(until),
                clients: clients.to_vec(),
            };
            after(operations, &fault)
        };
        assert_eq!(gap(&operations, &[0], 305, 999), ms(100));
        assert_eq!(gap(&operations, &[0, 1], 313, 999), ms(120));
        assert_eq!(gap(&operations, &[0, 1], 313, 375), ms(100));
        assert_eq!(gap(&operations, &[0], 414, 999), ms(5));
        operations.push(Operation {
            act: Act::Create(Outcome::Unknown),
            ..acknowledged(0, 350)
        });
        assert_eq!(gap(&operations, &[0], 305, 999), ms(100));
    }

    #[test]
    fn percentiles_are_measurements() {
        let mut spread = Spread::default();
        assert_eq!(spread.cells(), ["–", "–", "–"]);
        for millis in (1..=200).rev() {
            spread.push(ms(millis));
        }
        assert_eq!(spread.cells(), ["100 ms", "198 ms", "200 ms"]);
    }
}
