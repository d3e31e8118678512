//! The value of a field of the event under way.

use std::ops::Range;

use crate::limits::KEPT_BYTES_MAX;

/// Where a value is.
#[derive(Clone, Debug, Default)]
enum Place {
    /// No line has set it.
    #[default]
    Absent,
    /// In the present piece. Most values are: they are never copied.
    Piece(Range<usize>),
    /// In the buffer of the field.
    Held,
}

/// A value: a part of the present piece, or gathered in a buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Field {
    place: Place,
    held: Vec<u8>,
}

impl Field {
    /// A line of the present piece has this value. It replaces the one before.
    pub(crate) fn set(&mut self, value: Range<usize>) {
        self.place = Place::Piece(value);
    }

    /// A line has this value, and the line is in no piece. It replaces the one before.
    pub(crate) fn set_held(&mut self, value: &[u8]) {
        self.held.clear();
        self.held.extend_from_slice(value);
        self.place = Place::Held;
    }

    /// A further line has this value. Lines of data are joined by LF.
    pub(crate) fn join(&mut self, value: &[u8], piece: &[u8]) {
        self.hold(piece);
        self.held.push(b'\n');
        self.held.extend_from_slice(value);
    }

    /// Whether a line has set the value.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.place, Place::Absent)
    }

    /// The piece ends: its part moves to the buffer.
    pub(crate) fn hold(&mut self, piece: &[u8]) {
        if let Place::Piece(range) = &self.place {
            self.held.clear();
            self.held.extend_from_slice(&piece[range.clone()]);
            self.place = Place::Held;
        }
    }

    /// The value, if a line has set it.
    pub(crate) fn value<'a>(&'a self, piece: &'a [u8]) -> Option<&'a [u8]> {
        match &self.place {
            Place::Absent => None,
            Place::Piece(range) => Some(&piece[range.clone()]),
            Place::Held => Some(&self.held),
        }
    }

    /// The next event begins. An unusually large buffer is given back.
    pub(crate) fn clear(&mut self) {
        if matches!(self.place, Place::Held) && self.held.capacity() > KEPT_BYTES_MAX {
            self.held = Vec::new();
        }
        self.place = Place::Absent;
    }
}
