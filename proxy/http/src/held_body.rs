//! A response body that is held whole, so that its filter can replace it.

use std::rc::Rc;

use weir_base::{ByteLease, BytesPermit};
use weir_http_codec::Fields;

use crate::{
    body::{BodyError, Sink},
    filter::{HoldLimits, ReplacedResponse},
    filter_handle::FilterHandle,
    refusal::Refusal,
    service::Service,
};

/// The held body, with the permit for its memory.
pub(crate) struct HeldBody {
    filter_handle: Rc<FilterHandle>,
    bytes: HeldBytes,
}

/// The bytes of a body within their limits.
struct HeldBytes {
    all: Vec<u8>,
    limits: HoldLimits,
    permit: BytesPermit,
    refused: Option<Refusal>,
    /// No more of it is held.
    is_cut: bool,
}

impl HeldBody {
    pub(crate) fn new(filter_handle: Rc<FilterHandle>, limits: HoldLimits, service: &Service) -> Self {
        Self { filter_handle, bytes: HeldBytes::new(limits, &service.sessions.core().bytes) }
    }

    /// Whether a body of so many bytes can be held. If not, it is refused.
    pub(crate) fn fits(&mut self, bytes: u64) -> bool {
        self.bytes.limits.may_be_cut || self.bytes.fits(bytes)
    }

    /// The filter replaces what has come of a body that did not come to its end.
    pub(crate) fn may_be_cut(&self) -> bool {
        self.bytes.limits.may_be_cut
    }

    /// The reason why it is not held.
    pub(crate) fn refused(&self) -> Option<Refusal> {
        self.bytes.refused
    }

    /// Lets the filter replace the response. The memory of the new body is charged until this is dropped.
    ///
    /// # Errors
    /// There is no memory for that.
    pub(crate) fn replace(&mut self, status: u16, fields: &mut Fields) -> Result<ReplacedResponse, Refusal> {
        let body = self.bytes.take()?;
        let replaced =
            self.filter_handle.keeping_length(fields, |filter, fields| filter.replace_response(status, fields, &body));
        drop(body);
        self.bytes.keep(replaced.body.len() as u64);
        Ok(replaced)
    }
}

impl Sink for HeldBody {
    fn data(&mut self, data: &[u8]) {
        if self.bytes.refused.is_none() && !self.bytes.is_cut && !data.is_empty() {
            self.bytes.add(data);
            if self.filter_handle.with(|filter| filter.follow(data)).is_err() {
                self.bytes.refuse(Refusal::TAP_BROKE_OFF);
            }
        }
    }

    fn end(&mut self, _: Option<&Fields>) {}

    async fn ready(&mut self) -> Result<(), BodyError> {
        if self.bytes.refused.is_some() || self.bytes.is_cut { Err(BodyError::TooLong) } else { Ok(()) }
    }
}

impl HeldBytes {
    fn new(limits: HoldLimits, lease: &ByteLease) -> Self {
        Self { all: Vec::new(), limits, permit: lease.empty(), refused: None, is_cut: false }
    }

    fn fits(&mut self, bytes: u64) -> bool {
        if bytes > self.limits.bytes_max as u64 {
            self.refuse(Refusal::RESPONSE_TOO_LONG);
        }
        self.refused.is_none()
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.refused.get_or_insert(refusal);
        self.all = Vec::new();
        self.permit.shrink(u64::MAX);
    }

    /// More of the body.
    fn add(&mut self, data: &[u8]) {
        let room = self.limits.bytes_max.saturating_sub(self.all.len());
        let data = match self.limits.may_be_cut && data.len() > room {
            true => {
                self.is_cut = true;
                &data[..room]
            }
            false => data,
        };
        let length = self.all.len() + data.len();
        if !self.fits(length as u64) {
            return;
        }
        if length as u64 > self.permit.bytes() {
            let room = length.next_power_of_two().min(self.limits.bytes_max);
            if !self.permit.resize(room as u64) {
                return self.lacks_room();
            }
            self.all.reserve_exact(room - self.all.len());
        }
        self.all.extend_from_slice(data);
    }

