//! The outcome of an attempt, and its meaning for the client and for the origin.

use weir_base::{error::Culprit, time::Time};
use weir_listener::CloseReason;
use weir_upstream::{ExchangeOutcome, LossCause, Remains};

use crate::{body::BodyError, refusal::Refusal};

/// A client does not take its response.
pub(crate) const STALLED: &str = "client_stalled";
pub(crate) const STALLED_TEXT: &str = "the client does not read what it is sent";
/// An inspection refused the request.
pub(crate) const INSPECTED: &str = "inspected";
/// An exchange took longer than it may.
pub(crate) const EXPIRED: CloseReason = CloseReason::Broken { reason: "call_expired", culprit: Culprit::Gateway };

/// The outcome of an attempt.
pub(crate) enum AttemptOutcome {
    /// The client has the whole response.
    Responded {
        status: u16,
        /// That of the origin, if a filter has replaced the response.
        origin_status: u16,
        /// The response allows the connection to go on.
        keeps_client: bool,
        /// The state of the lane; `None`: it ends.
        remains: Option<Remains>,
    },
    /// The client has nothing of a response yet.
    Failed(AttemptFailure),
    /// The client has a part of the response: it can only be broken off.
    Aborted(CloseReason),
    /// The response broke off, and its filter has ended it.
    Finished {
        reason: CloseReason,
        /// The response allows the connection to go on.
        keeps_client: bool,
    },
}

/// The reason why there is no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptFailure {
    /// The origin closed before it said anything.
    NoResponse,
    /// The origin has certainly not begun with it, and its connection takes more exchanges.
    NotProcessed,
    /// The origin has certainly not begun with it, and its connection takes no more exchanges.
    Drained,
    /// The origin responded with this status, which the client does not get: a retry follows.
    Status(u16),
    /// The origin responded with this status, which the client does not get: the filter has decided so.
    Left(u16),
    /// It took longer than the client was ready to wait, or than it may.
    DeadlineExceeded,
    /// The origin did not respond as it should.
    Origin(Refusal, LossCause),
    /// The origin broke a rule of their common connection, which ends for all exchanges on it.
    Connection,
    /// An inspection refuses the request.
    Inspected,
    /// The origin is well, and yet the client gets no response of it.
    Declined(Refusal),
    /// The client is at fault.
    Client(Refusal),
    /// The client takes nothing of the response.
    ClientStalled,
    /// The client is gone.
    ClientGone,
}

/// The start of a response.
#[derive(Clone, Copy)]
pub(crate) struct ResponseStart {
    pub(crate) at: Time,
    pub(crate) status: u16,
}

impl AttemptFailure {
    pub(crate) fn of_client(broken: BodyError) -> Self {
        match broken {
            BodyError::Malformed(error) => Self::Client(Refusal::malformed(error)),
            BodyError::TimedOut => Self::Client(Refusal::BODY_TIMEOUT),
            BodyError::TooLong => Self::Client(Refusal::BODY_TOO_LONG.closing()),
            BodyError::Truncated => Self::Client(Refusal::BODY_CUT),
            BodyError::Inspected => Self::Inspected,
            BodyError::Evicted => Self::Declined(Refusal::UPLOAD_GIVEN_UP),
            BodyError::TapFailed => Self::Declined(Refusal::TAP_BROKE_OFF),
            BodyError::ReceiverGone | BodyError::ReceiverStalled | BodyError::Cancelled => Self::ClientGone,
        }
    }

    pub(crate) fn of_origin(broken: BodyError) -> Self {
        match broken {
            BodyError::Malformed(_) | BodyError::TooLong | BodyError::Inspected => {
                Self::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation)
            }
            BodyError::TimedOut => Self::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout),
            BodyError::Truncated | BodyError::Cancelled => Self::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed),
            BodyError::TapFailed => Self::Declined(Refusal::TAP_BROKE_OFF),
            BodyError::ReceiverStalled | BodyError::Evicted => Self::ClientStalled,
            BodyError::ReceiverGone => Self::ClientGone,
        }
    }

    /// The client waits for the rest of its response, and is not at fault.
    pub(crate) const fn leaves_client(self) -> bool {
        !matches!(self, Self::Client(_) | Self::ClientStalled | Self::ClientGone | Self::Inspected)
    }

    /// Its meaning for the endpoint, on a connection that is open since `opened`.
    pub(crate) const fn outcome(self, opened: Time) -> ExchangeOutcome {
        match self {
            Self::NoResponse | Self::Connection => ExchangeOutcome::Lost(opened),
            Self::Origin(_, LossCause::Timeout) => ExchangeOutcome::TimedOut,
            _ => ExchangeOutcome::Failed,
        }
    }

    /// The reason why a response broke off after it had begun. The gateway sets the deadlines, so the origin is not at fault when one
    /// passes.
    pub(crate) const fn reason(self) -> CloseReason {
        match self {
            Self::Connection => CloseReason::of_upstream(Refusal::ORIGIN_MALFORMED.reason),
            Self::NoResponse | Self::NotProcessed | Self::Drained | Self::Status(_) | Self::Left(_) => {
                CloseReason::of_upstream("origin_closed")
            }
            Self::DeadlineExceeded => EXPIRED,
            Self::Origin(refusal, LossCause::Timeout) | Self::Declined(refusal) => {
                CloseReason::Broken { reason: refusal.reason, culprit: Culprit::Gateway }
            }
            Self::Origin(refusal, _) => CloseReason::of_upstream(refusal.reason),
            Self::Client(refusal) => CloseReason::of_client(refusal.reason),
            Self::Inspected => CloseReason::Broken { reason: INSPECTED, culprit: Culprit::Client },
            Self::ClientStalled => CloseReason::of_client(STALLED),
            Self::ClientGone => CloseReason::ClientReset,
        }
    }
}
