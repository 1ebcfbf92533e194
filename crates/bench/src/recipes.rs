//! The recipes' workloads: lock, hand-off, election and queue, as a program that uses the library
//! would run them, each client with a session of its own.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use baton::queue::LockingQueue;
use baton::work_queue::{Claim, WorkItem};
use baton::{Client, DistributedQueue, LeaderElection, Mutex, WorkQueue};
use baton_client::{Config, CreateMode, Op, OpResult, Session};
use tokio::runtime::Handle;

use super::report::Report;
use super::window::Window;
use super::{Args, Result, Turns, Workload};

/// Items that the work queue is kept filled to, and how many are put at once.
const STOCK: u64 = 2000;
const FILL: usize = 500;
/// Pause before a work queue that is full enough, or empty, is checked again.
const PAUSE: Duration = Duration::from_millis(20);
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Runs a recipe's workload.
pub(crate) async fn run_recipe(args: &Args) -> Result<Report> {
    if args.workload == Workload::Work && args.turns == Turns::Requeued {
        return Err("a claim cannot be requeued; --turns requeued is for lock and handoff".into());
    }
    let root = args.run_path();
    let mut config = Config::new(&args.servers)?
        .session_timeout(SESSION_TIMEOUT)
        // One thread for all.
        .runtime(Handle::current());
    if let Some(tls) = args.tls()? {
        config = config.tls(tls);
    }
    let window = Window::new(args);
    let resigned = Rc::new(Cell::new(Instant::now()));
    let mut clients = Vec::new();
    let mut tasks = Vec::new();
    for n in 0..args.connections() {
        let client = Client::connect(config.clone()).await?;
        let path = match args.workload {
            Workload::Lock | Workload::Replace | Workload::Work => format!("{root}/line{n}"),
            _ => format!("{root}/line"),
        };
        let of_task = Rc::clone(&window);
        let task = match args.workload {
            Workload::Queue => {
                let queue = DistributedQueue::new(&client, &path)?;
                let item = vec![b'v'; args.value_bytes];
                window.spawn(async move {
                    let pass = async || {
                        queue.offer(&item).await?;
                        queue.take().await?;
                        Ok(())
                    };
                    repeat(&of_task, pass).await
                })
            }
            Workload::LockingQueue => {
                let queue = LockingQueue::new(&client, &path)?;
                let item = vec![b'v'; args.value_bytes];
                window.spawn(async move {
                    let pass = async || {
                        queue.offer(&item).await?;
                        queue.take().await?.consume().await?;
                        Ok(())
                    };
                    repeat(&of_task, pass).await
                })
            }
            Workload::Election => {
                let election = LeaderElection::new(&client, &path)?;
                let resigned = Rc::clone(&resigned);
                window.spawn(async move { elect(&election, &resigned, &of_task).await })
            }
            Workload::Replace => {
                let session = client.session().await?;
                let mutex = Mutex::new(&client, &path)?;
                window.spawn(async move { replace(&session, &mutex, &of_task).await })
            }
            Workload::Work => {
                let queue = WorkQueue::new(&client, &path)?.prefetch(args.prefetch);
                let item = vec![b'v'; args.value_bytes];
                let done = Rc::new(Cell::new(0));
                let (filling, counted) = (queue.clone(), Rc::clone(&done));
                let of_filler = Rc::clone(&window);
                tasks.push(
                    window.spawn(async move { fill(&filling, &item, &counted, &of_filler).await }),
                );
                let (together, pipelined) = (args.prefetch, args.turns == Turns::Pipelined);
                window.spawn(
                    async move { do_work(&queue, together, pipelined, &done, &of_task).await },
                )
            }
            _ => {
                let mutex = Mutex::new(&client, &path)?;
                let turns = args.turns;
                window.spawn(async move {
                    match turns {
                        Turns::Awaited => {
                            let turn = async || Ok(mutex.acquire().await?.release().await?);
                            repeat(&of_task, turn).await
                        }
                        Turns::Pipelined => take_turns_pipelined(&mutex, &of_task).await,
                        Turns::Requeued => take_turns_requeued(&mutex, &of_task).await,
                    }
                })
            }
        };
        tasks.push(task);
        clients.push(client);
    }
    let report = window.conduct(args, 1, tasks).await;
    if let Some(client) = clients.first() {
        let session = client.session().await?;
        remove(&session, &root).await;
        // Another run's nodes keep the common parent.
        let _ = session.delete(&args.path, None).await;
    }
    for client in clients {
        client.close_timeout(CLOSE_LIMIT).await?;
    }
    report.map(|(report, _)| report)
}

