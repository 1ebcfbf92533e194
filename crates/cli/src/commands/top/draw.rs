//! Layout of the screen.
//!
//! ```text
//! baton top  SERVERS                                  NODES, or what is wrong
//! 1 Locks  2 Elections  …
//! PATH    HOLDER    …
//! (lines)
//! (details of the chosen line, unfolded)
//! q quit  ? help  …
//! ```

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

use super::cell::{age, foreign};
use super::details;
use super::follow::{Servers, Tree};
use super::tables::Tab;
use super::view::View;
use crate::output::Tone;
use crate::output::table::{GAP, fit};
use crate::output::width::{shortened, width};

/// The smallest screen that is drawn on.
const LEAST: (u16, u16) = (40, 8);
/// Lines above the table and below it: the head, the tables, the titles; the keys.
const FRAME: u16 = 4;

/// Heading of the survey as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    pub(super) servers: &'a str,
    /// For how long no server has answered.
    pub(super) cut_off: Option<Duration>,
}

/// The styles, with or without colour.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    color: bool,
}

impl Palette {
    pub(super) fn new(color: bool) -> Self {
        Self { color }
    }

    fn of(self, tone: Option<Tone>) -> Style {
        let color = |color| {
            if self.color {
                Style::new().fg(color)
            } else {
                Style::new()
            }
        };
        match tone {
            None => Style::new(),
            Some(Tone::Title) => Style::new().add_modifier(Modifier::BOLD),
            Some(Tone::Good) => color(Color::Green),
            Some(Tone::Warning) => color(Color::Yellow),
            Some(Tone::Bad) => color(Color::Red).add_modifier(Modifier::BOLD),
        }
    }
}

const KEYS: &str = "q quit  ? help  / search  s order  r reverse  Enter unfold  Tab next table";

const HELP: [&str; 16] = [
    "1 to 7, Tab, arrows   another table",
    "j k, up down          another line",
    "PgUp PgDn, space      a page; of the details, where a line is unfolded",
    "g G, Home End         the first line, the last",
    "Enter                 unfold the line, and fold it again",
    "s S                   order by the next column, by the one before",
    "r                     the other way round",
    "/                     show only lines with this text; Esc shows all again",
    "Ctrl-L                draw the screen again",
    "Ctrl-Z                stop; fg continues",
    "q, Ctrl-C             quit",
    "",
    "≤ 5m   held for at most 5 minutes: the holder was there before baton top was",
    "TURNS/S   how many released or gave up, a second, over the last minute",
    "READ MS, WRITE MS   mean time to an answer since the last question",
    "Lines in red are in a deadlock, or do not answer. Any key closes this page.",
];

/// Lines of the screen, written from top to bottom.
struct Canvas<'a> {
    buffer: &'a mut Buffer,
    palette: Palette,
}

impl Canvas<'_> {
    fn width(&self) -> u16 {
        self.buffer.area.width
    }

    fn height(&self) -> u16 {
        self.buffer.area.height
    }

    /// Writes a text from this column on, cut at the edge.
    fn write(&mut self, x: u16, y: u16, text: &str, style: Style) {
        if y < self.height() && x < self.width() {
            let room = usize::from(self.width() - x);
            let text = shortened(text, room);
            self.buffer.set_stringn(x, y, text, room, style);
        }
    }

    fn line(&mut self, y: u16, text: &str, tone: Option<Tone>) {
        let style = self.palette.of(tone);
        self.write(0, y, text, style);
    }

    fn reverse(&mut self, y: u16) {
        let area = self.buffer.area;
        for x in 0..area.width {
            if let Some(cell) = self.buffer.cell_mut((x, y)) {
                cell.modifier.insert(Modifier::REVERSED);
            }
        }
    }
}

fn columns(text: &str) -> u16 {
    u16::try_from(width(text)).unwrap_or(u16::MAX)
}

