//! The protocols: one folder each behind the trait [`Protocol`], and the list from which everything else derives.
//!
//! The word of `protocol` in the file, the keys that only one protocol has, the settings of the snapshot and the refusal of
//! keys without effect follow from the list at the end of this file.

pub(crate) mod ai;
pub(crate) mod flags;
pub(crate) mod http;
pub(crate) mod listed_users;
pub(crate) mod mongodb;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod tcp;

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use weir_listener::settings::{LimitSettings, ListenerSettings};
use weir_upstream::settings::UpstreamSettings;

use crate::document::{At, Node};
use crate::reader::Reader;
use crate::section::{Section, section};
use crate::sections::{FileSection, ListenerSection, UpstreamSection};
use crate::snapshot::{Listener, Upstream};
use crate::texts::{Endpoint, Name, string, unknown_word};
use crate::value::{Shape, Value};

/// The configuration of one protocol: its keys, and the step from them to its settings.
///
/// [`Protocol::upstream`] of each upstream comes first, then [`Protocol::file`], [`Protocol::listener`] of each listener, and
/// [`Protocol::process`] at the end.
pub(crate) trait Protocol {
    /// Keys of `[[listener]]` that no other protocol has.
    type ListenerKeys: Section;
    /// Keys of `[[upstream]]` that no other protocol has.
    type UpstreamKeys: Section;
    /// Keys of the file itself that no other protocol has.
    type FileKeys: Section;
    /// Keys of `[telemetry]` that no other protocol has.
    type TelemetryKeys: Section;
    /// Settings of a listener.
    type Listener;
    /// Settings of an upstream.
    type Upstream;
    /// Settings that all its listeners share.
    type Process: PartialEq;
    /// The parts of the file that are made once, before its listeners.
    type File<'f>;

    /// Application protocols that its listeners offer with TLS if the file names none, most wanted first.
    const ALPN: &'static [&'static str] = &[];
    /// Protocols of the lab's scenarios whose results are a knee of its listeners. None: they have no knee.
    const SCENARIOS: &'static [&'static str] = &[];
    /// Keys of `[[listener]]` that another protocol declares, and that have an effect here too.
    const SHARED_LISTENER_KEYS: &'static [&'static str] = &[];
    /// The same of `[[upstream]]`.
    const SHARED_UPSTREAM_KEYS: &'static [&'static str] = &[];
    /// Its sessions refuse requests beyond a rate.
    const SHEDS: bool = false;
    /// A listener needs an `upstream`.
    const NEEDS_UPSTREAM: bool = true;

    /// Keys of a listener that speaks `name` and has no use for them. A key of another protocol never has an effect;
    /// with an entry here it gets a remedy.
    fn unfit_at_listener(name: ProtocolName) -> &'static [Unfit];

    /// The same of an upstream.
    fn unfit_at_upstream(name: ProtocolName) -> &'static [Unfit];

    /// The upstreams that a listener names besides its `upstream`.
    fn upstreams_of_listener(_: &Self::ListenerKeys) -> Vec<&At<Name>> {
        Vec::new()
    }

    /// The upstreams that the file names outside of listeners.
    fn upstreams_of_file(_: &Self::FileKeys) -> Vec<&At<Name>> {
        Vec::new()
    }

    /// Checks what stands outside of listeners and upstreams.
    fn file<'f>(file: &'f FileSection, reader: &mut Reader<'_>) -> Self::File<'f>;

    /// Checks a listener and makes its settings.
    fn listener(made: &Self::File<'_>, of: &mut ListenerContext<'_>, reader: &mut Reader<'_>)
    -> Option<Self::Listener>;

    /// Checks an upstream and makes its settings.
    fn upstream(of: &mut UpstreamContext<'_>, reader: &mut Reader<'_>) -> Self::Upstream;

    /// Checks what needs the settings of all listeners, and makes those that they share.
    fn process(
        file: &FileSection,
        made: Self::File<'_>,
        listeners: &[Listener],
        upstreams: &mut [Upstream],
        reader: &mut Reader<'_>,
    ) -> Self::Process;
}

/// Keys without effect, or tables with all their keys, and the remedy.
pub(crate) struct Unfit(pub(crate) &'static [&'static str], pub(crate) &'static str);

/// Context for the keys of a listener.
pub(crate) struct ListenerContext<'f> {
    pub(crate) file: &'f FileSection,
    pub(crate) section: &'f ListenerSection,
    /// Limits of the process, with the byte budget that follows from its memory.
    pub(crate) limits: &'f LimitSettings,
    pub(crate) protocol_name: ProtocolName,
    /// The upstream that it names, if there is one.
    pub(crate) upstream: Option<&'f UpstreamSection>,
    /// Path of the listener's table.
    pub(crate) path: &'f str,
    /// `None`: a mistake keeps the listener from being made. Its keys are checked all the same.
    pub(crate) settings: Option<ListenerSettings>,
}

