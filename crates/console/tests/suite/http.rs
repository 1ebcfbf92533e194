//! The page over HTTP: headers, access, events, actions.

use std::pin::Pin;
use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use baton::embedded::Embedded;
use baton::{Mutex, WorkQueue};
use baton_client::{Acl, Client, Config, CreateMode, Perms};
use baton_console::http::{CallerView, Host, Refusal, router};
use baton_console::{Console, Limits, SessionReader, Surveyor};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::scene;

/// Lets `Bearer act` act, `Bearer look` look, and nobody else in. Only the latter is a proof.
struct Gate(Console);

impl Host for Gate {
    fn seat<'a>(
        &'a self,
        request: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<CallerView, Refusal>> + Send + 'a>> {
        let authorization = request.headers.get(header::AUTHORIZATION);
        let authorization = authorization.map(|value| value.to_str().unwrap());
        let is_proven = authorization != Some("Bearer act");
        let may_act = match authorization {
            Some("Bearer act") => Some(true),
            Some("Bearer look") => Some(false),
            _ => None,
        };
        Box::pin(async move {
            let may_act = may_act.ok_or(Refusal {
                status: StatusCode::UNAUTHORIZED,
                text: "who are you?".to_owned(),
            })?;
            Ok(CallerView {
                console: self.0.clone(),
                may_act,
                is_proven,
                who: "tester".to_owned(),
                past: None,
            })
        })
    }
}

