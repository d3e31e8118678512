//! A body in pieces leads to its facts.

use weir_json_codec::{Duplicates, Kind, Scanner, Sink, Value};

use super::endpoint::Endpoint;
use super::error::BodyError;
use super::facts::{Facts, Wanted};
use super::field::Field;
use super::paths;
use super::span::Span;

/// Reads one body.
#[derive(Clone, Debug)]
pub struct BodyReader {
    scanner: Scanner<Field>,
    collector: Collector,
}

/// The facts of a body that is in one piece.
///
/// # Errors
/// The body is invalid, or a policy and the receiver could read it differently.
pub fn read(endpoint: Endpoint, body: &[u8], wanted: Wanted) -> Result<Facts, BodyError> {
    let mut reader = BodyReader::new(endpoint, wanted);
    reader.push(body)?;
    Ok(*reader.finish()?)
}

impl BodyReader {
    /// In front of a body of this kind.
    pub fn new(endpoint: Endpoint, wanted: Wanted) -> Self {
        let scanner = Scanner::new(paths::of(endpoint, wanted.prompts), Duplicates::Refuse);
        Self { scanner, collector: Collector { wanted, facts: Box::new(Facts::new(endpoint)), error: None } }
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// As [`read`]. The reader is of no more use.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), BodyError> {
        if self.scanner.offset() + piece.len() as u64 >= u64::from(u32::MAX) {
            return Err(BodyError::TooLarge);
        }
        let scanned = self.scanner.push(piece, &mut self.collector);
        self.collector.verdict()?;
        Ok(scanned?)
    }

    /// The body has ended.
    ///
    /// # Errors
    /// As [`read`].
    pub fn finish(mut self) -> Result<Box<Facts>, BodyError> {
        let scanned = self.scanner.finish(&mut self.collector);
        self.collector.verdict()?;
        scanned?;
        if self.collector.facts.body.is_empty() {
            return Err(BodyError::NotAnObject);
        }
        Ok(self.collector.facts)
    }
}

/// Takes values from the scanner until one is in error.
#[derive(Clone, Debug)]
struct Collector {
    wanted: Wanted,
    facts: Box<Facts>,
    error: Option<BodyError>,
}

impl Collector {
    /// A value in error comes before any mistake that the scanner finds in the same piece.
    fn verdict(&mut self) -> Result<(), BodyError> {
        self.error.take().map_or(Ok(()), Err)
    }

    fn take(&mut self, value: &Value<'_, Field>) -> Result<(), BodyError> {
        let facts = &mut self.facts;
        match value.path {
            Field::Body if value.kind != Kind::Object => return Err(BodyError::NotAnObject),
            Field::Body => (facts.body, facts.members) = (Span::new(value.start, value.end), value.count),
            Field::Messages => {
                (facts.messages, facts.messages_count) = (Span::new(value.start, value.end), value.count);
            }
            Field::PromptItem | Field::Text
                if matches!(facts.endpoint, Endpoint::Completions | Endpoint::Embeddings) =>
            {
                match value.kind {
                    Kind::Number => facts.items.tokens += 1,
                    Kind::Array => {
                        (facts.items.prompts, facts.items.tokens) =
                            (facts.items.prompts + 1, facts.items.tokens + value.count)
                    }
                    _ => facts.items.prompts += 1,
                }
            }
            Field::Instructions => facts.instructions = Span::new(value.start, value.end),
            _ => {}
        }
        facts.options.take(value)?;
        facts.tools.take(value)?;
        if self.wanted.prompts {
            facts.prompts.take(value, facts.endpoint)?;
        }
        Ok(())
    }
}

impl Sink<Field> for Collector {
    fn begin(&mut self, path: Field, _: Kind, _: u64) {
        self.facts.tools.begin(path);
        self.facts.prompts.begin(path);
    }

    fn value(&mut self, value: Value<'_, Field>) {
        if self.error.is_none() {
            self.error = self.take(&value).err();
        }
    }
}
