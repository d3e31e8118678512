//! The script language.
//!
//! ```text
//! # a comment
//! == name of a case            every case starts with empty databases and fresh connections
//! only: redis resp3            the case runs only so (words: redis valkey resp2 resp3)
//! step                         the case is never sent as one pipeline
//! > SET key "va\r\nlue"        one command on connection a, one reply
//! b> GET key                   the same on connection b
//! >3 SUBSCRIBE x y z           three replies;  >0 none
//! <                            one more message on connection a (b<: on b)
//! inline> PING hello           an inline command
//! raw> *1\r\n$4\r\nPING\r\n    bytes as they are
//! end                          the peer closes connection a, nothing before it
//! close                        this side closes connection a (it is opened again when it is used)
//! ~ reason                     the next reply may differ, but must be of the same kind
//! ~~ reason                    the next reply may differ in kind too
//! ```
//!
//! Words are divided by blanks; `"..."` takes `\r \n \t \0 \" \\ \xNN`, `'...'` is literal.

use std::path::Path;

/// Allowed differences between the two sides.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Tolerance {
    /// Nothing.
    #[default]
    None,
    /// The contents, not the kind of the reply.
    Contents,
    /// Everything.
    All,
}

/// One line of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Bytes to send on a connection and the replies to wait for.
    Send {
        /// Which connection, `a` unless named.
        connection: char,
        /// Bytes to send.
        bytes: Vec<u8>,
        /// Replies that follow.
        replies: usize,
        /// How they are compared.
        tolerance: Tolerance,
    },
    /// The peer closes.
    End(char),
    /// This side closes.
    Close(char),
}

/// A sequence with a name.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// As written.
    pub name: String,
    /// Line number of the heading.
    pub at: usize,
    /// Words of `only:`; empty: always.
    pub only: Vec<String>,
    /// Never as one pipeline.
    pub is_stepwise: bool,
    /// In order.
    pub lines: Vec<Line>,
    /// Reasons of the tolerances, for the report.
    pub reasons: Vec<String>,
}

impl Case {
    /// Whether it runs with this server and protocol version.
    pub fn applies(&self, server: &str, protocol: u8) -> bool {
        let allows = |words: [&str; 2], is: &str| {
            let named: Vec<&String> = self.only.iter().filter(|word| words.contains(&word.as_str())).collect();
            named.is_empty() || named.iter().any(|word| *word == is)
        };
        allows(["redis", "valkey"], server) && allows(["resp2", "resp3"], &format!("resp{protocol}"))
    }

    /// Whether all of it may be sent in one piece: one connection, every reply counted.
    pub fn can_be_pipelined(&self) -> bool {
        !self.is_stepwise && self.lines.iter().all(|line| matches!(line, Line::Send { connection: 'a', .. }))
    }
}

/// A file of cases.
pub struct Script {
    /// File name.
    pub name: String,
    /// In order.
    pub cases: Vec<Case>,
}

