//! YAML, and so JSON, as a tree whose nodes know their line.

use std::collections::HashSet;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle};

use crate::note::{Mistake, SourceLine};

/// Maps and lists inside each other.
const DEPTH_MAX: usize = 64;

/// Nodes of a file. Default 200,000: more than a configuration of 1 MiB can use well.
const NODES_MAX: usize = 200_000;

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: SourceLine,
    pub(crate) kind: Kind,
}

/// The contents of a node.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A text, a number, or nothing: the reader knows what it wants.
    Scalar(String),
    List(Vec<Node>),
    /// In the order of the file.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The value of a key; `None`: it is not there, or this is no map.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// The value at the end of keys with dots between them.
    pub(crate) fn at(&self, path: &str) -> Option<&Node> {
        path.split('.').try_fold(self, |node, key| node.get(key))
    }

    /// The entries of a map; none of anything else.
    pub(crate) fn entries(&self) -> &[(String, Node)] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The elements of a list; none of anything else.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// The text of a scalar; empty of anything else.
    pub(crate) fn text(&self) -> &str {
        match &self.kind {
            Kind::Scalar(text) => text,
            _ => "",
        }
    }

    /// The text of a scalar below a path of keys.
    pub(crate) fn text_at(&self, path: &str) -> Option<&str> {
        self.at(path).map(Node::text)
    }

    /// The elements of a list below a path of keys.
    pub(crate) fn items_at(&self, path: &str) -> &[Node] {
        self.at(path).map_or(&[], Node::items)
    }

    /// A whole number.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn number(&self, what: &str) -> Result<u64, Mistake> {
        self.text().parse().map_err(|_| Mistake::new(&self.place, format!("{what} is no whole number")))
    }

    /// Whether a scalar says yes.
    pub(crate) fn is_true(&self) -> bool {
        matches!(self.text(), "true" | "yes" | "on" | "True" | "Yes" | "On" | "TRUE" | "YES" | "ON")
    }
}

/// A map or a list that is not finished, with the key that waits for its value.
struct Open {
    node: Node,
    key: Option<String>,
    /// Keys that stand in the map.
    known: HashSet<String>,
}

impl Open {
    fn new(place: SourceLine, kind: Kind) -> Self {
        Self { node: Node { place, kind }, key: None, known: HashSet::new() }
    }
}

/// Reads the first document of a text.
///
/// # Errors
/// The first mistake, an alias, or a text that nests too deep or is too large.
pub(crate) fn parse(name: &str, text: &str) -> Result<Node, Mistake> {
    let file: Rc<str> = name.into();
    let mut parser = Parser::new_from_str(text);
    let mut open: Vec<Open> = Vec::new();
    let mut nodes = 0usize;
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let place = SourceLine { file: file.clone(), line: error.marker().line().max(1) };
            Mistake::new(&place, error.info())
        })?;
        let place = SourceLine { file: file.clone(), line: span.start.line().max(1) };
        nodes += 1;
        if open.len() > DEPTH_MAX || nodes > NODES_MAX {
            return Err(Mistake::new(&place, "the file nests too deep or is too large"));
        }
        let finished = match event {
            Event::MappingStart(..) => {
                open.push(Open::new(place, Kind::Map(Vec::new())));
                continue;
            }
            Event::SequenceStart(..) => {
                open.push(Open::new(place, Kind::List(Vec::new())));
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => match open.pop() {
                Some(one) => one.node,
                None => continue,
            },
            Event::Scalar(text, style, ..) => {
                let is_nothing = style == ScalarStyle::Plain && matches!(&*text, "~" | "null" | "Null" | "NULL");
                let text = if is_nothing { String::new() } else { text.into_owned() };
                Node { place, kind: Kind::Scalar(text) }
            }
            Event::Alias(_) => {
                return Err(Mistake::new(&place, "aliases (*name) are not read: write the value itself"));
            }
            _ => continue,
        };
        match open.last_mut() {
            Some(outer) => put(outer, finished)?,
            None => return Ok(finished),
        }
    }
    Err(Mistake::new(&SourceLine { file, line: 1 }, "the file is empty"))
}

fn put(outer: &mut Open, finished: Node) -> Result<(), Mistake> {
    match (&mut outer.node.kind, outer.key.take()) {
        (Kind::List(items), _) => items.push(finished),
        (Kind::Map(entries), Some(key)) => {
            if !outer.known.insert(key.clone()) {
                return Err(Mistake::new(&finished.place, format!("the key `{key}` stands twice")));
            }
            entries.push((key, finished));
        }
        (Kind::Map(_), None) => match finished.kind {
            Kind::Scalar(text) => outer.key = Some(text),
            _ => return Err(Mistake::new(&finished.place, "a key is a text")),
        },
        (Kind::Scalar(_), _) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_and_flow_styles_and_json_make_the_same_tree() {
        let block = "a:\n  listen: 127.0.0.1:1 # here\n  servers:\n   - \"x y\"\n   - z\n";
        let json = "{\"a\": {\"listen\": \"127.0.0.1:1\",\n \"servers\": [\"x y\", \"z\"]}}";
        for text in [block, json] {
            let tree = parse("f.yml", text).expect("good");
            assert_eq!(tree.text_at("a.listen"), Some("127.0.0.1:1"));
            let servers: Vec<&str> = tree.items_at("a.servers").iter().map(Node::text).collect();
            assert_eq!(servers, ["x y", "z"]);
        }
        assert_eq!(parse("f.yml", block).expect("good").items_at("a.servers")[1].place.line, 5);
    }

    #[test]
    fn mistakes_have_their_line() {
        let line = |text: &str| parse("f.yml", text).expect_err("a mistake").place.line;
        assert_eq!(line("a: 1\nb: [1, 2\n"), 3);
        assert_eq!(line("a: 1\na: 2\n"), 2);
        assert_eq!(line("a: &x 1\nb: *x\n"), 2);
        assert_eq!(line(""), 1);
        assert!(parse("f.yml", &"[".repeat(1000)).is_err());
    }
}
