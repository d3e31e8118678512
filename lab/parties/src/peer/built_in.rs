//! The peers that the lab knows: files that are part of this crate, and variants of the gateway of this project.

use super::Peer;

const NGINX_ORIGIN: &str = include_str!("../peers/nginx-origin.toml");

// `WEIR`, the gateway of this project with a file for each family of protocols, and `OTHERS`: see `build.rs`.
include!(concat!(env!("OUT_DIR"), "/peers.rs"));

/// The gateway of this project, set otherwise. A family whose configuration lacks `behind` does not have the variant.
struct Variant {
    name: &'static str,
    /// The line of the configuration behind which `more` stands.
    behind: &'static str,
    more: &'static str,
    /// It may respond by itself: see [`Peer::answers_itself`].
    answers_itself: bool,
}

const VARIANTS: &[Variant] = &[
    Variant { name: "weir", behind: "", more: "", answers_itself: false },
    Variant { name: "weir-telemetry-off", behind: "[telemetry]\n", more: "level = \"off\"\n", answers_itself: false },
    Variant {
        name: "weir-capture-all",
        behind: "[telemetry]\n",
        more: "stage_sample = 1.0\naccess_log = { target = \"file:/dev/null\", sample = 1.0 }\n",
        answers_itself: false,
    },
    Variant { name: "weir-polling", behind: "[runtime]\n", more: "driver = \"polling\"\n", answers_itself: false },
    Variant {
        name: "weir-cache",
        behind: "upstream = \"redis\"\n",
        more: "\n[listener.redis]\ncache_bytes_max = \"64MiB\"\n",
        answers_itself: true,
    },
];

impl Variant {
    /// The file of a family; `None`: it has no such variant.
    fn text(&self, family: &str) -> Option<String> {
        if self.more.is_empty() {
            return Some(family.to_owned());
        }
        let head = if self.answers_itself { "answers_itself = true\n" } else { "" };
        let renamed = family.replace("name = \"weir\"\n", &format!("name = \"{}\"\n{head}", self.name));
        let (before, after) = renamed.split_once(self.behind)?;
        Some(format!("{before}{}{}{after}", self.behind, self.more))
    }
}

/// How much the gateway of this project observes of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Telemetry {
    /// Nothing but gauges.
    Off,
    /// As it is delivered.
    #[default]
    On,
    /// The stages of every exchange timed, and a line of the access log for each, written to nowhere. Lines that the log cannot
    /// take are dropped, as in service.
    CaptureAll,
}

impl Telemetry {
    /// As results name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::CaptureAll => "capture-all",
        }
    }

    /// As tables call the gateway of this project with this much of it.
    #[must_use]
    pub const fn peer_name(self) -> &'static str {
        match self {
            Self::Off => "weir-telemetry-off",
            Self::On => "weir",
            Self::CaptureAll => "weir-capture-all",
        }
    }
}

impl Peer {
    /// The gateway of this project in front of what speaks `protocol`; `None`: it does not speak it.
    ///
    /// # Panics
    /// Its file, which is part of this crate, is wrong.
    #[must_use]
    pub fn weir(telemetry: Telemetry, protocol: &str) -> Option<Self> {
        Self::all_built_in().find(|peer| peer.name == telemetry.peer_name() && peer.speaks(protocol))
    }

    /// nginx as what stands behind: it serves what is in `files` of the folder that it is started with.
    ///
    /// # Panics
    /// Its file, which is part of this crate, is wrong.
    #[must_use]
    pub fn nginx_origin() -> Self {
        Self::of_built_in(NGINX_ORIGIN)
    }

    /// One of those that the lab knows.
    ///
    /// # Panics
    /// A file that is part of this crate is wrong.
    #[must_use]
    pub fn built_in(name: &str) -> Option<Self> {
        Self::all_built_in().find(|peer| peer.name == name)
    }

    /// The one that the lab knows by this name for `protocol`: `envoy` is `envoy-http2` in front of HTTP/2. If none speaks it,
    /// the one of that very name.
    ///
    /// # Panics
    /// A file that is part of this crate is wrong.
    #[must_use]
    pub fn built_in_for(name: &str, protocol: &str) -> Option<Self> {
        let names = [name.to_owned(), format!("{name}-{protocol}"), format!("{name}-http")];
        let found = Self::all_built_in().find(|peer| names.contains(&peer.name) && peer.speaks(protocol));
        found.or_else(|| Self::built_in(name))
    }