/// Draws all of the screen.
pub(super) fn all(
    buffer: &mut Buffer,
    view: &mut View,
    tree: &Tree,
    servers: &Servers,
    head: &Head<'_>,
    palette: Palette,
) {
    let mut canvas = Canvas { buffer, palette };
    let (width, height) = (canvas.width(), canvas.height());
    if width < LEAST.0 || height < LEAST.1 {
        let text = format!("too small: {width}x{height}");
        canvas.line(0, &text, Some(Tone::Bad));
        canvas.line(1, &format!("needs {}x{}", LEAST.0, LEAST.1), None);
        canvas.line(2, "q quits", None);
        return;
    }
    top_line(&mut canvas, tree, head);
    tabs(&mut canvas, view);
    let body = height - FRAME;
    if view.help {
        for (y, line) in (2..height - 1).zip(HELP) {
            canvas.line(y, line, None);
        }
    } else if view.unfolded && !view.rows.is_empty() {
        // The details get more room than the table, which keeps the chosen line.
        let of_table = (body / 3).max(1);
        table(&mut canvas, view, tree, of_table);
        details(&mut canvas, view, tree, servers, 3 + of_table);
    } else {
        table(&mut canvas, view, tree, body);
    }
    let last = height - 1;
    if view.is_typing {
        canvas.line(
            last,
            &format!("/{}_", foreign(&view.search)),
            Some(Tone::Title),
        );
    } else if view.search.is_empty() {
        canvas.line(last, KEYS, None);
        canvas.reverse(last);
    } else {
        let found = match view.rows.len() {
            1 => "1 line".to_owned(),
            count => format!("{count} lines"),
        };
        let text = format!("{found} with {}  (Esc: all)", foreign(&view.search));
        canvas.line(last, &text, Some(Tone::Title));
    }
}

fn top_line(canvas: &mut Canvas<'_>, tree: &Tree, head: &Head<'_>) {
    let (state, tone) = state(tree, head);
    let room = usize::from(canvas.width());
    // What is wrong may take most of the line.
    let state = shortened(&state, room.saturating_sub(12));
    let x = canvas.width().saturating_sub(columns(&state));
    let left = room.saturating_sub(width(&state) + 2);
    let title = format!("baton top  {}", foreign(head.servers));
    let bold = canvas.palette.of(Some(Tone::Title));
    canvas.write(0, 0, &shortened(&title, left), bold);
    let style = canvas.palette.of(tone);
    canvas.write(x, 0, &state, style);
}

/// Returns the state of the survey.
fn state(tree: &Tree, head: &Head<'_>) -> (String, Option<Tone>) {
    if let Some(silent) = head.cut_off {
        let silent = age(i64::try_from(silent.as_millis()).unwrap_or(i64::MAX));
        let text = format!("no server answers for {silent}; trying again");
        return (text, Some(Tone::Bad));
    }
    if let Some(error) = &tree.error {
        let text = format!("{}; trying again", foreign(error));
        return (text, Some(Tone::Bad));
    }
    if !tree.is_known {
        return ("reading the tree".to_owned(), None);
    }
    if tree.partial {
        let text = format!("the first {} nodes: the tree is larger", tree.nodes);
        return (text, Some(Tone::Warning));
    }
    (format!("{} nodes", tree.nodes), None)
}

fn tabs(canvas: &mut Canvas<'_>, view: &View) {
    let named = |with_counts: bool| -> Vec<(Tab, String)> {
        let tab = |(at, tab): (usize, Tab)| {
            let count = view.counts.get(at).copied().unwrap_or(0);
            // Deadlocks are always counted where there are any.
            let is_counted = with_counts || (tab == Tab::Deadlocks && count > 0);
            let name = if is_counted {
                format!("{} {} {count}", at + 1, tab.title())
            } else {
                format!("{} {}", at + 1, tab.title())
            };
            (tab, name)
        };
        Tab::ALL.into_iter().enumerate().map(tab).collect()
    };
    let length =
        |tabs: &[(Tab, String)]| tabs.iter().map(|(_, name)| width(name) + 2).sum::<usize>();
    let mut all = named(true);
    if length(&all) > usize::from(canvas.width()) + 2 {
        all = named(false);
    }
    // Where not even these fit, those before the chosen one give way.
    let is_chosen = |tabs: &[(Tab, String)]| tabs.first().is_some_and(|(tab, _)| *tab == view.tab);
    while length(&all) > usize::from(canvas.width()) + 2 && !is_chosen(&all) {
        all.remove(0);
    }
    let mut x = 0;
    for (tab, name) in all {
        let mut tone = None;
        if tab == Tab::Deadlocks && view.counts.last().is_some_and(|count| *count > 0) {
            tone = Some(Tone::Bad);
        }
        let mut style = canvas.palette.of(tone);
        if tab == view.tab {
            style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        }
        canvas.write(x, 1, &name, style);
        x = x.saturating_add(columns(&name)).saturating_add(2);
    }
}

