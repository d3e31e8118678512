//! The inspection of a request body under way.

use std::cell::RefCell;

use weir_http_codec::{BodyLength, RequestHead};

use crate::{
    asked::Asked,
    doors::{Choice, Inspect, Inspection, Whole},
    upgrade::Wish,
};

/// An inspection, and the response that it refuses the request with.
pub(crate) struct Inspecting {
    inspection: Box<dyn Inspection>,
    refused: Option<Whole>,
}

impl Inspecting {
    /// That of a request with a body.
    pub(crate) fn begin(
        inspect: Option<&dyn Inspect>,
        head: &RequestHead,
        asked: &Asked,
    ) -> Option<Box<RefCell<Self>>> {
        let inspect = inspect.filter(|_| asked.body != BodyLength::Exact(0) && asked.wish == Wish::None)?;
        let inspection = inspect.begin(head)?;
        Some(Box::new(RefCell::new(Self { inspection, refused: None })))
    }

    /// Looks at a piece; false if the request is refused.
    pub(crate) fn data(&mut self, piece: &[u8]) -> bool {
        self.refused.is_none() && (piece.is_empty() || self.noted(|inspection| inspection.data(piece)).is_some())
    }

    /// The body is over; false if the request is refused.
    pub(crate) fn end(&mut self) -> bool {
        self.refused.is_none() && self.noted(|inspection| inspection.end()).is_some()
    }

    /// The upstream that it chooses; `None` if the request is refused.
    pub(crate) fn choose(&mut self, head: &mut RequestHead, is_whole: bool) -> Option<Choice> {
        self.noted(|inspection| inspection.choose(head, is_whole))
    }

    /// The response that the request is refused with.
    pub(crate) fn refused(&mut self) -> Option<Whole> {
        self.refused.take()
    }

    fn noted<T>(&mut self, look: impl FnOnce(&mut dyn Inspection) -> Result<T, Whole>) -> Option<T> {
        match look(&mut *self.inspection) {
            Ok(seen) => Some(seen),
            Err(refused) => {
                self.refused = Some(refused);
                None
            }
        }
    }
}
