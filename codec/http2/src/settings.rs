//! Parameters of a connection (RFC 9113 section 6.5.2).

use crate::{
    frame::{FrameError, write},
    hpack::TABLE_BYTES_DEFAULT,
};

/// Bytes of a stream's window, and of the connection's, before anything else is agreed on (RFC 9113 section 6.9.2).
pub const WINDOW_BYTES_DEFAULT: u32 = 65_535;

/// The largest window (RFC 9113 section 6.9.1).
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// The least that SETTINGS_MAX_FRAME_SIZE can be, and its default.
pub const FRAME_BYTES_DEFAULT: u32 = 1 << 14;

/// The most that SETTINGS_MAX_FRAME_SIZE can be.
pub const FRAME_BYTES_MAX: u32 = (1 << 24) - 1;

/// The end that sends settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The end that opened the connection.
    Client,
    /// The end that took it.
    Server,
}

/// One parameter with a value in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// SETTINGS_HEADER_TABLE_SIZE: bytes of the dynamic table with which the sender decodes.
    HeaderTableSize(u32),
    /// SETTINGS_ENABLE_PUSH.
    EnablePush(bool),
    /// SETTINGS_MAX_CONCURRENT_STREAMS: streams of the receiver at a time.
    MaxConcurrentStreams(u32),
    /// SETTINGS_INITIAL_WINDOW_SIZE: bytes of the window of each stream for which the receiver sends data.
    InitialWindowSize(u32),
    /// SETTINGS_MAX_FRAME_SIZE: bytes of a payload that the sender takes.
    MaxFrameSize(u32),
    /// SETTINGS_MAX_HEADER_LIST_SIZE: bytes of decoded fields, 32 more for each; advice.
    MaxHeaderListSize(u32),
    /// SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441 section 3).
    EnableConnectProtocol(bool),
    /// SETTINGS_NO_RFC7540_PRIORITIES (RFC 9218 section 2.1).
    NoRfc7540Priorities(bool),
    /// One that is not known, to be ignored.
    Unknown {
        /// Its number.
        id: u16,
        /// Its value.
        value: u32,
    },
}

impl Setting {
    /// Bytes of a parameter on the wire.
    pub const BYTES: usize = 6;

    /// The parameter with this number and value.
    ///
    /// # Errors
    /// [`FrameError::SettingValue`] or [`FrameError::SettingWindow`].
    pub const fn of(id: u16, value: u32) -> Result<Self, FrameError> {
        let is_flag = value <= 1;
        Ok(match id {
            0x1 => Self::HeaderTableSize(value),
            0x2 if is_flag => Self::EnablePush(value == 1),
            0x3 => Self::MaxConcurrentStreams(value),
            0x4 if value <= WINDOW_BYTES_MAX => Self::InitialWindowSize(value),
            0x4 => return Err(FrameError::SettingWindow),
            0x5 if value >= FRAME_BYTES_DEFAULT && value <= FRAME_BYTES_MAX => Self::MaxFrameSize(value),
            0x6 => Self::MaxHeaderListSize(value),
            0x8 if is_flag => Self::EnableConnectProtocol(value == 1),
            0x9 if is_flag => Self::NoRfc7540Priorities(value == 1),
            0x2 | 0x5 | 0x8 | 0x9 => return Err(FrameError::SettingValue),
            _ => Self::Unknown { id, value },
        })
    }

    /// Number and value.
    pub const fn id_and_value(self) -> (u16, u32) {
        match self {
            Self::HeaderTableSize(bytes) => (0x1, bytes),
            Self::EnablePush(is_on) => (0x2, is_on as u32),
            Self::MaxConcurrentStreams(count) => (0x3, count),
            Self::InitialWindowSize(bytes) => (0x4, bytes),
            Self::MaxFrameSize(bytes) => (0x5, bytes),
            Self::MaxHeaderListSize(bytes) => (0x6, bytes),
            Self::EnableConnectProtocol(is_on) => (0x8, is_on as u32),
            Self::NoRfc7540Priorities(is_on) => (0x9, is_on as u32),
            Self::Unknown { id, value } => (id, value),
        }
    }

    /// The parameter as on the wire.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        let (id, value) = self.id_and_value();
        let ([a, b], [c, d, e, f]) = (id.to_be_bytes(), value.to_be_bytes());
        [a, b, c, d, e, f]
    }
}

/// The payload of SETTINGS: whole parameters, in order. A later one of the same number replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsPayload<'a>(&'a [u8]);

impl<'a> SettingsPayload<'a> {
    /// The view of a payload.
    ///
    /// # Errors
    /// [`FrameError::Length`]: not a multiple of 6 bytes.
    pub const fn new(payload: &'a [u8]) -> Result<Self, FrameError> {
        if payload.len().is_multiple_of(Setting::BYTES) { Ok(Self(payload)) } else { Err(FrameError::Length) }
    }

