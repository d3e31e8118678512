//! Error codes of PostgreSQL (Appendix A of its manual) that a gateway sends or reads.

/// `connection_exception`: the class of lost and refused connections.
pub const CONNECTION_EXCEPTION: &str = "08000";
/// `sqlclient_unable_to_establish_sqlconnection`.
pub const CANNOT_CONNECT: &str = "08001";
/// `connection_does_not_exist`.
pub const CONNECTION_DOES_NOT_EXIST: &str = "08003";
/// `sqlserver_rejected_establishment_of_sqlconnection`.
pub const CONNECTION_REJECTED: &str = "08004";
/// `connection_failure`: the server was lost.
pub const CONNECTION_FAILURE: &str = "08006";
/// `protocol_violation`.
pub const PROTOCOL_VIOLATION: &str = "08P01";
/// `feature_not_supported`.
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
/// `invalid_parameter_value`.
pub const INVALID_PARAMETER_VALUE: &str = "22023";
/// `invalid_text_representation`.
pub const INVALID_TEXT_REPRESENTATION: &str = "22P02";
/// `active_sql_transaction`.
pub const ACTIVE_SQL_TRANSACTION: &str = "25001";
/// `read_only_sql_transaction`.
pub const READ_ONLY_SQL_TRANSACTION: &str = "25006";
/// `no_active_sql_transaction`.
pub const NO_ACTIVE_SQL_TRANSACTION: &str = "25P01";
/// `in_failed_sql_transaction`.
pub const IN_FAILED_SQL_TRANSACTION: &str = "25P02";
/// `idle_in_transaction_session_timeout`.
pub const IDLE_IN_TRANSACTION_TIMEOUT: &str = "25P03";
/// `invalid_sql_statement_name`: no such prepared statement.
pub const INVALID_SQL_STATEMENT_NAME: &str = "26000";
/// `invalid_authorization_specification`.
pub const INVALID_AUTHORIZATION: &str = "28000";
/// `invalid_password`.
pub const INVALID_PASSWORD: &str = "28P01";
/// `invalid_cursor_name`: no such portal.
pub const INVALID_CURSOR_NAME: &str = "34000";
/// `invalid_catalog_name`: no such database.
pub const INVALID_CATALOG_NAME: &str = "3D000";
/// `serialization_failure`.
pub const SERIALIZATION_FAILURE: &str = "40001";
/// `deadlock_detected`.
pub const DEADLOCK_DETECTED: &str = "40P01";
/// `insufficient_privilege`.
pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
/// No function has the name and these types.
pub const UNDEFINED_FUNCTION: &str = "42883";
/// `syntax_error`.
pub const SYNTAX_ERROR: &str = "42601";
/// `undefined_table`.
pub const UNDEFINED_TABLE: &str = "42P01";
/// `undefined_parameter`.
pub const UNDEFINED_PARAMETER: &str = "42P02";
/// `duplicate_cursor`.
pub const DUPLICATE_CURSOR: &str = "42P03";
/// `duplicate_prepared_statement`.
pub const DUPLICATE_PREPARED_STATEMENT: &str = "42P05";
/// `undefined_object`: an unknown setting, for example.
pub const UNDEFINED_OBJECT: &str = "42704";
/// `insufficient_resources`.
pub const INSUFFICIENT_RESOURCES: &str = "53000";
/// `out_of_memory`.
pub const OUT_OF_MEMORY: &str = "53200";
/// `too_many_connections`: also a pool that has no server in time.
pub const TOO_MANY_CONNECTIONS: &str = "53300";
/// `configuration_limit_exceeded`.
pub const CONFIGURATION_LIMIT_EXCEEDED: &str = "53400";
/// `program_limit_exceeded`.
pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
/// `statement_too_complex`.
pub const STATEMENT_TOO_COMPLEX: &str = "54001";
/// `object_not_in_prerequisite_state`.
pub const OBJECT_NOT_IN_PREREQUISITE_STATE: &str = "55000";
/// `query_canceled`: a cancel request, a timeout, or CopyFail.
pub const QUERY_CANCELED: &str = "57014";
/// `admin_shutdown`.
pub const ADMIN_SHUTDOWN: &str = "57P01";
/// `crash_shutdown`.
pub const CRASH_SHUTDOWN: &str = "57P02";
/// `cannot_connect_now`: the server starts or stops.
pub const CANNOT_CONNECT_NOW: &str = "57P03";
/// `database_dropped`.
pub const DATABASE_DROPPED: &str = "57P04";
/// `idle_session_timeout`.
pub const IDLE_SESSION_TIMEOUT: &str = "57P05";
/// `system_error`.
pub const SYSTEM_ERROR: &str = "58000";
/// `internal_error`.
pub const INTERNAL_ERROR: &str = "XX000";
/// `successful_completion`, as in notices.
pub const SUCCESSFUL_COMPLETION: &str = "00000";
/// `warning`.
pub const WARNING: &str = "01000";
