//! A command becomes facts.

use weir_mongodb_codec::bson::{Document, Elements, Kind, Value};
use weir_mongodb_codec::command::Command;

use super::class::{Class, Reach, Target};
use super::limits::Limits;
use super::namespace::{Namespace, split};
use super::operators::{Operator, collection};
use super::table::{Row, lookup};

/// The facts of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The command's word in the table; `other` for one that is not there: a label of bounded cardinality.
    pub command: &'static str,
    /// Its kind.
    pub class: Class,
    /// Its database.
    pub db: &'a [u8],
    /// Collections that it names, in the order of the command, each with the most that happens to it.
    pub namespaces: Vec<Namespace<'a>>,
    /// It runs JavaScript in the server: `$where`, `$function`, `$accumulator`, mapReduce, eval.
    pub runs_javascript: bool,
    /// It shows operations or sessions, perhaps of other users: `$currentOp`, `$listSessions`.
    pub watches_others: bool,
    /// Collections that it reaches besides those.
    pub reach: Reach,
    /// Why the facts may be incomplete; `None`: they are whole. A policy that forbids something should refuse such a command.
    pub flaw: Option<Flaw>,
}

/// Why the facts of a command may be incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// More than [`Limits::elements_max`].
    Elements,
    /// Deeper than [`Limits::depth_max`].
    Depth,
    /// More than [`Limits::namespaces_max`].
    Namespaces,
    /// A broken element.
    Broken,
    /// A collection that has no name in the command: its UUID, or the beginning of its name.
    Unnamed,
}

impl Facts<'_> {
    /// Whether the command is known to change nothing: of class read, and whole.
    pub fn is_read_only(&self) -> bool {
        self.class == Class::Read && self.flaw.is_none()
    }
}

/// A document sequence of the message: an argument of the command that is beside its body.
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a> {
    /// Its name, such as `updates`.
    pub name: &'a [u8],
    /// One of its documents.
    pub document: Document<'a>,
}

/// The row of a command and its class. An aggregation with `$out` or `$merge` among its stages writes; every stage is looked at,
/// not what is inside of them. Without a row the class is [`Class::Admin`].
pub fn classify(command: &Command<'_>) -> (Option<&'static Row>, Class) {
    let row = lookup(command.name);
    let class = row.map_or(Class::Admin, |row| row.class);
    let class = match row.map(|row| row.target) {
        Some(Target::Inner) => inner(command).map_or(Class::Admin, |inner| classify(&inner).1),
        _ => class,
    };
    let writes = class == Class::Read && command.pipeline.is_some_and(has_writing_stage);
    (row, if writes { Class::Write } else { class })
}

/// The command inside of an explain. An explain inside of another is none.
fn inner<'a>(command: &Command<'a>) -> Option<Command<'a>> {
    let document = command.value.as_document().ok()??;
    let inner = Command::read_in(document, Some(command.db)).ok()?;
    (lookup(inner.name)?.target != Target::Inner).then_some(inner)
}

fn has_writing_stage(pipeline: Document<'_>) -> bool {
    pipeline.elements().any(|stage| {
        let stage = stage.ok().and_then(|stage| stage.value.as_document().ok().flatten());
        // A broken pipeline is the server's to refuse, and might be anything.
        let Some(stage) = stage else { return true };
        stage.elements().any(|element| element.map_or(true, |found| Operator::of(found.name) == Some(Operator::Writes)))
    })
}

/// The facts of a command and of the document sequences beside it.
pub fn analyse<'a>(
    command: &Command<'a>,
    arguments: impl IntoIterator<Item = Argument<'a>>,
    limits: &Limits,
) -> Facts<'a> {
    let (row, class) = classify(command);
    let facts = Facts {
        command: row.map_or("other", |row| row.name),
        class,
        db: command.db,
        namespaces: Vec::new(),
        runs_javascript: matches!(command.name, b"mapReduce" | b"mapreduce" | b"group" | b"eval" | b"$eval"),
        watches_others: false,
        reach: reach(command.name),
        flaw: None,
    };
    let named = inner(command).filter(|_| row.is_some_and(|row| row.target == Target::Inner));
    let named = named.as_ref().unwrap_or(command);
    let mut analysis = Analysis { facts, limits, elements: 0, is_on_collection: named.collection().is_some() };
    analysis.note_target(named);
    analysis.note(command.body);
    for Argument { name, document } in arguments {
        if name == b"nsInfo" {
            analysis.note_ns_info(document);
        }
        analysis.note(document);
    }
    analysis.facts
}

