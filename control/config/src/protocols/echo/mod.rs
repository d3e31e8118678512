//! Echo: lines, and the lines that come back.

use weir_base::ByteSize;
use weir_echo::settings as echo;
pub(crate) use weir_echo::settings::EchoListenerSettings as ListenerSettings;
use weir_upstream::settings as upstreams;
pub(crate) use weir_upstream::settings::ExclusiveSettings as UpstreamSettings;

use crate::numbers::Period;
use crate::protocols::{ListenerContext, NoKeys, Protocol, ProtocolName, Unfit, UpstreamContext};
use crate::reader::Reader;
use crate::section::section;
use crate::sections::FileSection;
use crate::snapshot::{Listener, Upstream};

section! {
    /// Keys of a listener.
    pub(crate) struct ListenerKeys {
        /// What only echo listeners have.
        table echo: ListenerEchoSection;
    }
}

section! {
    /// Keys of an upstream.
    pub(crate) struct UpstreamKeys {
        /// What only upstreams of echo listeners have.
        table echo: UpstreamEchoSection;
    }
}

section! {
    /// What only upstreams of echo listeners have.
    pub(crate) struct UpstreamEchoSection {
        /// How long a server may take to send a line back. After that the client gets `!timeout`.
        default answer_timeout: Period = Period(upstreams::REQUEST_TIMEOUT) => Period::millis(1)..=Period::secs(3_600);
    }
}

section! {
    /// What only echo listeners have.
    pub(crate) struct ListenerEchoSection {
        /// Bytes of a line without its end. A longer one is refused with `!line_too_long`, and the connection ends.
        default line_bytes_max: ByteSize = ByteSize::new(echo::LINE_BYTES_MAX) => ByteSize::new(16)..=ByteSize::kib(1_024);
    }
}

/// Its listeners share nothing.
pub(crate) type ProcessSettings = ();

/// See [`Protocol`].
pub(crate) struct Echo;

impl Protocol for Echo {
    type ListenerKeys = ListenerKeys;
    type UpstreamKeys = UpstreamKeys;
    type FileKeys = NoKeys;
    type TelemetryKeys = NoKeys;
    type Listener = ListenerSettings;
    type Upstream = UpstreamSettings;
    type Process = ProcessSettings;
    type File<'f> = ();

    fn unfit_at_listener(_: ProtocolName) -> &'static [Unfit] {
        const USERS: &[&str] = &["users_file", "user", "redis"];
        &[
            Unfit(&["output_hard_cap"], "remove it: a client that reads slowly holds up nobody but itself"),
            Unfit(&["half_close_timeout"], "remove it: a client that has ended its direction gets no further answer"),
            Unfit(USERS, "remove it: nobody is asked for a password"),
        ]
    }

    fn unfit_at_upstream(_: ProtocolName) -> &'static [Unfit] {
        const LANES: &[&str] = &["shared_lanes", "pinned_lanes_max", "pinned_lanes_idle_max", "lane_in_flight_max"];
        const ENDPOINTS: &[&str] = &["topology", "read_from", "zone", "sentinel", "sharding"];
        &[
            Unfit(LANES, "remove it: a lane serves one line at a time"),
            Unfit(ENDPOINTS, "write the endpoints: they take turns"),
            Unfit(&["reconnect"], "remove it: connections are made when they are needed"),
            Unfit(&["redis"], "remove it: the gateway logs in at Redis servers only"),
        ]
    }

    fn file(_: &FileSection, _: &mut Reader<'_>) {}

    fn listener((): &(), of: &mut ListenerContext<'_>, _: &mut Reader<'_>) -> Option<ListenerSettings> {
        Some(ListenerSettings { line_bytes_max: of.section.own.echo.echo.line_bytes_max.value.as_usize() })
    }

    fn upstream(of: &mut UpstreamContext<'_>, _: &mut Reader<'_>) -> UpstreamSettings {
        if let Some(settings) = &mut of.settings {
            settings.request_timeout = of.section.own.echo.echo.answer_timeout.value.0;
        }
        UpstreamSettings::default()
    }

    fn process(_: &FileSection, (): (), _: &[Listener], _: &mut [Upstream], _: &mut Reader<'_>) {}
}
