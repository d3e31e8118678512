//! Errors with their codes, names and labels. The codes are those of `error_codes.yml` of MongoDB.

use weir_mongodb_codec::bson::Writer;
use weir_mongodb_codec::{BsonError, CommandError};

/// A code of an error.
pub(super) mod code {
    pub const BAD_VALUE: i32 = 2;
    pub const FAILED_TO_PARSE: i32 = 9;
    pub const UNAUTHORIZED: i32 = 13;
    pub const TYPE_MISMATCH: i32 = 14;
    pub const INVALID_LENGTH: i32 = 16;
    pub const PROTOCOL_ERROR: i32 = 17;
    pub const AUTHENTICATION_FAILED: i32 = 18;
    pub const ILLEGAL_OPERATION: i32 = 20;
    pub const CURSOR_NOT_FOUND: i32 = 43;
    pub const COMMAND_NOT_FOUND: i32 = 59;
    pub const INVALID_OPTIONS: i32 = 72;
    pub const INVALID_NAMESPACE: i32 = 73;
    pub const FAIL_POINT_SET_FAILED: i32 = 122;
    pub const EXCEEDED_MEMORY_LIMIT: i32 = 146;
    pub const TRANSACTION_TOO_OLD: i32 = 225;
    pub const NO_SUCH_TRANSACTION: i32 = 251;
    pub const TRANSACTION_COMMITTED: i32 = 256;
    pub const OPERATION_NOT_SUPPORTED_IN_TRANSACTION: i32 = 263;
    pub const UNSUPPORTED_OP_QUERY_COMMAND: i32 = 352;
    pub const NOT_WRITABLE_PRIMARY: i32 = 10107;
    pub const NOT_PRIMARY_NO_SECONDARY_OK: i32 = 13435;
    pub const HELLO_INCOMPLETE: i32 = 31368;
    pub const CURSOR_WITHOUT_SESSION: i32 = 50736;
    pub const CURSOR_IN_SESSION: i32 = 50737;
    pub const CURSOR_IN_OTHER_SESSION: i32 = 50738;
    pub const CURSOR_IN_OTHER_TRANSACTION: i32 = 50741;
    pub const TRANSACTION_NUMBER_USED: i32 = 50911;
}

const NAMES: &[(i32, &str)] = &[
    (2, "BadValue"),
    (6, "HostUnreachable"),
    (7, "HostNotFound"),
    (9, "FailedToParse"),
    (11, "UserNotFound"),
    (13, "Unauthorized"),
    (14, "TypeMismatch"),
    (16, "InvalidLength"),
    (17, "ProtocolError"),
    (18, "AuthenticationFailed"),
    (20, "IllegalOperation"),
    (24, "LockTimeout"),
    (26, "NamespaceNotFound"),
    (43, "CursorNotFound"),
    (48, "NamespaceExists"),
    (50, "MaxTimeMSExpired"),
    (59, "CommandNotFound"),
    (64, "WriteConcernFailed"),
    (72, "InvalidOptions"),
    (73, "InvalidNamespace"),
    (89, "NetworkTimeout"),
    (91, "ShutdownInProgress"),
    (100, "UnsatisfiableWriteConcern"),
    (112, "WriteConflict"),
    (122, "FailPointSetFailed"),
    (134, "ReadConcernMajorityNotAvailableYet"),
    (146, "ExceededMemoryLimit"),
    (189, "PrimarySteppedDown"),
    (225, "TransactionTooOld"),
    (237, "CursorKilled"),
    (239, "SnapshotTooOld"),
    (246, "SnapshotUnavailable"),
    (251, "NoSuchTransaction"),
    (256, "TransactionCommitted"),
    (262, "ExceededTimeLimit"),
    (263, "OperationNotSupportedInTransaction"),
    (267, "PreparedTransactionInProgress"),
    (280, "ChangeStreamFatalError"),
    (286, "ChangeStreamHistoryLost"),
    (352, "UnsupportedOpQueryCommand"),
    (391, "ReauthenticationRequired"),
    (462, "IngressRequestRateLimitExceeded"),
    (9001, "SocketException"),
    (10107, "NotWritablePrimary"),
    (11000, "DuplicateKey"),
    (11600, "InterruptedAtShutdown"),
    (11601, "Interrupted"),
    (11602, "InterruptedDueToReplStateChange"),
    (13388, "StaleConfig"),
    (13435, "NotPrimaryNoSecondaryOk"),
    (13436, "NotPrimaryOrSecondary"),
];

