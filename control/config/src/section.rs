//! The `section!` macro: a table is declared once, and its reader, its documentation, its JSON form and its
//! comparison follow.
//!
//! ```text
//! section! {
//!     /// The purpose of the table.
//!     pub(crate) struct Example {
//!         /// What the key means.
//!         default  connections: u32 = 16_384 => 1..=1_048_576;   // At<u32>
//!         /// ...
//!         optional idle_timeout: Period;                        // Option<At<Period>>
//!         required name: Name;                                  // Option<At<Name>>, its absence already reported
//!         table    health: Health;                              // Health, absent: all defaults
//!         optional_table tls: Tls;                              // Option<Tls>
//!         tables   listener: Listener;                          // Vec<Listener>
//!         include  own: OwnKeys;                                // OwnKeys, whose keys stand in this table; a text
//!                                                               // above is added to that of each of them
//!     }
//! }
//! ```

use serde_json::{Map, Value as Json};

use crate::reader::TableReader;
use crate::value::{FieldInfo, Shape, TableInfo};

/// The key of a field: one that is a word of Rust, too, is declared as `r#type`.
pub(crate) const fn key(field: &'static str) -> &'static str {
    match field.as_bytes() {
        [b'r', b'#', ..] => field.split_at(2).1,
        _ => field,
    }
}

/// A declared table.
pub(crate) trait Section: Sized {
    /// The purpose of the table.
    const DOC: &'static str;

    /// The declarations of its keys.
    fn fields(found: &mut Vec<FieldInfo>);

    /// The declaration of the table.
    fn info() -> TableInfo {
        let mut fields = Vec::new();
        Self::fields(&mut fields);
        TableInfo { doc: Self::DOC, fields }
    }

    /// The keys and tables that may stand in it.
    fn names(found: &mut Vec<&'static str>);

    /// Reads its keys; what is wrong is reported and replaced by its default.
    fn keys(table: &mut TableReader<'_, '_, '_>) -> Self;

    /// Reads the whole table, in which no other key may stand.
    fn read(table: &mut TableReader<'_, '_, '_>) -> Self {
        let mut names = Vec::new();
        Self::names(&mut names);
        table.refuse_unknown(&names);
        Self::keys(table)
    }

    /// Adds the effective values to `shown`, without secrets.
    fn show_into(&self, shown: &mut Map<String, Json>);

    /// The effective values as JSON, without secrets.
    fn show(&self) -> Json {
        let mut shown = Map::new();
        self.show_into(&mut shown);
        shown.into()
    }

    /// Paths of the keys whose values differ.
    fn differences(&self, other: &Self, path: &str, found: &mut Vec<String>);

    /// The keys and tables that are written in the file, with their places. `path` is that of the table.
    fn given(&self, path: &str, found: &mut Vec<GivenKey>);

    /// The name that distinguishes this table in its list; `None` for tables that stand alone.
    fn list_name(&self) -> Option<String> {
        None
    }
}

macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        pub(crate) struct $name:ident $([name = $list_name:ident])? {
            $( $(#[doc = $field_doc:literal])* $presence:ident $field:ident : $ty:ty $(= $default:expr)? $(=> $range:expr)?; )*
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            /// Where the table's header stands.
            pub(crate) place: $crate::section::SourcePlace,
            $( $(#[doc = $field_doc])* pub(crate) $field: $crate::section::field_type!($presence $ty), )*
        }

        // A table may have no keys.
        #[allow(unused_variables)]
        impl $crate::section::Section for $name {
            const DOC: &'static str = concat!($($doc, "\n"),+);

            fn fields(found: &mut Vec<$crate::value::FieldInfo>) {
                $( $crate::section::field_info!(
                    $presence $field, found, concat!($($field_doc, "\n"),*), $ty, [$($default)?], [$($range)?]
                ); )*
            }

            fn names(found: &mut Vec<&'static str>) {
                $( $crate::section::field_names!($presence $field, found, $ty); )*
            }

            fn keys(table: &mut $crate::reader::TableReader<'_, '_, '_>) -> Self {
                Self {
                    place: $crate::section::SourcePlace(table.span()),
                    $( $field: $crate::section::field_read!($presence $field, table, [$($default)?], [$($range)?]), )*
                }
            }

            fn show_into(&self, shown: &mut serde_json::Map<String, serde_json::Value>) {
                $( $crate::section::field_show!($presence $field, self, shown); )*
            }

            fn differences(&self, other: &Self, path: &str, found: &mut Vec<String>) {
                $( $crate::section::field_differences!($presence $field, self, other, path, found); )*
            }

            fn given(&self, path: &str, found: &mut Vec<$crate::section::GivenKey>) {
                $( $crate::section::field_given!($presence $field, self, path, found); )*
            }

            $( fn list_name(&self) -> Option<String> {
                self.$list_name.as_ref().map(|name| name.value.to_string())
            } )?
        }
    };
}

macro_rules! field_type {
    (default $ty:ty) => { $crate::document::At<$ty> };
    (optional $ty:ty) => { Option<$crate::document::At<$ty>> };
    (required $ty:ty) => { Option<$crate::document::At<$ty>> };
    (table $ty:ty) => { $ty };
    (include $ty:ty) => { $ty };
    (optional_table $ty:ty) => { Option<$ty> };
    (tables $ty:ty) => { Vec<$ty> };
}

macro_rules! field_info {
    (@leaf $field:ident, $fields:ident, $doc:expr, $ty:ty, $presence:expr, [$($range:expr)?]) => {
        $fields.push($crate::value::FieldInfo {
            key: $crate::section::key(stringify!($field)),
            doc: $doc.into(),
            shape: <$ty as $crate::value::Value>::shape(),
            presence: $presence,
            range: $crate::section::shown_range::<$ty>(None $(.or(Some($range)))?),
        })
    };
    (@table $field:ident, $fields:ident, $doc:expr, $shape:ident, $ty:ty) => {
        $fields.push($crate::value::FieldInfo {
            key: $crate::section::key(stringify!($field)),
            doc: $doc.into(),
            shape: $crate::value::Shape::$shape(<$ty as $crate::section::Section>::info()),
            presence: $crate::value::Presence::Optional,
            range: None,
        })
    };
    (default $field:ident, $fields:ident, $doc:expr, $ty:ty, [$default:expr], $range:tt) => {
        $crate::section::field_info!(@leaf $field, $fields, $doc, $ty,
            $crate::value::Presence::Default(<$ty as $crate::value::Value>::show(&$default)), $range)
    };
    (optional $field:ident, $fields:ident, $doc:expr, $ty:ty, [], $range:tt) => {
        $crate::section::field_info!(@leaf $field, $fields, $doc, $ty, $crate::value::Presence::Optional, $range)
    };
    (required $field:ident, $fields:ident, $doc:expr, $ty:ty, [], $range:tt) => {
        $crate::section::field_info!(@leaf $field, $fields, $doc, $ty, $crate::value::Presence::Required, $range)
    };
    (table $field:ident, $fields:ident, $doc:expr, $ty:ty, [], []) => {
        $crate::section::field_info!(@table $field, $fields, $doc, Table, $ty)
    };
    (optional_table $field:ident, $fields:ident, $doc:expr, $ty:ty, [], []) => {
        $crate::section::field_info!(@table $field, $fields, $doc, Table, $ty)
    };
    (tables $field:ident, $fields:ident, $doc:expr, $ty:ty, [], []) => {
        $crate::section::field_info!(@table $field, $fields, $doc, Tables, $ty)
    };
    (include $field:ident, $fields:ident, $doc:expr, $ty:ty, [], []) => {
        $fields.extend($crate::section::inherited(<$ty as $crate::section::Section>::info(), $doc))
    };
}

macro_rules! field_names {
    (include $field:ident, $found:ident, $ty:ty) => {
        <$ty as $crate::section::Section>::names($found)
    };
    ($presence:ident $field:ident, $found:ident, $ty:ty) => {
        $found.push($crate::section::key(stringify!($field)))
    };
}

macro_rules! field_read {
    (default $field:ident, $table:ident, [$default:expr], [$($range:expr)?]) => {
        $table.default_value($crate::section::key(stringify!($field)), $default, None $(.or(Some($range)))?)
    };
    (optional $field:ident, $table:ident, [], [$($range:expr)?]) => {
        $table.optional_value($crate::section::key(stringify!($field)), None $(.or(Some($range)))?)
    };
    (required $field:ident, $table:ident, [], [$($range:expr)?]) => {
        $table.required_value($crate::section::key(stringify!($field)), None $(.or(Some($range)))?)
    };
    (table $field:ident, $table:ident, [], []) => { $table.section($crate::section::key(stringify!($field))) };
    (include $field:ident, $table:ident, [], []) => { $crate::section::Section::keys($table) };
    (optional_table $field:ident, $table:ident, [], []) => { $table.optional_section($crate::section::key(stringify!($field))) };
    (tables $field:ident, $table:ident, [], []) => { $table.sections($crate::section::key(stringify!($field))) };
}

macro_rules! field_show {
    (default $field:ident, $self:ident, $shown:ident) => {
        $shown.insert($crate::section::key(stringify!($field)).to_owned(), $crate::value::Value::show(&$self.$field.value));
    };
    (optional $field:ident, $self:ident, $shown:ident) => {
        if let Some(field) = &$self.$field {
            $shown.insert($crate::section::key(stringify!($field)).to_owned(), $crate::value::Value::show(&field.value));
        }
    };
    (required $field:ident, $self:ident, $shown:ident) => {
        $crate::section::field_show!(optional $field, $self, $shown)
    };
    (table $field:ident, $self:ident, $shown:ident) => {
        $shown.insert($crate::section::key(stringify!($field)).to_owned(), $crate::section::Section::show(&$self.$field));
    };
    (optional_table $field:ident, $self:ident, $shown:ident) => {
        if let Some(field) = &$self.$field {
            $shown.insert($crate::section::key(stringify!($field)).to_owned(), $crate::section::Section::show(field));
        }
    };
    (include $field:ident, $self:ident, $shown:ident) => {
        $crate::section::Section::show_into(&$self.$field, $shown);
    };
    (tables $field:ident, $self:ident, $shown:ident) => {
        let tables: serde_json::Value = $self.$field.iter().map($crate::section::Section::show).collect();
        $shown.insert($crate::section::key(stringify!($field)).to_owned(), tables);
    };
}

macro_rules! field_differences {
    (include $field:ident, $self:ident, $other:ident, $path:ident, $found:ident) => {
        $crate::section::Section::differences(&$self.$field, &$other.$field, $path, $found);
    };
    (table $field:ident, $self:ident, $other:ident, $path:ident, $found:ident) => {
        let path = $crate::section::joined($path, $crate::section::key(stringify!($field)));
        $crate::section::Section::differences(&$self.$field, &$other.$field, &path, $found);
    };
    (optional_table $field:ident, $self:ident, $other:ident, $path:ident, $found:ident) => {
        let path = $crate::section::joined($path, $crate::section::key(stringify!($field)));
        $crate::section::optional_differences(&$self.$field, &$other.$field, &path, $found);
    };
    (tables $field:ident, $self:ident, $other:ident, $path:ident, $found:ident) => {
        let path = $crate::section::joined($path, $crate::section::key(stringify!($field)));
        $crate::section::list_differences(&$self.$field, &$other.$field, &path, $found);
    };
    ($leaf:ident $field:ident, $self:ident, $other:ident, $path:ident, $found:ident) => {
        if $self.$field != $other.$field {
            $found.push($crate::section::joined($path, $crate::section::key(stringify!($field))));
        }
    };
}

macro_rules! field_given {
    (include $field:ident, $self:ident, $path:ident, $found:ident) => {
        $crate::section::Section::given(&$self.$field, $path, $found);
    };
    (default $field:ident, $self:ident, $path:ident, $found:ident) => {
        if $self.$field.is_given {
            $crate::section::push_given($path, $crate::section::key(stringify!($field)), &$self.$field.span, $found);
        }
    };
    (table $field:ident, $self:ident, $path:ident, $found:ident) => {
        // One that is not written has the place of the table around it.
        if $self.$field.place.0 != $self.place.0 {
            $crate::section::push_given($path, $crate::section::key(stringify!($field)), &$self.$field.place.0, $found);
        }
        let path = $crate::section::joined($path, $crate::section::key(stringify!($field)));
        $crate::section::Section::given(&$self.$field, &path, $found);
    };
    (optional_table $field:ident, $self:ident, $path:ident, $found:ident) => {
        if let Some(table) = &$self.$field {
            $crate::section::push_given($path, $crate::section::key(stringify!($field)), &table.place.0, $found);
            let path = $crate::section::joined($path, $crate::section::key(stringify!($field)));
            $crate::section::Section::given(table, &path, $found);
        }
    };
    (tables $field:ident, $self:ident, $path:ident, $found:ident) => {
        for table in &$self.$field {
            $crate::section::push_given($path, $crate::section::key(stringify!($field)), &table.place.0, $found);
            let path = $crate::section::joined($path, $crate::section::key(stringify!($field)));
            $crate::section::Section::given(table, &path, $found);
        }
    };
    ($leaf:ident $field:ident, $self:ident, $path:ident, $found:ident) => {
        if let Some(value) = &$self.$field {
            $crate::section::push_given($path, $crate::section::key(stringify!($field)), &value.span, $found);
        }
    };
}

pub(crate) use {field_differences, field_given, field_info, field_names, field_read, field_show, field_type, section};

/// A place that takes no part in comparisons: moving a table in the file changes nothing.
#[derive(Clone, Debug)]
pub(crate) struct SourcePlace(pub(crate) crate::diagnostic::Span);

impl PartialEq for SourcePlace {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A key or a table that is written in the file.
#[derive(Clone, Debug)]
pub(crate) struct GivenKey {
    /// Without the numbers of tables in lists: `tls.certificate.names`.
    pub(crate) path: String,
    /// Where its value, or the header of the table, stands.
    pub(crate) span: crate::diagnostic::Span,
}

/// Adds the key `key` of the table at `path`.
pub(crate) fn push_given(path: &str, key: &str, span: &crate::diagnostic::Span, found: &mut Vec<GivenKey>) {
    found.push(GivenKey { path: joined(path, key), span: span.clone() });
}

/// The keys of an included table with the text that says what the absence of one means here. A list that is absent is empty.
pub(crate) fn inherited(info: TableInfo, absent: &str) -> Vec<FieldInfo> {
    let mut fields = info.fields;
    for field in fields.iter_mut().filter(|field| !matches!(field.shape, Shape::Tables(_))) {
        field.doc = format!("{}{absent}", field.doc).into();
    }
    fields
}

/// A range as it would stand in the file.
pub(crate) fn shown_range<T: crate::value::Value>(range: Option<std::ops::RangeInclusive<T>>) -> Option<(Json, Json)> {
    range.map(|range| (range.start().show(), range.end().show()))
}

/// `limits` and `connections` to `limits.connections`.
pub(crate) fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A table that came or went is one difference.
pub(crate) fn optional_differences<S: Section>(old: &Option<S>, new: &Option<S>, path: &str, found: &mut Vec<String>) {
    match (old, new) {
        (Some(old), Some(new)) => old.differences(new, path, found),
        (None, None) => (),
        (None, Some(_)) => found.push(format!("{path} added")),
        (Some(_), None) => found.push(format!("{path} removed")),
    }
}

/// Tables of a list are matched by name, where they have one: their order means nothing then.
pub(crate) fn list_differences<S: Section>(old: &[S], new: &[S], path: &str, found: &mut Vec<String>) {
    if old.iter().chain(new).all(|table| table.list_name().is_none()) {
        return positional_differences(old, new, path, found);
    }
    let named = |list: &[S], name: &Option<String>| list.iter().position(|table| table.list_name() == *name);
    for table in old {
        let name = table.list_name();
        let label = joined(path, name.as_deref().unwrap_or("?"));
        match named(new, &name) {
            Some(at) => table.differences(&new[at], &label, found),
            None => found.push(format!("{label} removed")),
        }
    }
    for table in new {
        let name = table.list_name();
        if named(old, &name).is_none() {
            found.push(format!("{} added", joined(path, name.as_deref().unwrap_or("?"))));
        }
    }
}

fn positional_differences<S: Section>(old: &[S], new: &[S], path: &str, found: &mut Vec<String>) {
    for number in 0..old.len().max(new.len()) {
        let label = format!("{path}[{number}]");
        match (old.get(number), new.get(number)) {
            (Some(old), Some(new)) => old.differences(new, &label, found),
            (Some(_), None) => found.push(format!("{label} removed")),
            (None, _) => found.push(format!("{label} added")),
        }
    }
}
