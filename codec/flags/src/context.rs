//! The values that an evaluation looks at: fields that every client has, and properties that the application chooses.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::limits::{CONTEXT_BYTES_MAX, CONTEXT_VALUE_BYTES_MAX};
use crate::scalar::Scalar;
use crate::{DocumentError, query};

/// A field that every context may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ContextField {
    /// `userId`
    UserId,
    /// `sessionId`
    SessionId,
    /// `environment`
    Environment,
    /// `appName`
    AppName,
    /// `currentTime`
    CurrentTime,
    /// `remoteAddress`
    RemoteAddress,
}

impl ContextField {
    /// Every one, in declaration order.
    pub const ALL: [Self; 6] =
        [Self::UserId, Self::SessionId, Self::Environment, Self::AppName, Self::CurrentTime, Self::RemoteAddress];

    /// The name in queries, in JSON and in constraints.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UserId => "userId",
            Self::SessionId => "sessionId",
            Self::Environment => "environment",
            Self::AppName => "appName",
            Self::CurrentTime => "currentTime",
            Self::RemoteAddress => "remoteAddress",
        }
    }

    /// The field of a name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// The treatment of a name that is no field, outside of `properties`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// It is a property, as unleash-server and Unleash Edge have it.
    #[default]
    Properties,
    /// It is left out.
    Drop,
}

/// The values of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context<'a> {
    fields: [Option<Cow<'a, str>>; ContextField::ALL.len()],
    /// The first of equal names counts.
    properties: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

/// A context that is refused: a bad request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextError {
    /// It has more than [`CONTEXT_BYTES_MAX`] bytes: its status is 413.
    TooLarge,
    /// A value has more than [`CONTEXT_VALUE_BYTES_MAX`] bytes: its status is 413.
    ValueTooLarge,
    /// It is no object of JSON.
    Json(DocumentError),
    /// The decoded query is no UTF-8.
    Utf8,
    /// A bracket of `properties[…]` is missing.
    Bracket,
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "the context has more than {CONTEXT_BYTES_MAX} bytes"),
            Self::ValueTooLarge => write!(f, "a value of the context has more than {CONTEXT_VALUE_BYTES_MAX} bytes"),
            Self::Json(error) => write!(f, "the context is no object of JSON: {error}"),
            Self::Utf8 => f.write_str("the query is no UTF-8"),
            Self::Bracket => f.write_str("a bracket of the query has no counterpart"),
        }
    }
}

impl std::error::Error for ContextError {}

impl<'a> Context<'a> {
    /// The value of a field.
    pub fn field(&self, field: ContextField) -> Option<&str> {
        self.fields[field as usize].as_deref()
    }

    /// Sets a field.
    pub fn set_field(&mut self, field: ContextField, value: impl Into<Cow<'a, str>>) {
        self.fields[field as usize] = Some(value.into());
    }

    /// Sets a field that has no value yet, for example `remoteAddress` to the address of the client.
    pub fn set_field_if_absent(&mut self, field: ContextField, value: impl Into<Cow<'a, str>>) {
        if self.fields[field as usize].is_none() {
            self.set_field(field, value);
        }
    }

    /// Names and values of the properties. The first of equal names counts.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.properties.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The property of a name.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Reads the query of `GET /api/frontend`: `userId=7&properties[plan]=pro`, with brackets as they are or escaped. The first of equal
    /// keys counts. Objects within properties are left out.
    ///
    /// # Errors
    /// It is too large, no UTF-8, or a bracket is missing.
    pub fn from_query(text: &'a str, unknown: UnknownFields) -> Result<Self, ContextError> {
        if text.len() > CONTEXT_BYTES_MAX {
            return Err(ContextError::TooLarge);
        }
        let (mut context, mut rest) = (Self::default(), Vec::new());
        for pair in query::pairs(text) {
            let (key, value) = pair?;
            match query::Key::of(key)? {
                query::Key::Plain(name) => match ContextField::of(&name) {
                    Some(field) => context.set_field_if_absent(field, value),
                    None if unknown == UnknownFields::Properties => rest.push((name, value)),
                    None => {}
                },
                query::Key::Property(name) => context.properties.push((name, value)),
                query::Key::Nested => {}
            }
        }
        context.properties.append(&mut rest);
        context.checked()
    }

