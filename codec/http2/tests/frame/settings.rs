//! Parameters, their ranges and their frames.

use weir_http2_codec::{
    ErrorCode,
    frame::{Frame, FrameError, FrameKind},
    settings::{Sender, Setting, Settings, SettingsPayload},
};

use crate::support::frames;

#[test]
fn values_beyond_their_range_are_refused() {
    let largest = [
        (0x1, u32::MAX),
        (0x2, 1),
        (0x3, u32::MAX),
        (0x4, u32::MAX >> 1),
        (0x5, (1 << 24) - 1),
        (0x6, u32::MAX),
        (0x7, u32::MAX),
        (0x8, 1),
        (0x9, 1),
        (0xffff, u32::MAX),
    ];
    for (id, value) in largest {
        let setting = Setting::of(id, value).expect("in range");
        assert_eq!(setting.id_and_value(), (id, value));
        if let Some(above) = value.checked_add(1) {
            let error = if id == 0x4 { FrameError::SettingWindow } else { FrameError::SettingValue };
            assert_eq!(Setting::of(id, above), Err(error), "{id}");
        }
    }
    assert_eq!(Setting::of(0x5, (1 << 14) - 1), Err(FrameError::SettingValue));
    assert_eq!(FrameError::SettingWindow.code(), ErrorCode::FLOW_CONTROL_ERROR);
    assert_eq!(FrameError::SettingValue.code(), ErrorCode::PROTOCOL_ERROR);
}

fn applied(sender: Sender, settings: &[Setting]) -> Result<Settings, FrameError> {
    let mut all = Settings::default();
    settings.iter().try_for_each(|setting| all.apply(*setting, sender)).map(|()| all)
}

#[test]
fn push_is_for_clients_to_enable_and_connect_is_not_taken_back() {
    assert!(applied(Sender::Client, &[Setting::EnablePush(true)]).is_ok());
    assert_eq!(applied(Sender::Server, &[Setting::EnablePush(true)]), Err(FrameError::SettingValue));
    assert!(applied(Sender::Server, &[Setting::EnablePush(false)]).is_ok());
    let (on, off) = (Setting::EnableConnectProtocol(true), Setting::EnableConnectProtocol(false));
    assert!(applied(Sender::Server, &[off, on, on]).is_ok());
    assert_eq!(applied(Sender::Server, &[on, off]), Err(FrameError::SettingValue));
}

#[test]
fn written_settings_are_read_as_they_were_and_defaults_are_left_out() {
    let ours = Settings {
        header_table_bytes: 0,
        enable_push: false,
        max_concurrent_streams: Some(100),
        initial_window_bytes: 1 << 20,
        max_frame_bytes: 1 << 20,
        max_header_list_bytes: Some(1 << 16),
        enable_connect_protocol: true,
        no_rfc7540_priorities: true,
    };
    for (settings, count) in [(ours, 8), (Settings::default(), 0)] {
        let mut bytes = Vec::new();
        settings.write(&mut bytes);
        let [(header, Frame::Settings(payload))] = frames(&bytes)[..] else { panic!("one frame") };
        assert_eq!((header.kind, header.stream_id, header.flags), (FrameKind::Settings, 0, 0));
        assert_eq!((payload.len(), payload.is_empty()), (count, count == 0));
        let read: Result<Vec<_>, _> = payload.iter().collect();
        assert_eq!(applied(Sender::Client, &read.expect("valid")), Ok(settings));
    }
}

#[test]
fn parameters_are_read_in_order_and_unknown_ones_change_nothing() {
    let payload = [0, 4, 0, 0, 0, 1, 0xff, 0, 1, 2, 3, 4, 0, 4, 0, 0, 0, 2, 0, 2, 0, 0, 0, 2];
    let settings = SettingsPayload::new(&payload).expect("whole");
    let read: Vec<_> = settings.iter().collect();
    let unknown = Setting::Unknown { id: 0xff00, value: 0x0102_0304 };
    let expected = [Setting::InitialWindowSize(1), unknown, Setting::InitialWindowSize(2)];
    assert_eq!(read[..3], expected.map(Ok));
    assert_eq!(read[3], Err(FrameError::SettingValue));
    let all = applied(Sender::Client, &expected).expect("valid");
    assert_eq!(all, Settings { initial_window_bytes: 2, ..Settings::default() });
    assert_eq!(SettingsPayload::new(&payload[1..]), Err(FrameError::Length));
}
