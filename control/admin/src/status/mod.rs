//! The response types of the API. They are the contract with scripts and with `weir top`: fields are added, not renamed.
//!
//! Units stand in the names. A counter counts since the process started; rates are left to the reader.

mod ai_key;
mod ai_request;
mod certificate;
mod connection;
mod insight;
mod listener;
mod operation;
mod probe;
mod responses;
mod route;
mod upstream;
mod worker;

pub use ai_key::{
    AiBudgetUse, AiKeyChange, AiKeyIssued, AiKeyList, AiKeyOrder, AiKeyOutcome, AiKeyPolicy, AiKeyQuery, AiKeyRequest,
    AiKeyRotation, AiKeySource, AiKeyState, AiKeyStatus, AiKeyText, AiKeyUsage, AiRateUse,
};
pub use ai_request::{AiRequestList, AiRequestQuery, StatusFilter};
pub use certificate::{CertificateState, CertificateStatus};
pub use connection::{
    ConnectionPage, ConnectionQuery, ConnectionResponse, ConnectionState, ConnectionStatus, PoolWait,
};
pub use insight::{
    BigKeyList, BigKeyStatus, HotKeyList, HotKeyStatus, InsightResponse, KeyDirection, KeyNames, SlowLogList,
    SlowLogReset, SlowRequestStatus,
};
pub use listener::{KneeAction, KneeStatus, ListenerList, ListenerState, ListenerStatus, Quantiles};
pub use operation::{
    Diagnostic, DrainState, DrainStatus, ReloadOutcome, ReloadResult, Severity, UpgradeOutcome, UpgradeResult,
    VersionStatus,
};
pub use probe::{Check, CheckResult, ProbeResponse, Verdict};
pub use responses::{ErrorStatus, ResponseClasses};
pub use route::{RouteList, RouteStatus, Validity};
pub use upstream::{Breaker, EndpointStatus, Health, UpstreamList, UpstreamStatus};
pub use worker::{WorkerList, WorkerStatus};