/// The table in this number of lines below its titles.
fn table(canvas: &mut Canvas<'_>, view: &mut View, tree: &Tree, lines: u16) {
    view.page = usize::from(lines);
    let all = view.tab.columns();
    let (order, _) = view.order();
    let titles: Vec<&str> = all.iter().map(|(title, _)| *title).collect();
    let mut widths: Vec<usize> = titles.iter().map(|title| width(title)).collect();
    for row in &view.rows {
        for (widest, cell) in widths.iter_mut().zip(&row.cells) {
            *widest = (*widest).max(width(&cell.text));
        }
    }
    let room = |count: usize| usize::from(canvas.width()).saturating_sub(GAP.len() * (count - 1));
    // Columns that cannot be made narrow enough give way from the right.
    let natural = widths.clone();
    let mut shown = all.len();
    loop {
        widths = natural.iter().take(shown).copied().collect();
        fit(
            &mut widths,
            titles.get(..shown).unwrap_or(&titles),
            room(shown),
        );
        if shown == 1 || widths.iter().sum::<usize>() <= room(shown) {
            break;
        }
        shown -= 1;
    }
    let spare = room(shown).saturating_sub(widths.iter().sum());
    let mut places = Vec::new();
    let mut x = 0;
    for (at, column) in widths.iter().enumerate() {
        // The first column gets what is left over.
        let column = if at == 0 { column + spare } else { *column };
        places.push((
            x,
            column,
            all.get(at).is_some_and(|(_, is_number)| *is_number),
        ));
        x += column + GAP.len();
    }
    let write = |canvas: &mut Canvas<'_>, y: u16, at: usize, text: &str, style: Style| {
        let Some((x, columns, to_the_right)) = places.get(at).copied() else {
            return;
        };
        let text = shortened(text, columns);
        let padding = if to_the_right {
            columns.saturating_sub(width(&text))
        } else {
            0
        };
        let x = u16::try_from(x + padding).unwrap_or(u16::MAX);
        canvas.write(x, y, &text, style);
    };
    for (at, title) in titles.iter().enumerate() {
        let mut style = canvas.palette.of(Some(Tone::Title));
        if at == order {
            style = style.add_modifier(Modifier::UNDERLINED);
        }
        write(canvas, 2, at, title, style);
    }
    let (at, top) = view.place();
    // The page may have become smaller since the line was chosen.
    let top = top.max((at + 1).saturating_sub(usize::from(lines))).min(at);
    for (y, (place, row)) in (3..3 + lines).zip(view.rows.iter().enumerate().skip(top)) {
        let style = canvas.palette.of(row.tone);
        for (at, cell) in row.cells.iter().enumerate() {
            write(canvas, y, at, &cell.text, style);
        }
        if place == at {
            canvas.reverse(y);
        }
    }
    if view.rows.is_empty() && tree.is_known {
        let none = if view.search.is_empty() {
            view.tab.none()
        } else {
            "no such line"
        };
        canvas.line(3, none, None);
    }
}

/// The details of the chosen line, from the line `from` on.
fn details(canvas: &mut Canvas<'_>, view: &mut View, tree: &Tree, servers: &Servers, from: u16) {
    let Some(id) = view.chosen() else {
        return;
    };
    let lines = details::lines(view.tab, id, tree, servers);
    let until = canvas.height() - 1;
    let page = usize::from(until.saturating_sub(from + 1));
    view.details_page = page;
    view.details_top = view.details_top.min(lines.len().saturating_sub(page));
    let rule = "-".repeat(usize::from(canvas.width()));
    canvas.line(from, &rule, None);
    let left = lines.len().saturating_sub(view.details_top + page);
    if left > 0 {
        canvas.write(3, from, &format!(" below: {left} (PgDn) "), Style::new());
    }
    let shown = lines.iter().skip(view.details_top);
    for (y, (line, tone)) in (from + 1..until).zip(shown) {
        canvas.line(y, line, *tone);
    }
}
