//! Response bodies that pass taps on their way to the client.

use std::rc::Rc;

use weir_http_codec::Fields;

use crate::{
    body::{Broken, Sink},
    company::Company,
    doors::BrokenOff,
};

/// An edit of one response body.
pub(crate) trait Edit {
    /// Takes the next piece, and appends to `out` what goes on.
    ///
    /// # Errors
    /// The response breaks off.
    fn data(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BrokenOff>;

    /// Appends what can go on by now: nothing more is there at the moment.
    ///
    /// # Errors
    /// The response breaks off.
    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), BrokenOff>;

    /// Appends the rest: the body is over.
    ///
    /// # Errors
    /// The response breaks off.
    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), BrokenOff>;
}

impl Edit for Rc<Company> {
    fn data(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        self.with(|companion| companion.edit(piece, out))
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        self.with(|companion| companion.flush(out))
    }

    fn end(&mut self, out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        self.with(|companion| companion.response_end(out))
    }
}

/// The taps of one response body.
#[derive(Default)]
pub(crate) struct Taps {
    /// Sees the body first, as it comes.
    pub(crate) follower: Option<Rc<Company>>,
    /// In the order in which the body passes them.
    pub(crate) edits: Vec<Box<dyn Edit>>,
}

impl Taps {
    pub(crate) fn is_empty(&self) -> bool {
        self.follower.is_none() && self.edits.is_empty()
    }
}

/// A place behind taps. What is passed on together leaves together: no piece waits for more to come.
pub(crate) struct Tapped<'a, S> {
    sink: &'a mut S,
    taps: Taps,
    passed: Vec<u8>,
    next: Vec<u8>,
    is_broken: bool,
}

/// What happens to a body at its taps.
#[derive(Clone, Copy)]
enum Step {
    Data,
    Flush,
    End,
}

impl<'a, S: Sink> Tapped<'a, S> {
    pub(crate) fn new(taps: Taps, sink: &'a mut S) -> Self {
        Self { sink, taps, passed: Vec::new(), next: Vec::new(), is_broken: false }
    }

    /// Passes on what comes out of the last tap. Once a tap has failed nothing comes out any more, so that the body does not look whole.
    fn step(&mut self, data: &[u8], step: Step) {
        self.is_broken = self.is_broken || self.follow(data, step).and_then(|()| self.edit(data, step)).is_err();
        let out = if self.taps.edits.is_empty() { data } else { &self.passed };
        if !self.is_broken && !out.is_empty() {
            self.sink.data(out);
        }
    }

    fn follow(&mut self, data: &[u8], step: Step) -> Result<(), BrokenOff> {
        let Some(follower) = &self.taps.follower else { return Ok(()) };
        match step {
            Step::Data if !data.is_empty() => follower.with(|companion| companion.follow(data)),
            Step::Data | Step::Flush => Ok(()),
            Step::End => follower.with(|companion| companion.response_end(&mut Vec::new())),
        }
    }

    fn edit(&mut self, data: &[u8], step: Step) -> Result<(), BrokenOff> {
        for (number, edit) in self.taps.edits.iter_mut().enumerate() {
            let piece = if number == 0 { data } else { &self.passed };
            self.next.clear();
            if !piece.is_empty() {
                edit.data(piece, &mut self.next)?;
            }
            match step {
                Step::Data => {}
                Step::Flush => edit.flush(&mut self.next)?,
                Step::End => edit.end(&mut self.next)?,
            }
            std::mem::swap(&mut self.passed, &mut self.next);
        }
        Ok(())
    }
}

impl<S: Sink> Sink for Tapped<'_, S> {
    fn data(&mut self, data: &[u8]) {
        self.step(data, Step::Data);
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        self.step(b"", Step::End);
        // They hear of nothing behind the end.
        self.taps = Taps::default();
        if !self.is_broken {
            self.sink.end(trailers);
        }
    }

    async fn relieved(&mut self) -> Result<(), Broken> {
        if !self.taps.edits.is_empty() {
            self.step(b"", Step::Flush);
        }
        match self.is_broken {
            true => Err(Broken::Untapped),
            false => self.sink.relieved().await,
        }
    }
}