/// Does this again and again until the run stops.
async fn repeat(window: &Window, operation: impl AsyncFn() -> Result<()>) -> Result<()> {
    while !window.stopping() {
        let begin = Instant::now();
        operation().await?;
        window.count().one(begin.elapsed());
    }
    Ok(())
}

/// Acquires, with the release and the next acquisition in one packet. A turn counts from there to
/// the grant.
async fn take_turns_pipelined(mutex: &Mutex, window: &Window) -> Result<()> {
    let mut guard = mutex.acquire().await?;
    while !window.stopping() {
        let begin = Instant::now();
        let (released, next) = tokio::join!(guard.release(), mutex.acquire());
        released?;
        guard = next?;
        window.count().one(begin.elapsed());
    }
    guard.release().await.map_err(Into::into)
}

/// The same with the release and the next acquisition in one change.
async fn take_turns_requeued(mutex: &Mutex, window: &Window) -> Result<()> {
    let mut guard = mutex.acquire().await?;
    while !window.stopping() {
        let begin = Instant::now();
        guard = mutex.requeue(guard).await?;
        window.count().one(begin.elapsed());
    }
    guard.release().await.map_err(Into::into)
}

/// Creates a node in a wait queue, and replaces it by the next until the run stops.
async fn replace(session: &Session, mutex: &Mutex, window: &Window) -> Result<()> {
    // Makes the lock's node.
    let guard = mutex.acquire().await?;
    let mode = CreateMode::EphemeralSequential;
    // As long as the names and the record of a mutex.
    let prefix = format!("{}/_c_{:036}-lock-", mutex.path(), 0);
    let data = vec![b'v'; 130];
    let mut own = session.create(&prefix, &data, mode).await?.path;
    guard.release().await?;
    while !window.stopping() {
        let begin = Instant::now();
        let change = [
            Op::delete(&*own, None),
            Op::create(&*prefix, data.clone(), mode),
        ];
        let made = session.multi(&change).await?;
        if let Some(OpResult::Created { path, .. }) = made.into_iter().next_back() {
            own = path;
        }
        window.count().one(begin.elapsed());
    }
    session.delete(&own, None).await.map_err(Into::into)
}

/// Leads and resigns at once until the run stops. A turn counts from the last resignation of any
/// candidate to the next leader's election.
async fn elect(election: &LeaderElection, resigned: &Cell<Instant>, window: &Window) -> Result<()> {
    while !window.stopping() {
        let leadership = election.campaign().await?;
        window.count().one(resigned.get().elapsed());
        resigned.set(Instant::now());
        leadership.resign().await?;
    }
    Ok(())
}

/// Keeps a stock of items in the queue, so that the other task never waits for one.
async fn fill(queue: &WorkQueue, item: &[u8], done: &Cell<u64>, window: &Window) -> Result<()> {
    let mut put = 0;
    while !window.stopping() {
        if put < done.get() + STOCK {
            let more = std::iter::repeat_with(|| WorkItem::new(item.to_vec()));
            queue.offer_all(more.take(FILL)).await?;
            put += FILL as u64;
        } else {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Claims items and acknowledges them until the run stops: one by one, or `together` at a time;
/// `pipelined`, with the acknowledgement and the next claim in one packet.
async fn do_work(
    queue: &WorkQueue,
    together: usize,
    pipelined: bool,
    done: &Cell<u64>,
    window: &Window,
) -> Result<()> {
    let mut before = Vec::new();
    while !window.stopping() {
        let begin = Instant::now();
        let claims = tokio::time::timeout(PAUSE, queue.take_many(together)).await;
        let mut acks = Vec::new();
        if let Ok(claims) = claims {
            let ack = |claim: Claim| (begin, tokio::task::spawn_local(claim.ack()));
            acks.extend(claims?.into_iter().map(ack));
        }
        if pipelined {
            std::mem::swap(&mut before, &mut acks);
        }
        for (begin, ack) in acks {
            ack.await??;
            done.set(done.get() + 1);
            window.count().one(begin.elapsed());
        }
    }
    for (_, ack) in before {
        ack.await??;
    }
    Ok(())
}

/// Removes a node and what is below it, as far as it is still there: the recipes' containers may
/// have gone by themselves.
async fn remove(session: &Session, path: &str) {
    if let Ok(children) = session.children(path).await {
        for name in &children.names {
            Box::pin(remove(session, &format!("{path}/{name}"))).await;
        }
    }
    let _ = session.delete(path, None).await;
}
