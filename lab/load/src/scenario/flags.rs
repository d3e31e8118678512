//! Requests for feature flags, and the data set that the origin serves.

use weir_base::secret::Secret;
use weir_flagsets::DataSet;

/// The requests of a scenario of feature flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// The API. Default the one of backends.
    pub endpoint: FlagsEndpoint,
    /// The flags of the origin. Default the large set.
    pub data: DataSet,
    /// Contexts come in the body of a POST. Default false: in the query of a GET. Only the frontend API has them.
    pub is_posted: bool,
    /// Contexts name a user and a plan; [`CONTEXTS`] of them take turns. Default true. Only the frontend API has them.
    pub has_users: bool,
    /// Requests have the tag of the first response, so that the right response is a 304. Default false.
    pub is_conditional: bool,
    /// The client takes gzip, so that the right response has it. Default false.
    pub is_gzip: bool,
    /// The token. Default that of the lab's origin for the API.
    pub token: Secret,
}

/// Contexts of the requests of a scenario. 256: their responses fill no cache of a CPU, and are kept for their check.
pub const CONTEXTS: u64 = 256;

/// An API of Unleash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlagsEndpoint {
    /// GET `/api/client/features`: all flags, as backends poll them.
    #[default]
    Client,
    /// `/api/frontend`: the flags that are on for a context, as browsers poll them.
    Frontend,
}

impl FlagsEndpoint {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Frontend => "frontend",
        }
    }

    /// The token of the lab's origin for it.
    #[must_use]
    pub fn usual_token(self) -> Secret {
        Secret::from(match self {
            Self::Client => "*:development.lab-backend".to_owned(),
            Self::Frontend => "*:development.lab-frontend".to_owned(),
        })
    }
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            endpoint: FlagsEndpoint::Client,
            data: DataSet::Large,
            is_posted: false,
            has_users: true,
            is_conditional: false,
            is_gzip: false,
            token: FlagsEndpoint::Client.usual_token(),
        }
    }
}
