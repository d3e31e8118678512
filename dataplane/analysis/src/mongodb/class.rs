//! Kinds of commands.

/// The kind of a command. The words are those of rules, metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Reads documents or names.
    Read,
    /// Changes documents.
    Write,
    /// Changes collections, indexes or databases.
    Ddl,
    /// commitTransaction and abortTransaction.
    Transaction,
    /// Concerns cursors and logical sessions: getMore, killCursors, endSessions.
    Session,
    /// Belongs to the connection: hello, authentication, ping. The gateway answers most of them.
    Connection,
    /// Users, roles, settings and states of servers, and every command that the table does not have.
    Admin,
    /// Runs JavaScript as an administrator, stops a server, bypasses its checks, or exists for tests. A gateway refuses it unless
    /// an operator permits it by name.
    Dangerous,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::Read,
        Self::Write,
        Self::Ddl,
        Self::Transaction,
        Self::Session,
        Self::Connection,
        Self::Admin,
        Self::Dangerous,
    ];

    /// The word of rules, metrics and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Ddl => "ddl",
            Self::Transaction => "transaction",
            Self::Session => "session",
            Self::Connection => "connection",
            Self::Admin => "admin",
            Self::Dangerous => "dangerous",
        }
    }

    /// The one of two that a policy should judge: that which does more.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        self.max(other)
    }
}

/// Where a command names its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Nowhere: it concerns the database or the server.
    None,
    /// The text behind its name. A number there means the database.
    Collection,
    /// `collection`, of getMore.
    Field,
    /// A name with database and collection behind its name, and another one in `to` if there is one.
    FullName,
    /// `nsInfo`, of bulkWrite: names with database and collection.
    NsInfo,
    /// The command behind its name, of explain.
    Inner,
    /// The text behind its name is a database, of commands on `admin`.
    Database,
    /// The document behind its name has the collection in `ns`, of group.
    Ns,
    /// `root`, of filemd5: the collection with this beginning.
    Root,
}

/// The collections that a command reaches besides those that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// None.
    #[default]
    Named,
    /// All of its database: dropDatabase, a change stream of a database.
    Database,
    /// All of every database: eval, a change stream of a cluster.
    Everything,
}
