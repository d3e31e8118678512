//! The words that mean something to the analysis. All other names are [`Word::Name`].
//!
//! The first three groups are complete, as PostgreSQL 15 has them (`pg_get_keywords()`): they decide what can be the
//! name of a table or a function.

/// The other uses of a keyword, as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Never a name without quotes.
    Reserved,
    /// A function or a type, never a table.
    TypeOrFunction,
    /// A table or a column, never a function.
    ColumnName,
    /// Everything, but in front of a parenthesis it is syntax and not a function.
    Syntax,
    /// Everything.
    Unreserved,
}

macro_rules! words {
    ($($group:ident { $($word:ident $text:literal)* })*) => {
        /// A keyword, or a name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub(super) enum Word {
            /// No keyword of this table.
            Name,
            $($($word,)*)*
        }

        const WORDS: &[(Word, &str, Group)] = &[$($((Word::$word, $text, Group::$group),)*)*];
    };
}

words! {
    Reserved {
        All "all" Analyse "analyse" Analyze "analyze" And "and" Any "any" Array "array" As "as" Asc "asc"
        Asymmetric "asymmetric" Both "both" Case "case" Cast "cast" Check "check" Collate "collate" Column "column"
        Constraint "constraint" Create "create" CurrentCatalog "current_catalog" CurrentDate "current_date"
        CurrentRole "current_role" CurrentTime "current_time" CurrentTimestamp "current_timestamp"
        CurrentUser "current_user" Default "default" Deferrable "deferrable" Desc "desc" Distinct "distinct" Do "do"
        Else "else" End "end" Except "except" False "false" Fetch "fetch" For "for" Foreign "foreign" From "from"
        Grant "grant" Group "group" Having "having" In "in" Initially "initially" Intersect "intersect" Into "into"
        Lateral "lateral" Leading "leading" Limit "limit" Localtime "localtime" Localtimestamp "localtimestamp"
        Not "not" Null "null" Offset "offset" On "on" Only "only" Or "or" Order "order" Placing "placing"
        Primary "primary" References "references" Returning "returning" Select "select" SessionUser "session_user"
        Some "some" Symmetric "symmetric" Table "table" Then "then" To "to" Trailing "trailing" True "true"
        Union "union" Unique "unique" User "user" Using "using" Variadic "variadic" When "when" Where "where"
        Window "window" With "with"
    }
    TypeOrFunction {
        Authorization "authorization" Binary "binary" Collation "collation" Concurrently "concurrently"
        Cross "cross" CurrentSchema "current_schema" Freeze "freeze" Full "full" Ilike "ilike" Inner "inner" Is "is"
        Isnull "isnull" Join "join" Left "left" Like "like" Natural "natural" Notnull "notnull" Outer "outer"
        Overlaps "overlaps" Right "right" Similar "similar" Tablesample "tablesample" Verbose "verbose"
    }
    ColumnName {
        Between "between" Bigint "bigint" Bit "bit" Boolean "boolean" Char "char" Character "character"
        Coalesce "coalesce" Dec "dec" Decimal "decimal" Exists "exists" Extract "extract" Float "float"
        Greatest "greatest" Grouping "grouping" Inout "inout" Int "int" Integer "integer" Interval "interval"
        Least "least" National "national" Nchar "nchar" None "none" Normalize "normalize" Nullif "nullif"
        Numeric "numeric" Out "out" Overlay "overlay" Position "position" Precision "precision" Real "real"
        Row "row" Setof "setof" Smallint "smallint" Substring "substring" Time "time" Timestamp "timestamp"
        Treat "treat" Trim "trim" Values "values" Varchar "varchar" Xmlattributes "xmlattributes"
        Xmlconcat "xmlconcat" Xmlelement "xmlelement" Xmlexists "xmlexists" Xmlforest "xmlforest"
        Xmlnamespaces "xmlnamespaces" Xmlparse "xmlparse" Xmlpi "xmlpi" Xmlroot "xmlroot"
        Xmlserialize "xmlserialize" Xmltable "xmltable"
    }
    Syntax {
        Also "also" By "by" Conflict "conflict" Cube "cube" Exclude "exclude" Filter "filter" Include "include"
        Insert "insert" Inherits "inherits" Key "key" Options "options" Over "over" Range "range"
        Repeatable "repeatable" Rollup "rollup" Set "set" Sets "sets" Storage "storage" Of "of" Operator "operator"
    }
    Unreserved {
        Abort "abort" Alter "alter" Atomic "atomic" Begin "begin" Call "call" Catalog "catalog" Chain "chain"
        Characteristics "characteristics" Checkpoint "checkpoint" Close "close" Cluster "cluster" Comment "comment"
        Commit "commit" Content "content" Copy "copy" Cursor "cursor" Data "data" Database "database"
        Deallocate "deallocate" Declare "declare" Deferred "deferred" Delete "delete" Discard "discard"
        Document "document" Drop "drop" Escape "escape" Execute "execute" Explain "explain" First "first"
        Function "function" Global "global" Hold "hold" If "if" Immediate "immediate" Import "import"
        Instead "instead" Isolation "isolation" Level "level" Listen "listen" Load "load" Local "local" Lock "lock"
        Materialized "materialized" Matched "matched" Constraints "constraints" Merge "merge" Mode "mode"
        Move "move" Names "names" Next "next" No "no" Nothing "nothing" Notify "notify" Off "off" Option "option"
        Ordinality "ordinality" Partition "partition" Plans "plans" Policy "policy" Prepare "prepare"
        Prepared "prepared" Procedure "procedure" Program "program" Publication "publication" Read "read"
        Reassign "reassign" Recursive "recursive" Refresh "refresh" Reindex "reindex" Release "release"
        Replace "replace" Reset "reset" Restart "restart" Revoke "revoke" Role "role" Rollback "rollback"
        Routine "routine" Rows "rows" Rule "rule" Savepoint "savepoint" Schema "schema" Security "security"
        Sequence "sequence" Sequences "sequences" Server "server" Session "session" Share "share" Show "show"
        Snapshot "snapshot" Start "start" Statistics "statistics" Stdin "stdin" Stdout "stdout" System "system"
        Temp "temp" Temporary "temporary" Transaction "transaction" Trigger "trigger" Truncate "truncate"
        Type "type" Uescape "uescape" Unlisten "unlisten" Unlogged "unlogged" Update "update" Vacuum "vacuum"
        View "view" Without "without" Work "work" Write "write" Xml "xml" Zone "zone" Add "add" Attach "attach"
        Detach "detach" Event "event" Index "index" Domain "domain" Language "language" Tablespace "tablespace"
        Aggregate "aggregate" Extension "extension" Large "large" Subscription "subscription" Increment "increment"
        Access "access" Exclusive "exclusive"
    }
}

