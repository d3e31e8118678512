//! One number for all commands that differ only in what their author would call data.
//!
//! The form, which is the same in every process and version of the program until a note in CHANGELOG.md says otherwise: the shape is
//! XXH64, seed 0, of the *normal form*. That is the command's word, its collection, and its fields in their order, as in
//! `find orders {filter:{state:?,$or:[{total:{$gt:?}}]},sort:{total:-1}}`:
//!
//! - every value is `?`, except directions of a sort, ones and zeros of a projection, and paths of fields in an expression (`"$total"`);
//! - neighbours in an array that are equal in this form are one, so that `$in` of any length is `[?]`;
//! - documents of an insert are `?`;
//! - fields of a session, of a transaction, of concerns, preferences, limits of time and comments are left out, and so is the database.
//!
//! Names of fields stay, also where an application makes them of data.

use std::ops::Range;

use weir_mongodb_codec::bson::{Elements, Kind, Value};
use weir_mongodb_codec::command::Command;
use xxhash_rust::xxh64::xxh64;

use super::facts::{Argument, Flaw};
use super::limits::Limits;
use super::table::lookup;

/// Bytes of a path of a field that is kept.
const PATH_BYTES_MAX: usize = 128;

/// The shape of a command and its document sequences.
///
/// # Errors
/// The command is broken or beyond a limit, and has no shape.
pub fn shape<'a>(
    command: &Command<'a>,
    arguments: impl IntoIterator<Item = Argument<'a>>,
    limits: &Limits,
) -> Result<u64, Flaw> {
    normal_form(command, arguments, limits).map(|form| xxh64(&form, 0))
}

/// The normal form of a command, which has no value of it.
///
/// # Errors
/// As [`shape`].
pub fn normal_form<'a>(
    command: &Command<'a>,
    arguments: impl IntoIterator<Item = Argument<'a>>,
    limits: &Limits,
) -> Result<Vec<u8>, Flaw> {
    let mut form = Form { out: Vec::with_capacity(128), elements: 0, limits };
    form.out.extend_from_slice(lookup(command.name).map_or("other", |row| row.name).as_bytes());
    form.out.push(b' ');
    form.out.extend_from_slice(command.collection().unwrap_or(b"-"));
    form.out.push(b' ');
    let mut body = command.body.elements();
    // The name is in front already.
    body.next();
    form.write(body, Context::Top)?;
    let mut present: &[u8] = b"";
    let mut kept = 0..0;
    for Argument { name, document } in arguments {
        let start = form.out.len();
        if name != present {
            present = name;
            kept = start..start;
            form.out.push(b' ');
            form.out.extend_from_slice(name);
        }
        let start = form.out.len();
        match Context::of(name, Context::Top) {
            Context::Hidden => form.out.push(b'?'),
            context => form.write(document.elements(), context)?,
        }
        if form.out[kept.clone()] == form.out[start..] {
            form.out.truncate(start);
        } else {
            kept = start..form.out.len();
        }
    }
    Ok(form.out)
}

/// The meaning of values at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    /// Fields of the command itself.
    Top,
    /// Values are data.
    Data,
    /// Texts that begin with `$` are paths of fields.
    Expression,
    /// Numbers and booleans are structure as well.
    Order,
    /// Not looked into.
    Hidden,
    /// Left out.
    Absent,
}

impl Context {
    /// The context of the value of `key`.
    fn of(key: &[u8], around: Self) -> Self {
        match (around, key) {
            (Self::Top, b"documents") => Self::Hidden,
            (Self::Top, b"sort" | b"projection" | b"fields") => Self::Order,
            (Self::Top, b"pipeline") => Self::Expression,
            (
                Self::Top,
                b"$db"
                | b"lsid"
                | b"txnNumber"
                | b"startTransaction"
                | b"autocommit"
                | b"stmtId"
                | b"stmtIds"
                | b"$clusterTime"
                | b"$readPreference"
                | b"$audit"
                | b"$client"
                | b"readConcern"
                | b"writeConcern"
                | b"maxTimeMS"
                | b"comment"
                | b"apiVersion"
                | b"apiStrict"
                | b"apiDeprecationErrors",
            ) => Self::Absent,
            (Self::Top, _) => Self::Data,
            (Self::Data, b"$expr") => Self::Expression,
            (Self::Expression | Self::Order, b"$literal") => Self::Data,
            (Self::Expression, b"$match") => Self::Data,
            (Self::Expression, b"$sort" | b"$project") => Self::Order,
            (around, _) => around,
        }
    }
}

