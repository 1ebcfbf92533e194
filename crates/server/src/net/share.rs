//! Bytes of one connection's requests that wait for the core's answers: its share of the queue to
//! the core.

use std::collections::VecDeque;

/// Requests that a connection has handed to the core and has no answer to.
#[derive(Debug, Default)]
pub(super) struct QueueShare {
    /// Requests without an answer and bytes of each hand-in, oldest first.
    handed_in: VecDeque<(usize, usize)>,
    bytes: usize,
}

impl QueueShare {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Requests were handed in that are answered in turn.
    pub(super) fn add(&mut self, requests: usize, bytes: usize) {
        if requests > 0 {
            self.handed_in.push_back((requests, bytes));
            self.bytes += bytes;
        }
    }

    /// Requests were answered. A hand-in counts until the last of its requests is.
    pub(super) fn answered(&mut self, mut requests: usize) {
        while requests > 0
            && let Some((left, bytes)) = self.handed_in.front_mut()
        {
            let now = requests.min(*left);
            requests -= now;
            *left -= now;
            if *left == 0 {
                self.bytes -= *bytes;
                self.handed_in.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_until_their_last_request_is_answered() {
        let mut share = QueueShare::default();
        share.add(2, 100);
        share.add(1, 10);
        share.add(0, 1000);
        assert_eq!(share.bytes(), 110);
        share.answered(1);
        assert_eq!(share.bytes(), 110);
        share.answered(1);
        assert_eq!(share.bytes(), 10);
        share.answered(5);
        assert_eq!(share.bytes(), 0);
    }
}
