//! View of the user: which table in which order, what is searched for, which line.
//!
//! Owns what each key does. A line stays chosen by what it names, also when the order changes
//! around it.

use std::collections::BTreeMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::follow::{Servers, Tree};
use super::tables::{self, Row, Tab};

/// Result of a key, a change or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Redraw,
    /// Take the terminal again and draw all of it: somebody else may have drawn there.
    Retake,
    Suspend,
    Leave,
    Interrupt,
}

/// View of a table.
#[derive(Clone, Debug)]
struct Look {
    /// The column of the order.
    order: usize,
    reversed: bool,
    /// The line that is chosen, by its id, and where it was.
    chosen: Option<String>,
    at: usize,
    /// The first line on the screen.
    top: usize,
}

impl Look {
    fn first(tab: Tab) -> Self {
        Self {
            order: tab.first_order(),
            reversed: false,
            chosen: None,
            at: 0,
            top: 0,
        }
    }
}

/// The longest text that is searched for.
const LONGEST_SEARCH: usize = 200;

/// View of the user.
#[derive(Debug)]
pub(super) struct View {
    pub(super) tab: Tab,
    look: Look,
    /// Views of the other tables.
    others: BTreeMap<usize, Look>,
    /// Only lines with this text are shown.
    pub(super) search: String,
    /// Whether keys are letters of it.
    pub(super) is_typing: bool,
    pub(super) unfolded: bool,
    /// The first line of the details on the screen.
    pub(super) details_top: usize,
    pub(super) help: bool,
    /// The lines of the table, in order.
    pub(super) rows: Vec<Row>,
    /// Lines of each table, before the search.
    pub(super) counts: [usize; 7],
    /// Lines that fit on the screen: of the table, and of the details.
    pub(super) page: usize,
    pub(super) details_page: usize,
}

impl Default for View {
    fn default() -> Self {
        Self {
            tab: Tab::default(),
            look: Look::first(Tab::default()),
            others: BTreeMap::new(),
            search: String::new(),
            is_typing: false,
            unfolded: false,
            details_top: 0,
            help: false,
            rows: Vec::new(),
            counts: [0; 7],
            page: 1,
            details_page: 1,
        }
    }
}

impl View {
    /// The column of the order, and whether the largest come last.
    pub(super) fn order(&self) -> (usize, bool) {
        (self.look.order, self.look.reversed)
    }

