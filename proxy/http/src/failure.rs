//! The end of an attempt to have a request answered, and what it says of the client and of the origin.

use weir_base::{error::Culprit, time::Time};
use weir_listener::CloseReason;
use weir_upstream::{LossCause, Outcome, Remains};

use crate::{body::Broken, refusal::Refusal};

/// A client does not take its answer.
pub(crate) const STALLED: &str = "client_stalled";
pub(crate) const STALLED_TEXT: &str = "the client does not read what it is sent";
/// An inspection refused the request.
pub(crate) const INSPECTED: &str = "inspected";
/// An exchange took longer than it may.
pub(crate) const EXPIRED: CloseReason = CloseReason::Broken { reason: "call_expired", culprit: Culprit::Gateway };

/// How an attempt to have a request answered ended.
pub(crate) enum Ended {
    /// The client has the whole answer.
    Answered {
        status: u16,
        /// The connection may go on, as far as the answer is concerned.
        keeps_client: bool,
        /// What is left on the lane; `None`: it ends.
        remains: Option<Remains>,
    },
    /// The client has nothing of an answer yet.
    Failed(Failure),
    /// The client has a part of the answer: all that is left is to break it off.
    BrokenOff(CloseReason),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The origin closed before it said anything.
    Silent,
    /// The origin has certainly not begun with it.
    Unseen,
    /// The origin answered with this status, which is not for the client: it is asked again elsewhere.
    Status(u16),
    /// It took longer than the client was ready to wait, or than it may.
    Expired,
    /// The origin did not answer as it should.
    Origin(Refusal, LossCause),
    /// The origin broke a rule of their common connection, which ends for all exchanges on it.
    Connection,
    /// An inspection refuses the request.
    Inspected,
    /// The origin is well, and yet the client gets no response of it.
    Unwilling(Refusal),
    /// The client is at fault.
    Client(Refusal),
    /// The client takes nothing of the answer.
    ClientStalled,
    /// The client is gone.
    ClientGone,
}

/// The beginning of an answer.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) at: Time,
    pub(crate) status: u16,
}

impl Failure {
    pub(crate) fn of_client(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(error) => Self::Client(Refusal::malformed(error)),
            Broken::Idle => Self::Client(Refusal::BODY_TIMEOUT),
            Broken::TooLong => Self::Client(Refusal::BODY_TOO_LONG.closing()),
            Broken::Cut => Self::Client(Refusal::BODY_CUT),
            Broken::Refused => Self::Inspected,
            Broken::GivenUp => Self::Unwilling(Refusal::UPLOAD_GIVEN_UP),
            Broken::Untapped => Self::Unwilling(Refusal::TAP_BROKE_OFF),
            Broken::Untaken | Broken::Stalled | Broken::Cancelled => Self::ClientGone,
        }
    }

    pub(crate) fn of_origin(broken: Broken) -> Self {
        match broken {
            Broken::Malformed(_) | Broken::TooLong | Broken::Refused => {
                Self::Origin(Refusal::ORIGIN_MALFORMED, LossCause::Violation)
            }
            Broken::Idle => Self::Origin(Refusal::RESPONSE_TIMEOUT, LossCause::Timeout),
            Broken::Cut | Broken::Cancelled => Self::Origin(Refusal::ORIGIN_CLOSED, LossCause::Closed),
            Broken::Untapped => Self::Unwilling(Refusal::TAP_BROKE_OFF),
            Broken::Stalled | Broken::GivenUp => Self::ClientStalled,
            Broken::Untaken => Self::ClientGone,
        }
    }

    /// What it says of the endpoint, on a connection that stands since `opened`.
    pub(crate) const fn outcome(self, opened: Time) -> Outcome {
        match self {
            Self::Silent | Self::Connection => Outcome::Lost(opened),
            Self::Origin(_, LossCause::Timeout) => Outcome::TimedOut,
            _ => Outcome::Failed,
        }
    }

    /// The reason why a response broke off after it had begun. The gateway sets the deadlines, so the origin is not at fault when one
    /// passes.
    pub(crate) const fn reason(self) -> CloseReason {
        match self {
            Self::Connection => CloseReason::of_upstream(Refusal::ORIGIN_MALFORMED.reason),
            Self::Silent | Self::Unseen | Self::Status(_) => CloseReason::of_upstream("origin_closed"),
            Self::Expired => EXPIRED,
            Self::Origin(refusal, LossCause::Timeout) | Self::Unwilling(refusal) => {
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
