//! The inspection of a request body under way.

use std::{cell::RefCell, rc::Rc};

use weir_http_codec::{BodyLength, RequestHead};

use crate::{
    asked::Asked,
    company::Company,
    doors::{Choice, Companion, Inspect, Whole},
    upgrade::Wish,
};

/// An inspection, and the response that it refuses the request with.
pub(crate) struct Inspecting {
    company: Rc<Company>,
    bytes_kept: usize,
    is_over: bool,
    refused: Option<Whole>,
}

impl Inspecting {
    /// That of a request with a body, if its companion wants one.
    pub(crate) fn begin(head: &RequestHead, asked: &Asked) -> Option<Box<RefCell<Self>>> {
        let company = asked.company.get()?;
        if asked.body == BodyLength::Exact(0) || asked.wish != Wish::None {
            return None;
        }
        let bytes_kept = match company.with(|companion| companion.inspect(head, &company.caller().borrow())) {
            Inspect::No => return None,
            Inspect::Passing => 0,
            Inspect::Kept(bytes) => bytes,
        };
        Some(Box::new(RefCell::new(Self::new(company.clone(), bytes_kept))))
    }

    pub(crate) fn new(company: Rc<Company>, bytes_kept: usize) -> Self {
        Self { company, bytes_kept, is_over: false, refused: None }
    }

    /// Bytes that are kept before the upstream is chosen. 0: it is not chosen.
    pub(crate) fn bytes_kept(&self) -> usize {
        self.bytes_kept
    }

    /// Looks at a piece; false if the request is refused.
    pub(crate) fn data(&mut self, piece: &[u8]) -> bool {
        self.refused.is_none() && (piece.is_empty() || self.noted(|companion| companion.request_data(piece)).is_some())
    }

    /// The body is over, which is told once; false if the request is refused.
    pub(crate) fn end(&mut self) -> bool {
        let was_over = std::mem::replace(&mut self.is_over, true);
        self.refused.is_none() && (was_over || self.noted(|companion| companion.request_end()).is_some())
    }

    /// The upstream that it chooses; `None` if the request is refused.
    pub(crate) fn choose(&mut self, head: &mut RequestHead, is_whole: bool) -> Option<Choice> {
        self.noted(|companion| companion.choose(head, is_whole))
    }

    /// The response that the request is refused with.
    pub(crate) fn refused(&mut self) -> Option<Whole> {
        self.refused.take()
    }

    fn noted<T>(&mut self, look: impl FnOnce(&mut dyn Companion) -> Result<T, Whole>) -> Option<T> {
        match self.company.with(look) {
            Ok(seen) => Some(seen),
            Err(refused) => {
                self.refused = Some(refused);
                None
            }
        }
    }
}
