//! Response bodies that pass taps on their way to the client.

use std::rc::Rc;

use weir_http_codec::Fields;

use crate::{
    body::{BodyError, Sink},
    filter::BodyAborted,
    filter_handle::FilterHandle,
};

/// An edit of one response body.
pub(crate) trait BodyEdit {
    /// Takes the next piece, and appends to `out` what goes on.
    ///
    /// # Errors
    /// The response breaks off.
    fn data(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted>;

    /// Appends what can go on by now: nothing more is there at the moment.
    ///
    /// # Errors
    /// The response breaks off.
    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted>;

    /// Appends the rest: the body is over.
    ///
    /// # Errors
    /// The response breaks off.
    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted>;
}

impl BodyEdit for Rc<FilterHandle> {
    fn data(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.with(|filter| filter.edit(piece, out))
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.with(|filter| filter.flush(out))
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        self.with(|filter| filter.response_end(out))
    }
}

/// The taps of one response body.
#[derive(Default)]
pub(crate) struct Taps {
    /// Sees the body first, as it comes.
    pub(crate) follower: Option<Rc<FilterHandle>>,
    /// In the order in which the body passes them.
    pub(crate) edits: Vec<Box<dyn BodyEdit>>,
}

impl Taps {
    pub(crate) fn is_empty(&self) -> bool {
        self.follower.is_none() && self.edits.is_empty()
    }
}

/// A sink behind taps. Each flush sends everything: no piece waits for more to come.
pub(crate) struct TappedSink<'a, S> {
    sink: &'a mut S,
    taps: Taps,
    passed: Vec<u8>,
    next: Vec<u8>,
    is_broken: bool,
}

/// The steps of a body at its taps.
#[derive(Clone, Copy)]
enum TapStep {
    Data,
    Flush,
    End,
}

impl<'a, S: Sink> TappedSink<'a, S> {
    pub(crate) fn new(taps: Taps, sink: &'a mut S) -> Self {
        Self { sink, taps, passed: Vec::new(), next: Vec::new(), is_broken: false }
    }

    /// Passes on what comes out of the last tap. Once a tap has failed nothing comes out any more, so that the body does not look whole.
    fn step(&mut self, data: &[u8], step: TapStep) {
        self.is_broken = self.is_broken || self.follow(data, step).and_then(|()| self.edit(data, step)).is_err();
        let out = if self.taps.edits.is_empty() { data } else { &self.passed };
        if !self.is_broken && !out.is_empty() {
            self.sink.data(out);
        }
    }

    fn follow(&mut self, data: &[u8], step: TapStep) -> Result<(), BodyAborted> {
        let Some(follower) = &self.taps.follower else { return Ok(()) };
        match step {
            TapStep::Data if !data.is_empty() => follower.with(|filter| filter.follow(data)),
            TapStep::Data | TapStep::Flush => Ok(()),
            TapStep::End => follower.with(|filter| filter.response_end(&mut Vec::new())),
        }
    }

    fn edit(&mut self, data: &[u8], step: TapStep) -> Result<(), BodyAborted> {
        for (number, edit) in self.taps.edits.iter_mut().enumerate() {
            let piece = if number == 0 { data } else { &self.passed };
            self.next.clear();
            if !piece.is_empty() {
                edit.data(piece, &mut self.next)?;
            }
            match step {
                TapStep::Data => {}
                TapStep::Flush => edit.flush(&mut self.next)?,
                TapStep::End => edit.end(&mut self.next)?,
            }
            std::mem::swap(&mut self.passed, &mut self.next);
        }
        Ok(())
    }
}

impl<S: Sink> Sink for TappedSink<'_, S> {
    fn data(&mut self, data: &[u8]) {
        self.step(data, TapStep::Data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.step(b"", TapStep::End);
        // They get no call behind the end.
        self.taps = Taps::default();
        if !self.is_broken {
            self.sink.end(trailers);
        }
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        if !self.taps.edits.is_empty() {
            self.step(b"", TapStep::Flush);
        }
        match self.is_broken {
            true => Err(BodyError::TapFailed),
            false => self.sink.ready().await,
        }
    }
}