    /// Reads the body of `POST /api/frontend`: a context, or an object with it as its member `context`. The last of equal keys counts, as
    /// readers of JSON have it. Values that are no string, number or truth value are left out.
    ///
    /// # Errors
    /// It is too large, or no object of JSON.
    pub fn from_json(text: &'a [u8]) -> Result<Self, ContextError> {
        if text.len() > CONTEXT_BYTES_MAX {
            return Err(ContextError::TooLarge);
        }
        let Outer { bare, wrapped } =
            serde_json::from_slice(text).map_err(|error| ContextError::Json(DocumentError::from(error)))?;
        wrapped.unwrap_or(bare).checked()
    }

    /// The context, if no value is too long for an evaluation.
    fn checked(self) -> Result<Self, ContextError> {
        let values = self.fields.iter().flatten().chain(self.properties.iter().map(|(_, value)| value));
        match values.into_iter().any(|value| value.len() > CONTEXT_VALUE_BYTES_MAX) {
            true => Err(ContextError::ValueTooLarge),
            false => Ok(self.with_fields_of_properties()),
        }
    }

    /// A property with the name of a field stands for the field that is absent.
    fn with_fields_of_properties(mut self) -> Self {
        for field in ContextField::ALL {
            if self.field(field).is_none()
                && let Some((_, value)) = self.properties.iter().find(|(name, _)| name == field.name())
            {
                self.fields[field as usize] = Some(value.clone());
            }
        }
        self
    }
}

/// A body: its own members as a context, and that of its member `context`.
#[derive(Default)]
struct Outer<'a> {
    bare: Context<'a>,
    wrapped: Option<Context<'a>>,
}

impl<'de> Deserialize<'de> for Outer<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OuterVisitor { may_be_wrapped: true })
    }
}

/// A context within a body. `None`: it is no object.
struct Inner<'a>(Option<Context<'a>>);

impl<'de> Deserialize<'de> for Inner<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = OuterVisitor { may_be_wrapped: false };
        deserializer.deserialize_any(IfObject(object)).map(|outer| Self(outer.map(|outer| outer.bare)))
    }
}

struct OuterVisitor {
    may_be_wrapped: bool,
}

impl<'de> Visitor<'de> for OuterVisitor {
    type Value = Outer<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let (mut outer, mut properties, mut rest) = (Outer::default(), Vec::new(), Vec::new());
        while let Some(Scalar(key)) = members.next_key()? {
            let key = key.unwrap_or_default();
            match (&*key, ContextField::of(&key)) {
                (_, Some(field)) => outer.bare.fields[field as usize] = members.next_value::<Scalar<'de>>()?.0,
                ("properties", _) => properties = members.next_value::<Properties<'de>>()?.0,
                ("context", _) if self.may_be_wrapped => outer.wrapped = members.next_value::<Inner<'de>>()?.0,
                _ => rest.extend(members.next_value::<Scalar<'de>>()?.0.map(|value| (key, value))),
            }
        }
        // The first of equal names counts, and in JSON that is the last.
        properties.reverse();
        rest.reverse();
        properties.append(&mut rest);
        outer.bare.properties = properties;
        Ok(outer)
    }
}

/// The members of `properties` that have a text.
#[derive(Default)]
struct Properties<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'de> Deserialize<'de> for Properties<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IfObject(PropertiesVisitor)).map(Option::unwrap_or_default)
    }
}

struct PropertiesVisitor;

impl<'de> Visitor<'de> for PropertiesVisitor {
    type Value = Properties<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut properties = Properties::default();
        while let Some((Scalar(name), Scalar(value))) = members.next_entry()? {
            properties.0.extend(name.zip(value));
        }
        Ok(properties)
    }
}

/// Visits an object, and passes over any other value.
struct IfObject<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for IfObject<V> {
    type Value = Option<V::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Self::Value, A::Error> {
        self.0.visit_map(members).map(Some)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}