    /// Number of parameters.
    pub const fn len(self) -> usize {
        self.0.len() / Setting::BYTES
    }

    /// True without one.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The parameters, each with the error of its value.
    pub fn iter(self) -> impl Iterator<Item = Result<Setting, FrameError>> + 'a {
        self.0
            .as_chunks()
            .0
            .iter()
            .map(|&[a, b, c, d, e, f]| Setting::of(u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])))
    }
}

/// The settings of one end. The default holds before its first SETTINGS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// See [`Setting::HeaderTableSize`].
    pub header_table_bytes: u32,
    /// See [`Setting::EnablePush`].
    pub enable_push: bool,
    /// See [`Setting::MaxConcurrentStreams`]; `None`: no limit.
    pub max_concurrent_streams: Option<u32>,
    /// See [`Setting::InitialWindowSize`].
    pub initial_window_bytes: u32,
    /// See [`Setting::MaxFrameSize`].
    pub max_frame_bytes: u32,
    /// See [`Setting::MaxHeaderListSize`]; `None`: no limit.
    pub max_header_list_bytes: Option<u32>,
    /// See [`Setting::EnableConnectProtocol`].
    pub enable_connect_protocol: bool,
    /// See [`Setting::NoRfc7540Priorities`].
    pub no_rfc7540_priorities: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            header_table_bytes: TABLE_BYTES_DEFAULT,
            enable_push: true,
            max_concurrent_streams: None,
            initial_window_bytes: WINDOW_BYTES_DEFAULT,
            max_frame_bytes: FRAME_BYTES_DEFAULT,
            max_header_list_bytes: None,
            enable_connect_protocol: false,
            no_rfc7540_priorities: false,
        }
    }
}

impl Settings {
    /// Takes one parameter that `sender` has sent. The caller passes [`Setting::HeaderTableSize`] on to its encoder, and adds the change
    /// of [`Setting::InitialWindowSize`] to the windows of its streams.
    ///
    /// # Errors
    /// [`FrameError::SettingValue`]: push enabled by a server (RFC 9113 section 6.5.2), or the CONNECT protocol taken back (RFC 8441
    /// section 3).
    pub const fn apply(&mut self, setting: Setting, sender: Sender) -> Result<(), FrameError> {
        match setting {
            Setting::EnablePush(true) if matches!(sender, Sender::Server) => return Err(FrameError::SettingValue),
            Setting::EnableConnectProtocol(false) if self.enable_connect_protocol => {
                return Err(FrameError::SettingValue);
            }
            Setting::HeaderTableSize(bytes) => self.header_table_bytes = bytes,
            Setting::EnablePush(is_on) => self.enable_push = is_on,
            Setting::MaxConcurrentStreams(count) => self.max_concurrent_streams = Some(count),
            Setting::InitialWindowSize(bytes) => self.initial_window_bytes = bytes,
            Setting::MaxFrameSize(bytes) => self.max_frame_bytes = bytes,
            Setting::MaxHeaderListSize(bytes) => self.max_header_list_bytes = Some(bytes),
            Setting::EnableConnectProtocol(is_on) => self.enable_connect_protocol = is_on,
            Setting::NoRfc7540Priorities(is_on) => self.no_rfc7540_priorities = is_on,
            Setting::Unknown { .. } => {}
        }
        Ok(())
    }

    /// Appends SETTINGS with all parameters that differ from the default: the first frame of a connection, empty if none does.
    pub fn write(&self, into: &mut Vec<u8>) {
        let default = Self::default();
        let all = [
            (self.header_table_bytes != default.header_table_bytes)
                .then_some(Setting::HeaderTableSize(self.header_table_bytes)),
            (self.enable_push != default.enable_push).then_some(Setting::EnablePush(self.enable_push)),
            self.max_concurrent_streams.map(Setting::MaxConcurrentStreams),
            (self.initial_window_bytes != default.initial_window_bytes)
                .then_some(Setting::InitialWindowSize(self.initial_window_bytes)),
            (self.max_frame_bytes != default.max_frame_bytes).then_some(Setting::MaxFrameSize(self.max_frame_bytes)),
            self.max_header_list_bytes.map(Setting::MaxHeaderListSize),
            self.enable_connect_protocol.then_some(Setting::EnableConnectProtocol(true)),
            self.no_rfc7540_priorities.then_some(Setting::NoRfc7540Priorities(true)),
        ];
        let mut changed = [Setting::EnablePush(true); 8];
        let mut count = 0;
        for setting in all.into_iter().flatten() {
            changed[count] = setting;
            count += 1;
        }
        write::settings(into, &changed[..count]);
    }
}
