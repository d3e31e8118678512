//! State of the view between frames: two samples, the last failure, and the choices made with the keys.

use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::client::{Sample, VisiblePage};
use super::insight::Page;

/// The whole state of the view. Changed by polls and keys, read by the renderer.
pub(super) struct State {
    /// URL that is polled, for the header.
    pub(super) admin: String,
    /// The newest sample that is shown.
    pub(super) current: Option<Sample>,
    /// The one before it, of the same process: rates are what lies between.
    pub(super) previous: Option<Sample>,
    /// Why the last poll failed; `None` while polls succeed.
    pub(super) failure: Option<String>,
    /// When a poll last succeeded.
    pub(super) responded_at: Option<Instant>,
    pub(super) is_paused: bool,
    pub(super) sort: Sort,
    pub(super) focus: Section,
    /// The contents of the screen.
    pub(super) page: Page,
    /// Rows scrolled past on a page of one table.
    pub(super) page_offset: usize,
    /// Tells the poll what to ask for.
    pub(super) visible_page: VisiblePage,
    /// The table of routes is shown.
    pub(super) has_routes: bool,
    offsets: [usize; Section::ALL.len()],
}

/// Sort key of the listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SortKey {
    /// Name, ascending first.
    Name,
    /// The others: largest first.
    Connections,
    Requests,
    P99,
    InFlight,
    Shed,
}

/// Order of the listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) key: SortKey,
    /// True if the usual direction of the key is turned round.
    pub(super) is_reversed: bool,
}

/// A table of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Listeners,
    Routes,
    Upstreams,
    Workers,
    Refusals,
}

impl Section {
    const ALL: [Self; 5] = [Self::Listeners, Self::Routes, Self::Upstreams, Self::Workers, Self::Refusals];

    fn next(self) -> Self {
        Self::ALL[(self as usize + 1) % Self::ALL.len()]
    }
}

/// Next step of the main loop after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Quit,
}

impl State {
    pub(super) fn new(admin: &str) -> Self {
        Self {
            admin: admin.to_owned(),
            current: None,
            previous: None,
            failure: None,
            responded_at: None,
            is_paused: false,
            sort: Sort { key: SortKey::Requests, is_reversed: false },
            focus: Section::Listeners,
            page: Page::default(),
            page_offset: 0,
            visible_page: VisiblePage::default(),
            has_routes: false,
            offsets: [0; Section::ALL.len()],
        }
    }

    /// Takes the result of a poll. While paused the shown samples stay; whether the server responds is still shown.
    pub(super) fn accept(&mut self, polled: Result<Sample, String>) {
        let sample = match polled {
            Ok(sample) => sample,
            Err(failure) => {
                self.failure = Some(failure);
                return;
            }
        };
        self.failure = None;
        self.responded_at = Some(sample.at);
        if self.is_paused {
            return;
        }
        let is_same_process = |old: &Sample| {
            old.version.pid == sample.version.pid && old.version.uptime_seconds <= sample.version.uptime_seconds
        };
        self.previous = self.current.take().filter(is_same_process);
        self.current = Some(sample);
    }

    /// Takes a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Flow {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Flow::Quit,
            KeyCode::Char('q') | KeyCode::Esc => return Flow::Quit,
            KeyCode::Char('p' | ' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('n') => self.sort_by(SortKey::Name),
            KeyCode::Char('c') => self.sort_by(SortKey::Connections),
            KeyCode::Char('r') => self.sort_by(SortKey::Requests),
            KeyCode::Char('t') => self.sort_by(SortKey::P99),
            KeyCode::Char('i') => self.sort_by(SortKey::InFlight),
            KeyCode::Char('s') => self.sort_by(SortKey::Shed),
            KeyCode::Char('o') => self.show(Page::Overview),
            KeyCode::Char('h') => self.show(Page::HotKeys),
            KeyCode::Char('b') => self.show(Page::BigKeys),
            KeyCode::Char('l') => self.show(Page::SlowLog),
            KeyCode::Char('w') => self.show(Page::Clients),
            KeyCode::Char('a') => self.show(Page::Ai),
            KeyCode::Tab => self.choose_next(),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(10),
            KeyCode::PageUp => self.scroll(-10),
            KeyCode::Home => self.scroll(isize::MIN),
            _ => {}
        }
        Flow::Continue
    }

    /// Rows scrolled past in a table; the renderer keeps the last row in sight and stores what it used.
    pub(super) fn offset(&self, section: Section) -> usize {
        self.offsets[section as usize]
    }

    /// Stores the offset that was possible with the rows there are.
    pub(super) fn set_offset(&mut self, section: Section, offset: usize) {
        self.offsets[section as usize] = offset;
    }

    /// Fills the screen with this; the same page again leads back.
    pub(super) fn show(&mut self, page: Page) {
        self.page = if self.page == page { Page::Overview } else { page };
        self.page_offset = 0;
        self.visible_page.set(self.page);
    }

    /// The next table. That of the routes is not there without any.
    fn choose_next(&mut self) {
        self.focus = self.focus.next();
        if self.focus == Section::Routes && !self.has_routes {
            self.focus = self.focus.next();
        }
    }

    fn scroll(&mut self, rows: isize) {
        let offset = match self.page {
            Page::Overview => &mut self.offsets[self.focus as usize],
            Page::HotKeys | Page::BigKeys | Page::SlowLog | Page::Clients | Page::Ai => &mut self.page_offset,
        };
        *offset = offset.saturating_add_signed(rows);
    }

    /// The same key again turns the order round.
    fn sort_by(&mut self, key: SortKey) {
        self.sort = Sort { key, is_reversed: self.sort.key == key && !self.sort.is_reversed };
    }
}
