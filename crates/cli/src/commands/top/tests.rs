//! Every table is drawn to a screen in memory, from a tree that the survey has read.

use std::collections::BTreeMap;

use baton_client::path::{name, parent};
use baton_client::{Children, Data, Stat};
use baton_console::{Answers, Ask, Limits, Reply, SurveyError, Surveyor, TreeReader};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use tokio::sync::watch;

use super::draw::{self, Head, Palette};
use super::follow::{self, Server, Servers, Tree};
use super::view::{Outcome, View};

/// A tree in memory.
#[derive(Default)]
struct FixedTree {
    nodes: BTreeMap<String, (Stat, Vec<u8>)>,
}

const NOW_MS: i64 = 1_700_000_000_000;

impl FixedTree {
    fn node(&mut self, path: &str, owner: i64, data: &str) {
        if path != "/" && !self.nodes.contains_key(parent(path)) {
            self.node(parent(path), 0, "");
        }
        let zxid = i64::try_from(self.nodes.len()).unwrap() + 1;
        let stat = Stat {
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: NOW_MS,
            mtime: NOW_MS,
            ephemeral_owner: owner,
            data_length: i32::try_from(data.len()).unwrap(),
            ..Stat::default()
        };
        self.nodes
            .insert(path.to_owned(), (stat, data.as_bytes().to_vec()));
        if path != "/" {
            let (above, _) = self.nodes.get_mut(parent(path)).unwrap();
            above.pzxid = zxid;
            above.cversion += 1;
            above.num_children += 1;
        }
    }

    /// A node of a wait queue, by what its process calls itself.
    fn waiter(&mut self, lock: &str, session: i64, host: &str, name: &str) {
        let number = self.nodes.get(lock).map_or(0, |(stat, _)| stat.cversion);
        let path = format!("{lock}/_c_5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11-lock-{number:010}");
        let record = serde_json::json!({
            "id": "5c1b0f54-6d3c-4f0b-9d0e-0a4b7d3f2e11", "host": host, "pid": 4711, "name": name
        });
        self.node(&path, session, &record.to_string());
    }
}

impl TreeReader for FixedTree {
    async fn read(&self, asks: &[Ask]) -> Result<Vec<Reply>, SurveyError> {
        let reply = |ask: &Ask| {
            let (Ask::Stat(path) | Ask::Children(path) | Ask::Data(path)) = ask;
            let Some((stat, data)) = self.nodes.get(path) else {
                return Reply::Gone;
            };
            match ask {
                Ask::Stat(_) => Reply::Stat(*stat),
                Ask::Children(_) => {
                    let below = self.nodes.keys();
                    let below = below.filter(|other| *other != "/" && parent(other) == path);
                    Reply::Children(Children {
                        names: below.map(|path| name(path).to_owned()).collect(),
                        stat: *stat,
                    })
                }
                Ask::Data(_) => Reply::Data(Data {
                    data: data.clone().into(),
                    stat: *stat,
                }),
            }
        };
        Ok(asks.iter().map(reply).collect())
    }

    async fn sync(&self) -> Result<(), SurveyError> {
        Ok(())
    }

    fn last_zxid(&self) -> i64 {
        i64::try_from(self.nodes.len()).unwrap()
    }
}

/// Viewer of a tree.
struct TestScreen {
    view: View,
    tree: Tree,
    servers: Servers,
    terminal: Terminal<TestBackend>,
    cut_off: Option<std::time::Duration>,
    color: bool,
}

impl TestScreen {
    async fn of(fixed: &FixedTree, size: (u16, u16)) -> Self {
        let (kept, tree) = watch::channel(Tree::default());
        let mut surveyor = Surveyor::new(Limits::default());
        follow::once(fixed, &mut surveyor, true, &kept)
            .await
            .unwrap();
        let tree = tree.borrow().clone();
        Self {
            view: View::default(),
            tree,
            servers: Servers::default(),
            terminal: Terminal::new(TestBackend::new(size.0, size.1)).unwrap(),
            cut_off: None,
            color: true,
        }
    }

