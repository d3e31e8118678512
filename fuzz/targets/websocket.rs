//! libFuzzer entry of `weir_fuzz::websocket`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::websocket(data));
