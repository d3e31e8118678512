//! The inspection of a request body under way.

use std::{cell::RefCell, rc::Rc};

use weir_http_codec::{BodyLength, RequestHead};

use crate::{
    filter::{FilterRequestOutcome, HttpFilter, Inspect, OwnResponse, RequestChoice, SeenBody, WholeResponse},
    filter_handle::FilterHandle,
    request_context::RequestContext,
    upgrade::RequestedUpgrade,
};

/// An inspection, and the response that it refuses the request with.
pub(crate) struct BodyInspection {
    filter_handle: Rc<FilterHandle>,
    buffer_bytes: usize,
    is_over: bool,
    refused: Option<WholeResponse>,
}

impl BodyInspection {
    /// The inspection of a request, if its filter wants one. That of a request without a body has only the choice.
    pub(crate) fn begin(head: &RequestHead, request: &RequestContext) -> Option<Box<RefCell<Self>>> {
        let filter_handle = request.filter_handle.get()?;
        if request.upgrade != RequestedUpgrade::None {
            return None;
        }
        let look = filter_handle.with(|filter| filter.inspect(head, &filter_handle.caller().borrow()));
        if let Some(refused) = filter_handle.with(|filter| filter.refuse_head()) {
            let refused = Self { refused: Some(refused), ..Self::new(filter_handle.clone(), 0) };
            return Some(Box::new(RefCell::new(refused)));
        }
        let buffer_bytes = match look {
            Inspect::No => return None,
            Inspect::Streaming if request.body == BodyLength::Exact(0) => return None,
            Inspect::Streaming => 0,
            Inspect::Buffered(bytes) => bytes,
        };
        Some(Box::new(RefCell::new(Self::new(filter_handle.clone(), buffer_bytes))))
    }

    pub(crate) fn new(filter_handle: Rc<FilterHandle>, buffer_bytes: usize) -> Self {
        Self { filter_handle, buffer_bytes, is_over: false, refused: None }
    }

    /// The filter has refused the request.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Bytes to buffer before the choice. 0: the filter makes none.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Looks at a piece; false if the request is refused.
    pub(crate) fn data(&mut self, piece: &[u8]) -> bool {
        self.refused.is_none() && (piece.is_empty() || self.call(|filter| filter.request_data(piece)).is_some())
    }

    /// The body is over, which the filter learns once. False if the request is refused.
    pub(crate) fn end(&mut self) -> bool {
        let was_over = std::mem::replace(&mut self.is_over, true);
        self.refused.is_none() && (was_over || self.call(|filter| filter.request_end()).is_some())
    }

    /// The response of the filter itself to a whole request; `None` if the request is refused.
    pub(crate) fn own_response(&mut self, head: &RequestHead, seen: SeenBody<'_>) -> Option<OwnResponse> {
        self.call(|filter| filter.own_response(head, seen))
    }

    /// The requests of the filter itself are over.
    pub(crate) fn own_requests_done(&mut self, outcomes: Vec<FilterRequestOutcome>) {
        self.filter_handle.with(|filter| filter.own_requests_done(outcomes));
    }

    /// The choice of the filter; `None` if the request is refused.
    pub(crate) fn choose_upstream(&mut self, head: &mut RequestHead, seen: SeenBody<'_>) -> Option<RequestChoice> {
        self.call(|filter| filter.choose_upstream(head, seen))
    }

    /// The response that the request is refused with.
    pub(crate) fn refused(&mut self) -> Option<WholeResponse> {
        self.refused.take()
    }

    fn call<T>(&mut self, look: impl FnOnce(&mut dyn HttpFilter) -> Result<T, WholeResponse>) -> Option<T> {
        match self.filter_handle.with(look) {
            Ok(seen) => Some(seen),
            Err(refused) => {
                self.refused = Some(refused);
                None
            }
        }
    }
}
