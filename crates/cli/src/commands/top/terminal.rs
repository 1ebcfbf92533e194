//! The terminal: taken for the whole screen, and given back however this process ends.
//!
//! Owns raw mode, the alternate screen and the keys. It is given back by `Drop`, by the hook of a
//! panic, and before this process stops.

use std::io::{Stdout, Write, stdout};
use std::sync::Once;
use std::time::Duration;

use nix::sys::signal::{Signal, raise};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::sync::mpsc;

use crate::exit::Failure;

/// Time that the thread that reads keys waits before it looks whether anybody still wants them.
const KEY_PATIENCE: Duration = Duration::from_millis(500);

/// The whole screen of the terminal.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn take() -> Result<Self, Failure> {
        restore_on_panic();
        enter().map_err(refused)?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout())).map_err(|error| {
            leave();
            refused(error)
        })?;
        Ok(Self { terminal })
    }

    /// Draws all of it; only what is different is written.
    pub(super) fn draw(&mut self, work: impl FnOnce(&mut Buffer)) -> Result<(), Failure> {
        let drawn = self.terminal.draw(|frame| work(frame.buffer_mut()));
        drawn.map(|_| ()).map_err(refused)
    }

    /// Gives the terminal back for a while.
    pub(super) fn give_back(&mut self) {
        leave();
    }

    /// Takes it again, and forgets what it shows.
    pub(super) fn take_again(&mut self) -> Result<(), Failure> {
        enter().map_err(refused)?;
        self.terminal.clear().map_err(refused)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn refused(error: std::io::Error) -> Failure {
    Failure::baton(format!(
        "cannot use the terminal: {error}; use baton lock ls or baton console"
    ))
}

fn enter() -> std::io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen)
}

/// A terminal that is gone cannot be given back: no error.
fn leave() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
    let _ = stdout().flush();
}

/// A panic's message would be drawn over, and the terminal left as it is.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
    });
}

/// Stops this process as Ctrl-Z does elsewhere, until it is continued. In a session without a
/// shell that could continue it, nothing happens.
pub(super) fn stop_process() {
    let _ = raise(Signal::SIGTSTP);
}

/// The keys, read by a thread of their own.
pub(super) struct Input(mpsc::Receiver<std::io::Result<KeyEvent>>);

impl Input {
    /// Begins to read.
    pub(super) fn start() -> Self {
        let (keys, input) = mpsc::channel(64);
        // It ends with the process, or when nobody wants keys any more.
        std::thread::spawn(move || {
            while !keys.is_closed() {
                let key = match event::poll(KEY_PATIENCE) {
                    Ok(false) => continue,
                    Ok(true) => event::read(),
                    Err(error) => Err(error),
                };
                let key = match key {
                    Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Ok(key),
                    Ok(_) => continue,
                    Err(error) => Err(error),
                };
                let is_last = key.is_err();
                if keys.blocking_send(key).is_err() || is_last {
                    return;
                }
            }
        });
        Self(input)
    }

    /// The next key. Safe to cancel.
    pub(super) async fn next(&mut self) -> Result<KeyEvent, Failure> {
        match self.0.recv().await {
            Some(key) => key.map_err(refused),
            None => std::future::pending().await,
        }
    }
}
