//! Shared parts of the work-queue tests.

use baton::{Client, WorkQueue};

use super::within;

pub fn queue(client: &Client, path: &str) -> WorkQueue {
    WorkQueue::new(client, path).unwrap()
}

/// Takes and acknowledges all that can be claimed now.
pub async fn drain(queue: &WorkQueue) -> Vec<String> {
    let mut items = Vec::new();
    while let Some(claim) = within(queue.poll()).await.unwrap() {
        items.push(String::from_utf8(claim.payload().to_vec()).unwrap());
        within(claim.ack()).await.unwrap();
    }
    items
}
