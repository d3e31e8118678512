//! A list of tools (the result of `tools/list`) without those that a client may not use.

use std::ops::Range;

use weir_json_codec::{Duplicates, JsonError, Kind, Node, Rule, Scanner, Sink, Value, decode};

use crate::limits::NAME_BYTES_MAX;

/// A message could be read in two ways, is a batch of messages, or is no JSON: its tools are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListError(pub JsonError);

/// A watched place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Message,
    Tools,
    Tool,
    Name,
}

static MESSAGE: Node<Place> =
    Node::value(Place::Message).members(&[("result", Node::NEW.members(&[("tools", TOOLS)]))]);
const TOOLS: Node<Place> = Node::value(Place::Tools).items(&TOOL);
static TOOL: Node<Place> = Node::value(Place::Tool).members(&[("name", Node::value(Place::Name))]);

/// The message without the tools in `result.tools` that the client may not use. `None`: it stays as it is. A tool without a name is one
/// that it may not use. All other bytes stay, save the comma beside each tool that goes, with the white space there.
///
/// # Errors
/// See [`ListError`].
pub fn permitted_tools(message: &[u8], may_use: &dyn Fn(&str) -> bool) -> Result<Option<Vec<u8>>, ListError> {
    let mut judge = Judge { may_use, batch: None, is_permitted: false, before: None, gap: None, gaps: Vec::new() };
    let mut scanner = Scanner::new(&MESSAGE, Duplicates::Refuse);
    scanner.push(message, &mut judge).and_then(|()| scanner.finish(&mut judge)).map_err(ListError)?;
    if let Some(offset) = judge.batch {
        return Err(ListError(JsonError { rule: Rule::Syntax, offset }));
    }
    if judge.gaps.is_empty() {
        return Ok(None);
    }
    let mut left = Vec::with_capacity(message.len());
    let mut at = 0;
    for gap in judge.gaps {
        left.extend_from_slice(&message[at..gap.start]);
        at = gap.end;
    }
    left.extend_from_slice(&message[at..]);
    Ok(Some(left))
}

/// Judges each tool at its end, and joins neighbours that go.
struct Judge<'a> {
    may_use: &'a dyn Fn(&str) -> bool,
    /// Where a batch begins. The protocol has had them, and a client may read the lists in one.
    batch: Option<u64>,
    /// The name of the present tool may be used.
    is_permitted: bool,
    /// The end of the last tool that stays.
    before: Option<usize>,
    /// The tools that go since then.
    gap: Option<Range<usize>>,
    gaps: Vec<Range<usize>>,
}

impl Judge<'_> {
    fn tool(&mut self, tool: Range<usize>, stays: bool) {
        match (stays, &mut self.gap) {
            (true, gap) => {
                // Up to the next tool that stays: the comma between them goes, too.
                self.gaps.extend(gap.take().map(|gap| gap.start..tool.start));
                self.before = Some(tool.end);
            }
            (false, Some(gap)) => gap.end = tool.end,
            (false, none) => *none = Some(tool),
        }
    }

    /// Behind the last tool: the comma in front of those that go belongs to none any more.
    fn end(&mut self) {
        if let Some(gap) = self.gap.take() {
            self.gaps.push(self.before.unwrap_or(gap.start)..gap.end);
        }
    }
}

impl Sink<Place> for Judge<'_> {
    fn value(&mut self, value: Value<'_, Place>) {
        match value.path {
            Place::Message => self.batch = Some(value.start).filter(|_| value.kind == Kind::Array),
            Place::Name => {
                let name = value.string().and_then(|raw| decode::text(raw, NAME_BYTES_MAX).ok());
                self.is_permitted = name.is_some_and(|name| (self.may_use)(&name));
            }
            Place::Tool => {
                let is_permitted = std::mem::take(&mut self.is_permitted);
                self.tool(value.start as usize..value.end as usize, is_permitted && value.kind == Kind::Object);
            }
            Place::Tools => self.end(),
        }
    }
}
