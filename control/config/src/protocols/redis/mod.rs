//! Redis.
//!
//! | file | concept |
//! |---|---|
//! | `keys` | the declarations |
//! | `listener`, `upstream` | from keys to settings |
//! | `users`, `rules` | the users of a listener: from tables and a file to one set; ACL rules as values |
//! | `insight` | settings of the requests that workers remember |

mod insight;
mod keys;
mod listener;
mod rules;
mod upstream;
mod users;

pub(crate) use self::keys::ListenerUserSection;
pub(crate) use weir_redis_session::insight::settings::InsightSettings as ProcessSettings;
pub(crate) use weir_redis_session::settings::{
    RedisListenerSettings as ListenerSettings, RedisUpstreamSettings as UpstreamSettings,
};

use crate::protocols::{ListenerContext, NoKeys, Protocol, ProtocolName, Unfit, UpstreamContext};
use crate::reader::Reader;
use crate::sections::FileSection;
use crate::snapshot::{Listener, Upstream};

/// See [`Protocol`].
pub(crate) struct Redis;

impl Protocol for Redis {
    type ListenerKeys = keys::ListenerKeys;
    type UpstreamKeys = keys::UpstreamKeys;
    type FileKeys = NoKeys;
    type TelemetryKeys = keys::TelemetryKeys;
    type Listener = ListenerSettings;
    type Upstream = UpstreamSettings;
    type Process = ProcessSettings;
    type File<'f> = ();

    const SCENARIOS: &'static [&'static str] = &["redis"];
    const SHEDS: bool = true;

    fn unfit_at_listener(_: ProtocolName) -> &'static [Unfit] {
        &[Unfit(&["server_name"], "write protocol = \"tls\", or remove it")]
    }

    fn unfit_at_upstream(_: ProtocolName) -> &'static [Unfit] {
        &[Unfit(&["http", "tcp"], "remove it; lanes and topology of Redis are keys of [[upstream]] itself")]
    }

    fn file(_: &FileSection, _: &mut Reader<'_>) {}

    fn listener((): &(), of: &mut ListenerContext<'_>, reader: &mut Reader<'_>) -> Option<ListenerSettings> {
        Some(listener::settings(of, reader))
    }

    fn upstream(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> UpstreamSettings {
        upstream::settings(of, reader)
    }

    fn process(
        file: &FileSection,
        (): (),
        listeners: &[Listener],
        upstreams: &mut [Upstream],
        reader: &mut Reader<'_>,
    ) -> ProcessSettings {
        users::give_logins(listeners, upstreams);
        insight::insight(file, &file.telemetry.own.redis, reader)
    }
}
