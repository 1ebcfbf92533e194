//! Fate of each item of a queue.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton::queue::QueueError;

use crate::boundary;
use crate::stage::Stage;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    /// In the queue, once.
    Certain,
    /// In the queue once, or not at all.
    Open,
    /// Not in the queue.
    Refused,
}

#[derive(Debug, Default)]
struct State {
    offers: BTreeMap<String, Offer>,
    taken: BTreeMap<String, usize>,
    /// The recipe has said that it does not know.
    perhaps: BTreeMap<String, usize>,
}

/// Counts items. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct ItemRecords(Arc<Mutex<State>>);

fn text(item: &[u8]) -> String {
    String::from_utf8_lossy(item).into_owned()
}

impl ItemRecords {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `item` was offered; `None` where the call was cancelled.
    pub(super) fn offered(
        &self,
        stage: &Stage,
        item: &str,
        outcome: Option<&Result<(), QueueError>>,
    ) {
        stage.note(|| format!("offered {item}: {outcome:?}"));
        let offer = match outcome {
            Some(Ok(())) => Offer::Certain,
            None | Some(Err(QueueError::OfferUnknown { .. })) => Offer::Open,
            Some(Err(_)) => Offer::Refused,
        };
        self.state().offers.insert(item.to_owned(), offer);
    }

    /// An item was taken, for certain.
    pub(super) fn taken(&self, stage: &Stage, item: &[u8]) {
        stage.note(|| format!("taken: {}", text(item)));
        *self.state().taken.entry(text(item)).or_default() += 1;
    }

    /// A removal has begun whose outcome nobody has learnt.
    pub(super) fn perhaps(&self, item: &[u8]) {
        *self.state().perhaps.entry(text(item)).or_default() += 1;
    }

    /// Takes the outcome of a take without an item.
    pub(super) fn failed(&self, stage: &Stage, error: &QueueError) {
        stage.note(|| format!("not taken: {error}"));
        match error {
            QueueError::TakeUnknown { item, .. } => {
                stage.mark(boundary::TAKE_UNKNOWN);
                *self.state().perhaps.entry(text(item)).or_default() += 1;
            }
            other => stage.fail(&format!("take: {other}")),
        }
    }

    /// Judges, once nobody has anything to do with the queue any more and `left` is what is in it.
    pub(super) fn judge(&self, stage: &Stage, left: &[Vec<u8>]) {
        let state = self.state();
        for (item, offer) in &state.offers {
            let taken = state.taken.get(item).copied().unwrap_or(0);
            let still = left.iter().filter(|left| text(left) == *item).count();
            let perhaps = state.perhaps.get(item).copied().unwrap_or(0);
            let seen = taken + still;
            let lost = *offer == Offer::Certain && seen + perhaps == 0;
            let doubled = seen > 1 || (*offer == Offer::Refused && seen + perhaps > 0);
            if lost || doubled {
                stage.fail(&format!(
                    "item {item}, offer {offer:?}: taken {taken} times, perhaps taken {perhaps} times, {still} in the queue"
                ));
            }
        }
        for item in state.taken.keys() {
            stage.expect(state.offers.contains_key(item), || {
                format!("item {item} was never offered")
            });
        }
    }

    /// Judges like [`ItemRecords::judge`], where a removal whose outcome its caller did not receive
    /// is no loss.
    pub(super) fn judge_at_most_once(&self, stage: &Stage, left: &[Vec<u8>]) {
        stage.expect(left.is_empty(), || {
            format!("{} items were left", left.len())
        });
        for (item, taken) in &self.state().taken {
            stage.expect(*taken <= 1, || format!("{item} was consumed {taken} times"));
        }
    }
}
