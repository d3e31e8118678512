//! `weir top`: a live view of one gateway, polled from its admin API.
//!
//! [`client`] takes a sample a second, [`view`] turns the last two into rows, [`render`] draws them. Rates and
//! quantiles are those of the time between the two samples; a quantile that cannot be windowed is marked with `*`.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use weir_base::secret::Secret;

mod client;
mod exposition;
mod format;
mod histogram;
mod insight;
mod render;
mod responses;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod view;

use client::{AdminClient, Sample};
use insight::Page;
use state::{Flow, State};

/// Watch a running gateway.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  \
                  weir top\n  \
                  weir top --admin http://10.0.0.7:9900 --token-env WEIR_TOKEN\n  \
                  weir top --once | head -5\n  \
                  weir top --once --view slow-log\n\n\
                  Keys:\n  \
                  q  quit                   p  pause\n  \
                  o  overview               l  slow log\n  \
                  h  hot keys               b  big keys\n  \
                  a  AI clients             w  clients that wait, are pinned, or are in a transaction\n  \
                  Tab  select a table       arrows  scroll the table\n  \
                  n, c, r, t, i, s  sort listeners by name, connections, requests, p99, requests in flight, shed requests")]
pub struct TopArgs {
    /// URL of the admin address.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9900", value_parser = admin_url)]
    pub admin: String,

    /// Environment variable that holds the admin token [default: WEIR_ADMIN_TOKEN, if it is set].
    #[arg(long, value_name = "NAME")]
    pub token_env: Option<String>,

    /// Seconds between polls, 0.2 to 60.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: Duration,

    /// Print one frame as plain text and exit; needs no terminal.
    #[arg(long)]
    pub once: bool,

    /// First page to show; the keys o, h, b, l, w and a change the page.
    #[arg(long, value_enum, default_value_t)]
    pub view: Page,

    /// Width of the `--once` frame in columns, 80 to 400.
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u16).range(80..=400), requires = "once")]
    pub columns: u16,
}

/// Why the view ended.
#[derive(Debug)]
pub enum TopError {
    /// The named environment variable holds no token.
    Token {
        /// Its name.
        name: String,
    },
    /// Standard output is no terminal.
    NotATerminal,
    /// The admin API did not respond; only with `--once`, the live view waits for it to come back.
    Unreachable(String),
    /// The terminal or standard output failed.
    Io(io::Error),
}

impl fmt::Display for TopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token { name } => {
                write!(f, "the environment variable {name} holds no token; export it, or name another with --token-env")
            }
            Self::NotATerminal => write!(f, "standard output is no terminal; use --once for a plain-text frame"),
            Self::Unreachable(cause) => write!(f, "{cause}"),
            Self::Io(error) => write!(f, "terminal: {error}"),
        }
    }
}

impl std::error::Error for TopError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Token { .. } | Self::NotATerminal | Self::Unreachable(_) => None,
        }
    }
}

impl From<io::Error> for TopError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs `weir top` until the user quits.
pub fn run(args: &TopArgs) -> Result<(), TopError> {
    let client = AdminClient::new(&args.admin, token(args.token_env.as_deref())?);
    let mut state = State::new(&args.admin);
    state.visible_page = client.visible_page();
    state.show(args.view);
    if args.once {
        let mut output = io::stdout().lock();
        return once(&client, state, args, &mut output);
    }
    if !io::stdout().is_terminal() {
        return Err(TopError::NotATerminal);
    }
    let (samples, polled) = mpsc::sync_channel(1);
    let (stop, stopped) = mpsc::channel();
    let interval = args.interval;
    // Not joined at the end: it may be waiting for a response, and the process ends with it.
    thread::Builder::new()
        .name("weir-top-poll".to_owned())
        .spawn(move || poll(&client, interval, &samples, &stopped))?;
    let ended = live(state, &polled);
    // Hanging up is what ends the poll's pause.
    drop(stop);
    ended
}

/// Two polls, one frame.
fn once(client: &AdminClient, mut state: State, args: &TopArgs, output: &mut impl Write) -> Result<(), TopError> {
    let unreachable = |cause| TopError::Unreachable(format!("{}{cause}", args.admin.trim_end_matches('/')));
    state.accept(Ok(client.sample().map_err(unreachable)?));
    thread::sleep(args.interval);
    state.accept(Ok(client.sample().map_err(unreachable)?));
    let frame = render::plain(&mut state, args.columns);
    match output.write_all(frame.as_bytes()) {
        // `weir top --once | head -5`: the reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// The polling thread: a sample per interval until the view is gone.
fn poll(
    client: &AdminClient,
    interval: Duration,
    samples: &mpsc::SyncSender<Result<Sample, String>>,
    stopped: &Receiver<()>,
) {
    loop {
        let begin = Instant::now();
        if samples.send(client.sample()).is_err() {
            return;
        }
        let rest = interval.saturating_sub(begin.elapsed());
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// The terminal in raw mode on its alternate screen; given back on drop, and by ratatui's hook on a panic.
struct Screen(ratatui::DefaultTerminal);

impl Screen {
    fn open() -> io::Result<Self> {
        ratatui::try_init().map(Self).inspect_err(|_| ratatui::restore())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// How long the loop waits for a key before it looks for a new sample.
const KEY_WAIT: Duration = Duration::from_millis(100);

fn live(mut state: State, polled: &Receiver<Result<Sample, String>>) -> Result<(), TopError> {
    let mut screen = Screen::open()?;
    loop {
        while let Ok(sample) = polled.try_recv() {
            state.accept(sample);
        }
        screen.0.draw(|frame| render::draw(frame, &mut state, Instant::now()))?;
        if !event::poll(KEY_WAIT)? {
            continue;
        }
        // A new size is seen by the next draw; mouse and focus events are not requested.
        let Event::Key(key) = event::read()? else { continue };
        if key.kind != KeyEventKind::Release && state.press(key) == Flow::Quit {
            return Ok(());
        }
    }
}

/// The admin token in the environment variable `name`; without a name that of the usual one, if it is set.
pub fn token(name: Option<&str>) -> Result<Option<Secret>, TopError> {
    let value = env::var(name.unwrap_or(TOKEN_ENV)).unwrap_or_default();
    let value = value.trim();
    match (value.is_empty(), name) {
        (false, _) => Ok(Some(Secret::from(value))),
        (true, None) => Ok(None),
        (true, Some(name)) => Err(TopError::Token { name: name.to_owned() }),
    }
}

/// Where the token is looked for if `--token-env` is not given.
const TOKEN_ENV: &str = "WEIR_ADMIN_TOKEN";

/// Reads the URL of an admin server.
pub fn admin_url(text: &str) -> Result<String, String> {
    let uri: ureq::http::Uri = text.parse().map_err(|error| format!("{error}; write http://HOST:PORT"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http"), Some(_)) if uri.path() == "/" && uri.query().is_none() => Ok(text.to_owned()),
        (Some("https"), _) => Err("the admin server speaks plain HTTP; write http://HOST:PORT".to_owned()),
        _ => Err("write http://HOST:PORT, without a path".to_owned()),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
    if (0.2..=60.0).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err("allowed are 0.2 to 60 seconds".to_owned())
}