    /// The whole body, with the memory that its replacement needs.
    fn take(&mut self) -> Result<Vec<u8>, Refusal> {
        let memory = self.all.len() as u64 * u64::from(self.limits.memory_per_byte.max(1));
        let needed = memory.max(self.permit.bytes());
        if !self.permit.resize(needed) {
            self.lacks_room();
        }
        self.refused.map_or_else(|| Ok(std::mem::take(&mut self.all)), Err)
    }

    /// There is no memory for the body. One that may be cut goes on without a byte.
    fn lacks_room(&mut self) {
        match self.limits.may_be_cut {
            true => (self.is_cut, self.all) = (true, Vec::new()),
            false => self.refuse(Refusal::RESPONSE_NO_ROOM),
        }
    }

    /// Charges so many bytes from now on. They are in memory already.
    fn keep(&mut self, bytes: u64) {
        // A filter that said too little has them all the same.
        let _ = self.permit.resize(bytes);
    }
}

#[cfg(test)]
mod tests {
    use weir_base::Budget;

    use super::*;

    fn held(bytes_max: usize, memory_per_byte: u32, budget: u64) -> (HeldBytes, ByteLease) {
        let lease = ByteLease::with_step(Budget::new(budget), 1);
        (HeldBytes::new(HoldLimits { bytes_max, memory_per_byte, may_be_cut: false }, &lease), lease)
    }

    #[test]
    fn a_body_up_to_its_limit_is_held_and_one_byte_more_is_refused() {
        let (mut held, lease) = held(10, 1, 100);
        held.add(b"0123");
        held.add(b"456789");
        assert!(held.refused.is_none() && lease.in_use() <= 10);
        held.add(b"x");
        assert_eq!((held.refused, lease.in_use()), (Some(Refusal::RESPONSE_TOO_LONG), 0));
        assert_eq!(held.take().err(), Some(Refusal::RESPONSE_TOO_LONG));
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_a_byte_of_it() {
        let (mut held, _) = held(10, 1, 100);
        assert!(held.fits(10) && !held.fits(11));
        assert_eq!(held.refused, Some(Refusal::RESPONSE_TOO_LONG));
    }

    #[test]
    fn a_body_that_may_be_cut_is_never_refused() {
        let cut = |bytes_max, memory_per_byte, budget| {
            let lease = ByteLease::with_step(Budget::new(budget), 1);
            let limits = HoldLimits { bytes_max, memory_per_byte, may_be_cut: true };
            let mut held = HeldBytes::new(limits, &lease);
            held.add(b"01234567");
            let is_cut = held.is_cut;
            (held.take(), is_cut)
        };
        assert_eq!(cut(5, 1, 100), (Ok(b"01234".to_vec()), true));
        assert_eq!(cut(8, 1, 100), (Ok(b"01234567".to_vec()), false));
        assert_eq!(cut(0, 1, 100), (Ok(Vec::new()), true));
        assert_eq!(cut(8, 1, 3), (Ok(Vec::new()), true), "no memory for its bytes");
        assert_eq!(cut(8, 9, 10), (Ok(Vec::new()), false), "no memory for the work");
    }

    #[test]
    fn the_work_on_a_body_is_charged_while_it_lasts() {
        let (mut held, lease) = held(100, 8, 1000);
        held.add(&[7; 100]);
        assert_eq!(lease.in_use(), 100);
        assert_eq!(held.take(), Ok(vec![7; 100]));
        assert_eq!(lease.in_use(), 800);
        held.keep(130);
        assert_eq!(lease.in_use(), 130);
        drop(held);
        assert_eq!(lease.in_use(), 0);
    }

    #[test]
    fn without_memory_a_body_is_refused_and_holds_nothing() {
        let (mut small, lease) = held(100, 8, 500);
        small.add(&[7; 100]);
        assert_eq!(small.take().err(), Some(Refusal::RESPONSE_NO_ROOM));
        assert_eq!(lease.in_use(), 0);
        let (mut tiny, _) = held(100, 8, 50);
        tiny.add(&[7; 60]);
        assert_eq!(tiny.refused, Some(Refusal::RESPONSE_NO_ROOM));
    }
}