/// The reach of a command by its name alone.
fn reach(name: &[u8]) -> Reach {
    match name {
        b"dropDatabase" | b"repairDatabase" | b"enableSharding" | b"movePrimary" => Reach::Database,
        b"eval" | b"$eval" | b"applyOps" | b"doTxn" | b"clone" | b"copydb" => Reach::Everything,
        _ => Reach::Named,
    }
}

struct Analysis<'a, 'l> {
    facts: Facts<'a>,
    limits: &'l Limits,
    elements: usize,
    /// The command is on one collection, and no whole database.
    is_on_collection: bool,
}

impl<'a> Analysis<'a, '_> {
    /// The collections in the places that the command's row names.
    fn note_target(&mut self, command: &Command<'a>) {
        let target = lookup(command.name).map_or(Target::None, |row| row.target);
        let is_written = !matches!(self.facts.class, Class::Read | Class::Session | Class::Connection);
        match target {
            Target::None | Target::Inner => {}
            // The source of an aggregation is read, whatever happens to its result.
            Target::Collection if matches!(command.name, b"aggregate" | b"mapReduce" | b"mapreduce") => {
                if !names_collection(command) {
                    self.flawed(Flaw::Unnamed);
                }
                self.named(command.collection(), false);
                self.map_reduce_out(command);
            }
            Target::Collection | Target::Field => {
                if !names_collection(command) {
                    self.flawed(Flaw::Unnamed);
                }
                self.named(command.collection(), is_written);
                self.note_others(command);
            }
            Target::Ns => {
                let group = command.value.as_document().ok().flatten();
                let name = group.and_then(|group| text(group, b"ns"));
                if name.is_none() {
                    self.flawed(Flaw::Unnamed);
                }
                self.named(name, is_written);
            }
            Target::Root => self.flawed(Flaw::Unnamed),
            Target::Database => self.facts.db = command.value.as_string().unwrap_or(command.db),
            Target::FullName => {
                let to = command.body.get(b"to").ok().flatten();
                [Some(command.value), to].into_iter().flatten().for_each(|name| self.full(name, is_written));
            }
            Target::NsInfo => {
                let array =
                    command.body.get(b"nsInfo").ok().flatten().and_then(|value| value.as_document().ok().flatten());
                for item in array.map(Document::elements).into_iter().flatten() {
                    match item.ok().and_then(|item| item.value.as_document().ok().flatten()) {
                        Some(info) => self.note_ns_info(info),
                        None => self.flawed(Flaw::Broken),
                    }
                }
            }
        }
    }

    /// Collections in other places: the source of a view, and the target of a copy.
    fn note_others(&mut self, command: &Command<'a>) {
        match command.name {
            b"create" | b"collMod" => self.named(text(command.body, b"viewOn"), false),
            b"cloneCollectionAsCapped" => {
                self.facts.namespaces.iter_mut().for_each(|source| source.is_written = false);
                self.named(text(command.body, b"toCollection"), true);
            }
            _ => {}
        }
    }

    /// `out` of a mapReduce: a collection, or `{replace: .., db: ..}`; `{inline: 1}` writes nothing.
    fn map_reduce_out(&mut self, command: &Command<'a>) {
        let Some(out) = command.body.get(b"out").ok().flatten() else { return };
        if let Some(name) = out.as_string() {
            return self.written(None, name);
        }
        let Some(document) = out.as_document().ok().flatten() else { return };
        let name = [&b"replace"[..], b"merge", b"reduce"].into_iter().find_map(|key| text(document, key));
        if let Some(name) = name {
            self.written(text(document, b"db"), name);
        }
    }

    fn written(&mut self, db: Option<&'a [u8]>, collection: &'a [u8]) {
        self.facts.class = self.facts.class.or_more(Class::Write);
        self.add(Namespace { db: db.unwrap_or(self.facts.db), collection, is_written: true });
    }

    fn named(&mut self, collection: Option<&'a [u8]>, is_written: bool) {
        if let Some(collection) = collection {
            self.add(Namespace { db: self.facts.db, collection, is_written });
        }
    }

    fn full(&mut self, name: Value<'a>, is_written: bool) {
        match name.as_string().and_then(split) {
            Some((db, collection)) => self.add(Namespace { db, collection, is_written }),
            None => self.flawed(Flaw::Broken),
        }
    }

    fn note_ns_info(&mut self, info: Document<'a>) {
        match info.get(b"ns").ok().flatten() {
            Some(name) => self.full(name, true),
            None => self.flawed(Flaw::Broken),
        }
    }

    fn add(&mut self, namespace: Namespace<'a>) {
        let same = |known: &&mut Namespace<'_>| (known.db, known.collection) == (namespace.db, namespace.collection);
        if let Some(known) = self.facts.namespaces.iter_mut().find(same) {
            known.is_written |= namespace.is_written;
        } else if self.facts.namespaces.len() < self.limits.namespaces_max {
            self.facts.namespaces.push(namespace);
        } else {
            self.flawed(Flaw::Namespaces);
        }
    }

    /// The first flaw counts, unless it is only about a name.
    fn flawed(&mut self, flaw: Flaw) {
        if matches!(self.facts.flaw, None | Some(Flaw::Unnamed)) {
            self.facts.flaw = Some(flaw);
        }
    }

    /// Every element of a document, without recursion.
    fn note(&mut self, document: Document<'a>) {
        let mut open: Vec<Elements<'a>> = vec![document.elements()];
        while let Some(elements) = open.last_mut() {
            let Some(element) = elements.next() else {
                open.pop();
                continue;
            };
            let Ok(element) = element else { return self.flawed(Flaw::Broken) };
            self.elements += 1;
            if self.elements > self.limits.elements_max {
                return self.flawed(Flaw::Elements);
            }
            if let Some(operator) = Operator::of(element.name) {
                self.note_operator(operator, element.value);
            }
            match element.value.as_document() {
                Ok(None) => {}
                Ok(Some(_)) if open.len() >= self.limits.depth_max => return self.flawed(Flaw::Depth),
                Ok(Some(inner)) => open.push(inner.elements()),
                Err(_) => return self.flawed(Flaw::Broken),
            }
        }
    }

    fn note_operator(&mut self, operator: Operator, value: Value<'a>) {
        match operator {
            Operator::JavaScript => self.facts.runs_javascript = true,
            Operator::Watches => self.facts.watches_others = true,
            Operator::Streams => {
                let options = value.as_document().ok().flatten();
                let of_cluster = options.and_then(|options| options.get(b"allChangesForCluster").ok().flatten());
                let reach = match of_cluster {
                    Some(value) if value.is_true() => Reach::Everything,
                    _ if self.is_on_collection => Reach::Named,
                    _ => Reach::Database,
                };
                self.facts.reach = self.facts.reach.max(reach);
            }
            Operator::Writes => {
                self.facts.class = self.facts.class.or_more(Class::Write);
                if let Some((db, name)) = collection(value) {
                    self.written(db, name);
                }
            }
            Operator::Reads => {
                if let Some((db, name)) = collection(value) {
                    self.add(Namespace { db: db.unwrap_or(self.facts.db), collection: name, is_written: false });
                }
            }
        }
    }
}

/// The text of a field.
fn text<'a>(document: Document<'a>, name: &[u8]) -> Option<&'a [u8]> {
    document.get(name).ok().flatten().and_then(Value::as_string)
}

/// Whether a command that is on a collection names it, or says with a number that it is on a database. Servers also take the UUID of
/// a collection.
pub fn names_collection(command: &Command<'_>) -> bool {
    let is_number =
        matches!(command.value.kind, Kind::Double | Kind::Int32 | Kind::Int64 | Kind::Decimal128 | Kind::Bool);
    command.collection().is_some() || (is_number && command.name != b"getMore")
}

#[cfg(test)]
mod tests;
