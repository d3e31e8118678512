//! Redis: its upstreams and listeners, and its sessions that move to another process.

use std::{any::Any, io, rc::Rc, sync::Arc};

use serde::{Deserialize, Serialize};
use weir_listener::{ConnectionDetails, Service, settings::ListenerSettings};
use weir_redis::{
    MovedSession, RedisUpstream, RespLane,
    settings::{RedisListenerSettings, RedisUpstreamSettings},
};
use weir_upstream::Upstream;

use super::{AnyUpstream, ListenerParts, ListenerShare, Protocol, UpstreamParts, Upstreams};
use crate::upgrade::connection::SessionFields;

impl AnyUpstream for RedisUpstream {
    fn retire(&self) {
        RedisUpstream::retire(self);
    }

    fn end(&self) {
        RedisUpstream::end(self);
    }
}

/// See [`Protocol`].
pub(super) struct Redis;

impl Protocol for Redis {
    type Listener = RedisListenerSettings;
    type Upstream = RedisUpstreamSettings;
    type Service = weir_redis::Service;

    const MOVES_SESSIONS: bool = true;

    fn upstream(of: UpstreamParts<'_>, own: &RedisUpstreamSettings) -> io::Result<Rc<dyn AnyUpstream>> {
        let UpstreamParts { settings, shares, metrics, hard_cap, probes, .. } = of;
        Ok(Upstream::new(settings, RespLane::new(own.clone()), shares, metrics, hard_cap, probes)?)
    }

    fn listener_share() -> ListenerShare {
        Arc::new(weir_redis::ListenerShare::default())
    }

    fn service(of: ListenerParts<'_>, own: &RedisListenerSettings) -> Option<Rc<dyn Service>> {
        let upstream = of.upstreams.named::<RedisUpstream>(of.upstream)?;
        let share = of.share.clone().downcast().ok()?;
        let core = (of.core.clone(), of.protocols.redis.clone());
        Some(weir_redis::Service::new(core, of.settings, own.clone(), upstream, share))
    }

    fn update(
        service: &weir_redis::Service,
        settings: ListenerSettings,
        own: &RedisListenerSettings,
        upstream: &str,
        upstreams: &Upstreams,
    ) -> Option<()> {
        service.update(settings, own.clone(), upstreams.named(upstream)?);
        Some(())
    }

    fn encode_session(session: Box<dyn Any + Send>) -> Result<SessionFields, Box<dyn Any + Send>> {
        session.downcast().map(|session| encode_session(*session))
    }

    fn decode_session(fields: SessionFields) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(decode_session(fields)?))
    }
}

/// The fields. A missing one has its default: the other process may be of another version.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Fields {
    name: String,
    user: String,
    library: String,
    library_version: String,
    db: u32,
    version: u8,
    is_authenticated: bool,
    is_restricted: bool,
    auth_failures: u32,
    wants_replies: bool,
    skips_next_reply: bool,
    /// Hexadecimal: JSON has no bytes.
    input: String,
}

/// The session as the old process has it.
fn encode_session(session: MovedSession) -> SessionFields {
    let details = session.details;
    let fields = Fields {
        name: details.name,
        user: details.user,
        library: details.library,
        library_version: details.library_version,
        db: details.db.unwrap_or_default(),
        version: session.version,
        is_authenticated: session.is_authenticated,
        is_restricted: session.is_restricted,
        auth_failures: session.auth_failures,
        wants_replies: session.wants_replies,
        skips_next_reply: session.skips_next_reply,
        input: session.input.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    match serde_json::to_value(fields) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => SessionFields::default(),
    }
}

/// The session as the new process needs it. `None`: a field has another type, or the input is no hexadecimal text.
fn decode_session(fields: SessionFields) -> Option<MovedSession> {
    let fields: Fields = serde_json::from_value(fields.into()).ok()?;
    let digits = fields.input.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2);
    let input = digits.map(byte).collect::<Option<_>>()?;
    let details = ConnectionDetails {
        name: fields.name,
        user: fields.user,
        library: fields.library,
        library_version: fields.library_version,
        db: Some(fields.db),
        ..ConnectionDetails::default()
    };
    Some(MovedSession {
        is_authenticated: fields.is_authenticated,
        is_restricted: fields.is_restricted,
        auth_failures: fields.auth_failures,
        wants_replies: fields.wants_replies,
        skips_next_reply: fields.skips_next_reply,
        version: fields.version,
        details,
        input,
    })
}

#[cfg(test)]
mod tests {
    use weir_engine::handover::{Channel, MESSAGE_BYTES_MAX};
    use weir_redis::MOVED_INPUT_BYTES_MAX;

    use super::*;
    use crate::upgrade::{connection::MovedConnection, message::Message};

    fn session() -> MovedSession {
        MovedSession {
            is_authenticated: true,
            is_restricted: true,
            auth_failures: 2,
            wants_replies: true,
            skips_next_reply: false,
            details: ConnectionDetails {
                name: "reports \"x\"".to_owned(),
                user: "default".to_owned(),
                library: "jedis".to_owned(),
                library_version: "5.1".to_owned(),
                db: Some(3),
                ..ConnectionDetails::default()
            },
            version: 3,
            input: (0..=255).collect(),
        }
    }

    fn message(session: MovedSession) -> Message {
        let session = encode_session(session);
        let bind = "unix:/".to_owned() + &"x".repeat(106);
        Message::Connection(Box::new(MovedConnection { bind, id: u64::MAX, peer: "p".repeat(64), session }))
    }

    #[test]
    fn a_session_arrives_as_it_departed() {
        let moved = message(session());
        let text = serde_json::to_string(&moved).expect("JSON");
        assert!(text.contains("\"kind\":\"connection\"") && text.contains("\"library\":\"jedis\""), "{text}");
        let read: Message = serde_json::from_str(&text).expect("the same");
        assert_eq!(read, moved);
        let Message::Connection(read) = read else { panic!("another message") };
        assert_eq!(decode_session(read.session), Some(session()));
    }

    #[test]
    fn invalid_session_fields_are_refused() {
        for (key, value) in [("input", serde_json::json!("2a3")), ("db", serde_json::json!("x"))] {
            let fields = [(key.to_owned(), value)].into_iter().collect();
            assert_eq!(decode_session(fields), None, "{key}");
        }
    }

    /// The largest session that may move fits into one message.
    #[test]
    fn the_largest_session_fits() {
        let (ours, _theirs) = Channel::pair().expect("a pair");
        // Every character of a name takes two in JSON at the most: names are printable.
        let details = ConnectionDetails { name: "\\".repeat(4 * 1024), ..ConnectionDetails::default() };
        let largest = MovedSession { details, input: vec![0xff; MOVED_INPUT_BYTES_MAX], ..session() };
        let message = message(largest);
        assert!(serde_json::to_vec(&message).expect("JSON").len() < MESSAGE_BYTES_MAX);
        message.send(&ours, &[]).expect("it fits");
    }
}
