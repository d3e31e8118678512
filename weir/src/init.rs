//! `weir init`: three questions, one real request to the upstream, and a file.

use std::{
    io::{self, BufRead, Write},
    path::PathBuf,
};

use clap::Args;

use crate::front::{
    self, PROTOCOLS, Protocol, address,
    file::{self, GeneratedConfig},
    probe,
};

/// Write a first weir.toml. Prompts for protocol, listen address and upstream, and sends one request to the upstream.
///
/// An empty answer selects the default in brackets. The answers may come from a pipe, one per line.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  weir init\n  printf 'redis\\n:6380\\nredis.internal:6379\\n' | weir init --file weir.toml"
)]
pub struct InitArgs {
    /// The file to write.
    #[arg(long, short, value_name = "FILE", default_value = "weir.toml")]
    file: PathBuf,

    /// Overwrite the file if it exists.
    #[arg(long)]
    force: bool,
}

/// Runs the command.
///
/// # Errors
/// In words: the file exists, an answer that comes from no terminal is wrong, or the file cannot be written.
pub fn run(args: &InitArgs) -> Result<(), String> {
    // Checked before the questions, so that no answers are given in vain.
    if args.file.exists() && !args.force {
        return Err(format!("{} exists; --force overwrites it", args.file.display()));
    }
    let is_terminal = io::IsTerminal::is_terminal(&io::stdin());
    let meaning = questions(&mut io::stdin().lock(), &mut io::stdout(), is_terminal)?;
    let text = meaning.text();
    let snapshot = front::checked(&text)?;
    probe::print(meaning.protocol, &snapshot, "The file is written nevertheless.");
    file::write(&args.file, &text, args.force)
}

/// Asks. A wrong answer repeats the question at a terminal, and is an error from a pipe.
fn questions(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    is_terminal: bool,
) -> Result<GeneratedConfig<'static>, String> {
    let mut ask = Ask { input, output, is_terminal };
    let words: Vec<&str> = PROTOCOLS.iter().map(|protocol| protocol.word).collect();
    let unknown = format!("write one of {}", words.join(", "));
    let title = format!("Protocol ({})", words.join(", "));
    let protocol: &Protocol = ask.until(&title, words[0], |text| front::named(text).ok_or_else(|| unknown.clone()))?;
    let default = format!("127.0.0.1:{}", protocol.listen_port);
    let listen = ask.until("Listen address (:PORT is on 127.0.0.1)", &default, address::listen)?;
    let default = format!("127.0.0.1:{}", protocol.server_port);
    let upstream = ask.until("Upstream, the server behind the gateway", &default, address::upstream)?;
    Ok(GeneratedConfig { protocol, listen, upstreams: vec![upstream], is_tls: false, workers: None, admin: None })
}

/// Where questions go, and where answers come from.
struct Ask<'a> {
    input: &'a mut dyn BufRead,
    output: &'a mut dyn Write,
    is_terminal: bool,
}

impl Ask<'_> {
    /// Asks until the answer can be read. The end of the input is an empty answer.
    fn until<T>(&mut self, title: &str, default: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
        loop {
            let failed = |error: io::Error| format!("cannot prompt: {error}");
            write!(self.output, "{title} [{default}]: ").and_then(|()| self.output.flush()).map_err(failed)?;
            let mut line = String::new();
            self.input.read_line(&mut line).map_err(failed)?;
            if !self.is_terminal {
                // The line end that a terminal would have echoed.
                writeln!(self.output).map_err(failed)?;
            }
            let answer = if line.trim().is_empty() { default } else { line.trim() };
            match read(answer) {
                Ok(value) => return Ok(value),
                Err(mistake) if self.is_terminal => writeln!(self.output, "  {answer}: {mistake}").map_err(failed)?,
                Err(mistake) => return Err(format!("{title}: {answer}: {mistake}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(text: &str, is_terminal: bool) -> Result<String, String> {
        questions(&mut text.as_bytes(), &mut Vec::new(), is_terminal).map(|meaning| meaning.text())
    }

    #[test]
    fn empty_answers_take_the_defaults() {
        let defaults = file_of("", false).expect("all defaults");
        assert!(
            defaults.contains("bind = \"127.0.0.1:6380\"") && defaults.contains("[\"127.0.0.1:6379\"]"),
            "{defaults}"
        );
        assert_eq!(file_of("\n\n\n", false).as_ref(), Ok(&defaults));
        let http = file_of("http\n\n", false).expect("a protocol");
        assert!(http.contains("bind = \"127.0.0.1:8080\"") && http.contains("[\"127.0.0.1:3000\"]"), "{http}");
    }

    #[test]
    fn a_wrong_answer_repeats_the_question_at_a_terminal_and_fails_from_a_pipe() {
        let text = "memcached\ntcp\n:x\n:9000\nlocalhost:9001\n";
        let file = file_of(text, true).expect("right in the end");
        assert!(file.contains("bind = \"127.0.0.1:9000\"") && file.contains("[\"localhost:9001\"]"), "{file}");
        let refusal = file_of(text, false).expect_err("wrong at once");
        assert!(refusal.contains("memcached: write one of redis, http, tcp"), "{refusal}");
    }
}
