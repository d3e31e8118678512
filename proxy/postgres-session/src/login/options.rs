//! The parameter `options`: switches of a server's command line.

use std::fmt;

/// Name and value of a setting.
pub type Setting = (Vec<u8>, Vec<u8>);

/// A switch that a client may not use, in the words of PostgreSQL (SQLSTATE 42601).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionsError {
    /// `-c name` or `--name` without a value.
    NoValue {
        /// The switch with its name, cut.
        switch: String,
    },
    /// Another switch, or a word that is none.
    Unknown {
        /// The word, cut.
        word: String,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionsError::NoValue { switch } => write!(f, "{switch} requires a value"),
            OptionsError::Unknown { word } => {
                write!(f, "invalid command-line argument for server process: {word}")
            }
        }
    }
}

/// Settings of `options`: `-c name=value`, `-cname=value` and `--name=value`, in which a dash in a name counts as `_`. They
/// are in order; the last value of a name counts.
///
/// # Errors
/// Any other word. PostgreSQL has more switches; each is also a setting with a name.
pub fn settings(options: &[u8]) -> Result<Vec<Setting>, OptionsError> {
    let mut settings = Vec::new();
    let mut words = words(options).into_iter();
    while let Some(word) = words.next() {
        let (switch, assignment) = if let Some(long) = word.strip_prefix(b"--") {
            ("--", long.to_vec())
        } else if word == b"-c" {
            ("-c ", words.next().ok_or_else(|| OptionsError::Unknown { word: shown(&word) })?)
        } else if let Some(short) = word.strip_prefix(b"-c") {
            ("-c ", short.to_vec())
        } else {
            return Err(OptionsError::Unknown { word: shown(&word) });
        };
        let Some(equals) = assignment.iter().position(|byte| *byte == b'=').filter(|at| *at > 0) else {
            return Err(OptionsError::NoValue { switch: format!("{switch}{}", shown(&assignment)) });
        };
        let name: Vec<u8> = assignment[..equals].iter().map(|byte| if *byte == b'-' { b'_' } else { *byte }).collect();
        settings.push((name, assignment[equals + 1..].to_vec()));
    }
    Ok(settings)
}

/// Words between blanks. A backslash takes the next byte as it is, also a blank.
fn words(text: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut bytes = text.iter();
    let mut word: Option<Vec<u8>> = None;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => word.get_or_insert_default().extend(bytes.next()),
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => words.extend(word.take()),
            other => word.get_or_insert_default().push(*other),
        }
    }
    words.extend(word);
    words
}

/// A word in a message: 60 characters of it.
fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &str) -> Result<Vec<(String, String)>, String> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let settings = settings(options.as_bytes()).map_err(|error| error.to_string())?;
        Ok(settings.into_iter().map(|(name, value)| (text(name), text(value))).collect())
    }

    fn pairs(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
        Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn settings_are_read_with_the_escapes_of_postgresql() {
        assert_eq!(read(""), pairs(&[]));
        assert_eq!(read("-c geqo=off"), pairs(&[("geqo", "off")]));
        assert_eq!(
            read("  -cgeqo=off\t--statement-timeout=5min "),
            pairs(&[("geqo", "off"), ("statement_timeout", "5min")])
        );
        assert_eq!(read(r"-c search_path=a,\ b\\c"), pairs(&[("search_path", r"a, b\c")]));
        assert_eq!(read("-c a=1 -c b=2 --A=3"), pairs(&[("a", "1"), ("b", "2"), ("A", "3")]));
        assert_eq!(read("-c a=b=c --x="), pairs(&[("a", "b=c"), ("x", "")]));
        assert_eq!(read("-c application.name=x"), pairs(&[("application.name", "x")]));
    }

    #[test]
    fn other_switches_are_refused_with_the_text_of_postgresql() {
        let unknown = "invalid command-line argument for server process: ";
        for (options, text) in [
            ("-c geqo", "-c geqo requires a value".to_owned()),
            ("--geqo", "--geqo requires a value".to_owned()),
            ("--=x", "--=x requires a value".to_owned()),
            ("-c", format!("{unknown}-c")),
            ("-S 64", format!("{unknown}-S")),
            ("word", format!("{unknown}word")),
            (r"\", unknown.to_owned()),
        ] {
            assert_eq!(read(options), Err(text), "{options}");
        }
    }
}