    /// Returns the chosen line, and the first line on the screen.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.look.at, self.look.top)
    }

    /// The id of the chosen line.
    pub(super) fn chosen(&self) -> Option<&str> {
        let (at, _) = self.place();
        self.rows.get(at).map(|row| row.id.as_str())
    }

    /// Takes in the newest survey.
    pub(super) fn fill(&mut self, tree: &Tree, servers: &Servers) {
        self.counts = tables::counts(tree, servers);
        self.rows = tables::rows(self.tab, tree, servers);
        let sought = self.search.to_lowercase();
        if !sought.is_empty() {
            self.rows.retain(|row| row.has(&sought));
        }
        let (order, reversed) = self.order();
        let columns = self.tab.columns();
        let is_number = columns.get(order).is_some_and(|(_, is_number)| *is_number);
        self.rows.sort_by(|one, other| {
            let cells = one.cells.get(order).zip(other.cells.get(order));
            let by_cell = cells.map(|(one, other)| one.order(other));
            let by_cell = by_cell.unwrap_or(std::cmp::Ordering::Equal);
            let by_cell = if is_number == reversed {
                by_cell
            } else {
                by_cell.reverse()
            };
            by_cell.then_with(|| one.id.cmp(&other.id))
        });
        let ids = self.rows.iter().map(|row| row.id.as_str());
        let chosen = self.look.chosen.as_deref();
        let found = chosen.and_then(|chosen| ids.into_iter().position(|id| id == chosen));
        let last = self.rows.len().saturating_sub(1);
        let look = &mut self.look;
        // What is gone leaves the choice to the line that is there now.
        look.at = found.unwrap_or(look.at).min(last);
        self.keep_choice();
    }

    fn keep_choice(&mut self) {
        let id = self.chosen().map(str::to_owned);
        let page = self.page.max(1);
        let last_top = self.rows.len().saturating_sub(page);
        let look = &mut self.look;
        look.chosen = id;
        look.top = look
            .top
            .min(look.at)
            .max((look.at + 1).saturating_sub(page));
        look.top = look.top.min(last_top.max(look.at.saturating_sub(page - 1)));
    }

    /// Chooses the line this number further down.
    fn go(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        let look = &mut self.look;
        look.at = look.at.saturating_add_signed(by).min(last);
        self.details_top = 0;
        self.keep_choice();
    }

    fn turn(&mut self, by: isize) {
        if self.unfolded {
            let page = isize::try_from(self.details_page.max(1)).unwrap_or(1);
            self.details_top = self
                .details_top
                .saturating_add_signed(by.saturating_mul(page));
        } else {
            let page = isize::try_from(self.page.max(1)).unwrap_or(1);
            self.go(by.saturating_mul(page));
        }
    }

    fn show(&mut self, tab: Option<&Tab>) {
        let Some(tab) = tab.copied().filter(|tab| *tab != self.tab) else {
            return;
        };
        let next = self.others.remove(&tab.index());
        let before = std::mem::replace(&mut self.look, next.unwrap_or_else(|| Look::first(tab)));
        self.others.insert(self.tab.index(), before);
        self.tab = tab;
        self.unfolded = false;
        self.details_top = 0;
    }

    fn next_tab(&mut self, by: isize) {
        let all = Tab::ALL.len();
        let next = (self.tab.index() + all).saturating_add_signed(by) % all;
        self.show(Tab::ALL.get(next));
    }

    fn next_order(&mut self, by: isize) {
        let all = self.tab.columns().len();
        let look = &mut self.look;
        look.order = (look.order + all).saturating_add_signed(by) % all;
        look.reversed = false;
    }

    /// Does what a key asks for.
    pub(super) fn key(&mut self, key: KeyEvent) -> Outcome {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Outcome::Interrupt,
                KeyCode::Char('z') => return Outcome::Suspend,
                KeyCode::Char('l') => return Outcome::Retake,
                KeyCode::Char('u') if self.is_typing => self.search.clear(),
                _ => {}
            }
            return Outcome::Redraw;
        }
        if self.is_typing {
            self.letter(key.code);
            return Outcome::Redraw;
        }
        if self.help {
            // Any key leaves the help.
            self.help = false;
            return Outcome::Redraw;
        }
        match key.code {
            KeyCode::Char('q') => return Outcome::Leave,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s' | '>') => self.next_order(1),
            KeyCode::Char('S' | '<') => self.next_order(-1),
            KeyCode::Char('r') => {
                let look = &mut self.look;
                look.reversed = !look.reversed;
            }
            KeyCode::Char(digit @ '1'..='7') => {
                let index = usize::try_from(u32::from(digit) - u32::from('1')).unwrap_or(0);
                self.show(Tab::ALL.get(index));
            }
            KeyCode::Tab | KeyCode::Right => self.next_tab(1),
            KeyCode::BackTab | KeyCode::Left => self.next_tab(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.turn(1),
            KeyCode::PageUp => self.turn(-1),
            KeyCode::Home | KeyCode::Char('g') => self.go(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.go(isize::MAX),
            KeyCode::Enter => {
                self.unfolded = !self.unfolded;
                self.details_top = 0;
            }
            KeyCode::Esc if self.unfolded => self.unfolded = false,
            KeyCode::Esc => self.search.clear(),
            _ => {}
        }
        Outcome::Redraw
    }

    /// A key while the search is typed.
    fn letter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char(letter) if self.search.len() < LONGEST_SEARCH => self.search.push(letter),
            KeyCode::Backspace => {
                self.search.pop();
            }
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.search.clear();
                self.is_typing = false;
            }
            _ => {}
        }
    }
}
