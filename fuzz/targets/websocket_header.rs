//! libFuzzer entry of `weir_fuzz::websocket_header`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::websocket_header(data));
