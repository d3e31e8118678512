//! Response bodies that pass taps on their way to the client.

use std::rc::Rc;

use weir_http_codec::Fields;

use crate::{
    body::{BodyError, Sink},
    filter::{BodyAborted, BrokenEnd, HoldLimits},
    filter_handle::FilterHandle,
};

/// Bytes of a buffer that a body keeps between pieces. Default 64 KiB, four receives of a socket: an edit that lets a piece grow must not hold
/// the memory of the largest one to the end of the body.
const KEPT_BYTES: usize = 64 * 1024;

/// Bytes that are sent together, if so many come at once. Default 16 KiB, one record of TLS: events of a stream are small.
const JOINED_BYTES: usize = 16 * 1024;

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

/// The taps of one response body, with what they have passed.
#[derive(Default)]
pub(crate) struct Taps {
    /// Sees the body first, as it comes.
    pub(crate) follower: Option<Rc<FilterHandle>>,
    /// In the order in which the body passes them.
    pub(crate) edits: Vec<Box<dyn BodyEdit>>,
    /// The filter that is the first of them.
    pub(crate) editor: Option<Rc<FilterHandle>>,
    /// The filter that replaces the whole body. There is no other tap then.
    pub(crate) replacer: Option<(Rc<FilterHandle>, HoldLimits)>,
    /// Bytes that have passed all edits and are not sent yet.
    passed: Vec<u8>,
    /// Bytes that have passed the edits so far.
    between: Vec<u8>,
    next: Vec<u8>,
    is_broken: bool,
}

impl Taps {
    pub(crate) fn is_empty(&self) -> bool {
        self.follower.is_none() && self.edits.is_empty() && self.replacer.is_none()
    }

    /// The body breaks off for `reason`: the bytes that go on behind what has gone, and their end, if a filter edits it. Once.
    pub(crate) fn break_off(&mut self, reason: &str) -> Option<(&[u8], BrokenEnd)> {
        let editor = self.editor.take()?;
        self.passed.clear();
        let mut end = editor.with(|filter| filter.broken_off(reason, &mut self.passed));
        if self.recode(end).is_err() {
            // Half of a coding is worth nothing.
            self.passed.clear();
            end = BrokenEnd::Cut;
        }
        editor.broken_end.set(Some(end));
        Some((self.passed.as_slice(), end))
    }

    /// Passes the last piece of the filter through the edits behind it.
    fn recode(&mut self, end: BrokenEnd) -> Result<(), BodyAborted> {
        for edit in self.edits.iter_mut().skip(1) {
            self.next.clear();
            if !self.passed.is_empty() {
                edit.data(&self.passed, &mut self.next)?;
            }
            match end {
                BrokenEnd::Cut => edit.flush(&mut self.next)?,
                BrokenEnd::Finish => edit.end(&mut self.next)?,
            }
            std::mem::swap(&mut self.passed, &mut self.next);
        }
        Ok(())
    }

    /// Gives back the memory of a large piece that has gone on.
    fn release(&mut self) {
        for buffer in [&mut self.passed, &mut self.between, &mut self.next] {
            if buffer.capacity() > KEPT_BYTES {
                *buffer = Vec::new();
            }
        }
    }

    fn follow(&mut self, data: &[u8], step: TapStep) -> Result<(), BodyAborted> {
        let Some(follower) = &self.follower else { return Ok(()) };
        match step {
            TapStep::Data if !data.is_empty() => follower.with(|filter| filter.follow(data)),
            TapStep::Data | TapStep::Flush => Ok(()),
            TapStep::End => follower.with(|filter| filter.response_end(&mut Vec::new())),
        }
    }

    fn edit(&mut self, data: &[u8], step: TapStep) -> Result<(), BodyAborted> {
        let Self { edits, passed, between, next, .. } = self;
        let last = edits.len().saturating_sub(1);
        for (number, edit) in edits.iter_mut().enumerate() {
            let piece = if number == 0 { data } else { &*between };
            next.clear();
            let out = if number == last { &mut *passed } else { &mut *next };
            if !piece.is_empty() {
                edit.data(piece, out)?;
            }
            match step {
                TapStep::Data => {}
                TapStep::Flush => edit.flush(out)?,
                TapStep::End => edit.end(out)?,
            }
            std::mem::swap(between, next);
        }
        Ok(())
    }
}

/// A sink behind taps. Small pieces that are there together go on together. Each flush sends everything: no piece waits for more to come.
pub(crate) struct TappedSink<'a, S> {
    sink: &'a mut S,
    taps: &'a mut Taps,
}

/// The steps of a body at its taps.
#[derive(Clone, Copy)]
enum TapStep {
    Data,
    Flush,
    End,
}

impl<'a, S: Sink> TappedSink<'a, S> {
    pub(crate) fn new(taps: &'a mut Taps, sink: &'a mut S) -> Self {
        Self { sink, taps }
    }

    /// Passes the next piece through the taps. Once a tap has failed nothing comes out any more, so that the body does not look whole.
    fn step(&mut self, data: &[u8], step: TapStep) {
        let Self { sink, taps } = self;
        let passed = taps.passed.len();
        if !taps.is_broken && taps.follow(data, step).and_then(|()| taps.edit(data, step)).is_err() {
            taps.is_broken = true;
            taps.passed.truncate(passed);
        }
        if taps.edits.is_empty() && !taps.is_broken && !data.is_empty() {
            sink.data(data);
        }
        if taps.passed.len() >= JOINED_BYTES {
            self.send();
        }
    }

    /// Sends what has passed.
    pub(crate) fn send(&mut self) {
        let Self { sink, taps } = self;
        if !taps.passed.is_empty() {
            sink.data(&taps.passed);
            taps.passed.clear();
        }
    }
}

impl<S: Sink> Sink for TappedSink<'_, S> {
    fn data(&mut self, data: &[u8]) {
        self.step(data, TapStep::Data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.step(b"", TapStep::End);
        if !self.taps.is_broken {
            self.send();
            // They get no call behind the end.
            *self.taps = Taps::default();
            self.sink.end(trailers);
        }
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        if !self.taps.edits.is_empty() {
            self.step(b"", TapStep::Flush);
            self.send();
            self.taps.release();
        }
        match self.taps.is_broken {
            true => Err(BodyError::TapFailed),
            false => self.sink.ready().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_large_piece_is_given_back() {
        let (passed, next) = (vec![0; KEPT_BYTES + 1], vec![0; KEPT_BYTES]);
        let mut taps = Taps { passed, next, ..Taps::default() };
        taps.release();
        assert_eq!((taps.passed.capacity(), taps.next.capacity()), (0, KEPT_BYTES));
    }
}