struct Form<'l> {
    out: Vec<u8>,
    elements: usize,
    limits: &'l Limits,
}

/// A document or an array that is open.
struct Open<'a> {
    elements: Elements<'a>,
    is_array: bool,
    context: Context,
    has_element: bool,
    /// The last element of an array that stayed, and the beginning of the present one.
    kept: Range<usize>,
    start: usize,
}

impl<'a> Open<'a> {
    const fn new(elements: Elements<'a>, is_array: bool, context: Context) -> Self {
        Self { elements, is_array, context, has_element: false, kept: 0..0, start: 0 }
    }
}

impl Form<'_> {
    fn write(&mut self, elements: Elements<'_>, context: Context) -> Result<(), Flaw> {
        self.out.push(b'{');
        let mut open = vec![Open::new(elements, false, context)];
        loop {
            let depth = open.len();
            let Some(here) = open.last_mut() else { return Ok(()) };
            let Some(element) = here.elements.next() else {
                self.out.push(if here.is_array { b']' } else { b'}' });
                open.pop();
                if let Some(around) = open.last_mut() {
                    self.end_element(around);
                }
                continue;
            };
            let element = element.map_err(|_| Flaw::Broken)?;
            self.elements += 1;
            if self.elements > self.limits.elements_max {
                return Err(Flaw::Elements);
            }
            let context = if here.is_array { here.context } else { Context::of(element.name, here.context) };
            if context == Context::Absent {
                continue;
            }
            self.begin_element(here, element.name);
            let inner = element.value.as_document().map_err(|_| Flaw::Broken)?;
            match inner.filter(|_| context != Context::Hidden) {
                Some(_) if depth >= self.limits.depth_max => return Err(Flaw::Depth),
                Some(inner) => {
                    let is_array = element.value.kind == Kind::Array;
                    self.out.push(if is_array { b'[' } else { b'{' });
                    open.push(Open::new(inner.elements(), is_array, context));
                }
                None => {
                    self.scalar(element.value, context);
                    self.end_element(here);
                }
            }
        }
    }

    fn begin_element(&mut self, here: &mut Open<'_>, name: &[u8]) {
        if here.has_element {
            self.out.push(b',');
        }
        here.has_element = true;
        here.start = self.out.len();
        if !here.is_array {
            self.out.extend_from_slice(name);
            self.out.push(b':');
        }
    }

    /// Drops an element of an array, with its comma, if the one before it is the same.
    fn end_element(&mut self, here: &mut Open<'_>) {
        if !here.is_array {
            return;
        }
        let element = here.start..self.out.len();
        if self.out[here.kept.clone()] == self.out[element.clone()] {
            self.out.truncate(element.start - 1);
        } else {
            here.kept = element;
        }
    }

    fn scalar(&mut self, value: Value<'_>, context: Context) {
        let path = value.as_string().filter(|text| text.first() == Some(&b'$') && text.len() <= PATH_BYTES_MAX);
        match (context, path) {
            (Context::Expression | Context::Order, Some(path)) => {
                self.out.push(b'"');
                self.out.extend_from_slice(path);
                self.out.push(b'"');
            }
            (Context::Order, None) => match value.as_integer().or(value.as_bool().map(i64::from)) {
                // Other numbers would be data.
                Some(number @ -1..=1) => self.out.extend_from_slice(number.to_string().as_bytes()),
                _ => self.out.push(b'?'),
            },
            _ => self.out.push(b'?'),
        }
    }
}

#[cfg(test)]
mod tests;
