//! The facts of a command, as far as the rules of a user ask for them: documents that are only stored are not looked at.

use weir_analysis::mongodb::{Argument, Class, Flaw, Limits, Namespace, Reach, Row, analyse, names_collection};
use weir_mongodb_codec::command::Command;

use super::rules::UserPolicy;

/// Budget of one command. Default 256 Ki elements, some milliseconds: a body of that many has 2 MiB at least, and a list of 100,000 ids fits.
/// 256 collections: each is compared with those before it.
const LIMITS: Limits = Limits { elements_max: 256 * 1024, depth_max: 100, namespaces_max: 256 };

/// The facts that rules are about.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    pub name: &'a [u8],
    pub class: Class,
    pub db: &'a [u8],
    /// Its collections.
    pub namespaces: Vec<Namespace<'a>>,
    pub runs_javascript: bool,
    /// Collections that it reaches besides those.
    pub reach: Reach,
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
            // The most frequent ones name one collection, and all others are short.
            b"find" | b"count" | b"distinct" | b"update" | b"delete" | b"findAndModify" | b"findandmodify"
            | b"getMore" | b"killCursors" => Self::Name,
            _ if names && row.is_some() => Self::Body,
            _ => Self::Name,
        }
    }

    /// Names of document sequences that a command has. Servers may take one of another name for a field of the body, in which nothing
    /// is looked for then.
    const fn sequences(name: &[u8]) -> &'static [&'static [u8]] {
        match name {
            b"insert" => &[b"documents"],
            b"update" => &[b"updates"],
            b"delete" => &[b"deletes"],
            b"bulkWrite" => &[b"ops", b"nsInfo"],
            _ => &[],
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
        let (name, db, depth) = (command.name, command.db, Depth::of(command.name, row, asks));
        let (expected, mut is_expected) = (Depth::sequences(name), true);
        let is_all_there = beside.is_some() || (!expected.is_empty() && !matches!(depth, Depth::Names | Depth::All));
        let beside = beside.into_iter().flatten().filter(|argument| {
            is_expected &= expected.contains(&argument.name);
            depth.wants(argument)
        });
        if depth == Depth::Name {
            beside.for_each(drop);
            // A command that is not known may name its collection as most do.
            let collection = command.collection();
            let namespaces = collection.map(|collection| Namespace { db, collection, is_written: false });
            let is_named = !asks.asks_for_names || names_collection(command);
            let is_whole = is_all_there && is_expected && is_named;
            let (namespaces, reach) = (namespaces.into_iter().collect(), Reach::Named);
            return Self { name, class, db, namespaces, runs_javascript: false, reach, is_whole };
        }
        let facts = analyse(command, beside, &LIMITS);
        // A name that is not there is of no interest where no rule asks for names.
        let is_flawed = facts.flaw.is_some_and(|flaw| flaw != Flaw::Unnamed || asks.asks_for_names);
        // Operations of others are for administrators.
        let class = if facts.watches_others {
            class.or_more(facts.class).or_more(Class::Admin)
        } else {
            facts.class.or_more(class)
        };
        Self {
            name,
            class,
            db: facts.db,
            is_whole: is_all_there && is_expected && !is_flawed,
            namespaces: facts.namespaces,
            runs_javascript: facts.runs_javascript,
            reach: facts.reach,
        }
    }

    /// The command is known to change nothing.
    pub fn is_read_only(&self) -> bool {
        self.is_whole && matches!(self.class, Class::Read | Class::Session | Class::Transaction)
    }
}
