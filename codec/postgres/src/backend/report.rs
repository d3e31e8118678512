//! Errors and notices (`E`, `N`): fields, each with a letter.

use super::tag;
use crate::body::Body;
use crate::error::MessageError;
use crate::write::{message, string};

/// Fields of an error or a notice, already checked.
#[derive(Clone, Copy, Debug)]
pub struct ErrorFields<'a>(Body<'a>);

impl<'a> ErrorFields<'a> {
    /// # Errors
    /// The body does not have this form. An error without a SQLSTATE has it: see [`Self::sqlstate`].
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let fields = body;
        while body.u8()? != 0 {
            body.string()?;
        }
        body.end()?;
        Ok(Self(fields))
    }

    /// The fields at the beginning of a body of which the rest is still to come. A field that is not whole is left out.
    pub fn read_head(start: &'a [u8]) -> Self {
        Self(Body::new(start))
    }

    /// Letters and texts, in order.
    pub fn iter(self) -> impl Iterator<Item = (u8, &'a [u8])> {
        let mut body = self.0;
        std::iter::from_fn(move || match body.u8() {
            Ok(0) | Err(_) => None,
            Ok(letter) => body.string().ok().map(|text| (letter, text)),
        })
    }

    /// The first field with this letter.
    pub fn get(self, letter: u8) -> Option<&'a [u8]> {
        self.iter().find(|(known, _)| *known == letter).map(|(_, text)| text)
    }

    /// The five letters and digits of the code; `None`: the server sent none, or something else.
    pub fn sqlstate(self) -> Option<&'a str> {
        let code = self.get(b'C').filter(|code| code.len() == 5 && code.iter().all(u8::is_ascii_alphanumeric))?;
        std::str::from_utf8(code).ok()
    }

    /// The severity in English; that of the server's language from servers before 9.6.
    pub fn severity(self) -> Option<&'a [u8]> {
        self.get(b'V').or_else(|| self.get(b'S'))
    }

    /// The connection ends after it.
    pub fn is_fatal(self) -> bool {
        matches!(self.severity(), Some(b"FATAL" | b"PANIC"))
    }

    /// The text.
    pub fn message(self) -> Option<&'a [u8]> {
        self.get(b'M')
    }
}

/// The weight of an error or a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// The statement failed.
    Error,
    /// The connection ends.
    Fatal,
    /// All connections of the server end.
    Panic,
    /// A notice about a likely mistake.
    Warning,
    /// A notice.
    Notice,
    /// A notice for developers.
    Debug,
    /// A notice that was requested.
    Info,
    /// A notice for the server's log.
    Log,
}

impl Severity {
    /// Its word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Fatal => "FATAL",
            Self::Panic => "PANIC",
            Self::Warning => "WARNING",
            Self::Notice => "NOTICE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Log => "LOG",
        }
    }
}

/// An error or a notice to send. Texts are bytes: they may quote a name in the client's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReport<'a> {
    /// Weight.
    pub severity: Severity,
    /// Code: see [`crate::sqlstate`].
    pub sqlstate: &'a str,
    /// The text: one sentence.
    pub message: &'a [u8],
    /// More about the case.
    pub detail: Option<&'a [u8]>,
    /// The next step of the reader.
    pub hint: Option<&'a [u8]>,
}

impl<'a> ErrorReport<'a> {
    /// Without detail and hint.
    pub fn new(severity: Severity, sqlstate: &'a str, message: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { severity, sqlstate, message: message.as_ref(), detail: None, hint: None }
    }

    /// The statement failed.
    pub fn error(sqlstate: &'a str, message: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::new(Severity::Error, sqlstate, message)
    }

    /// The connection ends.
    pub fn fatal(sqlstate: &'a str, message: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::new(Severity::Fatal, sqlstate, message)
    }

    /// With more about the case.
    #[must_use]
    pub fn with_detail(self, detail: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { detail: Some(detail.as_ref()), ..self }
    }

    /// With the next step of the reader.
    #[must_use]
    pub fn with_hint(self, hint: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self { hint: Some(hint.as_ref()), ..self }
    }
}

/// ErrorResponse.
pub fn error(out: &mut Vec<u8>, report: &ErrorReport<'_>) {
    fields(out, tag::ERROR, report);
}

/// ErrorResponse with all fields of another one, but another weight.
pub fn error_as(out: &mut Vec<u8>, severity: Severity, fields: ErrorFields<'_>) {
    message(out, tag::ERROR, |out| {
        for (letter, text) in fields.iter() {
            out.push(letter);
            string(out, if matches!(letter, b'S' | b'V') { severity.as_str().as_bytes() } else { text });
        }
        out.push(0);
    });
}

/// NoticeResponse.
pub fn notice(out: &mut Vec<u8>, report: &ErrorReport<'_>) {
    fields(out, tag::NOTICE, report);
}

fn fields(out: &mut Vec<u8>, tag: u8, report: &ErrorReport<'_>) {
    let severity = Some(report.severity.as_str().as_bytes());
    let fields = [
        (b'S', severity),
        (b'V', severity),
        (b'C', Some(report.sqlstate.as_bytes())),
        (b'M', Some(report.message)),
        (b'D', report.detail),
        (b'H', report.hint),
    ];
    message(out, tag, |out| {
        for (letter, text) in fields {
            if let Some(text) = text {
                out.push(letter);
                string(out, text);
            }
        }
        out.push(0);
    });
}