    /// Those that the lab knows.
    ///
    /// # Panics
    /// A file that is part of this crate is wrong.
    pub fn all_built_in() -> impl Iterator<Item = Self> {
        texts().map(|text| Self::of_built_in(&text))
    }

    /// The file of one of those that the lab knows: a pattern for others.
    #[must_use]
    pub fn built_in_text(name: &str) -> Option<String> {
        texts().find(|text| Self::of_built_in(text).name == name)
    }

    fn of_built_in(text: &str) -> Self {
        Self::parse("built-in peer", text).expect("a right file")
    }
}

/// The gateway of this project, first with Redis: those of the other families have the same names. Then all others.
fn texts() -> impl Iterator<Item = String> {
    let ours = WEIR.iter().flat_map(|family| VARIANTS.iter().filter_map(|variant| variant.text(family)));
    ours.chain(OTHERS.iter().copied().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_right_and_each_protocol_has_its_gateways() {
        for protocol in ["redis", "http1", "http2", "websocket", "mongodb", "tcp"] {
            let ours = Peer::weir(Telemetry::Off, protocol).expect("it speaks it");
            assert!(ours.is_weir() && ours.speaks(protocol));
            for name in ["envoy", "haproxy"] {
                let peer = Peer::built_in_for(name, protocol).expect("it is there");
                assert!(peer.speaks(protocol) && peer.name.starts_with(name) && !peer.is_weir(), "{name} {protocol}");
            }
            let floor = Peer::built_in_for("floor", protocol).expect("it is there");
            assert!(floor.speaks(protocol) && floor.is_weir(), "{protocol}");
        }
        for name in ["envoy", "litellm", "portkey", "floor"] {
            assert!(Peer::built_in_for(name, "ai").is_some_and(|peer| peer.speaks("ai")), "{name}");
        }
        let edge = Peer::built_in_for("unleash-edge", "flags").expect("it is there");
        assert!(edge.speaks("flags") && !edge.is_weir() && edge.answers_itself);
        for name in ["pgbouncer", "pgpool"] {
            let peer = Peer::built_in_for(name, "postgres").expect("it is there");
            assert!(peer.speaks("postgres") && !peer.is_weir(), "{name}");
        }
        assert!(Peer::weir(Telemetry::On, "postgres").is_some_and(|peer| peer.is_weir()));
        assert_eq!(Peer::nginx_origin().name, "nginx-origin");
        let name = |name, protocol| Peer::built_in_for(name, protocol).map(|peer| peer.name);
        assert_eq!(name("nginx", "websocket").as_deref(), Some("nginx-websocket"));
        assert_eq!(name("envoy", "websocket").as_deref(), Some("envoy-http"));
        assert_eq!(name("nginx", "redis").as_deref(), Some("nginx"), "so that it can be told what it does not speak");
        assert_eq!((Peer::weir(Telemetry::On, "smtp"), name("caddy", "http1")), (None, None));
        assert_eq!(Peer::built_in("caddy"), None);
    }

    #[test]
    fn variants_are_set_as_their_names_say() {
        for (name, protocol, line) in [
            ("weir-telemetry-off", "tcp", "level = \"off\""),
            ("weir-capture-all", "http1", "sample = 1.0"),
            ("weir-polling", "redis", "driver = \"polling\""),
            ("weir-cache", "redis", "cache_bytes_max = \"64MiB\""),
            ("weir-telemetry-off", "flags", "level = \"off\""),
        ] {
            let peer = Peer::built_in_for(name, protocol).expect("it is there");
            let text = peer.config.expect("a configuration").text;
            assert!(text.contains(line), "{name}: {text}");
            assert_eq!(peer.answers_itself, name == "weir-cache" || protocol == "flags");
        }
        let http = Peer::built_in_for("weir-cache", "http1").expect("by its name");
        assert!(!http.speaks("http1"), "there is no cache of HTTP");
    }
}