impl Word {
    /// The group of a keyword; a name is in the last.
    pub const fn group(self) -> Group {
        match self {
            Self::Name => Group::Unreserved,
            _ => WORDS[self as usize - 1].2,
        }
    }

    /// Whether it can begin the name of a table.
    pub const fn is_table_name(self) -> bool {
        !matches!(self.group(), Group::Reserved | Group::TypeOrFunction)
    }

    /// Whether it is a function when a parenthesis follows.
    pub const fn is_function_name(self) -> bool {
        matches!(self.group(), Group::TypeOrFunction | Group::Unreserved)
    }
}

/// Bytes of the longest keyword.
const WORD_BYTES_MAX: usize = 17;
/// A power of two, at most half full, so that a miss ends soon.
const SLOTS: usize = 1024;
const EMPTY: u16 = u16::MAX;
/// Odd (2^32 / golden ratio); `a_lookup_takes_few_probes` watches that it suits the words.
const MULTIPLIER: u32 = 0x9e37_79b1;
const _: () = assert!(WORDS.len() * 2 <= SLOTS);

static INDEX: [u16; SLOTS] = index();

/// The keyword that `text` is in any case, or [`Word::Name`].
#[inline]
pub(super) fn word(text: &[u8]) -> Word {
    if text.len() < 2 || text.len() > WORD_BYTES_MAX {
        return Word::Name;
    }
    let mut slot = slot(text);
    loop {
        let at = INDEX[slot];
        if at == EMPTY {
            return Word::Name;
        }
        let (word, name, _) = WORDS[at as usize];
        if name.as_bytes().eq_ignore_ascii_case(text) {
            return word;
        }
        slot = (slot + 1) % SLOTS;
    }
}

/// Mixes four bytes and the length, in lower case: bit 5 is the case of a letter.
const fn slot(text: &[u8]) -> usize {
    let length = text.len();
    let bytes = [text[0] | 0x20, text[1] | 0x20, text[length / 2] | 0x20, text[length - 1] | 0x20];
    let key = u32::from_le_bytes(bytes) ^ (length as u32) << 5;
    (key.wrapping_mul(MULTIPLIER) >> (32 - SLOTS.trailing_zeros())) as usize
}

const fn index() -> [u16; SLOTS] {
    let mut index = [EMPTY; SLOTS];
    let mut at = 0;
    while at < WORDS.len() {
        let text = WORDS[at].1.as_bytes();
        assert!(text.len() >= 2 && text.len() <= WORD_BYTES_MAX);
        let mut slot = slot(text);
        while index[slot] != EMPTY {
            slot = (slot + 1) % SLOTS;
        }
        index[slot] = at as u16;
        at += 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_is_found_in_any_case_and_nothing_else_is() {
        for (at, &(found, text, _)) in WORDS.iter().enumerate() {
            assert_eq!(found as usize, at + 1, "{text}: groups are looked up by number");
            assert_eq!(word(text.as_bytes()), found);
            assert_eq!(word(text.to_uppercase().as_bytes()), found);
            assert_eq!(word(format!("{text}_").as_bytes()), Word::Name);
        }
        for name in ["", "a", "abalance", "pgbench_accounts", "current_timestampx", "from$"] {
            assert_eq!(word(name.as_bytes()), Word::Name, "{name}");
        }
    }

    #[test]
    fn a_lookup_takes_few_probes() {
        let probes = |text: &str| {
            let start = slot(text.as_bytes());
            (0..).find(|by| {
                let at = INDEX[(start + by) % SLOTS];
                at == EMPTY || WORDS[at as usize].1 == text
            })
        };
        let all: usize = WORDS.iter().map(|row| probes(row.1).expect("ends") + 1).sum();
        assert!(all * 10 < WORDS.len() * 16, "{all} probes for {} words", WORDS.len());
    }
}
