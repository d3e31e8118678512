//! Response bodies that pass taps on their way to the client.

use weir_http_codec::Fields;

use crate::{
    body::{Broken, Sink},
    doors::{BodyTap, BrokenOff},
};

/// A place behind taps. What is passed on together leaves together: no piece waits for more to come.
pub(crate) struct Tapped<'a, S> {
    sink: &'a mut S,
    /// In the order in which the body passes them.
    taps: Vec<Box<dyn BodyTap>>,
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
    pub(crate) fn new(taps: Vec<Box<dyn BodyTap>>, sink: &'a mut S) -> Self {
        Self { sink, taps, passed: Vec::new(), next: Vec::new(), is_broken: false }
    }

    /// Passes on what comes out of the last tap. Once a tap has failed nothing comes out any more, so that the body does not look whole.
    fn step(&mut self, data: &[u8], step: Step) {
        self.is_broken = self.is_broken || self.through(data, step).is_err();
        if !self.is_broken && !self.passed.is_empty() {
            self.sink.data(&self.passed);
        }
    }

    fn through(&mut self, data: &[u8], step: Step) -> Result<(), BrokenOff> {
        for (number, tap) in self.taps.iter_mut().enumerate() {
            let piece = if number == 0 { data } else { &self.passed };
            self.next.clear();
            if !piece.is_empty() {
                tap.data(piece, &mut self.next)?;
            }
            match step {
                Step::Data => {}
                Step::Flush => tap.flush(&mut self.next)?,
                Step::End => tap.end(&mut self.next)?,
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
        self.taps.clear();
        self.passed.clear();
        if !self.is_broken {
            self.sink.end(trailers);
        }
    }

    async fn relieved(&mut self) -> Result<(), Broken> {
        if !self.taps.is_empty() {
            self.step(b"", Step::Flush);
        }
        match self.is_broken {
            true => Err(Broken::Cut),
            false => self.sink.relieved().await,
        }
    }
}
