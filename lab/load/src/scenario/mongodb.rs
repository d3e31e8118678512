//! Commands of MongoDB, and how their connections log in.

use weir_base::secret::Secret;
use weir_mongodb_codec::compressed::Compressor;
use weir_sasl::Mechanism;

/// How the connections of a scenario of MongoDB log in, and what they send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mongodb {
    /// The commands. Default finds.
    pub operation: Operation,
    /// Inserts of each hundred commands, where both are sent. Default 20.
    pub insert_percent: u32,
    /// The database. Default `lab`.
    pub database: String,
    /// The collection. Default `documents`.
    pub collection: String,
    /// Documents from which each find draws one, by its `_id` from 1 on. Default 100,000.
    pub documents: u64,
    /// Bytes of a document, found or inserted. Default 1 KiB.
    pub document_bytes: usize,
    /// The user, of the database `admin`. Default `lab`. Without a password there is no login.
    pub user: String,
    /// The password; `None`: the server needs no login.
    pub password: Option<Secret>,
    /// How the password is proven. Default SCRAM-SHA-256.
    pub mechanism: Mechanism,
    /// How messages are compressed. Default not at all.
    pub compressor: Option<Compressor>,
    /// The server is behind a load balancer, and must say so. Default false.
    pub is_load_balanced: bool,
}

impl Default for Mongodb {
    fn default() -> Self {
        Self {
            operation: Operation::Find,
            insert_percent: 20,
            database: "lab".to_owned(),
            collection: "documents".to_owned(),
            documents: 100_000,
            document_bytes: 1024,
            user: "lab".to_owned(),
            password: None,
            mechanism: Mechanism::ScramSha256,
            compressor: None,
            is_load_balanced: false,
        }
    }
}

/// The commands of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The find of one document.
    Find,
    /// The insert of one document.
    Insert,
    /// Both.
    Mixed,
}

impl Operation {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Find, Self::Insert, Self::Mixed];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Find => "find",
            Self::Insert => "insert",
            Self::Mixed => "mixed",
        }
    }
}
