//! MongoDB.
//!
//! | file | concept |
//! |---|---|
//! | `keys` | the declarations |
//! | `auth` | the logins of clients |
//! | `rules` | rules about commands |
//! | `futile` | settings that look like a limit or like protection and are none |
//! | `upstream` | upstreams: from keys to settings |

mod auth;
mod futile;
mod keys;
mod rules;
mod upstream;

use std::time::Duration;

use weir_mongodb::settings::{Compressor, PinLimits, SETTLE_TIMEOUT};
pub(crate) use weir_mongodb::settings::{
    MongodbListenerSettings as ListenerSettings, MongodbUpstreamSettings as UpstreamSettings,
};

use crate::numbers::Period;
use crate::protocols::{ListenerContext, NoKeys, Protocol, ProtocolName, Unfit, UpstreamContext};
use crate::reader::Reader;
use crate::sections::FileSection;
use crate::snapshot::{Listener, Upstream};

/// Its listeners share nothing.
pub(crate) type ProcessSettings = ();

/// See [`Protocol`].
pub(crate) struct Mongodb;

impl Protocol for Mongodb {
    type ListenerKeys = keys::ListenerKeys;
    type UpstreamKeys = keys::UpstreamKeys;
    type FileKeys = NoKeys;
    type TelemetryKeys = NoKeys;
    type Listener = ListenerSettings;
    type Upstream = UpstreamSettings;
    type Process = ProcessSettings;
    type File<'f> = ();

    const SHARED_LISTENER_KEYS: &'static [&'static str] = &["user"];

    fn unfit_at_listener(_: ProtocolName) -> &'static [Unfit] {
        &[
            Unfit(&["output_hard_cap"], "remove it: a client that reads slowly delays only itself"),
            Unfit(&["redis", "users_file"], "write [[listener.user]] with name and password"),
            Unfit(&["server_name"], "write protocol = \"tls\", or remove it"),
            Unfit(&["head_timeout"], "see message_timeout and client_login_timeout of [listener.mongodb]"),
            Unfit(&["half_close_timeout"], "remove it: a connection ends when its client closes its side"),
            Unfit(&["idle_timeout"], "see client_idle_timeout of [listener.mongodb]"),
        ]
    }

    fn unfit_at_upstream(_: ProtocolName) -> &'static [Unfit] {
        const LANES: &[&str] = &["shared_lanes", "pinned_lanes_max", "pinned_lanes_idle_max", "lane_in_flight_max"];
        const ENDPOINTS: &[&str] = &["topology", "read_from", "zone", "sentinel"];
        &[
            Unfit(&["request_timeout"], "see request_timeout of [listener.mongodb]"),
            Unfit(&["lane_wait_timeout"], "see queue_wait_timeout of [listener.mongodb]"),
            Unfit(LANES, "see pool_size of [upstream.mongodb]"),
            Unfit(ENDPOINTS, "see replica_set of [upstream.mongodb]; clients name a read preference"),
            Unfit(&["sharding", "reconnect"], "remove it"),
            Unfit(&["redis", "http", "tcp", "postgres"], "write [upstream.mongodb]"),
        ]
    }

    fn file(_: &FileSection, _: &mut Reader<'_>) {}

    fn listener((): &(), of: &mut ListenerContext<'_>, reader: &mut Reader<'_>) -> Option<ListenerSettings> {
        auth::check(of, reader);
        futile::check(of, reader);
        Some(listener(of, reader))
    }

    fn upstream(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> UpstreamSettings {
        upstream::settings(of, reader)
    }

    fn process(_: &FileSection, (): (), _: &[Listener], _: &mut [Upstream], _: &mut Reader<'_>) {}
}

/// Settings of a listener.
fn listener(of: &ListenerContext<'_>, reader: &mut Reader<'_>) -> ListenerSettings {
    let section = &of.section.own.mongodb.mongodb;
    let limit = |period: &Period| Some(period.0).filter(|limit| *limit > Duration::ZERO);
    let subjects = section.subjects.as_ref().map(|list| &list.value);
    let compressors = section.compressors.iter().flat_map(|list| &list.value);
    let pins = |cursors: u32, transactions: u32| PinLimits {
        cursors_max: cursors as usize,
        transactions_max: transactions as usize,
        cursor_idle: section.cursor_idle_timeout.value.0,
        transaction_idle: section.transaction_idle_timeout.value.0,
    };
    ListenerSettings {
        auth: section.auth.value,
        users: auth::users(of, reader),
        mechanisms: auth::mechanisms(section),
        subjects: subjects.map(|list| list.iter().map(|subject| subject.value.0.clone()).collect()),
        login_failures_max: section.login_failures_max.value,
        face: section.face.value,
        streams_hello: section.streaming_hello.value,
        compressors: compressors.map(|compressor| compressor.value).collect::<Vec<Compressor>>(),
        policy: rules::policy(of, reader),
        connection_pins: pins(section.connection_cursors_max.value, section.connection_transactions_max.value),
        shared_pins: pins(section.cursors_max.value, section.transactions_max.value),
        client_login_timeout: section.client_login_timeout.value.0,
        message_timeout: section.message_timeout.value.0,
        queue_wait_timeout: section.queue_wait_timeout.value.0,
        request_timeout: limit(&section.request_timeout.value),
        settle_timeout: SETTLE_TIMEOUT,
        client_idle_timeout: limit(&section.client_idle_timeout.value),
        held_bytes_max: section.held_bytes_max.value.bytes() as usize,
    }
}