/// Context for the keys of an upstream.
pub(crate) struct UpstreamContext<'f> {
    pub(crate) section: &'f UpstreamSection,
    pub(crate) endpoints: &'f [At<Endpoint>],
    /// Path of the upstream's table.
    pub(crate) path: &'f str,
    /// `None`: a mistake keeps the upstream from being made. Its keys are checked all the same.
    pub(crate) settings: Option<UpstreamSettings>,
}

/// The keys without effect for a listener, or an upstream, that speaks a protocol.
pub(crate) type UnfitKeys = fn(ProtocolName) -> &'static [Unfit];

/// Collects the names of keys.
pub(crate) type KeyNames = fn(&mut Vec<&'static str>);

/// The entry of the list for the protocol of a word.
pub(crate) struct Row {
    /// The words of the same protocol. They may share an upstream.
    pub(crate) names: &'static [ProtocolName],
    /// See [`Protocol::ALPN`].
    pub(crate) alpn: &'static [&'static str],
    /// See [`Protocol::SCENARIOS`].
    pub(crate) scenarios: &'static [&'static str],
    /// See [`Protocol::SHEDS`].
    pub(crate) sheds: bool,
    /// See [`Protocol::NEEDS_UPSTREAM`].
    pub(crate) needs_upstream: bool,
    /// See [`Protocol::SHARED_LISTENER_KEYS`].
    pub(crate) shared_listener_keys: &'static [&'static str],
    /// See [`Protocol::SHARED_UPSTREAM_KEYS`].
    pub(crate) shared_upstream_keys: &'static [&'static str],
    /// See [`Protocol::unfit_at_listener`].
    pub(crate) unfit_at_listener: UnfitKeys,
    /// See [`Protocol::unfit_at_upstream`].
    pub(crate) unfit_at_upstream: UnfitKeys,
    /// See [`Protocol::ListenerKeys`].
    pub(crate) listener_keys: KeyNames,
    /// See [`Protocol::UpstreamKeys`].
    pub(crate) upstream_keys: KeyNames,
}

