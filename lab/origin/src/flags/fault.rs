//! Replies that go wrong because a test wants it.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

/// A reply that goes wrong, and the requests that get it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fault {
    /// `features`, `feature`, `delta`, `streaming`, `frontend`, `validate`, `register`, `metrics`, `bulk`; empty: all of them.
    pub endpoint: String,
    /// So many requests; absent: all.
    pub times: Option<u64>,
    /// Before the reply.
    pub delay_ms: u64,
    /// The reply has this status, and the body below.
    pub status: Option<u16>,
    /// Its body. Without `status` it takes the place of the body of the right reply.
    pub body: Option<String>,
    /// Header fields besides those of the reply.
    pub fields: BTreeMap<String, String>,
    /// The connection is reset in place of a reply.
    pub reset: bool,
}

/// A list of them, as a test sends it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// The first that fits a request counts.
    pub faults: Vec<Fault>,
}

impl Faults {
    /// The fault of a request for an endpoint, which is spent by it.
    pub fn take(&mut self, endpoint: &str) -> Option<Fault> {
        let fits =
            |fault: &&mut Fault| (fault.endpoint.is_empty() || fault.endpoint == endpoint) && fault.times != Some(0);
        let fault = self.faults.iter_mut().find(fits)?;
        if let Some(times) = &mut fault.times {
            *times -= 1;
        }
        Some(fault.clone())
    }
}

impl Fault {
    /// Before the reply.
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_its_endpoint_as_often_as_it_says() {
        let text = r#"{"faults":[{"endpoint":"delta","times":2,"status":503},{"status":500}]}"#;
        let mut faults: Faults = serde_json::from_str(text).expect("faults");
        let mut status = |endpoint| faults.take(endpoint).and_then(|fault| fault.status);
        assert_eq!(
            [status("delta"), status("features"), status("delta"), status("delta")],
            [503, 500, 503, 500].map(Some)
        );
        assert!(serde_json::from_str::<Faults>(r#"{"faults":[{"stat":1}]}"#).is_err(), "a misspelt key");
    }
}