impl Script {
    /// Reads `tests/parity/<name>.txt`.
    ///
    /// # Panics
    /// If it cannot be read or a line is not understood.
    pub fn load(name: &str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("parity/{name}.txt"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self::parse(name, &text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut cases: Vec<Case> = Vec::new();
        let mut tolerance = Tolerance::None;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            let at = number + 1;
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(title) = line.strip_prefix("== ") {
                cases.push(Case { name: title.to_owned(), at, ..Case::default() });
                continue;
            }
            let case = cases.last_mut().ok_or_else(|| format!("line {at}: before the first case"))?;
            if let Some(words) = line.strip_prefix("only: ") {
                case.only = words.split(' ').map(str::to_owned).collect();
            } else if line == "step" {
                case.is_stepwise = true;
            } else if let Some(reason) = line.strip_prefix("~~ ") {
                tolerance = Tolerance::All;
                case.reasons.push(reason.to_owned());
            } else if let Some(reason) = line.strip_prefix("~ ") {
                tolerance = Tolerance::Contents;
                case.reasons.push(reason.to_owned());
            } else {
                let parsed = parse_line(line, std::mem::take(&mut tolerance))
                    .map_err(|error| format!("line {at}: {error}: {line}"))?;
                case.lines.push(parsed);
            }
        }
        Ok(Self { name: name.to_owned(), cases })
    }
}

fn parse_line(line: &str, tolerance: Tolerance) -> Result<Line, String> {
    if let Some(rest) = line.strip_prefix("inline> ") {
        return Ok(send('a', format!("{rest}\r\n").into_bytes(), 1, tolerance));
    }
    if let Some(rest) = line.strip_prefix("raw>") {
        let (count, rest) = rest.split_once(' ').ok_or("no bytes")?;
        return Ok(send('a', unescape(rest)?, reply_count(count)?, tolerance));
    }
    match line {
        "end" => return Ok(Line::End('a')),
        "close" => return Ok(Line::Close('a')),
        _ => {}
    }
    let sign = line.find(['>', '<']).ok_or("no `>`")?;
    let connection = match &line[..sign] {
        "" => 'a',
        name if name.len() == 1 => name.chars().next().unwrap_or('a'),
        _ => return Err("a connection is one letter".into()),
    };
    let rest = &line[sign + 1..];
    if line[sign..].starts_with('<') {
        let count = reply_count(rest.trim())?;
        return Ok(send(connection, Vec::new(), count, tolerance));
    }
    match rest.trim() {
        "end" => return Ok(Line::End(connection)),
        "close" => return Ok(Line::Close(connection)),
        _ => {}
    }
    let (count, words) = rest.split_once(' ').ok_or("no command")?;
    let words = split(words)?;
    Ok(send(connection, crate::wire::encode(&words), reply_count(count)?, tolerance))
}

fn send(connection: char, bytes: Vec<u8>, replies: usize, tolerance: Tolerance) -> Line {
    Line::Send { connection, bytes, replies, tolerance }
}

fn reply_count(text: &str) -> Result<usize, String> {
    match text {
        "" => Ok(1),
        digits => digits.parse().map_err(|_| format!("`{digits}` is no count")),
    }
}

/// Divides a line into words.
fn split(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (word, behind) = match rest.as_bytes()[0] {
            b'"' => {
                let end = closing_quote(rest)?;
                (unescape(&rest[1..end])?, &rest[end + 1..])
            }
            b'\'' => {
                let end = rest[1..].find('\'').ok_or("an open quote")? + 1;
                (rest.as_bytes()[1..end].to_vec(), &rest[end + 1..])
            }
            _ => {
                let end = rest.find(' ').unwrap_or(rest.len());
                (rest.as_bytes()[..end].to_vec(), &rest[end..])
            }
        };
        words.push(word);
        rest = behind.trim_start();
    }
    Ok(words)
}

fn closing_quote(text: &str) -> Result<usize, String> {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return Ok(at),
            _ => at += 1,
        }
    }
    Err("an open quote".into())
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut characters = text.bytes();
    while let Some(byte) = characters.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match characters.next().ok_or("a lone backslash")? {
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'0' => 0,
            b'x' => {
                let digits = [
                    characters.next().ok_or("\\x takes two digits")?,
                    characters.next().ok_or("\\x takes two digits")?,
                ];
                let text = std::str::from_utf8(&digits).map_err(|error| error.to_string())?;
                u8::from_str_radix(text, 16).map_err(|error| error.to_string())?
            }
            other => other,
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_line_is_understood() {
        let text = "# c\n== one\nonly: redis resp3\n> SET k \"a\\r\\n\\x00\"\nb>2 SUBSCRIBE x 'y z'\n<\n\
                    ~ differs\ninline> PING\nraw>2 PING\\r\\nPING\\r\\n\nend\n== two\nstep\nb<\n";
        let script = Script::parse("t", text).expect("a script");
        assert_eq!(script.cases.len(), 2);
        let one = &script.cases[0];
        assert!(one.applies("redis", 3) && !one.applies("valkey", 3) && !one.applies("redis", 2));
        assert!(!one.can_be_pipelined());
        assert_eq!(one.lines.len(), 6);
        assert_eq!(one.reasons, ["differs"]);
        let Line::Send { bytes, .. } = &one.lines[0] else {
            panic!("a command");
        };
        assert!(bytes.ends_with(b"$4\r\na\r\n\0\r\n"));
        let Line::Send { replies, tolerance, .. } = &one.lines[3] else {
            panic!("an inline command");
        };
        assert_eq!((*replies, tolerance), (1, &Tolerance::Contents));
        assert!(script.cases[1].is_stepwise);
    }
}