/// Expands the list: each row is a folder, the type in it that implements [`Protocol`], and its words in the file with their
/// titles in messages. The folder has the types of its settings under the names `ListenerSettings`, `UpstreamSettings` and
/// `ProcessSettings`.
macro_rules! protocols {
    ($( $folder:ident $protocol:ident { $( #[doc = $doc:literal] $name:ident $word:literal $title:literal )+ } )+) => {
        /// The protocol of a listener, as the file names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProtocolName {
            $($( #[doc = $doc] $name, )+)+
        }

        impl ProtocolName {
            /// Every protocol of this build.
            pub const ALL: &'static [Self] = &[$($( Self::$name ),+),+];

            /// The name in configuration, metrics and logs.
            pub const fn name(self) -> &'static str {
                match self {
                    $($( Self::$name => $word, )+)+
                }
            }

            /// The name in sentences.
            pub(crate) const fn title(self) -> &'static str {
                match self {
                    $($( Self::$name => $title, )+)+
                }
            }

            /// The row of its protocol.
            pub(crate) fn row(self) -> Row {
                match self {
                    $( $( Self::$name )|+ => Row {
                        names: &[$( Self::$name ),+],
                        alpn: $folder::$protocol::ALPN,
                        scenarios: $folder::$protocol::SCENARIOS,
                        sheds: $folder::$protocol::SHEDS,
                        needs_upstream: $folder::$protocol::NEEDS_UPSTREAM,
                        shared_listener_keys: $folder::$protocol::SHARED_LISTENER_KEYS,
                        shared_upstream_keys: $folder::$protocol::SHARED_UPSTREAM_KEYS,
                        unfit_at_listener: $folder::$protocol::unfit_at_listener,
                        unfit_at_upstream: $folder::$protocol::unfit_at_upstream,
                        listener_keys: <$folder::$protocol as Protocol>::ListenerKeys::names,
                        upstream_keys: <$folder::$protocol as Protocol>::UpstreamKeys::names,
                    }, )+
                }
            }
        }

        /// Settings of one protocol, towards clients.
        #[derive(Clone, Debug)]
        pub enum ListenerProtocol {
            $( #[doc = concat!("Settings of `", stringify!($folder), "`.")]
            $protocol(Arc<$folder::ListenerSettings>), )+
        }

        /// Settings of one protocol, towards the upstream.
        #[derive(Clone, Debug, PartialEq)]
        pub enum UpstreamProtocol {
            $( #[doc = concat!("Settings of `", stringify!($folder), "`.")]
            $protocol(Arc<$folder::UpstreamSettings>), )+
        }

        /// Settings of each protocol that all its listeners share.
        #[derive(Clone, Debug, PartialEq)]
        pub struct ProcessSettings {
            $( #[doc = concat!("Those of `", stringify!($folder), "`.")]
            pub $folder: $folder::ProcessSettings, )+
        }

        section! {
            /// Keys of `[[listener]]` that only one protocol has.
            pub(crate) struct ListenerKeys {
                $( include $folder: <$folder::$protocol as Protocol>::ListenerKeys; )+
            }
        }

        section! {
            /// Keys of `[[upstream]]` that only one protocol has.
            pub(crate) struct UpstreamKeys {
                $( include $folder: <$folder::$protocol as Protocol>::UpstreamKeys; )+
            }
        }

        section! {
            /// Keys of the file that only one protocol has.
            pub(crate) struct FileKeys {
                $( include $folder: <$folder::$protocol as Protocol>::FileKeys; )+
            }
        }

        section! {
            /// Keys of `[telemetry]` that only one protocol has.
            pub(crate) struct TelemetryKeys {
                $( include $folder: <$folder::$protocol as Protocol>::TelemetryKeys; )+
            }
        }

        /// The parts that each protocol has made of the file.
        pub(crate) struct ProtocolSnapshot<'f> {
            $( $folder: <$folder::$protocol as Protocol>::File<'f>, )+
        }

        /// Checks what stands outside of listeners and upstreams.
        pub(crate) fn file<'f>(file: &'f FileSection, reader: &mut Reader<'_>) -> ProtocolSnapshot<'f> {
            ProtocolSnapshot { $( $folder: $folder::$protocol::file(file, reader), )+ }
        }

        /// Settings of a listener for its protocol.
        pub(crate) fn listener(
            made: &ProtocolSnapshot<'_>,
            of: &mut ListenerContext<'_>,
            reader: &mut Reader<'_>,
        ) -> Option<ListenerProtocol> {
            match of.protocol_name {
                $( $( ProtocolName::$name )|+ => {
                    let settings = $folder::$protocol::listener(&made.$folder, of, reader)?;
                    Some(ListenerProtocol::$protocol(Arc::new(settings)))
                } )+
            }
        }

        /// Settings of an upstream for the protocol `name`.
        pub(crate) fn upstream(
            name: ProtocolName,
            of: &mut UpstreamContext<'_>,
            reader: &mut Reader<'_>,
        ) -> UpstreamProtocol {
            match name {
                $( $( ProtocolName::$name )|+ => {
                    UpstreamProtocol::$protocol(Arc::new($folder::$protocol::upstream(of, reader)))
                } )+
            }
        }

        /// Checks that need the settings of all listeners.
        pub(crate) fn process(
            file: &FileSection,
            made: ProtocolSnapshot<'_>,
            listeners: &[Listener],
            upstreams: &mut [Upstream],
            reader: &mut Reader<'_>,
        ) -> ProcessSettings {
            ProcessSettings {
                $( $folder: $folder::$protocol::process(file, made.$folder, listeners, upstreams, reader), )+
            }
        }

        impl ListenerSection {
            /// The upstreams that it names, its own first.
            pub(crate) fn upstreams(&self) -> impl Iterator<Item = &At<Name>> {
                let named = [$( $folder::$protocol::upstreams_of_listener(&self.own.$folder) ),+];
                self.upstream.iter().chain(named.into_iter().flatten())
            }
        }

        impl FileSection {
            /// The upstreams that are named outside of listeners, with the protocol that goes to them.
            pub(crate) fn routed_upstreams(&self) -> impl Iterator<Item = (&At<Name>, ProtocolName)> {
                let named = [$( {
                    let upstreams = $folder::$protocol::upstreams_of_file(&self.own.$folder);
                    (upstreams, [$( ProtocolName::$name ),+][0])
                } ),+];
                named.into_iter().flat_map(|(upstreams, name)| upstreams.into_iter().map(move |one| (one, name)))
            }
        }
    };
}

// One row per protocol.
protocols! {
    redis Redis {
        /// RESP2 and RESP3.
        Redis "redis" "Redis"
    }
    http Http {
        /// HTTP/1.1 and HTTP/2.
        Http "http" "HTTP"
    }
    tcp Tcp {
        /// Any protocol, as bytes.
        Tcp "tcp" "TCP"
        /// TLS, unopened, by its server name.
        Tls "tls" "TLS passthrough"
    }
    postgres Postgres {
        /// PostgreSQL's protocol 3.
        Postgres "postgres" "PostgreSQL"
    }
    mongodb Mongodb {
        /// MongoDB's wire protocol.
        Mongodb "mongodb" "MongoDB"
    }
    ai Ai {
        /// OpenAI's and Anthropic's APIs.
        Ai "ai" "AI"
    }
    flags Flags {
        /// Unleash's API for feature flags.
        Flags "flags" "flags"
    }
}

impl std::fmt::Display for ProtocolName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Value for ProtocolName {
    fn shape() -> Shape {
        Shape::Choice(Self::ALL.iter().map(|name| name.name()).collect())
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = string(node, &Self::shape(), reader)?;
        let found = Self::ALL.iter().find(|name| name.name() == text);
        if found.is_none() {
            let names: Vec<&str> = Self::ALL.iter().map(|name| name.name()).collect();
            unknown_word(node, text, &names, reader);
        }
        found.copied()
    }

    fn show(&self) -> Json {
        json!(self.name())
    }
}

section! {
    /// The keys of a protocol that has none of its own in a table.
    pub(crate) struct NoKeys {}
}
