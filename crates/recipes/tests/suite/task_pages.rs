//! The snippets of the pages by task in `docs/user`: each stands here as it stands there, and runs.
#![cfg(feature = "embedded")]

use baton::{Mutex, embedded::Embedded};

#[tokio::test]
async fn two_workers_do_not_overlap() -> Result<(), Box<dyn std::error::Error>> {
    let server = Embedded::in_memory().await?;
    let mutex = Mutex::new(server.client(), "/report")?;

    let guard = mutex.acquire().await?;
    assert!(mutex.try_acquire().await?.is_none());
    guard.release().await?;
    assert!(mutex.try_acquire().await?.is_some());

    server.shutdown().await?;
    Ok(())
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

#[tokio::test]
async fn a_leader_serves() -> Outcome {
    async fn serve(_token: u64) -> Result<(), String> {
        Ok(())
    }

    use baton::LeaderElection;
    let server = Embedded::in_memory().await?;
    let client = server.client();
    let election = LeaderElection::new(client, "/scheduler")?.name("one");
    election
        .lead(async |term| serve(term.token).await)
        .await??; // drops the future before another may lead
    server.shutdown().await?;
    Ok(())
}

#[tokio::test]
async fn a_worker_handles_an_item() -> Outcome {
    async fn resize(_picture: &[u8]) -> Result<(), String> {
        Ok(())
    }

    use baton::{WorkQueue, work_queue::WorkItem};

    let server = Embedded::in_memory().await?;
    let client = server.client();
    let worker = client.clone();
    let stop = async move {
        let queue = WorkQueue::new(&worker, "/thumbs").unwrap();
        while queue
            .depth()
            .await
            .unwrap()
            .is_some_and(|depth| depth.items > 0)
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let queue = WorkQueue::new(client, "/thumbs")?.max_attempts(3);
    queue.offer(WorkItem::new("cat.jpg").id("cat")).await?;
    let summary = queue
        .run(
            2,
            |claim| async move { resize(claim.payload()).await },
            stop,
        )
        .await?;
    assert_eq!(summary.acked, 1);
    server.shutdown().await?;
    Ok(())
}

/// A text without what formatting changes: white space, and the comma behind a last argument.
fn squeezed(text: &str) -> String {
    let text: String = text.chars().filter(|char| !char.is_whitespace()).collect();
    text.replace(",)", ")")
}

#[test]
fn every_statement_of_the_pages_is_here() {
    let here = squeezed(include_str!("task_pages.rs"));
    for page in [
        include_str!("../../../../docs/user/singleton-service.md"),
        include_str!("../../../../docs/user/work-queue.md"),
    ] {
        let blocks = page.split("```rust\n").skip(1);
        let snippets: Vec<_> = blocks
            .flat_map(|rest| rest.split("```").next().unwrap().split("\n\n"))
            .collect();
        assert!(!snippets.is_empty());
        for snippet in snippets {
            assert!(
                here.contains(&squeezed(snippet)),
                "only on the page:\n{snippet}"
            );
        }
    }
    let page = include_str!("../../../../docs/user/test-your-application.md");
    let first = page.split("```rust\n").nth(1).unwrap();
    let first = first.split("```").next().unwrap();
    assert!(
        here.contains(&squeezed(first)),
        "only on the page:\n{first}"
    );
}