struct Site {
    server: Embedded,
    address: String,
    serving: AbortHandle,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Site {
    async fn start() -> Self {
        let server = Embedded::in_memory().await.unwrap();
        let console = Console::new(server.client(), "test", None);
        let (listener, address) = baton_server::http::bind("127.0.0.1:0").await.unwrap();
        let routes = router(Arc::new(Gate(console)));
        let serving = tokio::spawn(baton_server::http::serve(routes, listener)).abort_handle();
        Self {
            server,
            address: address.to_string(),
            serving,
        }
    }

    async fn send(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let length = body.len();
        let request =
            format!("{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Status, headers in small letters, and body.
    async fn answer(&self, head: &str, body: &str) -> (u16, String, String) {
        let mut text = String::new();
        let mut stream = self.send(head, body).await;
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    async fn get(&self, path: &str, token: &str) -> (u16, String) {
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}");
        let (status, _, body) = self.answer(&head, "").await;
        (status, body)
    }

    async fn act(&self, token: &str, what: &str, confirmed: bool) -> (u16, String) {
        let head = format!(
            "POST /console/api/act HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}"
        );
        let body = format!(r#"{{"confirmed":{confirmed},"what":{what}}}"#);
        let (status, _, body) = self.answer(&head, &body).await;
        (status, body)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_has_the_headers_and_no_file_loads_anything_from_elsewhere() {
    let site = Site::start().await;
    for path in [
        "/",
        "/console/page.css",
        "/console/page.js",
        "/console/dom.js",
        "/console/store.js",
        "/console/views.js",
        "/console/api/who",
        "/console/api/nothing",
    ] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:7181");
        let (_, headers, body) = site.answer(&head, "").await;
        assert!(headers.contains("content-security-policy: default-src 'none'; script-src 'self'"));
        assert!(
            headers.contains("x-content-type-options: nosniff"),
            "{path}"
        );
        assert!(headers.contains("cache-control: no-store"), "{path}");
        // The one other address is the name of a language, which nothing loads.
        let elsewhere = body.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("://"), "{path}");
        for markup in [
            "innerHTML",
            "outerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
        ] {
            assert!(!body.contains(markup), "{path}: {markup}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_the_tree_is_handed_out_without_a_seat_or_under_a_foreign_name() {
    let site = Site::start().await;
    for path in ["who", "events", "recipe?path=/", "holds", "node?path=/"] {
        let head = format!("GET /console/api/{path} HTTP/1.1\r\nHost: localhost");
        assert_eq!(site.answer(&head, "").await.0, 401, "{path}");
        let head = format!("GET /console/api/{path} HTTP/1.1\r\nHost: rebound.example");
        assert_eq!(site.answer(&head, "").await.0, 421, "{path}");
    }
    // A page of another site can show a name and a password of its own.
    for (token, status) in [("act", 421), ("look", 200)] {
        let head = format!(
            "GET /console/api/who HTTP/1.1\r\nHost: rebound.example\r\nAuthorization: Bearer {token}"
        );
        assert_eq!(site.answer(&head, "").await.0, status, "{token}");
    }
    let page = "GET / HTTP/1.1\r\nHost: rebound.example";
    assert_eq!(site.answer(page, "").await.0, 200);
    let nobody = "POST /console/api/act HTTP/1.1\r\nHost: localhost";
    assert_eq!(site.answer(nobody, "{}").await.0, 401);
    assert_eq!(
        site.act("look", r#"{"action":"purge","path":"/q"}"#, true)
            .await
            .0,
        403
    );
    assert_eq!(site.act("act", r#"{"action":"reboot"}"#, true).await.0, 400);
    let long = format!(r#"{{"action":"purge","path":"/{}"}}"#, "x".repeat(20_000));
    assert_eq!(site.act("act", &long, true).await.0, 400);
    assert_eq!(
        site.get("/console/api/node?path=nonsense", "look").await.0,
        400
    );
    assert_eq!(
        site.get("/console/api/node?path=/absent", "look").await.0,
        404
    );
    assert_eq!(
        site.get("/console/api/recipe?path=/absent", "look").await.0,
        404
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_bring_every_row_and_then_what_changes() {
    let site = Site::start().await;
    let name = "</script><img src=x onerror=alert(1)>".replace('/', "");
    let lock = Mutex::new(site.server.client(), &format!("/{name}")).unwrap();
    let guard = lock.acquire().await.unwrap();
    let head = "GET /console/api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer look";
    let mut lines = BufReader::new(site.send(head, "").await).lines();
    let mut seen = String::new();
    let mut until = async |wanted: &str| {
        while !seen.contains(wanted) {
            let line = lines.next_line().await.unwrap().unwrap();
            seen.push_str(&line);
        }
    };
    until(r#""reset":true"#).await;
    until(&format!(r#""token":{}"#, guard.token())).await;
    until(&name).await;
    guard.release().await.unwrap();
    until(r#""gone":{"lock":["#).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_ends_in_good_order_before_its_connection_does() {
    let client = Client::lazy(Config::new("127.0.0.1:1").unwrap());
    let console = Console::new(&client, "test", None);
    let (listener, address) = baton_server::http::bind("127.0.0.1:0").await.unwrap();
    let routes = router(Arc::new(Gate(console)));
    let serving = tokio::spawn(baton_server::http::serve(routes, listener));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "GET /console/api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer look";
    let request = format!("{head}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.contains(": still here"), "{text}");
    assert!(text.ends_with("\r\n0\r\n\r\n"), "{text}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_have_a_bound_and_a_place_is_given_back() {
    let site = Site::start().await;
    let head = "GET /console/api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer look";
    let mut open = Vec::new();
    loop {
        let mut stream = site.send(head, "").await;
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        if start.ends_with(b"503") {
            break;
        }
        open.push(stream);
        assert!(open.len() < 40);
    }
    assert_eq!(open.len(), 16);
    open.clear();
    // The places are free once the server has seen that they have gone.
    loop {
        let mut stream = site.send(head, "").await;
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        if start.ends_with(b"200") {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_says_what_it_will_do_and_meets_only_what_was_seen() {
    let site = Site::start().await;
    let guard = Mutex::new(site.server.client(), "/deploy")
        .unwrap()
        .name("deploy")
        .acquire()
        .await
        .unwrap();
    let other = scene::client(&site.server).await;
    let waiting = Mutex::new(&other, "/deploy").unwrap();
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    let (node, token) = (guard.node().to_owned(), guard.token());
    let czxid = token;
    let what = |token: u64| {
        format!(
            r#"{{"action":"break","path":"/deploy","node":"{node}","czxid":{czxid},"token":{token}}}"#
        )
    };
    let (status, text) = site.act("act", &what(token), false).await;
    assert_eq!(status, 200);
    assert!(
        text.contains("cannot be undone") && text.contains("(deploy)"),
        "{text}"
    );
    assert!(guard.check().is_ok());
    assert_eq!(site.act("act", &what(token + 1), true).await.0, 409);
    assert!(guard.check().is_ok());
    let ask = format!(r#"{{"action":"ask","path":"/deploy","node":"{node}","czxid":{czxid}}}"#);
    assert_eq!(site.act("act", &ask, true).await.0, 200);
    assert_eq!(site.act("act", &what(token), true).await.0, 200);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(site.act("act", &what(token), true).await.0, 409);

    let queue = WorkQueue::new(site.server.client(), "/jobs").unwrap();
    for _ in 0..2 {
        queue.offer(b"x".to_vec()).await.unwrap();
        let claim = queue.take().await.unwrap();
        claim.dead_letter("broken").await.unwrap();
    }
    let name = queue.dead_letters().await.unwrap()[0].name.clone();
    let requeue = format!(r#"{{"action":"requeue","path":"/jobs","name":"{name}"}}"#);
    assert_eq!(site.act("act", &requeue, false).await.0, 200);
    assert_eq!(queue.dead_letters().await.unwrap().len(), 2);
    assert_eq!(site.act("act", &requeue, true).await.0, 200);
    let purge = r#"{"action":"purge","path":"/jobs"}"#;
    assert_eq!(site.act("act", purge, true).await.0, 200);
    assert_eq!(queue.dead_letters().await.unwrap().len(), 0);
    assert_eq!(queue.depth().await.unwrap().unwrap().items, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_identity_may_not_read_is_not_shown() {
    let site = Site::start().await;
    let session = scene::client(&site.server).await.session().await.unwrap();
    session.add_auth("digest", b"owner:secret").await.unwrap();
    let own = [Acl::new(Perms::ALL, "auth", "")];
    let secret = session.with_acl(&own);
    secret
        .create_with_acl("/vault", b"the combination", CreateMode::Persistent, &own)
        .await
        .unwrap();
    let node = scene::waiter("/vault");
    secret
        .create_with_acl(&node, b"who", CreateMode::EphemeralSequential, &own)
        .await
        .unwrap();
    let (status, body) = site.get("/console/api/node?path=/vault", "look").await;
    assert_eq!(status, 403, "{body}");
    assert!(
        !body.contains("combination") && !body.contains("lock-"),
        "{body}"
    );
    assert_eq!(
        site.get("/console/api/recipe?path=/vault", "look").await.0,
        404
    );
}

/// A text that is in the name, the data or the record of everything that is hidden.
const MARK: &str = "xyzzy";

/// A tree of which a restricted identity may read little: recipes of all kinds that are hidden as a
/// whole, two locks that wait for each other, and a lock whose nodes are listed but not readable.
/// Returns the clients of its owner.
async fn hidden_recipes(site: &Site) -> [Client; 2] {
    let clients = [
        scene::client(&site.server).await,
        scene::client(&site.server).await,
    ];
    let mut owners = Vec::new();
    let own = [Acl::new(Perms::ALL, "auth", "")];
    for client in &clients {
        let session = client.session().await.unwrap();
        session.add_auth("digest", b"owner:secret").await.unwrap();
        owners.push(session.with_acl(&own));
    }
    let folder = async |path: String, data: &[u8], acl: &[Acl]| {
        let made = owners[0].create_with_acl(&path, data, CreateMode::Persistent, acl);
        made.await.unwrap();
    };
    let marked = format!("about {MARK}");
    let marked = marked.as_bytes();
    folder("/vault".to_owned(), marked, &own).await;
    for (path, data) in [
        ("one", ""),
        ("two", ""),
        ("q", ""),
        ("jobs", r#"{"work_queue":1,"capacity":null}"#),
        ("jobs/items", ""),
        ("jobs/items/p000-0000000001", ""),
        ("jobs/dead", ""),
        ("members", ""),
    ] {
        let path = path.replacen('/', &format!("-{MARK}/"), 1);
        let path = match path.contains('/') {
            true => path,
            false => format!("{path}-{MARK}"),
        };
        folder(format!("/vault/{path}"), data.as_bytes(), &own).await;
    }
    let waiter = |lock: &str| format!("/vault/{lock}-{MARK}/_c_{MARK}-lock-");
    // Each holds one and waits for the other.
    for (owner, lock) in [(0, "one"), (1, "two"), (0, "two"), (1, "one")] {
        let mode = CreateMode::EphemeralSequential;
        let made = owners[owner].create_with_acl(&waiter(lock), marked, mode, &own);
        made.await.unwrap();
    }
    for path in [
        "q-xyzzy/qn-",
        "jobs-xyzzy/items/p000-0000000001/i-",
        "jobs-xyzzy/dead/d-",
    ] {
        let (path, mode) = (format!("/vault/{path}"), CreateMode::PersistentSequential);
        let made = owners[0].create_with_acl(&path, marked, mode, &own);
        made.await.unwrap();
    }
    // Whose folder anybody may list.
    folder("/half".to_owned(), b"", &[Acl::open_unsafe()]).await;
    for owner in &owners {
        let (node, mode) = (scene::waiter("/half"), CreateMode::EphemeralSequential);
        let made = owner.create_with_acl(&node, marked, mode, &own);
        made.await.unwrap();
    }
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a18_no_answer_has_a_word_of_what_the_identity_may_not_read() {
    let site = Site::start().await;
    let [owner, _other] = hidden_recipes(&site).await;
    let seen = Mutex::new(site.server.client(), "/seen").unwrap();
    let _guard = seen.acquire().await.unwrap();
    let mut answers = Vec::new();
    // The survey is complete once it has what may be seen.
    let head = "GET /console/api/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer look";
    let mut lines = BufReader::new(site.send(head, "").await).lines();
    let mut events = String::new();
    while !events.contains(r#""/seen""#) {
        events.push_str(&lines.next_line().await.unwrap().unwrap());
    }
    answers.push(("events".to_owned(), events));
    let hidden = [
        "/vault",
        "/vault/one-xyzzy",
        "/vault/two-xyzzy",
        "/vault/q-xyzzy",
        "/vault/jobs-xyzzy",
        "/vault/jobs-xyzzy/dead",
    ];
    for path in ["/", "/half", "/seen"].iter().chain(&hidden) {
        for what in ["node", "recipe"] {
            for from in [0, 1, usize::MAX] {
                let asked = format!("/console/api/{what}?path={path}&from={from}");
                let (_, body) = site.get(&asked, "look").await;
                // An answer may say again what it was asked for.
                answers.push((asked, body.replace(path, "")));
            }
        }
    }
    for asked in ["/console/api/holds", "/console/api/who"] {
        answers.push((asked.to_owned(), site.get(asked, "look").await.1));
    }
    for path in ["/half"].iter().chain(&hidden) {
        for action in [
            format!(r#"{{"action":"purge","path":"{path}"}}"#),
            format!(r#"{{"action":"requeue","path":"{path}","name":"d-0000000000"}}"#),
            format!(r#"{{"action":"ask","path":"{path}","node":"{path}/a","czxid":1}}"#),
            format!(
                r#"{{"action":"break","path":"{path}","node":"{path}/a","czxid":1,"token":1}}"#
            ),
        ] {
            for confirmed in [false, true] {
                let (_, body) = site.act("act", &action, confirmed).await;
                answers.push((action.clone(), body.replace(path, "")));
            }
        }
    }
    for (asked, answer) in answers {
        assert!(!answer.contains(MARK), "{asked}: {answer}");
        // As bytes in hexadecimal, too.
        assert!(!answer.contains("78 79 7a 7a 79"), "{asked}: {answer}");
    }
    // A user who may read it is shown it, so that there was something to hide.
    let mut surveyor = Surveyor::new(Limits::default());
    let reader = SessionReader::of(&owner).await.unwrap();
    surveyor.update(&reader).await.unwrap();
    for path in ["/vault/one-xyzzy", "/vault/q-xyzzy", "/vault/jobs-xyzzy"] {
        assert!(surveyor.recipes().contains_key(path), "{path}");
    }
    assert_eq!(surveyor.deadlocks().len(), 1);
}
