//! The facts of a command, as far as the rules of a user ask for them: documents that are only stored are not looked at.

use weir_analysis::mongodb::{Argument, Class, Limits, Namespace, Row, Target, analyse};
use weir_mongodb_codec::command::Command;

use super::rules::UserPolicy;

/// Budget of one command. Default 256 Ki elements, some milliseconds: a body of that many has 2 MiB at least, and a list of 100,000 ids fits.
const LIMITS: Limits = Limits { elements_max: 256 * 1024, depth_max: 100, namespaces_max: 64 };

/// The facts that rules are about.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub name: &'a [u8],
    pub class: Class,
    pub db: &'a [u8],
    /// Its collections.
    pub namespaces: Vec<Namespace<'a>>,
    pub runs_javascript: bool,
    /// Nothing that a rule asks for may be missing.
    pub is_whole: bool,
}

/// The parts of a command that are looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// The place of its collection.
    Name,
    /// All elements of its body.
    Body,
    /// `nsInfo` beside it as well.
    Names,
    /// All documents beside it as well.
    All,
}

impl Depth {
    fn of(name: &[u8], row: Option<&Row>, asks: &UserPolicy) -> Self {
        let (names, javascript) = (asks.asks_for_names, asks.asks_for_javascript);
        match name {
            // Its documents are stored, and nothing of them runs.
            b"insert" => Self::Name,
            // Their stages decide about the class.
            b"aggregate" | b"explain" | b"mapReduce" | b"mapreduce" => Self::Body,
            b"bulkWrite" | b"update" | b"delete" if javascript => Self::All,
            b"bulkWrite" if names => Self::Names,
            _ if javascript => Self::Body,
            // A view has a pipeline.
            b"create" | b"collMod" if names => Self::Body,
            _ if row.is_some_and(|row| row.target == Target::FullName) => Self::Body,
            _ => Self::Name,
        }
    }

    fn wants(self, argument: &Argument<'_>) -> bool {
        match self {
            Self::Name | Self::Body => false,
            Self::Names => argument.name == b"nsInfo",
            Self::All => true,
        }
    }
}

impl<'a> Subject<'a> {
    /// `beside`: the documents beside the body; `None`: some of them are not there.
    pub fn new(
        command: &Command<'a>,
        (row, class): (Option<&'static Row>, Class),
        beside: Option<impl IntoIterator<Item = Argument<'a>>>,
        asks: &UserPolicy,
    ) -> Self {
        let depth = Depth::of(command.name, row, asks);
        let (name, db) = (command.name, command.db);
        if depth == Depth::Name {
            // A command that is not known may name its collection as most do.
            let has_collection = row.is_none_or(|row| matches!(row.target, Target::Collection | Target::Field));
            let collection = command.collection().filter(|_| has_collection);
            let namespaces = collection.map(|collection| Namespace { db, collection, is_written: false });
            let namespaces = namespaces.into_iter().collect();
            return Self { name, class, db, namespaces, runs_javascript: false, is_whole: true };
        }
        let is_all_there = beside.is_some() || !matches!(depth, Depth::Names | Depth::All);
        let beside = beside.into_iter().flatten().filter(|argument| depth.wants(argument));
        let facts = analyse(command, beside, &LIMITS);
        // Operations of others are for administrators.
        let class = if facts.watches_others { facts.class.or_more(Class::Admin) } else { facts.class };
        let is_whole = is_all_there && facts.flaw.is_none();
        Self { name, class, db, namespaces: facts.namespaces, runs_javascript: facts.runs_javascript, is_whole }
    }

    /// The command is known to change nothing.
    pub fn is_read_only(&self) -> bool {
        self.is_whole && matches!(self.class, Class::Read | Class::Session | Class::Transaction)
    }

    /// The command may reach every collection of every database.
    pub fn reaches_everything(&self) -> bool {
        matches!(self.name, b"eval" | b"$eval" | b"applyOps" | b"doTxn" | b"clone" | b"copydb")
    }

    /// The command is on every collection of its database.
    pub fn is_on_database(&self) -> bool {
        matches!(self.name, b"dropDatabase" | b"repairDatabase")
    }
}