    fn key(&mut self, code: KeyCode) -> Outcome {
        self.view.fill(&self.tree, &self.servers);
        self.view.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn keys(&mut self, letters: &str) {
        for letter in letters.chars() {
            self.key(KeyCode::Char(letter));
        }
    }

    /// The screen, line by line.
    fn lines(&mut self) -> Vec<String> {
        self.view.fill(&self.tree, &self.servers);
        let head = Head {
            servers: "zk1:2181,zk2:2181",
            cut_off: self.cut_off,
        };
        let Self {
            view,
            tree,
            servers,
            terminal,
            ..
        } = self;
        let palette = Palette::new(self.color);
        let mut work = |buffer: &mut Buffer| draw::all(buffer, view, tree, servers, &head, palette);
        terminal.draw(|frame| work(frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let width = usize::from(buffer.area.width);
        let lines = buffer.content.chunks(width);
        let line = |cells: &[ratatui::buffer::Cell]| {
            let text: String = cells.iter().map(|cell| cell.symbol()).collect();
            text.trim_end().to_owned()
        };
        lines.map(line).collect()
    }

    fn screen(&mut self) -> String {
        self.lines().join("\n")
    }
}

/// A few of everything, with a deadlock of two.
fn scene() -> FixedTree {
    let mut fixed = FixedTree::default();
    fixed.waiter("/deploy", 1, "web-1", "deploy 4711");
    fixed.waiter("/deploy", 2, "web-2", "deploy 4712");
    fixed.waiter("/deploy", 3, "web-3", "deploy 4713");
    for (lock, session) in [("/a", 4), ("/b", 5), ("/b", 4), ("/a", 5)] {
        fixed.waiter(lock, session, "bank", "teller");
    }
    fixed.waiter("/leader", 6, "node-1", "billing");
    for at in 0..3 {
        fixed.node(&format!("/jobs/qn-{at:010}"), 0, "work");
    }
    fixed
}

#[tokio::test]
async fn locks_are_shown_with_holder_waiters_and_token_and_unfold() {
    let mut seat = TestScreen::of(&scene(), (100, 24)).await;
    let lines = seat.lines();
    assert!(
        lines[0].starts_with("baton top  zk1:2181,zk2:2181"),
        "{lines:#?}"
    );
    assert!(
        lines[1].starts_with("1 Locks 4  2 Elections 0  3 Queues 1"),
        "{lines:#?}"
    );
    let titles: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!(
        titles,
        [
            "PATH", "HOLDER", "HELD", "WAITING", "FIRST", "WAITS", "TURNS/S", "TOKEN"
        ]
    );
    // Most waiters first.
    assert!(lines[3].starts_with("/deploy"), "{lines:#?}");
    assert!(lines[3].contains("web-1:4711 (deploy 4711)"), "{lines:#?}");
    seat.key(KeyCode::Enter);
    let unfolded = seat.screen();
    let held = "held by web-1:4711 (deploy 4711)  session 0x1";
    assert!(unfolded.contains(held), "{unfolded}");
    let first = unfolded.find("1. web-2:4711 (deploy 4712)  session 0x2");
    let second = unfolded.find("2. web-3:4711 (deploy 4713)  session 0x3");
    assert!(first.is_some() && first < second, "{unfolded}");
    seat.key(KeyCode::Enter);
    assert!(!seat.screen().contains("held by"));
}

#[tokio::test]
async fn every_table_is_drawn_and_a_deadlock_names_a_way_out() {
    let mut seat = TestScreen::of(&scene(), (80, 24)).await;
    for (key, shown) in [
        ("2", "no elections"),
        ("3", "/jobs"),
        ("4", "no semaphores, barriers or members"),
        ("5", "0x4"),
        ("6", "no server has answered yet"),
        ("7", "ask bank:4711 (teller)"),
    ] {
        seat.keys(key);
        let screen = seat.screen();
        assert!(screen.contains(shown), "{key}: {screen}");
        assert!(screen.contains("7 Deadlocks 1"), "{screen}");
        seat.key(KeyCode::Enter);
        seat.screen();
    }
    let details = seat.screen();
    assert!(
        details.contains("2 sessions wait for each other"),
        "{details}"
    );
    assert!(details.contains("shortest way out: ask"), "{details}");
    seat.key(KeyCode::Tab);
    assert!(seat.screen().contains("/deploy"));
}

#[tokio::test]
async fn the_order_changes_and_the_chosen_line_stays_chosen() {
    let mut seat = TestScreen::of(&scene(), (80, 24)).await;
    seat.screen();
    seat.key(KeyCode::Down);
    let chosen = seat.view.chosen().unwrap().to_owned();
    // By path: S goes from WAITING over HELD and HOLDER to PATH.
    seat.keys("SSS");
    let lines = seat.lines();
    assert!(lines[3].starts_with("/a "), "{lines:#?}");
    assert_eq!(seat.view.chosen(), Some(chosen.as_str()));
    seat.keys("r");
    let lines = seat.lines();
    assert!(lines[3].starts_with("/leader"), "{lines:#?}");
    assert_eq!(seat.view.chosen(), Some(chosen.as_str()));
    seat.keys("/teller");
    let lines = seat.lines();
    assert_eq!(lines.last().unwrap(), "/teller_");
    assert!(
        lines[3].starts_with("/b") && lines[4].starts_with("/a"),
        "{lines:#?}"
    );
    assert!(lines[5].is_empty(), "{lines:#?}");
    seat.key(KeyCode::Enter);
    seat.key(KeyCode::Esc);
    assert!(seat.screen().contains("/deploy"));
}

#[tokio::test]
async fn names_that_attack_are_shown_by_number() {
    let mut fixed = FixedTree::default();
    let bad = "x\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}cod.exe\u{2028}\r\n\ty";
    for lock in [format!("/{bad}"), "/plain".to_owned()] {
        fixed.waiter(&lock, 1, bad, bad);
        fixed.waiter(&lock, 2, bad, bad);
    }
    let mut seat = TestScreen::of(&fixed, (200, 40)).await;
    let answers = BTreeMap::from([("srvr".to_owned(), format!("Mode: {bad}\nZxid: 0x1\n"))]);
    let answers = Answers::new(&format!("{bad}:1"), answers, None);
    seat.servers.all.push(Server::of(&answers, None).0);
    seat.keys("/\u{1b}\u{202e}");
    assert!(seat.screen().contains("/\\u{1b}\\u{202e}_"));
    seat.key(KeyCode::Esc);
    for tab in '1'..='7' {
        seat.keys(&tab.to_string());
        for _ in 0..2 {
            let screen = seat.screen();
            let is_harmless = |letter: char| {
                letter == '\n' || !letter.is_control() && !"\u{202e}\u{2028}".contains(letter)
            };
            assert!(screen.chars().all(is_harmless), "{tab}: {screen:?}");
            if tab == '1' {
                assert!(screen.contains("\\u{1b}]0;owned"), "{screen}");
            }
            seat.key(KeyCode::Enter);
        }
    }
}

#[tokio::test]
async fn a_thousand_locks_with_a_huge_name_are_paged_through() {
    let mut fixed = FixedTree::default();
    for at in 0..1_000 {
        fixed.waiter(&format!("/many/{at:04}"), at + 1, "host", "holder");
    }
    for at in 0..2_000 {
        fixed.waiter("/many/0500", at + 1, "host", "waiter");
    }
    fixed.waiter(&format!("/{}", "long".repeat(5_000)), 1, "host", "holder");
    let mut seat = TestScreen::of(&fixed, (80, 24)).await;
    let lines = seat.lines();
    assert!(lines[3].starts_with("/many/0500"), "{lines:#?}");
    seat.key(KeyCode::PageDown);
    seat.key(KeyCode::End);
    let lines = seat.lines();
    assert!(lines[22].starts_with("/many/0999"), "{lines:#?}");
    assert_eq!(seat.view.chosen(), Some("/many/0999"));
    seat.key(KeyCode::Home);
    seat.key(KeyCode::Enter);
    assert!(seat.screen().contains(" (PgDn) "));
    for _ in 0..200 {
        seat.key(KeyCode::PageDown);
        seat.lines();
    }
    let screen = seat.screen();
    assert!(screen.contains(" 2000. host:4711 (waiter)"), "{screen}");
}

#[tokio::test]
async fn a_small_screen_is_named_and_every_size_is_drawn() {
    let fixed = scene();
    let mut seat = TestScreen::of(&fixed, (30, 5)).await;
    let screen = seat.screen();
    assert!(
        screen.contains("too small: 30x5\nneeds 40x8\nq quits"),
        "{screen}"
    );
    let sizes = [
        (1, 1),
        (2, 300),
        (300, 2),
        (40, 8),
        (41, 9),
        (80, 24),
        (400, 200),
    ];
    for size in sizes {
        let mut seat = TestScreen::of(&fixed, size).await;
        for tab in '1'..='7' {
            seat.keys(&tab.to_string());
            seat.screen();
            seat.key(KeyCode::Enter);
            seat.key(KeyCode::PageDown);
            seat.screen();
        }
        seat.keys("?");
        seat.screen();
    }
}

#[tokio::test]
async fn lost_servers_and_a_failed_round_are_said_and_the_rest_stays() {
    let mut seat = TestScreen::of(&scene(), (80, 24)).await;
    seat.cut_off = Some(std::time::Duration::from_secs(7));
    let lines = seat.lines();
    assert!(
        lines[0].ends_with("no server answers for 7s; trying again"),
        "{lines:#?}"
    );
    assert!(lines[3].starts_with("/deploy"));
    seat.cut_off = None;
    seat.tree.error = Some("refused\u{1b}[2J".to_owned());
    let lines = seat.lines();
    assert!(
        lines[0].ends_with("refused\\u{1b}[2J; trying again"),
        "{lines:#?}"
    );
}

#[tokio::test]
async fn without_colour_there_are_only_bold_and_reverse() {
    let mut seat = TestScreen::of(&scene(), (80, 24)).await;
    let colors = |seat: &mut TestScreen| {
        seat.screen();
        let cells = seat.terminal.backend().buffer().content.clone();
        assert!(
            cells
                .iter()
                .any(|cell| cell.modifier.contains(Modifier::REVERSED))
        );
        cells.iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(colors(&mut seat), "a deadlock is red");
    seat.color = false;
    assert!(!colors(&mut seat));
}

#[test]
fn a_server_is_shown_by_what_it_does_between_two_questions() {
    let answers = |received: u32, reads: u32, read_ms: u32| {
        let mntr = format!(
            "zk_packets_received\t{received}\nzk_cnt_readlatency\t{reads}\nzk_sum_readlatency\t{read_ms}\n"
        );
        let words = [
            (
                "srvr",
                "Zxid: 0x5\nMode: leader\nConnections: 3\n".to_owned(),
            ),
            ("mntr", mntr),
        ];
        let words = words.map(|(word, text)| (word.to_owned(), text));
        Answers::new("a:1", BTreeMap::from(words), None)
    };
    let (first, before) = Server::of(&answers(100, 10, 20), None);
    assert_eq!((first.requests, first.read_ms), (None, None));
    let (then, _) = Server::of(&answers(200, 60, 120), Some((5.0, before)));
    assert_eq!(
        (then.requests, then.reads, then.read_ms),
        (Some(20.0), Some(10.0), Some(2.0))
    );
    // It does not tell of writes.
    assert_eq!((then.writes, then.write_ms), (None, None));
    let (restarted, _) = Server::of(&answers(7, 1, 1), Some((5.0, before)));
    assert_eq!((restarted.requests, restarted.reads), (None, None));
}

#[tokio::test]
async fn keys_leave_stop_and_interrupt() {
    let mut seat = TestScreen::of(&scene(), (80, 24)).await;
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    assert_eq!(seat.view.key(control('c')), Outcome::Interrupt);
    assert_eq!(seat.view.key(control('z')), Outcome::Suspend);
    seat.keys("/q");
    assert_eq!(seat.view.search, "q");
    assert_eq!(seat.view.key(control('c')), Outcome::Interrupt);
    seat.key(KeyCode::Esc);
    seat.keys("?");
    assert!(seat.screen().contains("another table"));
    assert_eq!(seat.key(KeyCode::Char('q')), Outcome::Redraw);
    assert_eq!(seat.key(KeyCode::Char('q')), Outcome::Leave);
}
