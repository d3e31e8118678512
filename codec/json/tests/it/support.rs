//! Shared parts of the scanner's tests: watched paths, their values, and the verdict of another reader.

use serde_json::error::Category;
use weir_json_codec::{Duplicates, JsonError, Kind, Node, Scanner, Sink, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    Root,
    Model,
    Options,
    Include,
    Tools,
    Name,
    Input,
    Part,
    Text,
}

static TEXT: Node<Path> = Node::value(Path::Part).members(&[("text", Node::value(Path::Text))]);
static TOOL: Node<Path> = Node::NEW.members(&[
    ("name", Node::value(Path::Name)),
    ("function", Node::NEW.members(&[("name", Node::value(Path::Name))])),
]);
pub static ROOT: Node<Path> = Node::value(Path::Root).members(&[
    ("model", Node::value(Path::Model)),
    ("stream_options", Node::value(Path::Options).members(&[("include_usage", Node::value(Path::Include))])),
    ("tools", Node::value(Path::Tools).items(&TOOL)),
    ("input", Node::value(Path::Input).items(&TEXT)),
]);

/// A value with its place and its raw bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub path: Path,
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
    pub text: Option<Vec<u8>>,
    pub count: u64,
}

#[derive(Default)]
pub struct Record {
    pub seen: Vec<Seen>,
    begun: Vec<(Path, u64)>,
}

impl Sink<Path> for Record {
    fn begin(&mut self, path: Path, _: Kind, start: u64) {
        self.begun.push((path, start));
    }

    fn value(&mut self, value: Value<'_, Path>) {
        if matches!(value.kind, Kind::Object | Kind::Array) {
            assert_eq!(
                self.begun.pop(),
                Some((value.path, value.start)),
                "containers end in the order of their nesting"
            );
        }
        let (start, end) = (value.start as usize, value.end as usize);
        let text = value.text.map(<[u8]>::to_vec);
        self.seen.push(Seen { path: value.path, kind: value.kind, start, end, text, count: value.count });
    }
}

/// The values of `text` in pieces that end at `cuts`, or the error.
pub fn scan(text: &[u8], cuts: &[usize], duplicates: Duplicates) -> Result<Vec<Seen>, JsonError> {
    let (mut scanner, mut record, mut at) = (Scanner::new(&ROOT, duplicates), Record::default(), 0);
    for end in cuts.iter().copied().chain([text.len()]) {
        let end = end.clamp(at, text.len());
        scanner.push(&text[at..end], &mut record)?;
        at = end;
        assert_eq!(scanner.offset(), at as u64);
    }
    scanner.finish(&mut record)?;
    assert!(scanner.is_done() && record.begun.is_empty());
    Ok(record.seen)
}

/// The same, wherever the text is cut.
pub fn scan_at_every_cut(text: &[u8], duplicates: Duplicates) -> Result<Vec<Seen>, JsonError> {
    let whole = scan(text, &[], duplicates);
    for cut in 0..=text.len() {
        assert_eq!(scan(text, &[cut], duplicates), whole, "{:?} cut at {cut}", String::from_utf8_lossy(text));
    }
    let bytes: Vec<usize> = (0..text.len()).collect();
    assert_eq!(scan(text, &bytes, duplicates), whole, "{:?} byte by byte", String::from_utf8_lossy(text));
    whole
}

/// Whether serde_json takes the text. `None`: it has no opinion, for a number beyond a double hides the rest from it.
pub fn accepts(text: &[u8]) -> Option<bool> {
    match serde_json::from_slice::<serde_json::Value>(text) {
        Ok(_) => Some(true),
        // Its reader of single values allows any number and any depth, and does not look at the characters of strings.
        Err(error) if error.to_string().starts_with("number out of range") => {
            let is_grammatical = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
            match is_grammatical && std::str::from_utf8(text).is_ok() {
                true if text.windows(3).any(|part| part.eq_ignore_ascii_case(b"\\ud")) => None,
                verdict => Some(verdict),
            }
        }
        Err(error) if error.to_string().starts_with("recursion limit") => None,
        Err(error) => {
            assert!(matches!(error.classify(), Category::Syntax | Category::Eof), "{error}");
            Some(false)
        }
    }
}