/// Codes after which a write with a number may be tried again, as the specification of retryable writes lists them.
const RETRYABLE: [i32; 12] = [6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435];
const NOT_PRIMARY_OR_SECONDARY: i32 = 13436;

/// Codes after which a transaction may be tried again as a whole: LockTimeout, WriteConflict, SnapshotTooOld, SnapshotUnavailable,
/// NoSuchTransaction, PreparedTransactionInProgress.
const TRANSIENT: [i32; 6] = [24, 112, 239, 246, 251, 267];

/// An error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub code: i32,
    pub text: String,
    /// In place of those that follow from the command.
    pub labels: Option<Vec<String>>,
}

impl Failure {
    pub fn new(code: i32, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), labels: None }
    }

    pub fn write(&self, body: &mut Writer<'_>, labels: &[String]) {
        body.double("ok", 0.0);
        body.string("errmsg", &self.text);
        body.int32("code", self.code);
        body.string("codeName", name(self.code));
        if !labels.is_empty() {
            body.array("errorLabels", labels, |body, name, label| body.string(name, label));
        }
    }
}

impl From<BsonError> for Failure {
    fn from(error: BsonError) -> Self {
        Self::new(code::FAILED_TO_PARSE, error.to_string())
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        let code = match error {
            CommandError::Namespace => code::INVALID_NAMESPACE,
            CommandError::Type => code::TYPE_MISMATCH,
            _ => code::FAILED_TO_PARSE,
        };
        Self::new(code, error.to_string())
    }
}

/// The name of a code; `Location` and the number for one without a name.
pub(super) fn name(code: i32) -> String {
    match NAMES.binary_search_by_key(&code, |(number, _)| *number) {
        Ok(at) => NAMES[at].1.to_owned(),
        Err(_) => format!("Location{code}"),
    }
}

/// Whether a write with a number may be tried again after this error.
pub(super) fn is_retryable(code: i32) -> bool {
    RETRYABLE.contains(&code) || code == NOT_PRIMARY_OR_SECONDARY
}

/// Whether an error says that the server has another state than before, so that clients must look at it again: NotWritablePrimary and
/// its kind, and shutdowns.
pub(super) fn is_state_change(code: i32) -> bool {
    matches!(code, 91 | 189 | 10_107 | 11_600 | 11_602 | 13_435 | 13_436)
}

/// The labels of an error inside of a transaction, or of a write with a number.
pub(super) fn labels(code: i32, is_in_transaction: bool, has_number: bool, is_end: bool) -> Vec<String> {
    let mut labels = Vec::new();
    let is_transient = TRANSIENT.contains(&code) || (is_retryable(code) && !is_end);
    if is_in_transaction && is_transient {
        labels.push("TransientTransactionError".to_owned());
    }
    let may_retry = has_number && (!is_in_transaction || is_end);
    if may_retry && is_retryable(code) {
        labels.push("RetryableWriteError".to_owned());
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_codes() {
        assert!(NAMES.is_sorted_by(|(one, _), (next, _)| one < next));
        assert_eq!((&*name(43), &*name(50911)), ("CursorNotFound", "Location50911"));
    }

    #[test]
    fn labels_follow_from_the_place_of_the_error() {
        assert_eq!(labels(91, false, false, false), Vec::<String>::new());
        assert_eq!(labels(91, false, true, false), ["RetryableWriteError"]);
        assert_eq!(labels(91, true, true, false), ["TransientTransactionError"]);
        assert_eq!(labels(91, true, true, true), ["RetryableWriteError"]);
        assert_eq!(labels(251, true, true, true), ["TransientTransactionError"]);
        assert_eq!(labels(43, true, true, false), Vec::<String>::new());
    }
}
